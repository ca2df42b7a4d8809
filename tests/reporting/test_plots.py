import numpy as np

from train.reporting import plots


def test_positions_are_drawn_where_they_do_something(tmp_path):
    plots.positions(None, None, tmp_path)
    assert not (tmp_path / "plots").exists()
    plots.positions(np.eye(4), np.zeros((2, 4, 4)), tmp_path)
    assert (tmp_path / "plots" / "positions.png").read_bytes().startswith(b"\x89PNG")

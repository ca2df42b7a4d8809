import numpy as np
import pytest

from train.screens import plots


@pytest.mark.slow
def test_positions_are_drawn_where_they_do_something(tmp_path):
    plots.positions(None, None, tmp_path)
    assert not (tmp_path / "plots").exists()
    plots.positions(np.eye(4), np.zeros((2, 4, 4)), tmp_path)
    assert (tmp_path / "plots" / "positions.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_positions_of_windows_are_means_of_the_pairs_that_see_each_other(tmp_path):
    """Two windows of two places, the second with twice the score: every diagonal has pairs that do not."""
    scores = np.full((1, 4, 4), np.nan)
    scores[0, :2, :2], scores[0, 2:, 2:] = [[1, 2], [3, 1]], [[2, 4], [6, 2]]
    np.testing.assert_allclose(plots._by_distance(scores), [[np.nan, np.nan, 4.5, 1.5, 3.0, np.nan, np.nan]])
    plots.positions(None, scores, tmp_path)
    assert (tmp_path / "plots" / "positions.png").exists()
    plots.positions(None, np.full((1, 2, 2), np.nan), tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()

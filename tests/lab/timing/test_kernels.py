"""What `train.lab.timing.kernels` prints."""

import json

import jax.numpy as jnp
import pytest

from train.lab.timing import kernels


@pytest.mark.slow
def test_every_kernel_is_near_float32(capsys):
    assert kernels.main(["--smoke"]) == 0
    *rows, norm = map(json.loads, capsys.readouterr().out.splitlines())
    assert {(row["kernel"], row["dropped"]) for row in rows} == {
        (k, d) for k in ("einsum", "chunked") for d in (0, 0.1)
    }
    assert all(0 < row["error"] < 0.01 for row in [*rows, norm] if not row.get("dropped"))
    assert all(row["ms"] > 0 for row in [*rows, norm])


def test_the_distance_is_relative_and_the_largest():
    pairs = jnp.array([3.0, 4.0]), jnp.array([1.0])
    assert kernels.distance((pairs[0] * 1.1, pairs[1] * 0.8), pairs) == pytest.approx(0.2, rel=1e-4)

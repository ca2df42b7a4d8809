"""The page of claims names programs that are there, and the cheap ones of them find what it says."""

import ast
import importlib
import re
from pathlib import Path

import jax
import numpy as np
import pytest

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGE = (DOCS / "claims.md").read_text()
ROWS = [line.split(" | ") for line in PAGE.splitlines() if re.match(r"\| .* \| `\w+` \| ", line)]


def functions(path):
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_a_row_names_a_program_and_has_an_interval():
    programs = set().union(*map(functions, DOCS.glob("claims*.py")))
    assert len(ROWS) >= 32
    for _, command, values, _ in ROWS:
        assert command.strip("`") in programs
        assert re.search(r"\(-?[\d.e-]+ to -?[\d.e-]+\)|counted", values), values


@pytest.mark.slow
@jax.numpy_rank_promotion("allow")
def test_cheap_claims_find_what_the_page_says(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    claims = importlib.import_module("claims").CLAIMS
    assert max(claims["offsets"](3)["sinusoids"]) < 1e-4 < 1 < min(claims["offsets"](3)["normal vectors"])
    assert max(claims["biases"](3)["keys"]) < 1e-5 < 0.1 < min(claims["biases"](3)["queries"])
    few, _, many = claims["kernels"](3).values()
    assert min(few) > 3 * max(many)
    without, _, decoder = claims["order"](3).values()
    assert max(without) < 1e-5 < 0.1 < min(decoder)
    flat, _, exact = claims["retrieval"](3).values()
    assert max(exact) < 1e-4 < 0.5 < min(flat)


@pytest.mark.slow
@jax.numpy_rank_promotion("allow")
def test_trainings_in_turns_get_the_same_seconds(monkeypatch):
    """Dear steps are fewer, and both trainings find the minimum that is known."""
    monkeypatch.syspath_prepend(DOCS)
    timed = importlib.import_module("claims_timed")

    def batches(size):
        return lambda step: {"x": np.random.default_rng(step).normal(size=(size, size)).astype(np.float32)}

    def loss(model, batch):
        return ((model - 3) ** 2).sum() + 0 * (batch["x"] @ batch["x"]).sum()

    trainings = {size: timed.Training(jax.numpy.zeros(2), loss, batches(size), (0.2, 0.3)) for size in (4, 500)}
    timed.in_turns(trainings)
    cheap, dear = trainings.values()
    assert cheap.steps > 2 * dear.steps
    assert min(cheap.seconds, dear.seconds) >= 0.2
    assert abs(cheap.seconds - dear.seconds) < 0.3
    np.testing.assert_allclose(cheap.model, 3, atol=0.1)

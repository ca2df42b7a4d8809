"""Norms of layers against sums over their parameters, and branches against a model's own states."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import FLAGS, job_of, read_lines, run, write_text

import tfm
from train import UserError
from train.tasks import resolve
from train.training import layer_norms
from train.training.optimizer import global_norm

KINDS = ("mixer", "feed_forward", "residual")


@pytest.mark.slow
def test_norms_of_parts_are_those_of_their_parameters():
    """Two kinds of layers in turns, stacked by kind: [layers of a kind, ...]."""
    job = job_of("--task=lm", "--model.layers=4", "--model.period=2", "--model.period.1.position=rotary")
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda spec: jnp.asarray(rng.normal(size=spec.shape), jnp.float32), job.specs)
    norms = layer_norms._norms(job.specs, params)
    rows = params.decoder.layers.period
    for layer in range(4):
        block = jax.tree.map(lambda leaf, layer=layer: leaf[layer // 2], rows[layer % 2])
        for kind in KINDS:
            assert norms[f"decoder.{layer}.{kind}"] == pytest.approx(float(global_norm(getattr(block, kind))), rel=1e-5)
    assert norms["decoder.embed"] == pytest.approx(float(global_norm(params.decoder.embed)), rel=1e-5)
    total = np.sqrt(sum(float(norm) ** 2 for norm in norms.values()))
    assert total == pytest.approx(float(global_norm(params)), rel=1e-5), "every parameter has one name"


@pytest.mark.slow
def test_branches_are_what_blocks_add():
    """Pre-norm: a block adds both its branches; with one that is zero, the other one is all that is added."""
    job = job_of("--task=lm", "--model.dtype=float32", "--model.dropout=0", "--model.scan=false")
    params = tfm.init(job.specs, jax.random.key(0))
    tokens = jnp.arange(64).reshape(2, 32) % 256
    zeroed = jax.tree_util.tree_map_with_path(
        lambda path, leaf: 0 * leaf if ".feed_forward" in jax.tree_util.keystr(path) else leaf, params
    )
    ratios = layer_norms._branches(lambda: tfm.causal_lm(zeroed, job.model, tokens))
    states = tfm.hidden_states(zeroed.decoder, job.model, tokens, causal=True)
    for layer in range(2):
        before, after = (np.asarray(states[index], np.float64) for index in (layer, layer + 1))
        if layer == 0:  # the last state is behind the last norm
            assert ratios["0.mixer"] == pytest.approx(np.linalg.norm(after - before) / np.linalg.norm(before), rel=1e-4)
        assert ratios[f"{layer}.feed_forward"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("task", ["mlm", "translate", "classify"])
def test_a_run_measures_its_layers(task, tmp_path, monkeypatch):
    """The norms of all parameters are the norm that the step reports, before and behind."""
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "text.txt")
    flags = [flag for flag in FLAGS if task == "mlm" or not flag.startswith("--data")]
    run(
        f"--task={task}",
        *flags,
        "--log.every=1",
        "--log.layers=2",
        "--model.dropout=0",
        "--out=run",
        "--data.pack=false",
    )
    lines = [line for line in read_lines(tmp_path / "run" / "metrics.jsonl") if line["split"] == "train"]
    measured = [line for line in lines if any(name.startswith("layers/") for name in line)]
    assert [line["step"] for line in measured] == [2, 4]
    for line in measured:
        squares = [value**2 for name, value in line.items() if name.startswith("layers/grad_norm/")]
        following = next(after for after in lines if after["step"] == line["step"] + 1)
        assert np.sqrt(sum(squares)) == pytest.approx(following["grad_norm"], rel=1e-3), json.dumps(line)
        assert line["layers/branch/0.mixer"] > 0
        assert sum(name.startswith("layers/update_norm/") for name in line) == len(squares)
    assert (tmp_path / "run" / "plots" / "layers.png").stat().st_size > 10_000


def test_norms_are_on_lines():
    with pytest.raises(UserError, match="layers=30 must be a multiple of log.every=20, whose lines have the norms"):
        resolve.resolve(["--task=lm", "--log.layers=30"], None, None)

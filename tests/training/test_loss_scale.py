"""Steps whose layers compute in float16: the scale of the loss, and updates that are left out."""

import dataclasses
import functools
from pathlib import Path

import jax
import numpy as np
import pytest
from small import FLAGS, call, read_lines, run, write_text

import tfm
from train.data import feed
from train.main import main
from train.screens.console import Log
from train.settings.schema import Optim, Run
from train.tasks.lm.options import Lm
from train.tasks.lm.task import LM
from train.tasks.table import TASKS
from train.training import loss_scale, startup, step
from train.training import optimizer as optim
from train.training.job import device_batch

MODEL = tfm.Config(layers=1, heads=2, width=16, ffn=16, vocab=60, length=16, pad_vocab_to=64, dropout=0.0)
SPECS = tfm.causal_lm_specs(MODEL)
HALF = [*FLAGS, "--model.dtype=float16"]


def batch(n):
    """Rows of a text each, of unequal lengths."""
    rng = np.random.default_rng(n)
    tokens = rng.integers(5, 60, (8, 17)).astype(np.int32)
    weights = np.float32(np.arange(16) < rng.integers(1, 17, (8, 1)))
    return {"tokens": tokens[:, :-1], "targets": tokens[:, 1:], "weights": weights, "bytes": weights.sum(1)}


@functools.cache
def program(dtype):
    optimizer = optim.optimizer(Optim(warmup=1, rate=1e-3), 100, SPECS)
    model = dataclasses.replace(MODEL, dtype=dtype)
    return optimizer, step.make_train_step(LM.loss, model, optimizer, 0, dropout=False)


def train(dtype, steps, parts=1, **fields):
    """The sums of steps, and the state after each; `fields` of the first scale."""
    mesh = tfm.make_mesh(1, devices=jax.devices()[:1])
    optimizer, train_step = program(dtype)
    state, sums, states = step.new_state(SPECS, optimizer, 0, mesh, is_scaled=dtype == "float16"), [], []
    arrays = {name: jax.device_put(value, state.step.sharding) for name, value in fields.items()}
    if arrays:
        state = dataclasses.replace(state, scale=dataclasses.replace(state.scale, **arrays))
    with jax.set_mesh(mesh):
        for n in range(steps):
            state, outputs = train_step(state, feed.to_devices(batch(n), LM.batch_spec(Run(task=Lm())), mesh, parts))
            sums.append({name: float(value) for name, value in outputs.items()})
            states.append(jax.device_get(state))
    return sums, states


def curve(sums):
    return [[row["loss"] / row["weight"], row["grad_norm"]] for row in sums]


def assert_equal(tree, expected):
    for leaf, expected_leaf in zip(*map(jax.tree.leaves, (tree, expected)), strict=True):
        np.testing.assert_array_equal(leaf, expected_leaf)


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 4])
def test_the_curve_of_float16_is_that_of_float32(parts):
    """bfloat16 is ten times as far away."""
    (sums, states), (wide, _) = train("float16", 10, parts), train("float32", 10)
    np.testing.assert_allclose(curve(sums), curve(wide), rtol=1e-3)
    assert not any(row["overflows"] for row in sums)
    assert int(states[-1].scale.updates) == 10


@pytest.mark.slow
def test_an_overflow_changes_nothing_but_the_scale():
    sums, states = train("float16", 30, value=np.float32(2.0**40))
    last, overflows = states[-1], [row["overflows"] for row in sums]
    assert overflows[:10] == [1] * 10
    assert sum(overflows) == int(last.scale.overflows) < 25
    assert float(last.scale.value) == 2.0 ** (40 - sum(overflows))
    assert all(np.isfinite(row["loss"]) and row["weight"] > 0 for row in sums)
    assert all((row["grad_norm"] > 0) != row["overflows"] for row in sums)
    assert_equal((states[9].params, states[9].opt), (states[0].params, states[0].opt))
    assert int(last.step) == 30
    assert int(last.opt[1][0].count) == 30 - sum(overflows)


@pytest.mark.slow
def test_the_scale_is_doubled_after_many_updates():
    _, states = train("float16", 2, updates=np.int32(loss_scale.GROW_AFTER - 1))
    assert [float(state.scale.value) for state in states] == [2 * loss_scale.FIRST] * 2
    assert [int(state.scale.updates) for state in states] == [0, 1]


def test_a_power_of_two_rounds_nothing():
    """Of the sum of losses, whatever its weight."""
    scale = dataclasses.replace(loss_scale.new_scale(), value=np.float32(2.0**20))
    for weight in (0, 1, 2.5, 1e4, 3e9):
        weight = np.float32(weight)
        factor = float(loss_scale.scaled(np.float32(1), weight, scale))
        assert np.log2(factor) % 1 == 0
        assert 2.0**19 <= factor * max(1, weight) <= 2.0**20
        assert float(loss_scale.unscaled([np.float32(factor * 3)], weight, scale)[0]) == 3


MARKS = {task: pytest.mark.slow if task in ("classify", "lm") else pytest.mark.exhaustive for task in TASKS}


@pytest.mark.parametrize("task", [pytest.param(task, marks=mark) for task, mark in MARKS.items()])
def test_a_step_of_every_task(task):
    flags = [f"--task={task}", "--model.dropout=0", "--batch.size=8", "--batch.multiple=8"]
    norms = {}
    for dtype in ("float32", "float16"):
        config, corpus = startup.prepare([*flags, f"--model.dtype={dtype}"], Log(quiet=True))
        job = startup.job_on_mesh(config, Log(quiet=True))
        with jax.set_mesh(job.mesh):
            _, sums = job.train_step(job.new_state(), device_batch(job, corpus, 0))
        norms[dtype] = [float(sums["loss"]), float(sums["grad_norm"])]
    np.testing.assert_allclose(norms["float16"], norms["float32"], rtol=0.01)


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "text.txt")


@pytest.mark.slow
def test_a_resumed_run_equals_one_that_was_not_interrupted(text):
    err = run(*HALF, "--out=whole")
    assert f"gradients   {loss_scale.DESCRIPTION}" in err
    run(*HALF, "--out=half", "--stop-at=3")
    run("--resume", "--out=half")
    lines = [read_lines(Path(folder, "metrics.jsonl")) for folder in ("whole", "half")]
    values = [[(row["loss"], row.get("loss_scale"), row.get("overflows")) for row in rows] for rows in lines]
    assert values[0] == values[1]
    assert {row["loss_scale"] for row in lines[0] if row["split"] == "train"} == {loss_scale.FIRST}


@pytest.mark.slow
def test_a_run_that_diverges_says_where(text):
    """At a scale of 1 a gradient that is not finite is no matter of the scale."""
    code, _, err = call(main, *HALF, "--out=run", "--optim.rate=1e6", "--optim.clip=none", "--steps=60")
    assert code == 2
    assert "is not finite" in err.splitlines()[-1]


def test_what_a_norm_averages_is_not_scaled(text):
    code, _, err = call(main, *HALF, "--model.norm=power")
    assert code == 2
    assert "norm=power changes its state with gradients, and float16 scales them; say --model.dtype=bfloat16" in err

"""The start-up tables."""

import io
import math
import types

import jax
import numpy as np
import pytest
from rich.console import Console
from small import job_of, random_job

import tfm
from train.devices import cpu
from train.screens.console import Log
from train.training import startup
from train.training.job import largest_batch

CORPUS = types.SimpleNamespace(facts=lambda: {"hash": "0"}, overview=lambda: {"text": "builtin"}, layout=None)


def tables(*flags, done=0):
    """What a run of the planner's tests announces, by the names of its rows."""
    log = Log()
    log.console = Console(file=io.StringIO(), width=200)
    startup.announce(job_of(*flags), CORPUS, done, {"memory": "about 1 MB a device"}, log)
    lines = log.console.file.getvalue().splitlines()
    return {line.split()[0]: line.split(maxsplit=1)[1] for line in lines}


def test_rows_of_the_table():
    rows = tables("--batch.accumulate=2", "--steps=1000", "--cpu.keep-awake=false", done=10)
    rows.pop("programs", None)  # of tests before this one
    assert list(rows)[1:] == ["parameters", "text", "devices", "memory", "mesh", "batch", "steps"]
    assert rows["batch"] == "16 x 32 tokens in 2 parts"
    assert rows["steps"] == "1,000, from 10"
    assert rows["devices"] == "8 x cpu, bfloat16"
    assert rows["memory"] == "about 1 MB a device"


@pytest.mark.parametrize(
    ("flags", "virtual", "expected"),
    [([], True, True), ([], False, False), (["--cpu.keep-awake=false"], True, False)],
    ids=["virtual machine", "no virtual machine", "turned off"],
)
def test_cores_that_are_kept_awake(flags, virtual, expected, monkeypatch):
    """A row says so, and names the flag that turns it off."""
    monkeypatch.setattr(cpu, "_is_virtual_machine", lambda: virtual)
    monkeypatch.setattr(cpu, "cpu_quota", lambda: float("inf"))
    monkeypatch.setattr(cpu, "_idle_priority_works", lambda: True)
    rows = tables(*flags)
    assert ("cores" in rows) == expected
    if expected:
        assert "awake" in rows["cores"]
        assert "--cpu.keep-awake=false" in rows["cores"]


@pytest.mark.parametrize(
    ("flags", "hides"),
    [
        ([], False),
        (["--model.position=sinusoidal"], True),
        (["--model.position=sinusoidal", "--model.input.scale=true"], False),
        (["--model.position=sinusoidal", "--model.init-std=0.5"], False),
        (["--model.position=sinusoidal", "--model.position.place=queries_keys"], False),
    ],
)
def test_sinusoids_that_hide_tokens(flags, hides):
    """A row says so at the start of a fresh run, and names the flag."""
    assert ("positions" in tables(*flags)) == hides
    assert "positions" not in tables(*flags, done=3)


@pytest.mark.slow
def test_a_fresh_state_is_calibrated(monkeypatch, tmp_path):
    """Where a residual scheme asks for it: on the tokens of the first batch."""
    job = random_job()
    tokens = np.arange(math.prod(largest_batch(job)["tokens"].shape), dtype=np.int32) % 50
    first_batch = {name: np.zeros(field.shape, field.dtype) for name, field in largest_batch(job).items()}
    first_batch["tokens"] = tokens.reshape(first_batch["tokens"].shape)
    corpus = types.SimpleNamespace(
        batch_ahead=lambda n, local_rows: {name: field[0] for name, field in first_batch.items()}
    )

    def calibrate(params, config, tokens):
        return jax.tree.map(lambda leaf: leaf + tokens.sum(), params)

    monkeypatch.setattr(type(job.task), "goals", {"loss": min}, raising=False)
    monkeypatch.setattr(type(job.task), "measured", lambda task, corpus: None, raising=False)
    plain = startup.first_state(job, corpus, tmp_path, Log(quiet=True))[0]
    monkeypatch.setattr(tfm, "needs_calibration", lambda config: True)
    monkeypatch.setattr(tfm, "calibrate", calibrate)
    state, done, _ = startup.first_state(job, corpus, tmp_path, Log(quiet=True))
    assert done == 0
    for leaf, plain_leaf in zip(*map(jax.tree.leaves, (state.params, plain.params)), strict=True):
        np.testing.assert_allclose(leaf, plain_leaf + tokens.sum(), rtol=1e-6)

"""A start, a batch anywhere, and the memory of a run do not grow with its store (M65)."""

import os
import time
from pathlib import Path

import pytest
from data.store import synthetic

from train.data.store.plans import RowShape
from train.screens.console import Log
from train.tasks import resolve, table


def anonymous_memory() -> float:
    """Bytes that this process alone has."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("RssAnon:")) * 1024


@pytest.mark.slow
@pytest.mark.parametrize("windows", ["true", "false"])
def test_a_large_store(tmp_path, windows):
    synthetic.make(tmp_path / "store", int(os.environ.get("TFM_STORE_TOKENS", 100_000_000)), [RowShape(1024, 0)])
    argv = ["--task=lm", "--batch.size=256", "--batch.length=1024", "--model.length=1024", f"--task.windows={windows}"]
    run = resolve.resolve([*argv, f"--data={tmp_path}/store"], None, None)[0]
    load = table.task_of(run).load
    before, began = anonymous_memory(), time.perf_counter()
    corpus = load(run, Log(quiet=True))
    corpus.batch(0)
    assert time.perf_counter() - began < 5
    began = time.perf_counter()
    corpus.batch(1_000_000)
    assert time.perf_counter() - began < 2
    for n in range(20):
        corpus.batch(n)
    assert anonymous_memory() - before < 200e6
    assert corpus.padding < 0.001

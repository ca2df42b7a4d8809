"""A start and a batch anywhere, both from the disk, and the memory of a run do not grow with its store (M65, M86). `-s`
shows the numbers, and TFM_STORE_TOKENS=2e9 makes the store as large."""

import os
import time
from pathlib import Path

import pytest
from data.store import synthetic

from train.data.store.plans import RowShape
from train.devices import cpu
from train.screens.console import Log
from train.tasks import resolve, table

ROWS = {
    "windows": ["--task=lm", "--task.windows=true"],
    "packed": ["--task=lm"],
    "packed, blocks of rows": ["--task=lm", "--data.shuffle=blocks"],
    "masked": ["--task=mlm"],
}


def anonymous_memory() -> float:
    """Bytes that this process alone has."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("RssAnon:")) * 1024


def forget(store):
    """Takes the files of a store out of memory, as far as no process has them mapped."""
    for path in store.rglob("*.*"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store of random tokens. The run keeps the memory that it frees."""
    path = tmp_path_factory.mktemp("large") / "store"
    size = int(float(os.environ.get("TFM_STORE_TOKENS", 1e8)))
    synthetic.make(path, size, [RowShape(1024, 0), RowShape(1024, 2)])
    cpu.keep_memory()
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_a_large_store(store, name):
    argv = [*ROWS[name], "--batch.size=256", "--batch.length=1024", "--model.length=1024", f"--data={store}"]
    run = resolve.resolve(argv, None, None)[0]
    load = table.task_of(run).load
    forget(store)
    before, began = anonymous_memory(), time.perf_counter()
    corpus = load(run, Log(quiet=True))
    corpus.batch(0)
    first = time.perf_counter() - began
    forget(store)
    began = time.perf_counter()
    corpus.batch(1_000_000)
    millionth = time.perf_counter() - began
    seconds = []
    for n in range(40):
        began_processor = time.process_time()
        corpus.batch(n)
        seconds.append(time.process_time() - began_processor)
    grown = anonymous_memory() - before
    rate = 256 * 1024 * len(seconds) / sum(seconds) / 1e6
    times = f"first batch {first:.2f} s, batch 1,000,000 {millionth:.2f} s"
    print(f"\n{name}: {times}, {grown / 1e6:.0f} MB, {rate:.1f} M tokens/s")
    assert first < 5
    assert millionth < 2
    assert grown < 200e6
    assert corpus.padding < 0.001

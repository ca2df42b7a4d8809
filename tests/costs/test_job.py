"""What a run needs, before it runs: bytes, FLOPs, and the fields of its batches."""

import jax
import numpy as np
import pytest
from small import FLAGS, job_of, quick_compilation, write_text  # noqa: F401

from train import tasks
from train.costs import job as costs
from train.reporting.console import Log
from train.settings import resolve
from train.training import step


def test_bytes_of_the_state_are_those_of_a_state():
    """Against the arrays of a real state, as they lie on the first of eight devices."""
    job = job_of("--mesh.fsdp=2", "--mesh.tensor=4", "--optim.ema=0.9")
    state = step.new_state(job.specs, job.optimizer, 0, job.mesh, job.run.optim.ema)
    here = lambda tree: sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(tree))
    found = job.memory()
    assert found["parameters"] == here((state.params, state.ema))
    assert found["optimizer"] == here(state.opt)
    assert found["all"] == sum(size for name, size in found.items() if name != "all")


def test_a_recomputed_block_is_kept_no_more():
    kept, again = (job_of(f"--model.remat={remat}", "--model.layers=8").memory() for remat in ("none", "block"))
    assert again["activations"] < kept["activations"] / 3
    assert again["all"] < kept["all"]
    assert again["temporaries"] > costs.UNFUSED * kept["activations"] / 8, "one of the 8 blocks is there"


def test_flops_of_a_step():
    """Backward costs twice what forward does; a recomputed block costs its forward once more."""
    plain, again = (job_of(*f.split()).flops() for f in ("", "--batch.accumulate=2 --model.remat=block"))
    assert plain[0] == again[0], "parts are as much as the whole"
    width, rows, length = 64, 16, 32
    blocks = 2 * rows * length * 2 * (12 * width * width + 2 * length * width)
    vocabulary = 2 * rows * length * width * 256
    assert plain[0] == 3 * (blocks + vocabulary)
    assert plain[1] <= again[1] == pytest.approx(plain[1] + blocks, rel=0.1)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("--task=mlm", "lines"),
        ("--task=mlm --task.nsp=true --data.split=blank-line", "lines"),
        ("--task=lm", "lines"),
        ("--task=lm --task.windows=true", "lines"),
        ("--task=classify --data=rows.tsv", "label"),
        ("--task=classify --data=rows.tsv --task.kind=regression", "label"),
        ("--task=classify --data=rows.tsv --task.kind=multi", "label"),
        ("--task=translate --data=rows.tsv --data.field=text,label --batch.tokens=256", "pairs"),
    ],
)
def test_fields_are_those_of_a_batch(given, text, tmp_path, monkeypatch):
    """Names, types and shapes that the planner takes for granted, against a batch of real data; pairs in rows as long as they may be."""
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "text.txt")
    lines = (tmp_path / "text.txt").read_text().splitlines()
    (tmp_path / "text.txt").write_text("\n\n".join("\n".join(lines[n : n + 6]) for n in range(0, len(lines), 6)))
    label = (lambda n: lines[-n]) if text == "pairs" else (lambda n: str(n % 2))
    (tmp_path / "rows.tsv").write_text(
        "text\tlabel\n" + "\n".join(f"{line}\t{label(n)}" for n, line in enumerate(lines))
    )
    run, decided = resolve.resolve([*FLAGS, *given.split()], None, None)
    task = tasks.find(run.task.name)
    corpus = task.load(run, Log())
    run = resolve.settle(run, decided, corpus.sizes, "cpu")
    spec, batch = task.batch_spec(run), corpus.batch(0)
    assert {name: (np.dtype(field.dtype), len(field.axes)) for name, field in spec.items()} == {
        name: (array.dtype, array.ndim) for name, array in batch.items()
    }
    if text != "pairs":
        assert {name: field.shape(run.batch.size, run.batch.length) for name, field in spec.items()} == {
            name: array.shape for name, array in batch.items()
        }

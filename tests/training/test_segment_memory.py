"""Training with a memory of the rows before: the order of rows, parts of batches, resumption, evaluation."""

import json

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from small import FLAGS, call, job_of, read_lines, run, write_text

from train import evaluate, generate, main
from train.data import feed

XL = ("--task=lm", "--task.windows=true", "--task.memory=12", "--model.position=transformer_xl", "--model.dropout=0.1")


@pytest.mark.parametrize(("count", "size"), [(12, 3), (10, 4), (7, 3), (3, 3)])
def test_every_row_of_a_batch_continues_that_of_the_batch_before(count, size):
    """And every row of the text is read once an epoch, from whatever place on."""
    batches = -(-count // size)
    for first in (0, 1, 5):
        order = feed.continued_rows(count, size, first)
        rows = np.array([order(n)[1] for n in range(3 * batches)])
        for epoch in np.split(rows, 3):
            assert sorted(epoch[epoch >= 0].tolist()) == list(range(count))
        for before, after in zip(rows[:-1].ravel(), rows[1:].ravel(), strict=True):
            assert after in (before + 1, -1) or (after == 0 and before in (-1, count - 1))


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "text.txt")


def arrays(folder, step):
    """All arrays of a checkpoint."""
    checkpointer = ocp.StandardCheckpointer()
    return {item: checkpointer.restore(folder / "checkpoints" / str(step) / item) for item in ("params", "opt")}


@pytest.mark.slow
def test_a_resumed_run_equals_one_that_was_not_interrupted(text, tmp_path):
    flags = (*FLAGS, *XL, "--batch.size=16", "--batch.accumulate=2", "--eval.final=false")
    run(*flags, "--out=whole")
    run(*flags, "--out=half", "--stop-at=3")
    run("--resume", "--out=half")
    first, second = (arrays(tmp_path / name, 6) for name in ("whole", "half"))
    states = jax.tree.leaves(first["opt"]["memory"]["states"])
    assert states
    assert all(np.abs(leaf).max() > 0 for leaf in states)
    jax.tree.map(np.testing.assert_array_equal, first, second)
    losses, again = (
        [line["loss"] for line in read_lines(tmp_path / name / "metrics.jsonl")] for name in ("whole", "half")
    )
    assert losses == again


@pytest.mark.slow
def test_parts_of_a_batch_have_their_own_memory():
    """Two steps in one part and in two parts: the same sums, and the same memory of every row."""
    flags = ("--task=lm", "--model.layers=1", *XL[1:4], "--model.dropout=0", "--model.dtype=float32", "--batch.size=16")
    results = []
    for parts in (1, 2):
        job = job_of(*flags, f"--batch.accumulate={parts}")
        state = job.new_state()
        rng = np.random.default_rng(0)
        with jax.set_mesh(job.mesh):
            for n in range(2):
                fields = {name: rng.integers(2, 256, (16, 32)).astype(np.int32) for name in ("tokens", "targets")}
                fields |= {"weights": np.ones((16, 32), np.float32), "bytes": np.ones(16, np.float32)}
                fields["continues"] = np.full(16, n > 0)
                state, sums = job.train_step(state, feed.to_devices(fields, job.batch_spec, job.mesh, parts))
        assert job.train_step._cache_size() == 1, "compiled again for a memory of another type"
        rows = [np.moveaxis(np.asarray(leaf), 2, 1).reshape(16, -1) for leaf in jax.tree.leaves(state.memory.states)]
        results.append((float(sums["loss"]), rows))
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-5)
    for one_part, two_parts in zip(results[0][1], results[1][1], strict=True):
        np.testing.assert_allclose(one_part, two_parts, atol=1e-5)


@pytest.mark.slow
def test_a_long_repetition_is_learned_by_a_memory_alone(tmp_path, monkeypatch):
    """A text that repeats itself every 24 random words, in rows of 8: what comes next stands 24 tokens before."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnop"))
    lines = ["".join(rng.choice(letters, 24)) * 4 for _ in range(400)]
    (tmp_path / "text.txt").write_text("".join(lines))
    flags = (
        "--task=lm --preset=gpt-char --data=text.txt --model.layers=2 --model.width=64 --model.heads=4 --batch.size=16 "
        "--batch.length=8 --model.length=8 --steps=600 --model.position=transformer_xl --checkpoint.every=600 "
        "--eval.every=600 --log.every=600"
    ).split()
    losses = {}
    for name, memory in {"memory": ("--task.memory=32",), "rows": ()}.items():
        run(*flags, *memory, f"--out={name}")
        losses[name] = json.loads((tmp_path / name / "result.json").read_text())["eval_loss"]
    assert losses["memory"] < losses["rows"] - 0.3, losses


@pytest.mark.slow
def test_commands_after_training(text, tmp_path):
    """An evaluation begins with an empty memory, may have a longer one, and a text is longer than rows and memory."""
    run(*FLAGS, *XL, "--out=a")
    result = json.loads((tmp_path / "a" / "result.json").read_text())
    losses = {}
    for memory in ("12", "40"):
        code, out, err = call(evaluate.main, "--run=a", f"--memory={memory}")
        assert code == 0, err
        losses[memory] = json.loads(out)["loss"]
    assert losses["12"] == pytest.approx(result["eval_loss"], abs=1e-5) != losses["40"]
    code, out, err = call(generate.main, "--run=a", "--prompt=the cat sat", "--strategy=greedy", "--max-new-tokens=90")
    assert code == 0, err
    assert len(out) > 100  # more tokens than a row and the memory have


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (XL[0:1] + XL[2:4], "task.memory=12 continues a text from row to row; add --task.windows=true"),
        ((*XL, "--task.stride=4"), "task.memory=12 needs rows that do not overlap; leave task.stride=4 out"),
        ((*XL, "--tokenizer.dropout=0.1"), "leave out one of them"),
        (XL[:3], "--model.position=learned reads a text as one piece, not in segments with a memory; try position=tra"),
        ((*XL, "--model.mixer=gru"), "mixer=gru reads a text as one piece"),
        ((*XL, "--task.memory=0"), "memory=0 must be at least 1, or none"),
    ],
)
def test_what_cannot_have_a_memory(text, flags, message):
    code, _, err = call(main.main, *FLAGS, *flags)
    assert code == 2
    assert message in err

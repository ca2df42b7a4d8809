"""A run on a mesh before it runs: the fields of its batches."""

import jax
import numpy as np
import pytest
from small import FLAGS, job_of, write_text

from train.screens.console import Log
from train.tasks import resolve, table
from train.training.job import largest_batch


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ("--task=mlm", "lines"),
        ("--task=mlm --task.nsp=true --data.split=blank-line", "lines"),
        ("--task=lm", "lines"),
        ("--task=lm --task.windows=true", "lines"),
        ("--task=classify --data=rows.tsv", "label"),
        ("--task=classify --data=rows.tsv --task.kind=regression", "label"),
        ("--task=classify --data=rows.tsv --task.kind=multi", "label"),
        pytest.param("--task=span --data=builtin", "label", marks=pytest.mark.slow),
        ("--task=contrast --data=rows.tsv --data.field=text,label", "pairs"),
        ("--task=translate --data=rows.tsv --data.field=text,label --batch.tokens=256", "pairs"),
    ],
)
def test_declared_fields_are_those_of_a_batch(flags, text, tmp_path, monkeypatch):
    """The fields that the planner relies on, against a batch of real data; pairs fill rows up to the limit."""
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "text.txt")
    lines = (tmp_path / "text.txt").read_text().splitlines()
    (tmp_path / "text.txt").write_text("\n\n".join("\n".join(lines[n : n + 6]) for n in range(0, len(lines), 6)))
    label = (lambda n: lines[-n]) if text == "pairs" else (lambda n: str(n % 2))
    (tmp_path / "rows.tsv").write_text(
        "text\tlabel\n" + "\n".join(f"{line}\t{label(n)}" for n, line in enumerate(lines))
    )
    run, explicit = resolve.resolve([*FLAGS, *flags.split()], None, None)
    task = table.task_of(run)
    corpus = task.load(run, Log())
    run = resolve.fill_from_data(run, explicit, corpus.sizes, "cpu")
    spec, batch = task.batch_spec(run), corpus.batch(0)
    assert {name: (np.dtype(field.dtype), len(field.axes)) for name, field in spec.items()} == {
        name: (array.dtype, array.ndim) for name, array in batch.items()
    }
    if text != "pairs":
        assert {name: field.shape(run.batch.size, run.batch.length) for name, field in spec.items()} == {
            name: array.shape for name, array in batch.items()
        }


def draws(*flags):
    """How often the step of a run without dropout of its own draws random numbers."""
    job = job_of("--task=lm", "--model.dropout=0", *flags)
    with jax.set_mesh(job.mesh):
        return str(job.train_step.trace(job.state, largest_batch(job)).jaxpr).count("random_bits")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "extra"),
    [
        (["--model.dropout=0.1"], []),
        pytest.param(["--model.attn-dropout=0.1"], [], marks=pytest.mark.slow),
        (["--tune=lora"], ["--tune.dropout=0.1"]),
    ],
)
def test_a_step_draws_random_numbers_for_every_rate(flags, extra):
    assert draws(*flags, *extra) > draws(*(flags if extra else []))

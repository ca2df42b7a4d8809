"""What the tests of the trainer share: a run that is as small as runs get, and a plan of one."""

import contextlib
import io
import json

import jax
import numpy as np

import tfm
from train import main
from train.data.text_rows import Layout, Shape
from train.devices import mesh
from train.lab.timing import random_task
from train.runs.tuning import specs_of
from train.settings import schema
from train.tasks import resolve, table
from train.tasks.table import AnyRun
from train.training.job import Job

# A run of seconds; a test adds what it is about.
FLAGS = (
    "--data=text.txt --model.layers=1 --model.width=32 --model.heads=2 --model.ffn=64 --tokenizer.vocab=400 "
    "--batch.size=8 --batch.length=32 --steps=6 --model.scan=true --log.every=2 --eval.every=2 --checkpoint.every=2"
).split()


def text_batch(rows, numbers, shape=None):
    """The batch of these texts of a task in the places of a shape (rows, texts a row, length); by default each text has
    a row."""
    numbers = np.asarray(numbers)
    sizes = np.where(np.expand_dims(numbers < 0, tuple(range(1, rows.sizes.ndim))), 0, rows.sizes[numbers])
    layout = Layout(len(numbers), Shape(*(shape or (sizes.size, 1, rows.length))), sizes.size * rows.length, 1.0)
    return layout.pack(rows.batch(numbers), rows.text_fields, numbers, sizes, rows.specials.pad)


# The same for what is planned, and not run.
TINY = (
    "--preset=gpt-tiny --model.layers=2 --model.width=64 --model.heads=4 --model.vocab=256 --model.scan=true "
    "--batch.length=32 --batch.size=16"
).split()


def write_text(path, seed=0, lines=300):
    """Sentences of random words."""
    rng = np.random.default_rng(seed)
    words = (
        "the a cat dog bird sat ran flew on under over mat house tree and then quickly slowly red blue old new it was"
    )
    words = words.split()
    path.write_text("\n".join(" ".join(rng.choice(words, 12)) + "." for _ in range(lines)) + "\n")


def write_pairs(path, pairs):
    """Lines of so many random words, each of them twice in a row: the second one is known from the first."""
    rng, words = np.random.default_rng(0), [f"w{n}" for n in range(12)]
    lines = [" ".join(words[n] + " " + words[n] for n in rng.integers(0, 12, pairs)) for _ in range(1500)]
    path.write_text("\n".join(lines) + "\n")


def call(command, *flags):
    """Exit code, stdout and stderr of a command."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = command(flags)
    return code, out.getvalue(), err.getvalue()


def run(*flags):
    """Stderr of a training run that ends well."""
    code, out, err = call(main.main, *flags)
    assert (code, out) == (0, ""), err
    return err


def write_rows(path, rows):
    """Objects as a .jsonl file."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def read_lines(path):
    """The objects of a .jsonl file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def run_of(*argv):
    """The run that the flags describe, in bfloat16 as on an accelerator."""
    run, explicit = resolve.resolve(resolve.infer_task([*TINY, *argv], None), None, None)
    return resolve.fill_from_data(run, explicit, {}, "gpu")


def job_of(*argv):
    """That run on all devices."""
    run = run_of(*argv)
    task = table.task_of(run)
    return Job(run, task, mesh.mesh_for(run, specs_of(task, run), jax.devices()))


def random_job(family="gpt", predict=1.0):
    """A plain model on random tokens and two devices, which compiles in a moment."""
    shape = {"layers": 1, "heads": 2, "width": 16, "vocab": 64, "length": 12}
    model = tfm.override(random_task.MODEL, shape)
    run = AnyRun(model=model, batch=schema.Batch(size=8, length=12), optim=random_task.OPTIM, steps=1)
    return Job(run, random_task.RandomTexts(family, predict), tfm.make_mesh(devices=jax.devices()[:2]))

"""How much of the project runs for the plainest jobs: what a reader must have read to know them.

Who adds a function to one of these paths takes another away; who adds a feature puts it beside them.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from small import FLAGS, write_text
from tracing import Counts, Tracer, forget, names, own_stack

import tfm
from train import main
from train.tasks import resolve
from train.tasks.table import task_of
from train.training.recompilation import Guard

# The most that a job may take: files, functions, and functions on the stack at once.
BERT_LOSS = Counts(36, 150, 17)
GENERATION = Counts(40, 210, 19)
FROM_HF = Counts(32, 160, 16)
COMMAND_TO_LOSS = 6

SMALL = ["--model.layers=2", "--model.width=16", "--model.heads=2", "--model.ffn=32", "--model.vocab=64"]


def counts_of(job) -> tuple[Counts, list[str]]:
    """What a job runs that has run before, so that everything is imported, and that nothing is kept of; and its deepest
    stack."""
    job()
    forget()
    with Tracer() as tracer:
        job()
    return tracer.counts, names(tracer.deepest)


def assert_within(job, budget: Counts) -> None:
    """A job takes no more than its budget."""
    counts, stack = counts_of(job)
    assert all(count <= limit for count, limit in zip(counts, budget, strict=True)), (counts, stack)


def zeros(specs):
    """Parameters without a compiled program."""
    return jax.tree.map(lambda spec: jnp.zeros(spec.shape, jnp.float32), specs)


def test_loss_of_bert():
    run, _ = resolve.resolve(["--task=mlm", *SMALL], None, None)
    task = task_of(run)
    params = zeros(task.specs(run))
    batch = {name: jnp.ones(field.shape(4, 16), field.dtype) for name, field in task.batch_spec(run).items()}
    assert_within(lambda: jax.eval_shape(lambda params: task.loss(params, run.model, batch, None), params), BERT_LOSS)


def test_greedy_generation():
    run, _ = resolve.resolve(["--task=lm", *SMALL], None, None)
    params = zeros(tfm.causal_lm_specs(run.model))
    assert_within(lambda: tfm.generate(params, run.model, [[1, 2, 3], [4, 5]], max_new_tokens=4), GENERATION)


def test_bert_of_hugging_face(tmp_path):
    run, _ = resolve.resolve(["--task=mlm", *SMALL], None, None)
    tfm.to_hf(run.model, zeros(tfm.masked_lm_specs(run.model)), tmp_path)
    assert_within(lambda: tfm.from_hf(tmp_path), FROM_HF)


class ReachedError(Exception):
    """The loss is called: what follows is of no interest."""


def test_from_the_command_to_the_loss(tmp_path, monkeypatch):
    """Functions of the project on the stack of a training run, when its step begins with the loss."""
    monkeypatch.chdir(tmp_path)
    write_text(Path("text.txt"))
    run, _ = resolve.resolve(["--task=mlm", *SMALL], None, None)
    loss = task_of(run).loss
    code = getattr(loss, "__code__", type(loss).__call__.__code__)
    step, stacks = Guard.__call__, []

    def called(frame, event, argument):
        if frame.f_code is code:
            stacks.append(own_stack(frame.f_back))
            raise ReachedError

    def traced_step(*arguments):
        sys.settrace(called)
        try:
            return step(*arguments)
        finally:
            sys.settrace(None)

    monkeypatch.setattr(Guard, "__call__", traced_step)
    with pytest.raises(ReachedError):
        main.main(["--task=mlm", "--out=run", *FLAGS])
    assert len(stacks[0]) <= COMMAND_TO_LOSS, names(stacks[0])

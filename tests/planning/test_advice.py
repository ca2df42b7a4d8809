"""Settings that fit, and plain words where memory runs out."""

import dataclasses

import jax
import pytest
from small import FLAGS, call, run_of, write_text

from tfm.options.dotted import flatten
from train import UserError, main
from train.planning import advice
from train.settings import flags
from train.tasks.table import AnyRun
from train.training import step


def needing(sizes):
    """A `needs` that gives the bytes of (remat, parts, fsdp, tensor), and none for what does not divide."""

    def needs(run):
        key = (run.model.remat, run.batch.accumulate, run.mesh.fsdp, run.mesh.tensor)
        if run.mesh.fsdp * run.mesh.tensor > 1 and (run.batch.size // run.batch.accumulate) % run.mesh.fsdp:
            raise UserError("does not divide")
        return {"all": sizes(*key), "activations": sizes(*key)}

    return needs


RUN = dataclasses.replace(AnyRun(), batch=dataclasses.replace(AnyRun().batch, size=8))


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        (lambda remat, parts, fsdp, tensor: 50 if remat == "block" else 150, "--model.remat=block"),
        (lambda remat, parts, fsdp, tensor: 300 / parts, "--batch.accumulate=4"),
        (
            lambda remat, parts, fsdp, tensor: (400 if remat == "block" else 800) / parts,
            "--batch.accumulate=4 --model.remat=block",
        ),
        (lambda remat, parts, fsdp, tensor: 400 / fsdp, "--mesh.data=1 --mesh.fsdp=8"),
        (lambda remat, parts, fsdp, tensor: 400 / tensor, "--mesh.data=1 --mesh.fsdp=2 --mesh.tensor=4"),
        (lambda remat, parts, fsdp, tensor: 400, None),
    ],
)
def test_the_first_setting_that_fits(sizes, wanted, monkeypatch):
    """Remat before parts, parts before sharding, fsdp before tensor."""
    monkeypatch.setattr(advice, "REMAT", ("none", "block"))
    smaller = next(advice.first_that_fits(RUN, 8, needing(sizes), 100), None)
    assert (smaller and advice.changed_flags(RUN, smaller)) == wanted
    said = advice.advise(RUN, 8, needing(sizes), 100)
    assert said.startswith("out of memory: the step needs about")
    assert (wanted or "take more devices") in said
    assert "None" not in said


def test_flags_that_lead_from_one_run_to_another_can_be_pasted():
    run = run_of()
    changed = dataclasses.replace(run, batch=dataclasses.replace(run.batch, accumulate=2))
    pasted = flags.parse(advice.changed_flags(run, changed).split())
    assert flags.build(AnyRun, flatten(run), pasted) == changed


def fails_with(text):
    """A training step that no device has the memory for, or something else."""

    def fails(*arguments):
        raise jax.errors.JaxRuntimeError(text)

    fails._cache_size = lambda: 0
    return lambda *arguments, **options: fails


@pytest.mark.slow
def test_out_of_memory_ends_in_plain_words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "text.txt")
    dump = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 123 bytes.\nBufferAssignment:\n..."
    monkeypatch.setattr(step, "make_train_step", fails_with(dump))
    code, _, err = call(main.main, "--task=mlm", *FLAGS, "--batch.size=16", "--mesh.fsdp=8")
    assert code == 2
    last = err.splitlines()[-1]
    assert last.startswith("error: out of memory: the step needs about")
    assert "; try --" in last
    assert "BufferAssignment" not in err
    with pytest.raises(jax.errors.JaxRuntimeError, match="our own bug"), advice.explain_oom(lambda: "more memory"):
        fails_with("INTERNAL: our own bug")()()

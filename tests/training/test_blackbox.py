"""The black box of a step that is not finite: the state before it, bit for bit, and the step run again from it."""

import contextlib
import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from small import FLAGS, call, read_lines, run, write_text

import tfm
from train import UserError
from train.lab.replay import main as replay_command
from train.main import main
from train.runs.run_folder import CHECKPOINTS, RunFolder
from train.runs.saved import SavedCheckpoints
from train.runs.takeover import of_resumed
from train.screens.console import Log
from train.settings import flags
from train.tasks import table
from train.tasks.lm.task import Corpus
from train.tasks.table import AnyRun
from train.training.diverged import blackbox, replay
from train.training.job import Job
from train.training.phases import open_phases

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_home")]

# Features are drawn anew before steps 3, 5, 7, ...
LM = [*FLAGS, "--task=lm", "--steps=8", "--model.mixer=performer", "--model.mixer.redraw=2", "--model.dropout=0.1"]
LM += ["--log.every=1", "--eval.every=8", "--optim.ema=0.9"]
BAD = 7


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A run that saves every step, and one whose batch 7 is not finite, which has saved step 4 last."""
    folder = tmp_path_factory.mktemp("home")
    write_text(folder / "text.txt")
    real = Corpus.batch

    def batch(corpus, n, *share):
        fields = real(corpus, n, *share)
        return fields | {"weights": fields["weights"] * np.float32(np.nan if n == BAD - 1 else 1)}

    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        run(*LM, "--out=whole", "--checkpoint.every=1", "--checkpoint.keep=9")
        patch.setattr(Corpus, "batch", batch)
        code, _, err = call(main, *LM, "--out=bad", "--checkpoint.every=4")
        assert (code, "the loss of step 7 is not finite" in err) == (2, True), err
        shutil.copytree("bad", "alone")
        shutil.rmtree(Path("alone") / CHECKPOINTS)
    return folder


def job_of(folder):
    """The run of a folder on one device."""
    settings = flags.build(AnyRun, RunFolder(folder).values)
    return Job(settings, table.task_of(settings), tfm.make_mesh(devices=jax.devices()[:1]))


def test_the_state_is_that_of_the_run(home):
    """It was computed from checkpoint 4; the uninterrupted run has saved it."""
    job = job_of("bad")
    state, batch = blackbox.newest(home / "bad").read(job, print)
    saved, _, _ = SavedCheckpoints(home / "whole" / CHECKPOINTS).restore(job.new_state(), print, before=BAD)
    for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(saved), strict=True):
        np.testing.assert_array_equal(a, b)
    assert state.step == BAD - 1
    assert np.isnan(batch.fields["weights"]).all()
    assert batch.rows.tolist() == json.loads(Path("bad/blackbox/step-7/report.json").read_text())["rows"]


def test_the_step_needs_neither_data_nor_checkpoints(home, tmp_path, monkeypatch):
    shutil.copytree("alone", tmp_path / "alone")
    monkeypatch.chdir(tmp_path)
    code, out, err = call(replay_command, "--run=alone")
    assert code == 0, err
    assert "weights is not finite" in out.splitlines()[-1]
    assert "alone/blackbox/step-7" in err
    text = home / "text.txt"  # run.json has the folder in which the run began
    text.rename(home / "away.txt")
    try:
        code, _, err = call(replay_command, "--run=alone", "--step=2")
    finally:
        (home / "away.txt").rename(text)
    assert (code, "text.txt" in err) == (2, True), "another step needs the data"


def test_features_are_drawn_as_the_step_draws_them(home):
    """The loss and the gradient of a step that draws anew are those that the run has logged."""
    log, folder = Log(), home / "whole"
    job = job_of("whole")
    corpus = job.task.load(job.run, log, of_resumed(folder))
    state = replay.state_before(open_phases(job, corpus, log), folder, BAD)
    sums = replay.run_again(job, blackbox.batch_of(corpus, BAD), state).sums
    lines = {line["step"]: line for line in read_lines(folder / "metrics.jsonl") if line["split"] == "train"}
    assert sums["loss"] / sums["weight"] == pytest.approx(lines[BAD]["loss"], rel=1e-5)
    assert sums["grad_norm"] == pytest.approx(lines[BAD]["grad_norm"], rel=1e-4)


@pytest.mark.parametrize("name", ["batch.npz", "state/6/params", "state/6/note"])
def test_a_damaged_box_is_refused(home, tmp_path, name):
    shutil.copytree("alone", tmp_path / "alone")
    path = tmp_path / "alone" / "blackbox" / "step-7" / name
    path = max((p for p in path.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size) if path.is_dir() else path
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    code, out, err = call(replay_command, f"--run={tmp_path / 'alone'}")
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith(f"error: {tmp_path / 'alone' / 'blackbox' / 'step-7'} is damaged (")
    assert "add --step=7" in err


def test_a_box_without_a_state_goes_back_to_the_data(home, tmp_path):
    """As a signal leaves it that comes while the state is computed."""
    shutil.copytree("bad", tmp_path / "bad")
    shutil.rmtree(tmp_path / "bad" / "blackbox" / "step-7" / "state")
    code, out, err = call(replay_command, f"--run={tmp_path / 'bad'}")
    assert code == 0, err
    assert "step 7: all of it is finite" in out, "the data were good"
    assert "checkpoint 4 of" in err


def test_a_folder_has_one_box(home, tmp_path):
    job = job_of("bad")
    shutil.copytree("bad", tmp_path / "bad")
    state, batch = blackbox.newest(tmp_path / "bad").read(job, print)
    box, batch_checksum = blackbox.begin(tmp_path / "bad", batch._replace(step=9))
    box.write_state(state, batch, batch_checksum)
    assert [path.name for path in (tmp_path / "bad" / "blackbox").iterdir()] == ["step-9"]
    assert blackbox.newest(tmp_path / "bad").read(job, print)[1].step == 9
    (box.path / "batch.npz").write_bytes(b"")
    with pytest.raises(UserError, match=r"batch.npz differs from its checksum"):
        box.read(job, print)

"""The command: its certificate, its exit codes, and bad input."""

import dataclasses
import json

import pytest
from small import FLAGS, call, run, write_text

from train.images import drawings
from train.lab.check import command
from train.settings.task_options import TaskOptions
from train.tasks.lm.task import LM

# By the name of a task, and what else is asked of it.
# A probe doubles the weights of targets, which should change nothing; those of a bound are its terms.
UNFIT = {"diffuse"}

TASKS = {
    "mlm": "--data=text.txt",
    "lm": "--data=text.txt",
    "classify": "--data=builtin --tokenizer.vocab=4000",
    "tag": "--data=builtin",
    "span": "--data=builtin --batch.length=48",
    "choice": "--data=builtin --batch.length=36",
    "translate": "--data=builtin --batch.tokens=256 --tokenizer.vocab=4000",
    "denoise": "--data=builtin --batch.length=32 --tokenizer.vocab=4000",
    "rtd": "--preset=electra-small --model.input.width=none --model.dropout=0 --data=builtin --batch.length=32 "
    "--tokenizer.vocab=4000",
    "contrast": "--data=builtin --tokenizer.vocab=4000",
    "rank": "--data=builtin --batch.length=64",
    "late": "--data=builtin --tokenizer.vocab=4000",
    "image": "--data=builtin --model.input.size=16 --model.input.patch=8",
    "image of sounds": "--preset=sound-micro --data=builtin",
    "image of videos": "--preset=video-micro --data=builtin --model.input.tube=2 --model.input.size=16",
    "translate of sounds": "--preset=whisper-micro --data=builtin --batch.length=8",
    "pixels": "--data=builtin --model.length=64",
    "segment": "--data=builtin --model.input.size=16 --model.input.patch=8",
    "detect": "--data=builtin --model.input.size=16",
    "restore": "--data=builtin --model.input.size=16 --model.input.patch=8",
    "answer-picture": "--data=builtin --model.input.size=16 --model.input.patch=8 --batch.length=12",
    "forecast": "--data=builtin",
    "contrast of pictures": "--preset=clip-tiny --data=builtin --batch.length=16 --model.width=64 "
    "--model.images.layers=1 --model.images.width=64 --model.images.heads=2 --model.images.input.size=16 "
    "--model.images.projection=16",
    "skipthought": "--data=builtin --model.width=64",
    "bilm": "--data=builtin --model.width=128 --model.mixer.size=256 --model.mixer.projection=128 "
    "--model.input.width=128",
}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "text.txt")
    return tmp_path


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--run=nowhere", "nowhere is not a run folder"),
        ("--run=nowhere --task=lm", "--run=nowhere brings its own configuration; leave --task=lm out"),
        ("--task=lm --to=nowhere/check.json", "--to=nowhere/check.json cannot be written; name a file in a folder"),
        ("--task=lm --to=.", "--to=. cannot be written"),
        ("--task=lm --resume", "--resume goes on with a run, which is checked with --run=RUN; leave it out"),
        ("--task=ml", "--task=ml is unknown; did you mean mlm?"),
        ("--task=lm --model.widht=8", "unknown flag --model.widht; did you mean model.width?"),
        ("lm", "'lm' is not a flag"),
    ],
)
def test_bad_input(flags, says, home):
    before = sorted(home.iterdir())
    code, out, err = call(command.main, *flags.split())
    assert (code, out) == (2, "")
    assert says in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert sorted(home.iterdir()) == before


def test_help_fits_on_a_screen():
    code, out, _ = call(command.main, "--help")
    assert code == 0
    assert len(out.splitlines()) < 24
    assert "--to=" in out


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_small_runs_of_every_task_pass(name, home, monkeypatch):
    generate, task = drawings.generate, name.split()[0]
    monkeypatch.setattr(drawings, "generate", lambda: generate(240, 40, 40))
    flags = [f"--task={task}", "--model.layers=2", *TASKS[name].split(), "--to=check.json"]
    names = {flag.partition("=")[0] for flag in flags}
    flags += [flag for flag in FLAGS if flag.partition("=")[0] not in names]
    code, out, err = call(command.main, *flags)
    summary, certificate = json.loads(out), json.loads((home / "check.json").read_text())
    assert summary["failed"] == [], err
    assert code == 0
    assert certificate["passed"]
    assert certificate["config"]["task"]["name"] == task
    assert {probe["status"] for probe in certificate["probes"]} <= {"pass", "not applicable"}


def test_every_task_is_among_them():
    options = TaskOptions.__subclasses__()
    assert {option.name for option in options if option.name} == {name.split()[0] for name in TASKS} | UNFIT


@pytest.mark.slow
def test_a_run_is_checked_with_its_weights_and_data(home, monkeypatch):
    run("--task=lm", *FLAGS, "--model.layers=2", "--out=run", "--steps=4")
    code, out, err = call(command.main, "--run=run")
    assert code == 0, err
    report = json.loads((home / "run" / "check.json").read_text())
    statuses = {probe["name"]: probe["status"] for probe in report["probes"]}
    assert statuses["start"] == "not applicable"
    assert statuses["cached is full"] == "pass"
    assert json.loads(out)["measured"] == report["measured"]
    original = LM.loss
    wrong = lambda *arguments: original(*arguments) | {"weight": original(*arguments)["loss"]}
    monkeypatch.setattr("train.tasks.lm.task.LM", dataclasses.replace(LM, loss=wrong))
    code, out, err = call(command.main, "--run=run")
    assert code == 1, err
    assert "weighted sum" in json.loads(out)["failed"]
    assert "probes fail: " in err

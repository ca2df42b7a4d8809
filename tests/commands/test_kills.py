"""Kills at random moments, starts at the same moment, disks that are full or cannot be written: nothing is lost.

TFM_TEST_MOMENTS says how many moments of each kind are tried. There are at least 6 kills, which the first three tasks
share; where there is one or more for each task, all tasks share them.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from small import FLAGS, call, read_lines, write_text

from train import evaluate, export
from train.main import main
from train.runs.run_folder import open_folder

MOMENTS = int(os.environ.get("TFM_TEST_MOMENTS", "2"))
SEED = int(os.environ.get("TFM_TEST_SEED", "0"))

pytestmark = pytest.mark.slow

ENV = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
STEPS = 200
LONG = [f"--steps={STEPS}", "--eval.every=20", "--eval.batches=2", "--log.every=1"]
MODEL = [flag for flag in FLAGS if flag.startswith(("--model", "--batch.size"))]
IMAGES = [*MODEL, *LONG, "--data=pictures.npz", "--checkpoint.every=4"]
TEXTS = [*FLAGS, *LONG, "--checkpoint.every=4"]
TASKS = {
    "mlm": ["--task=mlm", *FLAGS, *LONG, "--checkpoint.every=5"],
    "lm": ["--task=lm", *FLAGS, *LONG, "--checkpoint.every=4", "--log.every=3", "--optim.ema=0.99"],
    "classify": ["--task=classify", *FLAGS, *LONG, "--data=labels.tsv", "--checkpoint.every=3", "--eval.best=accuracy"],
    "translate": ["--task=translate", *TEXTS, "--data=pairs.tsv", "--task.bleu=2", "--batch.shapes=2"],
    "tag": ["--task=tag", *TEXTS, "--data=names.conll", "--eval.best=f1"],
    "image": ["--task=image", *IMAGES, "--preset=vit-micro", "--model.input.patch=4", "--model.input.size=8"],
    "pixels": ["--task=pixels", *IMAGES, "--model.length=16", "--task.samples=1"],
    "contrast": ["--task=contrast", *TEXTS, "--data=sides.tsv"],
}
KILLS = max(6, MOMENTS)
SHARING = list(TASKS)[: len(TASKS) if len(TASKS) <= KILLS else 3]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A folder with a text, and with labelled texts."""
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "text.txt")
    rng = random.Random(0)
    words = {"yes": "good nice fine lovely great".split(), "no": "bad poor awful dull sad".split()}
    rows = [f"the {rng.choice(words[label])} {rng.choice(words[label])} film {rng.randrange(99)}\t{label}"
            for _ in range(200) for label in words]  # fmt: skip
    (tmp_path / "labels.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    texts = [row.partition("\t")[0] for row in rows]
    pairs = [f"{text}\t{' '.join(word[::-1] for word in text.split())}" for text in texts]
    (tmp_path / "pairs.tsv").write_text("\n".join(["en\tde", *pairs]) + "\n")
    (tmp_path / "sides.tsv").write_text("\n".join(["text\tpositive", *pairs]) + "\n")
    tags = ["\n".join(f"{word} {'B-X' if word in words['no'] else 'O'}" for word in text.split()) for text in texts]
    (tmp_path / "names.conll").write_text("\n\n".join(tags) + "\n")
    colours = np.random.default_rng(0).integers(0, 2, (120, 1, 1, 3), np.uint8) * 200
    np.savez(tmp_path / "pictures.npz", x=np.broadcast_to(colours, (120, 8, 8, 3)), y=colours[:, 0, 0, 0])
    return tmp_path


def start(words, log):
    """A training run in a process of its own."""
    command = [sys.executable, "-m", "train.main", *words]
    return subprocess.Popen(command, env=ENV, stdout=subprocess.DEVNULL, stderr=log.open("w"))


def finish(words, log):
    """Such a run to its end: all runs are compared between processes of the same kind."""
    assert start(words, log).wait() == 0, log.read_text()


def steps_done(text):
    """The steps that a process has done, as its log says; it may have gone on from a checkpoint."""
    first = re.search(r"going on from step (\d+)", text)
    done = re.findall(r"^train +(\d+)", text, re.MULTILINE)
    return int(done[-1]) - int(first[1] if first else 0) if done else 0


def kill_at_a_moment(process, log, rng, kills):
    """Kills a run in its start-up, between two steps, or while a checkpoint is written, if it has not ended.

    The moments of all `kills` lie between its first step and its last one.
    """
    kind = rng.choice(["start", "step", "checkpoint"])
    steps, pause = rng.randrange(1, 1 + 2 * STEPS // kills), rng.uniform(0, 1)
    began = time.monotonic()
    while process.poll() is None:
        is_late = steps_done(log.read_text()) >= steps
        due = {
            "start": time.monotonic() - began > 6 * pause,
            "step": is_late,
            "checkpoint": is_late and any(Path("run/checkpoints").glob("*orbax-checkpoint-tmp*")),
        }
        if due[kind]:
            time.sleep(0.05 * pause)
            process.send_signal(signal.SIGKILL)
        time.sleep(0.005)
    return kind


def numbers(folder):
    clock = ("tokens_per_s", "ms_per_step", "seconds", "mfu")
    lines = [*read_lines(folder / "metrics.jsonl"), json.loads((folder / "result.json").read_text())]
    return [{name: value for name, value in line.items() if name not in clock} for line in lines]


@pytest.mark.parametrize("task", SHARING)
def test_kills_lose_nothing(home, task):
    """A run that is killed and resumed, again and again, ends as one that was left alone: bit for bit."""
    rng = random.Random(f"{SEED} {task}")
    finish([*TASKS[task], "--out=whole"], home / "whole.log")
    kills = len(range(SHARING.index(task), KILLS, len(SHARING)))
    for index in range(kills):
        words = ["--resume", "--out=run"] if Path("run/run.json").exists() else [*TASKS[task], "--out=run"]
        log = home / f"{index}.log"
        kind = kill_at_a_moment(start(words, log), log, rng, kills)
        err = log.read_text()
        print(task, index, kind, [line for line in err.splitlines() if "going on" in line])
        assert "Traceback" not in err
        assert "error: " not in err
    words = ["--resume", "--out=run"] if Path("run/run.json").exists() else [*TASKS[task], "--out=run"]
    finish(words, home / "last.log")
    assert numbers(Path("run")) == numbers(Path("whole"))
    weights = [jax.tree.leaves(open_folder(folder).load()) for folder in ("run", "whole")]
    for a, b in zip(*weights, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not [
        path for path in Path("run").rglob("*") if "orbax-checkpoint-tmp" in path.name or path.suffix == ".part"
    ]
    assert not list(Path("run").glob(".owner"))


def compare(out):
    """A grid of three runs in a process of its own."""
    words = [
        "--vary=model.position=learned,rotary,none",
        "--seeds=1",
        "--task=lm",
        *FLAGS,
        "--steps=40",
        "--log.every=1",
    ]
    command = [sys.executable, "-m", "train.compare", *words, f"--out={out}"]
    return subprocess.Popen(command, env=ENV, stdout=subprocess.DEVNULL, stderr=Path(f"{out}.log").open("w"))


def test_a_comparison_that_is_killed_ends_with_the_same_table(home):
    """Killed between any two steps of any of its runs, and started again."""
    rng = random.Random(SEED)
    assert compare("whole").wait() == 0, Path("whole.log").read_text()
    for _ in range(MOMENTS):
        process, lines = compare("killed"), rng.randrange(1, 120)
        while process.poll() is None and Path("killed.log").read_text().count("train ") < lines:
            time.sleep(0.005)
        process.kill()
        process.wait()
        assert "error: " not in Path("killed.log").read_text()
    assert compare("killed").wait() == 0, Path("killed.log").read_text()
    assert table("killed") == table("whole")


def table(out):
    """The rows of a comparison, without times and the folder's own name."""
    rows = json.loads(Path(out, "results.json").read_text().replace(f'"{out}/', '"'))["rows"]
    for part in [part for row in rows for part in (row, *row["cells"].values())]:
        clock = ("seconds", "tokens_per_s")
        part["metrics"] = {name: value for name, value in part["metrics"].items() if not name.endswith(clock)}
    return rows


CLAIM = """
import sys
from train import UserError
from train.runs.claim import claimed_folder
from train.tasks.table import AnyRun
print("ready", flush=True)
for line in sys.stdin:
    try:
        with claimed_folder(AnyRun(preset="p", out=line.strip())) as folder:
            print(folder, flush=True)
            sys.stdin.readline()
    except UserError as error:
        print("error:", error, flush=True)
        sys.stdin.readline()
    print("released", flush=True)
"""


@pytest.mark.parametrize("out", ["", "mine"])
def test_claims_at_the_same_moment(home, out):
    """Four processes, MOMENTS times: all get a folder of their own, or one gets the folder and is named to the rest."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": ENV}
    processes = [subprocess.Popen([sys.executable, "-c", CLAIM], **pipes) for _ in range(4)]

    def write(text):
        for process in processes:
            process.stdin.write(text + "\n")
            process.stdin.flush()
        return [process.stdout.readline().strip() for process in processes]

    assert [process.stdout.readline().strip() for process in processes] == ["ready"] * 4
    for _ in range(MOMENTS):
        answers = sorted(write(out))
        if out:
            assert answers[3] == "mine"
            assert all(answer.startswith("error: mine belongs to process ") for answer in answers[:3])
        else:
            assert answers == [f"runs/mlm-p-{index}" for index in range(1, 5)]
        assert write("") == ["released"] * 4
        assert not (home / "mine").exists()
        assert not list(home.glob("runs/*"))
    for process in processes:
        process.stdin.close()
        assert process.wait() == 0


def test_two_runs_at_the_same_moment(home):
    """On one empty cache, with the default --out."""
    words = [*FLAGS, "--steps=2", "--eval.final=false"]
    logs = [home / "a.log", home / "b.log"]
    processes = [start([*words, f"--seed={seed}"], log) for seed, log in enumerate(logs)]
    assert [process.wait() for process in processes] == [0, 0], [log.read_text() for log in logs]
    folders = sorted((home / "runs").iterdir())
    assert [path.name for path in folders] == ["mlm-bert-tiny-1", "mlm-bert-tiny-2"]
    assert {json.loads((path / "run.json").read_text())["config"]["seed"] for path in folders} == {0, 1}
    assert all(len(read_lines(path / "metrics.jsonl")) == 2 for path in folders)


def test_a_resume_while_the_run_lives(home):
    """It is refused at once, and the run goes on to its end as if nobody had asked."""
    log = home / "a.log"
    with start([*TASKS["mlm"], "--out=run"], log) as process:
        while log.read_text().count("train ") < 5 and process.poll() is None:
            time.sleep(0.05)
        code, _, err = call(main, "--resume", "--out=run")
        assert code == 2, err
        assert f"error: run belongs to process {process.pid} on " in err
        again = call(main, *TASKS["mlm"], "--out=run")
        assert (again[0], f"belongs to process {process.pid}" in again[2]) == (2, True)
        assert process.wait() == 0, log.read_text()
    finish([*TASKS["mlm"], "--out=whole"], home / "whole.log")
    assert numbers(Path("run")) == numbers(Path("whole"))


@pytest.fixture
def disk(home):
    """A small file system of its own: `disk(options)` mounts it, or mounts it anew with other options."""
    path = home / "disk"
    path.mkdir()

    def mount(options):
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)]
        if os.geteuid() or subprocess.run(command, capture_output=True).returncode:
            pytest.skip("no right to mount a disk")
        return path

    yield mount
    while path.is_mount():
        subprocess.run(["umount", "-l", str(path)], check=True)


def refused(command, *flags):
    code, _, err = call(command, *flags)
    assert code == 2, err
    assert "Traceback" not in err
    (sentence,) = (line for line in err.splitlines() if line.startswith("error: "))
    return sentence


def test_a_disk_that_cannot_be_written(home, disk, monkeypatch):
    path = disk("size=64m")
    assert call(main, *FLAGS, "--task=lm", "--out=disk/run", "--stop-at=2")[0] == 0
    disk("remount,ro")
    before = sorted(str(path) for path in home.rglob("*"))
    cannot = "Read-only file system"
    assert f"--out=disk/a/b cannot be made: {cannot}" in refused(main, *FLAGS, "--out=disk/a/b")
    assert f"--out=disk/run cannot be written: {cannot}" in refused(main, "--resume", "--out=disk/run")
    assert cannot in refused(export.main, "--run=disk/run", "--to=disk/hf")
    assert call(evaluate.main, "--run=disk/run")[0] == 0
    monkeypatch.setenv("TFM_CACHE", str(path / "cache"))
    assert cannot in refused(main, *FLAGS, "--out=a")
    assert sorted(str(path) for path in home.rglob("*")) == before


@pytest.mark.parametrize("size", ["20k", "60k", "100k", "200k", "400k"])
def test_a_disk_that_fills_up(home, disk, size):
    """From the first file on: one sentence, and no other output after it."""
    disk(f"size={size}")
    log = home / "log"
    code = start([*FLAGS, "--out=disk/run"], log).wait()
    *_, last = log.read_text().splitlines()
    assert (code, last.startswith("error: the disk is full")) == (2, True), log.read_text()
    assert "Traceback" not in log.read_text()
    assert "Exception ignored" not in log.read_text()

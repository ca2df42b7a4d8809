"""Whole runs, in this process: what they leave behind, and that an interruption changes nothing."""

import contextlib
import dataclasses
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from small import FLAGS, call, read_lines, run, write_text

import train.data.tokens
from train import UserError, evaluate
from train.devices import specs
from train.lab.replay import main as replay
from train.main import main
from train.predict import main as predict
from train.runs import checkpoint
from train.runs.saved import SavedCheckpoints
from train.runs.state import State
from train.tasks.mlm.task import MLM, Corpus
from train.text import tokenize
from train.training import hooks
from train.training.evaluation import Evaluator

pytestmark = pytest.mark.usefixtures("in_home")

CLOCK = ("tokens_per_s", "ms_per_step")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a text in it."""
    folder = tmp_path_factory.mktemp("home")
    write_text(folder / "text.txt")
    return folder


@pytest.fixture(scope="module")
def uninterrupted(home):
    """A run of six steps without interruption: its folder and its stderr."""
    with contextlib.chdir(home):
        return Path("whole"), run(*FLAGS, "--out=whole")


@pytest.fixture
def copy(uninterrupted, tmp_path):
    """The same run, to be gone on with or broken."""
    return shutil.copytree(uninterrupted[0], tmp_path / "copy")


def metrics(folder):
    """The lines of metrics.jsonl, without the clock."""
    return [
        {name: value for name, value in line.items() if name not in CLOCK}
        for line in read_lines(folder / "metrics.jsonl")
    ]


def saved(folder, at):
    """Parameters and optimizer state of a checkpoint, as it lies on disk."""
    items = [
        ocp.StandardCheckpointer().restore((folder / "checkpoints" / str(at) / item).absolute())
        for item in ("params", "opt")
    ]
    return [np.asarray(leaf) for leaf in jax.tree.leaves(items)]


def steps_in(folder):
    """The steps whose checkpoints are there."""
    return sorted(int(path.name) for path in (folder / "checkpoints").iterdir())


def assert_same_run(folder, other_folder):
    assert metrics(folder) == metrics(other_folder)
    for a, b in zip(saved(folder, 6), saved(other_folder, 6), strict=True):
        np.testing.assert_array_equal(a, b)
    results = [json.loads((folder / "result.json").read_text()) for folder in (folder, other_folder)]
    assert results[0] | {"seconds": 0} == results[1] | {"seconds": 0}


# What a run leaves behind


def test_files(uninterrupted):
    folder, _ = uninterrupted
    assert {path.name for path in folder.iterdir()} == {
        "run.json", "metrics.jsonl", "result.json", "tokenizer.json", "checkpoints", "plots", "tensorboard"
    }  # fmt: skip
    for name in ("loss.png", "lr.png"):
        assert (folder / "plots" / name).read_bytes().startswith(b"\x89PNG")
    assert list((folder / "tensorboard").glob("events*"))
    assert not list(folder.rglob("*.part"))


def test_run_json(uninterrupted):
    facts = json.loads((uninterrupted[0] / "run.json").read_text())
    assert {"config", "command", "versions", "data", "devices", "mesh", "params"} <= facts.keys()
    assert {"python", "jax", "flax", "optax", "orbax-checkpoint", "tokenizers"} <= facts["versions"].keys()
    assert {"hash", "tokenizer", "train_tokens", "eval_tokens"} <= facts["data"].keys()
    config = facts["config"]
    assert {
        "model",
        "task",
        "data",
        "tokenizer",
        "batch",
        "optim",
        "mesh",
        "checkpoint",
        "eval",
        "log",
    } <= config.keys()
    assert (config["model"]["layers"], config["model"]["ffn"], config["batch"]["size"]) == (1, 64, 8)
    assert config["model"]["vocab"] == len(
        json.loads((uninterrupted[0] / "tokenizer.json").read_text())["model"]["vocab"]
    )
    assert facts["mesh"] == {"data": 8, "fsdp": 1, "tensor": 1, "context": 1}


def test_metrics_jsonl(uninterrupted):
    lines = read_lines(uninterrupted[0] / "metrics.jsonl")
    assert [(line["step"], line["split"]) for line in lines] == [
        (n, split) for n in (2, 4, 6) for split in ("train", "eval")
    ]
    for line in lines:
        assert {"loss", "perplexity", "accuracy", "accuracy_words"} <= line.keys()
        assert line["perplexity"] == pytest.approx(math.exp(line["loss"]))
        assert line["split"] == "eval" or {*CLOCK, "rate", "grad_norm"} <= line.keys()
    assert lines[0]["loss"] == pytest.approx(math.log(lines[0]["perplexity"]))
    assert lines[0]["loss"] > lines[-1]["loss"] > 0, "it learns"


def test_result_json(uninterrupted):
    result = json.loads((uninterrupted[0] / "result.json").read_text())
    assert (result["task"], result["steps"]) == ("mlm", 6)
    assert result["params"] == json.loads((uninterrupted[0] / "run.json").read_text())["params"]
    assert result["seconds"] > 0
    assert {"eval_loss", "eval_accuracy", "eval_accuracy_words", "eval_majority"} <= result.keys()
    last = [line for line in read_lines(uninterrupted[0] / "metrics.jsonl") if line["split"] == "eval"][-1]
    assert last["loss"] == result["eval_loss"]
    assert not any(isinstance(value, dict | list) for value in result.values())


def test_stderr_tells_what_happens(uninterrupted):
    err = uninterrupted[1]
    for text in (
        "parameters",
        "tokens",
        "devices",
        "mesh",
        "batch",
        "padding",
        "train      2/6",
        "eval       6/6",
        "eval_accuracy",
    ):
        assert text in err
    for command in (
        "train.evaluate --run=whole",
        "train.main --resume --out=whole",
        "train.main --task=classify --init=whole",
    ):
        assert f"python -m {command}" in err
    assert len(re.findall(r"\[\w+\]", err)) >= 5, "five sentences with hidden words"


@pytest.mark.slow
def test_default_folder_and_second_run_from_the_cache(uninterrupted, monkeypatch, tmp_path):
    (tmp_path / "runs" / "mlm-bert-tiny-1").mkdir(parents=True)
    shutil.copy("text.txt", tmp_path)
    monkeypatch.chdir(tmp_path)
    for module, name in ((tokenize, "train"), (train.data.tokens, "_write")):
        monkeypatch.setattr(module, name, lambda *args: pytest.fail("not from the cache"))
    run(*FLAGS, "--stop-at=1")
    assert (tmp_path / "runs" / "mlm-bert-tiny-2" / "run.json").exists()
    assert steps_in(tmp_path / "runs" / "mlm-bert-tiny-2") == [1]


# Interruption and resumption


@pytest.mark.slow
@pytest.mark.parametrize("stop", [3, 4])
def test_two_halves_equal_the_whole(uninterrupted, tmp_path, stop):
    """Bit for bit, with dropout, also where the interruption falls between two log lines."""
    half = tmp_path / "half"
    err = run(*FLAGS, f"--out={half}", f"--stop-at={stop}")
    assert f"stopped at step {stop}" in err
    assert f"python -m train.main --resume --out={half}" in err
    assert not (half / "result.json").exists()
    assert metrics(half)[-1]["step"] <= stop
    err = run("--resume", f"--out={half}")
    assert f"going on from step {stop}" in err
    assert_same_run(half, uninterrupted[0])


@pytest.mark.slow
def test_lines_after_the_checkpoint_are_written_again(uninterrupted, copy):
    """As after a crash: the log is ahead of the newest checkpoint, and its last line is cut short."""
    shutil.rmtree(copy / "checkpoints" / "6")
    (copy / "result.json").unlink()
    with (copy / "metrics.jsonl").open("a") as file:
        file.write('{"step": 7, "spl')
    run("--resume", f"--out={copy}")
    assert_same_run(copy, uninterrupted[0])


@pytest.mark.slow
def test_resume_on_the_first_start(uninterrupted, tmp_path):
    """A command that is given again after each end has --resume from the beginning on."""
    command = [*FLAGS, "--task=mlm", "--resume", f"--out={tmp_path / 'a'}"]
    assert "a holds no run yet; it begins" in run(*command, "--stop-at=4")
    assert "going on from step 4" in run(*command)
    assert_same_run(tmp_path / "a", uninterrupted[0])


@pytest.mark.slow
def test_resume_takes_the_newest_run(uninterrupted, home, tmp_path, monkeypatch):
    shutil.copy("text.txt", tmp_path)
    monkeypatch.chdir(tmp_path)
    for index, age in ((1, 100), (2, 0), (3, 200)):
        shutil.copytree(home / "whole", f"runs/mlm-bert-tiny-{index}")
        mtime = (home / "whole" / "run.json").stat().st_mtime - age
        os.utime(f"runs/mlm-bert-tiny-{index}/run.json", (mtime, mtime))
    err = run("--resume", "--steps=7", "--stop-at=7")
    assert "going on from step 6 of runs/mlm-bert-tiny-2" in err


@pytest.mark.slow
def test_steps_and_log_may_change_on_resume(copy):
    run("--resume", f"--out={copy}", "--steps=8", "--log.every=1")
    assert [line["step"] for line in metrics(copy) if line["split"] == "train"] == [2, 4, 6, 7, 8]
    assert json.loads((copy / "result.json").read_text())["steps"] == 8
    assert json.loads((copy / "run.json").read_text())["config"]["steps"] == 8


@pytest.mark.slow
def test_stop_at_is_not_remembered_and_the_last_evaluation_may_be_left_out(tmp_path):
    run(*FLAGS, f"--out={tmp_path / 'a'}", "--stop-at=1", "--steps=2")
    run("--resume", f"--out={tmp_path / 'a'}", "--eval.final=false")
    result = json.loads((tmp_path / "a" / "result.json").read_text())
    assert result["steps"] == 2
    assert not any(name.startswith("eval_") for name in result)


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_ends(uninterrupted, tmp_path, monkeypatch, signum):
    assert threading.current_thread() is threading.main_thread()
    real = Corpus.batch

    def batch(corpus, n, *share):
        if n == 2:
            signal.raise_signal(signum)
        return real(corpus, n, *share)

    handler = signal.getsignal(signum)
    with monkeypatch.context() as patch:
        patch.setattr(Corpus, "batch", batch)
        code, _, err = call(main, *FLAGS, f"--out={tmp_path / 'a'}")
    assert code == 128 + signum
    assert err.splitlines()[-1] == ("interrupted" if signum == signal.SIGINT else "terminated")
    assert signal.getsignal(signum) is handler, "handlers are given back"
    assert "stopped at step 3" in err
    assert f"python -m train.main --resume --out={tmp_path / 'a'}" in err
    run("--resume", f"--out={tmp_path / 'a'}")
    assert_same_run(tmp_path / "a", uninterrupted[0])


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_from_outside(tmp_path, signum):
    write_text(tmp_path / "text.txt")
    command = [
        sys.executable,
        "-m",
        "train.main",
        *FLAGS,
        "--out=a",
        "--steps=100000",
        "--checkpoint.every=50",
        "--eval.every=100000",
    ]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if line.startswith("train     80/"):
                process.send_signal(signum)
                break
        rest = process.stderr.read()
    if signum == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 143, rest
        assert "python -m train.main --resume --out=a" in rest
        assert "Traceback" not in rest
    newest = max(int(path.name) for path in (tmp_path / "a" / "checkpoints").iterdir() if path.name.isdigit())
    command = [sys.executable, "-m", "train.main", "--resume", "--out=a", f"--stop-at={newest + 1}"]
    again = subprocess.run(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True)
    assert again.returncode == 0, again.stderr
    assert f"going on from step {newest}" in again.stderr
    assert f"stopped at step {newest + 1}" in again.stderr


# Damaged checkpoints


def spoil(folder, damage):
    """Spoils a checkpoint as a crash or a full disk would."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    data = [path for path in files if path.parent.name == "d"]  # of the OCDBT key-value store
    if damage == "cut short":
        for path in data:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif damage == "emptied":
        for path in files:
            path.write_bytes(b"")
    elif damage == "without parameters":
        shutil.rmtree(folder / "params")
    elif damage == "without a note":
        shutil.rmtree(folder / "note")
    elif damage == "without metadata":
        (folder / "params" / "_METADATA").unlink()
    elif damage == "without data":
        for path in data:
            path.unlink()


@pytest.mark.slow
def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(uninterrupted, copy):
    spoil(copy / "checkpoints" / "6", "cut short")
    (copy / "checkpoints" / "8.orbax-checkpoint-tmp").mkdir()
    err = run("--resume", f"--out={copy}")
    assert "checkpoint 6 cannot be read" in err
    assert "checkpoint 8 was never finished" in err
    assert "going on from step 4" in err
    assert_same_run(copy, uninterrupted[0])


@pytest.fixture
def store(tmp_path):
    """Checkpoints 1 and 2 of a small state."""

    def state(n):
        return State(
            jax.numpy.int32(n), {"w": jax.numpy.full((4, 64), 1.0 * n)}, {"m": jax.numpy.full((4, 64), 2.0 * n)}
        )

    store = checkpoint.Checkpoints(tmp_path / "checkpoints", keep=3)
    for n in (1, 2):
        store.save(n, state(n), {"window": {"loss": 0.5 * n}, "best": {}}, None)
    store.close()
    return tmp_path / "checkpoints", state(0)


@pytest.mark.parametrize("damage", ["cut short", "emptied", "without parameters", "without a note", "without data"])
def test_damages(store, damage):
    folder, like = store
    spoil(folder / "2", damage)
    lines = []
    state, note, at = SavedCheckpoints(folder).restore(like, lines.append)
    assert at == state.step == 1
    assert note == {"window": {"loss": 0.5}, "best": {}}
    assert (state.params["w"] == 1).all()
    assert (state.opt["m"] == 2).all()
    assert any("checkpoint 2 cannot be read" in line and "falling back" in line for line in lines)


def test_no_whole_checkpoint_at_all(store):
    folder, like = store
    for name in "12":
        spoil(folder / name, "emptied")
    with pytest.raises(UserError, match="holds no whole checkpoint; start a new run"):
        SavedCheckpoints(folder).restore(like, lambda text: None)


@pytest.mark.slow
def test_keeps_the_last_and_the_best(tmp_path, monkeypatch):
    losses = iter([5.0, 1.0, 4.0, 3.0, 2.0, 6.0, 6.0])
    metrics = lambda sums: MLM.metrics(sums) | ({} if "grad_norm" in sums else {"loss": next(losses)})
    monkeypatch.setattr("train.tasks.mlm.task.MLM", dataclasses.replace(MLM, metrics=metrics))
    run(*FLAGS, f"--out={tmp_path / 'a'}", "--eval.every=1", "--checkpoint.every=1", "--checkpoint.keep=2")
    assert steps_in(tmp_path / "a") == [2, 5, 6]


@pytest.mark.slow
def test_memory_and_mfu(monkeypatch, tmp_path):
    """The share of the device's peak that the matrix products of a step reach, where the peak is known."""
    monkeypatch.setitem(specs.DEVICE_SPECS, "cpu", specs.DeviceSpec("cpu", 0.5e12, 1e12, 1e12, 1e12))
    err = run(*FLAGS, f"--out={tmp_path / 'a'}", "--model.dtype=bfloat16", "--steps=4")
    assert re.search(r"attention +einsum: (.*; )?less than 1,048,576 scores a layer", err)
    assert re.search(
        r"memory +about \d+ MB a device \(parameters \d+ MB, gradients \d+ MB, optimizer \d+ MB, activations \d+ MB\)",
        err,
    )
    line = read_lines(tmp_path / "a" / "metrics.jsonl")[-2]
    rows, length, predicted, width = 8, 32, 8 * 5, 32
    vocab = -(-json.loads((tmp_path / "a" / "run.json").read_text())["config"]["model"]["vocab"] // 128) * 128
    forward = 2 * rows * length * (4 * width**2 + 2 * width * 64 + 2 * length * width) + 2 * predicted * (
        width**2 + width * vocab
    )
    assert line["mfu"] == pytest.approx(3 * forward / (line["ms_per_step"] / 1000) / (8 * 0.5e12), rel=0.01)


@pytest.mark.slow
def test_a_signal_during_an_evaluation_which_is_done_later(uninterrupted, tmp_path, monkeypatch):
    """It ends at once, the step is saved, and the run that goes on evaluates it first."""
    real = Evaluator.during_training

    def during_training(evaluator, params):
        signal.raise_signal(signal.SIGINT)
        return real(evaluator, params)

    with monkeypatch.context() as patch:
        patch.setattr(Evaluator, "during_training", during_training)
        assert call(main, *FLAGS, f"--out={tmp_path / 'a'}")[0] == 130
    assert steps_in(tmp_path / "a") == [2]
    assert [line["split"] for line in metrics(tmp_path / "a")] == ["train"]
    run("--resume", f"--out={tmp_path / 'a'}")
    assert_same_run(tmp_path / "a", uninterrupted[0])


@pytest.mark.slow
def test_a_file_asks_for_a_checkpoint(uninterrupted, tmp_path, monkeypatch):
    real = Corpus.batch

    def batch(corpus, n, *share):
        if n == 2:
            (tmp_path / "a" / "save").touch()
        return real(corpus, n, *share)

    monkeypatch.setattr(hooks, "LOOK_EVERY", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(Corpus, "batch", batch)
        err = run(*FLAGS, f"--out={tmp_path / 'a'}", "--checkpoint.keep=9")
    assert f"saved step 3, as {tmp_path / 'a' / 'save'} asked" in err
    assert steps_in(tmp_path / "a") == [2, 3, 4, 6]
    assert not (tmp_path / "a" / "save").exists()
    assert_same_run(tmp_path / "a", uninterrupted[0])


# Losses that are not finite


@pytest.mark.slow
def test_a_loss_that_is_not_finite(uninterrupted, tmp_path, monkeypatch):
    """It stops the run, names step and rows, and leaves what was good."""
    real = Corpus.batch

    def batch(corpus, n, *share):
        fields = real(corpus, n, *share)
        return fields | {"weights": fields["weights"] * (np.nan if n == 4 else 1)}

    with monkeypatch.context() as patch:
        patch.setattr(Corpus, "batch", batch)
        rows, rows_of = {}, Corpus.rows.func
        patch.setattr(Corpus, "rows", property(lambda corpus: lambda n: rows.setdefault(n, rows_of(corpus)(n))))
        code, out, err = call(main, *FLAGS, f"--out={tmp_path / 'a'}")
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("error: the loss of step 5 is not finite")
    assert str(rows[4][1].tolist()) in err
    assert "weights is not finite" in err
    assert "checkpoint is 4" in err
    box = tmp_path / "a" / "blackbox" / "step-5"
    assert json.loads((box / "report.json").read_text())["rows"] == rows[4][1].tolist()
    assert np.isnan(np.load(box / "batch.npz")["weights"]).all()
    assert steps_in(tmp_path / "a") == [2, 4]
    run("--resume", f"--out={tmp_path / 'a'}")
    assert_same_run(tmp_path / "a", uninterrupted[0])


@pytest.mark.slow
def test_a_learning_rate_that_is_far_too_high(tmp_path):
    code, _, err = call(
        main, *FLAGS, f"--out={tmp_path / 'a'}", "--optim.rate=1e6", "--optim.clip=none", "--model.norm=rms"
    )
    assert code == 2
    assert re.search(r"error: the loss of step \d is not finite", err)
    assert re.search(r"finite: .*layer 0.* is the first that is not finite \(", err)
    assert "--optim.rate" in err
    code, out, err = call(replay, f"--run={tmp_path / 'a'}")
    assert code == 0, err
    assert "layer 0/feed_forward" in out
    assert re.search(r"step \d: .*layer 0.* is the first that is not finite \(", out.splitlines()[-1])


@pytest.mark.slow
def test_a_step_that_was_good_is_good_again(uninterrupted):
    code, out, err = call(replay, f"--run={uninterrupted[0]}", "--step=4")
    assert code == 0, err
    assert "step 4: all of it is finite when it is run again" in out
    line = next(line for line in metrics(uninterrupted[0]) if line["step"] == 4 and line["split"] == "train")
    norms = {
        step: float(re.search(r"grad_norm (\S+)", call(replay, f"--run={uninterrupted[0]}", f"--step={step}")[1])[1])
        for step in (3, 4)
    }
    assert np.mean(list(norms.values())) == pytest.approx(line["grad_norm"], rel=1e-3)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--run=whole", "--step=0"], "--step=0 must be at least 1"),
        (["--run=whole", "--step=7"], "--step=7 is more than the 6 steps of whole"),
        (["--run=whole"], "whole has no step that was not finite"),
        (["--run=nothing"], "--run=nothing is not a run folder"),
        ([], "--run=DIR must name the run folder"),
    ],
)
def test_replay_refuses(uninterrupted, flags, sentence):
    code, out, err = call(replay, *flags)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 1
    assert sentence in err


# Starting from a run, and evaluating one


@pytest.mark.slow
def test_init_starts_from_the_weights_of_a_run(uninterrupted, tmp_path):
    run(
        "--init=whole",
        "--data=text.txt",
        f"--out={tmp_path / 'a'}",
        "--batch.size=8",
        "--batch.length=32",
        "--steps=1",
        "--optim.rate=0",
    )
    before = json.loads((uninterrupted[0] / "result.json").read_text())
    after = json.loads((tmp_path / "a" / "result.json").read_text())
    for name in before:
        if name.startswith("eval_"):
            assert before[name] == after[name], name
    assert (tmp_path / "a" / "tokenizer.json").read_text() == (uninterrupted[0] / "tokenizer.json").read_text()


def test_evaluate(uninterrupted):
    code, out, _ = call(evaluate.main, "--run=whole")
    assert code == 0
    (line,) = out.splitlines()
    result = json.loads((uninterrupted[0] / "result.json").read_text())
    assert {f"eval_{name}": value for name, value in json.loads(line).items()} == pytest.approx(
        {name: value for name, value in result.items() if name.startswith("eval_")}, rel=1e-6
    )


def test_evaluate_on_other_text(uninterrupted, tmp_path):
    write_text(tmp_path / "other.txt", seed=1, lines=40)
    code, out, _ = call(evaluate.main, "--run=whole", f"--data={tmp_path / 'other.txt'}")
    assert code == 0
    evaluated = json.loads(out)
    assert {"loss", "perplexity", "accuracy", "n"} <= evaluated.keys()
    tokens = len((tmp_path / "other.txt").read_text().replace(".", " .").split())
    assert evaluated["n"] == pytest.approx(0.15 * tokens, rel=0.2), "all of the text"


@pytest.mark.slow
def test_evaluate_reads_files_as_flags_say(uninterrupted, tmp_path):
    """The same text in a file of another ending, and in a column of another name."""
    write_text(tmp_path / "other.txt", seed=1, lines=40)
    text = (tmp_path / "other.txt").read_text()
    (tmp_path / "other.md").write_text(text)
    (tmp_path / "other.jsonl").write_text(json.dumps({"body": text}) + "\n")
    results = [
        call(evaluate.main, "--run=whole", f"--data={tmp_path / name}", *flags)
        for name, flags in (
            ("other.txt", []),
            ("other.md", ["--data.format=text"]),
            ("other.jsonl", ["--data.field", "body"]),
        )
    ]
    assert [code for code, _, _ in results] == [0, 0, 0]
    assert len({out for _, out, _ in results}) == 1
    for flag, sentence in (
        ("--data.formt=text", "unknown flag --data.formt; did you mean data.format?"),
        ("--data.source=a.txt", "--data.source chooses what a run trains on"),
    ):
        code, out, err = call(evaluate.main, "--run=whole", f"--data={tmp_path / 'other.txt'}", flag)
        assert (code, out) == (2, "")
        assert sentence in err


def test_predict_fills_blanks(uninterrupted, tmp_path):
    (tmp_path / "blanks.md").write_text("the [MASK] sat on the [MASK]\n\na cat <mask>\n")
    flags = [f"--file={tmp_path / 'blanks.md'}", "--data.format=text", "--top-k=2", f"--to={tmp_path / 'out.jsonl'}"]
    assert call(predict, "--run=whole", *flags)[:2] == (0, "")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [[len(blank) for blank in row["blanks"]] for row in rows] == [[2, 2], [], [2]]
    code, out, _ = call(predict, "--run=whole", "--text=a cat [MASK]", "--top-k=2")
    assert (code, out.split()[::2]) == (0, [guess["token"] for guess in rows[2]["blanks"][0]])
    code, _, err = call(predict, "--run=whole", "--text=a [MASK]", "--pair=b")
    assert (code, "--pair is no flag of --task=mlm" in err) == (2, True)


def test_help(capsys):
    for command in (main, evaluate.main):
        assert command(["--help"]) == 0
        assert "usage: python -m train." in capsys.readouterr().out


@pytest.mark.slow
def test_evaluate_where_the_batch_does_not_divide_by_the_devices(tmp_path):
    """As a run from one device, evaluated on eight."""
    mesh = ["--mesh.data=1", "--mesh.tensor=8", "--model.heads=8", "--batch.size=4"]
    run(*FLAGS, *mesh, f"--out={tmp_path / 'a'}", "--steps=1")
    code, out, _ = call(evaluate.main, f"--run={tmp_path / 'a'}")
    assert code == 0
    assert json.loads(out)["loss"] == pytest.approx(
        json.loads((tmp_path / "a" / "result.json").read_text())["eval_loss"], rel=1e-5
    )


@pytest.mark.parametrize("damage", ["emptied", "without parameters", "without metadata"])
def test_weights_of_a_run_whose_newest_checkpoint_is_damaged(copy, damage):
    spoil(copy / "checkpoints" / "6", damage)
    code, out, err = call(evaluate.main, f"--run={copy}")
    assert (code, out) == (2, "")
    assert f"checkpoint 6 of {copy} is damaged" in err
    assert f"let python -m train.main --resume --out={copy} go on from an older one" in err
    assert steps_in(copy) == [4, 6], "reading changes nothing"

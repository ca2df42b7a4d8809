"""The command that compares two runs."""

import json

import pytest
from small import call, run, write_text

from train.files import checksum
from train.lab import diff

CONFIG = {"task": {"name": "lm"}, "seed": 0}


def write_run(folder, seed, losses, versions="1"):
    """A run folder as train.main leaves it, without what this command does not read."""
    folder.mkdir()
    sections = {"format": 3, "config": CONFIG | {"seed": seed}, "versions": {"jax": versions}, "data": {"hash": "a"}}
    (folder / "run.json").write_text(json.dumps(sections))
    lines = [{"step": step, "split": "train", "loss": loss} for step, loss in losses.items()]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "a", 0, {10: 3.0, 20: 2.0, 30: 1.0})
    write_run(tmp_path / "b", 1, {10: 3.0, 20: 2.001, 30: 1.5}, versions="2")
    return tmp_path


def test_what_differs_and_where_losses_part(home):
    code, out, err = call(diff.main, "a", "b")
    assert code == 0, err
    result = json.loads(out)
    assert result["differs"] == {"configuration": {"seed": [0, 1]}, "versions": {"jax": ["1", "2"]}}
    assert result["loss"]["train"] == {
        "shared": 3,
        "equal_until": 10,
        "differs_at": [20, 2.0, 2.001],
        "parts_at": [30, 1.0, 1.5],
        "last": [30, 1.0, 1.5],
    }
    assert "equal bit for bit until step 10; differs at step 20 (2 | 2.001); more than 1 % apart at step 30" in err


def test_a_run_and_itself(home):
    code, out, err = call(diff.main, "a", "a")
    assert (code, json.loads(out)["differs"]) == (0, {})
    assert "equal bit for bit in all 3 steps" in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("a", "train.diff compares two run folders, and 1 are named"),
        ("a b a", "and 3 are named"),
        ("a nowhere", "nowhere is not a run folder: it has no run.json"),
        ("a c", "c has no metrics.jsonl"),
        ("a d", "d/run.json is not as the run wrote it"),
        ("a b --tolerance=-1", "--tolerance=-1.0 must not be negative"),
        ("a b --tolernce=1", "unknown flag --tolernce; did you mean tolerance?"),
    ],
)
def test_bad_input(words, says, home):
    write_run(home / "c", 0, {})
    (home / "c" / "metrics.jsonl").unlink()
    write_run(home / "d", 0, {})
    record = json.loads((home / "d" / "run.json").read_text())
    record["checksums"] = {"versions": checksum.of_bytes(b"")}
    (home / "d" / "run.json").write_text(json.dumps(record))
    code, out, err = call(diff.main, *words.split())
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


@pytest.mark.slow
def test_two_trained_runs(home):
    write_text(home / "text.txt")
    flags = "--task=lm --data=text.txt --model.layers=1 --model.width=32 --model.heads=2 --tokenizer.vocab=400"
    flags += " --batch.size=8 --batch.length=32 --model.length=32 --log.every=1 --steps=4"
    run(*flags.split(), "--out=one")
    run(*flags.split(), "--out=two")
    run(*flags.split(), "--out=three", "--optim.rate=0.01")
    _, out, err = call(diff.main, "one", "two")
    assert json.loads(out)["differs"] == {}, err
    assert "equal bit for bit in all 4 steps" in err
    _, out, _ = call(diff.main, "one", "three")
    result = json.loads(out)
    assert list(result["differs"]["configuration"]) == ["optim.rate"]
    assert result["loss"]["train"]["equal_until"] >= 1
    assert result["loss"]["train"]["differs_at"][0] > 1

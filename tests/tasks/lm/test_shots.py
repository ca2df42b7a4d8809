"""Answers by the examples before them: `train.evaluate --shots`."""

import json

import pytest
from small import FLAGS, call, run

from train import evaluate
from train.data.sources import generated

SMALL = [flag for flag in FLAGS if not flag.startswith(("--data", "--batch.length"))]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a run on texts of four examples, and one on masked text."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(generated, "_VALID", 60)
        patch.setattr(generated, "_TRAIN", 300)
        run("--task=lm", *SMALL, "--data=in-context:4", "--batch.length=48", "--out=examples")
        yield folder


@pytest.mark.slow
def test_each_count_of_examples_has_answers_of_its_own(home, monkeypatch):
    """The answers behind 0 to 3 examples are all answers, so their mean loss is that of all."""
    monkeypatch.chdir(home)
    monkeypatch.setattr(generated, "_VALID", 60)
    monkeypatch.setattr(generated, "_TRAIN", 300)
    code, out, err = call(evaluate.main, "--run=examples", "--shots=0,1,2,3")
    assert code == 0, err
    metrics = json.loads(out)
    losses = [metrics[f"loss_shots_{count}"] for count in range(4)]
    assert len(set(losses)) == 4
    assert metrics["loss"] == pytest.approx(sum(losses) / 4, rel=0.05), "answers have a token or few"
    assert all(0 <= metrics[f"accuracy_shots_{count}"] <= 1 for count in range(4))
    code, _, err = call(evaluate.main, "--run=examples", "--shots=4")
    assert code == 2
    assert "--shots=4 needs texts of 5 examples; the longest has 4" in err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--shots=one", "shots=one must be counts of examples, such as 0,1,2,4,8"),
        ("--shots=0 --data=other.txt", "--shots=0 counts examples, and other.txt marks no answers"),
    ],
)
def test_counts_that_do_not_fit(home, flags, sentence, monkeypatch):
    monkeypatch.chdir(home)
    (home / "other.txt").write_text("a text without answers\n" * 20)
    code, _, err = call(evaluate.main, "--run=examples", *flags.split())
    assert code == 2
    assert sentence in err

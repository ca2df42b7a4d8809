"""Early stopping."""

import pytest

from train import UserError
from train.settings.schema import Eval
from train.training.early_stopping import EarlyStopping

DIRECTIONS = {"loss": min, "accuracy": max}


@pytest.mark.parametrize(
    ("name", "values", "better"),
    [
        ("loss", [3.0, 2.0, 2.0, 2.5, 1.0, 4.0], [True, True, False, False, True, False]),
        ("accuracy", [0.1, 0.3, 0.3, 0.2, 0.4], [True, True, False, False, True]),
    ],
)
def test_better(name, values, better):
    stopping = EarlyStopping(DIRECTIONS, Eval(best=name, patience=2))
    assert [stopping.update(step, {name: value, "accuracy_words": 0}) for step, value in enumerate(values)] == better
    assert stopping.state["step"] == max(step for step, improved in enumerate(better) if improved)


def test_patience():
    stopping = EarlyStopping(DIRECTIONS, Eval(patience=2))
    ended = []
    for step, loss in enumerate([3.0, 4.0, 2.0, 2.1, 2.2]):
        stopping.update(step, {"loss": loss})
        ended.append(stopping.should_stop)
    assert ended == [False, False, False, False, True]
    assert "step 2" in stopping.message
    resumed = EarlyStopping(DIRECTIONS, Eval(patience=2))
    resumed.state = stopping.state
    assert resumed.should_stop
    patient = EarlyStopping(DIRECTIONS, Eval(patience=None))
    patient.state = stopping.state
    assert not patient.should_stop


def test_a_metric_that_the_task_does_not_have():
    with pytest.raises(UserError, match=r"--eval.best=acuracy is unknown; did you mean accuracy\?"):
        EarlyStopping(DIRECTIONS, Eval(best="acuracy"))


def test_a_metric_that_these_options_do_not_measure():
    with pytest.raises(
        UserError, match="^--eval.best=accuracy is not measured with these options and data; choose los"
    ):
        EarlyStopping(DIRECTIONS, Eval(best="accuracy"), {"loss"})
    with pytest.raises(UserError, match=r"at step 4 \(loss, f1\); choose another"):
        EarlyStopping(DIRECTIONS, Eval(best="accuracy"), {"accuracy"}).update(4, {"loss": 1.0, "f1": 1.0})


@pytest.mark.parametrize("kept", [None, (3, 0.5)])
def test_it_counts_anew_from_what_is_kept(kept):
    stopping = EarlyStopping(DIRECTIONS, Eval(patience=1))
    stopping.state = {"value": 0.1, "step": 2, "stale": 1}
    stopping.forget(kept)
    assert not stopping.should_stop
    assert stopping.state["step"] == (kept and 3)
    assert stopping.update(5, {"loss": 0.4}), "worse than what was lost"


def test_patience_that_cannot_run_out_is_said():
    said = []
    EarlyStopping(DIRECTIONS, Eval(patience=2)).say_unused(100, 300, said.append)
    EarlyStopping(DIRECTIONS, Eval(patience=None)).say_unused(100, 50, said.append)
    assert not said
    EarlyStopping(DIRECTIONS, Eval(patience=2)).say_unused(100, 299, said.append)
    assert "--eval.patience=2 cannot end a run of 299 steps with an evaluation every 100" in said[0]

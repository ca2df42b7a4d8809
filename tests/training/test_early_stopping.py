"""Early stopping."""

import pytest

from train import UserError
from train.settings.schema import Eval
from train.training.early_stopping import Best

GOALS = {"loss": min, "accuracy": max}


@pytest.mark.parametrize(
    ("name", "values", "better"),
    [
        ("loss", [3.0, 2.0, 2.0, 2.5, 1.0, 4.0], [True, True, False, False, True, False]),
        ("accuracy", [0.1, 0.3, 0.3, 0.2, 0.4], [True, True, False, False, True]),
    ],
)
def test_better(name, values, better):
    best = Best(GOALS, Eval(best=name, patience=2))
    assert [best.see(step, {name: value, "other": 0}) for step, value in enumerate(values)] == better
    assert best.note["step"] == max(step for step, each in enumerate(better) if each)


def test_patience():
    best = Best(GOALS, Eval(patience=2))
    ended = []
    for step, loss in enumerate([3.0, 4.0, 2.0, 2.1, 2.2]):
        best.see(step, {"loss": loss})
        ended.append(best.exhausted)
    assert ended == [False, False, False, False, True]
    assert "step 2" in best.farewell
    again = Best(GOALS, Eval(patience=2))
    again.note = best.note
    assert again.exhausted, "as after a resumption"
    patient = Best(GOALS, Eval(patience=0))
    patient.note = best.note
    assert not patient.exhausted


def test_a_metric_that_the_task_does_not_have():
    with pytest.raises(UserError, match=r"--eval.best=acuracy is unknown; did you mean accuracy\?"):
        Best(GOALS, Eval(best="acuracy"))

"""What a resumed run says of what has changed, and from which evaluation patience counts."""

from types import SimpleNamespace

import pytest

from train.settings.schema import Eval
from train.tasks import resolve
from train.training import resumption
from train.training.early_stopping import EarlyStopping


def run_of(*flags):
    return resolve.resolve(["--optim.rate=0.001", "--optim.warmup=0", *flags], None, None)[0]


@pytest.mark.parametrize(
    ("flags", "change"),
    [
        (["--optim.schedule=linear"], "goes from 0.0005 to 0.00075"),
        (["--optim.schedule=constant"], "stays 0.001"),
        (["--optim.schedule=cosine"], "goes from 0.0005 to 0.000854"),
    ],
)
def test_other_steps_change_the_rate(flags, change):
    lines = []
    before = run_of("--steps=20", *flags)
    resumption.say_schedule(before, before, 10, lines.append)
    assert lines == [], "nothing changes"
    resumption.say_schedule(before, run_of("--steps=40", *flags), 10, lines.append)
    (line,) = lines
    assert line.startswith(f"steps were 20 and are 40: the rate follows {flags[0]} over all of them")
    assert line.endswith(f"at step 10 it {change}")


@pytest.mark.parametrize(
    ("kept", "start"), [({}, "the next evaluation"), ({10: 0.7}, "the best that were, 0.7 at step 10")]
)
def test_patience_counts_from_weights_that_are_there(kept, start):
    """A run without patience keeps no weights for its best evaluation."""
    progress = SimpleNamespace(stopping=EarlyStopping({"loss": min}, Eval(patience=2)))
    progress.stopping.state = {"value": 0.6, "step": 2, "stale": 4}
    checkpoints = SimpleNamespace(steps=[10], best_metric=lambda goal: next(iter(kept.items()), None))
    lines = []
    resumption.keep_best(progress, checkpoints, lines.append)
    assert progress.stopping.state == {"value": kept.get(10), "step": 10 if kept else None, "stale": 0}
    assert lines == [f"the weights of the best evaluation so far were not kept: --eval.patience counts from {start}"]
    progress.stopping.state = {"value": 0.6, "step": 10, "stale": 1}
    resumption.keep_best(progress, checkpoints, lines.append)
    assert (progress.stopping.state["stale"], len(lines)) == (1, 1), "they are there"

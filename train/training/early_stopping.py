"""The best evaluation so far, and whether to stop because evaluations no longer improve."""

from collections.abc import Callable, Collection, Mapping
from typing import Annotated, TypedDict

from tfm.options.choices import Range
from tfm.options.errors import suggest
from train import UserError
from train.settings.limits import MAX_STEPS
from train.settings.schema import Eval

Step = Annotated[int, Range(0, MAX_STEPS)]


class BestEvaluation(TypedDict):
    """The best evaluation so far, and how many came after it."""

    value: float | None
    step: Step | None
    stale: Step


class EarlyStopping:
    """Watches the metric that `--eval.best` names. Checkpoints hold its `state`, so a resumed run keeps counting."""

    def __init__(self, goals: Mapping[str, Callable], options: Eval, measured: Collection[str] | None = None):
        """`goals` maps the metrics of the task to min or max; `measured` are those that its evaluations have, None all.

        Raises UserError if `options.best` is none of them.
        """
        if options.best not in goals:
            raise UserError(f"--eval.best={options.best} is unknown{suggest(options.best, goals)}")
        if measured is not None and options.best not in measured:
            raise UserError(
                f"--eval.best={options.best} is not measured with these options and data; "
                f"choose {_either([name for name in goals if name in measured])}"
            )
        self.metric = options.best
        self.goal = goals[options.best]
        self.patience = options.patience
        self.state: BestEvaluation = {"value": None, "step": None, "stale": 0}

    def update(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Records an evaluation; returns whether it is the best so far. Raises UserError for one without the metric."""
        if self.metric not in metrics:
            raise UserError(
                f"--eval.best={self.metric} is not among the metrics of the evaluation at step {step} "
                f"({', '.join(metrics)}); choose another"
            )
        best, value = self.state["value"], metrics[self.metric]
        improved = best is None or (value != best and self.goal(value, best) == value)
        if improved:
            self.state = {"value": value, "step": step, "stale": 0}
        else:
            self.state = {**self.state, "stale": self.state["stale"] + 1}
        return improved

    def forget(self, kept: tuple[int, float] | None):
        """Begins to count anew, from the step and the metric of the best evaluation whose weights are kept, if any."""
        step, value = kept or (None, None)
        self.state = {"value": value, "step": step, "stale": 0}

    @property
    def should_stop(self) -> bool:
        """Whether patience has run out."""
        return self.patience is not None and self.patience <= self.state["stale"]

    def say_unused(self, every: int, steps: int, log: Callable[[str], None]):
        """Says where a run has too few evaluations for patience to run out: the best one, and as many as it counts."""
        if self.patience is not None and every * (self.patience + 1) > steps:
            log(
                f"--eval.patience={self.patience} cannot end a run of {steps:,} steps with an evaluation every "
                f"{every:,}: lower --eval.every"
            )

    @property
    def message(self) -> str:
        """The log line when patience has run out."""
        return (
            f"no better {self.metric} in {self.patience} evaluations: "
            f"ended with the weights of step {self.state['step']}"
        )


def _either(names: Collection[str]) -> str:
    """a, b or c."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last

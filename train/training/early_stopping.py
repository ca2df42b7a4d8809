"""The best evaluation so far, and whether it is time to give up waiting for a better one."""

from collections.abc import Callable, Mapping
from typing import Any

from tfm.config.choices import suggest
from train import UserError
from train.settings.schema import Eval


class Best:
    """Watches the metric that `--eval.best` names. Its `note` is part of a checkpoint, so that a resumed run goes on counting."""

    def __init__(self, goals: Mapping[str, Callable], options: Eval):
        if options.best not in goals:
            raise UserError(f"--eval.best={options.best} is unknown{suggest(options.best, goals)}")
        self.name, self.goal, self.patience = options.best, goals[options.best], options.patience
        self.note: dict[str, Any] = {"value": None, "step": None, "stale": 0}

    def see(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Takes note of an evaluation; whether it is the best so far."""
        before, value = self.note["value"], metrics[self.name]
        better = before is None or (value != before and self.goal(value, before) == value)
        self.note = (
            {"value": value, "step": step, "stale": 0} if better else self.note | {"stale": self.note["stale"] + 1}
        )
        return better

    @property
    def farewell(self) -> str:
        """What there is to say when patience has run out."""
        return (
            f"no better {self.name} in {self.patience} evaluations: ended with the weights of step {self.note['step']}"
        )

    @property
    def exhausted(self) -> bool:
        """Whether patience has run out."""
        return self.patience is not None and self.patience <= self.note["stale"]

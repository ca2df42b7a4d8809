"""The settings of the log."""

from tfm.options.choices import check_fields, check_maximum, check_minimum, frozen
from tfm.options.errors import suggest
from train.settings.limits import MAX_STEPS, STEPS

# What --log.to names.
TRACKERS = ("tensorboard", "wandb", "mlflow", "trackio")


@frozen
class Logging:
    """The log.

    every: steps between lines
    layers: steps between norms of gradients, updates and branches by layer; a multiple of `every`; none: not measured
    to: where metrics go too, joined by commas: tensorboard | wandb | mlflow | trackio; none: metrics.jsonl alone
    """

    every: int = 20
    layers: int | None = None
    to: str | None = "tensorboard"

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, every=1, layers=1)
        check_maximum(self, STEPS, every=MAX_STEPS, layers=MAX_STEPS)
        if self.layers is not None and self.layers % self.every:
            raise ValueError(
                f"layers={self.layers} must be a multiple of log.every={self.every}, whose lines have the norms"
            )
        for name in self.trackers:
            if name not in TRACKERS:
                raise ValueError(f"to={name} is unknown{suggest(name, TRACKERS)}")

    @property
    def trackers(self) -> tuple[str, ...]:
        """The names in `to`."""
        return tuple(dict.fromkeys(self.to.split(","))) if self.to else ()

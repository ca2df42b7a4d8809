"""The options of forecasts."""

from typing import ClassVar, Literal

from tfm.options.choices import check_fields, check_maximum, check_minimum, frozen, tag
from train.settings.schema import Run
from train.settings.task_options import TaskOptions


@frozen
class Forecast(TaskOptions):
    """The next values of a series from patches of those before (PatchTST: Nie et al. 2023), as quantiles.

    horizon: values that are predicted
    quantiles: of what may come, with commas between, 0.5 among them
    period: values of a season, for the forecast that needs no model, and what errors are divided by (MASE)
    valid: share of every series, its end, that is held out where --eval-data names no other series
    """

    inputs: ClassVar[tuple[str, ...]] = ("patches",)

    name: Literal["forecast"] = tag("forecast")
    horizon: int = 24
    quantiles: str = "0.1,0.5,0.9"
    period: int = 24
    valid: float = 0.2

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, horizon=1, period=1)
        check_maximum(self, "no series is as long", horizon=1 << 16, period=1 << 16)
        try:
            levels = self.levels
        except ValueError:
            levels = ()
        if 0.5 not in levels or list(levels) != sorted({*levels}) or not 0 < levels[0] <= levels[-1] < 1:
            raise ValueError(f"quantiles={self.quantiles} must rise from above 0 to below 1, such as 0.1,0.5,0.9")
        if not 0 < self.valid < 1:
            raise ValueError(f"valid={self.valid} must be more than 0 and less than 1; 0.2 is usual")

    @property
    def levels(self) -> tuple[float, ...]:
        """The quantiles."""
        return tuple(float(word) for word in self.quantiles.split(","))

    def check_task(self, run: Run) -> None:
        height, _, channels = getattr(run.model.input, "pixels", (0, 0, 0))
        if (height, channels) != (1, 1):
            raise ValueError(
                f"task=forecast reads series, images of one row and one channel, and the model reads {height} rows and "
                f"{channels} channels; say --model.input.size=1 --model.input.channels=1 --model.input.patch-height=1"
            )

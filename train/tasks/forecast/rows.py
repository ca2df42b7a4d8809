"""Windows of series."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from train import UserError
from train.series.processor import SeriesProcessor
from train.tasks.record import Facts


class Scaled(NamedTuple):
    """A window in units of its own: what is read float32 [L], its mean and its deviation (Kim et al. 2022)."""

    values: np.ndarray
    mean: float
    deviation: float


def scaled(values: np.ndarray) -> Scaled:
    """Values [L] -> the same with mean 0 and deviation 1; a constant window is 0."""
    mean, deviation = float(values.mean()), float(values.std())
    deviation = deviation if deviation > 1e-9 * max(1.0, abs(mean)) else 1.0
    return Scaled(((values - mean) / deviation).astype(np.float32), mean, deviation)


def seasonal(values: np.ndarray, horizon: int, period: int) -> np.ndarray:
    """Values [L] -> the forecast [horizon] that repeats the last season."""
    return values[len(values) - period :][np.arange(horizon) % period]


class ForecastRows:
    """Windows of series that are predicted from a place `first` on, the next one `stride` values later.

    Errors are measured in that of repeating the value a season before, over what stands before the place `cut` of a
    series (MASE: Hyndman and Koehler 2006). Raises UserError for a series that is too short.
    """

    buckets, padding, independent_rows = None, 0.0, True

    def __init__(
        self,
        series: Mapping[str, np.ndarray],
        processor: SeriesProcessor,
        parts: Mapping[str, tuple[int, int, int]],
        stride: int,
        length: int,
    ):
        self.series, self.processor, self.length = series, processor, length
        context, horizon, _, period = processor
        self.windows: list[tuple[str, int]] = []
        self.scales: dict[str, float] = {}
        for name, (first, end, cut) in parts.items():
            places = range(max(first, context, period), end - horizon + 1, stride)
            self.windows += [(name, place) for place in places]
            past = series[name][: max(cut, period + 1)]
            self.scales[name] = float(abs(past[period:] - past[:-period]).mean()) or 1.0
        self.tokens = len(self.windows) * length

    def __len__(self):
        return len(self.windows)

    def overview(self, facts: Facts) -> dict[str, str]:
        """Lines of the start-up table; `facts` are those of run.json about the data."""
        context, horizon, quantiles, period = self.processor
        train, valid = (facts[name] // self.length for name in ("train_tokens", "eval_tokens"))
        return {
            "data": f"{facts['source']}, hash {facts['hash']}",
            "series": f"{len(self.series):,}, of {sum(map(len, self.series.values())):,} values, seasons of {period}",
            "windows": f"{train:,} to train on, {valid:,} to validate on",
            "forecast": f"{horizon} values from {context}, quantiles {', '.join(map(str, quantiles))}",
        }

    def example_ids(self) -> Iterator[np.ndarray]:
        """No series has tokens of a vocabulary."""
        return iter(())

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The fields of `train.tasks.forecast.task`; empty rows count for nothing."""
        context, horizon, quantiles, period = self.processor
        count = len(rows)
        fields = {
            "frames": np.zeros((count, 1, context, 1), np.float32),
            "targets": np.zeros((count, horizon), np.float32),
            "seasonal": np.zeros((count, horizon), np.float32),
            "scales": np.ones(count, np.float32),
            "levels": np.repeat(np.array([quantiles], np.float32), count, 0),
            "weights": np.repeat((rows >= 0).astype(np.float32)[:, None], horizon, 1),
        }
        for place in np.flatnonzero(rows >= 0):
            name, start = self.windows[rows[place]]
            values = self.series[name]
            window = scaled(values[start - context : start])
            fields["frames"][place, 0, :, 0] = window.values
            for field, after in (
                ("targets", values[start : start + horizon]),
                ("seasonal", seasonal(values[:start], horizon, period)),
            ):
                fields[field][place] = (after - window.mean) / window.deviation
            fields["scales"][place] = self.scales[name] / window.deviation
        return fields


def divide(series: Mapping[str, np.ndarray], processor: SeriesProcessor, share: float, source: str) -> dict[str, int]:
    """The place in every series from which on it is held out for validation. Raises UserError for a short series."""
    places = {}
    for name, values in series.items():
        places[name] = len(values) - max(processor.horizon, round(share * len(values)))
        needed = max(processor.context, processor.period) + processor.horizon
        if places[name] < needed:
            raise UserError(
                f"{source}: the series {name} has {len(values):,} values, of which {max(0, places[name]):,} are for "
                f"training, and a window needs {needed:,}; leave it out, or say a smaller --model.input.image-width or "
                "--task.horizon"
            )
    return places

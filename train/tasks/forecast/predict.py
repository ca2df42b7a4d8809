"""Forecasts, as train.predict makes them."""

from collections.abc import Iterator, Mapping

import numpy as np

import tfm
from train import UserError
from train.data.batching import row_batches
from train.screens.console import Log
from train.screens.finite import checked
from train.series import files
from train.settings.predict import PredictOptions
from train.tasks.forecast.loss import forecasts
from train.tasks.forecast.rows import scaled, seasonal
from train.tasks.record import Folder, Prediction, Predictor


def inputs(options: PredictOptions, folder: Folder) -> Mapping[str, np.ndarray]:
    """The series of the file, by name. Raises UserError for one that is shorter than what the model reads."""
    if options.text:
        raise UserError(f"--text={options.text} is for models of texts; name series with --file=FILE.csv")
    series = files.read(options.file, options.field or folder.config.data.field)
    context = max(folder.processor.context, folder.processor.period)
    for name, values in series.items():
        if len(values) < context:
            raise UserError(
                f"{options.file}: the series {name} has {len(values):,} values, and a forecast needs {context:,}; "
                "leave it out with --field"
            )
    return series


def predict(
    params: tfm.Classifier, folder: Folder, series: Mapping[str, np.ndarray], log: Log, batch: int
) -> Iterator[Prediction]:
    """The values after the end of each series, a line for each step: series, step from 1, and the quantiles."""
    run, (context, horizon, quantiles, period) = folder.config, folder.processor
    names = list(series)
    with log.progress("forecasting", len(names)) as advance:
        for rows, count in row_batches(range(len(names)), batch):
            windows = [scaled(series[names[row]][-context:]) for row in rows]
            frames = np.stack([window.values for window in windows])[:, None, :, None]
            repeated = np.stack(
                [
                    (seasonal(series[names[row]], horizon, period) - window.mean) / window.deviation
                    for row, window in zip(rows, windows, strict=True)
                ]
            )
            outputs = np.asarray(checked(forecasts, params, run.model, frames, repeated.astype(np.float32)), np.float64)
            for row, window, steps in zip(rows[:count], windows, outputs, strict=False):
                for step, values in enumerate(np.sort(steps, -1) * window.deviation + window.mean, 1):
                    by_level = {str(level): float(value) for level, value in zip(quantiles, values, strict=True)}
                    line = "\t".join([names[row], str(step), *(f"{value:.6g}" for value in by_level.values())])
                    yield Prediction(line, {"series": names[row], "step": step, "quantiles": by_level})
            advance(count)


PREDICTOR = Predictor(("field",), inputs, predict)

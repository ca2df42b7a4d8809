"""The next values of series from those before (PatchTST: Nie et al. 2023), as quantiles.

A row is a window of L values of a series, and the H values after it. All but the scales are in units of the window,
whose mean is 0 and whose deviation is 1 (Kim et al. 2022):

    frames     float32 [B,1,L,1]   what the model reads, an image of one row
    targets    float32 [B,H]       the values that follow
    seasonal   float32 [B,H]       the forecast that repeats the last season
    scales     float32 [B]         the mean error of repeating the value a season before, in the past of the series
    levels     float32 [B,q]       the quantiles that are predicted
    weights    float32 [B,H]       0 in an empty row
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

import tfm
from train import UserError
from train.data.corpus import Corpus
from train.data.fields import Field
from train.files import cache
from train.screens import series_plots
from train.screens.console import Log
from train.series import files
from train.series.processor import SERIES_PROCESSOR, SeriesProcessor
from train.settings.schema import Run
from train.tasks.forecast.linear import linear_mase
from train.tasks.forecast.loss import forecasts, loss
from train.tasks.forecast.options import Forecast
from train.tasks.forecast.predict import PREDICTOR
from train.tasks.forecast.rows import ForecastRows, divide
from train.tasks.record import Outcomes, Saved, Task

# Windows of plots/forecasts.png.
_SHOWN = 6


def specs(run: Run[Forecast]) -> tfm.Classifier:
    """The parameters of the run's model, with an output for each quantile of each value."""
    return tfm.classifier_specs(run.model)


def batch_spec(run: Run[Forecast]) -> dict[str, Field]:
    """The fields of a batch, explained at the top of this file."""
    sizes = {"h": 1, "w": _context(run), "c": 1, "y": run.task.horizon, "q": len(run.task.levels)}
    return {
        "frames": Field("Bhwc", np.float32, {name: sizes[name] for name in "hwc"}, True, row_tokens=run.row_tokens),
        "targets": Field("By", np.float32, sizes),
        "seasonal": Field("By", np.float32, sizes),
        "scales": Field("B", np.float32),
        "levels": Field("Bq", np.float32, sizes),
        "weights": Field("By", np.float32, sizes, weighs=True),
    }


def _context(run: Run[Forecast]) -> int:
    """Values that the model reads."""
    return getattr(run.model.input, "pixels", (0, 0, 0))[1]


def metrics(sums: Outcomes) -> dict[str, float]:
    """The mean quantile loss; in evaluation means over windows of MASE and of the share of values that lie between the
    outer quantiles."""
    means = {"loss": sums["loss"] / max(sums["weight"], 1)}
    if "mase" not in sums:
        return means
    is_row = sums["counts"] > 0
    return means | {name: float(sums[name][is_row].mean()) for name in ("mase", "covered", "mase_seasonal")}


def load(run: Run[Forecast], log: Log, saved: Saved | None = None, valid_only: bool = False) -> Corpus[ForecastRows]:
    """Windows as the run describes them; `saved` are processor and facts of the run to resume or start from.

    Without --eval-data the end of every series is held out. `valid_only` leaves out the training windows if --eval-data
    names other series. Raises UserError for bad data, and for a processor of other sizes.
    """
    task = run.task
    processor = SeriesProcessor(_context(run), task.horizon, task.levels, task.period)
    if saved and saved.processor != processor:
        raise UserError(
            f"--init and --resume bring {saved.processor}, and this run has {processor}; leave out flags that differ"
        )
    evaluates = bool(valid_only and run.data.eval)
    series = files.read(run.data.eval if evaluates else run.data.source, run.data.field)
    valid_series = files.read(run.data.eval, run.data.field) if run.data.eval else series
    train_rows = None
    if run.data.eval:
        parts = {name: (0, len(values), processor.context) for name, values in valid_series.items()}
        if not evaluates:
            all_of = {name: (0, len(values), len(values)) for name, values in series.items()}
            train_rows = ForecastRows(series, processor, all_of, 1, run.row_tokens)
    else:
        cuts = divide(series, processor, task.valid, run.data.source)
        parts = {name: (cut, len(series[name]), cut) for name, cut in cuts.items()}
        train_rows = ForecastRows(
            series, processor, {name: (0, cut, cut) for name, cut in cuts.items()}, 1, run.row_tokens
        )
    valid_rows = ForecastRows(valid_series, processor, parts, task.horizon, run.row_tokens)
    if not len(valid_rows):
        raise UserError(
            f"no series of {run.data.eval or run.data.source} has {processor.context + processor.horizon:,} values, a "
            "window and its forecast; name longer ones, or say a smaller --model.input.image-width"
        )
    hashes = [[f"{name} {values.tobytes().hex()}" for name, values in part.items()] for part in (series, valid_series)]
    facts = {"hash": cache.digest(*hashes), "segmentation_hash": ""}
    sizes = {"classes": task.horizon * len(task.levels)}
    return Corpus(run, processor, [train_rows] if train_rows else [], valid_rows, sizes, facts)


def baselines(corpus: Corpus[ForecastRows]) -> dict[str, float]:
    """`mase_linear`: MASE of a linear map of a window, fitted to training windows; `n`: the number of windows."""
    linear = {"mase_linear": linear_mase(corpus.train[0], corpus.valid)} if corpus.train else {}
    return linear | {"n": len(corpus.valid)}


def draw_progress(params: tfm.Classifier, run: Run[Forecast], corpus: Corpus[ForecastRows], folder: Path):
    """Draws plots/forecasts.png: the ends of validation windows, what follows, and what the model predicts."""
    rows = np.unique(np.linspace(0, len(corpus.valid) - 1, _SHOWN).astype(int))
    batch = corpus.valid.batch(rows, np.random.default_rng(0))
    predicted = np.sort(np.asarray(forecasts(params, run.model, batch["frames"], batch["seasonal"])), -1)
    titles = [f"{name}, from {place}" for name, place in (corpus.valid.windows[row] for row in rows)]
    (folder / "plots").mkdir(parents=True, exist_ok=True)
    path = folder / "plots" / "forecasts.png"
    series_plots.forecasts(batch["frames"][:, 0, :, 0], batch["targets"], predicted, titles, path)


def report(
    params: tfm.Classifier,
    run: Run[Forecast],
    corpus: Corpus[ForecastRows],
    log: Log,
    outcomes: Outcomes,
    folder: Path,
):
    """Draws forecasts."""
    draw_progress(params, run, corpus, folder)
    log.info("plots/forecasts.png shows forecasts of validation windows")


def contact_sheet(batches: Iterable[Mapping[str, np.ndarray]], corpus: Corpus[ForecastRows], rows: int, path: Path):
    """Draws the first rows of batches, and the forecasts that repeat the last season."""
    frames, targets, seasonal = (
        np.concatenate(parts)
        for parts in zip(
            *(
                (batch["frames"][:rows, 0, :, 0], batch["targets"][:rows], batch["seasonal"][:rows])
                for batch in batches
            ),
            strict=True,
        )
    )
    series_plots.forecasts(frames, targets, seasonal[..., None], [""] * len(frames), path)


FORECAST = Task(
    specs=specs,
    batch_spec=batch_spec,
    load=load,
    loss=loss,
    metrics=metrics,
    goals={"loss": min, "mase": min},
    baselines=baselines,
    report=report,
    processor=SERIES_PROCESSOR,
    next_commands=("predict --run={folder} --file=YOUR.csv", "evaluate --run={folder} --data=YOUR.csv"),
    predictor=PREDICTOR,
    draw_progress=draw_progress,
    contact_sheet=contact_sheet,
)

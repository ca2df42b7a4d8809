"""Pictures out of pictures: more pixels, colours, or what was in a hole.

A row is a picture of height y, width x and c channels, and what the model reads of it, of height h and width w:

    pixels     float32 [B,h,w,c]   normalized as preprocessor_config.json of the run folder says; 0 in a hole
    starts     float32 [B,y,x,c]   the trivial answer, from 0 to 1, to which the model adds: resized, grey or filled
    targets    float32 [B,y,x,c]   the picture, from 0 to 1
    holes      float32 [B,y,x]     1 for a pixel that is asked for
    weights    float32 [B,y,x]     the same, and 0 in an empty row
    withheld   float32 [B]         1 for a built-in drawing whose colour and shape never meet in training, of weight 0
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

import tfm
from tfm.catalogue.models.pixel_outputs import PixelModel
from train.data.corpus import Corpus
from train.data.fields import Field
from train.data.labels import label_checker
from train.data.sources.files import Row
from train.files import cache
from train.images import drawings, sheets, sources
from train.images.model_processor import picture_shape, run_processor
from train.images.palette import IMAGE_PROCESSOR
from train.images.processor import ImageProcessor
from train.images.rows import ImageRows
from train.screens.console import Log
from train.settings.schema import Run
from train.tasks.record import Outcomes, Saved, Task
from train.tasks.restore.loss import loss, pictures
from train.tasks.restore.options import Restoration
from train.tasks.restore.predict import PREDICTOR
from train.tasks.restore.rows import DamagedRows, result_processor
from train.tasks.restore.source import all_pictures

# Pictures of plots/restored.png.
_SHOWN = 12

_MEASURES = ("psnr", "ssim", "psnr_trivial", "ssim_trivial")


def patch_side(model: tfm.Config) -> int:
    """Pixels of a side of a patch that has outputs."""
    return picture_shape(model)[0] // tfm.output_grid(model)[0]


def specs(run: Run[Restoration]) -> PixelModel:
    """The parameters of the run's model: an output for each channel of each pixel of the result."""
    return tfm.pixel_specs(run.model, picture_shape(run.model)[2], patch_side(run.model) * run.task.factor)


def batch_spec(run: Run[Restoration]) -> dict[str, Field]:
    """The fields of a batch, explained at the top of this file."""
    height, width, channels = picture_shape(run.model)
    sizes = {"h": height, "w": width, "c": channels}
    result = {"y": height * run.task.factor, "x": width * run.task.factor, "c": channels}
    return {
        "pixels": Field("Bhwc", np.float32, sizes, counts_tokens=True, row_tokens=run.row_tokens),
        "starts": Field("Byxc", np.float32, result),
        "targets": Field("Byxc", np.float32, result),
        "holes": Field("Byx", np.float32, result),
        "weights": Field("Byx", np.float32, result, weighs=True),
        "withheld": Field("B", np.float32),
    }


def metrics(sums: Outcomes) -> dict[str, float]:
    """The mean loss over pixels; in evaluation PSNR in dB and SSIM, means over pictures, also of the trivial answer,
    and of drawings with a pair of colour and shape that is not in the training data, which count nowhere else."""
    means = {"loss": sums["loss"] / max(sums["weight"], 1)}
    if "psnr" not in sums:
        return means
    means |= {name: _mean(sums[name], sums["counts"]) for name in _MEASURES}
    if sums["withheld"].any():
        means |= {f"{name}_withheld": _mean(sums[name], sums["withheld"]) for name in ("psnr", "psnr_trivial")}
    return means


def _mean(values: np.ndarray, counts: np.ndarray) -> float:
    """The mean of the values [N] of the rows that count [N]."""
    return float((values * (counts > 0)).sum() / max(1, (counts > 0).sum()))


def load(run: Run[Restoration], log: Log, saved: Saved | None = None, valid_only: bool = False) -> Corpus[DamagedRows]:
    """Processor and rows as the run describes them; `saved` are processor and facts of the run to resume or start from.

    `valid_only` leaves out the training pictures if --eval-data names others for validation. Raises UserError for a
    processor of another shape than the model's, and for bad data.
    """
    checker = label_checker("single", ["label"])
    reader = sources.PictureReader(run.data.field, run.data.field, checker, folder=all_pictures)
    train, valid = sources.load(run.data, reader, partial(drawings.builtin, "label"), log, valid_only)
    processor = run_processor(run, run.model, saved.processor if saved else None)
    assert isinstance(processor, ImageProcessor), "the model reads patches"
    train_rows, valid_rows = (_rows(rows, run, processor) for rows in (train, valid))
    train_rows.images.train_with(train_rows.images.loss, run.task.augment)
    digests = [[row["digest"] for row in rows] for rows in (train, valid)]
    facts = {"hash": cache.digest(*digests), "segmentation_hash": ""}
    return Corpus(run, processor, [train_rows] if train else [], valid_rows, {}, facts)


def _rows(rows: Sequence[Row], run: Run[Restoration], processor: ImageProcessor) -> DamagedRows:
    """Rows that are not changed at random."""
    results = result_processor(processor, run.task.factor)
    images = ImageRows(rows, np.zeros(len(rows), np.int32), results, run.row_tokens)
    return DamagedRows(images, processor, run.task, patch_side(run.model))


def baselines(corpus: Corpus[DamagedRows]) -> dict[str, float]:
    """`n`: the number of pictures; the trivial answer is measured with the model's."""
    return {"n": int((~corpus.valid.images.withheld).sum())}


def draw_progress(params: PixelModel, run: Run[Restoration], corpus: Corpus[DamagedRows], folder: Path):
    """Draws plots/restored.png: the trivial answer for validation pictures, what the model makes of it, and the
    pictures themselves."""
    rows = np.arange(min(len(corpus.valid), _SHOWN))
    batch = corpus.valid.batch(rows, np.random.default_rng(0))
    restored = np.asarray(pictures(params, run.model, {name: batch[name] for name in ("pixels", "starts", "holes")}))
    (folder / "plots").mkdir(parents=True, exist_ok=True)
    _sheet({"trivial": _shown(batch["starts"]), "restored": restored, "right": _shown(batch["targets"])}, folder)


def _shown(pixels: np.ndarray) -> np.ndarray:
    """Pictures from 0 to 1 -> uint8."""
    return np.rint(255 * pixels).astype(np.uint8)


def _sheet(by_title: Mapping[str, np.ndarray], folder: Path):
    """Draws plots/restored.png of pictures [N,H,W,C] by title."""
    images = np.stack([*by_title.values()], 1)
    titles = [*by_title] * len(images)
    sheets.contact_sheet(images.reshape(-1, *images.shape[2:]), titles, folder / "plots" / "restored.png", columns=6)


def report(
    params: PixelModel,
    run: Run[Restoration],
    corpus: Corpus[DamagedRows],
    log: Log,
    outcomes: Outcomes,
    folder: Path,
):
    """Draws restored pictures, and says what the model adds to the trivial answer."""
    draw_progress(params, run, corpus, folder)
    means = metrics(outcomes)
    gain = means["psnr"] - means["psnr_trivial"]
    log.info(f"plots/restored.png shows restored pictures: {gain:+.2f} dB beside the trivial answer")


def contact_sheet(batches: Iterable[Mapping[str, np.ndarray]], corpus: Corpus[DamagedRows], rows: int, path: Path):
    """Draws the first rows of batches: the trivial answer beside the picture."""
    images = [np.stack([_shown(batch["starts"][:rows]), _shown(batch["targets"][:rows])], 1) for batch in batches]
    joined = np.concatenate(images)
    sheets.contact_sheet(joined.reshape(-1, *joined.shape[2:]), ["trivial", "right"] * len(joined), path)


RESTORE = Task(
    specs=specs,
    batch_spec=batch_spec,
    load=load,
    loss=loss,
    metrics=metrics,
    goals={"loss": min, "psnr": max, "ssim": max},
    baselines=baselines,
    report=report,
    processor=IMAGE_PROCESSOR,
    next_commands=(
        "predict --run={folder} --file='YOUR/*.png' --pictures=RESTORED",
        "evaluate --run={folder} --data=YOUR/FOLDER",
        "main --task=image --init={folder}",
    ),
    predictor=PREDICTOR,
    draw_progress=draw_progress,
    contact_sheet=contact_sheet,
)

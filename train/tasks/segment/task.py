"""A class for every pixel of a picture (SETR: Zheng et al. 2021; Segmenter: Strudel et al. 2021).

A row is a picture of height h, width w and c channels, and its mask:

    pixels     float32 [B,h,w,c]   normalized as preprocessor_config.json of the run folder says
    labels     int32 [B,h,w]       the class of every pixel
    weights    float32 [B,h,w]     0 for a pixel without a class (--task.ignore), and in an empty row
    withheld   float32 [B,h,w]     1 in a built-in drawing whose colour and shape never meet in training, of weight 0
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

import tfm
from tfm.catalogue.models.pixel_outputs import PixelModel
from train import UserError
from train.data.corpus import Corpus
from train.data.fields import Field
from train.data.labels import label_checker
from train.data.sources.files import Row
from train.files import cache
from train.images import masks, sheets, sources
from train.images.model_processor import picture_shape, run_processor
from train.images.processor import ImageProcessor
from train.images.rows import ImageRows
from train.metrics.overlap import class_ious, mean_iou
from train.screens.console import Log
from train.settings.schema import Run
from train.tasks.record import Outcomes, Saved, Task
from train.tasks.segment import hf
from train.tasks.segment.loss import guesses, loss
from train.tasks.segment.options import PixelClasses
from train.tasks.segment.predict import PREDICTOR
from train.tasks.segment.rows import MaskRows, is_class, reduced

# Pictures of plots/masks.png.
_SHOWN = 12


def specs(run: Run[PixelClasses]) -> PixelModel:
    """The parameters of the run's model."""
    return tfm.pixel_specs(run.model, run.model.classes, run.task.cells, dense=run.task.head == "mlp")


def batch_spec(run: Run[PixelClasses]) -> dict[str, Field]:
    """The fields of a batch, explained at the top of this file."""
    sizes = dict(zip("hwc", picture_shape(run.model), strict=True))
    return {
        "pixels": Field("Bhwc", np.float32, sizes, counts_tokens=True, row_tokens=run.row_tokens),
        "labels": Field("Bhw", np.int32, sizes, predicts="C"),
        "weights": Field("Bhw", np.float32, sizes, weighs=True),
        "withheld": Field("Bhw", np.float32, sizes),
    }


def metrics(sums: Outcomes) -> dict[str, float]:
    """Means over pixels, and in evaluation the mean of intersection over union over classes; `mean_iou_withheld` is
    that of drawings with a pair of colour and shape that is not in the training data, which count nowhere else."""
    weight = max(sums["weight"], 1)
    means = {"loss": sums["loss"] / weight, "accuracy": sums["right"] / weight}
    if "right_pixels" not in sums:
        return means
    is_withheld = sums["withheld"] > 0
    means["mean_iou"] = mean_iou(*_pixels(sums, ~is_withheld))
    return means | ({"mean_iou_withheld": mean_iou(*_pixels(sums, is_withheld))} if is_withheld.any() else {})


def _pixels(sums: Outcomes, rows: np.ndarray) -> list[np.ndarray]:
    """Pixels [C] that are right, predicted and labelled, of the rows bool [N]."""
    names = ("right_pixels", "predicted_pixels", "labelled_pixels")
    return [sums[name][rows].sum(0, dtype=np.float64) for name in names]


def corpus_metrics(outcomes: Outcomes, corpus: Corpus[MaskRows], during_training: bool) -> dict[str, float]:
    """After training, the intersection over union of each class that occurs."""
    if during_training:
        return {}
    ious = class_ious(*_pixels(outcomes, outcomes["withheld"] == 0))
    names = corpus.facts()["classes"]
    return {f"iou_{name}": float(iou) for name, iou in zip(names, ious, strict=True) if not np.isnan(iou)}


def load(run: Run[PixelClasses], log: Log, saved: Saved | None = None, valid_only: bool = False) -> Corpus[MaskRows]:
    """Processor and rows as the run describes them; `saved` are processor and facts of the run to resume or start from.

    `valid_only` leaves out the training pictures if --eval-data names others for validation. Raises UserError for a
    processor of another shape than the model's, and for bad data.
    """
    reader = sources.PictureReader(
        run.data.field,
        run.data.label,
        label_checker("single", ["label"]),
        folder=partial(masks.folder_rows, log_line=log.info),
        names_files=True,
    )
    train, valid = map(masks.with_masks, sources.load(run.data, reader, masks.drawn, log, valid_only))
    processor = run_processor(run, run.model, saved.processor if saved else None)
    assert isinstance(processor, ImageProcessor), "the model reads patches"
    classes = _classes(run.task, [*train, *valid], saved.facts.get("classes") if saved else None, log)
    train_rows, valid_rows = (_rows(rows, run, processor) for rows in (train, valid))
    train_rows.images.train_with(train_rows.images.loss, run.task.augment)
    parts = [[f"{row['digest']} {row['label'].digest()}" for row in rows] for rows in (train, valid)]
    facts = {"hash": cache.digest(*parts), "segmentation_hash": "", "classes": classes}
    return Corpus(run, processor, [train_rows] if train else [], valid_rows, {"classes": len(classes)}, facts)


def _rows(rows: Sequence[Row], run: Run[PixelClasses], processor: ImageProcessor) -> MaskRows:
    """Rows that are not changed at random."""
    images = ImageRows(rows, np.zeros(len(rows), np.int32), processor, run.row_tokens)
    return MaskRows(images, [row["label"] for row in rows], processor, run.task)


def _classes(task: PixelClasses, rows: Sequence[Row], saved: list[str] | None, log: Log) -> list[str]:
    """The names of the values of masks: those of a saved run, of --task.classes, of drawings, or 0, 1, ... Raises
    UserError for a mask with a value beyond them, and where all have one value."""
    largest = {_largest(task, values): row for row, values in _values(rows, log)}
    classes = saved or task.class_names
    if classes is None:
        drawn = isinstance(rows[0]["label"], masks.DrawnMask)
        classes = list(masks.drawings.MASK_CLASSES) if drawn else [str(value) for value in range(max(largest) + 1)]
    if max(largest) >= len(classes):
        first = int(task.reduce_labels)
        raise UserError(
            f"{largest[max(largest)]['label']} has the value {max(largest) + first}, and classes are {first} to "
            f"{len(classes) - 1 + first} ({', '.join(classes[:8])}); correct it, or say --task.ignore={max(largest)}"
        )
    if len(classes) < 2:
        raise UserError("every pixel of every mask has the class 0; there must be two classes or more to tell apart")
    return classes


def _largest(task: PixelClasses, values: list[int]) -> int:
    """The largest class of a mask of some values; 0 without one."""
    classes = reduced(np.array(values, np.uint8), task)
    return int(max(classes[is_class(classes, task)], default=0))


def _values(rows: Sequence[Row], log: Log) -> list[tuple[Row, list[int]]]:
    return list(zip(rows, masks.values(rows, log), strict=True))


def baselines(corpus: Corpus[MaskRows]) -> dict[str, float]:
    """`majority`: accuracy of always guessing the most frequent class of validation pixels, and `majority_iou`: its
    mean intersection over union; `n`: the number of pictures."""
    rows, size = np.flatnonzero(~corpus.valid.images.withheld), corpus.sizes["classes"]
    counts = np.zeros(256, np.int64)
    for row in rows:
        counts += np.bincount(corpus.valid.mask(int(row)).ravel(), minlength=256)
    labelled = counts[:size] * is_class(np.arange(size), corpus.run.task)
    is_majority = np.arange(size) == labelled.argmax()
    iou = mean_iou(labelled * is_majority, labelled.sum() * is_majority, labelled)
    return {"majority": float(labelled.max() / labelled.sum()), "majority_iou": iou, "n": len(rows)}


def draw_progress(params: PixelModel, run: Run[PixelClasses], corpus: Corpus[MaskRows], folder: Path):
    """Draws plots/masks.png: validation pictures, their masks, and those that the model predicts."""
    rows = range(min(len(corpus.valid), _SHOWN))
    pixels, names = corpus.valid.images.pixels(np.array(rows)), corpus.facts()["classes"]
    predicted = np.asarray(guesses(params, run.model, len(names), corpus.processor.normalize(pixels)))
    truths = np.stack([corpus.valid.mask(row) for row in rows])
    (folder / "plots").mkdir(parents=True, exist_ok=True)
    sheets.masks(pixels, truths, predicted, names, folder / "plots" / "masks.png")


def report(
    params: PixelModel,
    run: Run[PixelClasses],
    corpus: Corpus[MaskRows],
    log: Log,
    outcomes: Outcomes,
    folder: Path,
):
    """Draws masks of validation pictures, and says which classes are told apart worst."""
    draw_progress(params, run, corpus, folder)
    ious = corpus_metrics(outcomes, corpus, False)
    worst = sorted(ious, key=lambda name: ious[name])[:3]
    shown = ", ".join(f"{name.removeprefix('iou_')} {ious[name]:.3f}" for name in worst)
    log.info(f"plots/masks.png shows masks of validation pictures; the lowest intersections over union: {shown}")


def contact_sheet(batches: Iterable[Mapping[str, np.ndarray]], corpus: Corpus[MaskRows], rows: int, path: Path):
    """Draws the first rows of batches as the model sees them, each beside itself under its mask."""
    pictures, colours = [], sheets.palette()
    for batch in batches:
        classes = np.where(batch["weights"] + batch["withheld"] > 0, batch["labels"], 255)[:rows]
        for image, mask in zip(corpus.processor.restore(batch["pixels"][:rows]), classes, strict=True):
            image = np.broadcast_to(image, (*mask.shape, 3))
            pictures += [image, sheets.painted(image, mask, colours)]
    sheets.contact_sheet(np.stack(pictures), ["picture", "mask"] * (len(pictures) // 2), path)


SEGMENT = Task(
    specs=specs,
    batch_spec=batch_spec,
    load=load,
    loss=loss,
    metrics=metrics,
    goals={"loss": min, "accuracy": max, "mean_iou": max},
    corpus_metrics=corpus_metrics,
    baselines=baselines,
    report=report,
    processor=hf.PROCESSOR,
    next_commands=(
        "predict --run={folder} --file='YOUR/*.jpg' --pictures=MASKS",
        "evaluate --run={folder} --data=YOUR/FOLDER",
    ),
    predictor=PREDICTOR,
    draw_progress=draw_progress,
    contact_sheet=contact_sheet,
    hf_heads=("segment",),
    hf_run_values=hf.run_values,
    hf_fields=hf.fields,
)

"""Objects in pictures, with a box around each (DETR: Carion et al. 2020).

A row is a picture of height h, width w and c channels, and o places for its objects:

    pixels     float32 [B,h,w,c]   normalized as preprocessor_config.json of the run folder says
    labels     int32 [B,o]         the class of every object
    boxes      float32 [B,o,s]     the center's x and y, width and height, in parts of the picture's width and height
    objects    float32 [B,o]       1 where there is an object
    crowds     float32 [B,o]       1 where a box is around many, which counts in evaluation alone
    queries    float32 [B]         the queries of the model, which become an object or none
    weights    float32 [B]         0 for an empty row
    withheld   float32 [B]         1 for a built-in drawing whose colour and shape never meet in training, of weight 0
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

import tfm
from train.data.corpus import Corpus
from train.data.fields import Field
from train.data.labels import in_order_of_head, label_checker
from train.data.sources.files import Row
from train.files import cache
from train.images import boxes, scenes, sheets, sources
from train.images.model_processor import picture_shape, run_processor
from train.images.processor import ImageProcessor
from train.images.rows import ImageRows
from train.metrics import detection
from train.screens.console import Log
from train.settings.schema import Run
from train.tasks.detect import hf
from train.tasks.detect.loss import L1, OVERLAP, answers, loss
from train.tasks.detect.options import Detection
from train.tasks.detect.predict import PREDICTOR, SHOWN, in_pixels
from train.tasks.detect.rows import BoxRows
from train.tasks.record import Outcomes, Saved, Task, head_classes

# Pictures of plots/boxes.png.
_SHOWN = 12


def specs(run: Run[Detection]) -> tfm.ObjectDetector:
    """The parameters of the run's model."""
    return tfm.detector_specs(run.model, run.task.queries, run.task.layers)


def batch_spec(run: Run[Detection]) -> dict[str, Field]:
    """The fields of a batch, explained at the top of this file."""
    sizes = dict(zip("hwc", picture_shape(run.model), strict=True))
    places = {"o": run.task.queries, "s": 4}
    return {
        "pixels": Field("Bhwc", np.float32, sizes, counts_tokens=True, row_tokens=run.row_tokens),
        "labels": Field("Bo", np.int32, places),
        "boxes": Field("Bos", np.float32, places),
        "objects": Field("Bo", np.float32, places),
        "crowds": Field("Bo", np.float32, places),
        "queries": Field("B", np.float32),
        "weights": Field("B", np.float32, weighs=True),
        "withheld": Field("B", np.float32),
    }


def metrics(sums: Outcomes) -> dict[str, float]:
    """Means over queries (`loss_class`, in nats) and over objects; in evaluation also average precisions, and those of
    drawings with a pair of colour and shape that is not in the training data, which count nowhere else."""
    objects = max(sums["object_count"], 1)
    means = {
        "loss_class": sums["loss_class"] / max(sums["query_count"], 1e-6),
        "loss_l1": sums["loss_l1"] / objects,
        "loss_overlap": sums["loss_overlap"] / objects,
        "accuracy": sums["right"] / objects,
    }
    means["loss"] = means["loss_class"] + L1 * means["loss_l1"] + OVERLAP * means["loss_overlap"]
    if "scores" not in sums:
        return means
    is_withheld = sums["withheld"] > 0
    means |= detection.summary(_precisions(sums, (sums["counts"] > 0) & ~is_withheld))
    if is_withheld.any():
        means["ap50_withheld"] = detection.summary(_precisions(sums, is_withheld))["ap50"]
    return means


def _precisions(sums: Outcomes, rows: np.ndarray) -> np.ndarray:
    """Average precisions [thresholds,C] of the rows bool [N]."""
    names = ("guesses", "guessed_boxes", "labels", "boxes", "objects", "crowds", "scores")
    guesses, guessed, labels, truths, objects, crowds, scores = (sums[name][rows] for name in names)
    detected = detection.Boxes(guesses, guessed.astype(np.float64), np.ones_like(guesses, bool), scores)
    right = detection.Boxes(labels, truths.astype(np.float64), (objects + crowds) > 0, crowds)
    return detection.average_precisions(detected, right, int(max(labels.max(initial=0), guesses.max(initial=0))) + 1)


def corpus_metrics(outcomes: Outcomes, corpus: Corpus[BoxRows], during_training: bool) -> dict[str, float]:
    """After training, the average precision of each class that occurs."""
    if during_training:
        return {}
    precisions = _precisions(outcomes, outcomes["counts"] > 0).mean(0)
    return {
        f"ap_{name}": float(precision)
        for name, precision in zip(corpus.valid.classes, precisions, strict=False)
        if not np.isnan(precision)
    }


def load(run: Run[Detection], log: Log, saved: Saved | None = None, valid_only: bool = False) -> Corpus[BoxRows]:
    """Processor and rows as the run describes them; `saved` are processor and facts of the run to resume or start from.

    `valid_only` leaves out the training pictures if --eval-data names others for validation. Raises UserError for a
    processor of another shape than the model's, and for bad data.
    """
    checker = label_checker("single", ["label"])
    reader = sources.PictureReader(
        run.data.field,
        run.data.label,
        checker,
        folder=partial(boxes.folder_rows, log_line=log.info),
        folder_files=(".json",),
    )
    train, valid = sources.load(run.data, reader, scenes.drawn, log, valid_only)
    boxes.check_rows([*train, *valid], run.data.source, run.task.queries, log)
    processor = run_processor(run, run.model, saved.processor if saved else None)
    assert isinstance(processor, ImageProcessor), "the model reads patches"
    processor = processor.uncropped()
    classes = boxes.classes_of([*train, *valid], saved.facts.get("classes") if saved else None)
    classes = in_order_of_head(classes, head_classes(saved), log.info)
    train_rows, valid_rows = (_rows(rows, run, processor, classes) for rows in (train, valid))
    train_rows.images.train_with(train_rows.images.loss, run.task.augment)
    counts = [len(row["boxes"]) for row in [*train, *valid]]
    facts = {
        "hash": cache.digest(*([f"{row['digest']} {row['boxes']}" for row in rows] for rows in (train, valid))),
        "segmentation_hash": "",
        "classes": classes,
        "boxes": sum(counts),
        "boxes_in_a_picture": max(counts),
    }
    return Corpus(run, processor, [train_rows] if train else [], valid_rows, {"classes": len(classes)}, facts)


def _rows(rows: Sequence[Row], run: Run[Detection], processor: ImageProcessor, classes: Sequence[str]) -> BoxRows:
    """Rows that are not changed at random."""
    images = ImageRows(rows, np.zeros(len(rows), np.int32), processor, run.row_tokens)
    return BoxRows(images, rows, classes, run.task.queries, run.task.query_count(run.model))


def baselines(corpus: Corpus[BoxRows]) -> dict[str, float]:
    """`n`: the number of pictures; `fixed_ap50`: of the same boxes in every picture, the mean one of each class."""
    rows = np.flatnonzero(~corpus.valid.images.withheld)
    batch = corpus.valid.targets(rows)
    classes, size = len(corpus.valid.classes), (len(rows), len(corpus.valid.classes))
    means = np.zeros((classes, 4))
    for index in range(classes):
        of_class = (batch["labels"] == index) & (batch["objects"] > 0)
        means[index] = batch["boxes"][of_class].mean(0) if of_class.any() else 0.5
    fixed = {
        "guesses": np.broadcast_to(np.arange(classes), size),
        "guessed_boxes": np.broadcast_to(means, (*size, 4)),
        "scores": np.ones(size),
    }
    precisions = _precisions({**batch, **fixed}, np.ones(len(rows), bool))
    return {"fixed_ap50": detection.summary(precisions)["ap50"], "n": len(rows)}


def draw_progress(params: tfm.ObjectDetector, run: Run[Detection], corpus: Corpus[BoxRows], folder: Path):
    """Draws plots/boxes.png: validation pictures with their boxes, each beside itself with those that the model
    finds."""
    rows = np.arange(min(len(corpus.valid), _SHOWN))
    pixels, names = corpus.valid.images.pixels(rows), corpus.valid.classes
    outputs = map(np.asarray, answers(params, run.model, corpus.processor.normalize(pixels)))
    labelled = []
    for row, kinds, scores, guessed in zip(rows, *outputs, strict=True):
        labelled.append(_drawn(corpus.valid, int(row), pixels.shape[1:3]))
        labelled.append(
            [
                (f"{names[kind]} {score:.2f}", in_pixels(box, pixels.shape[2], pixels.shape[1]))
                for kind, score, box in zip(kinds, scores, guessed, strict=True)
                if score >= SHOWN
            ]
        )
    (folder / "plots").mkdir(parents=True, exist_ok=True)
    sheets.boxes(np.repeat(pixels, 2, 0), labelled, ["right", "predicted"] * len(rows), folder / "plots" / "boxes.png")


def _drawn(rows: BoxRows, row: int, shape: Sequence[int]) -> list[tuple[str, list[float]]]:
    """The names and the boxes of a row in a picture of some height and width."""
    inner = rows.rows[row]["boxes"]
    return [(b.name, in_pixels(box, shape[1], shape[0])) for b, box in zip(inner, rows.numbers(row), strict=True)]


def report(
    params: tfm.ObjectDetector,
    run: Run[Detection],
    corpus: Corpus[BoxRows],
    log: Log,
    outcomes: Outcomes,
    folder: Path,
):
    """Draws boxes of validation pictures, and says which classes are detected worst."""
    draw_progress(params, run, corpus, folder)
    by_class = corpus_metrics(outcomes, corpus, False)
    worst = sorted(by_class, key=lambda name: by_class[name])[:3]
    shown = ", ".join(f"{name.removeprefix('ap_')} {by_class[name]:.3f}" for name in worst)
    log.info(f"plots/boxes.png shows boxes of validation pictures; the lowest average precisions: {shown}")


def evaluation_files(outcomes: Outcomes, corpus: Corpus[BoxRows]) -> dict[str, list[dict[str, object]]]:
    """What train.evaluate writes into `to`: every box, with its score, as COCO's evaluator reads results. Pictures of
    no COCO file have their place as id."""
    classes, results = corpus.valid.classes, list[dict[str, object]]()
    ids = {name: index for index, name in enumerate(classes)}
    for source in corpus.valid.rows:
        ids |= {name: index for index, name in source.get("categories", {}).items()}
    for row, source in enumerate(corpus.valid.rows):
        of_row = (outcomes[name][row] for name in ("guesses", "scores", "guessed_boxes"))
        for kind, score, box in zip(*of_row, strict=True):
            place = {"image_id": source.get("id", row), "category_id": ids[classes[kind]]}
            results.append({**place, "bbox": in_pixels(box, *source["size"]), "score": float(score)})
    return {"to": results}


def contact_sheet(batches: Iterable[Mapping[str, np.ndarray]], corpus: Corpus[BoxRows], rows: int, path: Path):
    """Draws the first rows of batches as the model sees them, with their boxes."""
    images, labelled = [], []
    for batch in batches:
        for image, *fields in zip(
            corpus.processor.restore(batch["pixels"][:rows]),
            *(batch[name][:rows] for name in ("labels", "boxes", "objects", "crowds")),
            strict=True,
        ):
            images.append(image)
            labelled.append(
                [
                    (corpus.valid.classes[label], in_pixels(box, image.shape[1], image.shape[0]))
                    for label, box, *exists in zip(*fields, strict=True)
                    if any(exists)
                ]
            )
    sheets.boxes(np.stack(images), labelled, [""] * len(images), path)


DETECT = Task(
    specs=specs,
    batch_spec=batch_spec,
    load=load,
    loss=loss,
    metrics=metrics,
    goals={"loss": min, "ap": max, "ap50": max, "accuracy": max},
    corpus_metrics=corpus_metrics,
    baselines=baselines,
    report=report,
    processor=hf.PROCESSOR,
    next_commands=(
        "predict --run={folder} --file='YOUR/*.jpg' --pictures=BOXES",
        "evaluate --run={folder} --data=YOUR/annotations.json --to=results.json",
    ),
    predictor=PREDICTOR,
    evaluate_flags=("to",),
    evaluation_files=evaluation_files,
    draw_progress=draw_progress,
    contact_sheet=contact_sheet,
    hf_heads=("objects",),
    hf_run_values=hf.run_values,
    hf_fields=hf.fields,
)

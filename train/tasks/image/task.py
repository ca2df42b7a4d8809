"""Classes of pictures (Dosovitskiy et al. 2021).

A row is a picture of height h, width w and c channels:

    pixels     float32 [B,h,w,c]   normalized as preprocessor_config.json of the run folder says; of a video
                                   [B,f,h,w,c]; or,
    tokens     int32 [B,T]         of a model of pixels (--task=pixels): the colours of its palette, row by row
    labels     int32 [B]           its class
    weights    float32 [B]         0 for an empty row; in training the weight of its class (--task.class-weights)
    withheld   float32 [B]         1 for a built-in drawing whose colour and shape never meet in training
    smoothing  float32 [B]         of the labels, and
    generative float32 [B]         the factor of the loss of the next pixels, in training where they are set
    partners   int32 [B]           the class of the picture that is mixed in, and
    shares     float32 [B]         the share of the picture itself, in training with mixup or CutMix
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

import tfm
from tfm.models.classifier import both_logits, text_logits
from tfm.ops import split
from train.data.corpus import Corpus
from train.data.fields import Field
from train.data.labels import Labels, LossFields, class_fields, class_weights, in_order_of_head, label_checker
from train.files import cache
from train.images import drawings, moving, sheets, sources, videos
from train.images.model_processor import picture_shape, run_processor
from train.images.palette import IMAGE_PROCESSOR, AnyProcessor
from train.images.rows import ImageRows
from train.losses.generative import generative_loss
from train.losses.teaching import ClassOutputs, OutputLoss
from train.metrics import scores
from train.metrics.calibration import calibration_metrics
from train.screens.console import Log
from train.settings.images import video_frames
from train.settings.schema import Run
from train.tasks.classification import class_losses, counted
from train.tasks.image import attention
from train.tasks.image.mistakes import mistakes
from train.tasks.image.options import Image
from train.tasks.image.predict import PREDICTOR
from train.tasks.record import Facts, Saved, Task, head_classes

# Classes among which the right one is looked for.
_TOP = 5

# Pictures of plots/attention-*.png, and of plots/mistakes.png.
_ATTENTION, _MISTAKES = 4, 48


def specs(run: Run[Image]) -> Any:
    """The parameters of the run's model."""
    return tfm.classifier_specs(run.model, generative=run.task.generative > 0)


def batch_spec(run: Run[Image]) -> dict[str, Field]:
    """The fields of a batch, explained at the top of this file."""
    if run.model.input.array_shape is None:
        inputs = {"tokens": Field("BT", np.int32, {"T": run.row_tokens}, counts_tokens=True)}
    else:
        sizes = picture_shape(run.model)
        letters = "fhwc"[-len(sizes) :]
        shape = dict(zip(letters, sizes, strict=True))
        inputs = {"pixels": Field(f"B{letters}", np.float32, shape, counts_tokens=True, row_tokens=run.row_tokens)}
    floats = ["weights", "withheld", *(name for name in ("smoothing", "generative") if getattr(run.task, name))]
    mixing = {"partners": Field("B", np.int32), "shares": Field("B", np.float32)} if run.task.augment.mixes else {}
    return {
        **inputs,
        "labels": Field("B", np.int32, predicts="C"),
        **{name: Field("B", np.float32, weighs=name == "weights") for name in floats},
        **mixing,
    }


def outputs(params: Any, model: tfm.Config, batch: Mapping[str, Array], key: Array | None) -> ClassOutputs:
    """What the model says of the pictures of a batch."""
    pictures = batch["pixels" if "pixels" in batch else "tokens"]
    encoder_key, head_key = split(key, 2)
    hidden = tfm.features(params.encoder, params.mix, model, pictures, key=encoder_key)
    if params.distilled is None:
        return ClassOutputs(hidden, None, text_logits(params, model, hidden, key=head_key))
    return ClassOutputs(hidden, None, *both_logits(params, model, hidden, head_key))


def sums(params: Any, model: tfm.Config, batch: Mapping[str, Array], outputs: ClassOutputs) -> dict[str, Array]:
    """Sums over the pictures of a batch, float32: `loss` in nats, `weight`, `right`, and those of withheld pairs.

    For evaluation also `scores` [B,C], labels and weights of every picture.
    """
    labels, weights, logits = batch["labels"], batch["weights"], outputs.logits
    losses = class_losses(logits, batch)
    if "shares" in batch:
        shares = batch["shares"]
        losses = shares * losses + (1 - shares) * class_losses(logits, {**batch, "labels": batch["partners"]})
    is_right = (logits.argmax(-1) == labels).astype(jnp.float32)
    generative = {}
    if "generative" in batch:
        pictures = jnp.ones_like(batch["tokens"], bool)[:, None]
        generative = generative_loss(params, model, batch, outputs.hidden, pictures, batch["generative"] * weights)
    return generative | {
        "loss": (losses * weights).sum(),
        "weight": weights.sum(),
        "right": (is_right * weights).sum(),
        "withheld": batch["withheld"].sum(),
        "withheld_right": (is_right * batch["withheld"]).sum(),
        "scores": logits,
        "labels": labels,
        "weights": weights,
    }


loss = OutputLoss(outputs, sums)


def metrics(sums: Mapping[str, Any]) -> dict[str, float]:
    """Means from sums; with the `scores` of every picture also the top 5, F1 and calibration.

    `accuracy_withheld` is that of drawings with a pair of colour and shape that is not in the training data, which
    count nowhere else.
    """
    weight = max(sums["weight"], 1)
    means = {"loss": sums["loss"] / weight, "accuracy": sums["right"] / weight}
    if sums["withheld"]:
        means["accuracy_withheld"] = sums["withheld_right"] / sums["withheld"]
    if "scores" not in sums:
        return means
    logits, labels = counted(sums)
    if logits.shape[1] > _TOP:
        means["top5"] = float(is_among_best(logits, labels, _TOP).mean())
    return means | scores.classification_metrics(logits, labels) | calibration_metrics(logits, labels)


def is_among_best(logits: np.ndarray, labels: np.ndarray, count: int) -> np.ndarray:
    """logits [N,C], labels [N] -> bool [N]: fewer than `count` classes have a larger logit than the right one."""
    right = np.take_along_axis(logits, labels[:, None], 1)
    return (logits > right).sum(1) < count


def measured(corpus: Corpus[ImageRows]) -> set[str]:
    """The names of the metrics of as many classes."""
    return measured_of(corpus.valid.labels[:1], corpus.sizes["classes"])


def measured_of(labels: np.ndarray, classes: int) -> set[str]:
    """The names of the metrics of so many classes; labels int [N], of which one will do."""
    best = {"top5"} if classes > _TOP else set()
    return {"loss", *best, *scores.classification_metrics(np.zeros((len(labels), classes)), labels)}


def load(run: Run[Image], log: Log, saved: Saved | None = None, valid_only: bool = False) -> Corpus[ImageRows]:
    """Processor and rows as the run describes them; `saved` are processor and facts of the run to resume or start from.

    `valid_only` leaves out the training pictures if --eval-data names others for validation. Raises UserError for a
    processor of another shape than the model's, and for bad data.
    """
    columns = run.data.field, run.data.label, label_checker("single", ["label"])
    reader, builtin = sources.PictureReader(*columns), partial(drawings.builtin, run.data.label)
    if frames := video_frames(run.model.input):
        reader, builtin = videos.reader(*columns, frames), partial(moving.builtin, run.data.label, frames)
    train, valid = sources.load(run.data, reader, builtin, log, valid_only)
    processor = run_processor(run, run.model, saved.processor if saved else None)
    classes = saved.facts.get("classes") if saved else None
    if classes is None:
        classes = in_order_of_head(Labels.of("single", train, ["label"]).names, head_classes(saved), log.info)
    labels = Labels("single", classes)
    length = run.row_tokens
    train_rows, valid_rows = (
        ImageRows(rows, labels.encode(rows, ["label"]), processor, length) for rows in (train, valid)
    )
    if train:
        weights = class_weights(run.task.class_weights, train_rows.labels, labels.names)
        train_rows.train_with(LossFields(weights, run.task.smoothing, generative=run.task.generative), run.task.augment)
    parts = [[f"{row['digest']} {row['label']}" for row in rows] for rows in (train, valid)]
    facts = {"hash": cache.digest(*parts), "segmentation_hash": "", "classes": labels.names}
    sizes = {"classes": labels.outputs}
    return Corpus(run, processor, [train_rows] if train else [], valid_rows, sizes, facts)


def baselines(corpus: Corpus[ImageRows]) -> dict[str, float]:
    """`majority`: accuracy of always guessing the most frequent validation label; `n`: the number of pictures; of
    videos also those of `train.images.videos.baselines`."""
    labels = corpus.valid.labels[~corpus.valid.withheld]
    counts = np.unique(labels, return_counts=True)[1]
    majority = {"majority": float(counts.max() / counts.sum()), "n": len(labels)}
    if not corpus.train or not video_frames(corpus.run.model.input):
        return majority
    return majority | videos.baselines(corpus.train[0], corpus.valid)


def report(
    params: tfm.Classifier,
    run: Run[Image],
    corpus: Corpus[ImageRows],
    log: Log,
    outcomes: Mapping[str, np.ndarray],
    folder: Path,
):
    """Draws plots/confusion.png, reliability.png, mistakes.png (a contact sheet), and attention-1.png and so on."""
    kind = "videos" if video_frames(run.model.input) else "pictures"
    shown = mistakes(outcomes, corpus.facts()["classes"], _MISTAKES, kind, log, folder)
    if shown:
        titles = [f"{mistake.guess}\n({mistake.right})" for mistake in shown]
        pixels = corpus.valid.pixels(np.array([mistake.row for mistake in shown]))
        sheets.contact_sheet(pixels, titles, folder / "plots" / "mistakes.png")
    if run.model.input.axes is not None:
        pixels = corpus.valid.pixels(np.flatnonzero(outcomes["weights"] > 0)[:_ATTENTION])
        attention.draw(params, run.model, corpus.processor, pixels, folder / "plots")


def contact_sheet(batches: Iterable[Mapping[str, np.ndarray]], corpus: Corpus[ImageRows], rows: int, path: Path):
    """Draws the first rows of batches as the model sees them, each under its class, or under both that are mixed."""
    names, pictures, titles = corpus.facts()["classes"], [], []
    for batch in batches:
        pictures.append(corpus.processor.restore(batch["pixels" if "pixels" in batch else "tokens"][:rows]))
        for row, label in enumerate(batch["labels"][:rows]):
            title = names[label]
            if "shares" in batch:
                title = f"{batch['shares'][row]:.2f} {title}\n{names[batch['partners'][row]]}"
            titles.append(title)
    sheets.contact_sheet(np.concatenate(pictures), titles, path)


def hf_fields(run: Run[Image], processor: AnyProcessor, facts: Facts) -> dict[str, Any]:
    """Fields of config.json that depend on the task; `facts` are those of run.json about the data."""
    return class_fields(facts["classes"])


IMAGE = Task(
    specs=specs,
    batch_spec=batch_spec,
    load=load,
    loss=loss,
    metrics=metrics,
    goals={"loss": min} | dict.fromkeys(("accuracy", "top5", "f1_macro", "matthews"), max),
    measured=measured,
    baselines=baselines,
    report=report,
    processor=IMAGE_PROCESSOR,
    next_commands=("predict --run={folder} --file='YOUR/*.jpg'", "evaluate --run={folder} --data=YOUR/FOLDER"),
    predictor=PREDICTOR,
    contact_sheet=contact_sheet,
    hf_heads=("classify", "classify_pixels"),
    hf_fields=hf_fields,
)

VIDEO = replace(
    IMAGE, next_commands=("predict --run={folder} --file='YOUR/*.gif'", "evaluate --run={folder} --data=YOUR/FOLDER")
)

"""Classes of sounds: `--task=image` is this file where the model reads frames.

A row is a sound, as the spectrogram that preprocessor_config.json of the run folder describes:

    frames     float32 [B,T,C]   C bands of T frames
    lengths    int32 [B]         the frames of the sound; behind them is padding
    labels     int32 [B]         its class
    weights    float32 [B]       0 for an empty row; in training the weight of its class (--task.class-weights)
    withheld   float32 [B]       0: no class of sounds is held back
    smoothing  float32 [B]       of the labels, in training where it is set
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from jax import Array

import tfm
from tfm.models.classifier import text_logits
from tfm.ops import split
from train.data.corpus import Corpus
from train.data.fields import Field
from train.data.labels import Labels, LossFields, class_weights, in_order_of_head, label_checker
from train.data.sources.files import Columns, Row
from train.files import cache
from train.losses.teaching import ClassOutputs, OutputLoss
from train.metrics import scores
from train.screens.console import Log
from train.settings.schema import Run
from train.sounds import sheets, sources, synthetic
from train.sounds.processor import SOUND_PROCESSOR, run_processor
from train.sounds.rows import frame_fields
from train.tasks.image.mistakes import mistakes
from train.tasks.image.options import Image
from train.tasks.image.sounds.predict import PREDICTOR
from train.tasks.image.sounds.rows import SoundRows
from train.tasks.image.task import IMAGE, hf_fields, measured_of, metrics, sums
from train.tasks.record import Saved, Task, head_classes

# Built-in sounds to train on and to validate on; sounds of plots/mistakes.png.
_TRAIN, _VALID, _MISTAKES = 2000, 500, 12


def specs(run: Run[Image]) -> tfm.Classifier:
    """The parameters of the run's model."""
    return tfm.classifier_specs(run.model)


def batch_spec(run: Run[Image]) -> dict[str, Field]:
    """The fields of a batch, explained at the top of this file."""
    smoothing = {"smoothing": Field("B", np.float32)} if run.task.smoothing else {}
    return {
        **frame_fields(run, run.model),
        "labels": Field("B", np.int32, predicts="C"),
        "weights": Field("B", np.float32, weighs=True),
        "withheld": Field("B", np.float32),
        **smoothing,
    }


def outputs(params: tfm.Classifier, model: tfm.Config, batch: Mapping[str, Array], key: Array | None) -> ClassOutputs:
    """What the model says of the sounds of a batch."""
    encoder_key, head_key = split(key, 2)
    valid = tfm.valid_frames(model, batch["lengths"])
    inputs = tfm.PaddedFrames(batch["frames"], batch["lengths"])
    hidden = tfm.features(params.encoder, params.mix, model, inputs, tfm.padding(valid), key=encoder_key)
    return ClassOutputs(hidden, valid, text_logits(params, model, hidden, valid, head_key))


loss = OutputLoss(outputs, sums)


def _builtin(sound: str, label: str) -> tuple[list[Row], list[Row]]:
    """Single digits to train on and to validate on, in these columns."""
    parts = synthetic.generate(_TRAIN, (1, 1), 0), synthetic.generate(_VALID, (1, 1), 1)
    train, valid = ([{sound: name, label: synthetic.words_of(name)} for name in part] for part in parts)
    return train, valid


def load(run: Run[Image], log: Log, saved: Saved | None = None, valid_only: bool = False) -> Corpus[SoundRows]:
    """Processor and rows as the run describes them; `saved` are processor and facts of the run to resume or start from.

    `valid_only` leaves out the training sounds if --eval-data names others for validation. Raises UserError for a
    processor of other sizes than the model's, and for bad data.
    """
    processor = run_processor(run, run.model.input, saved.processor if saved else None)
    columns = Columns((run.data.field,), (run.data.label,), label_checker("single", ["label"]))
    parts = sources.load(run.data, columns, lambda: _builtin(run.data.field, run.data.label), log, valid_only)
    train, valid = (sources.readable(rows, processor, run.data, log) for rows in parts)
    classes = saved.facts.get("classes") if saved else None
    if classes is None:
        classes = in_order_of_head(Labels.of("single", train, ["label"]).names, head_classes(saved), log.info)
    labels = Labels("single", classes)
    train_rows, valid_rows = (
        SoundRows(rows, labels.encode(rows, ["label"]), processor, run.row_tokens) for rows in (train, valid)
    )
    if train:
        weights = class_weights(run.task.class_weights, train_rows.labels, labels.names)
        train_rows.loss = LossFields(weights, run.task.smoothing)
    hashed = cache.digest(*([sources.stamp(row) for row in rows] for rows in (train, valid)))
    facts = {"hash": hashed, "segmentation_hash": "", "classes": labels.names}
    return Corpus(run, processor, [train_rows] if train else [], valid_rows, {"classes": labels.outputs}, facts)


def baselines(corpus: Corpus[SoundRows]) -> dict[str, float]:
    """`majority`: accuracy of always guessing the most frequent validation label; `mean_spectrum`: that of the class
    whose mean over the frames of all training sounds is the nearest; `n`: the number of sounds."""
    labels = corpus.valid.labels
    counts = np.unique(labels, return_counts=True)[1]
    majority = {"majority": float(counts.max() / counts.sum()), "n": len(labels)}
    if not corpus.train:
        return majority
    (train, *_), valid = corpus.train, corpus.valid
    accuracy = scores.nearest_mean(_spectra(train), train.labels, _spectra(valid), labels)
    return majority | {"mean_spectrum": accuracy}


def _spectra(rows: SoundRows) -> np.ndarray:
    """The mean over the frames of each of the first sounds, float32 [N,C]."""
    sounds = rows.sounds
    return np.stack([sounds.frames(row)[: sounds.counts[row]].mean(0) for row in range(min(len(sounds), _TRAIN))])


def report(
    params: tfm.Classifier,
    run: Run[Image],
    corpus: Corpus[SoundRows],
    log: Log,
    outcomes: Mapping[str, np.ndarray],
    folder: Path,
):
    """Draws plots/confusion.png, reliability.png, and mistakes.png, spectrograms."""
    shown = mistakes(outcomes, corpus.facts()["classes"], _MISTAKES, "sounds", log, folder)
    if shown:
        spectrograms = [corpus.valid.sounds.frames(mistake.row) for mistake in shown]
        titles = [f"{mistake.guess} ({mistake.right})" for mistake in shown]
        sheets.spectrograms(spectrograms, titles, folder / "plots" / "mistakes.png")


def contact_sheet(batches: Iterable[Mapping[str, np.ndarray]], corpus: Corpus[SoundRows], rows: int, path: Path):
    """Draws the first rows of batches, each under its class."""
    names, spectrograms, titles = corpus.facts()["classes"], list[np.ndarray](), list[str]()
    for batch in batches:
        spectrograms += list(batch["frames"][:rows])
        titles += [names[label] for label in batch["labels"][:rows]]
    sheets.spectrograms(spectrograms, titles, path)


SOUNDS = Task(
    specs=specs,
    batch_spec=batch_spec,
    load=load,
    loss=loss,
    metrics=metrics,
    goals=IMAGE.goals,
    measured=lambda corpus: measured_of(corpus.valid.labels[:1], corpus.sizes["classes"]),
    baselines=baselines,
    report=report,
    processor=SOUND_PROCESSOR,
    next_commands=("predict --run={folder} --file='YOUR/*.wav'", "evaluate --run={folder} --data=YOUR/FOLDER"),
    predictor=PREDICTOR,
    contact_sheet=contact_sheet,
    hf_heads=("classify",),
    hf_fields=hf_fields,
)

"""Answers to questions about pictures, as classes of both together (ViLT: Kim et al. 2021, section 4.2).

A row is a picture of height h, width w and c channels, and a question:

    tokens     [CLS] how many red circles are there ? [SEP] [PAD]     [B,T]
    valid          1   1    1   1       1   1     1 1     1     0     [B,T], 0 is padding
    pixels     float32 [B,h,w,c]   normalized as preprocessor_config.json of the run folder says
    seen       int32 [B,p]         1 for a patch that the model sees, 0 with --task.hide=picture
    labels     int32 [B]           the answer
    weights    float32 [B]         0 for an empty row
    withheld   float32 [B]         1 for a built-in drawing whose colour and shape never meet in training
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jax import Array

import tfm
from tfm.models.classifier import text_logits
from tfm.ops import split
from tfm.sharding import replicate_length
from train.data.corpus import Corpus
from train.data.fields import Field
from train.data.labels import Labels, LossFields, in_order_of_head, label_checker
from train.data.sources.files import Row
from train.data.tokens import PLAIN, Segmentation, encode, segmentation_hash, segmentations
from train.files import cache
from train.images import questions, sheets, sources
from train.images.model_processor import picture_shape
from train.images.rows import ImageRows
from train.losses.teaching import ClassOutputs, OutputLoss
from train.screens.console import Log
from train.settings.schema import Run
from train.tasks.answer_picture.options import AnswerPicture
from train.tasks.answer_picture.predict import PREDICTOR
from train.tasks.answer_picture.rows import AnswerRows
from train.tasks.captions.rows import CAPTION_PROCESSOR, CaptionRows, processor_of
from train.tasks.classification import counted
from train.tasks.image.task import IMAGE, measured_of, metrics, sums
from train.tasks.record import Saved, Task, head_classes
from train.text import tokenize

# Pictures of plots/answers.png.
_SHOWN = 24


def specs(run: Run[AnswerPicture]) -> tfm.Classifier:
    """The parameters of the run's model."""
    return tfm.classifier_specs(run.model)


def batch_spec(run: Run[AnswerPicture]) -> dict[str, Field]:
    """The fields of a batch, explained at the top of this file."""
    patches, shape = run.model.input.suffix, dict(zip("hwc", picture_shape(run.model), strict=True))
    return {
        "tokens": Field("BT", np.int32, counts_tokens=True),
        "valid": Field("BT", np.int32),
        "pixels": Field("Bhwc", np.float32, shape, counts_tokens=True, row_tokens=patches),
        "seen": Field("Bp", np.int32, {"p": patches}),
        "labels": Field("B", np.int32, predicts="C"),
        "weights": Field("B", np.float32, weighs=True),
        "withheld": Field("B", np.float32),
        **({"smoothing": Field("B", np.float32)} if run.task.smoothing else {}),
    }


def outputs(params: tfm.Classifier, model: tfm.Config, batch: Mapping[str, Array], key: Array | None) -> ClassOutputs:
    """What the model answers to the questions of a batch."""
    encoder_key, head_key = split(key, 2)
    valid = jnp.concatenate([replicate_length(batch["valid"]), batch["seen"]], axis=1) > 0
    inputs = tfm.PicturedTokens(batch["tokens"], batch["pixels"])
    hidden = tfm.features(params.encoder, params.mix, model, inputs, tfm.padding(valid), key=encoder_key)
    return ClassOutputs(hidden, None, text_logits(params, model, hidden, valid, head_key))


loss = OutputLoss(outputs, sums)


def load(run: Run[AnswerPicture], log: Log, saved: Saved | None = None, valid_only: bool = False) -> Corpus[AnswerRows]:
    """Processor and rows as the run describes them; `saved` are processor and facts of the run to resume or start from.

    `valid_only` leaves out the training pictures if --eval-data names others for validation. Raises UserError for bad
    data.
    """
    image, question = run.data.field.split(",")
    checker = label_checker("single", ["label"])
    reader = sources.PictureReader(image, run.data.label, checker, question=question)
    train, valid = sources.load(run.data, reader, questions.drawn, log, valid_only)
    processor = processor_of(run, run.model, [row["question"] for row in train], saved, log)
    names = saved.facts.get("classes") if saved else None
    if names is None:
        names = in_order_of_head(Labels.of("single", train, ["label"]).names, head_classes(saved), log.info)
    labels = Labels("single", names)

    def rows_of(rows: Sequence[Row], name: str, segmentation: Segmentation = PLAIN) -> AnswerRows:
        images = ImageRows(rows, labels.encode(rows, ["label"]), processor.images, run.model.input.suffix)
        texts = encode(processor.tokenizer, [row["question"] for row in rows], log, name, segmentation)
        return AnswerRows(CaptionRows(images, texts, processor.tokenizer, run.batch.length), run.task.hide)

    train_rows = [rows_of(train, "questions", split) for split in segmentations(run)] if train else []
    for part in train_rows:
        part.images.train_with(LossFields(smoothing=run.task.smoothing), run.task.augment)
    parts = [[f"{row['digest']} {row['question']} {row['label']}" for row in rows] for rows in (train, valid)]
    facts = {
        "tokenizer": tokenize.fingerprint(processor.tokenizer),
        "hash": cache.digest(*parts),
        "segmentation_hash": segmentation_hash(run, (part.asked.captions for part in train_rows)),
        "classes": names,
        "train_rows": len(train),
        "eval_rows": len(valid),
    }
    sizes = {"vocab": processor.tokenizer.get_vocab_size(), "classes": labels.outputs}
    return Corpus(run, processor, train_rows, rows_of(valid, "validation questions"), sizes, facts)


def baselines(corpus: Corpus[AnswerRows]) -> dict[str, float]:
    """`majority`: accuracy of the most frequent validation answer; `question`: of the most frequent one to each
    question; `n`: the number of questions."""
    images = corpus.valid.images
    rows = np.flatnonzero(~images.withheld)
    by_question: dict[tuple[int, ...], list[int]] = {}
    for row in rows.tolist():
        by_question.setdefault(tuple(corpus.valid.asked.captions[row].tolist()), []).append(int(images.labels[row]))
    right = sum(np.bincount(answers).max() for answers in by_question.values())
    return {
        "majority": float(np.bincount(images.labels[rows]).max() / len(rows)),
        "question": float(right / len(rows)),
        "n": len(rows),
    }


def report(
    params: tfm.Classifier,
    run: Run[AnswerPicture],
    corpus: Corpus[AnswerRows],
    log: Log,
    outcomes: Mapping[str, np.ndarray],
    folder: Path,
):
    """Draws plots/answers.png, a sheet of validation pictures with questions and answers, wrong ones first."""
    rows = np.flatnonzero(outcomes["weights"] > 0)
    logits, labels = counted(outcomes)
    chosen, names = logits.argmax(1), corpus.facts()["classes"]
    shown = np.argsort(chosen == labels, kind="stable")[:_SHOWN]
    titles = [
        f"{sheets.wrapped(_question(corpus, rows[place]))}\n{names[chosen[place]]}"
        + ("" if chosen[place] == labels[place] else f" ({names[labels[place]]})")
        for place in shown
    ]
    path = folder / "plots" / "answers.png"
    sheets.contact_sheet(corpus.valid.images.pixels(rows[shown]), titles, path)
    log.info(f"{(chosen != labels).sum():,} of {len(labels):,} questions are answered otherwise: plots/answers.png")


def _question(corpus: Corpus[AnswerRows], row: int) -> str:
    """The question of a validation row, as the tokenizer decodes it."""
    return corpus.processor.tokenizer.decode(corpus.valid.asked.captions[row].tolist())


def contact_sheet(batches: Iterable[Mapping[str, np.ndarray]], corpus: Corpus[AnswerRows], rows: int, path: Path):
    """Draws the first rows of batches as the model sees them, each under its question and its answer."""
    names, decode = corpus.facts()["classes"], corpus.processor.tokenizer.decode
    pictures, titles = [], []
    for batch in batches:
        pictures.append(corpus.processor.images.restore(batch["pixels"][:rows]))
        fields = (batch[name][:rows] for name in ("tokens", "valid", "labels"))
        for tokens, valid, label in zip(*fields, strict=True):
            question = decode(tokens[valid > 0].tolist())
            titles.append(f"{sheets.wrapped(question)}\n{names[label]}")
    sheets.contact_sheet(np.concatenate(pictures), titles, path)


ANSWER_PICTURE = Task(
    specs=specs,
    batch_spec=batch_spec,
    load=load,
    loss=loss,
    metrics=metrics,
    goals=IMAGE.goals,
    measured=lambda corpus: measured_of(corpus.valid.images.labels[:1], corpus.sizes["classes"]),
    baselines=baselines,
    report=report,
    processor=CAPTION_PROCESSOR,
    next_commands=(
        "predict --run={folder} --file='YOUR/*.jpg' --question='YOUR QUESTION'",
        "evaluate --run={folder} --data=YOUR.csv",
    ),
    predictor=PREDICTOR,
    contact_sheet=contact_sheet,
)

"""One of several continuations of a text (Zellers et al. 2018; Devlin et al. 2018, section 4.4).

A text with two continuations, in a row of 14 places with room for other texts (`train.data.text_rows`):

    tokens     [CLS] she slipped [SEP] she fell [SEP] [CLS] she slipped [SEP] she flew [SEP]
    types          0 0   0       0     1   1    1         0 0   0       0     1   1    1     the second text
    segments       1 1   1       1     1   1    1         2 2   2       2     2   2    2     which one of the row
    positions      0 1   2       3     4   5    6         0 1   2       3     4   5    6     restart at each
    rows       17                            its number, int32 [B*n]; -1 for a place without a text
    present    1 1 0                         which of its continuations are there, int32 [B*n,c]
    labels     0                             the place of the right one, int32 [B*n]
    weights    1                             0 for a place without a text
    smoothing, focal, generative             of the options of these names, in training
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import tfm
from train.data import text_rows
from train.data.corpus import Corpus
from train.data.fields import Field
from train.data.labels import LossFields
from train.data.processors import TOKENIZER
from train.data.sources import files, sources
from train.data.synthetic.kept import kept
from train.data.tokens import PLAIN, Segmentation, encode, segmentation_hash, segmentations
from train.files import cache
from train.metrics.calibration import calibration_metrics, reliability, scaled_reliability
from train.screens import plots
from train.screens.console import Log
from train.settings.schema import Run
from train.tasks.choice import continuations
from train.tasks.choice.loss import loss
from train.tasks.choice.options import Choice
from train.tasks.choice.predict import PREDICTOR
from train.tasks.choice.rows import Choices, ChoiceTokens, first_places
from train.tasks.choice.source import MultipleChoice
from train.tasks.classification import counted, softmax
from train.tasks.record import Saved, Task
from train.text import tokenize


def specs(run: Run[Choice]) -> tfm.Classifier:
    """The parameters of the run's model."""
    return tfm.classifier_specs(run.model, generative=run.task.generative > 0)


def batch_spec(run: Run[Choice]) -> dict[str, Field]:
    """The fields of a batch, explained at the top of this file."""
    count = {"n": run.task.choices}
    options = {name: Field("B", np.float32) for name in ("smoothing", "focal", "generative") if getattr(run.task, name)}
    return {
        "tokens": Field("BT", np.int32, counts_tokens=True, rows=run.task.choices),
        "types": Field("BT", np.int32, rows=run.task.choices),
        **text_rows.fields(run.task.choices),
        "present": Field("Bn", np.int32, count),
        "labels": Field("B", np.int32, count, predicts="n"),
        "weights": Field("B", np.float32, weighs=True),
        **options,
    }


def metrics(sums: Mapping[str, Any]) -> dict[str, float]:
    """Means from sums; with the `scores` of every row also calibration (`train.metrics.calibration`)."""
    weight = max(sums["weight"], 1)
    names = {"loss": "loss", "right": "accuracy", "padding": "padding"}
    means = {name: sums[total] / weight for total, name in names.items()}
    return means | calibration_metrics(*counted(sums)) if "scores" in sums else means


def load(run: Run[Choice], log: Log, saved: Saved | None = None, valid_only: bool = False) -> Corpus[Choices]:
    """Tokenizer and rows as the run describes them; `saved` are processor and facts of the run to resume or start from.

    `valid_only` leaves out the training rows if --eval-data names other rows for validation.
    """
    reader = MultipleChoice.of(run.data)
    train, valid = sources.load(run.data, reader, partial(kept, continuations.generate), log.info, valid_only)
    if reader.seen:
        log.info("read as " + ", ".join(f"{form} ({count:,} rows)" for form, count in reader.seen.items()))
    if saved:
        tokenizer = saved.processor
    else:
        tokenizer = tokenize.load(run.tokenizer, [text for row in train for text in reader.texts_of(row)], log)
    count = max(len(row["choices"]) for row in (*train, *valid))

    def rows(examples: Sequence[files.Row], name: str, segmentation: Segmentation = PLAIN) -> Choices:
        contexts = [row["context"] for row in examples]
        choices = [choice for row in examples for choice in row["choices"]]
        context_tokens, tokens = (encode(tokenizer, side, log, name, segmentation) for side in (contexts, choices))
        text = ChoiceTokens(context_tokens, tokens, first_places([row["choices"] for row in examples]))
        return Choices(text, np.array([row["label"] for row in examples], np.int32), count, run.batch.length, tokenizer)

    train_rows = [rows(train, "training text", segmentation) for segmentation in segmentations(run)] if train else []
    for part in train_rows:
        part.loss = LossFields(None, run.task.smoothing, run.task.focal, run.task.generative)
    sizes = {"vocab": tokenizer.get_vocab_size(), "classes": 1, "task.choices": count}
    texts = [text for part in train_rows for text in (part.text.contexts, part.text.choices)]
    facts = {
        "tokenizer": tokenize.fingerprint(tokenizer),
        "hash": cache.digest(*(_described(part) for part in (train, valid))),
        "segmentation_hash": segmentation_hash(run, texts),
        "cut": train_rows[0].cut if train_rows else 0.0,
    }
    return Corpus(run, tokenizer, train_rows, rows(valid, "validation text"), sizes, facts)


def _described(rows: Sequence[files.Row]) -> list[str]:
    """What a hash of rows is made of."""
    return [str((row["context"], row["choices"], row["label"])) for row in rows]


def baselines(corpus: Corpus[Choices]) -> dict[str, float]:
    """Accuracies without understanding: `majority` of always the most frequent place, `longest` of always the
    continuation of most tokens, `overlap` of the one that shares most of its tokens with the text; ties count in part.

    `n`: the number of rows.
    """
    rows = corpus.valid
    text, labels = rows.text, rows.labels
    longest, overlap = [], []
    for row, label in enumerate(labels):
        choices = [set(text.choices[place].tolist()) for place in range(text.firsts[row], text.firsts[row + 1])]
        context = set(text.contexts[row].tolist())
        lengths = text.choices.lengths[text.firsts[row] : text.firsts[row + 1]]
        longest.append(_share_of_best(lengths, label))
        overlap.append(
            _share_of_best(np.array([len(context & choice) / max(len(choice), 1) for choice in choices]), label)
        )
    means = {"longest": float(np.mean(longest)), "overlap": float(np.mean(overlap))}
    return {"majority": float(np.bincount(labels).max() / len(labels)), **means, "n": len(labels)}


def _share_of_best(values: np.ndarray, label: int) -> float:
    """The chance of choosing the label among the largest values."""
    best = values == values.max()
    return float(best[label] / best.sum())


def report(
    params: tfm.Classifier,
    run: Run[Choice],
    corpus: Corpus[Choices],
    log: Log,
    outcomes: Mapping[str, np.ndarray],
    folder: Path,
):
    """Prints ten validation texts with what is chosen, and draws plots/reliability.png."""
    logits, labels = counted(outcomes)
    text, decode = corpus.valid.text, corpus.processor.decode
    for row in range(0, len(labels), max(1, len(labels) // 10))[:10]:
        probabilities = softmax(logits[row])
        chosen, right = int(probabilities.argmax()), int(labels[row])
        words = [decode(text.choices[text.firsts[row] + place].tolist()) for place in (chosen, right)]
        correction = "" if chosen == right else f", but it is: {words[1]}"
        log.info(f"{decode(text.contexts[row].tolist())} | {words[0]} {probabilities[chosen]:.4f}{correction}")
    if len(labels) >= 4:
        plots.reliability(reliability(logits, labels), scaled_reliability(logits, labels), folder)


CHOICE = Task(
    specs=specs,
    batch_spec=batch_spec,
    load=load,
    loss=loss,
    metrics=metrics,
    goals={"loss": min, "accuracy": max},
    baselines=baselines,
    report=report,
    processor=TOKENIZER,
    next_commands=(
        "predict --run={folder} --text='YOUR TEXT' --choices='FIRST|SECOND'",
        "evaluate --run={folder} --data=YOUR.jsonl",
    ),
    predictor=PREDICTOR,
    hf_heads=("choice",),
)

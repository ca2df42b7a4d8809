"""Classes or a value for a text or a pair of texts (Devlin et al. 2018, section 4.1 and 4.2).

A pair in a row of 12 places, which has room for another one (`train.data.text_rows`):

    tokens     [CLS] a man runs [SEP] he moves [SEP] [PAD] ...      what the model reads
    types          0 0   0    0     0  1     1     1     0          the second text has type 1
    segments       1 1   1    1     1  1     1     1     0          which pair of the row; 0 is padding
    positions      0 1   2    3     4  5     6     7     0          restart at every pair
    rows       17                  its number, int32 [B*n]; -1 for a place without a pair, as of all fields below
    labels     2                   its class, int32; or 1 for each class, float32 [B*n,C]; or a value, float32
    weights    1                   0 for no pair; in training the weight of its class (--task.class-weights)
    smoothing  0.1                 of the labels, and
    focal      2                   the exponent of the focal loss, and
    both_ways  1 1                 int32 [B*n,2], or `apart`, by --task.pairs: a pair is two texts, which are there
    generative 0.5                 the factor of the loss of its next tokens, in training where they are set
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jax.sharding import Mesh
from tokenizers import Tokenizer

import tfm
from tfm.ops import linear_specs
from tfm.params import PyTree
from train import UserError
from train.data import text_rows
from train.data.corpus import Corpus
from train.data.fields import Field
from train.data.labels import Labels, LossFields, class_fields, class_weights, in_order_of_head, label_checker
from train.data.processors import TOKENIZER
from train.data.sources import files, generated, sources
from train.data.synthetic.kept import kept
from train.data.tokens import PLAIN, Segmentation, encode, segmentation_hash, segmentations
from train.files import cache
from train.metrics import scores
from train.metrics.calibration import calibration_metrics, reliability, scaled_reliability
from train.screens import plots
from train.screens.console import Log
from train.settings.schema import Run
from train.tasks.classification import counted, prediction, truth
from train.tasks.classify import opinions
from train.tasks.classify.loss import loss
from train.tasks.classify.options import Classify
from train.tasks.classify.predict import PREDICTOR
from train.tasks.classify.rows import Examples
from train.tasks.record import Facts, HfSource, Saved, Task, head_classes
from train.text import tokenize


def specs(run: Run[Classify]) -> tfm.Classifier:
    """The parameters of the run's model; where pairs are apart, the output reads four vectors."""
    classifier = tfm.classifier_specs(run.model, generative=run.task.generative > 0)
    if run.task.pairs != "apart":
        return classifier
    return replace(classifier, output=linear_specs(run.model, "o", "C", bias=True, o=4 * run.model.width))


def batch_spec(run: Run[Classify]) -> dict[str, Field]:
    """The fields of a batch, explained at the top of this file."""
    labels = {
        "single": Field("B", np.int32, predicts="C"),
        "multi": Field("BC", np.float32, {"C": run.model.classes}),
        "regression": Field("B", np.float32),
    }
    options = {name: Field("B", np.float32) for name in ("smoothing", "focal", "generative") if getattr(run.task, name)}
    count = 1 if run.task.pairs == "joined" else 2
    if count > 1:
        options[run.task.pairs] = Field("Bn", np.int32, {"n": count})
    return {
        "tokens": Field("BT", np.int32, counts_tokens=True, rows=count),
        "types": Field("BT", np.int32, rows=count),
        **text_rows.fields(count),
        "labels": labels[run.task.kind],
        "weights": Field("B", np.float32, weighs=True),
        **options,
    }


def metrics(sums: Mapping[str, Any]) -> dict[str, float]:
    """Means from sums; with the `scores` of every text also F1, correlations and so on (`train.screens`)."""
    weight = max(sums["weight"], 1)
    names = {"loss": "loss", "right": "accuracy", "padding": "padding"}
    means = {name: sums[total] / weight for total, name in names.items() if total in sums}
    if "scores" not in sums:
        return means
    logits, labels = counted(sums)
    is_class = np.issubdtype(labels.dtype, np.integer)
    return (
        means
        | scores.classification_metrics(logits, labels)
        | (calibration_metrics(logits, labels) if is_class else {})
    )


def measured(corpus: Corpus[Examples]) -> set[str]:
    """The names of the metrics of such labels."""
    labels = corpus.valid.labels[:1]
    return {"loss", *scores.classification_metrics(np.zeros((len(labels), corpus.sizes["classes"])), labels)}


def load(run: Run[Classify], log: Log, saved: Saved | None = None, valid_only: bool = False) -> Corpus[Examples]:
    """Tokenizer and rows as the run describes them; `saved` are processor and facts of the run to resume or start from.

    `valid_only` leaves out the training texts if --eval-data names other texts for validation.
    """
    label_columns = run.data.label.split(",")
    columns = files.Columns.of(run.data, labelled=True, check_label=label_checker(run.task.kind, label_columns))
    _check_pairs(run.task.pairs, columns)
    train, valid = sources.load(run.data, columns, lambda: _builtin(columns), log.info, valid_only)
    if saved:
        tokenizer = saved.processor
    else:
        tokenizer = tokenize.load(run.tokenizer, [row[name] for row in train for name in columns.texts], log)
    classes = saved.facts.get("classes") if saved else None
    if classes is None:
        classes = in_order_of_head(Labels.of(run.task.kind, train, columns.labels).names, head_classes(saved), log.info)
    labels = Labels(run.task.kind, classes)

    def rows(examples: Sequence[files.Row], name: str, segmentation: Segmentation = PLAIN) -> Examples:
        texts = [
            encode(tokenizer, [example[column] for example in examples], log, name, segmentation)
            for column in columns.texts
        ]
        values = labels.encode(examples, columns.labels)
        return Examples(texts, values, run.batch.length, tokenizer, run.task.pairs)

    train_rows = [rows(train, "training text", segmentation) for segmentation in segmentations(run)] if train else []
    for part in train_rows:
        weights = class_weights(run.task.class_weights, part.labels, labels.names)
        part.loss = LossFields(weights, run.task.smoothing, run.task.focal, run.task.generative)
        generated.check_length(run.data.source, part.longest, run.batch.length)
    valid_rows = rows(valid, "validation text")
    generated.check_length(run.data.eval or run.data.source, valid_rows.longest, run.batch.length)
    sizes = {"vocab": tokenizer.get_vocab_size(), "classes": labels.outputs}
    names = (*columns.texts, *columns.labels)
    facts = {
        "tokenizer": tokenize.fingerprint(tokenizer),
        "hash": cache.digest(*([str(row[name]) for row in part for name in names] for part in (train, valid))),
        "segmentation_hash": segmentation_hash(run, (text for rows in train_rows for text in rows.texts)),
        "classes": labels.names,
        "cut": train_rows[0].cut if train_rows else 0.0,
    }
    return Corpus(run, tokenizer, train_rows, valid_rows, sizes, facts)


def _check_pairs(pairs: str, columns: files.Columns):
    """Raises UserError for another count of texts than that of a pair."""
    if pairs != "joined" and len(columns.texts) != 2:
        raise UserError(f"--task.pairs={pairs} reads pairs; name two columns, such as --data.field=first,second")


def _builtin(columns: files.Columns) -> tuple[list[files.Row], list[files.Row]]:
    """The built-in opinions, in the columns of the run."""
    text, label = columns.texts[0], columns.labels[0]
    parts = kept(opinions.generate, train=20_000)
    train, valid = ([{text: row["text"], label: row["label"]} for row in rows] for rows in parts)
    return train, valid


def baselines(corpus: Corpus[Examples]) -> dict[str, float]:
    """`majority`: accuracy of always guessing the most frequent validation label; `n`: the number of labels.

    For values `mean_loss`: the loss of always guessing their mean.
    """
    labels = corpus.valid.labels
    if labels.ndim == 1 and labels.dtype == np.float32:
        return {"mean_loss": float(labels.var()), "n": len(labels)}
    counts = np.unique(labels, axis=0, return_counts=True)[1]
    return {"majority": float(counts.max() / counts.sum()), "n": len(labels)}


def report(
    params: tfm.Classifier,
    run: Run[Classify],
    corpus: Corpus[Examples],
    log: Log,
    outcomes: Mapping[str, np.ndarray],
    folder: Path,
):
    """Prints ten validation texts with their predictions, and draws plots/confusion.png and reliability.png."""
    logits, labels = counted(outcomes)
    names = corpus.facts()["classes"]
    for row in range(0, len(labels), max(1, len(labels) // 10))[:10]:
        predicted, right = prediction(run.task.kind, names, logits[row]), truth(names, labels[row])
        text = " | ".join(corpus.processor.decode(text[row].tolist()) for text in corpus.valid.texts)
        correction = "" if predicted.label == right else f", but it is {right}"
        log.info(f"{predicted.label} {predicted.probability}{correction}: {text}")
    if run.task.kind == "single":
        plots.confusion(scores.confusion(logits.argmax(1), labels, len(names)), names, folder)
        plots.reliability(reliability(logits, labels), scaled_reliability(logits, labels), folder)


# What transformers calls the kinds of labels.
HF_PROBLEMS = {
    "single": "single_label_classification",
    "multi": "multi_label_classification",
    "regression": "regression",
}


def hf_run_values(head: str, folder: HfSource) -> dict[str, Any]:
    """Options of a run that could have trained a Hugging Face model; `folder` has its `fields` and `processor`.

    Raises UserError for a head of several numbers without classes, and for one class among one.
    """
    from tfm.hf.facts import class_count  # with jax

    kinds, count = {problem: kind for kind, problem in HF_PROBLEMS.items()}, class_count(folder.fields)
    problem = folder.fields.get("problem_type") or ""
    kind = kinds.get(problem, "regression" if count == 1 else "single")
    if head == "classify" and kind == ("single" if count == 1 else "regression"):
        raise UserError(
            f"{folder.path}: config.json has problem_type={problem} and {count} classes; here a regression has one "
            "number, and one of several classes has two or more; correct problem_type or id2label"
        )
    return {"task.kind": kind}


def load_hf(folder: HfSource, params: PyTree, mesh: Mesh) -> PyTree:
    """The parameters. Warns of one class that nothing calls a regression."""
    if folder.config.task.kind == "regression" and not folder.fields.get("problem_type"):
        warnings.warn(
            "config.json has one class (id2label) and no problem_type: its value is said as it is, as in a regression; "
            "a pipeline of transformers and CrossEncoder of sentence-transformers say the sigmoid of it",
            stacklevel=2,
        )
    return params


def hf_fields(run: Run[Classify], tokenizer: Tokenizer, facts: Facts) -> dict[str, Any]:
    """Fields of config.json that depend on the task; `facts` are those of run.json about the data. Raises UserError for
    a run whose pairs are not joined."""
    if run.task.pairs != "joined":
        raise UserError(f"--task.pairs={run.task.pairs} reads a pair as two texts, and a folder of transformers as one")
    return {"problem_type": HF_PROBLEMS[run.task.kind], **class_fields(facts["classes"] or ["LABEL_0"])}


CLASSIFY = Task(
    specs=specs,
    batch_spec=batch_spec,
    load=load,
    loss=loss,
    metrics=metrics,
    goals={"loss": min} | dict.fromkeys(("accuracy", "f1", "f1_macro", "matthews", "pearson", "spearman"), max),
    measured=measured,
    baselines=baselines,
    report=report,
    processor=TOKENIZER,
    next_commands=("predict --run={folder} --text='YOUR TEXT'", "evaluate --run={folder} --data=YOUR.tsv"),
    predictor=PREDICTOR,
    hf_heads=("classify",),
    hf_run_values=hf_run_values,
    load_hf=load_hf,
    hf_fields=hf_fields,
)

"""Classes or a number for a text or a pair of texts (Devlin et al. 2018, section 4.1 and 4.2).

A pair in a row of 12 places travels as

    tokens     [CLS] a man runs [SEP] he moves [SEP] [PAD] ...      what the model reads
    types          0 0   0    0     0  1     1     1     0          the second text has type 1
    valid          1 1   1    1     1  1     1     1     0          0 is padding
    labels     2                       int32 [B]: the class;  float32 [B,C]: 1 for each class it has;  float32 [B]: the number
    weights    1                       0 for a row that does not count
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import tfm
from train.data import pairs
from train.data.batching import row_batches
from train.data.corpus import Corpus
from train.data.fields import Field
from train.data.labels import Labels
from train.data.processors import TOKENIZER
from train.data.sources import sources
from train.data.synthetic import opinions
from train.data.tokens import Tokens, encode, in_memory, segmentation_hash, segmentations
from train.files import cache
from train.reporting import metrics as scores
from train.reporting import plots
from train.settings.schema import Run
from train.text import tokenizer as tokenize

# Metrics by which a best checkpoint may be chosen, and whether less of them is better.
METRICS = {"loss": min} | dict.fromkeys(("accuracy", "f1", "f1_macro", "matthews", "pearson", "spearman"), max)

# What a run folder keeps beside the weights: how texts become tokens.
PROCESSOR = TOKENIZER

# Commands that make sense after a run.
NEXT_COMMANDS = ("predict --run={folder} --text='YOUR TEXT'", "evaluate --run={folder} --data=YOUR.tsv")


def specs(run: Run) -> tfm.Classifier:
    """The parameters of the run's model."""
    return tfm.classifier_specs(run.model)


def loss(params: tfm.Classifier, model: tfm.Config, batch: Mapping[str, Array], key: Array | None) -> dict[str, Array]:
    """Sums over the texts of a batch, float32: `loss` (nats, or squared error for numbers), `weight`, and for classes `right`; and for
    evaluation what each text got: `scores` [B,C] beside `labels` and `weights`."""
    labels, weights = batch["labels"], batch["weights"]
    logits = tfm.classify(params, model, batch["tokens"], batch["valid"] > 0, typed(model, batch["types"]), key)
    if labels.dtype == jnp.int32:
        losses, right = tfm.cross_entropy(logits, labels), logits.argmax(-1) == labels
    elif labels.ndim == 2:
        losses = jnp.logaddexp(0, jnp.where(labels > 0, -logits, logits)).mean(-1)
        right = ((logits > 0) == (labels > 0)).all(-1)
    else:
        losses, right = jnp.square(logits[:, 0] - labels), None
    sums = {} if right is None else {"right": (right.astype(jnp.float32) * weights).sum()}
    return sums | {
        "loss": (losses * weights).sum(),
        "weight": weights.sum(),
        "padding": (batch["valid"] == 0).astype(jnp.float32).mean() * weights.sum(),
        "scores": logits,
        "labels": labels,
        "weights": weights,
    }


def metrics(sums: Mapping[str, Any]) -> dict[str, float]:
    """Means from sums; with what each text got, also the metrics of its kind of label (`train.scores`)."""
    weight = max(sums["weight"], 1)
    names = {"loss": "loss", "right": "accuracy", "padding": "padding"}
    found = {name: sums[of] / weight for of, name in names.items() if of in sums}
    return found | scores.scores(*_counted(sums)) if "scores" in sums else found


def batch_spec(run: Run) -> dict[str, Field]:
    """The fields of a batch, as the top of this file shows them."""
    labels = {
        "single": Field("B", np.int32),
        "multi": Field("BC", np.float32, {"C": run.model.classes}),
        "regression": Field("B", np.float32),
    }
    return {
        "tokens": Field("BT", np.int32, counts_tokens=True),
        "types": Field("BT", np.int32),
        "valid": Field("BT", np.int32),
        "labels": labels[run.task.kind],
        "weights": Field("B", np.float32),
    }


def _counted(outcomes: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels of the texts that count."""
    counts = outcomes["weights"] > 0
    return outcomes["scores"][counts], outcomes["labels"][counts]


class Examples:
    """Rows of one text or pair each, padded to `length`."""

    buckets, independent_rows = None, True

    def __init__(self, texts: Sequence[Tokens], labels: np.ndarray, length: int, tokenizer):
        self.texts, self.labels, self.length = texts, labels, length
        self.specials, self.between = tokenize.specials(tokenizer), tokenize.between(tokenizer)
        self.tokens = sum(len(text.ids) for text in texts)
        sizes = np.sum([text.lengths for text in texts], axis=0) + 2 + (self.between if len(texts) > 1 else 0)
        self.padding = float(1 - np.minimum(sizes, length).mean() / length) if len(sizes) else 0.0
        self.cut = float((sizes > length).mean()) if len(sizes) else 0.0

    def __len__(self):
        return len(self.labels)

    def batch(self, numbers: np.ndarray, rng: np.random.Generator | None = None) -> dict[str, np.ndarray]:
        """The fields that stand at the top of this file."""
        shape = (len(numbers), self.length)
        fields = {name: np.zeros(shape, np.int32) for name in ("tokens", "types", "valid")}
        fields["tokens"][:] = self.specials.pad
        for b, number in enumerate(numbers):
            if number < 0:
                continue
            row, second = pairs.join([text[number] for text in self.texts], self.length, self.specials, self.between)
            fields["tokens"][b, : len(row)], fields["valid"][b, : len(row)] = row, 1
            fields["types"][b, second : len(row)] = 1
        return fields | {"labels": self.labels[numbers], "weights": (numbers >= 0).astype(np.float32)}


def load(run: Run, log, saved=None, valid_only: bool = False) -> Corpus[Examples]:
    """Labelled texts, tokenizer and rows as the run describes them; `saved` is what a run that was there before brings."""
    columns = sources.Columns.of(run.data, labelled=True)
    train, valid = sources.load(run.data, columns, lambda: builtin(columns), valid_only)
    tokenizer = (
        saved.processor
        if saved
        else tokenize.load(run.tokenizer, [row[name] for row in train for name in columns.texts], log)
    )
    classes = saved.facts.get("classes") if saved else None
    labels = Labels.of(run.task.kind, train, columns.labels) if classes is None else Labels(run.task.kind, classes)

    def rows(these: Sequence[sources.Row], what: str, dropout: float = 0.0, draw: int = 0) -> Examples:
        texts = [encode(tokenizer, [row[name] for row in these], log, what, dropout, draw) for name in columns.texts]
        return Examples(texts, labels.encode(these, columns.labels), run.batch.length, tokenizer)

    texts = ([str(row[name]) for row in part for name in (*columns.texts, *columns.labels)] for part in (train, valid))
    training = [rows(train, "training text", *draw) for draw in segmentations(run)] if train else []
    seen = segmentation_hash(run, (text for layout in training for text in layout.texts))
    sizes = {"vocab": tokenizer.get_vocab_size(), "classes": labels.outputs}
    facts = {
        "tokenizer": tokenize.fingerprint(tokenizer),
        "hash": cache.digest(*texts),
        "segmentation_hash": seen,
        "classes": labels.names,
        "cut": training[0].cut if training else 0.0,
    }
    return Corpus(run, tokenizer, training, rows(valid, "validation text"), sizes, facts)


def builtin(columns: sources.Columns) -> tuple[list[sources.Row], list[sources.Row]]:
    """The built-in opinions, in the columns that the run asks for."""
    texts, labels = columns.texts[0], columns.labels[0]
    train, valid = (
        [{texts: row["text"], labels: row["label"]} for row in rows] for rows in opinions.generate(train=20_000)
    )
    return train, valid


def baselines(corpus: Corpus[Examples]) -> dict[str, float]:
    """`majority`: accuracy of always guessing the most frequent label of the validation texts, or for numbers `mean_loss`, the loss of
    always guessing their mean; `n`: their number."""
    labels = corpus.valid.labels
    if labels.ndim == 1 and labels.dtype == np.float32:
        return {"mean_loss": float(labels.var()), "n": len(labels)}
    counts = np.unique(labels, axis=0, return_counts=True)[1]
    return {"majority": float(counts.max() / counts.sum()), "n": len(labels)}


def report(params, run: Run, corpus: Corpus[Examples], log, outcomes: Mapping[str, np.ndarray], folder: Path):
    """Prints some validation texts with what they were taken for, and draws plots/confusion.png."""
    logits, labels = _counted(outcomes)
    names = corpus.facts()["classes"]
    for number in range(0, len(labels), max(1, len(labels) // 10))[:10]:
        found, truth = guess(run.task.kind, names, logits[number]), _truth(names, labels[number])
        text = " | ".join(corpus.processor.decode(text[number].tolist()) for text in corpus.valid.texts)
        log.info(f"{found.label} {found.probability}{'' if found.label == truth else f', but it is {truth}'}: {text}")
    if run.task.kind == "single":
        plots.confusion(scores.confusion(logits.argmax(1), labels, len(names)), names, folder)


def predict(
    params: tfm.Classifier,
    run: Run,
    tokenizer,
    classes: Sequence[str],
    texts: Sequence[tuple[str, ...]],
    log,
    batch: int = 32,
) -> Iterator["Guess"]:
    """The label of each text or pair; `classes` are the names of the classes."""
    with log.progress("classifying", len(texts)) as advance:
        for rows, count in row_batches(range(len(texts)), batch):
            columns = [in_memory(tokenizer, column) for column in zip(*(texts[row] for row in rows), strict=True)]
            examples = Examples(columns, np.zeros(batch, np.int32), run.batch.length, tokenizer)
            fields = examples.batch(np.arange(batch))
            logits = np.asarray(_logits(params, run.model, fields["tokens"], fields["valid"], fields["types"]))
            yield from (guess(run.task.kind, classes, row) for row in logits[:count])
            advance(count)


@partial(jax.jit, static_argnums=1)
def _logits(params, model: tfm.Config, tokens, valid, types):
    return tfm.classify(params, model, tokens, valid > 0, typed(model, types))


def typed(model: tfm.Config, types: Array) -> Array | None:
    """Which text of a pair a token is of; None for a model that does not tell them apart (RoBERTa)."""
    return types if (model.input.token_types or 0) > 1 else None


class Guess(NamedTuple):
    """What a text is taken for: the class, the classes joined by commas, or the number; and their probabilities, likewise."""

    label: str
    probability: str
    probabilities: dict[str, float]


def guess(kind: str, names: Sequence[str], logits: np.ndarray) -> Guess:
    """logits [C] -> the most probable class, all classes that are more probable than not, or the number."""
    wide = logits.astype(np.float64)
    if kind == "regression":
        return Guess(f"{wide[0]:.4f}", "", {})
    each = np.exp(wide - wide.max()) / np.exp(wide - wide.max()).sum() if kind == "single" else 1 / (1 + np.exp(-wide))
    chosen = [int(each.argmax())] if kind == "single" else np.flatnonzero(each > 0.5).tolist()
    label, probability = ",".join(names[c] for c in chosen), ",".join(f"{each[c]:.4f}" for c in chosen)
    return Guess(label, probability, dict(zip(names, each.tolist(), strict=True)))


def _truth(names: Sequence[str], label: Any) -> str:
    """A label as `guess` writes it."""
    if not names:
        return f"{label:.4f}"
    return ",".join(names[int(c)] for c in np.flatnonzero(label)) if label.ndim else names[label]


# What train.generate, train.predict and Hugging Face folders ask of this task.
GENERATES = ""
CAN_PREDICT = True
HF_HEADS = ("classify",)
HF_TOKENS: Mapping[str, str] = {}

# What transformers calls the kinds of labels.
HF_PROBLEMS = {
    "single": "single_label_classification",
    "multi": "multi_label_classification",
    "regression": "regression",
}


def hf_run_values(head: str, folder) -> dict[str, Any]:
    """Options of a run that could have trained a Hugging Face model; `folder` has its `fields` and `processor`."""
    kinds = {problem: kind for kind, problem in HF_PROBLEMS.items()}
    default = "regression" if len(folder.fields.get("id2label") or "ab") == 1 else "single"
    return {"task.kind": kinds.get(folder.fields.get("problem_type"), default)}


def hf_fields(run: Run, tokenizer, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of config.json that depend on the task; `facts` are those of run.json about the data."""
    labels = {str(index): label for index, label in enumerate(facts["classes"] or ["LABEL_0"])}
    return {
        "problem_type": HF_PROBLEMS[run.task.kind],
        "id2label": labels,
        "label2id": {label: int(index) for index, label in labels.items()},
    }


def hf_template(run: Run) -> tuple[str, ...]:
    """How the exported tokenizer marks a text and a pair of texts."""
    return "{cls} $A {sep}", "{cls} $A {sep} $B:1 {sep}:1"

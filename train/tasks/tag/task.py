"""A label for every word: named entities, parts of speech (Devlin et al. 2018, section 5.3).

A sentence of three words in a row of 8 places, where others may follow (`train.data.text_rows`); the first piece of a
word carries its label:

    tokens     [CLS] Ada   By    ##ron wrote [SEP] [PAD] [PAD]      what the model reads
    segments       1     1     1     1     1     1     0     0      which sentence of the row; 0 is padding
    positions      0     1     2     3     4     5     0     0      restart at every sentence
    labels         0     1     2     0     0     0     0     0      classes of O, B-PER and I-PER
    weights        0     1     1     0     1     0     0     0      1 where a word counts: in one of its windows
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

import tfm
from train import UserError
from train.data import text_rows
from train.data.corpus import Corpus
from train.data.fields import Field
from train.data.labels import class_fields, in_order_of_head
from train.data.processors import TOKENIZER
from train.data.sources import files, sources
from train.data.synthetic.kept import kept
from train.files import cache
from train.metrics.scores import confusion
from train.screens import plots
from train.screens.console import Log
from train.settings.schema import Run
from train.tasks.record import Facts, HfSource, Saved, Task, head_classes
from train.tasks.tag import metric, news, source
from train.tasks.tag.loss import loss
from train.tasks.tag.options import Tag
from train.tasks.tag.predict import (
    PREDICTOR,
    marked,
)
from train.tasks.tag.rows import Lexicon, Sentences, classes_of, describe_tags, encode_tags, split
from train.text import tokenize


def specs(run: Run[Tag]) -> tfm.Tagger:
    """The parameters of the run's model."""
    return tfm.tagger_specs(run.model)


def batch_spec(run: Run[Tag]) -> dict[str, Field]:
    """The fields of a batch, explained at the top of this file."""
    return {
        "tokens": Field("BT", np.int32, counts_tokens=True),
        **text_rows.fields(),
        "labels": Field("BT", np.int32, predicts="C"),
        "weights": Field("BT", np.float32, weighs=True),
    }


def metrics(sums: Mapping[str, Any]) -> dict[str, float]:
    """Means over words: `accuracy` is the share of words with the right label."""
    weight = max(sums["weight"], 1)
    names = {"loss": "loss", "right": "accuracy", "padding": "padding"}
    return {name: sums[total] / weight for total, name in names.items()}


def corpus_metrics(outputs: Mapping[str, Any], corpus: Corpus[Sentences], during_training: bool) -> dict[str, float]:
    """Precision, recall and F1 of entities, where labels mark any; at the end also by type.

    Where the training text is known also the F1 of entities whose words are an entity there (`f1_seen`), and of the
    others (`f1_unseen`).
    """
    names, rows = corpus.facts()["classes"], corpus.valid
    if not metric.marks_entities(names):
        return {}
    guesses, truths = _outcomes(outputs, rows, names)
    metrics, by_type = metric.entity_scores(guesses, truths)
    if rows.lexicon:
        for name, seen in (("f1_seen", True), ("f1_unseen", False)):
            chosen = (rows.lexicon.only(rows.words, sentences, seen) for sentences in (guesses, truths))
            metrics[name] = metric.entity_scores(*chosen)[0]["f1"]
    if not during_training:
        for kind, values in by_type.items():
            metrics |= {f"{name}_{kind}": values[name] for name in ("precision", "recall", "f1")}
    return metrics


def _outcomes(
    outputs: Mapping[str, Any], rows: Sentences, names: Sequence[str]
) -> tuple[list[list[metric.Entity]], list[list[metric.Entity]]]:
    """The entities of the evaluated sentences: predicted, and right."""
    guesses = rows.join(outputs["guesses"])
    return _entities(names, guesses), _entities(names, rows.labels[: len(guesses)])


def _entities(names: Sequence[str], sentences: Sequence[np.ndarray]) -> list[list[metric.Entity]]:
    """The entities of sentences, from the class of every word."""
    return [metric.entities([names[label] for label in classes]) for classes in sentences]


def measured(corpus: Corpus[Sentences]) -> set[str]:
    """The names of the metrics of words; of entities too, where labels mark any."""
    if not metric.marks_entities(corpus.facts()["classes"]):
        return {"loss", "accuracy"}
    by_lexicon = {"f1_seen", "f1_unseen"} if corpus.valid.lexicon else set()
    return {"loss", "accuracy", "precision", "recall", "f1", *by_lexicon}


def load(run: Run[Tag], log: Log, saved: Saved | None = None, valid_only: bool = False) -> Corpus[Sentences]:
    """Tokenizer and rows as the run describes them; `saved` are processor and facts of the run to resume or start from.

    `valid_only` leaves out the training rows if --eval-data names other text for validation.
    """
    reader = source.TaggedWords(run.data.field, run.data.label)
    train, valid = sources.load(run.data, reader, _builtin, log.info, valid_only)
    classes = saved.facts.get("classes") if saved else None
    if classes is None:
        names = classes_of(train if run.data.eval else [*train, *valid])
        classes = in_order_of_head(names, head_classes(saved), log.info, metric.OUTSIDE)
        log.info(describe_tags([row["tags"] for row in train]))
    if saved:
        tokenizer = saved.processor
    else:
        tokenizer = tokenize.load(run.tokenizer, [" ".join(row["tokens"]) for row in train], log)

    def rows(examples: Sequence[files.Row], name: str) -> Sentences:
        words = [example["tokens"] for example in examples]
        pieces = split(tokenizer, words, log, name)
        special = tokenize.special_tokens(tokenizer)
        labels = encode_tags(examples, classes)
        sentences = Sentences(words, labels, pieces, special, run.batch.length, run.task.stride)
        if count := sentences.cut_sentences:
            total = f"{count:,} of {len(words):,} sentences of the {name}"
            log.info(f"{total} are longer than a row of {run.batch.length}: they are cut into windows that overlap")
        return sentences

    valid_rows = rows(valid, "validation text")
    valid_rows.lexicon = _lexicon(train, classes) if train else _saved_lexicon(saved, reader, classes, log)
    facts = {
        "tokenizer": tokenize.fingerprint(tokenizer),
        "hash": cache.digest(*(row[name] for part in (train, valid) for row in part for name in ("tokens", "tags"))),
        "segmentation_hash": "",
        "classes": classes,
    }
    sizes = {"vocab": tokenizer.get_vocab_size(), "classes": len(classes)}
    return Corpus(run, tokenizer, [rows(train, "training text")] if train else [], valid_rows, sizes, facts)


def _lexicon(train: Sequence[files.Row], classes: Sequence[str]) -> Lexicon:
    """What the training sentences say of words."""
    labels = encode_tags(train, classes)
    return Lexicon.of([row["tokens"] for row in train], labels, _entities(classes, labels))


def _saved_lexicon(saved: Saved | None, reader: source.TaggedWords, classes: Sequence[str], log: Log) -> Lexicon | None:
    """The lexicon of a saved run that is evaluated on other text; None where its training text cannot be read."""
    config = getattr(saved, "config", None)
    if not saved or config is None or "hash" not in saved.facts:
        return None
    data = config.data
    try:
        if data.eval and data.source != "builtin":
            train = sources.read(data.source, data, reader, _builtin, log.info)
        else:
            train = sources.load(dataclasses.replace(data, eval=""), reader, _builtin, log.info)[0]
        return _lexicon(train, classes)
    except UserError as error:
        log.info(f"which entities are new is not known: {error}")
        return None


def _builtin() -> tuple[list[files.Row], list[files.Row]]:
    """The built-in news."""
    train, valid = kept(news.generate, train=20_000)
    return train, valid


def baselines(corpus: Corpus[Sentences]) -> dict[str, float]:
    """Metrics of giving each word the label that it has most often in the training text, and `n`, the sentences."""
    rows, names = corpus.valid, corpus.facts()["classes"]
    count: dict[str, float] = {"n": len(rows.words)}
    if rows.lexicon is None:
        return count
    guesses = [np.array(rows.lexicon.guess(words)) for words in rows.words]
    accuracy = float((np.concatenate(guesses) == np.concatenate(rows.labels)).mean())
    metrics = {"baseline_accuracy": accuracy}
    if metric.marks_entities(names):
        scores = metric.entity_scores(_entities(names, guesses), _entities(names, rows.labels))[0]
        metrics["baseline_f1"] = scores["f1"]
    return metrics | count


def report(
    params: tfm.Tagger,
    run: Run[Tag],
    corpus: Corpus[Sentences],
    log: Log,
    outcomes: Mapping[str, np.ndarray],
    folder: Path,
):
    """Prints the scores by type and ten validation sentences, and draws plots/entities.png.

    Of labels that mark no entities it draws plots/confusion.png.
    """
    rows, names = corpus.valid, corpus.facts()["classes"]
    guesses = rows.join(outcomes["guesses"])
    for sentence in range(0, len(guesses), max(1, len(guesses) // 10))[:10]:
        shown, truth = (
            marked(rows.words[sentence], [names[label] for label in classes])
            for classes in (guesses[sentence], rows.labels[sentence])
        )
        log.info(shown if shown == truth else f"{shown}  but it is  {truth}")
    if not metric.marks_entities(names):
        labels = np.concatenate(rows.labels[: len(guesses)])
        plots.confusion(confusion(np.concatenate(guesses), labels, len(names)), names, folder)
        return
    by_type = metric.entity_scores(*_outcomes(outcomes, rows, names))[1]
    parts = ("precision", "recall", "f1")
    lines = {
        kind: "  ".join(f"{name} {values[name]:.4f}" for name in parts) + f"  of {values['support']:,}"
        for kind, values in by_type.items()
    }
    log.table("entities by type", lines)
    plots.types(by_type, folder)


def hf_run_values(head: str, folder: HfSource) -> dict[str, Any]:
    """Options of a run that could have trained a Hugging Face model; `folder` has its `fields` and `processor`."""
    return {"data.field": source.WORDS, "data.label": source.TAGS}


def hf_fields(run: Run[Tag], tokenizer: Tokenizer, facts: Facts) -> dict[str, Any]:
    """Fields of config.json that depend on the task; `facts` are those of run.json about the data."""
    return class_fields(facts["classes"])


TAG = Task(
    specs=specs,
    batch_spec=batch_spec,
    load=load,
    loss=loss,
    metrics=metrics,
    goals={"loss": min} | dict.fromkeys(("accuracy", "f1", "precision", "recall", "f1_seen", "f1_unseen"), max),
    measured=measured,
    baselines=baselines,
    report=report,
    processor=TOKENIZER,
    next_commands=("predict --run={folder} --text='YOUR TEXT'", "evaluate --run={folder} --data=YOUR.conll"),
    corpus_metrics=corpus_metrics,
    predictor=PREDICTOR,
    hf_heads=("tag",),
    hf_run_values=hf_run_values,
    hf_fields=hf_fields,
)

"""What train.predict reads and writes for --task=tag: texts or words, and the entities in them."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tfm
from train.data.reading import blocks, read_texts, say_fallback
from train.data.sources import files
from train.data.sources.files import Row
from train.devices.compiling import jit_reading
from train.screens.console import Log
from train.screens.finite import checked
from train.settings.predict import PredictOptions
from train.tasks.attended import text_alone
from train.tasks.classification import softmax
from train.tasks.record import Folder, Prediction, Predictor
from train.tasks.tag import metric, source
from train.tasks.tag.loss import outputs
from train.tasks.tag.metric import Entity
from train.tasks.tag.rows import Sentences, split
from train.text import tokenize
from train.text.words import Word, basic_words, joined_words


class Query(NamedTuple):
    """A text to tag.

    source: the text or the words as they were, under "text" or "tokens"
    words: its words and their places
    lines: of a CoNLL file, the lines of the words, and the comments and lines of -DOCSTART- before them
    in_file: it is one of many, and a blank line ends what is written about it
    """

    source: Mapping[str, Any]
    words: list[Word]
    lines: Sequence[str] = ()
    before: Sequence[str] = ()
    in_file: bool = False

    @classmethod
    def of(cls, row: Row, in_file: bool = False) -> "Query":
        """The query of a row with "text" or "tokens" (`train.tasks.tag.source`)."""
        if "text" in row:
            return cls({"text": row["text"]}, basic_words(row["text"]), in_file=in_file)
        words = joined_words(row["tokens"])
        return cls({"tokens": row["tokens"]}, words, row.get("lines", ()), row.get("before", ()), in_file)


def inputs(options: PredictOptions, folder: Folder) -> list[Query]:
    """The texts to tag: a text, the lines of a .txt, or the sentences of a file in a format of the training data."""
    if options.text:
        return [Query.of({"text": options.text})]
    data = folder.config.data
    if files.ending(Path(options.file), data) == ".txt":
        return [Query.of({"text": line}, in_file=True) for line in files.read_lines(Path(options.file))]
    rows = files.read(Path(options.file), data, source.TaggedWords(options.field or data.field))
    return [Query.of(row, in_file=True) for row in rows]


def tagged(query: Query, names: Sequence[str], logits: np.ndarray) -> Prediction:
    """logits [words,C] -> the entities of a text, or the lines of a CoNLL file with a column of labels more.

    The probability of an entity is the mean of those of its words' labels; float64. Where labels mark no entities,
    every word stands for itself.
    """
    probabilities = softmax(logits).max(-1)
    tags = [names[label] for label in logits.argmax(-1)]
    text = query.source.get("text") or " ".join(query.source.get("tokens", ()))
    members = []
    for entity in _members(tags, names):
        start, end = query.words[entity.start].start, query.words[entity.end - 1].end
        probability = float(probabilities[entity.start : entity.end].mean())
        place = {"type": entity.type, "text": text[start:end], "start": start, "end": end}
        members.append({**place, "probability": probability})
    row = {**query.source, "entities": members}
    if "tokens" in row:
        row["tags"] = tags
    return Prediction(_block(query, tags) if query.lines else _lines(query, members), row)


def _members(tags: Sequence[str], names: Sequence[str]) -> list[Entity]:
    """The entities of tags, or every word that has a label where labels mark no entities."""
    if metric.marks_entities(names):
        return metric.entities(tags)
    return [Entity(label, n, n + 1) for n, label in enumerate(tags) if label != metric.OUTSIDE]


def _block(query: Query, tags: Sequence[str]) -> str:
    """The lines of a sentence with a column more."""
    tab = "\t" if "\t" in query.lines[0] else " "
    before = [f"{line}{tab}{metric.OUTSIDE}\n" if line.startswith(source.DOCUMENT) else line for line in query.before]
    words = [f"{line}{tab}{label}" for line, label in zip(query.lines, tags, strict=True)]
    return "\n".join([*before, *words, ""])


def _lines(query: Query, members: Sequence[Mapping[str, Any]]) -> str:
    """A line for each entity: type, text, first character, the one after the last, probability."""
    lines = [
        "\t".join(
            [
                member["type"],
                " ".join(member["text"].split()),
                str(member["start"]),
                str(member["end"]),
                f"{member['probability']:.4f}",
            ]
        )
        for member in members
    ]
    return "\n".join([*lines, ""] if lines and query.in_file else lines)


def marked(words: Sequence[str], tags: Sequence[str]) -> str:
    """A sentence with its entities in brackets: [PER Ada Byron] wrote. Other labels stand behind their words."""
    if not metric.marks_entities([*tags, "B"]):
        return " ".join(f"{word}/{label}" for word, label in zip(words, tags, strict=True))
    shown = list(words)
    for entity in metric.entities(tags):
        shown[entity.start] = f"[{entity.type} {shown[entity.start]}"
        shown[entity.end - 1] += "]"
    return " ".join(shown)


def predict(params: tfm.Tagger, folder: Folder, queries: Sequence[Query], log: Log, batch: int) -> Iterator[Prediction]:
    """The labels of the words of each text."""
    run, tokenizer = folder.config, folder.processor
    names = folder.facts["classes"] or [f"LABEL_{index}" for index in range(run.model.classes)]
    say_fallback(run.model, log)
    logits_of = partial(checked, _logits, params, run.model)
    words = [[word.text for word in query.words] for query in queries]
    pieces = split(tokenizer, words, log, "texts")
    special, unknown = tokenize.special_tokens(tokenizer), [np.zeros(len(sentence), np.int32) for sentence in words]
    rows = Sentences(words, unknown, pieces, special, run.batch.length, run.task.stride, fit=True)
    parts: list[np.ndarray] = []
    with log.progress("tagging", len(rows)) as advance:
        for block in blocks(len(rows), batch):
            logits = read_texts(logits_of, run.model, rows, block, batch, advance)["logits"]
            for row, row_logits in zip(block, logits, strict=True):
                parts.append(row_logits[rows.places(row)[1]])
                sentence = rows.windows.texts[row]
                if row + 1 == len(rows) or rows.windows.texts[row + 1] != sentence:
                    yield tagged(queries[sentence], names, np.concatenate(parts))
                    parts = []


@jit_reading(1)
def _logits(params, model: tfm.Config, batch):
    return {"logits": outputs(params, model, batch, None).logits}


PREDICTOR = Predictor(("field",), inputs, predict, text_alone)

"""Tasks of pairs of sentences: paraphrases, entailment, and scores of how near they are."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from train import UserError
from train.lab.sentences.rows import (
    Dataset,
    SentenceRows,
    check_classes,
    class_number,
    class_of,
    classified_pairs,
    lines,
    ordered_pairs,
    score,
    sentence,
    table,
    three_parts,
    word_count,
)


def read_mrpc(train: Path, test: Path) -> Dataset:
    """Tables of Microsoft Research: label, two ids, two sentences; the first line names them."""

    def rows(path: Path) -> list[tuple[str, str, int]]:
        return [
            (sentence(cells[3]), sentence(cells[4]), class_number(cells[0], 2, where))
            for where, cells in table(path, 5, header=True)
        ]

    return Dataset({"train": classified_pairs(rows(train), train), "test": ordered_pairs(rows(test), int)}, 2)


def read_sick_entailment(train: Path, dev: Path, test: Path) -> Dataset:
    """CONTRADICTION, NEUTRAL or ENTAILMENT of the pairs of SICK."""
    codes = {"CONTRADICTION": 0, "NEUTRAL": 1, "ENTAILMENT": 2}

    def rows(path: Path) -> SentenceRows:
        return ordered_pairs([(a, b, class_of(cells[4], codes, where)) for a, b, cells, where in _sick(path)], int)

    parts = {"train": rows(train), "dev": rows(dev), "test": rows(test)}
    check_classes(parts["train"].labels, train)
    return Dataset(parts, 3)


def read_sick_relatedness(train: Path, dev: Path, test: Path) -> Dataset:
    """Scores from 1 to 5 of the pairs of SICK."""

    def rows(path: Path) -> SentenceRows:
        return ordered_pairs([(a, b, score(cells[3], (1, 5), where)) for a, b, cells, where in _sick(path)], float)

    return Dataset({"train": rows(train), "dev": rows(dev), "test": rows(test)}, 0)


def read_sts_benchmark(train: Path, dev: Path, test: Path | None) -> Dataset:
    """Tables with a score from 0 to 5 in column 5 and sentences in columns 6 and 7; no header."""

    def rows(path: Path) -> list[tuple[str, str, float]]:
        return [
            (sentence(cells[5]), sentence(cells[6]), score(cells[4], (0, 5), where)) for where, cells in table(path, 7)
        ]

    labelled = [rows(train), rows(dev)] + ([] if test is None else [rows(test)])
    parts, note = three_parts(labelled)
    return Dataset({name: ordered_pairs(part, float) for name, part in parts.items()}, 0, note)


def read_sts(names: Sequence[str], *paths: Path) -> Dataset:
    """For every source a file of pairs with a tab between, and one of scores; pairs without a score are left out."""
    parts = {}
    for name, pairs, scores in zip(names, paths[::2], paths[1::2], strict=True):
        texts, golds = lines(pairs), lines(scores)
        if len(texts) != len(golds):
            raise UserError(f"{pairs} has {len(texts):,} lines, and {scores} {len(golds):,}; fetch both again")
        rows = []
        for (where, line), (gold_where, gold) in zip(texts, golds, strict=True):
            cells = line.split("\t")
            if len(cells) < 2:
                raise UserError(f"{where} has no tab between two sentences; repair it")
            if gold.strip():
                rows.append((sentence(cells[0]), sentence(cells[1]), score(gold, (0, 5), gold_where)))
        parts[name] = ordered_pairs(rows, float)
    return Dataset(parts, 0)


def read_snli(*paths: Path) -> Dataset:
    """For each part a file of premises, one of hypotheses, and one of labels; sorted by hypotheses first."""
    codes = {"entailment": 0, "neutral": 1, "contradiction": 2}
    parts = {}
    for name, (first, second, label) in zip(
        ("train", "dev", "test"), zip(*[iter(paths)] * 3, strict=True), strict=True
    ):
        columns = [lines(path) for path in (first, second, label)]
        if len({len(column) for column in columns}) > 1:
            raise UserError(f"{first}, {second.name} and {label.name} must have as many lines; fetch them again")
        rows = [
            (sentence(text), sentence(pair), code, class_of(code, codes, where))
            for (_, text), (_, pair), (where, code) in zip(*columns, strict=True)
        ]
        rows.sort(key=lambda row: (word_count(row[1]), word_count(row[0]), row[2]))
        texts, pairs, _, labels = (list(column) for column in zip(*rows, strict=True))
        parts[name] = SentenceRows(texts, np.array(labels), pairs)
    return Dataset(parts, 3)


def _sick(path: Path) -> list[tuple[str, str, list[str], str]]:
    return [(sentence(cells[1]), sentence(cells[2]), cells, where) for where, cells in table(path, 5, header=True)]

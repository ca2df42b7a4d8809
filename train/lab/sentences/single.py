"""Tasks of single sentences: classes of opinions, questions and probing tasks."""

from pathlib import Path

from train import UserError
from train.lab.sentences.rows import (
    Dataset,
    Labelled,
    class_number,
    class_of,
    classified,
    lines,
    ordered,
    sentence,
    with_test,
)


def read_classes(positive: Path, negative: Path) -> Dataset:
    """A file with the sentences of class 1, and one of class 0."""
    sides = [[(sentence(text), label) for _, text in lines(path)] for path, label in ((positive, 1), (negative, 0))]
    return Dataset({"all": classified(sides[0] + sides[1], positive)}, 2)


def read_labelled(path: Path) -> Dataset:
    """Lines that begin with 0 or 1, and a space."""
    return Dataset({"all": classified(_with_labels(path, 2), path)}, 2)


def read_labelled_splits(train: Path, test: Path) -> Dataset:
    """Two files of lines that begin with one of the six classes of TREC, as a number, and a space."""
    return Dataset({"train": classified(_with_labels(train, 6), train), "test": ordered(_with_labels(test, 6))}, 6)


def read_trec(train: Path, test: Path) -> Dataset:
    """Lines such as `DESC:manner How did serfdom develop ?`."""
    kinds = {name: index for index, name in enumerate(("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"))}

    def rows(path: Path) -> list[tuple[str, int]]:
        labelled = []
        for where, line in lines(path):
            kind, _, text = line.partition(":")
            labelled.append((sentence(text.partition(" ")[2]), class_of(kind, kinds, where)))
        return labelled

    return Dataset({"train": classified(rows(train), train), "test": ordered(rows(test))}, 6)


def read_sst2(train: Path, dev: Path, test: Path | None) -> Dataset:
    """Lines of a sentence, a tab and 0 or 1; the header of GLUE is skipped."""

    def rows(path: Path) -> list[tuple[str, int]]:
        labelled = []
        for where, line in lines(path):
            text, _, label = line.partition("\t")
            if (text, label) != ("sentence", "label"):
                labelled.append((sentence(text), class_number(label, 2, where)))
        return labelled

    return with_test(rows(train), rows(dev), None if test is None else rows(test), 2, train)


def read_sst5(train: Path, dev: Path, test: Path) -> Dataset:
    """Lines that begin with a class from 0 to 4, and a space."""
    rows = [_with_labels(path, 5) for path in (train, dev, test)]
    return with_test(rows[0], rows[1], rows[2], 5, train)


def read_probing(path: Path) -> Dataset:
    """Lines of a part (tr, va, te), a label, ..., a sentence, with tabs between; classes are sorted labels."""
    by_part: dict[str, list[tuple[str, str, str]]] = {"tr": [], "va": [], "te": []}
    for where, line in lines(path):
        cells = line.split("\t")
        if len(cells) < 3 or cells[0] not in by_part:
            raise UserError(f"{where} must have tr, va or te, a label and a sentence, with tabs between; repair it")
        by_part[cells[0]].append((sentence(cells[-1]), cells[1], where))
    codes = {label: index for index, label in enumerate(sorted({label for _, label, _ in by_part["tr"]}))}
    train, dev, test = (
        [(text, class_of(label, codes, where)) for text, label, where in rows] for rows in by_part.values()
    )
    return with_test(train, dev, test, len(codes), path)


def _with_labels(path: Path, classes: int) -> Labelled:
    rows = []
    for where, line in lines(path):
        label, _, text = line.partition(" ")
        rows.append((sentence(text), class_number(label, classes, where)))
    return rows

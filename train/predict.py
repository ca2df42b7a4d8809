"""Labels of texts from a trained classifier: `python -m train.predict --run=DIR --text=TEXT | --file=IN [--to=OUT]`."""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from train import UserError, exit_code
from train.files.lines import line_writer
from train.runs.folder import open_folder
from train.settings import flags, schema

USAGE = """usage: python -m train.predict --run=DIR --text=TEXT [--pair=TEXT] | --file=IN [--to=OUT]

Prints the label and its probability, separated by a tab, for the text or for each line of the file. IN is a .txt with a
text a line (or a pair, with a tab between), or a .tsv, .csv or .jsonl with the columns of the run's training data. If
OUT ends in .jsonl, its lines are objects with the probabilities of all classes."""


@dataclasses.dataclass(frozen=True)
class Options:
    """What to classify.

    run: the run folder of a classifier
    text: a text
    pair: the second text of a pair
    file: a file of texts
    to: the file to write to; by default stdout
    field: the text column of the file, if it has another name than in the training data
    batch: texts at a time
    """

    run: str = ""
    text: str = ""
    pair: str = ""
    file: str = ""
    to: str = ""
    field: str = ""
    batch: int = 32

    def __post_init__(self):
        if not self.run:
            raise ValueError("run=DIR must name the run folder of a classifier")
        if bool(self.text) == bool(self.file):
            raise ValueError("text=TEXT or --file=IN must say what to classify, one of the two")
        if self.batch < 1:
            raise ValueError(f"batch={self.batch} must be at least 1")


def main(argv=None) -> int:
    """The command; returns its exit code."""
    return exit_code(predict, argv)


def predict(argv):
    """Loads a model and classifies."""
    options = flags.options(Options, USAGE, argv)
    if options is None:
        return
    folder = open_folder(options.run)
    run = folder.config
    if not folder.task.CAN_PREDICT:
        raise UserError(
            f"--run={options.run} was trained for --task={run.task.name}, not for classify; "
            "fine-tune it with --init first"
        )
    columns = (options.field or run.data.field).split(",")
    texts = _texts(options, run.data, columns)

    from train.reporting.console import Log

    log = Log()
    params = folder.load(log=log.info)
    guesses = folder.task.predict(params, run, folder.processor, folder.facts["classes"], texts, log, options.batch)
    with line_writer(options.to) as write:
        for text, guess in zip(texts, guesses, strict=True):
            if options.to.endswith(".jsonl"):
                row = dict(zip(columns, text, strict=True))
                row |= {"label": guess.label, "probabilities": guess.probabilities}
                write(json.dumps(row, ensure_ascii=False))
            else:
                write(f"{guess.label}\t{guess.probability}".rstrip("\t"))


def _texts(options: Options, data: schema.Data, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """The texts or pairs to classify, empty lines included: every line gets a label."""
    texts: list[tuple[str, ...]]
    if options.text:
        texts = [(options.text, options.pair) if options.pair else (options.text,)]
    elif options.file.removesuffix(".gz").endswith(".txt"):
        from train.data.sources import files

        texts = [tuple(line.split("\t")) for line in files.read_lines(Path(options.file))]
    else:
        from train.data.sources import files, sources

        rows = files.read(Path(options.file), data, sources.Columns(tuple(columns)))
        texts = [tuple(row[name] for name in columns) for row in rows]
    for row, text in enumerate(texts, start=1):
        if len(text) != len(columns):
            pair = "two texts with a tab between, or --text and --pair"
            remedy = pair if len(columns) == 2 else "one text, without a tab"
            raise UserError(f"text {row} has {len(text)} parts; this run classifies {remedy}")
    return texts


if __name__ == "__main__":
    sys.exit(main())

"""What a trained classifier makes of new texts: `python -m train.predict --run=DIR --text=TEXT | --file=IN [--to=OUT]`."""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from train import UserError, exit_code
from train.files import lines
from train.runs import folder as folders
from train.settings import flags, schema

USAGE = """usage: python -m train.predict --run=DIR --text=TEXT [--pair=TEXT] | --file=IN [--to=OUT]

Prints the label and its probability, separated by a tab, for the text or for each line of the file, in its order. IN is a .txt (a text a
line; of pairs, two with a tab between), or a .tsv, .csv or .jsonl with the columns of the run's training data. Where OUT ends in .jsonl,
its lines are objects with the probabilities of all classes."""


@dataclasses.dataclass(frozen=True)
class Options:
    """What to classify.

    run: the run folder of a classifier
    text: a text
    pair: the second text of a pair
    file: a file of texts
    to: where to write what is found; by default on stdout
    field: the text column of the file, where it is not called as in the training data
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
    """Loads a run and classifies."""
    from train.runs import pretrained

    options = flags.options(Options, USAGE, argv)
    if options is None:
        return
    run = flags.build(schema.Run, folders.read(options.run))
    if run.task.name != "classify":
        raise UserError(
            f"--run={options.run} was trained for --task={run.task.name}, not for classify; fine-tune it with --init first"
        )
    columns = (options.field or run.data.field).split(",")
    texts = _texts(options, run.data, columns)

    from train.reporting.console import Log
    from train.tasks import classify

    log = Log()
    trained = pretrained.load(options.run, say=log.info)
    with lines.lines(options.to) as write:
        guesses = classify.predict(
            trained.params, run, trained.processor, trained.facts["classes"], texts, log, options.batch
        )
        for number, guess in enumerate(guesses):
            if options.to.endswith(".jsonl"):
                row = dict(zip(columns, texts[number], strict=True))
                write(
                    json.dumps(row | {"label": guess.label, "probabilities": guess.probabilities}, ensure_ascii=False)
                )
            else:
                write(f"{guess.label}\t{guess.probability}".rstrip("\t"))


def _texts(options: Options, data: schema.Data, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """The texts or pairs to classify, empty lines among them: every line has its answer."""
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
    for number, text in enumerate(texts, start=1):
        if len(text) != len(columns):
            wanted = (
                "two texts with a tab between, or --text and --pair" if len(columns) == 2 else "one text, without a tab"
            )
            raise UserError(f"text {number} has {len(text)} parts; this run classifies {wanted}")
    return texts


if __name__ == "__main__":
    sys.exit(main())

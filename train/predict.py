"""What a trained model says: `python -m train.predict --run=DIR --text=TEXT | --file=IN [--to=OUT]`."""

import dataclasses
import sys

from tfm.options.choices import check_fields, check_maximum, check_minimum
from train import UserError, exit_code
from train.files.lines import line_writer
from train.files.strict_json import json_text
from train.runs.run_folder import open_folder
from train.runs.weights import Weights, as_weights
from train.settings import flags, resolve
from train.settings.limits import MAX_ROWS

USAGE = """usage: python -m train.predict --run=DIR [--to=OUT]
                               --text=TEXT [--pair=TEXT | --question=TEXT | --choices=A|B] | --file=IN

Prints what the model predicts for the text, or for every line or row of the file. A masked language model fills the
blanks of --text="The [MASK] sat."; a language model says the perplexity of a token, and bits a byte; a translation
model translates. IN has the format of the run's training data, or is a .txt with a text a line (of a classifier also a
pair, with a tab between). --data.field=NAME, --data.header=false, --data.format=text and the like say how to read it.
If OUT ends in .jsonl, its lines are objects, with probabilities. Of --task=image IN is a picture, a folder or a glob; a
line is a file, its class, probability; a model of pictures and captions chooses from --labels='a cat,a dog', each
in the text --template='a photo of {}'. Of --task=tag a line is an entity: type, text, first character, the one after
its last, probability; a .txt or .jsonl may hold texts, and a .conll comes back with a column more."""


@dataclasses.dataclass(frozen=True)
class Options:
    """What to predict.

    run: the run folder
    text: a text
    pair: the second text of a pair (classify)
    choices: the continuations to choose from, with | between (choice)
    question: the question about the text (span)
    file: a file of texts
    to: the file to write to; by default stdout
    field: the text column of the file, if it has another name than in the training data
    attention: a folder for pictures of where the model looks (image)
    labels: labels to choose from, with commas between, or a .txt with a line each (contrast of pictures and captions)
    template: a text with {} in the place of a label; several with | between, or in a .txt: their vectors are averaged
    batch: texts at a time
    weights: trained | int8: kernels and tables in eight bits; train.evaluate says what it costs
    top_k: tokens for each blank (mlm)
    """

    run: str = ""
    text: str = ""
    pair: str = ""
    choices: str = ""
    question: str = ""
    file: str = ""
    to: str = ""
    field: str = ""
    attention: str = ""
    labels: str = ""
    template: str = ""
    batch: int = 32
    weights: Weights = "trained"
    top_k: int = 5

    def __post_init__(self):
        if not self.run:
            raise ValueError("run=DIR must name the run folder of a model that predicts")
        if bool(self.text) == bool(self.file):
            raise ValueError("text=TEXT or --file=IN must say what to predict for, one of the two")
        check_fields(self)
        check_minimum(self, batch=1, top_k=1)
        check_maximum(self, "its rows must fit into memory", batch=MAX_ROWS)


# Flags that every task that predicts reads.
COMMON = {"run", "text", "file", "to", "batch", "weights"}


def main(argv=None) -> int:
    """The command; returns its exit code."""
    return exit_code(predict, argv)


def predict(argv):
    """Loads a model and predicts."""
    changes, argv = resolve.split_data_flags(argv)
    options = flags.options(Options, USAGE, argv)
    if options is None:
        return
    folder = open_folder(options.run, changes)
    _check(options, folder, set(flags.explicit_options(options, argv)))
    inputs = folder.task.inputs(options, folder)

    from train.devices import capacity
    from train.screens.console import Log

    log = Log()
    capacity.check_tokens(folder.config.model, options.batch * folder.config.row_tokens)
    params = as_weights(options.weights, folder, folder.load(log=log.info), log)
    predictions = folder.task.predict(params, folder, inputs, log, options.batch)
    with line_writer(options.to) as write:
        for prediction in predictions:
            as_object = options.to.endswith(".jsonl")
            write(json_text(prediction.row) if as_object else prediction.line)


def _check(options: Options, folder, explicit: set[str]):
    """Raises UserError for a task that predicts nothing, and for flags of another task."""
    task = folder.config.task.name
    if folder.task.PREDICT_FLAGS is None:
        raise UserError(
            f"--run={options.run} was trained for --task={task}, which predicts nothing of texts; "
            "fine-tune it for another task with --init first"
        )
    foreign = sorted(explicit - COMMON - set(folder.task.PREDICT_FLAGS))
    if foreign:
        flag = foreign[0].replace("_", "-")
        raise UserError(f"--{flag} is no flag of --task={task}, for which {options.run} was trained; leave it out")


if __name__ == "__main__":
    sys.exit(main())

"""What a trained model says: `python -m train.predict --run=DIR --text=TEXT | --file=IN [--to=OUT]`."""

from train import interruption

if __name__ == "__main__":
    interruption.install()

import sys
from typing import TYPE_CHECKING

from train import UserError, exit_code
from train.files.lines import line_writer
from train.files.strict_json import json_text
from train.runs.hf_folder import HfFolder
from train.runs.languages import open_for
from train.runs.run_folder import RunFolder
from train.runs.weights import as_weights
from train.settings import flags
from train.settings.predict import PredictOptions
from train.tasks import resolve

if TYPE_CHECKING:
    from tfm.params import PyTree
    from train.screens.console import Log
    from train.tasks.record import AttendedRow, Predictor

USAGE = """usage: python -m train.predict --run=DIR [--to=OUT]
                               --text=TEXT [--pair=TEXT | --question=TEXT | --choices=A|B] | --file=IN

Prints what the model predicts for the text, or for every line or row of the file. A masked language model fills the
blanks of --text="The [MASK] sat."; a language model says the perplexity of a token, and bits a byte; a translation
model translates. IN has the format of the run's training data, or is a .txt with a text a line (of a classifier also a
pair, with a tab between). --data.field=NAME, --data.header=false, --data.format=text and the like say how to read it.
If OUT ends in .jsonl, its lines are objects, with probabilities. Of --task=image IN is a picture, a folder or a glob; a
line is a file, its class, probability; a model of pictures and captions chooses from --labels='a cat,a dog', each
in the text --template='a photo of {}'. Of --task=tag a line is an entity: type, text, first character, the one after
its last, probability; a .txt or .jsonl may hold texts, and a .conll comes back with a column more.
Of a model of texts, --attention=FILE.html makes a page of where it looks in --text, to be turned to a layer, a head and
a word; FILE.png a picture of all heads."""


# Flags that every task that predicts reads.
COMMON = {"run", "text", "file", "to", "batch", "weights"}


def main(argv=None) -> int:
    """The command; returns its exit code."""
    return exit_code(predict, argv)


def predict(argv):
    """Loads a model and predicts."""
    changes, argv = resolve.split_data_flags(argv)
    options = flags.options(PredictOptions, USAGE, argv)
    if options is None:
        return
    folder = open_for(options, changes)
    predictor = _predictor(options, folder, set(flags.explicit_options(options, argv)))
    inputs = predictor.inputs(options, folder)

    from train.devices import capacity
    from train.screens.console import Log
    from train.text import control_tokens

    log = Log()
    if options.attention and predictor.attended:
        from train.attention import pictures

        pictures.check(options.attention, options.text)
    capacity.check_tokens(folder.config.model, options.batch * folder.config.row_tokens)
    params = as_weights(options.weights, folder, folder.load(log=log.info), log)
    predictions = predictor.predict(params, folder, inputs, log, options.batch)
    with control_tokens.reading(folder.config.data.control_tokens), line_writer(options.to) as write:
        if options.attention and predictor.attended:
            _draw_attention(options, predictor.attended(options, folder), folder, params, log)
        for prediction in predictions:
            as_object = options.to.endswith(".jsonl")
            write(json_text(prediction.row) if as_object else prediction.line)


def _draw_attention(
    options: PredictOptions, row: "AttendedRow", folder: RunFolder | HfFolder, params: "PyTree", log: "Log"
):
    """Draws where the model looks in a row."""
    from train.attention import maps, pictures

    shown = maps.attention_maps(params, folder, row, log)
    pictures.save(options.attention, f"{folder.config.task.name}: {options.text}", shown)
    log.info(f"saved in {options.attention}: {len(shown[0].layers)} layers, {len(shown[0].queries)} tokens")


def _predictor(options: PredictOptions, folder: RunFolder | HfFolder, explicit: set[str]) -> "Predictor":
    """How the task of a folder predicts. Raises UserError where it predicts nothing, and for flags of another task."""
    task, predictor = folder.config.task.name, folder.task.predictor
    if predictor is None:
        raise UserError(
            f"--run={options.run} was trained for --task={task}, which predicts nothing of texts; "
            "fine-tune it for another task with --init first"
        )
    read = COMMON | set(predictor.flags) | ({"attention"} if predictor.attended else set())
    foreign = sorted(explicit - read)
    if foreign:
        flag = foreign[0].replace("_", "-")
        raise UserError(f"--{flag} is no flag of --task={task}, for which {options.run} was trained; leave it out")
    return predictor


if __name__ == "__main__":
    sys.exit(main())

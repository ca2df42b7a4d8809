"""Pages of where a model looks in a text: `train.attention` draws them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from tfm.params import PyTree
from train import UserError
from train.attention import maps, pictures
from train.lab.serve.engine import Content, Said
from train.runs.hf_folder import HfFolder
from train.runs.run_folder import RunFolder
from train.screens.console import Log
from train.settings.gate import user_errors
from train.settings.predict import PredictOptions
from train.tasks.record import AttendedRow
from train.text import control_tokens

# The row of tokens whose attention is drawn (`train.tasks.record.Predictor`).
Attended: TypeAlias = Callable[[PredictOptions, RunFolder | HfFolder], AttendedRow]


def looking(params: PyTree, folder: RunFolder | HfFolder) -> dict[str, Callable[[list[Content]], Sequence[Said]]]:
    """The ability to show attention, if the task of a folder has it."""
    predictor = folder.task.predictor
    if predictor is None or predictor.attended is None:
        return {}
    return {"look": partial(_pages, predictor.attended, params, folder)}


def _pages(attended: Attended, params: PyTree, folder: RunFolder | HfFolder, texts: list[Content]) -> list[Said]:
    """A page for each text, or pair of texts. Raises UserError for one without tokens."""
    pages = []
    for parts in texts:
        if not parts[0]:
            raise UserError("the text is empty; send some words")
        with user_errors():
            options = PredictOptions(run=str(folder.path), text=parts[0], pair="".join(parts[1:]))
        with control_tokens.reading(folder.config.data.control_tokens):
            row = attended(options, folder)
            if not len(row.tokens):
                raise UserError("the text has no tokens; send some words")
            shown = maps.attention_maps(params, folder, row, Log(quiet=True))
        pages.append(pictures.page(parts[0], shown))
    return pages

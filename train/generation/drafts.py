"""The draft that `--draft` names: another run, or what has followed the same tokens in the text."""

from typing import TYPE_CHECKING

import tfm
from tfm.catalogue.decoding.speculation import AHEAD
from train import UserError
from train.runs.hf_folder import HfFolder
from train.runs.run_folder import RunFolder, open_folder
from train.text import tokenize

if TYPE_CHECKING:
    from train.screens.console import Log


NGRAM = "ngram"


def load(name: str, folder: RunFolder | HfFolder, log: "Log") -> tfm.NGram | tfm.DraftModel:
    """The draft of a name, `ngram` or a run folder, for the model of a folder.

    Raises UserError where it does not fit.
    """
    if name == NGRAM:
        return tfm.NGram()
    draft = open_folder(name)
    if draft.task.generates != "continuation":
        raise UserError(
            f"--draft={name} was trained for --task={draft.config.task.name}, which continues no text; "
            "name a run of --task=lm, or --draft=ngram"
        )
    if tokenize.fingerprint(draft.processor) != tokenize.fingerprint(folder.processor):
        raise UserError(
            f"--draft={name} has another tokenizer than --run={folder.path}; train it with --tokenizer.path of that run"
        )
    model = tokenize.writing_model(draft.config.decoding_model, draft.processor)
    return tfm.DraftModel(draft.load(log=log.info), model)


def max_length(limit: int | None, draft: tfm.NGram | tfm.DraftModel | None) -> int | None:
    """The positions for a text: the fewest of both models, without those that a draft looks ahead."""
    if draft is None:
        return limit
    limits = [limit, draft.config.max_length if isinstance(draft, tfm.DraftModel) else None]
    return min((positions - AHEAD for positions in limits if positions is not None), default=None)

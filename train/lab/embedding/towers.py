"""Texts and pictures as vectors of one space, by a model with a tower for each."""

from collections.abc import Mapping, Sequence
from typing import final

import numpy as np

from train import UserError
from train.lab.embedding.folder import FolderEncoder, Pooling
from train.runs.hf_folder import HfFolder
from train.runs.run_folder import RunFolder, open_folder
from train.text import control_tokens


@final
class TowersEncoder:
    """`encoder(items)` -> float32 [N,D] of length 1; an item is a text or a picture (`train.images.sources.Picture`).

    Raises UserError for a pooling, which towers have of their own, and for a picture that is broken.
    """

    def __init__(self, folder: RunFolder | HfFolder, pooling: Pooling, log):
        if pooling != Pooling():
            raise UserError(
                f"--run={folder.path} has towers of texts and pictures, which make one vector of each; leave --pool, "
                "--layer, --length and --expand out"
            )
        assert folder.task.encode_items is not None, "towers read items"
        self.folder, self.encode, self.log = folder, folder.task.encode_items, log
        self.params = folder.load(log=log.info)

    def prompted(self, prompt: str | None) -> "TowersEncoder":
        """This encoder: towers have no prompts."""
        return self

    def __call__(self, items: Sequence[object]) -> np.ndarray:
        """The vector of each item."""
        with control_tokens.reading(self.folder.config.data.control_tokens):
            return self.encode(self.params, self.folder, list(items), self.log)


def folder_encoder(
    path: str, pooling: Pooling, log, pictures: bool, changes: Mapping[str, object]
) -> TowersEncoder | FolderEncoder:
    """The encoder of a folder, with some values of its run changed. Raises UserError where it is to read pictures, and
    reads texts alone."""
    folder = open_folder(path, changes)
    if folder.task.encode_items:
        return TowersEncoder(folder, pooling, log)
    if pictures:
        raise UserError(f"--run={path} reads no pictures with texts; name a run of --task=contrast with --model.images")
    return FolderEncoder(path, pooling, log, changes)

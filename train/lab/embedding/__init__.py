"""Texts as vectors: by a model, or by word vectors; and what is near to what.

from train.embedding import embed

vectors = embed("runs/mlm-bert-tiny-1", ["a cat sat", "it rained"])      # float32 [2,128]
"""

from collections.abc import Sequence

import numpy as np


def embed(folder: str, texts: Sequence[str], pool: str | None = None, layers: Sequence[int] = (-1,)) -> np.ndarray:
    """Texts -> vectors float32 [N,D], of a run folder or a Hugging Face folder.

    pool: mean | first | last | max | ends, over the tokens of a text; None: as the task has it, or the mean. layers:
    0 are embeddings, -1 is the last; the vectors of several are joined. Raises UserError for a folder that holds no
    such model.
    """
    from train.lab.embedding.folder import FolderEncoder, Pooling
    from train.screens.console import Log

    return FolderEncoder(folder, Pooling(pool, tuple(layers)), Log(quiet=True))(texts)

"""Texts as vectors of their tokens, by a run of --task=late, and the exact scores of passages for queries."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import tfm
from tfm.losses.contrast import late_similarities
from tfm.low_rank import merge_low_rank
from train import UserError
from train.lab.embedding.options import TextEncoderOptions
from train.runs.run_folder import open_folder
from train.screens.console import Log
from train.tasks.late.predict import encode
from train.text import control_tokens

# Texts of a batch that is encoded, and passages that meet a query at a time.
_TEXTS, _PASSAGES = 64, 1024


def is_late(options: TextEncoderOptions) -> bool:
    """Whether the folder that options name makes a vector of each token."""
    path = options.runs[0] if options.run and len(options.runs) == 1 else ""
    return bool(path) and Path(path).is_dir() and open_folder(path).config.task.name == "late"


@final
class LateEncoder:
    """Vectors of tokens, float32 [tokens,C] of length 1, of each text. Raises UserError for flags of other encoders."""

    def __init__(self, options: TextEncoderOptions, log: Log):
        plain = TextEncoderOptions(run=options.run)
        names = ("pool", "layer", "length", "expand", "prompt")
        if changed := [name for name in names if getattr(options, name) != getattr(plain, name)]:
            raise UserError(
                f"--{changed[0]}={getattr(options, changed[0])} is of encoders with a vector of each text, and "
                f"{options.run} has one of each token; leave it out"
            )
        self.folder, self.log = open_folder(options.run), log
        self.params = merge_low_rank(self.folder.load(log=log.info))
        self.size = self.folder.config.task.size

    def queries(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Those of queries."""
        return self._encode(texts, True, self.log)

    def passages(self, texts: Sequence[str], log: Log | None = None) -> list[np.ndarray]:
        """Those of passages; `log` shows the progress, by default that of the encoder."""
        return self._encode(texts, False, log or self.log)

    def _encode(self, texts: Sequence[str], is_query: bool, log: Log) -> list[np.ndarray]:
        with control_tokens.reading(self.folder.config.data.control_tokens):
            return encode(self.params, self.folder, texts, is_query, log, _TEXTS)


def nearest_late(
    queries: Sequence[np.ndarray], passages: Sequence[np.ndarray], count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of the tokens of queries [Q,C] and of passages [T,C] -> exact scores float32 [N,count], best first, and
    the rows of passages int [N,count]. Equal ones come in their order."""
    scores = np.concatenate([*_scores(queries, passages)], axis=1)
    rows = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(scores, rows, 1), rows


def _scores(queries: Sequence[np.ndarray], passages: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
    """The scores float32 [N,M] of all queries for blocks of passages."""
    longest = max(map(len, queries))
    asked = np.stack([np.pad(query, ((0, longest - len(query)), (0, 0))) for query in queries])
    for start in range(0, len(passages), _PASSAGES):
        part = passages[start : start + _PASSAGES]
        rows = len(part) if len(part) == _PASSAGES or start == 0 else tfm.bucket(len(part))
        yield np.asarray(_block(asked, _padded(part, rows)))[:, : len(part)]


def _padded(passages: Sequence[np.ndarray], rows: int) -> np.ndarray:
    """Vectors [T,C] of passages -> [rows,T,C]; places without a token have the first vector of their passage."""
    longest = tfm.bucket(max(map(len, passages)))
    padded = np.zeros((rows, longest, passages[0].shape[1]), np.float32)
    for row, vectors in enumerate(passages):
        padded[row, : len(vectors)], padded[row, len(vectors) :] = vectors, vectors[:1]
    return padded


@partial(jax.jit)
def _block(queries: Array, passages: Array) -> Array:
    """queries [N,Q,C], passages [M,T,C] -> [N,M]; memory holds the products of one query."""
    return jax.lax.map(lambda query: late_similarities(query[None], passages)[0], jnp.asarray(queries))

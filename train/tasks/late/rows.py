"""Rows of a query and its passages, and which of their tokens score."""

import string

import numpy as np

from train.settings.schema import Run
from train.tasks.contrast.options import Contrast
from train.tasks.contrast.rows import RowFields, SideRows
from train.tasks.contrast.sides import SideTexts, withheld_of
from train.tasks.late.options import Late
from train.text.special import AnyTokenizer, SpecialTokens


def punctuation(tokenizer: AnyTokenizer) -> np.ndarray:
    """The ids of tokens that are a sign of ASCII punctuation."""
    ids = (tokenizer.token_to_id(sign) for sign in string.punctuation)
    return np.array([token for token in ids if token is not None], np.int32)


def scored_places(tokens: np.ndarray, valid: np.ndarray, skipped: np.ndarray) -> np.ndarray:
    """tokens and valid [...,T] of passages -> which places score, int32 [...,T]: those of tokens that are not
    skipped."""
    return valid * ~np.isin(tokens, skipped)


def cut(tokens: np.ndarray, valid: np.ndarray, length: int, specials: SpecialTokens):
    """Cuts queries [B,T] that are longer at `length`; their last token is then [SEP]."""
    is_longer = valid.sum(1) > length
    tokens[is_longer, length - 1] = specials.sep
    tokens[:, length:], valid[:, length:] = specials.pad, 0


def fill_up(tokens: np.ndarray, valid: np.ndarray, length: int, specials: SpecialTokens) -> np.ndarray:
    """Writes [MASK] behind the tokens of queries [B,T], up to `length`; returns which places score, int32 [B,T]: tokens
    and [MASK]s. These read the query and are not read: `valid` stays.

    A query without tokens has none.
    """
    is_new = (np.arange(tokens.shape[1]) < length) & (valid == 0) & valid.any(1, keepdims=True)
    if specials.mask < 0:
        return valid.copy()
    tokens[is_new] = specials.mask
    return valid | is_new.astype(np.int32)


class LateRows(SideRows):
    """`SideRows` with `scored`, int32 [B,n,T]: the places whose vectors score. Queries are filled up with [MASK]."""

    def __init__(self, side: SideTexts, run: Run[Late]):
        fields = RowFields(None, Contrast(temperature=run.task.temperature), withheld_of(side.examples), side.contents)
        self.query_length, self.cuts_queries = run.task.query_length, run.task.cut_queries
        self.skipped = punctuation(side.tokenizer) if run.task.skip_punctuation else np.zeros(0, np.int32)
        shortest = max(2, self.query_length)
        super().__init__(side.texts, fields, run.batch, side.tokenizer, run.batch.shapes, shortest)

    def batch(self, rows: np.ndarray, rng: np.random.Generator | None = None) -> dict[str, np.ndarray]:
        """The fields of `train.tasks.late.task`."""
        fields = super().batch(rows, rng)
        tokens, valid = fields["tokens"], fields["valid"]
        if self.cuts_queries:
            cut(tokens[:, 0], valid[:, 0], self.query_length, self.specials)
        scored = scored_places(tokens, valid, self.skipped)
        scored[:, 0] = fill_up(tokens[:, 0], valid[:, 0], self.query_length, self.specials)
        return fields | {"scored": scored}

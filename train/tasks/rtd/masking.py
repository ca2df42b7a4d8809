"""Masks of replaced-token detection: which tokens a generator predicts, and which of them it does not see."""

from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer

from train import UserError
from train.tasks.rtd.options import Rtd
from train.text import tokenize
from train.text.special import SpecialTokens

# Predicted tokens that become [MASK] (Clark et al. 2020, `pretrain_helpers.mask`); the others stay.
_MASKED = 0.85


class ReplacementMasker(NamedTuple):
    """Hides tokens of a batch. `rate` and `windows` are options of the task."""

    rate: float
    windows: bool
    specials: SpecialTokens

    @classmethod
    def of(cls, task: Rtd, tokenizer: Tokenizer) -> "ReplacementMasker":
        """The masker of the task's options. Raises UserError for a tokenizer without a mask token."""
        specials = tokenize.special_tokens(tokenizer)
        if specials.mask < 0:
            raise UserError(
                "the tokenizer has no [MASK] or <mask> token to hide tokens behind; start from a masked language model"
            )
        return cls(task.rate, task.masking == "windows", specials)

    def __call__(self, rng: np.random.Generator, fields: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """tokens and segments [B,T] -> the fields with some tokens hidden, and where, targets, weights [B,M] and slots
        [B,T]; M = ceil(rate * T).

        In each row `rate` of the tokens are predicted, counted with the special ones, which never are; and a token at
        least.
        """
        tokens, is_token = fields["tokens"], fields["segments"] > 0
        slots = int(np.ceil(self.rate * tokens.shape[1]))
        candidates = is_token & ~np.isin(tokens, self._never_hidden)
        counts = np.clip(np.rint(self.rate * is_token.sum(1)), 1, slots).astype(np.int64)
        choose = self._of_windows if self.windows else self._anywhere
        ranks, limits = choose(rng, candidates.sum(1), slots)
        in_order = np.argsort(~candidates, axis=1, kind="stable")
        where = np.take_along_axis(in_order, ranks, axis=1)
        is_used = np.arange(slots) < np.minimum(counts, limits)[:, None]
        where = np.where(is_used, where, 0).astype(np.int32)
        is_masked = is_used & (self.windows | (rng.random(where.shape) < _MASKED))
        return fields | {
            "tokens": _put(tokens, where, is_masked, self.specials.mask),
            "where": where,
            "targets": np.take_along_axis(tokens, where, axis=1),
            "weights": is_used.astype(np.float32),
            "slots": _put(np.full_like(tokens, -1), where, is_used, np.arange(slots, dtype=np.int32)),
        }

    @property
    def _never_hidden(self) -> list[int]:
        """Special tokens; ELECTRA may hide the unknown one, DeBERTa not."""
        return [token for token in self.specials if self.windows or token != self.specials.unk]

    def _anywhere(self, rng: np.random.Generator, sizes: np.ndarray, slots: int) -> tuple[np.ndarray, np.ndarray]:
        """Sizes [B] -> ranks [B,M] among as many candidates, drawn with replacement, and how many of them count."""
        ranks = (rng.random((len(sizes), slots)) * sizes[:, None]).astype(np.int64)
        return ranks, np.where(sizes > 0, slots, 0)

    def _of_windows(self, rng: np.random.Generator, sizes: np.ndarray, slots: int) -> tuple[np.ndarray, np.ndarray]:
        """The same with a rank in each window of candidates, the first windows first; the last one may be short."""
        window = max(1, int(1 / self.rate))
        starts = window * np.arange(slots)
        widths = np.clip(sizes[:, None] - starts, 0, window)
        ranks = np.where(widths > 0, starts + (rng.random(widths.shape) * widths).astype(np.int64), 0)
        return ranks, (widths > 0).sum(1)


def _put(values: np.ndarray, where: np.ndarray, chosen: np.ndarray, new: np.ndarray | int) -> np.ndarray:
    """Values [B,T] with `new` at the chosen places `where` [B,M]; of equal places the first counts."""
    padded = np.concatenate([values, values[:, :1]], axis=1)
    places = np.where(chosen, where, values.shape[1])[:, ::-1]
    np.put_along_axis(padded, places, np.broadcast_to(new, where.shape)[:, ::-1].astype(values.dtype), axis=1)
    return padded[:, :-1]

"""Masking: the tokens that a masked language model predicts (Devlin et al. 2018, section 3.1)."""

import dataclasses

import numpy as np
from tokenizers import Tokenizer

from train import UserError
from train.tasks.mlm.options import Mlm
from train.text import tokenize
from train.text.special import SpecialTokens


@dataclasses.dataclass(frozen=True)
class Masker:
    """Hides tokens of a batch.

    rate: share of tokens to predict
    regular: ids of the tokens that are not special
    alphabetic: bool [V], tokens made of letters
    continues: bool [V], tokens that continue a word, to hide whole words; None hides single tokens
    """

    rate: float
    specials: SpecialTokens
    regular: np.ndarray
    alphabetic: np.ndarray
    continues: np.ndarray | None

    @classmethod
    def of(cls, task: Mlm, tokenizer: Tokenizer) -> "Masker":
        """The masker of the task's options. Raises UserError for a tokenizer without a mask token."""
        specials = tokenize.special_tokens(tokenizer)
        if specials.mask < 0:
            raise UserError(
                "the tokenizer has no [MASK] or <mask> token to hide tokens behind; start from a masked language model"
            )
        regular = np.setdiff1d(np.arange(tokenizer.get_vocab_size()), specials)
        continues = tokenize.continues_word(tokenizer) if task.whole_words else None
        return cls(task.rate, specials, regular, tokenize.is_alphabetic(tokenizer), continues)

    def __call__(self, rng: np.random.Generator, fields: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The fields with some `tokens` hidden, and where, targets, weights and words [B,M]."""
        fields = fields | self.hide(rng, fields["tokens"])
        return fields | {"words": fields["weights"] * self.alphabetic[fields["targets"]].astype(np.float32)}

    def hide(self, rng: np.random.Generator, tokens: np.ndarray) -> dict[str, np.ndarray]:
        """tokens [B,T] -> tokens with some hidden, and where, targets, weights [B,M], M = ceil(rate * T).

        In each row `rate` of the tokens that are not special are chosen, at least one: 80 % become [MASK], 10 % a
        random regular token, 10 % stay.
        """
        max_masked = int(np.ceil(self.rate * tokens.shape[1]))
        candidates = ~np.isin(tokens, self.specials)
        counts = np.clip(np.rint(self.rate * np.count_nonzero(candidates, axis=1)), 1, max_masked)[:, None]
        numbers = _random_numbers(rng, candidates)
        if self.continues is None:
            places = _smallest(numbers, max_masked)
        else:
            numbers = np.take_along_axis(numbers, _first_of_word(self.continues[tokens], candidates), axis=1)
            places = np.argsort(numbers, axis=1, kind="stable")
        places_in_row = places[:, :max_masked]
        in_batch = places_in_row + np.arange(len(tokens))[:, None] * tokens.shape[1]
        targets = tokens.ravel()[in_batch]
        chosen = (np.arange(max_masked) < counts) & candidates.ravel()[in_batch]
        if self.continues is not None:
            chosen &= _complete_words(np.take_along_axis(numbers, places, axis=1), counts)[:, :max_masked]
        fate = rng.random(targets.shape)
        replaced = np.where(fate < 0.9, rng.choice(self.regular, targets.shape), targets)
        hidden = np.where(fate < 0.8, self.specials.mask, replaced)
        visible = tokens.copy()
        visible.ravel()[in_batch] = np.where(chosen, hidden, targets)
        where = places_in_row.astype(np.int32)
        return {"tokens": visible, "where": where, "targets": targets, "weights": chosen.astype(np.float32)}


def _random_numbers(rng: np.random.Generator, candidates: np.ndarray) -> np.ndarray:
    """bool [B,T] -> random numbers [B,T] whose last bits are their place in the row; those of candidates are smaller.

    In rows of up to 4,096 places they have 32 bits, of which 20 or more are random.
    """
    dtype = np.uint32 if candidates.shape[1] <= 4096 else np.uint64
    numbers = rng.integers(np.iinfo(dtype).max, size=candidates.shape, dtype=dtype, endpoint=True)
    of_place = _bits_of_place(numbers)
    numbers &= ~of_place
    numbers |= np.arange(candidates.shape[1]).astype(dtype)
    return np.bitwise_or(numbers, ~of_place, out=numbers, where=~candidates)


def _smallest(numbers: np.ndarray, count: int) -> np.ndarray:
    """The places, int64 [B,M], of the `count` smallest random numbers of each row, in their order; `numbers` is lost.

    Numbers are sorted, and not places of numbers: M78.
    """
    numbers.partition(count - 1, axis=1)
    return (np.sort(numbers[:, :count], axis=1) & _bits_of_place(numbers)).astype(np.int64)


def _bits_of_place(numbers: np.ndarray) -> np.unsignedinteger:
    return numbers.dtype.type((1 << (numbers.shape[1] - 1).bit_length()) - 1)


def _first_of_word(continues: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """[B,T] -> the place [B,T] of the first token of each token's word; a special token is a word of its own."""
    begins = ~continues | ~candidates | ~np.roll(candidates, 1, axis=1)
    begins[:, 0] = True
    return np.maximum.accumulate(np.where(begins, np.arange(continues.shape[1]), 0), axis=1)


def _complete_words(words: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Words, runs of equal values [B,T] -> bool [B,T]: ends within counts [B,1], or is the first word."""
    changes = np.ones(words.shape, bool)
    changes[:, :-1] = words[:, 1:] != words[:, :-1]
    ends = np.where(changes, np.arange(1, words.shape[1] + 1), words.shape[1])
    ends = np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]
    return (ends <= counts) | (words == words[:, :1])

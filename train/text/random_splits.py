"""Texts that are split into tokens at random, in training."""

import contextlib
from collections.abc import Iterator

from train import UserError

# The most probable splits of a word that one is drawn from (Kudo 2018, section 4: l).
BEST_SPLITS = 64


@contextlib.contextmanager
def random_splits(tokenizer, dropout: float, sampling: float | None) -> Iterator[None]:
    """Within the context a BPE tokenizer leaves out merges at random (Provilkov et al. 2020), or a Unigram tokenizer
    draws its segmentations (Kudo 2018, section 3.4). Raises UserError for another kind.

    Of all splits, without `nbest_size`, tokenizers draws from other probabilities than the paper's.
    """
    model, kind = tokenizer.model, type(tokenizer.model).__name__
    if dropout and not hasattr(model, "dropout"):
        raise UserError(
            f"--tokenizer.dropout={dropout} leaves out merges, which a {kind} tokenizer has not; "
            "add --tokenizer.kind=bpe"
        )
    if sampling is not None and not hasattr(model, "nbest_size"):
        raise UserError(
            f"--tokenizer.sampling={sampling} draws splits, and a {kind} tokenizer of this version of tokenizers has "
            "one; add --tokenizer.kind=unigram, or install tokenizers 0.23"
        )
    changes = {"dropout": dropout} if dropout else {}
    changes |= {} if sampling is None else {"alpha": sampling, "nbest_size": BEST_SPLITS}
    for name, value in changes.items():
        setattr(model, name, value)
    try:
        yield
    finally:
        for name in changes:
            setattr(model, name, None)

"""Multiple choice: which of several continuations fits a text."""

import jax.numpy as jnp
from jax import Array

from tfm.config.model import Config
from tfm.models.classifier import Classifier, classify
from tfm.sharding import fold_rows, unfold_rows

# The logit of a continuation that is not there: its probability is 0, and all sums stay finite.
ABSENT = -1e9


def score_choices(
    model: Classifier,
    config: Config,
    tokens: Array,
    valid: Array | None = None,
    types: Array | None = None,
    key: Array | None = None,
) -> Array:
    """tokens [B,N,T] of N continuations of a text -> float32 logits [B,N]; their softmax is the probability of each.

    The classifier has one output (Radford et al. 2018, figure 1; Zellers et al. 2018, section 5.1). valid [B,N,T] and
    types [B,N,T] are those of `classify`; a continuation without valid tokens is absent, and has the logit -1e9. A key
    turns dropout on. Raises ValueError for a model with more outputs.
    """
    if config.classes != 1:
        raise ValueError(f"classes={config.classes} must be 1: the score of a continuation")
    valid_rows, type_rows = (None if field is None else fold_rows(field) for field in (valid, types))
    scores = classify(model, config, fold_rows(tokens), valid_rows, type_rows, key)
    return choice_logits(scores, tokens, valid)


def choice_logits(scores: Array, tokens: Array, valid: Array | None = None) -> Array:
    """scores [B*N,1] of rows of tokens [B,N,T] -> logits [B,N]; -1e9 for one without valid [B,N,T] tokens."""
    logits = unfold_rows(scores[:, 0], tokens)
    return logits if valid is None else jnp.where(valid.any(-1), logits, ABSENT)

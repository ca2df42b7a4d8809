"""Contrastive learning: vectors of texts and images, near where they belong together and far where they do not.

Vectors are float32 of length 1. They come in parts [P,B,D], as a batch does that is encoded part by part; the rows of
all parts meet one another. On a mesh every device compares its rows with those of all. A text may have a vector of each
token, [P,B,T,D]: then `late_similarities` stand in place of cosines.

Contents are numbers, int: equal ones are of equal texts or images. A candidate that is equal to the right one or to the
query, or is the right one of an equal query, is no wrong one: it is left out. Of equal wrong ones, one counts.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from tfm.sharding import replicate

# The numbers of the contents of queries [P,B] and of candidates [P,B,N].
Contents = tuple[Array, Array]

# The logit of a candidate that is not there: it has no part in a sum, and all sums stay finite.
ABSENT = -1e9

# The most that logits are multiplied by in CLIP.
MAX_SCALE = 100.0


def in_batch_losses(
    queries: Array, candidates: Array, present: Array, temperature: Array | float, contents: Contents | None = None
) -> tuple[Array, Array]:
    """queries [P,B,D], candidates [P,B,N,D] -> losses [P,B] in nats, and whether the right one is the nearest, bool.

    With vectors of tokens, queries are [P,B,Q,D] and candidates [P,B,N,T,D]. Of row b the right candidate is its first;
    its others, and those of all other rows, are the wrong ones (van den Oord et al. 2018, eq. 4; Gao et al. 2021, eq. 1
    and 5). present [P,B,N] leaves candidates out; temperature is a number, or [P,B]; contents int [P,B] and [P,B,N].
    """
    return _against_all(queries, candidates, present, 1 / temperature, 0.0, _log_sum, contents)


def symmetric_losses(
    first: Array, second: Array, present: Array, log_scale: Array, contents: Array | None = None
) -> tuple[Array, Array]:
    """first and second [P,B,D] -> losses [P,B] in nats, the mean of both directions (Radford et al. 2021, figure 3),
    and whether the right second vector is the nearest to a first one, bool.

    present [P,B] leaves rows out; cosines are multiplied by exp(log_scale), at most `MAX_SCALE`, a scalar; contents int
    [P,B,2] are those of both vectors.
    """
    scale = jnp.minimum(jnp.exp(log_scale), MAX_SCALE)
    kept = present[:, :, None]
    forward, back = (None, None) if contents is None else (_sides(contents), _sides(contents[:, :, ::-1]))
    losses, is_right = _against_all(first, second[:, :, None], kept, scale, 0.0, _log_sum, forward)
    losses_back, _ = _against_all(second, first[:, :, None], kept, scale, 0.0, _log_sum, back)
    return (losses + losses_back) / 2, is_right


def sigmoid_losses(
    first: Array, second: Array, present: Array, log_scale: Array, bias: Array, contents: Array | None = None
) -> tuple[Array, Array]:
    """first and second [P,B,D], present [P,B] -> float32 losses [P,B], and whether the right one is the most similar.

    There is a decision for every pair, whether it belongs together (Zhai et al. 2023, algorithm 1).
    Logits are cosines times exp(log_scale), plus the bias, both scalars. The loss of a row is the sum over its pairs.
    contents int [P,B,2] are those of both vectors.
    """
    sides, kept = None if contents is None else _sides(contents), present[:, :, None]
    return _against_all(first, second[:, :, None], kept, jnp.exp(log_scale), bias, _sum_of_softplus, sides)


def _sides(contents: Array) -> Contents:
    """contents [P,B,2] of rows -> those of queries [P,B], and of their only candidates [P,B,1]."""
    return contents[:, :, 0], contents[:, :, 1:]


def _against_all(
    queries: Array,
    candidates: Array,
    present: Array,
    scale: Array | float,
    bias: Array | float,
    total: Callable[[Array], Array],
    contents: Contents | None,
) -> tuple[Array, Array]:
    """The total over the logits [B,M] of all candidates, less the logit of the right one: losses [P,B], and whether it
    is the largest. Memory holds the logits of one part."""
    wrong = replicate(candidates).reshape(-1, *candidates.shape[3:])
    kept = replicate(present).reshape(1, -1)
    of_rows, of_all = (None, None) if contents is None else _labels(contents, kept)
    scales = jnp.zeros_like(queries.reshape(*present.shape[:2], -1)[:, :, 0]) + scale

    @jax.checkpoint
    def of_part(part: tuple[Array, Array, Array, _Rows | None]) -> tuple[Array, Array]:
        part_queries, right, part_scales, part_labels = part
        cosines = _similarities(part_queries, wrong)
        meets = kept if part_labels is None or of_all is None else _counted(part_labels, of_all, kept)
        logits = jnp.where(meets, cosines * part_scales[:, None] + bias, ABSENT)
        right_logits = _similarities_of_pairs(part_queries, right) * part_scales + bias
        largest = logits.max(-1)
        return total(logits) - right_logits, right_logits >= largest - 1e-5 * jnp.abs(largest)

    return jax.lax.map(of_part, (queries, candidates[:, :, 0], scales, of_rows))


def late_similarities(queries: Array, texts: Array) -> Array:
    """queries [B,Q,D], texts [M,T,D] -> [B,M]: over the tokens of a query, the sum of the largest product with a token
    of the text (Khattab & Zaharia 2020, eq. 3).

    A token of a query that does not count is a vector of zeros; one of a text is a copy of another one of it.
    """
    products = jnp.einsum("BQD,MTD->BMQT", queries, texts, precision="highest")
    return products.max(-1).sum(-1)


def _similarities(queries: Array, candidates: Array) -> Array:
    """queries [B,D] or [B,Q,D], candidates [M,D] or [M,T,D] -> [B,M]."""
    if queries.ndim > 2:
        return late_similarities(queries, candidates)
    return jnp.einsum("BD,MD->BM", queries, candidates, precision="highest")


def _similarities_of_pairs(queries: Array, texts: Array) -> Array:
    """queries [B,D] or [B,Q,D], texts [B,D] or [B,T,D] -> [B], of each query and its text."""
    if queries.ndim > 2:
        return jnp.einsum("BQD,BTD->BQT", queries, texts, precision="highest").max(-1).sum(-1)
    return (queries * texts).sum(-1)


class _Rows(NamedTuple):
    """The contents of the queries [P,B] of rows and of their candidates [P,B,N], and the place of the first one among
    all candidates [P,B]."""

    query: Array
    candidates: Array
    place: Array


class _Candidates(NamedTuple):
    """Of all candidates [1,M]: their contents, the contents of the queries that they are right for, -1 for none, and
    whether they are present and no equal one is before them."""

    query: Array
    candidate: Array
    is_first: Array


def _labels(contents: Contents, kept: Array) -> tuple[_Rows, _Candidates]:
    """The contents of queries [P,B] and candidates [P,B,N], kept bool [1,M] -> those of rows, and of all candidates."""
    queries, candidates = contents
    parts, rows, count = candidates.shape
    places = count * jnp.arange(parts * rows).reshape(parts, rows)
    owners = jnp.where(jnp.arange(count) == 0, replicate(queries)[:, :, None], -1).reshape(1, -1)
    of_all = replicate(candidates).reshape(1, -1)
    return _Rows(queries, candidates, places), _Candidates(owners, of_all, kept & _is_first(of_all, kept))


def _counted(rows: _Rows, candidates: _Candidates, kept: Array) -> Array:
    """rows [B], candidates and kept [1,M] -> bool [B,M]: the candidates that a row compares with its right one, and it.

    Of equal ones, its own counts, or the first of all.
    """
    count = rows.candidates.shape[-1]
    query, first, right = rows.query[:, None], rows.place[:, None], rows.candidates[:, :1]
    places = jnp.arange(kept.shape[1])[None]
    is_own = (places >= first) & (places < first + count)
    is_right = (candidates.candidate == right) | (candidates.candidate == query) | (candidates.query == query)
    is_equal = is_right
    for index in range(1, count):
        is_equal |= candidates.candidate == rows.candidates[:, index, None]
    return (candidates.is_first & ~is_equal) | (kept & is_own & (~is_right | (places == first)))


def _is_first(contents: Array, kept: Array) -> Array:
    """contents and kept [1,M] -> bool [1,M]: no kept candidate before has this content."""
    keys = jnp.where(kept, contents, -1)[0]
    order = jnp.argsort(keys, stable=True)
    ranked = keys[order]
    is_new = jnp.concatenate([jnp.ones(1, bool), ranked[1:] != ranked[:-1]])
    return jnp.zeros_like(is_new).at[order].set(is_new)[None]


def _log_sum(logits: Array) -> Array:
    """What the cross-entropy of a softmax adds to the right logit, with its sign changed."""
    return jax.nn.logsumexp(logits, axis=-1)


def _sum_of_softplus(logits: Array) -> Array:
    """The term of `_log_sum` for independent decisions: log(1 + e^x) - log(1 + e^-x) is x, for the positive pair."""
    return jax.nn.softplus(logits).sum(-1)

"""Score biases: small objects that change the attention scores of query positions i for key positions j."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array


class ScoreBias:
    """`bias(i, j)`: query positions i [B or 1, T], key positions j [B or 1, S] -> float32 [B or 1, K, G, T, S], added
    to the scores.

    Positions are consecutive, those of queries and those of keys. A subclass that does more than add overrides `apply`;
    one that also changes the weighted sum of values overrides `values`.
    """

    # Whether it can be evaluated at some positions; otherwise its arrays belong to all positions of the sequence.
    blockwise = True
    # Whether each of its arrays has the batch, or size 1, as its first axis; otherwise none has the batch.
    batched = False

    def __call__(self, i: Array, j: Array) -> Array:
        """i [B or 1, T], j [B or 1, S] -> float32 [B or 1, K, G, T, S]: what is added to the scores."""
        raise NotImplementedError

    def apply(self, scores: Array, i: Array, j: Array) -> Array:
        """scores [B,K,G,T,S] of query positions i [B or 1, T] and key positions j [B or 1, S] -> the biased scores,
        float32."""
        return scores + self(i, j)

    def values(self, weights: Array, i: Array, j: Array) -> Array | None:
        """weights [B,K,G,T,S] -> a term [B,T,K,G,H] of the weighted sum of values (Shaw et al. 2018, eq. 3); None for
        most biases."""
        return None

    def for_keys(self, keys: Array) -> "ScoreBias":
        """The bias of the same queries for the keys [B,S,K,H] of a decode state; most biases know no keys."""
        return self

    def for_queries(self, start: Array | int, count: int) -> "ScoreBias | None":
        """The bias of `count` queries from index `start` on, for all keys; None if its arrays cannot be cut so."""
        return self if self.blockwise else None

    def has_rows(self) -> "ScoreBias":
        """This tree with a truth value for each array: the batch is its first axis."""
        return jax.tree.map(lambda leaf: self.batched, self)

    @property
    def adds_values(self) -> bool:
        """Whether `values` returns an array."""
        return type(self).values is not ScoreBias.values

    def dense(self, queries: int, keys: int | None = None) -> Array:
        """The bias [B or 1, K, G, T, S] of all positions; by default there are as many keys as queries."""
        return self(jnp.arange(queries)[None], jnp.arange(keys or queries)[None])


@struct.dataclass
class FollowingBias(ScoreBias):
    """Abstract: a bias that changes what another bias, or none, has made of the scores; `batched` is of its arrays."""

    bias: ScoreBias | None

    def change(self, scores: Array, i: Array, j: Array) -> Array:
        """Scores with the other bias -> scores with both; see `apply`."""
        raise NotImplementedError

    def has_rows(self):
        own = jax.tree.map(lambda leaf: self.batched, replace(self, bias=None))
        return replace(own, bias=None if self.bias is None else self.bias.has_rows())

    @property
    def blockwise(self) -> bool:  # type: ignore[override]
        return self.bias is None or self.bias.blockwise

    @property
    def adds_values(self):
        return self.bias is not None and self.bias.adds_values

    def apply(self, scores, i, j):
        return self.change(scores if self.bias is None else self.bias.apply(scores, i, j), i, j)

    def values(self, weights, i, j):
        return None if self.bias is None else self.bias.values(weights, i, j)

    def for_keys(self, keys):
        return replace(self, bias=None if self.bias is None else self.bias.for_keys(keys))

    def for_queries(self, start, count):
        bias = None if self.bias is None else self.bias.for_queries(start, count)
        return None if bias is None and self.bias is not None else replace(self, bias=bias)

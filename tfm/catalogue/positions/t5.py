"""A trained bias for each bucket of distances and head (Raffel et al. 2020, section 2.1)."""

from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.bias import ScoreBias
from tfm.attention.project import Attention
from tfm.catalogue.options.positions.relative import T5
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, Position
from tfm.ops import lookup
from tfm.params import weight_spec
from tfm.positions import absolute


@struct.dataclass
class T5Bias(ScoreBias):
    """The bias of table [r,K,G] for distances up to `max_distance`; with `bidirectional`, half of the buckets are for
    later keys. Raffel et al. 2020, section 2.1.

    blocks: the table for distances of blocks, which a pattern reads that has keys of blocks; or None
    """

    table: Array | None
    bidirectional: bool = struct.field(pytree_node=False)
    max_distance: int = struct.field(pytree_node=False)
    blocks: Array | None = None

    def __call__(self, i, j):
        assert self.table is not None, "a layer puts in its own"
        return jnp.einsum("BTSKG->BKGTS", lookup(self.table, self.bucket(j[:, None, :] - i[:, :, None])))

    def bucket(self, distance: Array) -> Array:
        """distance j - i -> its bucket: short distances have their own, longer ones share buckets on a logarithmic
        scale."""
        assert self.table is not None, "a layer puts in its own"
        buckets = len(self.table) // 2 if self.bidirectional else len(self.table)
        offset = jnp.where((distance > 0) & self.bidirectional, buckets, 0)
        distance = jnp.abs(distance) if self.bidirectional else jnp.maximum(-distance, 0)
        exact = buckets // 2
        scale = jnp.log(jnp.maximum(distance, 1).astype(jnp.float32) / exact)
        scale = scale / jnp.log(jnp.float32(self.max_distance / exact))
        shared = jnp.minimum(exact + (scale * (buckets - exact)).astype(jnp.int32), buckets - 1)
        return jnp.where(distance < exact, distance, shared) + offset


class Tables(NamedTuple):
    """Tables [r,K,G] of all layers: for distances of tokens, and of blocks."""

    tokens: Array
    blocks: Array


def shared_specs(options: T5, config: Config) -> Array | Tables | None:
    """The table [r,K,G] of all layers, or both tables; None where each layer has its own."""
    if options.every_layer:
        return None
    tables = (weight_spec(config, "rKG", r=options.buckets) for _ in Tables._fields)
    return Tables(*tables) if options.blocks else next(tables)


def specs(options: T5, config: Config) -> Array | None:
    """The table [r,K,G] of one layer, where each has its own."""
    return weight_spec(config, "rKG", r=options.buckets) if options.every_layer else None


def prepare(call: LayerCall[T5, Array | Tables | None, None], context: AttentionContext) -> T5Bias:
    """The bias of all layers, without a table where each has its own."""
    tokens, blocks = call.params if isinstance(call.params, Tables) else (call.params, None)
    return T5Bias(tokens, not context.causal, call.options.max_distance, blocks)


def score(
    call: LayerCall[T5, Array | None, T5Bias], q: Array, k: Array, projections: Attention
) -> tuple[Array, Array, T5Bias]:
    """Queries and keys as they are, and the bias."""
    return q, k, call.prepared if call.params is None else replace(call.prepared, table=call.params)


POSITION = Position(absolute.absolute_specs, absolute.embed_absolute, shared_specs, specs, prepare, score)

"""Absolute positions: where their vectors go.

added           x + p, once
concatenated    [x; p] W, once
queries_keys    (x + p) Q and (x + p) K in every layer; values know no positions
"""

from typing import Any

import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.project import Attention
from tfm.config.model import Config
from tfm.interfaces import LayerCall
from tfm.ops import einsum
from tfm.params import weight_spec


@struct.dataclass
class Concatenated:
    """The table of positions, None where they need none, and the matrix [c,U] of concatenated vectors."""

    table: Any
    kernel: Any


def embed_specs_at(place: str, config: Config, table: Any) -> Any:
    """What embeddings need for positions with this table."""
    axis = config.embed_axis
    if place == "concatenated":
        return Concatenated(table, weight_spec(config, "c" + axis, c=2 * config.sizes[axis]))
    return table if place == "added" else None


def embed_at(place: str, params: Any, x: Array, rows: Any) -> Array:
    """x [B,T,U] and `rows(table)` -> float32 vectors [B,T,U] of positions -> the embeddings [B,T,U]."""
    if place == "concatenated":
        return einsum("BTc,cU->BTU", jnp.concatenate([x, rows(params.table)], axis=-1), params.kernel)
    return x + rows(params) if place == "added" else x


def score_at(call: LayerCall, q: Array, k: Array, projections: Attention) -> tuple[Array, Array, None]:
    """Queries and keys of tokens and their positions, of which `call.prepared` has the vectors [B,T,D], or None."""
    if call.prepared is None:
        return q, k, None
    rows = call.prepared.astype(q.dtype)
    q = q + einsum("BTD,DKGH->BTKGH", rows, projections.query.kernel)
    return q, k + einsum("BSD,DKH->BSKH", rows, projections.key.kernel), None

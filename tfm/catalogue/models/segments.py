"""Long texts in segments, each with a memory of the states of the one before (Transformer-XL: Dai et al. 2019).

    segment 1    a b c d         memory    - - -
    segment 2    e f g h         memory    b c d        of every layer: what its mixer has read
    segment 3    i j k l         memory    f g h

A token sees the memory of its layer and the tokens before it in its segment, so that n layers see n times as far back
as one. No gradient reaches a memory.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.typing import DTypeLike

from tfm.attention.bias import ScoreBias
from tfm.attention.project import SoftmaxCall, merge_heads, project, project_keys, with_positions
from tfm.axes import partition
from tfm.catalogue.options.reading import check_segments
from tfm.config.model import Config
from tfm.inputs import default_positions
from tfm.interfaces import AttentionContext, MixerOutput, Score
from tfm.layers.stack import Layers, stack, states_of
from tfm.masks.by_example import left_padding
from tfm.masks.mask import Mask
from tfm.models.encoder import Encoder
from tfm.ops import split
from tfm.sharding import replicate_length
from tfm.tables.inputs import embed
from tfm.tables.patterns import PATTERNS


@struct.dataclass
class SegmentMemory:
    """What layers have read of the segments before.

    states: [R,B,M,D] of R layers, in `config.dtype`
    lengths: int32 [B], tokens that a row has; they are the last ones of its M places
    """

    states: Layers
    lengths: Array

    @property
    def size(self) -> int:
        """M."""
        return jax.tree.leaves(self.states)[0].shape[-2]


def segment_memory(config: Config, rows: int, size: int, mesh: Mesh | None = None) -> SegmentMemory:
    """The memory of `rows` texts that begin, with room for `size` tokens, on the devices that share a batch.

    Raises ValueError for a model that cannot read segments, and a size below 1.
    """
    check_segments(config)
    if size < 1:
        raise ValueError(f"size={size} tokens of memory must be at least 1")
    place: str | tuple[str, ...] | None = None if mesh is None else partition("B", (rows,), mesh)[0]

    def zeros(shape: tuple[int, ...], dtype: DTypeLike, *axes: str | tuple[str, ...] | None) -> Array:
        sharding = None if mesh is None else NamedSharding(mesh, PartitionSpec(*axes))
        return jnp.zeros(shape, dtype, out_sharding=sharding)

    def states(count: int) -> Array:
        return zeros((count, rows, size, config.width), config.dtype, None, place)

    plan = config.layer_plan
    layers = Layers(
        prefix=tuple(states(1) for _ in plan.prefix),
        period=tuple(states(plan.times) for _ in plan.period),
        tail=tuple(states(1) for _ in plan.tail),
    )
    return SegmentMemory(layers, zeros((rows,), jnp.int32, place))


def read_segment(
    model: Encoder, config: Config, tokens: Array, memory: SegmentMemory, key: Array | None = None
) -> tuple[Array, SegmentMemory]:
    """The next tokens [B,T] of every row -> their hidden states [B,T,D], and the memory for the tokens after them.

    A token sees itself, the tokens before it and the memory (Dai et al. 2019, section 3.2). A memory as long as the
    text makes the states those of `decoder` for the text in one piece. A key turns dropout on. Raises ValueError for a
    model that cannot read segments.
    """
    check_segments(config)
    size = memory.size
    embed_key, stack_key = split(key, 2)
    context = SegmentContext(
        positions=size + default_positions(tokens),
        mask=left_padding(size - memory.lengths),
        causal=True,
        restarts=False,
        past=size,
    )
    x = embed(model.embed, config, tokens, key=embed_key)
    x, outputs = stack(model, config, x, context, jax.tree.map(SegmentStates, memory.states), key=stack_key)
    states = jax.tree.map(
        lambda layer: layer.states, states_of(outputs), is_leaf=lambda node: isinstance(node, SegmentStates)
    )
    return x, SegmentMemory(states, jnp.minimum(memory.lengths + tokens.shape[1], size))


@struct.dataclass
class SegmentContext(AttentionContext):
    """The pass over a segment; every layer also sees `past` states of the segment before."""

    past: int = struct.field(pytree_node=False, default=0)

    @property
    def key_positions(self) -> Array:
        """The positions of keys [1,S]: those of the memory count from 0 too."""
        return jnp.arange(self.text_length)[None]

    @property
    def text_length(self) -> int:
        """Keys of the pass."""
        return self.past + self.positions.shape[1]


@struct.dataclass
class SegmentStates:
    """What a layer has read of the segment before: [B,M,D], or [R,B,M,D] of R layers."""

    states: Array

    def read(self, call: SoftmaxCall, x: Array, score: Score) -> tuple[Array, MixerOutput]:
        """x [B,T,D] after these states -> [B,T,D]; and the last M of the states and of x. No gradient reaches them (Dai
        et al. 2019, section 3.2)."""
        context, size = call.prepared.context, self.states.shape[1]
        q, *keys_values = project(call, x)
        past = project_keys(call, jax.lax.stop_gradient(self.states))
        rows = zip(past, map(replicate_length, keys_values), strict=True)
        k, v = (jnp.concatenate([old, new], axis=1) for old, new in rows)
        heads = with_positions(call, q, k, v, score)
        pattern = PATTERNS[call.options.pattern.name].mask(call.options.pattern, call.config, context.causal)
        mask: Mask | None = None if pattern is None else MaskAfterMemory(pattern, size)
        if context.mask is not None:
            mask = context.mask if mask is None else mask & context.mask
        bias = None if heads.bias is None else BiasAfterMemory(heads.bias, size)
        y, output = call.prepared.path(call, heads._replace(mask=mask, bias=bias))
        y = merge_heads(call.params, y)
        states = jnp.concatenate([self.states, replicate_length(x)], axis=1)[:, -size:]
        return y, replace(output, state=SegmentStates(jax.lax.stop_gradient(states)))


@struct.dataclass
class MaskAfterMemory(Mask):
    """A static mask whose query n stands at position `size` + n: the keys of a memory stand before all queries."""

    mask: Mask
    size: int = struct.field(pytree_node=False)

    def __call__(self, i, j):
        return self.mask(i + self.size, j)

    def between(self, first_i, last_i, first_j, last_j):
        return self.mask.between(first_i + self.size, last_i + self.size, first_j, last_j)

    @property
    def reach(self):
        left, right = self.mask.reach
        return None if left is None else left - self.size, None if right is None else right + self.size

    @property
    def shift_invariant(self):
        return self.mask.shift_invariant


@struct.dataclass
class BiasAfterMemory(ScoreBias):
    """A bias whose query n stands at position `size` + n: the keys of a memory stand before all queries."""

    bias: ScoreBias
    size: int = struct.field(pytree_node=False)

    def apply(self, scores, i, j):
        return self.bias.apply(scores, i + self.size, j)

    def values(self, weights, i, j):
        return self.bias.values(weights, i + self.size, j)

    def for_queries(self, start, count):
        bias = self.bias.for_queries(start, count)
        return None if bias is None else replace(self, bias=bias)

    @property
    def blockwise(self) -> bool:  # type: ignore[override]
        return self.bias.blockwise

    def has_rows(self):
        return replace(self, bias=self.bias.has_rows())

    @property
    def adds_values(self):
        return self.bias.adds_values

"""Long texts in segments, each with a memory of the states of the one before (Transformer-XL: Dai et al. 2019).

    segment 1    a b c d         memory    - - -
    segment 2    e f g h         memory    b c d        of every layer: what its mixer has read
    segment 3    i j k l         memory    f g h

A token sees the memory of its layer and the tokens before it in its segment, so that n layers see n times as far back
as one. No gradient reaches a memory.
"""

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.typing import DTypeLike

from tfm.axes import partition
from tfm.catalogue.options.reading import check_segments
from tfm.config.model import Config
from tfm.inputs import default_positions
from tfm.interfaces import AttentionContext
from tfm.layers.stack import Layers, stack, states_of
from tfm.masks.by_example import left_padding
from tfm.models.encoder import Encoder
from tfm.ops import split
from tfm.tables.inputs import embed


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
    context = AttentionContext(
        positions=size + default_positions(tokens),
        mask=left_padding(size - memory.lengths),
        causal=True,
        restarts=False,
        segment_memory=size,
    )
    x = embed(model.embed, config, tokens, key=embed_key)
    x, outputs = stack(model, config, x, context, memory.states, key=stack_key)
    return x, SegmentMemory(states_of(outputs), jnp.minimum(memory.lengths + tokens.shape[1], size))

"""The decode cache: what layers remember of the tokens so far, so that a decoder reads each token once.

Rows are padded on the left, so that their last tokens stand in one column and each step writes to one slot of every
row:

    row 0   -  -  a  b  c        starts 2     positions  0  0  0  1  2
    row 1   d  e  f  g  h        starts 0     positions  0  1  2  3  4

What a layer remembers is its mixer's own affair (`tfm.interfaces.Mixer`): keys and values of every token, or sums of
constant size. A layer reads its state and returns what is new; that is written after the last layer, all at once. A
scan then never copies the cache, and under `jit` with donation it stays in place.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.config.model import Config
from tfm.interfaces import AttentionContext, Memory
from tfm.layers.groups import Rows, is_rows, unstack
from tfm.layers.stack import Layers, by_layer, stack, states_of
from tfm.masks.by_example import left_padding
from tfm.models.encoder import Encoder
from tfm.options.choices import Options
from tfm.params import PyTree
from tfm.sharding import replicate_length, shard_like, shards_of
from tfm.tables.inputs import embed
from tfm.tables.mixers import MIXERS

# A model with an encoder, a decoder, or both.
T = TypeVar("T", bound=Any)


@struct.dataclass
class Cache:
    """The decode states of all layers, leaves [R,B,...] of R layers, or `Rows` of them.

    starts: [B], the slot of the first token of each row
    length: scalar, slots that are filled
    slots: tokens of the longest text; fewer may be allocated, until `allocate_slots`
    memory: of a translation model, or None
    """

    states: Layers
    starts: Array
    length: Array
    slots: int = struct.field(pytree_node=False)
    memory: Memory | None = None


def prefill(
    model: Encoder,
    config: Config,
    tokens: Array,
    starts: Array,
    slots: int,
    memory: Memory | None = None,
    allocated: int | None = None,
) -> tuple[Array, Cache]:
    """Prompts [B,T], padded on the left up to starts [B] -> hidden states [B,T,D], and a cache of `slots` slots that
    holds them; `allocated` slots exist at first, if that is not None.

    A memory is kept beside them: its keys and values are computed once. Raises ValueError for a mixer that cannot
    generate, and for a memory whose rows hold several texts.
    """
    memory = _shard_memory(memory, tokens)
    context = _context(0, tokens, starts, slots)
    x, outputs = stack(model, config, embed(model.embed, config, tokens, context.positions), context, memory=memory)
    count = slots if allocated is None else allocated

    def start(options: Options, output: PyTree) -> PyTree:
        return MIXERS[options.name].start(options, config, output, count)

    states = _map_kinds(start, config, states_of(outputs))
    memory = _watch(config, memory, outputs, starts)
    return replicate_length(x), Cache(states, starts, jnp.int32(tokens.shape[1]), slots, memory)


def extend(model: Encoder, config: Config, tokens: Array, cache: Cache) -> tuple[Array, Cache]:
    """The next tokens [B,T] of every row -> their hidden states [B,T,D], and the cache with them; the same as reading
    all at once.

    The cache must have T slots left: writing past the end cannot be noticed under `jit`.
    """
    context = _context(cache.length, tokens, cache.starts, cache.slots)
    x = embed(model.embed, config, tokens, context.positions)
    x, outputs = stack(model, config, x, context, cache.states, cache.memory)
    memory = _watch(config, cache.memory, outputs, cache.starts - cache.length)
    read = replace(cache, length=_once_computed(cache.length, x))
    return replicate_length(x), replace(write_cache(config, read, outputs, tokens.shape[1]), memory=memory)


def write_cache(config: Config, cache: Cache, outputs: Layers, count: int) -> Cache:
    """The cache with `count` more tokens, whose layers have returned these outputs."""

    def write(options: Options, states: PyTree, outputs: PyTree) -> PyTree:
        return map_rows(partial(MIXERS[options.name].write, length=cache.length), states, outputs)

    states = _map_kinds(write, config, cache.states, states_of(outputs))
    return replace(cache, states=states, length=cache.length + count)


@partial(jax.jit, static_argnums=1)
def separate_layers(model: T, config: Config) -> T:
    """A model whose encoder and decoder have arrays of their own for each layer, where layers are unrolled.

    Whatever writes texts reads all layers for every token, and then does not slice them each time. It separates them
    itself, once a text. For many texts, do so once before them, and keep this copy alone.
    """
    stacks = {}
    for field in fields(model):
        part = getattr(model, field.name)
        if isinstance(part, Encoder):
            stacks[field.name] = replace(part, layers=separate_rows(config, part.layers))
    return replace(model, **stacks)


def separate_cache(config: Config, cache: Cache) -> Cache:
    """The cache for such a loop: neither states nor keys and values of a memory are sliced for every token."""
    states, memory = separate_rows(config, cache.states), cache.memory
    if memory is not None:
        memory = replace(memory, layers=separate_rows(config, memory.layers))
    return replace(cache, states=states, memory=memory)


def allocate_slots(config: Config, cache: Cache, slots: int) -> Cache:
    """The cache with `slots` slots allocated, at least as many as before."""

    def grow(options: Options, states: PyTree) -> PyTree:
        return map_rows(lambda state: MIXERS[options.name].start(options, config, state, slots), states)

    return replace(cache, states=_map_kinds(grow, config, cache.states))


def move_slots(config: Config, cache: Cache, length: Array | int) -> Cache:
    """The cache with `length` slots filled: its rows are moved, with their starts, to the left or to the right.

    Slots behind them, and before them, hold what no token reads. `length` is at least that of the longest row.
    """
    distance = length - cache.length

    def move(options: Options, states: PyTree) -> PyTree:
        mixer = MIXERS[options.name]
        return states if mixer.move is None else map_rows(partial(mixer.move, distance=distance), states)

    states = _map_kinds(move, config, cache.states)
    return replace(cache, states=states, starts=jnp.maximum(cache.starts + distance, 0), length=jnp.int32(length))


def repeat_rows(cache: Cache, width: int) -> Cache:
    """A cache of B rows -> of B * width rows: every row `width` times in sequence. These share a row of the memory."""
    states = map_leaves(lambda leaf: repeat_axis(leaf, width, 1), cache.states)
    memory = cache.memory
    if memory is not None:
        memory = replace(memory, coverage=jax.tree.map(lambda leaf: repeat_axis(leaf, width, 0), memory.coverage))
    return replace(cache, states=states, starts=repeat_axis(cache.starts, width, 0), memory=memory)


def reorder_rows(cache: Cache, parents: Array) -> Cache:
    """The cache after every continuation has taken the state of its parent [B,W] of the same prompt.

    All continuations of a prompt read the same row of a memory; its coverage moves.
    """
    parents = shard_like(parents, cache.starts)
    cache = replace(cache, states=map_leaves(lambda leaf: take_parents(leaf, parents, 1), cache.states))
    if cache.memory is None:
        return cache
    coverage = jax.tree.map(lambda leaf: take_parents(leaf, parents, 0), cache.memory.coverage)
    return replace(cache, memory=replace(cache.memory, coverage=coverage))


def repeat_axis(leaf: Array, width: int, axis: int) -> Array:
    """leaf [..., B, ...] -> [..., B * width, ...]; B stands at `axis`."""
    shape = leaf.shape
    leaf = jnp.broadcast_to(jnp.expand_dims(leaf, axis + 1), (*shape[: axis + 1], width, *shape[axis + 1 :]))
    return leaf.reshape(*shape[:axis], -1, *shape[axis + 1 :])


def take_parents(leaf: Array, parents: Array, axis: int) -> Array:
    """leaf [..., B*W, ...] -> the same shape: row w of prompt b becomes row parents[b, w]; B*W stands at `axis`."""
    shape = leaf.shape
    grouped = leaf.reshape(*shape[:axis], *parents.shape, *shape[axis + 1 :])
    index = jnp.expand_dims(parents, (*range(axis), *range(axis + 2, grouped.ndim)))
    return jnp.take_along_axis(grouped, index, axis=axis + 1).reshape(shape)


def _context(length: Array | int, tokens: Array, starts: Array, slots: int) -> AttentionContext:
    """The pass that reads the next slots: the first token of a row is at position 0, and so is its padding."""
    positions = jnp.maximum((length + jnp.arange(tokens.shape[1]))[None] - starts[:, None], 0)
    return AttentionContext(positions, left_padding(starts), length, slots, causal=True, keep=True)


def _once_computed(length: Array, x: Array) -> Array:
    """The length, after x [B,T,D] is computed. What is written behind it is written in place then: XLA would copy the
    states to read them afterwards, twice for every token (M105)."""
    return length if shards_of(x) > 1 else jax.lax.clamp(length, x[0, 0, 0].astype(length.dtype), length)


def _map_kinds(function: Callable[..., PyTree], config: Config, *trees: Layers) -> Layers:
    """A function (options of a mixer, trees of one kind of layer) for every layer of the prefix and tail, and kind of
    the period."""
    parts: list[tuple[PyTree, ...]] = []
    for name in ("prefix", "period", "tail"):
        results = []
        for kind, *layers in zip(getattr(config.layer_plan, name), *map(attrgetter(name), trees), strict=True):
            results.append(function(kind.mixer, *layers))
        parts.append(tuple(results))
    return Layers(*parts)


def separate_rows(config: Config, layers: Layers) -> Layers:
    """`Layers` for a loop that reads them at every step: leaves of the period become `Rows`, where layers are unrolled.

    A slice of a stacked leaf is a copy, and a loop would make it at every step: of all kernels for every token (M45).
    Leaves that are `Rows` stay.
    """
    if config.scan or config.share_layers:
        return layers

    def separate(leaf: Array | Rows) -> Rows:
        return leaf if isinstance(leaf, Rows) else Rows(tuple(jnp.unstack(leaf)))

    return replace(layers, period=jax.tree.map(separate, layers.period, is_leaf=is_rows))


def map_rows(function: Callable[..., PyTree], tree: PyTree, *trees: PyTree) -> PyTree:
    """A function of trees with leaves [R,...], which returns such a tree.

    Where leaves of the first tree are `Rows`, it gets one row at a time, with leaves [1,...]; the result has `Rows`.
    """
    leaves = jax.tree.leaves(tree, is_leaf=is_rows)
    if not any(map(is_rows, leaves)):
        return function(tree, *trees)
    results = []
    for row in zip(*map(partial(unstack, rows=len(leaves[0].rows)), (tree, *trees)), strict=True):
        results.append(function(*jax.tree.map(lambda leaf: leaf[None], row)))
    return jax.tree.map(lambda *leaves: Rows(tuple(map(itemgetter(0), leaves))), *results)


def map_leaves(function: Callable[..., Array], *trees: PyTree) -> PyTree:
    """A function of arrays [R,...], applied to the leaves of trees; `Rows` give it one row [1,...] at a time."""

    def apply(*leaves: Array | Rows) -> Array | Rows:
        if not isinstance(leaves[0], Rows):
            return function(*leaves)
        rows = zip(*(leaf.rows for leaf in leaves if isinstance(leaf, Rows)), strict=True)
        return Rows(tuple(function(*(leaf[None] for leaf in row))[0] for row in rows))

    return jax.tree.map(apply, *trees, is_leaf=is_rows)


def _shard_memory(memory: Memory | None, tokens: Array) -> Memory | None:
    """A memory on the devices that the rows of tokens [B,T] are on."""
    if memory is None:
        return None
    if memory.mask is not None:
        raise ValueError("rows of the memory hold several texts; encode each text in a row of its own to generate")
    layers = jax.tree.map(lambda leaf: shard_like(leaf, tokens, axis=1), memory.layers)
    valid, coverage = jax.tree.map(lambda leaf: shard_like(leaf, tokens), (memory.valid, memory.coverage))
    return Memory(layers, valid, coverage)


def _watch(config: Config, memory: Memory | None, outputs: Layers, starts: Array) -> Memory | None:
    """The memory with the attention that its tokens got from queries at starts [B] or later."""
    if memory is None or memory.coverage is None:
        return memory
    weights = jnp.stack([output.cross_weights for output in by_layer(config, outputs)])
    is_token = jnp.arange(weights.shape[-2])[None] >= starts[:, None]
    attention = jnp.where(is_token[:, :, None], weights.mean((0, 2, 3)), 0).sum(1)
    return replace(memory, coverage=memory.coverage + attention)

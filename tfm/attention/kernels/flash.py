"""The programs of `triton`: flash attention that drops weights, forward and backward, in Pallas for Triton.

A program has a block of queries and visits the blocks of keys that they may see; it keeps a softmax of the keys so far
(Dao et al. 2022, algorithm 1). The backward pass computes scores and draws again, once by blocks of keys and once by
blocks of queries, so that no sum depends on the order of programs (Dao 2024, algorithm 2, has one pass and adds up in
any order). Scores are logarithms of base 2 here, as the exponential of a GPU.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from tfm.hashing import mix, threshold

# The score of a pair that the mask hides: finite, so that a query that sees nothing has finite weights.
HIDDEN = -1e30


class BlockSizes(NamedTuple):
    """Sizes of a kernel: queries and keys at a time, warps of a program, and loads in flight."""

    queries: int
    keys: int
    warps: int
    stages: int


# Not yet timed. They divide padded lengths.
FORWARD, OF_KEYS, OF_QUERIES = BlockSizes(128, 64, 4, 3), BlockSizes(64, 128, 8, 2), BlockSizes(128, 64, 8, 2)


class Setting(NamedTuple):
    """What is known when the kernels are compiled.

    scale: of scores, times the logarithm of e
    sides: keys before and behind a query that it sees; None: all
    keys: their number without padding
    is_padded: whether there is some
    groups: heads of queries for each head of keys
    rate: share of the weights that are dropped
    interpret: whether jax computes the kernels, without a GPU
    """

    scale: float
    sides: tuple[int | None, int | None]
    keys: int
    is_padded: bool
    groups: int
    rate: float
    interpret: bool


class Operands(NamedTuple):
    """Arrays that decide about pairs; None where nothing reads them.

    seeds: uint32 [B,N,2], of the draws of a head, for queries and for keys
    query_ids, key_ids: int32 [B,T] and [B,S]; a query sees the keys with its id
    """

    seeds: Array | None
    query_ids: Array | None
    key_ids: Array | None


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def flash(setting: Setting, q: Array, k: Array, v: Array, operands: Operands) -> Array:
    """q [B,T,N,H], k and v [B,S,K,H] of padded lengths -> [B,T,N,H]."""
    return _forward(setting, q, k, v, operands)[0]


def _forward(setting: Setting, q: Array, k: Array, v: Array, operands: Operands):
    """The result and the residuals of the backward pass."""
    batch, length, heads, _ = q.shape
    y, log_mass = _call(
        partial(_forward_kernel, setting),
        setting,
        FORWARD,
        of_queries={"q": q},
        of_keys={"k": k, "v": v},
        operands=operands,
        outputs=[jax.ShapeDtypeStruct(q.shape, v.dtype), jax.ShapeDtypeStruct((batch, heads, length), jnp.float32)],
    )
    return y, (q, k, v, operands, y, log_mass)


def _backward(setting: Setting, residuals, slope: Array):
    """The gradients of q, k and v. Those of keys are computed for each head of queries, and added up."""
    q, k, v, operands, y, log_mass = residuals
    slope = slope.astype(v.dtype)
    inner = jnp.einsum("BTNH,BTNH->BNT", y, slope, preferred_element_type=jnp.float32)
    of_queries = {"q": q, "slope": slope, "log_mass": log_mass, "inner": inner}
    inputs = {"of_queries": of_queries, "of_keys": {"k": k, "v": v}, "operands": operands}
    shape = jax.ShapeDtypeStruct((*k.shape[:2], q.shape[2], k.shape[3]), k.dtype)
    dk, dv = _call(partial(_keys_kernel, setting), setting, OF_KEYS, **inputs, outputs=[shape, shape], over="keys")
    (dq,) = _call(
        partial(_queries_kernel, setting),
        setting,
        OF_QUERIES,
        **inputs,
        outputs=[jax.ShapeDtypeStruct(q.shape, q.dtype)],
    )
    if setting.groups > 1:
        dk, dv = (x.reshape(*k.shape[:3], setting.groups, -1).sum(3) for x in (dk, dv))
    return dq, dk, dv, jax.tree.map(lambda leaf: None, operands)


flash.defvjp(_forward, _backward)


def _call(
    kernel: Callable[..., None],
    setting: Setting,
    blocks: BlockSizes,
    of_queries: Mapping[str, Array],
    of_keys: Mapping[str, Array],
    operands: Operands,
    outputs: Sequence[jax.ShapeDtypeStruct],
    over: str = "queries",
) -> Sequence[Array]:
    """Runs a kernel for every head of every row, and every block of queries, or of keys.

    The block is cut from the arrays [B,T,N,H] and [B,N,T] of that side; the kernel has the other side as a whole. It is
    called with a dictionary of references, and one of outputs in order.
    """
    q, k = of_queries["q"], of_keys["k"]
    is_cut = over == "queries"
    queries = Cut(blocks.queries if is_cut else q.shape[1], is_cut)
    keys = Cut(k.shape[1] if is_cut else blocks.keys, not is_cut)
    cut, length = (queries, q.shape[1]) if is_cut else (keys, k.shape[1])
    inputs = {**of_queries, **of_keys}
    specs = {name: queries.spec(x) for name, x in of_queries.items()}
    specs |= {name: keys.spec(x, setting.groups) for name, x in of_keys.items()}
    if operands.seeds is not None:
        inputs["seeds"], specs["seeds"] = operands.seeds, pl.BlockSpec((None, None, 2), lambda b, n, t: (b, n, 0))
    if operands.query_ids is not None and operands.key_ids is not None:
        inputs |= {"query_ids": operands.query_ids, "key_ids": operands.key_ids}
        specs |= {"query_ids": queries.spec(operands.query_ids), "key_ids": keys.spec(operands.key_ids)}
    return pl.pallas_call(
        lambda *refs: kernel(blocks, dict(zip(inputs, refs[: len(inputs)], strict=True)), *refs[len(inputs) :]),
        grid=(*q.shape[::2], length // cut.size),
        in_specs=[*specs.values()],
        out_specs=[*map(cut.spec, outputs)],
        out_shape=outputs,
        compiler_params=plgpu.CompilerParams(num_warps=blocks.warps, num_stages=blocks.stages),
        interpret=setting.interpret,
        name="attention_over_" + over,
    )(*inputs.values())


class Cut(NamedTuple):
    """The positions of queries or of keys that a program sees: `size` of its own, or all, which are `size`."""

    size: int
    is_own: bool

    def spec(self, x: Array | jax.ShapeDtypeStruct, groups: int = 1) -> pl.BlockSpec:
        """For an array [B,T,N,H], whose heads serve `groups` heads of queries each; [B,N,T]; or [B,T]."""
        block = lambda t: t if self.is_own else 0
        if x.ndim == 4:
            return pl.BlockSpec((None, self.size, None, x.shape[3]), lambda b, n, t: (b, block(t), n // groups, 0))
        if x.ndim == 3:
            return pl.BlockSpec((None, None, self.size), lambda b, n, t: (b, n, block(t)))
        return pl.BlockSpec((None, self.size), lambda b, n, t: (b, block(t)))


class Side(NamedTuple):
    """Queries or keys of a tile: their positions [C], ids [C] and words [C] of draws, None where nothing reads them."""

    positions: Array
    ids: Array | None
    words: Array | None


def _side(refs, ids: str, place: int, start, count: int, is_block: bool) -> Side:
    """`count` positions from `start` on; the references have this block alone, or all positions."""
    positions = start + jnp.arange(count, dtype=jnp.int32)
    places = slice(None) if is_block else pl.ds(start, count)
    words = None
    if "seeds" in refs:
        words = mix(refs["seeds"][place] + positions.astype(jnp.uint32))
    return Side(positions, refs[ids][places] if ids in refs else None, words)


def _scores(setting: Setting, q: Array, k: Array, queries: Side, keys: Side) -> Array:
    """q [C,H] and k [c,H] -> float32 [C,c]; hidden pairs have `HIDDEN`."""
    scores = plgpu.dot(q, k.T) * setting.scale
    left, right = setting.sides
    distance = keys.positions[None] - queries.positions[:, None]
    visible = []
    if left is not None:
        visible.append(distance >= -left)
    if right is not None:
        visible.append(distance <= right)
    if setting.is_padded:
        visible.append((keys.positions < setting.keys)[None] | (distance != distance))
    if queries.ids is not None and keys.ids is not None:
        visible.append(queries.ids[:, None] == keys.ids[None])
    for part in visible:
        scores = jnp.where(part, scores, HIDDEN)
    return scores


def _dropped(setting: Setting, weights: Array, queries: Side, keys: Side) -> Array:
    """Weights [C,c], some of them zero and the others divided by 1 - rate."""
    if queries.words is None or keys.words is None:
        return weights
    word = (queries.words[:, None] ^ keys.words[None]) * jnp.uint32(0x85EBCA6B)
    word = (word ^ (word >> 15)) * jnp.uint32(0xC2B2AE35)
    keep = word >= threshold(setting.rate)
    return jnp.where(keep, weights * (1 / (1 - setting.rate)), 0.0)


def _visible_blocks(first: Array, count: int, before: int | None, behind: int | None, block: int, length: int):
    """The blocks, from and up to, of positions from `before` before `first` to `behind` behind the last of `count`."""
    start: Array | int = 0 if before is None else jax.lax.div(jnp.maximum(first - before, 0), block)
    stop: Array | int = length // block
    if behind is not None:
        stop = jnp.minimum(jax.lax.div(first + (count - 1 + behind), block) + 1, stop)
    return start, stop


def _forward_kernel(setting: Setting, blocks: BlockSizes, refs, y_ref, log_mass_ref):
    """Results [C,H] of a block of queries, and the logarithm [C] of the sum of the exponentials of their scores."""
    first = pl.program_id(2) * blocks.queries
    q, queries = refs["q"][...], _side(refs, "query_ids", 0, first, blocks.queries, True)

    def visit(block, carry):
        total, top, mass = carry
        start = block * blocks.keys
        places = pl.ds(start, blocks.keys)
        keys = _side(refs, "key_ids", 1, start, blocks.keys, False)
        scores = _scores(setting, q, refs["k"][places, :], queries, keys)
        new_top = jnp.maximum(top, scores.max(1))
        weights, shrink = jnp.exp2(scores - new_top[:, None]), jnp.exp2(top - new_top)
        v = refs["v"][places, :]
        added = plgpu.dot(_dropped(setting, weights, queries, keys).astype(v.dtype), v)
        return total * shrink[:, None] + added, new_top, mass * shrink + weights.sum(1)

    zeros = jnp.zeros((blocks.queries, q.shape[1]), jnp.float32)
    carry = zeros, jnp.full(blocks.queries, 2 * HIDDEN), jnp.zeros(blocks.queries)
    start, stop = _visible_blocks(first, blocks.queries, *setting.sides, blocks.keys, len(refs["k"]))
    total, top, mass = jax.lax.fori_loop(start, stop, visit, carry)
    divisor = jnp.where(mass > 0, mass, 1)  # there may be no block of keys
    y_ref[...] = (total / divisor[:, None]).astype(y_ref.dtype)
    log_mass_ref[...] = jnp.where(mass > 0, top + jnp.log2(divisor), 0)


def _slopes(setting: Setting, refs, places, q: Array, k: Array, v: Array, queries: Side, keys: Side):
    """Of a tile: queries' slopes [C,H], weights after dropout [C,c], and slopes of scores [C,c]."""
    slope = refs["slope"][places, :]
    weights = jnp.exp2(_scores(setting, q, k, queries, keys) - refs["log_mass"][places][:, None])
    of_weights = _dropped(setting, plgpu.dot(slope, v.T), queries, keys)
    of_scores = weights * (of_weights - refs["inner"][places][:, None])
    return slope, _dropped(setting, weights, queries, keys), of_scores


def _keys_kernel(setting: Setting, blocks: BlockSizes, refs, dk_ref, dv_ref):
    """The gradients [c,H] of a block of keys and values."""
    first = pl.program_id(2) * blocks.keys
    k, v, keys = refs["k"][...], refs["v"][...], _side(refs, "key_ids", 1, first, blocks.keys, True)

    def visit(block, carry):
        dk, dv = carry
        start = block * blocks.queries
        places = pl.ds(start, blocks.queries)
        q, queries = refs["q"][places, :], _side(refs, "query_ids", 0, start, blocks.queries, False)
        slope, weights, of_scores = _slopes(setting, refs, places, q, k, v, queries, keys)
        dv = dv + plgpu.dot(weights.astype(slope.dtype).T, slope)
        return dk + plgpu.dot(of_scores.astype(q.dtype).T, q), dv

    zeros = jnp.zeros(k.shape, jnp.float32)
    start, stop = _visible_blocks(first, blocks.keys, *setting.sides[::-1], blocks.queries, len(refs["q"]))
    dk, dv = jax.lax.fori_loop(start, stop, visit, (zeros, zeros))
    dk_ref[...] = (dk * (setting.scale / math.log2(math.e))).astype(dk_ref.dtype)
    dv_ref[...] = dv.astype(dv_ref.dtype)


def _queries_kernel(setting: Setting, blocks: BlockSizes, refs, dq_ref):
    """The gradient [C,H] of a block of queries."""
    first = pl.program_id(2) * blocks.queries
    q, queries = refs["q"][...], _side(refs, "query_ids", 0, first, blocks.queries, True)

    def visit(block, dq):
        start = block * blocks.keys
        places = pl.ds(start, blocks.keys)
        k, keys = refs["k"][places, :], _side(refs, "key_ids", 1, start, blocks.keys, False)
        *_, of_scores = _slopes(setting, refs, slice(None), q, k, refs["v"][places, :], queries, keys)
        return dq + plgpu.dot(of_scores.astype(k.dtype), k)

    start, stop = _visible_blocks(first, blocks.queries, *setting.sides, blocks.keys, len(refs["k"]))
    dq = jax.lax.fori_loop(start, stop, visit, jnp.zeros(q.shape, jnp.float32))
    dq_ref[...] = (dq * (setting.scale / math.log2(math.e))).astype(dq_ref.dtype)

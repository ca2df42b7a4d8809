"""Logits over the vocabulary, and the losses and gradients that can be had without keeping them."""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import PartitionSpec, reshard

from tfm.axes import platform
from tfm.config.model import Config
from tfm.low_rank import kernel_of
from tfm.masks.mask import MASK_VALUE
from tfm.ops import einsum
from tfm.products import transposed
from tfm.sharding import mesh_axes, named_sharding, spec_of, unshard_fsdp

# Logits of a chunk of tokens on an accelerator: on a GPU 1 GB of float16, and half as many where states are float32;
# elsewhere 0.5 GB of float32. Chunks are whole tiles of its products.
LOGITS, LOGITS_ELSEWHERE, TILE = {2: 1 << 29, 4: 1 << 28}, 1 << 27, 128


def unembed(config: Config, table: Array, x: Array) -> Array:
    """x [B,M,D] times the table [V,D] -> float32 logits [B,M,V]; tokens that are never predicted get `MASK_VALUE`."""
    logits = einsum("BMD,VD->BMV", x, table, dtype=jnp.float32)
    if config.outputs == config.padded_vocab:
        return logits
    return jnp.where((jnp.arange(config.padded_vocab) < config.outputs)[None, None], logits, MASK_VALUE)


def cross_entropy(logits: Array, targets: Array, smoothing: Array | float = 0.0, vocab: int | None = None) -> Array:
    """logits [...,V] and targets [...] -> float32 [...]: -log softmax(logits)[target], in nats; NaN for a target that
    is no token. Raises ValueError for targets of another shape.

    The share `smoothing`, a number or [...], of the probability is the same for the first `vocab` tokens (Szegedy et
    al. 2016, section 7).
    """
    if targets.shape != logits.shape[:-1]:
        raise ValueError(f"logits must be [...,V] and targets [...]; shapes are {logits.shape} and {targets.shape}")
    logits = logits.astype(jnp.float32)
    if spec_of(logits)[-1] is None:
        chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    else:  # a gather cannot cross shards of the vocabulary, a sum can
        tokens = jnp.expand_dims(jnp.arange(logits.shape[-1]), range(targets.ndim))
        chosen = jnp.where(tokens == targets[..., None], logits, 0).sum(-1)
    if not isinstance(smoothing, float) or smoothing:
        is_token = jnp.arange(logits.shape[-1]) < (vocab or logits.shape[-1])
        chosen = (1 - smoothing) * chosen + smoothing * logits.mean(
            -1, where=jnp.expand_dims(is_token, range(targets.ndim))
        )
    return jnp.where((targets >= 0) & (targets < logits.shape[-1]), jax.nn.logsumexp(logits, axis=-1) - chosen, jnp.nan)


def vocabulary_loss(
    config: Config,
    table: Array,
    x: Array,
    targets: Array,
    weights: Array,
    smoothing: Array | float = 0.0,
    bias: Array | None = None,
) -> tuple[Array, Array, Array]:
    """x [B,T,D], table [V,D], targets and weights [B,T] -> the weighted sum of losses in nats, float32; losses [B,T];
    and hits, bool [B,T]: the target is more probable than every token beside it.

    The losses are those of `cross_entropy(unembed(config, table, x) + bias, targets, smoothing, config.outputs)`, but
    all logits never exist at once: losses, and the gradient of their weighted sum, are computed for some tokens at a
    time.
    Only that sum has a gradient, for x, table, bias and weights. `smoothing` is a number or [B,T]. With a gradient on a
    GPU, logits of 16-bit states and their factors are rounded to float16.
    """
    table = unshard_fsdp(table if isinstance(table, Array) else kernel_of(table))
    bias = None if bias is None else unshard_fsdp(bias).astype(jnp.float32)
    if isinstance(smoothing, float) and not smoothing:
        fields = Targets(targets, weights, None)
    else:
        fields = Targets(targets, weights, jnp.broadcast_to(jnp.asarray(smoothing), targets.shape))
    sharding = named_sharding(x, table, *spec_of(x)[:2])
    if sharding is not None:
        fields = jax.tree.map(lambda field: reshard(field, sharding), fields)
    return _loss(config, x, table, bias, fields)


class Sums(NamedTuple):
    """Sums over tokens: the gradients of bias [V] and table [V,D], None where nothing is learned, and the total."""

    bias: Array | None
    table: Array | None
    total: Array


class Targets(NamedTuple):
    """Targets, weights and label smoothing [B,T]; no smoothing is None."""

    tokens: Array
    weights: Array
    smoothing: Array | None


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _loss(config: Config, x: Array, table: Array, bias: Array | None, targets: Targets) -> tuple[Array, Array, Array]:
    return _on_shards(config, False, x, table, bias, targets)[0]


def _forward(config: Config, x: Array, table: Array, bias: Array | None, targets: Targets):
    results, gradients = _on_shards(config, True, x, table, bias, targets)
    return results, (*gradients, results[1])


def _backward(config: Config, gradients, cotangents):
    """The gradients of the sum, computed with it: that of a weight is its loss. Nothing else has one."""
    *of_inputs, of_weights = jax.tree.map(lambda gradient: gradient * cotangents[0].astype(gradient.dtype), gradients)
    return *of_inputs, Targets(None, of_weights, None)  # type: ignore[arg-type]


_loss.defvjp(_forward, _backward)


def _on_shards(config: Config, learn: bool, x: Array, table: Array, bias: Array | None, targets: Targets):
    """`_local` on each device, with its tokens and its part of the vocabulary."""
    spec, axis = spec_of(x)[:2], spec_of(table)[0]
    sharding = named_sharding(x, table, *spec)
    if sharding is None:
        return _local(config, learn, ShardAxes(), x, table, bias, targets)
    tokens, words = PartitionSpec(*spec), PartitionSpec(axis)
    return jax.shard_map(
        partial(_local, config, learn, ShardAxes(mesh_axes(spec), axis)),
        mesh=sharding.mesh,
        in_specs=(tokens, words, words, tokens),
        out_specs=((PartitionSpec(), tokens, tokens), (tokens, words, words) if learn else ()),
        check_vma=False,
    )(x, table, bias, targets)


class ShardAxes(NamedTuple):
    """The mesh axes that shard the tokens, and the one that shards the vocabulary."""

    tokens: tuple[str, ...] = ()
    vocabulary: str | None = None

    def sum_tokens(self, sums: Array) -> Array:
        """Sums over the tokens of all devices."""
        return jax.lax.psum(sums, self.tokens)

    def sum_vocabulary(self, sums: Array) -> Array:
        """Sums over the vocabulary of all devices."""
        return jax.lax.psum(sums, self.vocabulary) if self.vocabulary else sums

    def max_vocabulary(self, largest: Array) -> Array:
        """The largest over the vocabulary of all devices."""
        return jax.lax.pmax(largest, self.vocabulary) if self.vocabulary else largest

    def first_token(self, size: int) -> Array | int:
        """The first token of a device that has `size` of them."""
        return jax.lax.axis_index(self.vocabulary) * size if self.vocabulary else 0


def _local(config: Config, learn: bool, axes: ShardAxes, x: Array, table: Array, bias: Array | None, targets: Targets):
    """The sum, losses and hits, and the gradients for x, table and bias if they are to be learned, chunk by chunk."""
    tokens = (axes.first_token(len(table)) + jnp.arange(len(table)))[:, None]
    shift = None if bias is None else bias[:, None]
    if config.outputs < config.padded_vocab:
        shift = jnp.where(tokens < config.outputs, 0.0 if shift is None else shift, MASK_VALUE)
    zeros = Sums(None, None, jnp.zeros(()))
    if learn:
        zeros = Sums(None if bias is None else jnp.zeros(len(table)), jnp.zeros(table.shape), zeros.total)
    is_half = learn and platform() == "gpu" and x.dtype.itemsize == 2
    factor = table.astype(jnp.float16 if is_half else x.dtype)
    part = Part(config.outputs, axes, tokens, table.astype(x.dtype), factor, shift, learn, bias is not None)
    sums, results = _in_chunks(partial(_add_chunk, part), zeros, (x, targets), len(table))
    sums = jax.tree.map(axes.sum_tokens, sums) if axes.tokens else sums
    gradients = () if sums.table is None else (results[2], sums.table.astype(table.dtype), sums.bias)
    return (sums.total, results[0], results[1]), gradients


class Part(NamedTuple):
    """The part of the vocabulary of one device: its tokens [V,1], their table [V,D], the same in the dtype of products
    that are logits, and what is added to logits [V,1]."""

    vocab: int
    axes: ShardAxes
    tokens: Array
    kernel: Array
    factor: Array
    shift: Array | None
    learn: bool
    has_bias: bool


def _add_chunk(part: Part, sums: Sums, inputs: tuple[Array, Targets]) -> tuple[Sums, tuple[Array, ...]]:
    """x [N,D] and targets [N] -> sums that include them, and losses, hits and, to learn, gradients for x.

    Logits are [V,N], tokens last (M11: 0.77 of the time). To save a pass over them, the target's logit is looked up and
    compared with the largest of the others.
    """
    x, targets = inputs
    axes, smoothing = part.axes, None if targets.smoothing is None else targets.smoothing[None]
    is_token, is_target = part.tokens < part.vocab, part.tokens == targets.tokens[None]
    logits = _logits(part.factor, x)
    logits = logits if part.shift is None else logits + part.shift
    rows = targets.tokens[None] - axes.first_token(len(logits))
    is_here = (rows >= 0) & (rows < len(logits))
    target = axes.sum_vocabulary(jnp.where(is_here, jnp.take_along_axis(logits, rows, axis=0, mode="clip"), 0))
    runner_up = axes.max_vocabulary(jnp.where(is_target, MASK_VALUE, logits).max(0, keepdims=True))
    top = jnp.maximum(target, runner_up)
    powers = jnp.exp(logits - top)
    mass = axes.sum_vocabulary(powers.sum(0, keepdims=True))
    confidence: Array | float = 1.0
    expected = target
    if smoothing is not None:
        confidence = 1 - smoothing
        mean = axes.sum_vocabulary(jnp.where(is_token, logits, 0).sum(0, keepdims=True)) / part.vocab
        expected = confidence * target + smoothing * mean
    losses, hits = jnp.log(mass) + top - expected, target > runner_up
    total = (losses * targets.weights[None]).sum()
    if not part.learn:
        results = losses[0], hits[0]
        return jax.tree.map(jnp.add, sums, Sums(None, None, total)), results
    slopes = powers / mass - jnp.where(is_target, confidence, 0)
    if smoothing is not None:
        slopes -= jnp.where(is_token, smoothing / part.vocab, 0)
    slopes = slopes * targets.weights[None]
    of_bias = slopes.sum(1) if part.has_bias else None
    slopes = slopes.astype(x.dtype)
    of_table = jnp.einsum("VN,ND->VD", slopes, x, preferred_element_type=jnp.float32)
    learned = losses[0], hits[0], axes.sum_vocabulary(_times_table(slopes, part.kernel))
    return jax.tree.map(jnp.add, sums, Sums(of_bias, of_table, total)), learned


def _logits(factor: Array, x: Array) -> Array:
    """factor [V,D] times x [N,D] -> float32 logits [V,N]. With a factor in float16 memory has them in float16: half of
    the bytes, rounded by 2^-11, where factors of bfloat16 are rounded by 2^-8 (M55, M60). Powers of two keep states
    below 2."""
    if factor.dtype != jnp.float16:
        return jnp.einsum("VD,ND->VN", factor, x, preferred_element_type=jnp.float32)
    x = x.astype(jnp.float32)
    largest = jnp.abs(x).max(-1)
    unit = jnp.exp2(jnp.floor(jnp.log2(jnp.where(largest > 0, largest, 1))))
    logits = jnp.einsum("VD,ND->VN", factor, (x / unit[:, None]).astype(jnp.float16))
    return jax.lax.optimization_barrier(logits).astype(jnp.float32) * unit[None]


def _times_table(slopes: Array, kernel: Array) -> Array:
    """slopes [V,N] and a table [V,D] -> [N,D], in their dtype. On a CPU from transposed slopes (M50: 0.8 of its time in
    float32, 0.4 in bfloat16)."""
    if platform() != "cpu":
        return jnp.einsum("VN,VD->ND", slopes, kernel)
    return jnp.einsum("NV,VD->ND", transposed(slopes), kernel, preferred_element_type=jnp.float32).astype(kernel.dtype)


def tokens_at_a_time(vocab: int, width: int, itemsize: int) -> int:
    """The number of tokens that meet the vocabulary at once; an element of their states has `itemsize` bytes.

    On a CPU their logits should stay in its cache, but each chunk adds to a gradient as wide as the vocabulary (M12).
    Elsewhere memory is the limit, and products should be large.
    """
    if platform() == "cpu":
        return max((1 << 20) // vocab, width)
    return max((LOGITS[itemsize] if platform() == "gpu" else LOGITS_ELSEWHERE) // vocab, 1)


def chunk_size(tokens: int, vocab: int, width: int, itemsize: int) -> int:
    """The tokens of a chunk, out of `tokens`: chunks are about equal. On an accelerator several chunks are multiples
    of `TILE` (M55: 0.5 of the time on a GPU; not measured on a TPU)."""
    chunks = -(-tokens // tokens_at_a_time(vocab, width, itemsize))
    size = -(-tokens // chunks)
    return size if chunks == 1 or platform() == "cpu" else -(-size // TILE) * TILE


def _in_chunks(
    function: Callable[..., tuple[Sums, tuple[Array, ...]]], sums: Sums, inputs: tuple[Array, Targets], vocab: int
) -> tuple[Sums, list[Array]]:
    """Scans over the tokens of fields [B,T,...], as many at a time as their logits [N,V] allow."""
    shape = inputs[0].shape[:2]
    tokens = math.prod(shape)
    size = chunk_size(tokens, vocab, inputs[0].shape[-1], inputs[0].dtype.itemsize)
    chunks = -(-tokens // size)

    def cut(field: Array) -> Array:
        field = field.reshape(tokens, *field.shape[2:])
        field = jnp.pad(field, ((0, chunks * size - tokens), *[(0, 0)] * (field.ndim - 1)))
        field = field.reshape(chunks, size, *field.shape[1:])
        return field[0] if chunks == 1 else field

    def join(field: Array) -> Array:
        field = field[None] if chunks == 1 else field
        field = field.reshape(chunks * size, *field.shape[2:])[:tokens]
        return field.reshape(*shape, *field.shape[1:])

    inputs = jax.tree.map(cut, inputs)
    sums, results = function(sums, inputs) if chunks == 1 else jax.lax.scan(function, sums, inputs)
    return sums, [*map(join, results)]

"""Nystromformer (Xiong et al. 2021): softmax attention by way of landmarks, in time linear in the length.

Landmarks are means of neighbouring queries and keys. With three small softmaxes, of queries to landmarks F1 [T,m], of
landmarks to landmarks A [m,m] and of landmarks to keys F2 [m,T], attention is nearly F1 pinv(A) F2 (eq. 13).
"""

from functools import reduce

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.attend import Heads, attention_weights
from tfm.attention.kernels.choice import attention
from tfm.attention.project import Attention, attention_specs, keys_values, merge_heads, queries
from tfm.catalogue.mixers.padding import refuse_decoders, valid_tokens
from tfm.catalogue.options.mixers.fewer_keys import Nystrom
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, Mixer, MixerOutput, Score, refuse_bias
from tfm.masks.by_example import padding
from tfm.params import weight_spec
from tfm.scopes import SUMS
from tfm.sharding import replicate_length, unshard_fsdp


@struct.dataclass
class NystromParams:
    """Projections to heads and back, and the convolution of values along the text [w,K]; None without one."""

    attention: Attention
    convolution: Array | None


def specs(options: Nystrom, config: Config) -> NystromParams:
    """The spec tree of one layer."""
    convolution = None if options.window is None else weight_spec(config, "wK", w=options.window)
    return NystromParams(attention_specs(config), convolution)


def prepare(call: LayerCall[Nystrom, None, None], context: AttentionContext) -> Array | None:
    """Which places hold tokens. Raises ValueError for causality and for masks that ask about queries."""
    refuse_decoders(call.options, context)
    return valid_tokens(call.options, context)


def forward(
    call: LayerCall[Nystrom, NystromParams, Array | None], x: Array, score: Score, state: None
) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]."""
    layer, config, options = call.params, call.config, call.options
    k, v = keys_values(layer.attention, config, x)
    q, k, bias = score(queries(layer.attention, config, x), k, layer.attention)
    refuse_bias(call, bias)
    valid = call.prepared
    if options.landmarks is None:
        mask = None if valid is None else padding(valid)
        heads = attention(Heads(q, k, v, mask), config.kernel, config.attn_rate_with(call.key), call.key)
    v = replicate_length(v)
    if valid is not None and not options.reads_padding:
        v = jnp.where(valid[:, :, None, None], v, 0)
    if options.landmarks is not None:
        heads = nystrom(replicate_length(q), replicate_length(k), v, options, valid)
    if layer.convolution is not None:
        heads = heads + convolve(v, layer.convolution)[:, :, :, None]
    return merge_heads(layer.attention, heads), MixerOutput()


def nystrom(q: Array, k: Array, v: Array, options: Nystrom, valid: Array | None = None) -> Array:
    """q [B,T,K,G,H], k and v [B,T,K,H], bool valid [B or 1,T] -> [B,T,K,G,H] by landmarks; softmax and inverse in
    float32.

    A text with fewer tokens than landmarks has one landmark a token, and attention is nearly exact.
    """
    landmarks = min(options.landmarks or q.shape[1], q.shape[1])
    shares = landmark_shares(None if options.reads_padding else valid, q.shape[1], landmarks)
    shares = shares + jnp.zeros_like(v, jnp.float32).sum((2, 3))[:, :, None]  # a row an example, sharded as they are
    exists = shares.max(1) > 0
    means = (shares / jnp.maximum(shares.sum(1, keepdims=True), 1)).astype(q.dtype)
    q_means, k_means = jnp.einsum("BTm,BTKGH->BmKGH", means, q), jnp.einsum("BTm,BTKH->BmKH", means, k)
    to_landmarks = attention_weights(q, k_means, padding(exists))
    among = jnp.where(exists[:, None, None, :, None], attention_weights(q_means, k_means, padding(exists)), 0)
    to_keys = attention_weights(q_means, k, None if valid is None else padding(valid))
    values = jnp.einsum("BKGmT,BTKH->BKGmH", to_keys, v.astype(jnp.float32))
    values = pseudo_inverse(among, options.iterations, options.shared_start) @ values
    return jnp.einsum("BKGTm,BKGmH->BTKGH", to_landmarks, values).astype(v.dtype)


def landmark_shares(valid: Array | None, length: int, landmarks: int) -> Array:
    """float32 [B or 1,T,m]: 1 where a token belongs to a landmark; n tokens are cut into min(m, n) segments whose sizes
    differ by at most 1."""
    valid = jnp.ones((1, length), bool) if valid is None else valid
    rank, count = jnp.cumsum(valid, axis=1) - 1, valid.sum(1, keepdims=True)
    segment = rank * jnp.minimum(count, landmarks) // jnp.maximum(count, 1)
    return ((segment[:, :, None] == jnp.arange(landmarks)[None, None]) & valid[:, :, None]).astype(jnp.float32)


def pseudo_inverse(a: Array, iterations: int, shared_start: bool = False) -> Array:
    """float32 [...,m,m] -> nearly its Moore-Penrose inverse (eq. 15); rows and columns of zeros stay zeros.

    shared_start: the transposes that the iteration starts from are divided by the largest of all divisors
    """
    columns, rows = jnp.abs(a).sum(-2).max(-1), jnp.abs(a).sum(-1).max(-1)
    largest = jnp.maximum(columns * rows, jnp.finfo(jnp.float32).tiny)
    if shared_start:
        largest = jnp.broadcast_to(largest.max(), largest.shape)
    z = jnp.swapaxes(a, -1, -2) / largest[..., None, None]
    identity = jnp.expand_dims(jnp.eye(a.shape[-1]), range(a.ndim - 2))
    for _ in range(iterations):
        az = a @ z
        z = 0.25 * z @ (13 * identity - az @ (15 * identity - az @ (7 * identity - az)))
    return z


@jax.named_scope(SUMS)
def convolve(v: Array, kernel: Array) -> Array:
    """v [B,T,K,H], a kernel [w,K] for each head -> [B,T,K,H]: sums over w neighbours, zeros beyond the text."""
    kernel = unshard_fsdp(kernel).astype(v.dtype)
    width, length = len(kernel), v.shape[1]
    padded = jnp.pad(v, ((0, 0), (width // 2, width - 1 - width // 2), (0, 0), (0, 0)))
    shifted = [padded[:, n : n + length] * kernel[n][None, None, :, None] for n in range(width)]
    return reduce(jnp.add, shifted)


MIXER = Mixer(specs, prepare, forward)

"""Fast weights with the delta rule (Schlag et al. 2021, section 4.2): tokens correct what a matrix returns for keys.

    W_t = W_(t-1) + beta_t (v_t - W_(t-1) phi(k_t)) phi(k_t)^T        y_t = W_t phi(q_t)

The corrections u_t = beta_t (v_t - W_(t-1) phi(k_t)) of a chunk of tokens solve a triangular system: each depends on
those before it by the product of two keys.
"""

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.project import Attention, attention_specs, keys_values, merge_heads, queries
from tfm.catalogue.mixers.kernels import cut_chunks, extend_segments, positive, segments_per_row, start
from tfm.catalogue.mixers.kernels import prepare as prepare_kernel
from tfm.catalogue.mixers.kernels.linear import log_features
from tfm.catalogue.mixers.padding import SegmentedContext
from tfm.catalogue.options.mixers.kernels import DeltaRule
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, Mixer, MixerOutput, Score, refuse, refuse_bias
from tfm.ops import Linear, linear, linear_specs
from tfm.sharding import replicate_length


@struct.dataclass
class DeltaParams:
    """Projections to heads and back, and that of the rate beta of each head."""

    attention: Attention
    rate: Linear


@struct.dataclass
class FastWeights:
    """The matrix of each head so far, float32 [B,K,m,H], and the segment [B] of the last token."""

    weights: Array
    segment: Array


def specs(options: DeltaRule, config: Config) -> DeltaParams:
    """The spec tree of one layer."""
    return DeltaParams(attention_specs(config), linear_specs(config, "D", "K"))


def prepare(call: LayerCall[DeltaRule, None, None], context: AttentionContext) -> SegmentedContext:
    """Which places hold tokens, and their segments. Raises ValueError for encoders and for other masks."""
    if not context.causal:
        refuse(call.options, "reads a text from left to right", "an encoder needs another mixer, such as mixer=linear")
    return prepare_kernel(call, context)


def forward(
    call: LayerCall[DeltaRule, DeltaParams, SegmentedContext], x: Array, score: Score, state: FastWeights | None
) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]; sums in float32."""
    layer, config, prepared = call.params, call.config, call.prepared
    k, v = keys_values(layer.attention, config, x)
    q, k, bias = score(queries(layer.attention, config, x), k, layer.attention)
    refuse_bias(call, bias)
    rate = jax.nn.sigmoid(linear(layer.rate, "BTD,DK->BTK", x).astype(jnp.float32))
    q, k, v, rate = (replicate_length(rows) for rows in (q, k, v, rate))
    if prepared.valid is not None:
        rate = jnp.where(prepared.valid[:, :, None], rate, 0)
    phi_q, phi_k = (features(rows, call.options.nu) for rows in (q, k))
    heads, state = delta_rule((phi_q, phi_k, v.astype(jnp.float32), rate), prepared.segments, state, call.options.chunk)
    output = MixerOutput(state=state if prepared.context.keep else None)
    return merge_heads(layer.attention, heads.astype(x.dtype)), output


def features(x: Array, nu: int | None) -> Array:
    """x [...,H] -> float32 [...,m], of sum 1: deterministic parameter-free projections (eq. 37), m = 2 nu H, or of
    elu(x) + 1, m = H."""
    if nu is None:
        phi = jnp.exp(log_features(x))
    else:
        x = x.astype(jnp.float32)
        halves = jax.nn.relu(jnp.concatenate([x, -x], axis=-1))
        phi = jnp.concatenate([halves * jnp.roll(halves, n, axis=-1) for n in range(1, nu + 1)], axis=-1)
    return phi / positive(phi.sum(-1, keepdims=True))


def delta_rule(
    rows: tuple[Array, ...], segments: Array | None, state: FastWeights | None, chunk: int
) -> tuple[Array, FastWeights]:
    """float32 phi_q [B,T,K,G,m], phi_k [B,T,K,m], v [B,T,K,H], rates [B,T,K], segments [B or 1,T] -> [B,T,K,G,H] and
    the next state."""
    phi_q, phi_k, v, _ = rows
    length = phi_q.shape[1]
    size = min(chunk, length)
    if state is None:  # made of arrays of the pass, so that it is sharded like these
        weights = jnp.einsum("BKm,BKH->BKmH", jnp.zeros_like(phi_k[:, 0]), jnp.zeros_like(v[:, 0]))
        state = FastWeights(weights, jnp.zeros_like(weights, jnp.int32).sum((1, 2, 3)))
    segments = extend_segments(segments_per_row(segments, phi_k), -length % size)
    chunks = tuple(cut_chunks(row, size) for row in (*rows, segments))
    last_state, heads = jax.lax.scan(_one_chunk, state, chunks)
    return jnp.moveaxis(heads, 0, 1).reshape(heads.shape[1], -1, *heads.shape[3:])[:, :length], last_state


def _one_chunk(state: FastWeights, rows: tuple[Array, ...]) -> tuple[FastWeights, Array]:
    """The state after a chunk of C tokens, and its heads [B,C,K,G,H]."""
    phi_q, phi_k, v, rate, segments = rows
    is_first = (segments == state.segment[:, None])[:, :, None, None]
    same = (segments[:, :, None] == segments[:, None, :])[:, None]
    seen = jnp.tril(jnp.ones(same.shape[2:], bool))[None, None] & same
    before = jnp.tril(jnp.ones(same.shape[2:], bool), -1)[None, None] & same
    products = jnp.where(before, jnp.einsum("BTKm,BSKm->BKTS", phi_k, phi_k), 0)
    errors = v - jnp.einsum("BTKm,BKmH->BTKH", jnp.where(is_first, phi_k, 0), state.weights)
    rate = jnp.swapaxes(rate, 1, 2)[..., None]
    u = unit_lower_inverse(rate * products) @ (rate * jnp.swapaxes(errors, 1, 2))
    scores = jnp.where(seen[:, :, None], jnp.einsum("BTKGm,BSKm->BKGTS", phi_q, phi_k), 0)
    heads = jnp.einsum("BKGTS,BKSH->BTKGH", scores, u)
    heads = heads + jnp.einsum("BTKGm,BKmH->BTKGH", jnp.where(is_first[..., None], phi_q, 0), state.weights)
    last = segments[:, -1]
    goes_on = (state.segment == last)[:, None, None, None]
    of_last = jnp.where((segments == last[:, None])[:, :, None, None], phi_k, 0)
    weights = jnp.where(goes_on, state.weights, 0) + jnp.einsum("BSKm,BKSH->BKmH", of_last, u)
    return FastWeights(weights, last), heads


def unit_lower_inverse(below: Array) -> Array:
    """below [...,C,C], zeros on and above the diagonal -> the inverse of I + below, by blocks of twice the size.

    The inverse of [[a, 0], [b, d]] is [[a', 0], [-d' b a', d']] with the inverses a' and d'.
    """
    size = below.shape[-1]
    index = jnp.arange(size)
    inverse = jnp.expand_dims(jnp.eye(size), range(below.ndim - 2)) + jnp.zeros_like(below)
    block = 1
    while block < size:
        left, right = index // block % 2 == 0, index // block % 2 == 1
        pairs = index[:, None] // (2 * block) == index[None] // (2 * block)
        corner = jnp.expand_dims(pairs & right[:, None] & left[None], range(below.ndim - 2))
        inverse = inverse - inverse @ jnp.where(corner, below, 0) @ inverse
        block *= 2
    return inverse


MIXER = Mixer(specs, prepare, forward, start)

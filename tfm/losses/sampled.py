"""The loss over some tokens of a large vocabulary in place of all."""

import math

import jax
import jax.numpy as jnp
from jax import Array

from tfm.low_rank import kernel_of
from tfm.ops import lookup
from tfm.sharding import unshard_fsdp


def log_uniform(tokens: Array, vocab: int) -> Array:
    """tokens [...] -> float32 [...]: the logarithm of the probability (log(k + 2) - log(k + 1)) / log(vocab + 1) with
    which token k is drawn, as where tokens stand in the order of their frequency."""
    ranks = tokens.astype(jnp.float32)
    return jnp.log(jnp.log1p(1 / (ranks + 1)) / math.log(vocab + 1))


def sampled_loss(
    table: Array, bias: Array, x: Array, targets: Array, weights: Array, samples: Array, vocab: int
) -> Array:
    """x [B,T,U], table [V,U], bias [V], targets and weights [B,T] -> the weighted sum of losses in nats, float32.

    The sum of exponentials over the vocabulary is that of the target plus an estimate of the rest, from the tokens
    `samples` [B,n] of all rows, which were drawn by `log_uniform`: each counts as much as it is rare among them (Bengio
    & Senecal 2008, section 4; Jean et al. 2015, section 3). A sample that is the target does not count.
    tf.nn.sampled_softmax_loss, ELMo's, also divides the target's exponential by how often it is expected.
    """
    table = unshard_fsdp(kernel_of(table))
    samples = samples.reshape(1, -1)
    log_count = math.log(samples.size)
    shift = unshard_fsdp(bias).astype(jnp.float32)[:, None]

    chosen = (x.astype(jnp.float32) * lookup(table, targets)).sum(-1) + lookup(shift, targets)[..., 0]
    rows = lookup(table, samples)[0].astype(x.dtype)
    corrected = lookup(shift, samples)[..., 0] - log_uniform(samples, vocab) - log_count
    logits = jnp.einsum("BTU,NU->BTN", x, rows, preferred_element_type=jnp.float32) + corrected[:, None]
    logits = jnp.where(samples[:, None] == targets[..., None], -jnp.inf, logits)
    total = jnp.logaddexp(chosen, jax.nn.logsumexp(logits, axis=-1))
    return ((total - chosen) * weights).sum()

"""The flash attention of cuDNN, for NVIDIA GPUs."""

import jax
import jax.numpy as jnp
from jax import Array

from tfm.attention.bias import ScoreBias
from tfm.attention.kernels.case import Case, why_not_fused, why_not_nvidia
from tfm.attention.kernels.shards import on_shards
from tfm.masks.distance import MaskParts, Window, as_window, decompose
from tfm.masks.mask import Mask
from tfm.sharding import spec_of


@on_shards
def cudnn(q: Array, k: Array, v: Array, mask: Mask | None = None, bias: ScoreBias | None = None) -> Array:
    """q [B,T,K,G,H], k and v [B,S,K,H] -> [B,T,K,G,H]: `jax.nn.dot_product_attention` of cuDNN.

    A mask that cuDNN does not know is passed as an array [B or 1,1,T,S], and a bias as one [B or 1,K*G,T,S], all of
    which it reads (M10). Odd lengths get one more token, which no query sees.
    """
    parts = decompose(mask)
    batch, queries, *_, size = q.shape
    keys = k.shape[1]
    window = as_window(parts.pattern) if knows(parts) and (bias is None or mask is None) else None
    dense = mask.dense(queries, keys)[:, None] if mask is not None and window is None else None
    added = None if bias is None else bias.dense(queries, keys).astype(q.dtype)
    is_causal = window is not None and window.right == 0
    left = None if window is None else window.left
    lengths = None if window is None else _shortest(parts)
    is_hidden = is_causal and queries <= keys  # the key that makes an odd length even
    if keys % 2 and window is not None and lengths is None and not is_hidden:
        lengths = jnp.full(batch, keys, jnp.int32)
    y = jax.nn.dot_product_attention(
        _even(q.reshape(batch, queries, -1, size), 1),
        _even(k, 1),
        _even(v, 1),
        bias=None if added is None else _even(added.reshape(len(added), -1, queries, keys), 2, 3),
        mask=None if dense is None else _even(dense, 2, 3),
        is_causal=is_causal,
        local_window_size=(left, 0) if is_causal and left is not None else None,
        key_value_seq_lengths=lengths,
        implementation="cudnn",
    )
    return y[:, :queries].reshape(q.shape)


def _even(x: Array, *axes: int) -> Array:
    """x with zeros, or false, behind axes of odd sizes."""
    return jnp.pad(x, [(0, size % 2 if axis in axes else 0) for axis, size in enumerate(x.shape)])


def knows(mask: MaskParts) -> bool:
    """Whether cuDNN knows a mask without its array: all tokens, or a window that ends at the token, and the first keys
    of each row.

    `padding(valid)` is none of these: nothing says that the valid keys come first.
    """
    window = as_window(mask.pattern)
    if window is None or (window.right != 0 and window != Window(None, None)):
        return False
    return mask.segments is None and not mask.rest and all(part.key_lengths is not None for part in mask.keys)


def _shortest(mask: MaskParts) -> Array | None:
    """The number [B] of first keys that all masks of keys allow; at least 1, so that every result is finite."""
    lengths = [part.key_lengths for part in mask.keys if part.key_lengths is not None]
    return jnp.maximum(1, jnp.stack(lengths).min(0)).astype(jnp.int32) if lengths else None


def why_not_cudnn(case: Case) -> str:
    """Why cuDNN cannot handle a case; empty if it can (the conditions of `jax.nn.dot_product_attention`)."""
    if reason := why_not_nvidia(case, "cudnn"):
        return reason
    dtype, size = jnp.dtype(case.q.dtype), case.q.shape[-1]
    if dtype not in ("bfloat16", "float16"):
        return f"cudnn knows bfloat16 and float16, and this is {dtype}"
    max_size = 256 if case.version >= 9 else 128
    if size % 8 or size > max_size:
        return f"for cudnn heads of size {size} must be a multiple of 8 and at most {max_size}"
    bias = case.bias
    if bias is not None and (bias.adds_values or type(bias).apply is not ScoreBias.apply):
        return "cudnn knows biases that are added to the scores, and this one does more"
    if bias is not None and any(spec_of(case.q)[2:4]):
        return "heads are sharded, and the bias is not"
    return why_not_fused(case._replace(bias=None))

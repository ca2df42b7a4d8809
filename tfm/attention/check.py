"""What attention refuses before it computes, in terms of the arrays of its caller."""

from jax import Array

from tfm.masks.mask import Mask


def check_attention(q: Array, k: Array, v: Array, mask: Mask | None) -> None:
    """Raises ValueError unless q [B,T,K,G,H] or [B,T,N,H], k and v [B,S,K,H] and the mask fit each other."""
    shapes = f"shapes are q {q.shape}, k {k.shape} and v {v.shape}"
    if q.ndim not in (4, 5) or k.ndim != 4 or v.ndim != 4:
        raise ValueError(f"q must be [B,T,K,G,H] or [B,T,N,H], k and v [B,S,K,H]; {shapes}")
    if v.shape[:3] != k.shape[:3]:
        raise ValueError(f"v must have the batch, the length and the heads of k; {shapes}")
    if q.shape[0] != k.shape[0]:
        raise ValueError(f"q and k must have the same batch; {shapes}")
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"heads of q and k must have the same size; {shapes}")
    if q.ndim == 5 and q.shape[2] != k.shape[2]:
        raise ValueError(f"q [B,T,K,G,H] and k [B,S,K,H] must have the same K heads; {shapes}")
    if q.ndim == 4 and q.shape[2] % k.shape[2]:
        raise ValueError(f"q has {q.shape[2]} heads, which k's {k.shape[2]} must divide; {shapes}")
    if mask is not None:
        mask.check(len(q), q.shape[1], k.shape[1])


def check_dropout(rate: float, key: Array | None) -> None:
    """Raises ValueError for a rate without the key that its draws need."""
    if rate and key is None:
        raise ValueError(f"rate={rate} needs a key, such as key=jax.random.key(0)")

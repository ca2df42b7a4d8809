"""Attention kernels: which one fits (`choose`), and those that do not keep all scores (`chunked`, `cudnn`, `splash`).

All of them compute what `tfm.attend` does, and take what it takes but for dropout. A query that may see nothing gets the mean of all
values there; here it may get another mean, or zeros, but always something finite: no loss reads such a row.
"""

import math
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import PartitionSpec, reshard

from tfm.attention.bias import ScoreBias
from tfm.attention.chunked import flash
from tfm.axes import platform as platform_around
from tfm.config.choices import choices_of, suggest
from tfm.config.model import Config
from tfm.masks import Both, Constant, Either, Mask, MaskParts, Padding, Prefix, Segments, Since, Window, decompose
from tfm.sharding import mesh_axes, spec_of

# Scores of a layer on one device from which on they are not made all at once, where no fused kernel does it. On a CPU a training step (2
# layers of width 128, 4 heads, 8 x 256 tokens, a million scores on each of 2 devices) then takes 0.55 of the time, one with half as many
# scores (16 x 128 tokens) the same, and memory is saved. Elsewhere memory alone is the reason: these are 1 GB.
LARGE = {"cpu": 1 << 20}
LARGE_ELSEWHERE = 1 << 28

# Keys from which on that is so on a CPU. A step of 4 layers of width 256 on 32 x 128 tokens, 4 heads, takes 0.96 to 0.98 of the time if
# its scores are made all at once, one of 2 layers on 16 x 256 tokens 1.05 to 1.09.
LONG = {"cpu": 256}

# Lengths that splash attention takes are multiples of this.
LANES = 128

# The segment of keys that nobody may see.
NOBODY = jnp.iinfo(jnp.int32).min

# Masks whose arrays have a row for each row of the batch, or one number for all of it.
ROWS = (Window, Padding, Segments, Prefix, Since, Constant)


class KernelError(ValueError):
    """A kernel was asked for that cannot do what is asked of it."""


class Choice(NamedTuple):
    """The name of a kernel, and why it is this one."""

    name: str
    reason: str


class Case(NamedTuple):
    """What the choice depends on: the platform and its version (a GPU's compute capability), the dtype, the sizes of a head and of queries
    and keys, the scores that one device would make, the parts of the mask, the bias, the rate of dropout, and whether the batch, the
    length and the heads are sharded."""

    platform: str
    version: float
    dtype: str
    head: int
    queries: int
    keys: int
    scores: int
    mask: MaskParts
    bias: ScoreBias | None
    rate: float
    sharded: tuple[bool, bool, bool]


def choose_kernel(
    q: Any,
    k: Any,
    mask: Mask | None = None,
    bias: ScoreBias | None = None,
    rate: float = 0.0,
    kernel: str = "auto",
    platform: str = "",
) -> Choice:
    """The kernel for q [B,T,K,G,H] and k [B,S,K,H], arrays or shapes with a dtype, and the reason in words.

    `rate` is that of dropout of attention weights, `kernel` a name to force. `platform` is cpu, tpu, or gpu with its compute capability, as
    in "gpu 9.0"; by default, that of the mesh around. Raises KernelError, which is a ValueError, for a forced kernel that cannot do it.
    """
    if kernel not in choices_of(Config, "kernel"):
        raise KernelError(f"kernel={kernel} is unknown{suggest(kernel, choices_of(Config, 'kernel'))}")
    case = _case(q, k, mask, bias, rate, platform or _here())
    if kernel != "auto":
        if why := CANNOT[kernel](case):
            raise KernelError(f"kernel={kernel} cannot do this: {why}; leave it at auto")
        return Choice(kernel, "asked for")
    fused, why = {"gpu": "cudnn", "tpu": "splash"}.get(case.platform), ""
    if fused:
        why = CANNOT[fused](case)
        if not why and fused == "cudnn" and not _by_flags(case.mask):
            why = "cudnn would read this mask as an array"
        if not why:
            return Choice(fused, f"it is made for a {case.platform} and knows this mask")
        why += "; "
    most = LARGE.get(case.platform, LARGE_ELSEWHERE)
    if case.scores < most:
        return Choice("einsum", f"{why}less than {most:,} scores a layer")
    if case.keys < (long := LONG.get(case.platform, 0)):
        return Choice("einsum", f"{why}less than {long} keys")
    many = f"{why}{most:,} scores a layer or more"
    cannot = CANNOT["chunked"](case)
    return Choice("einsum", f"{many}, but {cannot}") if cannot else Choice("chunked", many)


def _here() -> str:
    """The platform, and of a GPU how capable it is."""
    name = platform_around()
    return f"gpu {getattr(jax.local_devices()[0], 'compute_capability', '')}" if name == "gpu" else name


def _case(q: Any, k: Any, mask: Mask | None, bias: ScoreBias | None, rate: float, platform: str) -> Case:
    """What the choice depends on, looked up."""
    family, _, version = platform.partition(" ")
    mesh, places = jax.typeof(q).sharding.mesh, spec_of(q)
    batch, length, *heads, _ = (bool(place) for place in places)
    return Case(
        platform=family,
        version=float(version) if version.replace(".", "", 1).isdigit() else 0.0,
        dtype=str(jnp.dtype(q.dtype)),
        head=q.shape[-1],
        queries=q.shape[1],
        keys=k.shape[1],
        scores=math.prod(q.shape[:-1]) * k.shape[1] // math.prod(mesh.shape[name] for name in mesh_axes(places)),
        mask=decompose(mask),
        bias=bias,
        rate=rate,
        sharded=(batch, length or bool(spec_of(k)[1]), any(heads)),
    )


def _not_chunked(case: Case) -> str:
    """Why chunks cannot do it; empty where they can."""
    if case.rate:
        return f"attention weights are dropped (at {case.rate:g}), at random places that only einsum draws"
    if case.sharded[1]:
        return "the length is sharded"
    if case.bias is not None and not case.bias.blockwise:
        return "a bias of contents and distances is made for all positions at once"
    if not all(hasattr(leaf, "dtype") for leaf in jax.tree.leaves((case.mask, case.bias))):
        return "a mask or bias is no pytree of arrays"
    if any(case.sharded) and not (_of_rows(case.mask.rest) and (case.bias is None or not case.bias.batched)):
        return "the batch is sharded, and how a mask or bias of a new kind is to be cut is not known"
    if case.sharded[2] and case.bias is not None:
        return "heads are sharded, and the bias is not"
    return ""


def _not_fused(case: Case) -> str:
    """Why neither cuDNN nor splash can do it; empty where both may."""
    if case.bias is not None:
        return "a bias is added to the scores"
    return _not_chunked(case)


def _not_cudnn(case: Case) -> str:
    """Why cuDNN cannot do it; empty where it can (the conditions of `jax.nn.dot_product_attention`)."""
    if case.platform != "gpu" or case.version < 8:
        return f"cudnn needs an NVIDIA GPU of compute capability 8.0 or more, and this is {case.platform} {case.version or ''}".rstrip()
    if case.dtype not in ("bfloat16", "float16"):
        return f"cudnn knows bfloat16 and float16, and this is {case.dtype}"
    most = 256 if case.version >= 9 else 128
    if case.head % 8 or case.head > most:
        return f"for cudnn heads of size {case.head} must be a multiple of 8 and at most {most}"
    if not _by_flags(case.mask) and (case.queries % 2 or case.keys % 2):
        return f"for cudnn with this mask lengths must be even, and they are {case.queries} and {case.keys}"
    return _not_fused(case)


def _not_splash(case: Case) -> str:
    """Why splash attention cannot do it; empty where it can."""
    if case.platform != "tpu":
        return f"splash needs a TPU, and this is {case.platform}"
    if case.dtype not in ("bfloat16", "float32"):
        return f"splash knows bfloat16 and float32, and this is {case.dtype}"
    if case.queries % LANES or case.keys % LANES:
        return f"for splash lengths must be multiples of {LANES}, and they are {case.queries} and {case.keys}"
    if case.mask.rest:
        return "splash knows windows, padding and one mask of segments joined by &, and this mask has other parts"
    if case.mask.window.left is not None and case.queries != case.keys:
        return "for splash with a window there must be as many keys as queries"
    return _not_fused(case)


# Why a kernel cannot do it; the einsum can do everything.
CANNOT: dict[str, Callable[[Case], str]] = {
    "einsum": lambda case: "",
    "chunked": _not_chunked,
    "cudnn": _not_cudnn,
    "splash": _not_splash,
}


def _of_rows(masks: tuple[Mask, ...]) -> bool:
    """Whether masks are of the kinds of `tfm.masks`, whose arrays have a row for each row of the batch, or one number for all."""
    inner = [each for mask in masks if isinstance(mask, Both | Either) for each in (mask.one, mask.other)]
    own = [mask for mask in masks if not isinstance(mask, Both | Either)]
    return all(isinstance(mask, ROWS) for mask in own) and (not inner or _of_rows(tuple(inner)))


def _by_flags(mask: MaskParts) -> bool:
    """Whether cuDNN knows a mask by itself: what is before a token, all of it or a window, and the first keys of each row.

    `padding(valid)` is not of that kind: nothing says that what is valid comes first.
    """
    before = mask.window.right == 0 or mask.window == Window(None, None)
    return before and mask.segments is None and not mask.rest and all(isinstance(each, Prefix) for each in mask.keys)


def on_shards(kernel: Callable[..., Array]) -> Callable[..., Array]:
    """A kernel that each device applies to its own rows and heads, where q is sharded along them."""

    @wraps(kernel)
    def sharded(
        q: Array, k: Array, v: Array, mask: Mask | None = None, bias: ScoreBias | None = None, **options
    ) -> Array:
        places = spec_of(q)
        if not any(places):
            return kernel(q, k, v, mask, bias, **options)
        rows = lambda leaf: PartitionSpec(places[0] if leaf.ndim and leaf.shape[0] == len(q) else None)
        keys = PartitionSpec(places[0], None, places[2], None)
        specs = (
            PartitionSpec(*places),
            keys,
            keys,
            jax.tree.map(rows, mask),
            jax.tree.map(lambda leaf: PartitionSpec(), bias),
        )
        given = jax.tree.map(reshard, (q, k, v, mask, bias), specs)
        mesh = jax.typeof(q).sharding.mesh
        return jax.shard_map(
            partial(kernel, **options), mesh=mesh, in_specs=specs, out_specs=specs[0], check_vma=False
        )(*given)

    return sharded


@on_shards
def chunked(q: Array, k: Array, v: Array, mask: Mask | None = None, bias: ScoreBias | None = None) -> Array:
    """q [B,T,K,G,H], k and v [B,S,K,H] -> [B,T,K,G,H]: a softmax that is kept up to date block by block (`tfm.flash`).

    It has a gradient, but no forward mode and no second derivative; `tfm.attend` has.
    """
    return flash(q, k, v, mask, bias)


@on_shards
def cudnn(q: Array, k: Array, v: Array, mask: Mask | None = None, bias: None = None) -> Array:
    """q [B,T,K,G,H], k and v [B,S,K,H] -> [B,T,K,G,H]: the flash attention of cuDNN, for NVIDIA GPUs.

    A mask that it does not know by itself goes in as an array [B or 1,1,T,S]. That is not chosen without being asked for: cuDNN then reads
    all of it, and it has not been tried on a GPU.
    """
    found, (batch, queries, *_, size) = decompose(mask), q.shape
    window, before = found.window, found.window.right == 0
    array, lengths = None, None
    if mask is not None and not _by_flags(found):
        array = mask.dense(queries, k.shape[1])[:, None]
    elif found.keys:  # of a row of no keys one is seen, so that the result is finite
        shortest = jnp.stack([each.lengths for each in found.keys if isinstance(each, Prefix)]).min(0)
        lengths = jnp.maximum(1, shortest).astype(jnp.int32)
    y = jax.nn.dot_product_attention(
        q.reshape(batch, queries, -1, size),
        k,
        v,
        mask=array,
        is_causal=before,
        local_window_size=(window.left, 0) if before and window.left is not None else None,
        key_value_seq_lengths=lengths,
        implementation="cudnn",
    )
    return y.reshape(q.shape)


@on_shards
def splash(q: Array, k: Array, v: Array, mask: Mask | None = None, bias: None = None, interpret: bool = False) -> Array:
    """q [B,T,K,G,H], k and v [B,S,K,H] -> [B,T,K,G,H]: the splash attention of jax's Pallas kernels, for TPUs.

    Padding is a segment that no query is in. `interpret` runs the kernel on a CPU, slowly.
    """
    from jax.experimental.pallas.ops.tpu import splash_attention as pallas

    found, (batch, queries, _, groups, size), keys = decompose(mask), q.shape, k.shape[1]
    window, shape = found.window, (queries, keys)
    if window == Window(None, None):
        one: Any = pallas.FullMask(shape)
    else:
        one = pallas.LocalMask(shape, (window.left, window.right), 0)
    block_q, block_k = (next(size for size in (512, 256, LANES) if length % size == 0) for length in shape)
    blocks = pallas.BlockSizes(block_q, block_k, block_k, block_q, block_k, block_k, block_q, block_k)
    kernel = pallas.make_splash_mqa_single_device(
        pallas.MultiHeadMask([one] * groups), block_sizes=blocks, interpret=interpret
    )
    over_heads = jax.vmap(kernel, in_axes=(0, 0, 0, None))
    grouped = lambda x: jnp.moveaxis(x, 1, -2)
    ids = _ids(found, batch, queries, keys)
    y = jax.vmap(over_heads)(
        grouped(q * size**-0.5), grouped(k), grouped(v), None if ids is None else pallas.SegmentIds(*ids)
    )
    return jnp.moveaxis(y, -2, 1)


def _ids(mask: MaskParts, batch: int, queries: int, keys: int) -> tuple[Array, Array] | None:
    """Segments of queries [B,T] and keys [B,S]; None where a mask has neither segments nor padding."""
    if mask.segments is None and not mask.keys:
        return None
    of_queries, of_keys = jnp.zeros((batch, queries), jnp.int32), jnp.zeros((batch, keys), jnp.int32)
    if mask.segments is not None:
        of_queries, of_keys = of_queries + mask.segments.queries, of_keys + mask.segments.keys
    places = jnp.arange(keys)[None]
    for each in mask.keys:
        of_keys = jnp.where(each(jnp.zeros((1, 1), jnp.int32), places)[:, 0], of_keys, NOBODY)
    return of_queries, of_keys

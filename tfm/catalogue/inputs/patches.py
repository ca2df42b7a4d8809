"""Patches of an image as vectors: one linear map of the pixels of each (Dosovitskiy et al. 2021, section 3.1)."""

from collections.abc import Callable, Sequence
from typing import Protocol

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.catalogue.grid import as_sequence, stacked_squares
from tfm.catalogue.options.inputs import Patches, PictureOptions
from tfm.config.model import Config
from tfm.inputs import MaskedPixels, default_positions
from tfm.interfaces import Input, LayerCall
from tfm.norms import Norm, norm, norm_specs
from tfm.ops import Linear, broadcast_param, dropout, einsum, expand_param, linear, linear_specs
from tfm.options.choices import Options
from tfm.params import PyTree, vector_spec
from tfm.sharding import named_sharding, reshape_rows, shard_patches, spec_of
from tfm.tables.positions import POSITIONS


@struct.dataclass
class PatchEmbed:
    """The map [h,w,c,D] of the pixels of a patch, what positions need, the vectors [D] and [n,D] before the patches and
    that in place of masked ones, and the norms over all and of what patches become.

    None where a model lacks one.
    """

    projection: Linear
    positions: PyTree
    cls: Array | None
    registers: Array | None
    distilled: Array | None
    mask_token: Array | None
    norm: Norm | None
    patch_norm: Norm | None = None


def specs(options: Patches, config: Config) -> PatchEmbed:
    """The spec tree of the embeddings."""
    height, width = options.patch_sides if options.kernel is None else (options.kernel, options.kernel)
    return PatchEmbed(
        projection=linear_specs(config, "hwc", "D", bias=options.bias, h=height, w=width, c=options.channels),
        positions=POSITIONS[config.position.name].embed_specs(config.position, config),
        cls=vector_spec(config, "D") if options.cls else None,
        distilled=vector_spec(config, "D") if options.distilled else None,
        registers=vector_spec(config, "nD", n=options.registers) if options.registers else None,
        mask_token=vector_spec(config, "D") if options.mask_token else None,
        norm=norm_specs(config) if options.norm else None,
        patch_norm=norm_specs(config) if options.patch_norm else None,
    )


def embed(
    call: LayerCall[Patches, PatchEmbed, None],
    inputs: Array | MaskedPixels,
    positions: Array | None = None,
    types: Array | None = None,
) -> Array:
    """pixels float [B,H,W,C] -> [B,T,D], as `tfm.embed` does: [CLS], if any, then the patches row by row.

    A processor has normalized the pixels: their mean is about 0, their deviation about 1.
    """
    tables, options, config = call.params, call.options, call.config
    pixels, masked = (inputs.pixels, inputs.masked) if isinstance(inputs, MaskedPixels) else (inputs, None)
    check_pixels(options, pixels, types)
    x = projected(tables.projection, patches(options, pixels).astype(config.dtype))
    x = x if tables.patch_norm is None else norm(config, tables.patch_norm, x)
    x = x if masked is None else _with_mask_token(tables.mask_token, masked, x)
    return embed_grid(call, [tables.cls, tables.distilled, tables.registers], x, positions)


def projected(projection: Linear, squares: Array) -> Array:
    """Squares of pixels [B,T,h,w,c] -> float32 [B,T,D]."""
    x = einsum("BThwc,hwcD->BTD", squares, projection.kernel, jnp.float32)
    return x if projection.bias is None else x + broadcast_param(projection.bias, x)


class GridEmbed(Protocol):
    """Parameters of embeddings of a grid, or of a series: what positions need, and the norm over all."""

    @property
    def positions(self) -> PyTree: ...
    @property
    def norm(self) -> Norm | None: ...


def embed_grid(
    call: LayerCall[Options, GridEmbed, None], vectors: Sequence[Array | None], x: Array, positions: Array | None
) -> Array:
    """Vectors [D] or [n,D] that stand first, None for those that a model lacks, and those of a grid, or of a series, x
    [B,P,D] -> [B,T,D] with positions, the norm and dropout."""
    tables, config = call.params, call.config
    x = with_positions(config, tables.positions, with_vectors(vectors, x), positions)
    x = x if tables.norm is None else norm(config, tables.norm, x)
    return dropout(x, config.dropout, call.key).astype(config.dtype)


def embed_network(
    call: LayerCall,
    network: Callable[..., Array],
    first: list[Array | None],
    pixels: Array | MaskedPixels,
    positions: Array | None,
    types: Array | None,
) -> Array:
    """pixels float [B,H,W,C] -> [B,T,D], as `tfm.embed` does: first vectors, then the last grid of a network row by
    row; the network is a function of its parameters, options and pixels.

    Raises ValueError for images of another size, and for masked patches.
    """
    params, options, config = call.params, call.options, call.config
    if isinstance(pixels, MaskedPixels):
        raise ValueError(
            f"input={options.name} has no vector for masked patches; take input=patches and input.mask_token=true"
        )
    check_pixels(options, pixels, types)
    x = as_sequence(network(params, options, pixels.astype(config.dtype)))
    x = linear(params.projection, "BTc,cD->BTD", x).astype(jnp.float32)
    return embed_grid(call, first, x, positions)


def with_vectors(vectors: Sequence[Array | None], x: Array) -> Array:
    """Vectors [D] or [n,D] that stand first, None for those that a model lacks, and x [B,P,D] -> [B,T,D]."""
    rows = [_rows(vector, x) for vector in vectors if vector is not None]
    return shard_patches(jnp.concatenate([*rows, x], axis=1))


def with_positions(config: Config, tables: PyTree, x: Array, positions: Array | None) -> Array:
    """x [B,T,D] with what `config.position` adds to embeddings, by default at the places from 0 on."""
    positions = default_positions(x) if positions is None else positions
    return POSITIONS[config.position.name].embed(LayerCall(config.position, config, tables), x, positions)


def patches(options: Patches, pixels: Array) -> Array:
    """pixels [B,H,W,C] -> the patches [B,T,h,w,c], row by row; with `options.kernel`, the squares around them."""
    if options.kernel is not None:
        return stacked_squares(pixels, options.kernel, options.patch)
    return cut(options, pixels)


def cut(options: PictureOptions, pixels: Array) -> Array:
    """pixels [B,H,W,C] -> the squares [B,T,h,w,c] behind the places of the grid, row by row."""
    (rows, columns), (height, width), batch = options.grid, options.patch_sides, len(pixels)
    x = reshape_rows(pixels, batch, rows, height, columns, width, options.channels).swapaxes(2, 3)
    return reshape_rows(x, batch, rows * columns, height, width, options.channels)


def _with_mask_token(mask_token: Array | None, masked: Array, x: Array) -> Array:
    """x [B,P,D] of patches -> the same with the vector of masked ones. Raises ValueError where there is none."""
    if mask_token is None:
        raise ValueError("patches are masked, and the model has no vector for them; take input.mask_token=true")
    if masked.shape != x.shape[:2]:
        raise ValueError(
            f"masked has shape {list(masked.shape)}; it must be {list(x.shape[:2])}, a bool for each patch"
        )
    return jnp.where(masked.astype(bool)[..., None], broadcast_param(mask_token, x), x)


def _rows(vector: Array, x: Array) -> Array:
    """A vector [D] or vectors [n,D] -> [B,1,D] or [B,n,D], sharded like x [B,T,D]."""
    row = expand_param(vector, x)
    return jnp.broadcast_to(row, (len(x), *row.shape[1:]), out_sharding=named_sharding(x, x, *spec_of(x)))


def check_pixels(options: PictureOptions, pixels: object, types: object) -> None:
    """Raises ValueError unless pixels are floating-point numbers of images of the size that the model reads."""
    remedy = "resize them, or adapt the model with tfm.interpolate_positions"
    check_array("pixels", "HWC", options.pixels, pixels, types, remedy)


def check_array(
    name: str, letters: str, sizes: Sequence[int], array: object, types: object, remedy: str = "resize them"
) -> None:
    """Raises ValueError unless an array of images or videos has floating-point numbers and the shape that the model
    reads, whose axes behind B have these letters and sizes."""
    axes, kind = f"[B,{','.join(letters)}]", "videos" if "F" in letters else "images"
    shape, dtype = getattr(array, "shape", None), getattr(array, "dtype", None)
    if shape is None or dtype is None:
        raise ValueError(f"{name} must be an array {axes}, not a {type(array).__name__}; wrap it in jnp.array")
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(f"{name} must be floating-point numbers, not {dtype}; divide by 255 and normalize them")
    if len(shape) != 1 + len(letters) or tuple(shape[1:]) != tuple(sizes):
        raise ValueError(
            f"{name} must have the shape [B,{','.join(map(str, sizes))}] of the {kind} that the model reads, not "
            f"{list(shape)}; {remedy}"
        )
    if types is not None:
        raise ValueError(f"types tell the sentences of a pair apart, and {kind} have none; leave them out")


def contents(options: PictureOptions, config: Config, count: int, length: int) -> Array:
    """float32 [count,H,W,C]: images, each of one random patch that is repeated."""
    patch = jax.random.normal(jax.random.key(0), (count, *options.patch_sides, options.channels))
    return jnp.tile(patch, (1, *options.grid, 1))


INPUT = Input(specs, embed, contents)

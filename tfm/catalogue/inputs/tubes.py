"""Tubes of a video as vectors: one linear map of the pixels of each, over space and time (ViViT: Arnab et al. 2021,
section 3.2, "tubelet embedding")."""

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.catalogue.inputs.patches import check_array, embed_grid
from tfm.catalogue.options.frames import Tubes
from tfm.config.model import Config
from tfm.interfaces import Input, LayerCall
from tfm.norms import Norm, norm_specs
from tfm.ops import Linear, broadcast_param, einsum, linear_specs
from tfm.params import PyTree, vector_spec
from tfm.sharding import reshape_rows
from tfm.tables.positions import POSITIONS


@struct.dataclass
class TubeEmbed:
    """The map [t,h,w,c,D] of the pixels of a tube, what positions need, the vector [D] before the tubes, and the norm
    over all. None where a model lacks one."""

    projection: Linear
    positions: PyTree
    cls: Array | None
    norm: Norm | None


def specs(options: Tubes, config: Config) -> TubeEmbed:
    """The spec tree of the embeddings."""
    time, side, channels = options.tube, options.patch, options.channels
    return TubeEmbed(
        projection=linear_specs(config, "thwc", "D", bias=options.bias, t=time, h=side, w=side, c=channels),
        positions=POSITIONS[config.position.name].embed_specs(config.position, config),
        cls=vector_spec(config, "D") if options.cls else None,
        norm=norm_specs(config) if options.norm else None,
    )


def embed(
    call: LayerCall[Tubes, TubeEmbed, None],
    videos: Array,
    positions: Array | None = None,
    types: Array | None = None,
) -> Array:
    """videos float [B,F,H,W,C] -> [B,T,D], as `tfm.embed` does: [CLS], if any, then the tubes of the first frames, row
    by row, and so on.

    Raises ValueError for videos of another size.
    """
    tables, options, config = call.params, call.options, call.config
    check_array("videos", "FHWC", options.array_shape or (), videos, types)
    tubes = cut(options, videos).astype(config.dtype)
    x = einsum("BTthwc,thwcD->BTD", tubes, tables.projection.kernel, jnp.float32)
    x = x if tables.projection.bias is None else x + broadcast_param(tables.projection.bias, x)
    return embed_grid(call, [tables.cls], x, positions)


def cut(options: Tubes, videos: Array) -> Array:
    """videos [B,F,H,W,C] -> the tubes [B,T,t,h,w,c]."""
    (times, rows, columns), side, batch = options.axes, options.patch, len(videos)
    x = reshape_rows(videos, batch, times, options.tube, rows, side, columns, side, options.channels)
    x = x.transpose(0, 1, 3, 5, 2, 4, 6, 7)
    return reshape_rows(x, batch, times * rows * columns, *x.shape[4:])


def contents(options: Tubes, config: Config, count: int, length: int) -> Array:
    """float32 [count,F,H,W,C]: videos, each of one random tube that is repeated."""
    tube = (options.tube, options.patch, options.patch, options.channels)
    return jnp.tile(jax.random.normal(jax.random.key(0), (count, *tube)), (1, *options.axes, 1))


INPUT = Input(specs, embed, contents)

"""A tower of texts and a tower of images, whose vectors meet in one space (CLIP: Radford et al. 2021, figure 3; SigLIP:
Zhai et al. 2023)."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.config.model import Config
from tfm.config.towers import ImageTower
from tfm.masks.by_example import padding
from tfm.models.encoder import Encoder, encoder, encoder_specs
from tfm.models.features import features
from tfm.models.pooling import AttentionPooler, attention_pool, pool, pooler_specs
from tfm.ops import Linear, linear, linear_specs, unit_vectors
from tfm.params import ArraySpec, constant_spec
from tfm.sharding import positions_like


@struct.dataclass
class Towers:
    """An encoder of texts and one of images, what leads from each into the shared space, and what turns cosines into
    logits.

    image_pooler: the attention that makes one vector of an image, or None
    text_projection, image_projection: maps into the shared space; None where images stay in their own width
    log_scale: logarithm of the factor of cosines, float32 []
    bias: what is added to logits, float32 []; None for a softmax over the batch, which it would not change
    """

    text: Encoder
    image: Encoder
    text_projection: Linear
    image_pooler: AttentionPooler | None
    image_projection: Linear | None
    log_scale: Array
    bias: Array | None


def towers_specs(config: Config) -> Towers:
    """The spec tree. Raises ValueError for a model without `config.images`."""
    images, tower = config.in_images(), image_tower(config)
    log_scale, bias = tower.logit_starts
    return Towers(
        text=encoder_specs(config),
        image=encoder_specs(images),
        text_projection=_projection_specs(config, tower),
        image_pooler=pooler_specs(images) if tower.pool == "attention" else None,
        image_projection=None if tower.projection is None else _projection_specs(images, tower),
        log_scale=_scalar_spec(config, log_scale),
        bias=None if bias is None else _scalar_spec(config, bias),
    )


def image_tower(config: Config) -> ImageTower:
    """The options of the tower of images. Raises ValueError for a model without one."""
    config.in_images()
    assert config.images is not None
    return config.images


def _projection_specs(config: Config, tower: ImageTower) -> Linear:
    """A map from the states of a tower [D] into the shared space [p]."""
    return linear_specs(config, "D", "p", bias=tower.projection_bias, p=tower.size)


def _scalar_spec(config: Config, value: float) -> ArraySpec:
    """A trained number, float32: bfloat16 would round most of its steps away."""
    return replace(constant_spec(config, "", value), dtype="float32")


def text_vectors(
    params: Towers, config: Config, tokens: Array, valid: Array | None = None, key: Array | None = None
) -> Array:
    """tokens int32 [B,T], of which valid [B,T] are no padding -> float32 [B,p] of length 1, in the shared space.

    `config.head.causal` says whether a token sees those behind it, `config.head.pool` which state stands for a text;
    for CLIP it is that of the last token, [EOS]. A key turns dropout on. Raises ValueError for texts of another length
    than `config.length` where the model reads padding.
    """
    if image_tower(config).reads_padding:
        if tokens.shape[1] != config.length:
            raise ValueError(
                f"tokens have {tokens.shape[1]} places, and images.reads_padding=true reads texts with their padding; "
                f"fill them up to length={config.length}"
            )
        valid = None
    mask = None if valid is None else padding(valid)
    with jax.named_scope("text"):
        hidden = features(params.text, None, config, tokens, mask, key=key)
    return unit_vectors(project_text(params, config, hidden, valid))


def image_vectors(params: Towers, config: Config, images: Array, key: Array | None = None) -> Array:
    """images: pixels float [B,H,W,C], which a processor has normalized -> float32 [B,p] of length 1, in the shared
    space.

    A key turns dropout on. Raises ValueError for images of another size than `config.images.input` says.
    """
    with jax.named_scope("image"):
        hidden = encoder(params.image, config.in_images(), images, key=key)
    return unit_vectors(project_image(params, config, hidden))


def project_text(params: Towers, config: Config, hidden: Array, valid: Array | None = None) -> Array:
    """hidden [B,T,D] of texts -> float32 [B,p] of any length."""
    return _project(params.text_projection, pool(hidden, valid, config.head.pool))


def project_image(params: Towers, config: Config, hidden: Array) -> Array:
    """hidden [B,T,D] of images -> float32 [B,p] of any length."""
    return _project(params.image_projection, pool_image(params, config, hidden))


def pool_image(params: Towers, config: Config, hidden: Array) -> Array:
    """hidden [B,T,D] of images -> [B,D], the vectors that stand for them."""
    images = config.in_images()
    if params.image_pooler is not None:
        return attention_pool(params.image_pooler, images, hidden)
    prefix = images.stage_configs[-1].input.prefix
    is_patch = positions_like(hidden) >= prefix if prefix else None
    return pool(hidden, is_patch, images.head.pool)


def _project(projection: Linear | None, x: Array) -> Array:
    """x [B,D] -> float32 [B,p]."""
    y = x if projection is None else linear(projection, "BD,Dp->Bp", x)
    return y.astype(jnp.float32)

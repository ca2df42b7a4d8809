"""Classifiers: from hidden states to one vector of a text or an image, and to the logits of its classes."""

import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.config.model import Config
from tfm.masks.by_example import padding
from tfm.models.encoder import Encoder, encoder, encoder_specs
from tfm.models.features import LayerMix, features, features_axis, mix_specs
from tfm.models.pooling import pool
from tfm.norms import Norm, norm, norm_specs
from tfm.ops import ACTIVATIONS, Linear, dropout, linear, linear_specs, split
from tfm.params import PyTree, weight_spec
from tfm.sharding import positions_like, replicate_length


@struct.dataclass
class Classifier:
    """An encoder, the pooler that makes one vector of a text or an image, an output for each class, and the norm before
    it; `distilled` is an output that reads the second vector of an image, `mix` the weights of layers, `table` [V,D]
    that of next tokens beside the classes, where it is not the token table. None where a model has none, or one that
    was read has none."""

    encoder: Encoder
    pooler: Linear | None
    output: PyTree
    norm: Norm | None = None
    distilled: Linear | None = None
    mix: LayerMix | None = None
    table: Array | None = None


def classifier_specs(config: Config, generative: bool = False) -> Classifier:
    """The spec tree of a classifier with `config.classes` outputs, which read the states of the last stage; a
    `generative` one can predict next tokens too."""
    last, (axis, sizes) = config.stage_configs[-1], features_axis(config)
    has_bias = config.head.output_bias or not config.head.causal
    pooled_axis = "E" if config.head.dense or not sizes else axis
    return Classifier(
        encoder=encoder_specs(config),
        pooler=linear_specs(last, axis, "E", bias=config.head.bias, **sizes) if config.head.dense else None,
        output=linear_specs(last, "D" if pooled_axis == "E" else axis, "C", bias=has_bias, **sizes),
        norm=norm_specs(last, pooled_axis, **sizes) if config.head.pool_norm else None,
        distilled=linear_specs(last, "D", "C", bias=True) if config.head.distilled else None,
        mix=mix_specs(config),
        table=weight_spec(config, "VD") if generative and not config.tie_embeddings else None,
    )


def classify(
    model: Classifier,
    config: Config,
    inputs: PyTree,
    valid: Array | None = None,
    types: Array | None = None,
    key: Array | None = None,
) -> Array:
    """What `config.input` reads, such as tokens [B,T] -> float32 logits [B,C], of a class each (Devlin et al. 2018,
    section 4.1; Dosovitskiy et al. 2021, eq. 4); one class is a regression. Raises ValueError as `encoder` does.

    valid [B,T] is True for a token and False for padding, types [B,T] tell the sentences of a pair apart; a decoder
    (`config.head.causal`) has no types. `config.head.layer` says after how many layers states are read. A key turns
    dropout on. With `config.head.distilled` logits are the mean of those of both outputs (Touvron et al. 2021,
    section 4).
    """
    encoder_key, drop_key = split(key, 2)
    mask = None if valid is None else padding(valid)
    hidden = features(model.encoder, model.mix, config, inputs, mask, types, encoder_key)
    return text_logits(model, config, hidden, valid, drop_key)


def classify_distilled(
    model: Classifier, config: Config, pixels: Array, key: Array | None = None
) -> tuple[Array, Array]:
    """pixels [B,H,W,C] -> float32 logits [B,C] of the label, and of what a teacher says (Touvron et al. 2021,
    section 4). A key turns dropout on.

    Raises ValueError for a model without the second output.
    """
    encoder_key, drop_key = split(key, 2)
    return both_logits(model, config, encoder(model.encoder, config, pixels, key=encoder_key), drop_key)


def text_logits(
    model: Classifier, config: Config, hidden: Array, valid: Array | None = None, key: Array | None = None
) -> Array:
    """hidden [B,T,D] -> float32 logits [B,C] of a class each."""
    if model.distilled is not None:
        label_logits, teacher_logits = both_logits(model, config, hidden, key)
        return (label_logits + teacher_logits) / 2
    return _label_logits(model, config, hidden, valid, key)


def both_logits(model: Classifier, config: Config, hidden: Array, key: Array | None = None) -> tuple[Array, Array]:
    """hidden [B,T,D] of images -> float32 logits [B,C] of the label, and of what a teacher says."""
    if model.distilled is None:
        raise ValueError("the model has no output for what a teacher says; make it with head.distilled=true")
    label_key, teacher_key = split(key, 2)
    second = replicate_length(hidden)[:, 1]
    teacher_logits = class_logits(model.distilled, dropout(second, config.dropout, teacher_key))
    return _label_logits(model, config, hidden, None, label_key), teacher_logits


def _label_logits(model: Classifier, config: Config, hidden: Array, valid: Array | None, key: Array | None) -> Array:
    """hidden [B,T,D] -> float32 logits [B,C] of the pooled states."""
    return class_logits(model.output, dropout(pooled_states(model, config, hidden, valid), config.dropout, key))


def pooled_states(model: Classifier, config: Config, hidden: Array, valid: Array | None = None) -> Array:
    """hidden [B,T,D] -> [B,D]: what stands for a text or an image, as `config.head` says."""
    kind, prefix = config.head.pool, config.stage_configs[-1].input.prefix
    if prefix:
        is_read = positions_like(hidden) >= prefix
        valid = ~is_read if kind == "prefix" else is_read if valid is None else is_read & valid.astype(bool)
    return pooled(model.pooler, model.norm, config, pool(hidden, valid, "mean" if kind == "prefix" else kind))


POOLERS = {"tanh": jnp.tanh, **ACTIVATIONS}


def pooled(pooler: Linear | None, after: Norm | None, config: Config, x: Array) -> Array:
    """x [B,D] -> [B,D]: a linear map and the activation that the config names for it, and a norm; those that the model
    has."""
    y = x if pooler is None else POOLERS[config.head.pool_activation](linear(pooler, "BD,DE->BE", x))
    return y if after is None else norm(config, after, y)


def class_logits(output: Linear, x: Array) -> Array:
    """x [B,D] -> float32 logits [B,C]."""
    return linear(output, "BD,DC->BC", x).astype(jnp.float32)

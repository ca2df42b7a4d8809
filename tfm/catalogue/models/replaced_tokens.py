"""Replaced-token detection: a small generator fills masks, and a discriminator says which tokens it replaced (ELECTRA:
Clark et al. 2020, section 2).

Both read the tables of the discriminator's embeddings. With an offset (DeBERTa-v3: He et al. 2023, section 3.2) the
generator alone trains them, and the discriminator reads tables plus offset.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm import params
from tfm.catalogue.options.generator import GeneratorShape
from tfm.config.model import Config
from tfm.inputs import Embed
from tfm.losses.vocabulary import unembed
from tfm.masks.mask import Mask
from tfm.models.encoder import Encoder, encoder
from tfm.models.heads import MaskedLM, MlmHead, Tagger, masked_lm_specs, mlm_features, tagger_specs, token_logits
from tfm.ops import Linear, broadcast_param
from tfm.options.dotted import override
from tfm.params import PyTree
from tfm.sharding import shard_axis, take_positions

# Tables of embeddings, which both models read.
TABLES = ("tokens", "positions", "types")


@struct.dataclass
class TokenGenerator:
    """A masked language model without tables of its own. Its encoder has no norm of embeddings where that is the
    discriminator's."""

    encoder: Encoder
    head: MlmHead
    shape: GeneratorShape = struct.field(pytree_node=False)


@struct.dataclass
class ReplacedDetector:
    """A discriminator (an encoder, a map, and an output for each token), a generator, and the offset of the
    discriminator's tables, None where both share them."""

    encoder: Encoder
    dense: Linear
    output: Linear
    generator: TokenGenerator
    offset: Embed | None = None


class PredictedPlaces(NamedTuple):
    """Places that a generator predicts.

    where: int32 [B,M], with the tokens `targets` [B,M] that stood there
    slots: int32 [B,T], which of the M predictions fills a place; -1: the token stays
    seeds: int32 [B], of the samples of a row
    """

    where: Array
    targets: Array
    slots: Array
    seeds: Array

    def filled(self, values: Array, otherwise: Array) -> Array:
        """values [B,M] of the predictions, and [B,T] where there are none -> [B,T]."""
        taken = take_positions(values, jnp.maximum(self.slots, 0))
        return jnp.where(self.slots >= 0, taken, otherwise)


class Replacement(NamedTuple):
    """A text some of whose tokens a generator replaced.

    features: [B,M,U] of the generator, of every place that it predicts
    tokens: int32 [B,T], what the discriminator reads
    is_replaced: bool [B,T]
    """

    features: Array
    tokens: Array
    is_replaced: Array


def replaced_detector_specs(config: Config, shape: GeneratorShape, offset: bool = False) -> ReplacedDetector:
    """The spec tree of a discriminator, its generator and, with `offset`, what the discriminator adds to the tables."""
    tagger = tagger_specs(dataclasses.replace(config, classes=1), dense=True)
    assert tagger.dense is not None, "the head asks for it"
    small = generator_config(config, shape)
    language_model = masked_lm_specs(small)
    own, tables = language_model.encoder.embed, tagger.encoder.embed
    is_shared = not offset and _shapes(own.norm) == _shapes(tables.norm)
    own = dataclasses.replace(own, **dict.fromkeys(TABLES), norm=None if is_shared else own.norm)
    zeros = jax.tree.map(lambda spec: dataclasses.replace(spec, init=params.constant(0.0)), tables)
    return ReplacedDetector(
        encoder=tagger.encoder,
        dense=tagger.dense,
        output=tagger.output,
        generator=TokenGenerator(dataclasses.replace(language_model.encoder, embed=own), language_model.head, shape),
        offset=dataclasses.replace(zeros, norm=None, projection=None) if offset else None,
    )


def generator_config(config: Config, shape: GeneratorShape) -> Config:
    """The configuration of the generator of a discriminator: it reads embeddings of the same width."""
    embedding = config.sizes["U"]
    values = {
        "layers": shape.layers,
        "width": shape.width,
        "heads": shape.heads,
        "kv_heads": None if shape.heads != config.heads else config.kv_heads,
        "head_size": None if shape.width != config.width else config.head_size,
        "ffn": None if config.ffn is None else max(1, config.ffn * shape.width // config.width),
        "input.width": None if shape.width == embedding else embedding,
    }
    return override(config, values)


def generator_of(model: ReplacedDetector) -> MaskedLM:
    """The generator with the tables that it reads: those that the discriminator's offset is added to."""
    own, tables = model.generator.encoder.embed, model.encoder.embed
    read = {name: getattr(tables, name) for name in TABLES}
    embed = dataclasses.replace(own, **read, norm=tables.norm if own.norm is None else own.norm)
    return MaskedLM(dataclasses.replace(model.generator.encoder, embed=embed), model.generator.head)


def discriminator_of(model: ReplacedDetector) -> Tagger:
    """The discriminator. With an offset, its loss has no gradient for the tables below the offset."""
    stack, offset = model.encoder, model.offset
    if offset is not None:
        tables = {name: jax.tree.map(_shifted, getattr(stack.embed, name), getattr(offset, name)) for name in TABLES}
        stack = dataclasses.replace(stack, embed=dataclasses.replace(stack.embed, **tables))
    return Tagger(encoder=stack, output=model.output, dense=model.dense)


def replace_tokens(
    model: ReplacedDetector,
    config: Config,
    tokens: Array,
    places: PredictedPlaces,
    mask: Mask | None = None,
    positions: Array | None = None,
    key: Array | None = None,
) -> Replacement:
    """Fills masks with samples of the generator's distribution, which have no gradient (Clark et al. 2020, eq. 1-2).

    tokens: int32 [B,T], some of them masked
    key: turns dropout on
    """
    language_model, small = generator_of(model), generator_config(config, model.generator.shape)
    hidden = encoder(language_model.encoder, small, tokens, mask, positions, key=key)
    features = mlm_features(language_model.head, small, take_positions(hidden, places.where))
    samples = sample_tokens(language_model, small, jax.lax.stop_gradient(features), places.seeds)
    is_replaced = places.filled(samples != places.targets, jnp.zeros_like(tokens, bool))
    return Replacement(features, places.filled(samples, tokens), is_replaced)


def sample_tokens(model: MaskedLM, config: Config, features: Array, seeds: Array) -> Array:
    """features [B,M,U] and seeds int32 [B] -> tokens int32 [B,M], drawn as the model says: the largest logit plus
    Gumbel noise, whose tail is exact (`jax.random.categorical`)."""
    logits = unembed(config, model.output, features)
    logits = shard_axis(logits + broadcast_param(model.head.bias, logits), None, 2)

    def draw(seed: Array, row: Array) -> Array:
        return jax.random.categorical(jax.random.key(seed), row, mode="high")

    return jax.vmap(draw)(seeds, logits).astype(jnp.int32)


def replaced_logits(
    model: Tagger,
    config: Config,
    tokens: Array,
    mask: Mask | None = None,
    positions: Array | None = None,
    key: Array | None = None,
) -> Array:
    """tokens [B,T] -> float32 logits [B,T] that a token was replaced (Clark et al. 2020, section 2).

    A key turns dropout of the encoder on.
    """
    hidden = encoder(model.encoder, config, tokens, mask, positions, key=key)
    return token_logits(model, config, hidden)[..., 0]


def _shifted(table: Array, offset: Array) -> Array:
    """The sum, with a gradient for the offset alone."""
    return jax.lax.stop_gradient(table) + offset


def _shapes(part: PyTree) -> list[tuple[int, ...]]:
    """The shapes of all parameters."""
    return [spec.shape for spec in jax.tree.leaves(part)]

"""Positions by distances: biases of scores, vectors of distances, and comparisons apart from contents."""

from typing import ClassVar, Literal

from tfm.options.choices import MAX_LENGTH, check_fields, check_maximum, check_minimum, frozen, tag
from tfm.options.model import ModelConfig
from tfm.options.slots import PositionOptions


@frozen
class T5(PositionOptions):
    """A trained bias of scores for each bucket of distances and head (Raffel et al. 2020, section 2.1).

    buckets: number of buckets
    max_distance: longer distances share the last bucket
    blocks: another table, for distances of blocks: of the keys of blocks that mixer.pattern=transient adds
    every_layer: each layer has a table of its own (umT5: Chung et al. 2023)
    absolute: a trained vector for each position is added to the embeddings too (MPNet: Song et al. 2020)
    """

    name: Literal["t5"] = tag("t5")
    buckets: int = 32
    max_distance: int = 128
    blocks: bool = False
    every_layer: bool = False
    absolute: bool = False

    def __post_init__(self):
        _check_buckets(self)
        if self.blocks and self.every_layer:
            raise ValueError("position.blocks=true has one table; take position.every_layer=false")

    def max_length(self, config: ModelConfig) -> int | None:
        return config.sizes["P"] if self.absolute else None


@frozen
class Alibi(PositionOptions):
    """Scores fall with the distance, in each head at a slope of its own (Press et al. 2022).

    slopes: geometric | interleaved: 2^(-8 n / heads); or Bloom's and MPT's where heads are no power of two
    """

    name: Literal["alibi"] = tag("alibi")
    depends_on_heads: ClassVar[bool] = True  # the slope of a head depends on how many there are
    slopes: Literal["geometric", "interleaved"] = "geometric"

    def __post_init__(self):
        check_fields(self)


@frozen
class Disentangled(PositionOptions):
    """Contents and distances are compared (DeBERTa: He et al. 2021); for encoders.

    terms: c2p | p2c | c2p_p2c: contents with distances, distances with contents, or both
    buckets: number of buckets of distances, for both sides together
    max_distance: longer distances share the last bucket; none: every distance has a bucket of its own
    share_projections: distances take the projections of queries and keys, not others
    norm: normalize the table of distances
    absolute: a trained vector for each position is added to the embeddings too
    """

    name: Literal["disentangled"] = tag("disentangled")
    terms: Literal["c2p", "p2c", "c2p_p2c"] = "c2p_p2c"
    buckets: int = 512
    max_distance: int | None = 512
    share_projections: bool = False
    norm: bool = False
    absolute: bool = False

    def __post_init__(self):
        check_fields(self)
        check_maximum(self, "no text is as long", buckets=MAX_LENGTH, max_distance=1 << 30)
        if self.buckets % 2 or self.buckets < 4:
            raise ValueError(f"buckets={self.buckets} must be even and at least 4")
        minimum = self.buckets // 4 + 2
        if self.max_distance is not None and self.max_distance < minimum:
            raise ValueError(
                f"max_distance={self.max_distance} must be at least {minimum} with {self.buckets} buckets; or none"
            )

    def max_length(self, config: ModelConfig) -> int | None:
        return config.sizes["P"] if self.absolute else None


@frozen
class Shaw(PositionOptions):
    """Trained vectors of distances, added to keys and to values (Shaw et al. 2018).

    max_distance: longer distances share the vectors of this one
    values: add vectors to values too
    """

    name: Literal["shaw"] = tag("shaw")
    max_distance: int = 16
    values: bool = True

    def __post_init__(self):
        _check_distance(self)


@frozen
class Huang(PositionOptions):
    """Trained numbers or vectors of distances, multiplied with queries and keys (Huang et al. 2020).

    method: 1 | 2 | 3 | 4: a number times scores, of |j - i| or of j - i; a vector times products; sums with vectors
    max_distance: longer distances share what this one has
    """

    name: Literal["huang"] = tag("huang")
    method: int = 4
    max_distance: int = 128

    def __post_init__(self):
        _check_distance(self)
        check_minimum(self, method=1)
        check_maximum(self, "the paper has four methods", method=4)


@frozen
class TransformerXL(PositionOptions):
    """Sines and cosines of distances, and global queries of contents and of distances (Dai et al. 2019)."""

    name: Literal["transformer_xl"] = tag("transformer_xl")


@frozen
class SinusoidalRelative(PositionOptions):
    """Sines and cosines of distances, added to keys and to values (NEZHA: Wei et al. 2019).

    max_distance: longer distances share the vectors of this one
    values: add vectors to values too
    """

    name: Literal["sinusoidal_relative"] = tag("sinusoidal_relative")
    max_distance: int = 64
    values: bool = True

    def __post_init__(self):
        _check_distance(self)


@frozen
class Tupe(PositionOptions):
    """Positions are compared by projections of their own, apart from contents (TUPE: Ke et al. 2021).

    reset: the first token, [CLS], sees all positions alike, and is seen by all alike
    relative: add a trained bias for each bucket of distances and head, as in T5
    buckets: number of buckets
    max_distance: longer distances share the last bucket
    """

    name: Literal["tupe"] = tag("tupe")
    reads_segments: ClassVar[bool] = False
    reset: bool = True
    relative: bool = False
    buckets: int = 32
    max_distance: int = 128

    def __post_init__(self):
        _check_buckets(self)

    def max_length(self, config: ModelConfig) -> int | None:
        return config.sizes["P"]


def _check_buckets(options: T5 | Tupe) -> None:
    """Raises ValueError for buckets that distances up to `max_distance` cannot fill."""
    check_fields(options)
    check_minimum(options, buckets=4)
    check_maximum(options, "no text is as long", buckets=MAX_LENGTH, max_distance=1 << 30)
    if options.max_distance <= options.buckets // 2:
        raise ValueError(f"max_distance={options.max_distance} must be more than half of buckets={options.buckets}")


def _check_distance(options: Shaw | Huang | SinusoidalRelative) -> None:
    """Raises ValueError for a distance to clip at that is below 1 or absurd."""
    check_fields(options)
    check_minimum(options, max_distance=1)
    check_maximum(options, "no text is as long", max_distance=MAX_LENGTH)

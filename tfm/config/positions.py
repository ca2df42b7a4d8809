"""How a model knows where a token stands."""

from typing import ClassVar, Literal

from tfm.catalogue.options.positions.absolute import Axial, NoPosition
from tfm.catalogue.options.positions.grid import Beit, Detr, Swin, SwinV2
from tfm.catalogue.options.positions.relative import (
    T5,
    Alibi,
    Disentangled,
    Huang,
    Shaw,
    SinusoidalRelative,
    TransformerXL,
    Tupe,
)
from tfm.catalogue.options.positions.scaling import Scaling
from tfm.options.choices import check_fields, check_maximum, check_minimum, frozen, tag
from tfm.options.model import ModelConfig
from tfm.options.slots import PositionOptions

# Where the vectors of absolute positions go.
Place = Literal["added", "queries_keys", "concatenated", "every_layer"]

# The places in layers.
IN_LAYERS = ("queries_keys", "every_layer")


class AbsolutePosition(PositionOptions):
    """Options of a scheme with a vector for each position, whose `place` says where the vectors go."""

    reads_segments: ClassVar[bool] = False
    place: Place

    @property
    def in_scores(self) -> bool:  # type: ignore[override]
        """Positions are added to queries and keys."""
        return self.place == "queries_keys"

    def check(self, config: ModelConfig) -> None:
        """Raises ValueError for positions of layers that do not fit what these read or project."""
        if self.place in IN_LAYERS and config.input.axis != "D":
            raise ValueError(f"position.place={self.place} adds vectors of the model's width; leave out input.width")
        if self.in_scores and any(
            kind.position == self and getattr(kind.mixer, "qk_norm", False) for kind in config.kinds
        ):
            raise ValueError(
                "position.place=queries_keys adds to what mixer.qk_norm=true has normalized; choose one of them"
            )


@frozen
class Learned(AbsolutePosition):
    """A trained vector for each position (Devlin et al. 2018).

    place: added | queries_keys | concatenated | every_layer: to the embeddings, to what makes queries and keys, beside
        the embeddings, or to all that the mixer of every layer reads
    """

    name: Literal["learned"] = tag("learned")
    place: Place = "added"

    def max_length(self, config: ModelConfig) -> int | None:
        return config.sizes["P"]


# Embeddings of tokens of less than this size are hidden by sinusoids, whose size is 0.7.
_SMALL = 0.25


@frozen
class Sinusoidal(AbsolutePosition):
    """Sines and cosines of the position (Vaswani et al. 2017, section 3.5).

    order: interleaved | halves | fairseq: sines in even columns and cosines in odd ones; or all sines first; or these
        with a longest wavelength of 10,000 * 2 pi itself, and the first token at position 2 (M2M-100)
    place: added | queries_keys | concatenated | every_layer: to the embeddings, to what makes queries and keys, beside
        the embeddings, or to all that the mixer of every layer reads
    axes: 1 | 2 | 3: places in the sequence; columns and rows of an image, half of the width for each; or columns, rows
        and times of a video, a third of it
    """

    name: Literal["sinusoidal"] = tag("sinusoidal")
    order: Literal["interleaved", "halves", "fairseq"] = "interleaved"
    place: Place = "added"
    axes: int = 1

    def check(self, config: ModelConfig) -> None:
        super().check(config)
        _check_axes(self, config, config.sizes[config.embed_axis])

    def advice(self, config: ModelConfig) -> str:
        is_small = getattr(config.input, "scale", None) is False and config.init_std < _SMALL
        if self.place != "added" or not is_small:
            return ""
        return f"sinusoids hide embeddings of size {config.init_std:g}; --model.input.scale=true makes these larger"


@frozen
class Rotary(PositionOptions):
    """Queries and keys are rotated by angles that grow with the position (Su et al. 2021).

    base: of the wavelengths; more than 10,000 for longer texts
    fraction: fraction of a head that is rotated
    scaling: how wavelengths grow for texts that are longer than those of training; none: not at all
    pairs: halves | adjacent: elements n and n + R/2 of the R rotated ones turn together (GPT-NeoX, Llama), or 2n and
        2n + 1 (the paper, RoFormer)
    axes: 1 | 2 | 3: places in the sequence; rows and columns of an image, half of the pairs for each; or times, rows
        and columns of a video, a third of them
    coordinates: places | centres: with several axes, row and column of a patch; or where its centre is, from -2 pi to
        2 pi along each side of the image (DINOv3: Simeoni et al. 2025)
    """

    name: Literal["rotary"] = tag("rotary")
    base: float = 10_000.0
    fraction: float = 1.0
    scaling: Scaling | None = None
    pairs: Literal["halves", "adjacent"] = "halves"
    axes: int = 1
    coordinates: Literal["places", "centres"] = "places"

    def __post_init__(self):
        check_fields(self)
        if not self.base > 1:
            raise ValueError(f"base={self.base} must be more than 1; 10,000 is usual")
        if not 0 < self.fraction <= 1:
            raise ValueError(f"fraction={self.fraction} must be more than 0 and at most 1")
        if self.coordinates == "centres" and self.axes == 1:
            raise ValueError("coordinates=centres are those of patches of an image, and axes=1; add axes=2")

    @property
    def attention_scaling(self) -> float:
        """What rotated queries, and rotated keys, are multiplied by."""
        return 1.0 if self.scaling is None else self.scaling.attention_scaling

    def rotary_dim(self, head_size: int) -> int:
        """Elements of a head that are rotated."""
        return int(head_size * self.fraction)

    def check(self, config: ModelConfig) -> None:
        rotary_dim = self.rotary_dim(config.sizes["H"])
        if rotary_dim % 2 or not rotary_dim:
            raise ValueError(
                f"position=rotary rotates pairs, and of each head {rotary_dim} elements are rotated, of "
                f"head_size={config.sizes['H']}; heads={config.heads} do not fit"
            )
        _check_axes(self, config, rotary_dim)
        if self.scaling is None:
            return
        if self.scaling.depends_on_length and self.axes > 1:
            raise ValueError(
                f"position.scaling={self.scaling.name} depends on the length of a text, and position.axes={self.axes} "
                "counts rows and columns; try position.scaling=linear"
            )
        self.scaling.check_pairs(rotary_dim // 2, config.sizes["H"])


def _check_axes(options: Rotary | Sinusoidal, config: ModelConfig, width: int) -> None:
    """Raises ValueError for `axes` that the input does not have, or that do not divide what encodes them."""
    check_minimum(options, axes=1)
    check_maximum(options, "a video has times, rows and columns", axes=3)
    if options.axes == 1:
        return
    counted = "rows and columns" if options.axes == 2 else "times, rows and columns"
    if len(config.input.axes or ()) != options.axes:
        raise ValueError(
            f"position.axes={options.axes} counts {counted}, which input={config.input.name} does not have; try "
            "position.axes=1"
        )
    if width % (2 * options.axes):
        raise ValueError(
            f"position.axes={options.axes} needs pairs for {counted}: {width} elements (of width={config.width} and "
            f"heads={config.heads}) must be a multiple of {2 * options.axes}"
        )


Position = (
    Learned
    | Sinusoidal
    | Axial
    | Rotary
    | T5
    | Alibi
    | Disentangled
    | Shaw
    | Huang
    | TransformerXL
    | SinusoidalRelative
    | Tupe
    | Swin
    | SwinV2
    | Beit
    | Detr
    | NoPosition
)

"""Patterns of softmax attention beside `full` and `local`: the keys that a query may see."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal

from tfm.options.choices import Options, check_fields, check_maximum, check_minimum, frozen, tag
from tfm.options.model import ModelConfig
from tfm.options.slots import check_grid, check_lengths, check_odd


@frozen
class Sliding(Options):
    """A sliding window (Beltagy et al. 2020, section 3.1).

    window: a decoder's token sees itself and the window - 1 tokens before it, an encoder's window / 2 on either side
    dilation: distance between the tokens that the window counts, and the factor of its reach
    dilated_heads: query heads that count so, the last ones; the windows of the others have no gaps; none: all heads
    """

    name: Literal["sliding"] = tag("sliding")
    reads_segments: ClassVar[bool] = True
    window: int = 128
    dilation: int = 1
    dilated_heads: int | None = None

    def __post_init__(self):
        check_lengths(self, "window", "dilation", "dilated_heads")
        if self.dilated_heads is not None and self.dilation == 1:
            raise ValueError(f"dilated_heads={self.dilated_heads} needs a dilation of at least 2; set it, or say none")

    def check(self, config: ModelConfig) -> None:
        if self.dilated_heads is not None and self.dilated_heads >= config.heads:
            raise ValueError(
                f"mixer.pattern.dilated_heads={self.dilated_heads} must be less than heads={config.heads}; "
                "none stands for all heads"
            )

    @property
    def depends_on_heads(self) -> bool:
        """What a head gets depends on how many there are: the last heads have other windows."""
        return self.dilated_heads is not None

    def within(self, tokens: int) -> "Sliding":
        return replace(self, window=min(self.window, tokens // self.dilation + 1))


@frozen
class Strided(Options):
    """The nearest tokens, and those at distances that are multiples of a stride (Child et al. 2019, section 4.3).

    stride: a decoder's token sees that many tokens before it, an encoder's on either side
    """

    name: Literal["strided"] = tag("strided")
    stride: int = 128

    def __post_init__(self):
        check_lengths(self, "stride")


@frozen
class Fixed(Options):
    """Blocks that see themselves, and the last tokens of all blocks (Child et al. 2019, section 4.3).

    block: tokens of a block; the last one may have fewer
    summary: tokens at the end of each block that all others see
    own_block: a token sees its block; false: itself alone, for layers that take turns with pattern=local
    """

    name: Literal["fixed"] = tag("fixed")
    block: int = 128
    summary: int = 8
    own_block: bool = True

    def __post_init__(self):
        check_lengths(self, "block", "summary")
        if self.summary > self.block:
            raise ValueError(f"summary={self.summary} must be at most block={self.block}")


@frozen
class Global(Options):
    """A sliding window, and global tokens, which see all others and are seen by them (Beltagy et al. 2020).

    window: a decoder's token sees itself and the window - 1 tokens before it, an encoder's window / 2 on either side
    tokens: tokens at the start of a text that are global; 0: none
    places: places of the global tokens, joined by commas, counted from 0 at the start of each text, such as 0,7,64;
        empty: the first tokens
    projections: queries of global tokens have their own projections, of keys and values too; for encoders
    """

    name: Literal["global"] = tag("global")
    window: int = 512
    tokens: int = 1
    places: str = ""
    projections: bool = False

    def __post_init__(self):
        check_lengths(self, "window", zero=("tokens",))
        if not all(place.isdecimal() and place.isascii() for place in self.places.split(",") if self.places):
            raise ValueError(f"places={self.places} must be whole numbers, joined by commas, such as 0,7,64")
        if self.places and self.tokens > 1:
            raise ValueError(f"places={self.places} and tokens={self.tokens} both choose global tokens; leave one out")

    @property
    def global_places(self) -> Sequence[int]:
        """The places of the global tokens."""
        return tuple(map(int, self.places.split(","))) if self.places else range(self.tokens)

    @property
    def reads_packed(self) -> bool:  # type: ignore[override]
        """Global tokens that have their own projections stand in the same columns of all rows."""
        return not (self.projections and self.global_places)

    def check(self, config: ModelConfig) -> None:
        last = max(self.global_places, default=0)
        if self.places and last >= config.length:
            raise ValueError(
                f"mixer.pattern.places={self.places}: place {last} is behind the end of texts of "
                f"length={config.length}; choose places from 0 to {config.length - 1}"
            )
        _check_fits(config, "tokens", self.tokens)


@frozen
class Etc(Options):
    """A global input, which sees all and is seen by all, before a long input with a window (Ainslie et al. 2020).

    radius: tokens of the long input that a token of it sees before itself, and for an encoder after itself too
    tokens: tokens of the global input, the first ones of a text
    labels: distance from which on pairs share a relative position label; 0: there are no labels
    """

    name: Literal["etc"] = tag("etc")
    radius: int = 84
    tokens: int = 64
    labels: int = 12

    def __post_init__(self):
        check_lengths(self, "tokens", zero=("radius", "labels"))
        check_maximum(self, "a table has a row for each", labels=1 << 20)

    def check(self, config: ModelConfig) -> None:
        _check_fits(config, "tokens", self.tokens)


@frozen
class Transient(Options):
    """A window, and a key for each block of tokens, of the normalized sum of their states (Guo et al. 2022, section
    3.1); for encoders.

    radius: tokens that a token sees on either side
    block: tokens of a block; a last one with fewer joins the one before
    """

    name: Literal["transient"] = tag("transient")
    reads_packed: ClassVar[bool] = False
    radius: int = 127
    block: int = 16

    def __post_init__(self):
        check_lengths(self, "block", zero=("radius",))


@frozen
class BigBird(Options):
    """Blocks that see their neighbours, global blocks and random blocks (Zaheer et al. 2020, section 2).

    Random blocks are drawn for texts of the length of the model: shorter texts have fewer of them. All heads have the
    same ones, and all layers, unless kinds of layers (`period`) have other seeds. Folders of transformers set the last
    three options; then rows have one text each, of an encoder.

    block: tokens of a block; the last one may have fewer
    window: blocks that a block sees around itself, an odd number; those of a decoder end with itself
    global_blocks: blocks at the start of a text that see all others and are seen by them
    random: random blocks that a block sees
    seed: of the random blocks
    last_blocks: blocks at the end of a row that see all others and are seen by them
    draw: seeded | first: random blocks are drawn, or the first block counts once more for each, as transformers has it
        but in training
    dense_blocks: number of blocks up to which rows see every key
    """

    name: Literal["bigbird"] = tag("bigbird")
    block: int = 64
    window: int = 3
    global_blocks: int = 2
    random: int = 3
    seed: int = 0
    last_blocks: int = 0
    draw: Literal["seeded", "first"] = "seeded"
    dense_blocks: int = 0

    def __post_init__(self):
        check_lengths(self, "block", "window", zero=("global_blocks", "random", "seed", "last_blocks", "dense_blocks"))
        check_odd(self, "window")
        if self.draw == "first" and not self.global_blocks:
            raise ValueError("global_blocks=0 must be at least 1 for draw=first, which counts the first block again")

    @property
    def reads_packed(self) -> bool:  # type: ignore[override]
        """Whether a pattern depends on the text alone, and not on the length of its row."""
        return not self.last_blocks and self.draw == "seeded" and not self.dense_blocks

    def check(self, config: ModelConfig) -> None:
        _check_fits(config, "global_blocks * block", self.global_blocks * self.block)

    def max_length(self, config: ModelConfig) -> int | None:
        return config.length if self.random and self.draw == "seeded" else None


@frozen
class Windows(Options):
    """Windows of a grid of patches, each of which sees itself alone (Swin: Liu et al. 2021, section 3.2); for encoders.

    A grid that is not larger than a window is one window.

    window: side of a window, in patches
    shift: rows and columns by which windows begin late; the paper has half a window in every second layer
    """

    name: Literal["windows"] = tag("windows")
    reads_packed: ClassVar[bool] = False
    window: int = 7
    shift: int = 0

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, window=1, shift=0)
        check_maximum(self, "no grid is as large", window=1 << 12)
        if self.shift >= self.window:
            raise ValueError(f"shift={self.shift} must be less than window={self.window}")

    def check(self, config: ModelConfig) -> None:
        check_grid(config, "pattern", self)
        for kind in config.kinds:
            is_here = getattr(kind.mixer, "pattern", None) == self
            if is_here and kind.position.in_scores and not kind.position.in_windows:
                raise ValueError(
                    f"position={kind.position.name} compares places of a text, and pattern=windows those of a window; "
                    "try position=swin"
                )

    def side(self, config: ModelConfig) -> int:
        """The side of the windows of this model, whose grid may be smaller."""
        assert config.grid is not None
        return min(self.window, *config.grid)

    def offset(self, config: ModelConfig) -> int:
        """The rows and columns by which its windows begin late: none where a side of the grid is one window."""
        assert config.grid is not None
        return self.shift if self.window < min(config.grid) else 0


@frozen
class Neighbourhood(Options):
    """The square of patches around each; at the borders of the grid it moves inwards, so that all see as many (NAT:
    Hassani et al. 2023, section 3.1); for encoders.

    window: side of the square, in patches, an odd number; a grid that is smaller is all seen
    """

    name: Literal["neighbourhood"] = tag("neighbourhood")
    reads_packed: ClassVar[bool] = False
    window: int = 7

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, window=1)
        check_maximum(self, "no grid is as large", window=1 << 12)
        check_odd(self, "window")

    def check(self, config: ModelConfig) -> None:
        check_grid(config, "pattern", self)


def _check_fits(config: ModelConfig, name: str, tokens: int) -> None:
    """Raises ValueError for more global tokens than a text has."""
    if tokens > config.length:
        raise ValueError(
            f"mixer.pattern.{name}={tokens} global tokens are more than length={config.length}; choose fewer"
        )

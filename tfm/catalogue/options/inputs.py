"""Inputs beside a table of tokens: characters, images, and the states of an earlier stage."""

from typing import ClassVar, Literal

from tfm.options.choices import check_fields, check_maximum, check_minimum, frozen, tag
from tfm.options.model import ModelConfig
from tfm.options.slots import InputOptions


@frozen
class Characters(InputOptions):
    """Convolutions over the characters of each token, and highway layers (Kim et al. 2016; ELMo: Peters et al. 2018).

    size: numbers of a character
    length: characters of a token, the marks of its start and end included
    filters: WIDTHxCOUNT of the filters of every width, joined by commas
    highways: highway layers over all filters
    width: of what they are mapped to; embeddings stand side by side as often as they fit into the width of the model;
        none: once
    norm: normalize the embeddings
    """

    token_types: ClassVar[None] = None
    name: Literal["characters"] = tag("characters")
    size: int = 16
    length: int = 50
    filters: str = "1x32,2x32,3x64,4x128,5x256,6x512,7x1024"
    highways: int = 2
    width: int | None = None
    norm: bool = False

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, size=1, length=3, highways=0, width=1)
        check_maximum(self, "no model is as large", size=1 << 16, length=1 << 10, highways=64, width=1 << 20)
        if not all(0 < width <= self.length and 0 < count <= 1 << 16 for width, count in self.widths or [(0, 0)]):
            raise ValueError(
                f"filters={self.filters} must be WIDTHxCOUNT, joined by commas, with widths up to length="
                f"{self.length}, such as 1x32,3x64"
            )

    @property
    def widths(self) -> tuple[tuple[int, int], ...]:
        """Width and count of the filters; none where the text does not say them."""
        return number_pairs(self.filters)

    def check(self, config: ModelConfig) -> None:
        if config.tie_embeddings:
            raise ValueError("input=characters has no table of tokens to share; add tie_embeddings=false")
        if config.width % (self.width or config.width):
            raise ValueError(f"input.width={self.width} must divide width={config.width}")

    @property
    def axis(self) -> str:
        return "D" if self.width is None else "U"

    def sizes(self, config: ModelConfig) -> dict[str, int]:
        return {"U": self.width or config.width, "P": config.length, "V": config.padded_vocab, "Y": 0}


def number_pairs(text: str) -> tuple[tuple[int, int], ...]:
    """The numbers of a text such as "1x32,2x64"; none where it says others."""
    pairs = [part.partition("x") for part in text.split(",")]
    if not all(first.isdecimal() and second.isdecimal() for first, _, second in pairs):
        return ()
    return tuple((int(first), int(second)) for first, _, second in pairs)


class PictureOptions(InputOptions):
    """Options of an input that reads pictures of one size as a grid, and has vectors before it."""

    reads_packed: ClassVar[bool] = False
    ignores: ClassVar[tuple[str, ...]] = "vocab", "length", "tie_embeddings", "pad_vocab_to"
    size: int
    image_width: int | None
    channels: int

    @property
    def pixels(self) -> tuple[int, int, int]:
        """Height, width and channels of an image."""
        return self.size, self.image_width or self.size, self.channels

    @property
    def array_shape(self) -> tuple[int, ...] | None:
        return self.pixels

    @property
    def patch_sides(self) -> tuple[int, int]:
        """Height and width in pixels of what a place of the grid stands for."""
        raise NotImplementedError

    @property
    def grid(self) -> tuple[int, int]:
        (height, width, _), (rows, columns) = self.pixels, self.patch_sides
        return height // rows, width // columns

    @property
    def length(self) -> int:
        """Vectors that an image becomes."""
        rows, columns = self.grid
        return self.prefix + rows * columns

    def max_length(self, config: ModelConfig) -> int:
        return self.length

    def sizes(self, config: ModelConfig) -> dict[str, int]:
        return {"U": config.width, "P": self.length}

    def check_sides(self, rows: str = "", columns: str = "") -> None:
        """Raises ValueError for sides of images that squares of pixels do not fill; `rows` and `columns` name the
        options of their height and width, if there are some."""
        width = "size" if self.image_width is None else "image_width"
        for name, side, option in zip(("size", width), self.patch_sides, (rows, columns), strict=True):
            pixels = getattr(self, name)
            if pixels % side:
                nearest, of_option = max(1, round(pixels / side)) * side, f"{option}=" if option else ""
                raise ValueError(f"{name}={pixels} must be a multiple of {of_option}{side}; try {name}={nearest}")


@frozen
class Patches(PictureOptions):
    """Squares of an image, and trained vectors before them (ViT: Dosovitskiy et al. 2021, section 3.1).

    Raises ValueError for sizes that do not fit together.

    size: height of images in pixels, and their width where image_width is none
    image_width: width of images in pixels; none: they are squares
    patch: side of a patch in pixels; its width, where patch_height is another
    patch_height: height of a patch, such as 1 for series, images of one row; none: patch
    kernel: side of the square of pixels that a patch is computed from, more than patch where squares overlap; none:
        patch
    channels: numbers of a pixel: 3 for colours, 1 for grey
    cls: a trained vector, [CLS], stands first; a head may read its state
    distilled: a second one follows, which learns from a teacher (DeiT: Touvron et al. 2021, section 4)
    registers: trained vectors behind these, which nothing reads at the end (Darcet et al. 2024, section 3)
    mask_token: a trained vector can stand for a patch that is masked (BEiT: Bao et al. 2021, section 2.3)
    bias: add a bias to what a patch becomes
    patch_norm: normalize what patches become, before [CLS] and positions
    norm: normalize the embeddings
    """

    name: Literal["patches"] = tag("patches")
    size: int = 224
    image_width: int | None = None
    patch: int = 16
    patch_height: int | None = None
    kernel: int | None = None
    channels: int = 3
    cls: bool = True
    distilled: bool = False
    registers: int = 0
    mask_token: bool = False
    bias: bool = True
    patch_norm: bool = False
    norm: bool = False

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, size=1, image_width=1, patch=1, patch_height=1, channels=1, registers=0)
        sides = ("size", "image_width", "patch", "patch_height", "channels")
        check_maximum(self, "no image is as large", **dict.fromkeys(sides, 1 << 16))
        check_maximum(self, "a few are usual", registers=1 << 10)
        self.check_sides("patch" if self.patch_height is None else "patch_height", "patch")
        if self.kernel is not None and self.patch_height is not None:
            raise ValueError(f"kernel={self.kernel} is a square, and patch_height={self.patch_height} is for others")
        if self.kernel is not None and not self.patch <= self.kernel <= 8 * self.patch:
            raise ValueError(f"kernel={self.kernel} must be at least patch={self.patch} and at most 8 times as much")
        if self.distilled and not self.cls:
            raise ValueError("distilled=true puts a vector behind [CLS], and cls=false has none; add cls=true")

    @property
    def patch_sides(self) -> tuple[int, int]:
        """Height and width of a patch."""
        return self.patch_height or self.patch, self.patch

    @property
    def prefix(self) -> int:
        return self.cls + self.distilled + self.registers


@frozen
class Merging(InputOptions):
    """States of a grid, squares of which become one each: what a later stage of a model reads (Swin: Liu et al. 2021,
    section 3.1).

    rows: of the grid
    columns: of the grid
    width: of its states
    kernel: side of the square of states that become one; more than stride: squares overlap
    stride: rows, and columns, from a square to the next
    norm: merged | first | last: normalize merged states, states before that, or what merged states are mapped to
    bias: add a bias in that map
    positions: add vectors of positions to what states become, where position has some
    cls: a trained vector stands before it
    """

    name: Literal["merging"] = tag("merging")
    reads_packed: ClassVar[bool] = False
    ignores: ClassVar[tuple[str, ...]] = Patches.ignores
    rows: int = 56
    columns: int = 56
    width: int = 96
    kernel: int = 2
    stride: int = 2
    norm: Literal["merged", "first", "last"] = "merged"
    bias: bool = False
    positions: bool = False
    cls: bool = False

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, rows=1, columns=1, width=1)
        check_maximum(self, "no grid is as large", rows=1 << 16, columns=1 << 16, width=1 << 20)
        check_squares(self.kernel, self.stride)

    @property
    def prefix(self) -> int:
        return int(self.cls)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of what the states become."""
        return -(-self.rows // self.stride), -(-self.columns // self.stride)

    def max_length(self, config: ModelConfig) -> int:
        rows, columns = self.grid
        return self.prefix + rows * columns

    def sizes(self, config: ModelConfig) -> dict[str, int]:
        return {"U": config.width, "P": self.max_length(config)}


def check_squares(kernel: int, stride: int) -> None:
    """Raises ValueError for squares of a grid that leave places between them, or are none."""
    if not 2 <= kernel <= 64:
        raise ValueError(f"kernel={kernel} must be a side of squares from 2 to 64; 2 and 3 are usual")
    if not 1 <= stride <= kernel:
        raise ValueError(f"stride={stride} must be at least 1 and at most kernel={kernel}; try stride={min(kernel, 2)}")

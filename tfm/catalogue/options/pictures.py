"""Inputs that read pictures by convolutions, and behind the tokens of a text."""

import math
from typing import ClassVar, Literal

from tfm.catalogue.options.inputs import Patches, PictureOptions, number_pairs
from tfm.options.choices import check_fields, check_maximum, check_minimum, frozen, tag
from tfm.options.errors import nearest_divisor
from tfm.options.model import ModelConfig
from tfm.options.slots import InputOptions

# The sides of the kernels of a block, by kind.
SIDES = {"basic": (3, 3), "bottleneck": (1, 3, 1)}


class _Network(PictureOptions):
    """What options of a ResNet share."""

    blocks: str
    kind: Literal["bottleneck", "basic"]

    @property
    def stages(self) -> tuple[tuple[int, int], ...]:
        """Width and count of the blocks of each stage; none where the text does not say them."""
        return number_pairs(self.blocks)

    @property
    def ratio(self) -> int:
        """Width of a block over that of the convolutions inside."""
        return 4 if self.kind == "bottleneck" else 1

    def check_network(self, *counts: str) -> None:
        """Raises ValueError for sides and counts below 1, sides above 65,536, and blocks that are not WIDTHxCOUNT."""
        sides = ("size", "image_width", "channels")
        check_minimum(self, **dict.fromkeys((*sides, *counts), 1))
        check_maximum(self, "no image is as large", **dict.fromkeys(sides, 1 << 16))
        if not all(0 < width <= 1 << 16 and 0 < count <= 1 << 10 for width, count in self.stages or [(0, 0)]):
            raise ValueError(f"blocks={self.blocks} must be WIDTHxCOUNT, joined by commas, such as 256x3,512x4")


@frozen
class ResNet(_Network):
    """Convolutions, whose last grid a Transformer reads (hybrid: Dosovitskiy et al. 2021, section 3.1): blocks of
    group norm, ReLU and convolutions with standardized weights (BiT: Kolesnikov et al. 2020, section 3.2). With
    layers=0 it is a convolutional network alone.

    Raises ValueError for sizes that do not fit together.

    size: height of images in pixels, and their width where image_width is none
    image_width: width of images in pixels; none: they are squares
    channels: numbers of a pixel: 3 for colours, 1 for grey
    stem: large | small: 7 x 7 pixels and a maximum over 3 x 3, a grid of a quarter of the rows; 3 x 3 pixels, of all
    blocks: WIDTHxCOUNT of the blocks of every stage, joined by commas; each stage has half the rows of the one before
    kind: bottleneck | basic: blocks of three convolutions, those inside of a quarter of the width; of two
    groups: of channels that are normalized together
    cls: a trained vector, [CLS], stands first; a head may read its state
    bias: add a bias in the map to the width of the model
    norm: normalize the embeddings
    """

    name: Literal["resnet"] = tag("resnet")
    min_layers: ClassVar[int] = 0
    size: int = 224
    image_width: int | None = None
    channels: int = 3
    stem: Literal["large", "small"] = "large"
    blocks: str = "256x3,512x4,1024x9"
    kind: Literal["bottleneck", "basic"] = "bottleneck"
    groups: int = 32
    cls: bool = True
    bias: bool = True
    norm: bool = False

    def __post_init__(self):
        check_fields(self)
        self.check_network("groups")
        narrowest = math.gcd(*(width for width, _ in self.stages)) // self.ratio
        if narrowest % self.groups:
            groups = nearest_divisor(self.groups, max(1, narrowest))
            raise ValueError(
                f"groups={self.groups} must divide all widths of blocks={self.blocks}, of bottlenecks a quarter of "
                f"them; try groups={groups}"
            )
        self.check_sides()

    def check(self, config: ModelConfig) -> None:
        if self.cls and not config.layers:
            raise ValueError("layers=0 leaves no layer in which [CLS] reads the picture; add input.cls=false")

    @property
    def patch_sides(self) -> tuple[int, int]:
        side = (4 if self.stem == "large" else 1) << (len(self.stages) - 1)
        return side, side

    @property
    def prefix(self) -> int:
        return int(self.cls)


@frozen
class ResNetV1(_Network):
    """Convolutions, whose last grid a Transformer reads: blocks of convolutions, each with a batch norm behind it, a
    shortcut and ReLU (He et al. 2016a, figure 5). Frozen norms are those of DETR (Carion et al. 2020, section 4).

    Raises ValueError for sizes that do not fit together.

    size: height of images in pixels, and their width where image_width is none
    image_width: width of images in pixels; none: they are squares
    channels: numbers of a pixel: 3 for colours, 1 for grey
    stem: width of the convolution of 7 x 7 pixels that comes first
    blocks: WIDTHxCOUNT of the blocks of every stage, joined by commas; each stage has half the rows of the one before
    kind: bottleneck | basic: blocks of three convolutions, those inside of a quarter of the width; of two
    frozen: norms keep their statistics, scales and biases; false: they learn, and training reads statistics of a batch
    norm: normalize the embeddings
    """

    name: Literal["resnet_v1"] = tag("resnet_v1")
    min_layers: ClassVar[int] = 0
    size: int = 224
    image_width: int | None = None
    channels: int = 3
    stem: int = 64
    blocks: str = "256x3,512x4,1024x6,2048x3"
    kind: Literal["bottleneck", "basic"] = "bottleneck"
    frozen: bool = False
    norm: bool = False

    def __post_init__(self):
        check_fields(self)
        self.check_network("stem")
        check_maximum(self, "no model is as large", stem=1 << 16)
        if any(width % self.ratio for width, _ in self.stages):
            raise ValueError(f"blocks={self.blocks} must have widths that are multiples of {self.ratio}, or kind=basic")
        self.check_sides()

    @property
    def patch_sides(self) -> tuple[int, int]:
        side = 4 << (len(self.stages) - 1)
        return side, side


@frozen
class TokensAndPatches(InputOptions):
    """The tokens of a text, and behind them the patches of an image, as one sequence (ViLT: Kim et al. 2021).

    Raises ValueError for sizes that do not fit together.

    size: height and width of images in pixels
    patch: side of a patch in pixels
    channels: numbers of a pixel: 3 for colours, 1 for grey
    norm: normalize the embeddings
    """

    reads_packed: ClassVar[bool] = False
    name: Literal["tokens_and_patches"] = tag("tokens_and_patches")
    size: int = 384
    patch: int = 32
    channels: int = 3
    norm: bool = False

    def __post_init__(self):
        check_fields(self)
        self.patches  # noqa: B018  raises ValueError

    @property
    def patches(self) -> Patches:
        """How the patches of an image are read."""
        return Patches(size=self.size, patch=self.patch, channels=self.channels, cls=False)

    @property
    def pixels(self) -> tuple[int, int, int]:
        """Height, width and channels of an image."""
        return self.patches.pixels

    @property
    def suffix(self) -> int:
        return self.patches.length

    def max_length(self, config: ModelConfig) -> int:
        return config.length + self.suffix

    def sizes(self, config: ModelConfig) -> dict[str, int]:
        return {"U": config.width, "P": self.max_length(config), "V": config.padded_vocab, "Y": 0}

"""Mixers whose queries see fewer keys than there are tokens."""

from typing import ClassVar, Literal

from tfm.options.choices import MAX_LENGTH, Options, check_fields, check_maximum, check_minimum, frozen, tag
from tfm.options.model import ModelConfig
from tfm.options.slots import check_grid, check_odd


@frozen
class Linformer(Options):
    """Keys and values are projected along the length, so that scores are [T, rank] (Wang et al. 2020); for encoders.

    rank: rows that are left of the length
    share: one projection for keys and values
    """

    name: Literal["linformer"] = tag("linformer")
    reads_packed: ClassVar[bool] = False
    rank: int = 64
    share: bool = False

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, rank=1)
        check_maximum(self, "no text is as long", rank=MAX_LENGTH)

    def max_length(self, config: ModelConfig) -> int | None:
        return config.length


@frozen
class Compressed(Options):
    """A strided convolution merges neighbouring keys, and neighbouring values (Liu et al. 2018, section 4.2.3).

    A decoder's token sees the merged keys of the groups of tokens before its own, and the tokens of its own group up to
    itself, which the paper leaves to layers of local attention.

    factor: tokens that become one key
    memory: keys that are left of a text of `length` tokens; the factor is then length / memory. none: factor decides
    """

    name: Literal["compressed"] = tag("compressed")
    reads_packed: ClassVar[bool] = False
    factor: int = 3
    memory: int | None = None

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, factor=1, memory=1)
        check_maximum(self, "no text is as long", factor=MAX_LENGTH, memory=MAX_LENGTH)

    def group_size(self, config: ModelConfig) -> int:
        """Tokens that become one key."""
        return self.factor if self.memory is None else -(-config.length // self.memory)

    def max_length(self, config: ModelConfig) -> int | None:
        return None if self.memory is None else config.length


@frozen
class Nystrom(Options):
    """Softmax attention by way of landmarks, means of neighbouring tokens (Xiong et al. 2021); for encoders.

    landmarks: landmarks of a text; none: attention is exact
    iterations: steps of the iteration for the pseudo-inverse
    window: tokens of the convolution of values that is added to each head; none: no convolution
    reads_padding: landmarks and the convolution read padding, as in transformers; otherwise it changes nothing
    shared_start: the iteration for all heads and texts of a batch starts from one number, as in transformers
    """

    name: Literal["nystrom"] = tag("nystrom")
    reads_packed: ClassVar[bool] = False
    landmarks: int | None = 64
    iterations: int = 6
    window: int | None = 33
    reads_padding: bool = False
    shared_start: bool = False

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, landmarks=1, iterations=1, window=1)
        check_maximum(self, "no text is as long", landmarks=MAX_LENGTH, window=1 << 16)
        check_maximum(self, "it has converged long before", iterations=1000)


@frozen
class SpatialReduction(Options):
    """Squares of patches become one key and one value each (PVT: Wang et al. 2021, section 3.3; in turn with windows:
    Twins-SVT, Chu et al. 2021, section 3.3); for encoders.

    factor: side of a square in patches; 1: every patch has a key, and so may have [CLS]. Zeros fill squares at the end
        of a grid
    """

    name: Literal["spatial_reduction"] = tag("spatial_reduction")
    reads_packed: ClassVar[bool] = False
    factor: int = 2

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, factor=1)
        check_maximum(self, "no grid is as large", factor=1 << 8)

    def check(self, config: ModelConfig) -> None:
        if self.factor > 1 or config.input.grid is None:
            check_grid(config, "mixer", self)


@frozen
class Stripes(Options):
    """Half of the heads attend within stripes of rows of patches, half within stripes of columns, and a convolution of
    the values tells where patches stand (CSWin: Dong et al. 2022, section 3.2); for encoders.

    stripe: rows, or columns, of a stripe; a grid that has no more is one stripe
    kernel: side of the square of patches that the convolution reads
    """

    name: Literal["stripes"] = tag("stripes")
    reads_packed: ClassVar[bool] = False
    stripe: int = 1
    kernel: int = 3

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, stripe=1, kernel=1)
        check_maximum(self, "no grid is as large", stripe=1 << 12, kernel=63)
        check_odd(self, "kernel")

    def check(self, config: ModelConfig) -> None:
        check_grid(config, "mixer", self)
        if config.sizes["K"] % 2:
            raise ValueError(
                f"mixer=stripes has as many heads for rows as for columns, and {config.sizes['K']} is odd; take an "
                "even number of heads"
            )
        for axis, side in enumerate(config.grid or ()):
            if side % self.side(config, axis):
                raise ValueError(f"mixer.stripe={self.stripe} must divide the {side} patches of a side; try 1")

    def side(self, config: ModelConfig, axis: int) -> int:
        """The rows (`axis` 0), or the columns, of a stripe of this model, whose grid may be smaller."""
        assert config.grid is not None
        return min(self.stripe, config.grid[axis])

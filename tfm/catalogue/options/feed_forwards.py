"""Feed-forward layers of several experts, of which a router takes few for a token; and one that reads neighbours."""

from typing import ClassVar, Literal

from tfm.options.choices import MAX_WIDTH, Options, check_fields, check_maximum, check_minimum, frozen, tag
from tfm.options.model import ModelConfig
from tfm.options.slots import check_grid, check_odd


class ExpertOptions(Options):
    """What both ways to route have."""

    experts: int
    shared: int

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, experts=1, shared=0)
        check_maximum(self, "no model has as many experts", experts=MAX_WIDTH, shared=MAX_WIDTH)

    def check(self, config: ModelConfig) -> None:
        """Raises ValueError for dropout inside experts, which they do not have."""
        if config.ffn_dropout:
            raise ValueError(
                f"ffn_dropout={config.ffn_dropout} is for feed_forward=dense alone; leave it out, or say dropout"
            )


@frozen
class Experts(ExpertOptions):
    """Every token takes the experts that its router finds most probable (Shazeer et al. 2017; Switch: Fedus et al.
    2022; Mixtral: Jiang et al. 2024).

    experts: how many there are, each of the size `ffn`
    top_k: experts of a token
    renormalize: the probabilities of the experts of a token are divided by their sum; that of a single one never is
    capacity: tokens that an expert takes of a row, as a multiple of its even share; later ones go without; none: all
        that come, and nothing is dropped. With one, a token depends on its row, and generation drops nothing
    slots: the same limit as a count of tokens, as Switch Transformers of transformers have it; none: there is none
    shared: experts that all tokens go through as well
    balance: weight of the loss that is 1 where all experts have the same load (Fedus et al. 2022, eq. 4), of each layer
    z: weight of the mean squared logarithm of the sum of the router's exponentials (ST-MoE: Zoph et al. 2022, eq. 5)
    """

    name: Literal["experts"] = tag("experts")
    experts: int = 8
    top_k: int = 2
    renormalize: bool = True
    capacity: float | None = None
    slots: int | None = None
    shared: int = 0
    balance: float = 0.01
    z: float = 0.001

    def __post_init__(self):
        super().__post_init__()
        check_minimum(self, top_k=1, slots=1, balance=0, z=0)
        check_maximum(self, "a loss beside others has less weight than they", balance=1e6, z=1e6)
        if self.capacity is not None and self.slots is not None:
            raise ValueError(f"capacity={self.capacity} and slots={self.slots} both limit an expert; leave one out")
        if self.top_k > self.experts:
            raise ValueError(f"top_k={self.top_k} must be at most experts={self.experts}; 1 or 2 is usual")
        if self.capacity is not None and not 0 < self.capacity <= self.experts:
            raise ValueError(
                f"capacity={self.capacity} must be more than 0 and at most experts={self.experts}; 1.25 is usual"
            )

    def check(self, config: ModelConfig) -> None:
        """Raises ValueError for layers that share their parameters: each would move the measured load."""
        super().check(config)
        if config.share_layers:
            raise ValueError("share_layers=true shares the measured load of feed_forward=experts too; leave one out")


@frozen
class ExpertChoice(ExpertOptions):
    """Every expert takes the tokens of a row that its router finds most probable (Zhou et al. 2022); for encoders.

    How many it takes depends on the length of the row: padding changes what the tokens become.

    experts: how many there are, each of the size `ffn`
    capacity: experts of a token, on average
    shared: experts that all tokens go through as well
    """

    name: Literal["expert_choice"] = tag("expert_choice")
    reads_packed: ClassVar[bool] = False
    experts: int = 8
    capacity: float = 2.0
    shared: int = 0

    def __post_init__(self):
        super().__post_init__()
        if not 0 < self.capacity <= self.experts:
            raise ValueError(
                f"capacity={self.capacity} must be more than 0 and at most experts={self.experts}; 2 is usual"
            )


@frozen
class MixFfn(Options):
    """As `dense`, with a depth-wise convolution over the grid of patches before the activation, which tells where they
    stand (Mix-FFN of SegFormer: Xie et al. 2021, eq. 3); for encoders of images.

    kernel: side of the square of patches that a patch reads
    """

    name: Literal["mix_ffn"] = tag("mix_ffn")
    reads_packed: ClassVar[bool] = False
    kernel: int = 3

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, kernel=1)
        check_maximum(self, "no grid is as large", kernel=1 << 8)
        check_odd(self, "kernel")

    def check(self, config: ModelConfig) -> None:
        """Raises ValueError for a model without a grid, and for an activation with a gate."""
        check_grid(config, "feed_forward", self)
        if "glu" in config.activation:
            raise ValueError(
                f"activation={config.activation} has a gate, and feed_forward=mix_ffn has none; try activation=gelu"
            )

"""Mixers whose scores are products of features: sums over the text take the place of its keys."""

from typing import ClassVar, Literal

from tfm.options.choices import MAX_LENGTH, Options, check_fields, check_maximum, check_minimum, frozen, tag
from tfm.options.errors import nearest_divisor
from tfm.options.model import ModelConfig


@frozen
class Performer(Options):
    """Softmax attention by positive random features, in time linear in the length (Choromanski et al. 2021).

    features: random features of a head
    chunk: tokens whose products are computed at once, where tokens do not see all others
    redraw: training steps after which the features are drawn anew; none: never
    """

    name: Literal["performer"] = tag("performer")
    features: int = 64
    chunk: int = 64
    redraw: int | None = None

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, features=1, chunk=1, redraw=1)
        check_maximum(self, "no model is as large", features=1 << 20, chunk=MAX_LENGTH)
        check_maximum(self, "no run has as many steps", redraw=1 << 30)


@frozen
class LinearAttention(Options):
    """Weights are products of features elu(x) + 1, in time linear in the length (Katharopoulos et al. 2020).

    chunk: tokens whose products are computed at once, where tokens do not see all others
    """

    name: Literal["linear"] = tag("linear")
    chunk: int = 64

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, chunk=1)
        check_maximum(self, "no text is as long", chunk=MAX_LENGTH)


@frozen
class AttentionFree(Options):
    """Every channel is a mean of values, weighted by the channels of keys and by pairs of places, times a gate (Zhai et
    al. 2021).

    reach: full | local | simple: the pairs of places that have weights: all, near ones, or none
    window: distance in tokens below which places are near
    rank: size of the vectors of places whose products are the weights
    """

    name: Literal["aft"] = tag("aft")
    reach: Literal["full", "local", "simple"] = "full"
    window: int = 32
    rank: int = 128

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, window=1, rank=1)
        check_maximum(self, "no text is as long", window=MAX_LENGTH, rank=MAX_LENGTH)

    def max_length(self, config: ModelConfig) -> int | None:
        return None if self.reach == "simple" else config.length


@frozen
class DeltaRule(Options):
    """Fast weights: a matrix that every token corrects by the delta rule (Schlag et al. 2021); for decoders.

    nu: features are products of rectified channels at most `nu` places apart; none: elu(x) + 1
    chunk: tokens whose corrections are computed at once
    """

    name: Literal["delta"] = tag("delta")
    nu: int | None = 1
    chunk: int = 64

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, nu=1, chunk=1)
        check_maximum(self, "no text is as long", chunk=MAX_LENGTH)
        check_maximum(self, "no head is as large", nu=1 << 12)


@frozen
class CrossCovariance(Options):
    """Channels attend to channels by products of whole columns, in time linear in the length (El-Nouby et al. 2021);
    for encoders."""

    name: Literal["xca"] = tag("xca")
    reads_packed: ClassVar[bool] = False


@frozen
class ChannelGroups(Options):
    """Channels attend to the channels of their group, in time linear in the length (DaViT: Ding et al. 2022); for
    encoders.

    groups: groups of channels; none: as many as heads
    scale: tokens | channels: products are divided by the root of the number of tokens, as Florence-2 has it, or of
        the channels of a group, as the paper's code has it
    """

    name: Literal["channel_groups"] = tag("channel_groups")
    reads_packed: ClassVar[bool] = False
    groups: int | None = None
    scale: Literal["tokens", "channels"] = "tokens"

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, groups=1)
        check_maximum(self, "no model is as wide", groups=1 << 20)

    def check(self, config: ModelConfig) -> None:
        groups = self.groups or config.heads
        if config.width % groups:
            nearest = nearest_divisor(groups, config.width)
            raise ValueError(f"mixer.groups={groups} must divide width={config.width}; try mixer.groups={nearest}")

"""The layers of a model: kinds of them, and their order."""

from typing import NamedTuple

from tfm.config.feed_forwards import FeedForward
from tfm.config.inputs import Input
from tfm.config.mixers import Mixer
from tfm.config.positions import Position
from tfm.config.residuals import Residual
from tfm.options.choices import MAX_LAYERS, MAX_LENGTH, check_fields, check_maximum, check_minimum, frozen


@frozen
class Layer:
    """What one kind of layer does otherwise than the model; none is the model's own choice.

    mixer: how its tokens learn of each other
    position: how it knows where a token stands
    residual: how its sublayers join the stream
    feed_forward: what its tokens go through by themselves
    """

    mixer: Mixer | None = None
    position: Position | None = None
    residual: Residual | None = None
    feed_forward: FeedForward | None = None


class Kind(NamedTuple):
    """A kind of layer with nothing left to the model."""

    mixer: Mixer
    position: Position
    residual: Residual
    feed_forward: FeedForward


class LayerPlan(NamedTuple):
    """The layers of a model in order: a prefix, `times` times the period, and the tail, a period that is cut short."""

    prefix: tuple[Kind, ...]
    period: tuple[Kind, ...]
    times: int
    tail: tuple[Kind, ...]

    @property
    def layers(self) -> tuple[Kind, ...]:
        """The kind of every layer."""
        return (*self.prefix, *self.period * self.times, *self.tail)


@frozen
class EncoderOptions:
    """What the encoder of a translation model has of its own; none is what its decoder has.

    layers: number of blocks
    vocab: number of tokens, with a table of its own; none: both sides share one
    length: rows of tables along the text
    period: number of kinds of layers that are repeated to the end, in place of prefix and period
    input: what it reads, such as frames of sounds; none: texts, as the decoder does
    """

    layers: int | None = None
    vocab: int | None = None
    length: int | None = None
    period: tuple[Layer, ...] = ()
    input: Input | None = None

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, layers=1, vocab=1, length=1)
        check_maximum(self, "no model is as large", layers=MAX_LAYERS, vocab=MAX_LENGTH, length=MAX_LENGTH)
        if self.input is not None and self.vocab is not None:
            raise ValueError(
                f"vocab={self.vocab} is of a table of tokens that both sides would share, and input={self.input.name} "
                "has its own; leave it out"
            )

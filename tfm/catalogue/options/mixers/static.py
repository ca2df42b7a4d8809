"""Mixers that compare no tokens: weights are tables of places in a text, or read single tokens."""

from typing import ClassVar, Literal

from tfm.options.choices import MAX_LENGTH, Options, check_fields, check_maximum, check_minimum, frozen, tag
from tfm.options.model import ModelConfig


@frozen
class FNet(Options):
    """The real part of a Fourier transform along the text and the width, without parameters (Lee-Thorp et al. 2021);
    for encoders.

    A text in a longer row is another signal: padding changes what the tokens become.

    reads_padding: padding is mixed as it is, as in transformers; otherwise it counts as zeros
    """

    name: Literal["fnet"] = tag("fnet")
    reads_packed: ClassVar[bool] = False
    reads_padding: bool = False


@frozen
class Synthesizer(Options):
    """Attention whose scores are a trained table, or computed by each token alone (Tay et al. 2021).

    terms: dense | random | dense_random | dot_dense | dot_random | dot_dense_random: dense: a token computes the scores
        of its row; random: a trained table; dot: products of queries and keys; several: a trained mixture
    factorized: tables are products of two small ones, dense rows products of two short ones
    rank: of the product that is a factorized table
    fixed: the random table is drawn from a normal distribution and not trained (section 3.1.2)
    """

    name: Literal["synthesizer"] = tag("synthesizer")
    terms: Literal["dense", "random", "dense_random", "dot_dense", "dot_random", "dot_dense_random"] = "dense"
    factorized: bool = False
    rank: int = 8
    fixed: bool = False

    def __post_init__(self):
        check_fields(self)
        if self.fixed and "random" not in self.terms:
            raise ValueError(
                f"mixer.fixed=true is of a random table, and mixer.terms={self.terms} has none; leave it out"
            )
        check_minimum(self, rank=1)
        check_maximum(self, "no text is as long", rank=MAX_LENGTH)

    def max_length(self, config: ModelConfig) -> int | None:
        return config.length


@frozen
class Gmlp(Options):
    """A gate mixes tokens by a trained matrix over the length (gMLP: Liu et al. 2021).

    ffn: channels, of which one half gates the other; none: as many as the feed-forward layer has
    """

    name: Literal["gmlp"] = tag("gmlp")
    ffn: int | None = None

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, ffn=2)
        check_maximum(self, "no model is as large", ffn=MAX_LENGTH)

    def channels(self, config: ModelConfig) -> int:
        """Channels before they are split."""
        return self.ffn or config.sizes["F"]

    def check(self, config: ModelConfig) -> None:
        if self.channels(config) % 2:
            raise ValueError(f"mixer.ffn={self.channels(config)} must be even: one half gates the other")

    def max_length(self, config: ModelConfig) -> int | None:
        return config.length

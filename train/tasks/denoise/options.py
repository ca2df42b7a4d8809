"""The options of denoising."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from tfm.options.choices import check_fields, frozen, tag
from tfm.options.errors import suggest
from train.settings.task_options import TaskOptions


class Denoiser(NamedTuple):
    """What is left out of a text: `rate` of its tokens in spans of a mean length `span`; None: all after a prefix.

    share: of the rows
    """

    share: float
    rate: float | None
    span: float | None


# The denoisers of UL2 (Tay et al. 2022, table 1), as rates and mean lengths of spans; S is a prefix language model.
UL2: Mapping[str, tuple[tuple[float | None, float | None], ...]] = {
    "r": ((0.15, 3), (0.15, 8)),
    "s": ((None, None),),
    "x": ((0.5, 3), (0.5, 8), (0.15, 64), (0.5, 64)),
}


@frozen
class Denoise(TaskOptions):
    """Text without some spans, which the decoder writes (T5: Raffel et al. 2020, section 3.1.4).

    noise: spans | infilling: the decoder writes the spans, or all of the text, of which the encoder reads spans of
        random lengths as a mask each (BART: Lewis et al. 2020)
    permute: the encoder reads the sentences of a text in another order (BART)
    rate: share of tokens that are left out
    span: mean length of a span
    mixture: weights of UL2's denoisers in place of rate and span, such as r:2,s:1,x:4 (short spans, prefix language
        model, long or many spans), or s:1 for a prefix language model alone; none: no mixture
    start: the token that the decoder begins with; empty: [CLS]. Models of transformers have their own
    """

    name: Literal["denoise"] = tag("denoise")
    noise: Literal["spans", "infilling"] = "spans"
    permute: bool = False
    rate: float = 0.15
    span: float = 3.0
    mixture: str | None = None
    start: str = ""

    def __post_init__(self):
        check_fields(self)
        if not 0 < self.rate < 1:
            raise ValueError(f"rate={self.rate} must be more than 0 and less than 1; T5 has 0.15")
        if not 1 <= self.span <= 1 << 20:
            raise ValueError(f"span={self.span} must be at least 1 token; T5 has 3")
        if self.noise == "infilling" and self.mixture is not None:
            raise ValueError(f"mixture={self.mixture} mixes noise=spans; leave it out, or noise=infilling")
        if self.permute and self.noise == "spans":
            raise ValueError("permute=true needs noise=infilling; the decoder writes no sentences with noise=spans")
        _ = self.denoisers

    @property
    def denoisers(self) -> tuple[Denoiser, ...]:
        """What rows are made by, and the share of each; those of a letter of UL2 share its weight equally."""
        if self.mixture is None:
            return (Denoiser(1.0, self.rate, self.span),)
        weights = _weights(self.mixture)
        total = sum(weights.values())
        return tuple(
            Denoiser(weight / total / len(UL2[letter]), rate, span)
            for letter, weight in weights.items()
            if weight
            for rate, span in UL2[letter]
        )


def _weights(mixture: str) -> dict[str, float]:
    """`r:2,s:1` -> weights by letter. Raises ValueError for anything else."""
    weights: dict[str, float] = {}
    for part in mixture.split(","):
        letter, _, weight = part.partition(":")
        if letter not in UL2:
            raise ValueError(f"mixture={mixture} has {letter!r}, which is no denoiser{suggest(letter, UL2)}")
        if letter in weights:
            raise ValueError(f"mixture={mixture} names {letter} twice; leave one out")
        try:
            weights[letter] = float(weight)
        except ValueError:
            weights[letter] = -1.0
        if not 0 <= weights[letter] < 1e6:
            raise ValueError(f"mixture={mixture} must give {letter} a weight, as {letter}:1 does")
    if not sum(weights.values()):
        raise ValueError(f"mixture={mixture} gives no denoiser a weight; say r:2,s:1,x:4")
    return weights

"""The catalogue of residual connections: how the sublayers of a block join its stream."""

from dataclasses import dataclass
from typing import Literal

from tfm.config.choices import Options, tag


@dataclass(frozen=True)
class PostNorm(Options):
    """The sum is normalized: norm(x + f(x)) (Vaswani et al. 2017, section 3.1)."""

    name: Literal["post"] = tag("post")


@dataclass(frozen=True)
class PreNorm(Options):
    """What a sublayer reads is normalized: x + f(norm(x)) (Xiong et al. 2020).

    mixer_norm: normalize what the mixer reads
    """

    name: Literal["pre"] = tag("pre")
    mixer_norm: bool = True


@dataclass(frozen=True)
class Parallel(Options):
    """All sublayers read the same: x + mixer(norm(x)) + feed_forward(norm(x)) (Wang & Komatsuzaki 2021)."""

    name: Literal["parallel"] = tag("parallel")


@dataclass(frozen=True)
class ReZero(Options):
    """Every block adds a trained multiple of its sublayers, at first 0, and normalizes nothing (Bachlechner et al.
    2021)."""

    name: Literal["rezero"] = tag("rezero")


Residual = PostNorm | PreNorm | Parallel | ReZero

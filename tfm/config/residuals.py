"""How the sublayers of a block join its stream."""

from typing import Literal

from tfm.catalogue.options.residuals import (
    Admin,
    Conditional,
    DeepNorm,
    DTFixup,
    MixerOnly,
    NoResidual,
    Parallel,
    PatchInteraction,
    ResPostNorm,
    Reversible,
    ReZero,
    TFixup,
)
from tfm.options.choices import Options, frozen, tag
from tfm.options.slots import check_layer_scale


@frozen
class PostNorm(Options):
    """The sum is normalized: norm(x + f(x)) (Vaswani et al. 2017, section 3.1)."""

    name: Literal["post"] = tag("post")


@frozen
class PreNorm(Options):
    """What a sublayer reads is normalized: x + f(norm(x)) (Xiong et al. 2020).

    mixer_norm: normalize what the mixer reads
    final_norm: normalize the states of the last layer
    layer_scale: where a trained vector starts that scales each branch; none: no vector (CaiT: Touvron et al. 2021,
        eq. 7)
    """

    name: Literal["pre"] = tag("pre")
    mixer_norm: bool = True
    final_norm: bool = True
    layer_scale: float | None = None

    def __post_init__(self):
        check_layer_scale(self)


Residual = (
    PostNorm
    | PreNorm
    | ResPostNorm
    | MixerOnly
    | Conditional
    | PatchInteraction
    | Parallel
    | ReZero
    | TFixup
    | DTFixup
    | Admin
    | DeepNorm
    | Reversible
    | NoResidual
)

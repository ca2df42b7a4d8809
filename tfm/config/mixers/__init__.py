"""The catalogue of mixers: how the tokens of a text learn of each other. One file a family, named like its folder in
`tfm.mixers`."""

from dataclasses import dataclass
from typing import Literal

from tfm.config.choices import Options, tag
from tfm.config.mixers.fewer_keys import Linformer
from tfm.config.mixers.kernels import Performer
from tfm.config.patterns import Full, Pattern


@dataclass(frozen=True)
class Softmax(Options):
    """Softmax attention (Vaswani et al. 2017, eq. 1).

    pattern: the keys that a query may see
    qk_norm: normalize the queries and keys of each head (Henry et al. 2020)
    """

    name: Literal["softmax"] = tag("softmax")
    pattern: Pattern = Full()
    qk_norm: bool = False


Mixer = Softmax | Linformer | Performer

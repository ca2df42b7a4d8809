"""The catalogue of mixers: how the tokens of a text learn of each other. One file a family, named like its folder in
`tfm.mixers`."""

from dataclasses import dataclass
from typing import Any, Literal

from tfm.config.choices import Options, tag
from tfm.config.mixers.fewer_keys import Compressed, Linformer, Nystrom
from tfm.config.mixers.kernels import AttentionFree, CrossCovariance, DeltaRule, LinearAttention, Performer
from tfm.config.mixers.static import FNet
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

    @property
    def reads_packed(self) -> bool:  # type: ignore[override]
        """As the pattern does."""
        return self.pattern.reads_packed

    def check(self, config: Any) -> None:  # noqa: D102
        self.pattern.check(config)

    def max_length(self, config: Any) -> int | None:  # noqa: D102
        return self.pattern.max_length(config)


Mixer = (
    Softmax
    | Compressed
    | Linformer
    | Nystrom
    | AttentionFree
    | CrossCovariance
    | DeltaRule
    | LinearAttention
    | Performer
    | FNet
)

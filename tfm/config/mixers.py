"""How tokens learn of each other."""

import dataclasses
from typing import Literal

from tfm.catalogue.options.mixers.clustered import Reformer, Routing, Sinkhorn
from tfm.catalogue.options.mixers.convolution import DynamicConv, LightConv, TextCnn
from tfm.catalogue.options.mixers.fewer_keys import Compressed, Linformer, Nystrom, SpatialReduction, Stripes
from tfm.catalogue.options.mixers.kernels import (
    AttentionFree,
    ChannelGroups,
    CrossCovariance,
    DeltaRule,
    LinearAttention,
    Performer,
)
from tfm.catalogue.options.mixers.recurrent import Gru, Lstm
from tfm.catalogue.options.mixers.static import FNet, Gmlp, Synthesizer
from tfm.config.patterns import Full, Pattern
from tfm.options.choices import Options, frozen, tag
from tfm.options.model import ModelConfig


@frozen
class Softmax(Options):
    """Softmax attention (Vaswani et al. 2017, eq. 1).

    pattern: the keys that a query may see
    qk_norm: normalize the queries and keys of each head (Henry et al. 2020)
    qkv_bias: add biases to queries, keys and values too where the model has biases
    score: scaled_dot | dot | multiplicative | additive: q k / sqrt(H); q k; q W k (Luong et al. 2015, eq. 8);
        v tanh(q + k) (Bahdanau et al. 2015, appendix A.1.2); also of a translation with its source
    split_states: queries and keys read the first half of a state, values the second one (Daniluk et al. 2017)
    key_bias: keys have a bias where projections have one; scaled products do not depend on it
    output_bias: add a bias to what heads are mapped to where the model has biases
    own_qkv_bias: add those of queries, keys and values where the model has no biases (Qwen 2: Yang et al. 2024, section
        2.2.1)
    """

    name: Literal["softmax"] = tag("softmax")
    pattern: Pattern = Full()
    qk_norm: bool = False
    qkv_bias: bool = True
    score: Literal["scaled_dot", "dot", "multiplicative", "additive"] = "scaled_dot"
    split_states: bool = False
    key_bias: bool = True
    output_bias: bool = True
    own_qkv_bias: bool = False

    def check(self, config: ModelConfig) -> None:
        self.pattern.check(config)
        if self.split_states and config.width % 2:
            raise ValueError(f"width={config.width} must be even for mixer.split_states=true")
        if self.score == "additive" and config.kernel not in ("auto", "einsum"):
            raise ValueError(
                f"kernel={config.kernel} multiplies queries and keys, and mixer.score=additive adds them; "
                "leave kernel at auto"
            )

    @property
    def reads_packed(self) -> bool:  # type: ignore[override]
        """As the pattern does."""
        return self.pattern.reads_packed

    def within(self, tokens: int) -> "Softmax":
        return dataclasses.replace(self, pattern=self.pattern.within(tokens))

    def max_length(self, config: ModelConfig) -> int | None:
        return self.pattern.max_length(config)


Mixer = (
    Softmax
    | Compressed
    | Linformer
    | Nystrom
    | SpatialReduction
    | Stripes
    | Reformer
    | Routing
    | Sinkhorn
    | AttentionFree
    | ChannelGroups
    | CrossCovariance
    | DeltaRule
    | LinearAttention
    | Performer
    | FNet
    | Gmlp
    | Synthesizer
    | DynamicConv
    | LightConv
    | TextCnn
    | Gru
    | Lstm
)

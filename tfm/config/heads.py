"""The options of heads."""

from typing import Literal

from tfm.options.choices import (
    MAX_LAYERS,
    MAX_LENGTH,
    MAX_WIDTH,
    check_fields,
    check_maximum,
    check_minimum,
    frozen,
)
from tfm.options.model import ModelConfig


@frozen
class Head:
    """What heads have beside their sizes. Raises ValueError for values that do not fit together.

    pool: first | mean | last | max | ends | prefix: what stands for a text or an image, its first or last token, the
        mean or maximum of all; [CLS] is not in the mean of an image; ends: of two directions of reading, each at its
        end; prefix: the mean of the trained vectors before an image or a sound
    features: last | mix | sum | concat: what heads of texts read: the last layer; embeddings and all layers, weighed by
        a trained softmax and a factor (Peters et al. 2018, eq. 1); the sum of the top layers, or these side by side
        (Devlin et al. 2018, table 7)
    feature_layers: how many layers sum and concat read
    dense: a linear map leads from that to the classes, with an activation
    pool_activation: tanh | gelu | gelu_tanh | quick_gelu | relu | silu: of that map
    pool_norm: normalize what the classes are read from
    distilled: the second vector of an image is read too, by an output of its own; logits are the mean of both
    bias: add a bias in the linear map that a head begins with
    causal: a classifier reads as a decoder does: a token sees itself and those before it
    layer: number of layers whose states a classifier reads, by the norm of the next one; none: all
    output_bias: add a bias to the logits of a language model, or of a causal classifier
    scale_logits: divide the states of a language model by the root of the width before the output table
    input_only: tokens at the end of the vocabulary that are read and never predicted, such as a start token
    decoder_width: outputs of pixels are read from the states of all stages, mapped to this width and joined on the grid
        of the first stage (Xie et al. 2021, section 3.2); none: from those of the last stage
    queries: object queries of a detector, where a folder of transformers says it; none: a task says how many
    query_layers: layers of its decoder, the same
    """

    pool: Literal["first", "mean", "last", "max", "ends", "prefix"] = "first"
    features: Literal["last", "mix", "sum", "concat"] = "last"
    feature_layers: int = 4
    dense: bool = True
    pool_activation: Literal["tanh", "gelu", "gelu_tanh", "quick_gelu", "relu", "silu"] = "tanh"
    pool_norm: bool = False
    distilled: bool = False
    bias: bool = True
    causal: bool = False
    layer: int | None = None
    output_bias: bool = False
    scale_logits: bool = False
    input_only: int = 0
    decoder_width: int | None = None
    queries: int | None = None
    query_layers: int | None = None

    def __post_init__(self):
        check_fields(self)
        sizes = ("layer", "feature_layers", "decoder_width", "queries", "query_layers")
        check_minimum(self, input_only=0, **dict.fromkeys(sizes, 1))
        check_maximum(self, "no model is as wide", decoder_width=MAX_WIDTH)
        check_maximum(self, "no model is as large", queries=MAX_LENGTH, query_layers=MAX_LAYERS)

    def check(self, config: ModelConfig) -> None:
        """Raises ValueError where a model of this configuration cannot have such heads."""
        if self.input_only >= config.vocab:
            raise ValueError(
                f"head.input_only={self.input_only} must be less than vocab={config.vocab}, or nothing is predicted"
            )
        if self.layer is not None and (self.layer > config.layers or config.stages):
            raise ValueError(
                f"head.layer={self.layer} must be one of the layers={config.layers} of a model without stages; "
                "choose another, or none"
            )
        if self.pool == "ends" and config.width % 2:
            raise ValueError(f"width={config.width} must be even for head.pool=ends, a half for each direction")
        if self.pool == "prefix" and not config.input.prefix:
            raise ValueError(
                f"head.pool=prefix reads the trained vectors before an image or a sound, and input={config.input.name} "
                "has none here; try head.pool=mean"
            )
        if self.features in ("sum", "concat") and self.feature_layers > config.layers + 1:
            raise ValueError(
                f"head.feature_layers={self.feature_layers} are more than the {config.layers} layers and the "
                f"embeddings; try head.feature_layers={config.layers}"
            )
        if self.features != "last" and (config.stages or config.input.grid or self.layer is not None):
            raise ValueError(
                f"head.features={self.features} reads several layers of a text; images and head.layer have "
                "head.features=last"
            )
        if self.decoder_width is not None and (config.input.grid is None or self.layer is not None):
            raise ValueError(
                f"head.decoder_width={self.decoder_width} is for outputs of the pixels of a picture, by all layers; "
                "leave it out"
            )
        if self.distilled and config.input.prefix < 2:
            raise ValueError(
                "head.distilled=true reads the second vector of an image, which only input=patches with "
                "input.distilled=true has; leave it out"
            )

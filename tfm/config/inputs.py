"""The catalogue of inputs, and the options of heads."""

from dataclasses import dataclass
from typing import Literal

from tfm.config.choices import Options, check_fields, check_maximum, check_minimum, tag


@dataclass(frozen=True)
class Tokens(Options):
    """Rows of a table of tokens.

    token_types: rows of the token-type table; none: no such table
    width: width of the table; none: that of the model, else a linear map leads from one to the other
    projection: last | first: that map is behind the norm, with a bias, or before it, without
    norm: normalize the embeddings
    scale: multiply the token embeddings by the root of the width of the model
    """

    name: Literal["tokens"] = tag("tokens")
    token_types: int | None = 2
    width: int | None = None
    projection: Literal["last", "first"] = "last"
    norm: bool = True
    scale: bool = False

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, token_types=1, width=1)
        check_maximum(self, "no model is as large", token_types=1 << 20, width=1 << 20)


@dataclass(frozen=True)
class Head:
    """What heads have beside their sizes.

    pool: first | mean | last | max: what stands for a text, its first or last token, the mean or the maximum of all
    pool_activation: tanh | gelu | gelu_tanh | relu | silu: of the linear map between that and the classes
    pool_norm: normalize after that activation
    bias: add a bias in the linear map that a head begins with
    output_bias: add a bias to the logits of a language model
    scale_logits: divide the states of a language model by the root of the width before the output table
    """

    pool: Literal["first", "mean", "last", "max"] = "first"
    pool_activation: Literal["tanh", "gelu", "gelu_tanh", "relu", "silu"] = "tanh"
    pool_norm: bool = False
    bias: bool = True
    output_bias: bool = False
    scale_logits: bool = False

    def __post_init__(self):
        check_fields(self)


Input = Tokens

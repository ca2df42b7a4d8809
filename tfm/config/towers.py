"""The tower of images beside one of texts: what it has of its own, and the space that both share."""

import math
from dataclasses import replace
from typing import Literal

from tfm.catalogue.options.inputs import Patches
from tfm.config.heads import Head
from tfm.config.layers import EncoderOptions, Layer
from tfm.config.mixers import Mixer, Softmax
from tfm.config.positions import Learned, Position
from tfm.options.choices import (
    MAX_LAYERS,
    MAX_LENGTH,
    MAX_WIDTH,
    Options,
    check_fields,
    check_maximum,
    check_minimum,
    frozen,
    tag,
)
from tfm.options.model import M, ModelConfig


@frozen
class ImageTower(Options):
    """A Transformer that reads images, and how its vectors meet those of texts (CLIP: Radford et al. 2021; SigLIP: Zhai
    et al. 2023). What has no field here is that of the model of texts.
    Raises ValueError for values that do not fit together.

    layers: number of blocks
    width: size of the residual stream
    heads: query heads
    ffn: size of the feed-forward layer; none: 4 * width
    activation: gelu | gelu_tanh | quick_gelu | relu | silu | swiglu | geglu | geglu_tanh; none: that of texts
    norm_eps: added to the variance; none: that of texts
    input: the patches that images are cut into
    position: how the tower knows where a patch stands
    mixer: how patches learn of each other
    pool: first | mean | attention: what stands for an image: [CLS], the mean of the patches, or what a trained query
        gathers from them, and a feed-forward layer (Zhai et al. 2022, section 3.5)
    projection: size of the space that a linear map of each tower leads to; none: images stay in their own width, and
        texts are mapped to it
    projection_bias: add a bias in these maps
    loss: softmax | sigmoid: one text of the batch is right for an image (CLIP), or each pair is judged alone (SigLIP)
    reads_padding: padding of texts is read as a token, up to length, as in the folders of SigLIP
    """

    name: Literal["tower"] = tag("tower")
    layers: int = 2
    width: int = 128
    heads: int = 2
    ffn: int | None = None
    activation: Literal["gelu", "gelu_tanh", "quick_gelu", "relu", "silu", "swiglu", "geglu", "geglu_tanh"] | None = (
        None
    )
    norm_eps: float | None = None
    input: Patches = Patches()
    position: Position = Learned()
    mixer: Mixer = Softmax()
    pool: Literal["first", "mean", "attention"] = "first"
    projection: int | None = 512
    projection_bias: bool = False
    loss: Literal["softmax", "sigmoid"] = "softmax"
    reads_padding: bool = False

    def __post_init__(self):
        check_fields(self)
        sizes = dict.fromkeys(("width", "heads", "projection"), MAX_WIDTH)
        check_minimum(self, layers=1, ffn=1, norm_eps=0, **dict.fromkeys(sizes, 1))
        check_maximum(self, "no model is as large", layers=MAX_LAYERS, ffn=MAX_LENGTH, **sizes)
        if self.pool == "first" and not self.input.cls:
            raise ValueError("pool=first reads [CLS], and input.cls=false has none; choose pool=mean or attention")

    @property
    def size(self) -> int:
        """Size of the shared space."""
        return self.projection or self.width

    @property
    def logit_starts(self) -> tuple[float, float | None]:
        """Where the logarithm of the scale of cosines starts, and the bias of logits, if any (Radford et al. 2021,
        section 2.5; Zhai et al. 2023, section 3.2)."""
        return (math.log(1 / 0.07), None) if self.loss == "softmax" else (math.log(10), -10.0)

    def check(self, config: ModelConfig) -> None:
        """Raises ValueError unless the model beside the tower reads texts, and one vector stands for each."""
        if config.input.grid is not None:
            raise ValueError(
                f"images=tower stands beside a model of texts, and input={config.input.name} reads images; say "
                "input=tokens, and leave the patches to images.input"
            )
        if config.head.features != "last" or config.head.layer is not None:
            raise ValueError("images=tower reads the last layer of texts; leave head.features and head.layer out")

    def config(self, texts: M) -> M:
        """The configuration of the tower beside that of texts. Raises ValueError for sizes that do not fit."""
        return replace(
            texts,
            layers=self.layers,
            width=self.width,
            heads=self.heads,
            kv_heads=None,
            head_size=None,
            ffn=self.ffn,
            activation=self.activation or texts.activation,
            norm_eps=texts.norm_eps if self.norm_eps is None else self.norm_eps,
            input=self.input,
            position=self.position,
            mixer=self.mixer,
            prefix=(),
            period=(Layer(),),
            head=Head(pool="first" if self.pool == "first" else "mean", dense=False),
            encoder=EncoderOptions(),
            images=None,
        )

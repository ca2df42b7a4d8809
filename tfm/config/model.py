"""The configuration of a model: sizes, and a choice of variants."""

import functools
from dataclasses import replace
from typing import Literal, Self

from tfm.config.feed_forwards import FeedForward, PositionWise
from tfm.config.heads import Head
from tfm.config.inputs import Input, Tokens
from tfm.config.layers import EncoderOptions, Kind, Layer, LayerPlan
from tfm.config.mixers import Mixer, Softmax
from tfm.config.positions import Learned, Position
from tfm.config.residuals import PostNorm, Residual
from tfm.config.stages import Stage
from tfm.config.towers import ImageTower
from tfm.options.choices import (
    MAX_LAYERS,
    MAX_LENGTH,
    MAX_WIDTH,
    check_fields,
    check_maximum,
    check_minimum,
    check_rates,
    frozen,
)
from tfm.options.errors import nearest_divisor

# The sizes of a model: at least 1, and far below what computers can count, so that nothing is built of absurd ones.
MAX_SIZES = {
    "layers": MAX_LAYERS,
    **dict.fromkeys(("width", "heads", "kv_heads", "head_size", "classes", "pad_vocab_to"), MAX_WIDTH),
    **dict.fromkeys(("ffn", "vocab", "length"), MAX_LENGTH),
}

# The norms that have running state.
RUNNING_NORMS = ("power", "batch")

# How a model is computed and trained; all other fields say what its weights mean.
COMPUTE = (
    *("dropout", "attn_dropout", "ffn_dropout", "drop_path", "scan", "remat", "dtype", "param_dtype", "kernel"),
    *("pad_vocab_to", "init_std"),
)


@frozen
class Config:
    """A Transformer: its sizes and its variants. Raises ValueError for values that do not fit together.

    layers: number of blocks; of a translation model, of its decoder
    share_layers: all layers have the same parameters
    width: size of the residual stream
    heads: query heads
    kv_heads: key/value heads; none: as many as heads
    head_size: size of a head; none: width / heads
    ffn: size of the feed-forward layer; none: 4 * width
    vocab: number of tokens; images have none
    length: rows of tables along the text, the longest text that they allow; of a translation model, of its decoder; for
        images, input says how many
    classes: outputs of a classification head
    norm: layer | rms | layer_no_bias | power | batch | none
    norm_eps: added to the variance
    activation: gelu | gelu_tanh | quick_gelu | relu | silu | swiglu | geglu | geglu_tanh
    bias: add biases in attention and feed-forward layers
    tie_embeddings: the output layer reuses the token table
    input: what a text or an image is read from
    position: how the model knows where a token stands
    mixer: how tokens learn of each other
    residual: how sublayers join the stream
    feed_forward: what every token goes through by itself
    head: what heads have beside their sizes
    stages: number of later stages, each on a coarser grid; `stages.0.width` sets one
    prefix: number of kinds of layers before the period; `prefix.0.mixer` sets one
    period: number of kinds of layers that are repeated to the end; `period.0.mixer` sets one
    encoder: what the encoder of a translation model has of its own
    images: a second model beside this one, which reads images into the same space as texts; none: no such model
    dropout: rate on embeddings, attention weights and sublayer outputs
    attn_dropout: rate on attention weights; none: the same as dropout
    ffn_dropout: rate behind the activation of the feed-forward layer
    drop_path: rate at which examples skip a sublayer of the last layer; it grows in equal steps from 0 in the first
        (stochastic depth: Huang et al. 2016, section 3)
    init_std: standard deviation of the truncated normal that weights start from
    pad_vocab_to: the token table is padded to a multiple of this
    scan: one compiled period for all layers instead of one block each
    remat: none | dots | block | offload: recompute nothing, all but products with weights, or blocks; offload: inputs
        on the host
    dtype: float32 | bfloat16 | float16: what matrix products are computed in
    param_dtype: float32 | bfloat16: what parameters are stored in
    kernel: auto | einsum | chunked | cudnn | splash | triton | ring: how attention is computed; auto decides by device,
        sizes and mask; triton: norms too, for NVIDIA GPUs; ring: for a length that the mesh shards
    """

    layers: int = 2
    share_layers: bool = False
    width: int = 128
    heads: int = 2
    kv_heads: int | None = None
    head_size: int | None = None
    ffn: int | None = None
    vocab: int = 30522
    length: int = 512
    classes: int = 2
    norm: Literal["layer", "rms", "layer_no_bias", "power", "batch", "none"] = "layer"
    norm_eps: float = 1e-12
    activation: Literal["gelu", "gelu_tanh", "quick_gelu", "relu", "silu", "swiglu", "geglu", "geglu_tanh"] = "gelu"
    bias: bool = True
    tie_embeddings: bool = True
    input: Input = Tokens()
    position: Position = Learned()
    mixer: Mixer = Softmax()
    residual: Residual = PostNorm()
    feed_forward: FeedForward = PositionWise()
    head: Head = Head()
    stages: tuple[Stage, ...] = ()
    prefix: tuple[Layer, ...] = ()
    period: tuple[Layer, ...] = (Layer(),)
    encoder: EncoderOptions = EncoderOptions()
    images: ImageTower | None = None
    dropout: float = 0.1
    attn_dropout: float | None = None
    ffn_dropout: float = 0.0
    drop_path: float = 0.0
    init_std: float = 0.02
    pad_vocab_to: int = 128
    scan: bool = True
    remat: Literal["none", "dots", "block", "offload"] = "none"
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    param_dtype: Literal["float32", "bfloat16"] = "float32"
    kernel: Literal["auto", "einsum", "chunked", "cudnn", "splash", "triton", "ring"] = "auto"

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, **dict.fromkeys(MAX_SIZES, 1) | {"layers": self.input.min_layers}, norm_eps=0, init_std=0)
        check_maximum(self, "no model is as large", **MAX_SIZES)
        check_maximum(self, "weights and activations are around 1", norm_eps=1, init_std=100)
        check_rates(self, "dropout", "attn_dropout", "ffn_dropout", "drop_path")
        if self.head_size is None and self.width % self.heads:
            nearest = nearest_divisor(self.heads, self.width)
            raise ValueError(f"heads={self.heads} must divide width={self.width}; try heads={nearest}")
        if self.kv_heads is not None and self.heads % self.kv_heads:
            nearest = nearest_divisor(self.kv_heads, self.heads)
            raise ValueError(f"kv_heads={self.kv_heads} must divide heads={self.heads}; try kv_heads={nearest}")
        if not self.period:
            raise ValueError("period=0 must be at least 1")
        if self.share_layers and self.norm in RUNNING_NORMS:
            raise ValueError(
                f"share_layers=true adds up the changes of running state, and norm={self.norm} has some; try norm=layer"
            )
        if self.share_layers and (self.prefix or self.layers % len(self.period)):
            raise ValueError(
                "share_layers=true shares whole periods; leave out the prefix, or choose layers that period divides"
            )
        for kind in self.kinds:
            for options in kind:
                options.check(self)
        self.input.check(self)
        self.head.check(self)
        tuple(self.stage_configs)  # each judges itself
        if self.encoder.period or self.encoder.length or self.encoder.input:
            self.in_encoder()  # raises ValueError for layers that do not fit
        if self.images is not None:
            self.in_images()  # the same for the tower of images

    def in_encoder(self) -> Self:
        """The configuration of the encoder of a translation model, out of that of the model."""

        def resolve(layer: Layer) -> Layer:
            return layer if layer.residual is None else replace(layer, residual=layer.residual.in_encoder(self))

        prefix, period = ((), self.encoder.period) if self.encoder.period else (self.prefix, self.period)
        return replace(
            self,
            vocab=self.encoder.vocab or self.vocab,
            layers=self.encoder.layers or self.layers,
            length=self.encoder.length or self.length,
            input=self.encoder.input or self.input,
            residual=self.residual.in_encoder(self),
            prefix=tuple(map(resolve, prefix)),
            period=tuple(map(resolve, period)),
            encoder=EncoderOptions(),
        )

    def in_images(self) -> "Config":
        """The configuration of the tower of images, out of that of a model of texts and images.

        Raises ValueError for a model without one.
        """
        if self.images is None:
            raise ValueError("images=none: the model reads texts alone; choose images=tower")
        self.images.check(self)
        try:
            return self.images.config(self)
        except ValueError as error:
            raise ValueError(f"images: {error}") from error

    @property
    def towers(self) -> tuple["Config", ...]:
        """This configuration, and that of the tower of images, if there is one."""
        return (self,) if self.images is None else (self, self.in_images())

    @functools.cached_property
    def layer_plan(self) -> LayerPlan:
        """The layers in order."""

        def resolve(layer: Layer) -> Kind:
            return Kind(*(getattr(layer, name) or getattr(self, name) for name in Kind._fields))

        prefix = tuple(map(resolve, self.prefix[: self.layers]))
        period = tuple(map(resolve, self.period))
        times, rest = divmod(self.layers - len(prefix), len(period))
        return LayerPlan(prefix, period if times else (), times, period[:rest])

    @functools.cached_property
    def stage_configs(self) -> tuple["Config", ...]:
        """The configuration of each stage, the first layers included; this one alone where no stages follow."""
        configs = [replace(self, stages=())] if self.stages else [self]
        for index, stage in enumerate(self.stages):
            try:
                configs.append(stage.config(configs[-1]))
            except ValueError as error:
                raise ValueError(f"stages.{index}: {error}") from error
        return tuple(configs)

    @property
    def grid(self) -> tuple[int, int] | None:
        """Rows and columns of the patches that layers read; None where they read a text, or vectors beside patches."""
        return None if self.input.prefix else self.input.grid

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The distinct kinds of layers."""
        plan = self.layer_plan
        return tuple(dict.fromkeys((*plan.prefix, *plan.period, *plan.tail)))

    @property
    def positions(self) -> tuple[Position, ...]:
        """The distinct position options of the layers."""
        return tuple(dict.fromkeys(kind.position for kind in self.kinds))

    @property
    def max_length(self) -> int | None:
        """The longest text that the model reads; None without a limit."""
        options = (self.input, self.position, *(options for kind in self.kinds for options in kind))
        limits = [limit for limit in (option.max_length(self) for option in options) if limit is not None]
        return min(limits, default=None)

    @property
    def reads_packed(self) -> bool:
        """Whether several texts may share a row."""
        return self.input.reads_packed and all(options.reads_packed for kind in self.kinds for options in kind)

    def within(self, tokens: int) -> "Config":
        """The model whose layers see at most `tokens` tokens before each, and keep as many when they generate."""

        def narrow(layer: Layer) -> Layer:
            return replace(layer, mixer=layer.mixer and layer.mixer.within(tokens))

        prefix, period = tuple(map(narrow, self.prefix)), tuple(map(narrow, self.period))
        return replace(self, mixer=self.mixer.within(tokens), prefix=prefix, period=period)

    @property
    def padded_vocab(self) -> int:
        """Rows of the stored token table: `vocab` rounded up to a multiple, for sharding and speed."""
        return -(-self.vocab // self.pad_vocab_to) * self.pad_vocab_to

    @property
    def outputs(self) -> int:
        """Tokens that a language model predicts: all but the last `head.input_only` ones."""
        return self.vocab - self.head.input_only

    @property
    def embed_axis(self) -> str:
        """The letter of the width of the embeddings."""
        return self.input.axis

    @property
    def attn_rate(self) -> float:
        """The dropout rate of attention weights."""
        return self.dropout if self.attn_dropout is None else self.attn_dropout

    def attn_rate_with(self, key: object) -> float:
        """The rate at which a pass drops attention weights: 0 without a key."""
        return 0.0 if key is None else self.attn_rate

    @functools.cached_property
    def sizes(self) -> dict[str, int]:
        """The size behind each letter of the parameter axes (`tfm.AXES`), in the first stage."""
        kv_heads = self.kv_heads or self.heads
        return {
            "D": self.width,
            "E": self.width,
            "K": kv_heads,
            "G": self.heads // kv_heads,
            "H": self.head_size or self.width // self.heads,
            "F": self.ffn or 4 * self.width,
            "C": self.classes,
            "L": self.layers,
            **self.input.sizes(self),
        }

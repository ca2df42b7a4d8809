"""The shape of a model and the variants it is made of."""

import dataclasses
import difflib
from collections.abc import Iterable

# The names that a field may take. The functions behind them stand in the table of the same name in ops, mlp, block, model and positions.
CHOICES = {
    "norm": ("layer", "rms", "layer_no_bias"),
    "order": ("post", "pre", "parallel"),
    "activation": ("gelu", "gelu_tanh", "relu", "silu", "swiglu", "geglu", "geglu_tanh"),
    "position": ("learned", "sinusoidal", "sinusoidal_halves", "rotary", "buckets", "none"),
    "relative": ("none", "c2p", "p2c", "c2p_p2c"),
    "embed_map": ("last", "first"),
    "pool_activation": ("tanh", "relu", "gelu"),
    "pool": ("first", "mean"),
    "remat": ("none", "dots", "block", "offload"),
    "dtype": ("float32", "bfloat16"),
    "param_dtype": ("float32", "bfloat16"),
    "kernel": ("auto", "einsum", "chunked", "cudnn", "splash"),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """A Transformer's shape and variants.

    layers: number of blocks; of a translation model, of its decoder
    encoder_layers: blocks of the encoder of a translation model; 0 means as many as its decoder has
    shared: all layers have the same parameters
    heads: query heads
    kv_heads: key/value heads; 0 means as many as heads
    head_size: size of a head; 0 means width / heads
    qk_norm: normalize the queries and keys of each head
    window: a decoder's token sees itself and the window - 1 tokens before it, an encoder's window / 2 on either side; 0 means all of them
    global_every: every so many layers, from the first on, one looks beyond the window; 0 means none
    width: size of the residual stream
    embed_width: size of the embeddings; 0 means width, else a linear map leads from one to the other
    embed_map: last | first: that map is behind the norm of the embeddings, with a bias, or before it, without
    ffn: size of the feed-forward layer; 0 means 4 * width
    vocab: number of tokens
    source_vocab: tokens of the encoder of a translation model, where it has a vocabulary of its own; 0 means that both share one table
    length: rows of the learned position table, the longest sequence
    token_types: rows of the token-type table; 0 means none
    classes: outputs of a classification head
    pool: first | mean: what stands for a whole text, its first token or the mean of all
    pool_activation: tanh | relu | gelu, of the linear map between that and the classes
    pool_norm: normalize after that activation
    head_bias: add a bias in the linear maps that heads begin with
    dropout: rate on embeddings, attention weights and sublayer outputs
    attn_dropout: rate on attention weights; below 0, the same as dropout
    norm: layer | rms | layer_no_bias
    norm_eps: added to the variance
    order: post | pre | parallel: where a block normalizes; parallel is pre, and the feed-forward layer reads what attention reads
    first_norm: normalize what the attention of the first layer reads; without, only pre-norm layers after it do
    embed_norm: normalize the embeddings
    embed_scale: multiply the token embeddings by the root of the width
    activation: gelu | gelu_tanh | relu | silu | swiglu | geglu | geglu_tanh
    position: learned | sinusoidal | sinusoidal_halves | rotary | buckets | none; halves have all sines first, buckets are of distances
    rotary_base: of the wavelengths of rotary positions; more than 10,000 for longer texts
    rotary_base_near: the same, in the layers that global_every leaves a window; 0 means rotary_base
    rotary_share: share of a head that is turned
    rotary_stretch: factor by which long wavelengths of rotary positions are stretched, for texts so much longer than those trained on
    rotary_short: wavelengths up to this are not stretched
    rotary_long: wavelengths from this on are stretched wholly, those between rotary_short and this in part; 0 means all wholly
    relative: none | c2p | p2c | c2p_p2c: attention compares contents with distances, distances with contents, or does both
    relative_shared: it takes the projections of queries and keys for distances too, not others
    relative_norm: normalize the table of distances
    buckets: number of buckets of distances
    bucket_distance: distances from here on share the last bucket; 0 means that until then none share, which only `relative` knows
    bias: add biases in attention and feed-forward layers
    tied: the output layer reuses the token table
    output_bias: a language model's output layer has a bias
    output_scale: a language model's states are divided by the root of the width before they meet the output table
    init_std: standard deviation of the truncated normal that weights start from
    vocab_multiple: the token table is padded to a multiple of this
    scan: one compiled block for all layers instead of one each
    remat: none | dots | block | offload: compute nothing again, all but products with weights, or blocks; offload: their inputs on the host
    dtype: float32 | bfloat16: what matrix products are computed in
    param_dtype: float32 | bfloat16: what parameters are stored in
    kernel: auto | einsum | chunked | cudnn | splash: how attention is computed; auto decides by device, sizes and mask
    """

    layers: int = 2
    encoder_layers: int = 0
    shared: bool = False
    heads: int = 2
    kv_heads: int = 0
    head_size: int = 0
    qk_norm: bool = False
    window: int = 0
    global_every: int = 0
    width: int = 128
    embed_width: int = 0
    embed_map: str = "last"
    ffn: int = 0
    vocab: int = 30522
    source_vocab: int = 0
    length: int = 512
    token_types: int = 2
    classes: int = 2
    pool: str = "first"
    pool_activation: str = "tanh"
    pool_norm: bool = False
    head_bias: bool = True
    dropout: float = 0.1
    attn_dropout: float = -1.0
    norm: str = "layer"
    norm_eps: float = 1e-12
    order: str = "post"
    first_norm: bool = True
    embed_norm: bool = True
    embed_scale: bool = False
    activation: str = "gelu"
    position: str = "learned"
    rotary_base: float = 10_000.0
    rotary_base_near: float = 0.0
    rotary_share: float = 1.0
    rotary_stretch: float = 1.0
    rotary_short: float = 0.0
    rotary_long: float = 0.0
    relative: str = "none"
    relative_shared: bool = False
    relative_norm: bool = False
    buckets: int = 32
    bucket_distance: int = 128
    bias: bool = True
    tied: bool = True
    output_bias: bool = False
    output_scale: bool = False
    init_std: float = 0.02
    vocab_multiple: int = 128
    scan: bool = True
    remat: str = "none"
    dtype: str = "float32"
    param_dtype: str = "float32"
    kernel: str = "auto"

    def __post_init__(self):
        may_be_zero = (
            "kv_heads ffn token_types source_vocab encoder_layers head_size window global_every embed_width".split()
        )
        for name in (
            "layers",
            "heads",
            "width",
            "vocab",
            "length",
            "classes",
            "vocab_multiple",
            "buckets",
            *may_be_zero,
        ):
            least = 0 if name in may_be_zero else 1
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)} must be at least {least}")
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name}={getattr(self, name)} is unknown{suggest(getattr(self, name), known)}")
        if not self.head_size and self.width % self.heads:
            raise ValueError(
                f"heads={self.heads} must divide width={self.width}; try heads={nearest_divisor(self.heads, self.width)}"
            )
        if self.kv_heads and self.heads % self.kv_heads:
            nearest = nearest_divisor(self.kv_heads, self.heads)
            raise ValueError(f"kv_heads={self.kv_heads} must divide heads={self.heads}; try kv_heads={nearest}")
        if self.position == "rotary" and self.turned % 2:
            raise ValueError(
                f"position=rotary turns pairs, and {self.turned} of each head of size {self.sizes['H']} are turned; try other heads"
            )
        if not 0 < self.rotary_share <= 1:
            raise ValueError(f"rotary_share={self.rotary_share} must be more than 0 and at most 1")
        if self.rotary_stretch < 1:
            raise ValueError(f"rotary_stretch={self.rotary_stretch} must be at least 1, which stretches nothing")
        if (self.rotary_short or self.rotary_long) and not 0 < self.rotary_short < self.rotary_long:
            raise ValueError(
                f"rotary_short={self.rotary_short} must be above 0 and less than rotary_long={self.rotary_long}, or both 0"
            )
        for name in ("rotary_base", "rotary_base_near"):
            if getattr(self, name) <= 1 and (getattr(self, name) or name == "rotary_base"):
                raise ValueError(f"{name}={getattr(self, name)} must be more than 1; 10,000 is usual")
        if self.position == "buckets" and self.bucket_distance < 1:
            raise ValueError(f"bucket_distance={self.bucket_distance} must be at least 1 where position=buckets")
        if self.relative != "none" and self.position == "buckets":
            raise ValueError(
                f"relative={self.relative} and position=buckets both place tokens by distances; leave one of them out"
            )
        if self.relative != "none" and (self.buckets % 2 or self.buckets < 4):
            raise ValueError(f"buckets={self.buckets} must be even and at least 4 where relative={self.relative}")
        if self.relative != "none" and self.bucket_distance and self.bucket_distance <= self.buckets // 4 + 1:
            least = self.buckets // 4 + 2
            raise ValueError(
                f"bucket_distance={self.bucket_distance} must be at least {least} with {self.buckets} buckets; or 0"
            )
        if self.global_every and not self.window:
            raise ValueError(f"global_every={self.global_every} needs a window for the other layers; 128 is usual")
        if not self.first_norm and (self.order != "pre" or self.shared):
            raise ValueError(
                f"first_norm=False needs order=pre and shared=False; they are order={self.order} and shared={self.shared}"
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout} must be at least 0 and less than 1")
        if self.attn_dropout >= 1:
            raise ValueError(f"attn_dropout={self.attn_dropout} must be less than 1; below 0 it is the same as dropout")

    @property
    def padded_vocab(self) -> int:
        """Rows of the stored token table: `vocab` rounded up to a multiple, for sharding and speed."""
        return -(-self.vocab // self.vocab_multiple) * self.vocab_multiple

    @property
    def embed_axis(self) -> str:
        """The letter of the embeddings' width."""
        return "U" if self.embed_width else "D"

    @property
    def turned(self) -> int:
        """Elements of a head that rotary positions turn."""
        return int(self.sizes["H"] * self.rotary_share)

    @property
    def attn_rate(self) -> float:
        """The dropout rate of attention weights."""
        return self.dropout if self.attn_dropout < 0 else self.attn_dropout

    @property
    def sizes(self) -> dict[str, int]:
        """The size behind each letter of the parameter axes (`tfm.AXES`)."""
        return dict(
            D=self.width,
            E=self.width,
            U=self.embed_width or self.width,
            K=self.kv_heads or self.heads,
            G=self.heads // (self.kv_heads or self.heads),
            H=self.head_size or self.width // self.heads,
            F=self.ffn or 4 * self.width,
            V=self.padded_vocab,
            P=self.length,
            R=self.buckets,
            Y=self.token_types,
            C=self.classes,
            L=self.layers,
        )


def suggest(word: str, known: Iterable[str]) -> str:
    """The second half of an "unknown name" sentence: the nearest known name, or all of them."""
    known = list(known)
    near = nearest(word, known)
    return f"; did you mean {near}?" if near else f"; known are {', '.join(known)}"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name that a misspelt one may have meant, whatever its case."""
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.5)
    return by_lower[near[0]] if near else None


def nearest_divisor(number: int, whole: int) -> int:
    """The divisor of `whole` nearest to `number`."""
    return min((n for n in range(1, whole + 1) if whole % n == 0), key=lambda n: abs(n - number))

"""The shape of a model and the variants it is made of."""

import dataclasses
import difflib
from collections.abc import Iterable

# The names that a field may take. The functions behind them stand in the table of the same name in ops, mlp, block and positions.
CHOICES = {
    "norm": ("layer", "rms"),
    "order": ("post", "pre"),
    "activation": ("gelu", "gelu_tanh", "relu", "silu", "swiglu", "geglu"),
    "position": ("learned", "sinusoidal", "rotary", "none"),
    "pool": ("first", "mean"),
    "remat": ("none", "block"),
    "dtype": ("float32", "bfloat16"),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """A Transformer's shape and variants.

    layers: number of blocks
    heads: query heads
    kv_heads: key/value heads; 0 means as many as heads
    width: size of the residual stream
    ffn: size of the feed-forward layer; 0 means 4 * width
    vocab: number of tokens
    length: rows of the learned position table, the longest sequence
    token_types: rows of the token-type table; 0 means none
    classes: outputs of a classification head
    pool: first | mean: what stands for a whole text, its first token or the mean of all
    dropout: rate on embeddings, attention weights and sublayer outputs
    norm: layer | rms
    norm_eps: added to the variance
    order: post | pre: where a block normalizes
    embed_norm: normalize the embeddings
    activation: gelu | gelu_tanh | relu | silu | swiglu | geglu
    position: learned | sinusoidal | rotary | none
    rotary_base: of the wavelengths of rotary positions; more than 10,000 for longer texts
    bias: add biases in attention and feed-forward layers
    tied: the output layer reuses the token table
    init_std: standard deviation of the truncated normal that weights start from
    vocab_multiple: the token table is padded to a multiple of this
    scan: one compiled block for all layers instead of one each
    remat: none | block: recompute blocks in the backward pass
    dtype: float32 | bfloat16: what matrix products are computed in
    """

    layers: int = 2
    heads: int = 2
    kv_heads: int = 0
    width: int = 128
    ffn: int = 0
    vocab: int = 30522
    length: int = 512
    token_types: int = 2
    classes: int = 2
    pool: str = "first"
    dropout: float = 0.1
    norm: str = "layer"
    norm_eps: float = 1e-12
    order: str = "post"
    embed_norm: bool = True
    activation: str = "gelu"
    position: str = "learned"
    rotary_base: float = 10_000.0
    bias: bool = True
    tied: bool = True
    init_std: float = 0.02
    vocab_multiple: int = 128
    scan: bool = True
    remat: str = "none"
    dtype: str = "float32"

    def __post_init__(self):
        may_be_zero = ("kv_heads", "ffn", "token_types")
        for name in ("layers", "heads", "width", "vocab", "length", "classes", "vocab_multiple", *may_be_zero):
            least = 0 if name in may_be_zero else 1
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)} must be at least {least}")
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name}={getattr(self, name)} is unknown{suggest(getattr(self, name), known)}")
        if self.width % self.heads:
            raise ValueError(f"heads={self.heads} must divide width={self.width}; try heads={nearest_divisor(self.heads, self.width)}")
        if self.kv_heads and self.heads % self.kv_heads:
            nearest = nearest_divisor(self.kv_heads, self.heads)
            raise ValueError(f"kv_heads={self.kv_heads} must divide heads={self.heads}; try kv_heads={nearest}")
        if self.position == "rotary" and self.width // self.heads % 2:
            raise ValueError(f"position=rotary needs an even head size, and width / heads is {self.width // self.heads}; try other heads")
        if self.rotary_base <= 1:
            raise ValueError(f"rotary_base={self.rotary_base} must be more than 1; 10,000 is usual")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout} must be at least 0 and less than 1")

    @property
    def padded_vocab(self) -> int:
        """Rows of the stored token table: `vocab` rounded up to a multiple, for sharding and speed."""
        return -(-self.vocab // self.vocab_multiple) * self.vocab_multiple

    @property
    def sizes(self) -> dict[str, int]:
        """The size behind each letter of the parameter axes (`tfm.AXES`)."""
        return dict(
            D=self.width,
            E=self.width,
            K=self.kv_heads or self.heads,
            G=self.heads // (self.kv_heads or self.heads),
            H=self.width // self.heads,
            F=self.ffn or 4 * self.width,
            V=self.padded_vocab,
            P=self.length,
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

"""MPT (MosaicML 2023): ALiBi, no biases."""

from typing import TypedDict

from tfm.config.inputs import Tokens
from tfm.config.model import Config
from tfm.config.residuals import PreNorm
from tfm.hf.families.decoders.bare import bare, in_both
from tfm.hf.families.decoders.bloom import ALIBI, canonicalize
from tfm.hf.family import Family, HfField, HfHead, Reading
from tfm.hf.fields import CODE, TRAINING, UNREAD, Fields, because
from tfm.hf.parameters import HfTensor
from tfm.options.json_text import Json

LAYER = "transformer.blocks.{}"


class AttnConfig(TypedDict, total=False):
    """What `attn_config` says of attention."""

    attn_type: str
    attn_pdrop: float
    clip_qkv: float | None
    softmax_scale: float | None
    prefix_lm: bool
    qk_ln: bool
    alibi: bool
    alibi_bias_max: int


# What attention is here; a folder may leave it out.
ATTENTION = {
    "attn_type": "multihead_attention",
    "clip_qkv": None,
    "softmax_scale": None,
    "prefix_lm": False,
    "qk_ln": False,
    "alibi": True,
    "alibi_bias_max": 8,
}


def joined(part: int) -> HfTensor:
    """Queries, keys or values; the kernel holds all three."""
    return HfTensor(f"{LAYER}.attn.Wqkv", part=part, parts=3)


def read(fields: Fields) -> Reading:
    """The dropout of attention. Raises ValueError for other attention than `ATTENTION`."""
    attention = fields.get("attn_config") or {}
    for name, value in ATTENTION.items():
        if attention.get(name, value) != value:
            raise ValueError(
                f"config.json has attn_config.{name}={attention[name]!r}; of mpt, only {value!r} is supported"
            )
    return {"attn_dropout": attention.get("attn_pdrop", 0.0)}, {"attn_config"}


def write(config: Config) -> dict[str, Json]:
    """See `read`. Transformers declares the rate as an integer."""
    return {"attn_config": {**ATTENTION, "attn_pdrop": config.attn_rate or 0}}


MPT = Family(
    name="mpt",
    prefix="transformer.",
    base=Config(
        input=Tokens(token_types=None, norm=False),
        position=ALIBI,
        residual=PreNorm(),
        norm="layer_no_bias",
        bias=False,
    ),
    fields={
        "vocab_size": HfField("vocab", 50368),
        "d_model": HfField("width", 2048),
        "n_layers": HfField("layers", 24),
        "n_heads": HfField("heads", 16),
        "max_seq_len": HfField("length", 2048),
        "resid_pdrop": HfField("dropout", 0.0),
        "layer_norm_epsilon": HfField("norm_eps", 1e-5),
        "tie_word_embeddings": HfField("tie_embeddings", True),
    },
    allowed={"expansion_ratio": (4,), "no_bias": (True,), "logit_scale": (None,)},
    aliases={"num_attention_heads": "n_heads", "hidden_size": "d_model", "num_hidden_layers": "n_layers"},
    must_equal={"emb_pdrop": "resid_pdrop"},
    ignored=because(UNREAD, "learned_pos_emb embedding_fraction norm_type")
    | because(TRAINING, "init_config")
    | because(CODE, "init_device verbose"),
    types={"attn_config": AttnConfig | None},
    read=read,
    write=write,
    canonicalize=canonicalize,
    names=in_both(
        {
            "decoder.embed.tokens": "transformer.wte.weight",
            "decoder.layers.mixer.query": joined(0),
            "decoder.layers.mixer.key": joined(1),
            "decoder.layers.mixer.value": joined(2),
            "decoder.layers.mixer.output": f"{LAYER}.attn.out_proj",
            "decoder.layers.residual.mixer": f"{LAYER}.norm_1",
            "decoder.layers.feed_forward.up": f"{LAYER}.ffn.up_proj",
            "decoder.layers.feed_forward.down": f"{LAYER}.ffn.down_proj",
            "decoder.layers.residual.feed_forward": f"{LAYER}.norm_2",
            "decoder.norm": "transformer.norm_f",
            "table": "lm_head.weight",
        }
    ),
    heads={"MptForCausalLM": HfHead("lm")} | bare("MptModel"),
    unused=r"^lm_head\.weight$",
    copies={"transformer.wte.weight": ("lm_head.weight",)},
)

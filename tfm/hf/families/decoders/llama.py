"""Llama (Touvron et al. 2023), Mistral (Jiang et al. 2023) and Qwen3 (Yang et al. 2025)."""

import dataclasses
from collections.abc import Callable

from tfm.catalogue.options.patterns import Sliding
from tfm.config.inputs import Tokens
from tfm.config.mixers import Softmax
from tfm.config.model import Config
from tfm.config.positions import Rotary
from tfm.config.residuals import PreNorm
from tfm.hf.families.rope import read_rotary, rope_parameters
from tfm.hf.family import Family, HfField, HfHead, Reading
from tfm.hf.fields import GATED, Fields
from tfm.options.json_text import Json

LAYER = "model.layers.{}"
FIELDS = {
    "vocab_size": HfField("vocab", 32000),
    "hidden_size": HfField("width", 4096),
    "intermediate_size": HfField("ffn", 11008),
    "num_hidden_layers": HfField("layers", 32),
    "num_attention_heads": HfField("heads", 32),
    "hidden_act": HfField("activation", "silu", GATED),
    "max_position_embeddings": HfField("length", 2048),
    "rms_norm_eps": HfField("norm_eps", 1e-6),
    "attention_dropout": HfField("attn_dropout", 0.0),
    "tie_word_embeddings": HfField("tie_embeddings", False),
}
BASE = Config(
    input=Tokens(token_types=None, norm=False),
    position=Rotary(),
    residual=PreNorm(),
    norm="rms",
    bias=False,
    dropout=0.0,
)
NAMES = {
    "decoder.embed.tokens": "model.embed_tokens.weight",
    "decoder.layers.mixer.query": f"{LAYER}.self_attn.q_proj",
    "decoder.layers.mixer.key": f"{LAYER}.self_attn.k_proj",
    "decoder.layers.mixer.value": f"{LAYER}.self_attn.v_proj",
    "decoder.layers.mixer.output": f"{LAYER}.self_attn.o_proj",
    "decoder.layers.residual.mixer": f"{LAYER}.input_layernorm",
    "decoder.layers.feed_forward.gate": f"{LAYER}.mlp.gate_proj",
    "decoder.layers.feed_forward.up": f"{LAYER}.mlp.up_proj",
    "decoder.layers.feed_forward.down": f"{LAYER}.mlp.down_proj",
    "decoder.layers.residual.feed_forward": f"{LAYER}.post_attention_layernorm",
    "decoder.norm": "model.norm",
    "table": "lm_head.weight",
}


def reader(kv_heads: int | None = None, head_size: int | None = None) -> Callable[[Fields], Reading]:
    """`Family.read` of a family with these defaults for the key/value heads and the size of a head.

    None stands for as many key/value heads as heads, and for width / heads.
    """

    def read(fields: Fields) -> Reading:
        values, used = read_rotary(fields)
        heads, width = fields.get("num_attention_heads", 32), fields.get("hidden_size", 4096)
        hf_kv_heads = fields.get("num_key_value_heads", kv_heads) or heads
        hf_head_size = fields.get("head_dim", head_size) or width // heads
        values["kv_heads"] = hf_kv_heads if hf_kv_heads != heads else None
        values["head_size"] = hf_head_size if hf_head_size * heads != width else None
        return values, used | {"num_key_value_heads", "head_dim"}

    return read


def write(config: Config) -> dict[str, Json]:
    """See `reader`."""
    position = config.position
    assert isinstance(position, Rotary)
    return {
        "num_key_value_heads": config.sizes["K"],
        "head_dim": config.sizes["H"],
        "rope_theta": position.base,
        "rope_parameters": rope_parameters(position, config.sizes["H"]),
    }


def read_mistral(fields: Fields) -> Reading:
    """As the `reader` of Llama, with a sliding window or none."""
    values, used = reader(kv_heads=8)(fields)
    window = fields.get("sliding_window", 4096)
    if window:
        values |= {"mixer.pattern": "sliding", "mixer.pattern.window": window}
    return values, used | {"sliding_window", "layer_types"}


def write_mistral(config: Config) -> dict[str, Json]:
    """See `read_mistral`."""
    assert isinstance(config.mixer, Softmax)
    pattern = config.mixer.pattern
    return write(config) | {"sliding_window": pattern.window if isinstance(pattern, Sliding) else None}


LLAMA = Family(
    name="llama",
    prefix="model.",
    base=BASE,
    fields=FIELDS,
    allowed={"attention_bias": (False,), "mlp_bias": (False,)},
    ignored=frozenset({"pretraining_tp"}),
    read=reader(),
    write=write,
    names=NAMES,
    heads={"LlamaForCausalLM": HfHead("lm")},
    unused=r"rotary_emb\.inv_freq$|^lm_head\.weight$",
)

MISTRAL = Family(
    name="mistral",
    prefix="model.",
    base=BASE,
    fields=FIELDS | {"intermediate_size": HfField("ffn", 14336), "max_position_embeddings": HfField("length", 131072)},
    read=read_mistral,
    write=write_mistral,
    names=NAMES,
    heads={"MistralForCausalLM": HfHead("lm")},
    unused=r"rotary_emb\.inv_freq$|^lm_head\.weight$",
)

QWEN3 = Family(
    name="qwen3",
    prefix="model.",
    base=dataclasses.replace(BASE, mixer=Softmax(qk_norm=True)),
    fields=FIELDS
    | {
        "vocab_size": HfField("vocab", 151936),
        "intermediate_size": HfField("ffn", 22016),
        "max_position_embeddings": HfField("length", 32768),
    },
    allowed={"attention_bias": (False,), "use_sliding_window": (False,)},
    ignored=frozenset(("sliding_window", "max_window_layers", "layer_types")),
    read=reader(32, 128),
    write=write,
    names=NAMES
    | {
        "decoder.layers.mixer.query_norm": f"{LAYER}.self_attn.q_norm",
        "decoder.layers.mixer.key_norm": f"{LAYER}.self_attn.k_norm",
    },
    heads={"Qwen3ForCausalLM": HfHead("lm")},
    unused=r"^lm_head\.weight$",
)

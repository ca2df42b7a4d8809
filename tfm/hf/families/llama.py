"""Llama (Touvron et al. 2023), Mistral (Jiang et al. 2023) and Qwen3 (Yang et al. 2025): one decoder with small differences."""

from collections.abc import Callable, Mapping
from typing import Any

from tfm.config.model import Config
from tfm.hf.config import GATED, Family, Field, Head

LAYER = "model.layers.{}"
FIELDS = {
    "vocab_size": Field("vocab", 32000),
    "hidden_size": Field("width", 4096),
    "intermediate_size": Field("ffn", 11008),
    "num_hidden_layers": Field("layers", 32),
    "num_attention_heads": Field("heads", 32),
    "hidden_act": Field("activation", "silu", GATED),
    "max_position_embeddings": Field("length", 2048),
    "rms_norm_eps": Field("norm_eps", 1e-6),
    "attention_dropout": Field("attn_dropout", 0.0),
    "tie_word_embeddings": Field("tied", False),
}
OURS = {
    "position": "rotary",
    "order": "pre",
    "norm": "rms",
    "embed_norm": False,
    "token_types": 0,
    "bias": False,
    "dropout": 0.0,
}
NAMES = {
    "decoder.embed.tokens": "model.embed_tokens.weight",
    "decoder.blocks.attn.query": f"{LAYER}.self_attn.q_proj",
    "decoder.blocks.attn.key": f"{LAYER}.self_attn.k_proj",
    "decoder.blocks.attn.value": f"{LAYER}.self_attn.v_proj",
    "decoder.blocks.attn.output": f"{LAYER}.self_attn.o_proj",
    "decoder.blocks.attn_norm": f"{LAYER}.input_layernorm",
    "decoder.blocks.ffn.gate": f"{LAYER}.mlp.gate_proj",
    "decoder.blocks.ffn.up": f"{LAYER}.mlp.up_proj",
    "decoder.blocks.ffn.down": f"{LAYER}.mlp.down_proj",
    "decoder.blocks.ffn_norm": f"{LAYER}.post_attention_layernorm",
    "decoder.norm": "model.norm",
    "table": "lm_head.weight",
}


def rope(fields: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """The base of rotary positions, the share of a head that is turned, and which wavelengths are stretched. Raises ValueError for other
    kinds of them."""
    given = {**(fields.get("rope_scaling") or {}), **(fields.get("rope_parameters") or {})}
    kind = given.get("rope_type", given.get("type", "default"))
    if kind not in ("default", "linear", "llama3"):
        raise ValueError(
            f"config.json has rotary positions of type {kind}; only default, linear and llama3 ones are supported"
        )
    base = fields.get("rope_theta", fields.get("rotary_emb_base", given.get("rope_theta", 10_000.0)))
    share = fields.get("partial_rotary_factor", fields.get("rotary_pct", given.get("partial_rotary_factor", 1.0)))
    known = {"rope_scaling", "rope_parameters", "rope_theta", "rotary_emb_base", "partial_rotary_factor", "rotary_pct"}
    found = {"rotary_base": float(base), "rotary_share": share}
    if kind != "default":
        found["rotary_stretch"] = float(given["factor"])
    if kind == "llama3":
        length = given["original_max_position_embeddings"]
        found |= {"rotary_long": length / given["low_freq_factor"], "rotary_short": length / given["high_freq_factor"]}
    return found, known


def rope_fields(config: Config) -> dict[str, Any]:
    """See `rope`."""
    given: dict[str, Any] = {"rope_type": "default", "rope_theta": config.rotary_base}
    if config.rotary_stretch > 1:
        given |= {"rope_type": "linear", "factor": config.rotary_stretch}
    if config.rotary_stretch > 1 and config.rotary_long:
        given |= {"rope_type": "llama3", "original_max_position_embeddings": round(config.rotary_long)}
        given |= {"low_freq_factor": 1.0, "high_freq_factor": config.rotary_long / config.rotary_short}
    return given


def reader(kv_heads: int, size: int = 0) -> Callable[[Mapping[str, Any]], tuple[dict[str, Any], set[str]]]:
    """What takes more than one field; the default numbers of key/value heads and of a head's size are a family's own."""

    def read(fields):
        found, known = rope(fields)
        heads, width = fields.get("num_attention_heads", 32), fields.get("hidden_size", 4096)
        head_size = fields.get("head_dim", size) or width // heads
        found["kv_heads"] = (fields.get("num_key_value_heads", kv_heads) or heads) % heads
        found["head_size"] = head_size if head_size * heads != width else 0
        return found, known | {"num_key_value_heads", "head_dim"}

    return read


def write(config: Config) -> dict[str, Any]:
    """See `reader`."""
    return {
        "num_key_value_heads": config.sizes["K"],
        "head_dim": config.sizes["H"],
        "rope_theta": config.rotary_base,
        "rope_parameters": rope_fields(config),
    }


def windowed(fields: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """Mistral's: a window, or none."""
    found, known = reader(8)(fields)
    return found | {"window": fields.get("sliding_window", 4096) or 0}, known | {"sliding_window", "layer_types"}


LLAMA = Family(
    name="llama",
    prefix="model.",
    fields=FIELDS,
    ours=OURS,
    only={"attention_bias": (False,), "mlp_bias": (False,)},
    free=frozenset(("pretraining_tp",)),
    read=reader(0),
    write=write,
    names=NAMES,
    heads={"LlamaForCausalLM": Head("lm")},
    unused=r"rotary_emb\.inv_freq$|^lm_head\.weight$",
)

MISTRAL = Family(
    name="mistral",
    prefix="model.",
    fields=FIELDS | {"intermediate_size": Field("ffn", 14336), "max_position_embeddings": Field("length", 131072)},
    ours=OURS,
    read=windowed,
    write=lambda config: write(config) | {"sliding_window": config.window or None},
    names=NAMES,
    heads={"MistralForCausalLM": Head("lm")},
    unused=r"rotary_emb\.inv_freq$|^lm_head\.weight$",
)

QWEN3 = Family(
    name="qwen3",
    prefix="model.",
    fields=FIELDS
    | {
        "vocab_size": Field("vocab", 151936),
        "intermediate_size": Field("ffn", 22016),
        "max_position_embeddings": Field("length", 32768),
    },
    ours=OURS | {"qk_norm": True},
    only={"attention_bias": (False,), "use_sliding_window": (False,)},
    free=frozenset(("sliding_window", "max_window_layers", "layer_types")),
    read=reader(32, 128),
    write=write,
    names=NAMES
    | {
        "decoder.blocks.attn.query_norm": f"{LAYER}.self_attn.q_norm",
        "decoder.blocks.attn.key_norm": f"{LAYER}.self_attn.k_norm",
    },
    heads={"Qwen3ForCausalLM": Head("lm")},
    unused=r"^lm_head\.weight$",
)

"""GPT-NeoX and Pythia (Black et al. 2022): rotary positions for a part of each head, attention and feed-forward side by side."""

from collections.abc import Mapping
from typing import Any

from tfm.config.model import Config
from tfm.hf.config import ACTIVATIONS, Family, Field, Head
from tfm.hf.families.llama import rope, rope_fields
from tfm.hf.names import Theirs

LAYER = "gpt_neox.layers.{}"


def joined(part: int) -> Theirs:
    """Queries, keys or values out of the kernel that holds all three, head by head."""
    return Theirs(f"{LAYER}.attention.query_key_value", part=part, parts=3, by_head=True)


def read(fields: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """A quarter of each head is turned where nothing else is said."""
    found, known = rope({"rotary_pct": 0.25} | dict(fields) if not fields.get("rope_parameters") else fields)
    return found, known


def write(config: Config) -> dict[str, Any]:
    """See `read`."""
    names = {"rope_theta": config.rotary_base, "partial_rotary_factor": config.rotary_share}
    return {
        "rotary_emb_base": config.rotary_base,
        "rotary_pct": config.rotary_share,
        "rope_parameters": rope_fields(config) | names,
    }


GPT_NEOX = Family(
    name="gpt_neox",
    prefix="gpt_neox.",
    fields={
        "vocab_size": Field("vocab", 50432),
        "hidden_size": Field("width", 6144),
        "num_hidden_layers": Field("layers", 44),
        "num_attention_heads": Field("heads", 64),
        "intermediate_size": Field("ffn", 24576),
        "hidden_act": Field("activation", "gelu", ACTIVATIONS),
        "hidden_dropout": Field("dropout", 0.0),
        "attention_dropout": Field("attn_dropout", 0.0),
        "max_position_embeddings": Field("length", 2048),
        "layer_norm_eps": Field("norm_eps", 1e-5),
        "use_parallel_residual": Field("order", True, {True: "parallel", False: "pre"}),
        "tie_word_embeddings": Field("tied", False),
    },
    ours={"position": "rotary", "embed_norm": False, "token_types": 0},
    only={"attention_bias": (True,), "is_decoder": (False, True)},
    read=read,
    write=write,
    names={
        "decoder.embed.tokens": "gpt_neox.embed_in.weight",
        "decoder.blocks.attn.query": joined(0),
        "decoder.blocks.attn.key": joined(1),
        "decoder.blocks.attn.value": joined(2),
        "decoder.blocks.attn.output": f"{LAYER}.attention.dense",
        "decoder.blocks.attn_norm": f"{LAYER}.input_layernorm",
        "decoder.blocks.ffn.up": f"{LAYER}.mlp.dense_h_to_4h",
        "decoder.blocks.ffn.down": f"{LAYER}.mlp.dense_4h_to_h",
        "decoder.blocks.ffn_norm": f"{LAYER}.post_attention_layernorm",
        "decoder.norm": "gpt_neox.final_layer_norm",
        "table": Theirs("embed_out.weight", other="lm_head.weight"),
    },
    heads={"GPTNeoXForCausalLM": Head("lm")},
    unused=r"attention\.(masked_)?bias$|rotary_emb\.inv_freq$",
)

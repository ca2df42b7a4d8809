"""GPT-2 (Radford et al. 2019)."""

from collections.abc import Mapping
from typing import Any

from tfm.config.model import Config
from tfm.hf.config import ACTIVATIONS, Family, Field, Head
from tfm.hf.names import Theirs

LAYER = "transformer.h.{}"


def joined(part: int) -> Theirs:
    """Queries, keys or values out of the kernel [in, out] that holds all three."""
    return Theirs(f"{LAYER}.attn.c_attn", part=part, parts=3, turned=False)


def read(fields: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """The feed-forward layer's size has a default of its own."""
    return {"ffn": fields.get("n_inner") or 4 * fields.get("n_embd", 768)}, {"n_inner"}


def write(config: Config) -> dict[str, Any]:
    """See `read`."""
    return {"n_inner": config.sizes["F"]}


GPT2 = Family(
    name="gpt2",
    prefix="transformer.",
    fields={
        "vocab_size": Field("vocab", 50257),
        "n_embd": Field("width", 768),
        "n_layer": Field("layers", 12),
        "n_head": Field("heads", 12),
        "n_positions": Field("length", 1024),
        "activation_function": Field("activation", "gelu_new", ACTIVATIONS),
        "resid_pdrop": Field("dropout", 0.1),
        "attn_pdrop": Field("attn_dropout", 0.1),
        "layer_norm_epsilon": Field("norm_eps", 1e-5),
        "tie_word_embeddings": Field("tied", True),
    },
    ours={"order": "pre", "embed_norm": False, "token_types": 0},
    only={"scale_attn_weights": (True,), "scale_attn_by_inverse_layer_idx": (False,), "add_cross_attention": (False,)},
    same={"embd_pdrop": "resid_pdrop", "n_ctx": "n_positions"},
    free=frozenset(
        """reorder_and_upcast_attn summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout
        gradient_checkpointing""".split()
    ),
    read=read,
    write=write,
    names={
        "decoder.embed.tokens": "transformer.wte.weight",
        "decoder.embed.positions": "transformer.wpe.weight",
        "decoder.blocks.attn.query": joined(0),
        "decoder.blocks.attn.key": joined(1),
        "decoder.blocks.attn.value": joined(2),
        "decoder.blocks.attn.output": Theirs(f"{LAYER}.attn.c_proj", turned=False),
        "decoder.blocks.attn_norm": f"{LAYER}.ln_1",
        "decoder.blocks.ffn.up": Theirs(f"{LAYER}.mlp.c_fc", turned=False),
        "decoder.blocks.ffn.down": Theirs(f"{LAYER}.mlp.c_proj", turned=False),
        "decoder.blocks.ffn_norm": f"{LAYER}.ln_2",
        "decoder.norm": "transformer.ln_f",
        "table": "lm_head.weight",
    },
    heads={"GPT2LMHeadModel": Head("lm")},
    unused=r"\.attn\.(masked_)?bias$|^lm_head\.weight$",
)

"""T5 (Raffel et al. 2020), and T5 1.1: buckets of distances instead of positions.

Scores are not divided by the root of the head size there: our queries are larger by it.
"""

from collections.abc import Mapping
from typing import Any

from tfm.config.model import Config
from tfm.hf.config import Family, Field, Head
from tfm.hf.names import Theirs

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "silu": "silu",
    "gated-gelu": "geglu_tanh",
    "gated-silu": "swiglu",
}


def read(fields: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """The sizes of heads and of the two stacks, and whether states are divided before the output: where it is tied, unless told."""
    layers, width, heads = fields.get("num_layers", 6), fields.get("d_model", 512), fields.get("num_heads", 8)
    size, others = fields.get("d_kv", 64), fields.get("num_decoder_layers") or layers
    found = {
        "layers": others,
        "encoder_layers": layers if layers != others else 0,
        "head_size": size if size * heads != width else 0,
        "output_scale": fields.get("tie_word_embeddings", True) and fields.get("scale_decoder_outputs", True),
    }
    return found, {"num_layers", "num_decoder_layers", "d_kv", "scale_decoder_outputs"}


def write(config: Config) -> dict[str, Any]:
    """See `read`."""
    return {
        "num_layers": config.encoder_layers or config.layers,
        "num_decoder_layers": config.layers,
        "d_kv": config.sizes["H"],
        "scale_decoder_outputs": config.output_scale,
        "is_encoder_decoder": True,
        "decoder_start_token_id": 0,
        "pad_token_id": 0,
        "eos_token_id": 1,
    }


def names(config: Config) -> dict[str, str | Theirs]:
    """The tensors of both stacks."""
    gated = config.activation in ("geglu_tanh", "swiglu")
    found: dict[str, str | Theirs] = {"encoder.embed.tokens": "shared.weight"}
    for side, sublayers in {"encoder": ("attn", "ffn"), "decoder": ("attn", "cross", "ffn")}.items():
        block = f"{side}.block.{{}}.layer"
        found[f"{side}.embed.positions"] = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        for number, part in enumerate(sublayers):
            ours, theirs = f"{side}.blocks.{part}", f"{block}.{number}"
            found[f"{ours}_norm"] = f"{theirs}.layer_norm"
            if part == "ffn":
                found[f"{ours}.up"] = f"{theirs}.DenseReluDense.{'wi_1' if gated else 'wi'}"
                found[f"{ours}.gate"] = f"{theirs}.DenseReluDense.wi_0"
                found[f"{ours}.down"] = f"{theirs}.DenseReluDense.wo"
                continue
            kind = "SelfAttention" if part == "attn" else "EncDecAttention"
            found[f"{ours}.query"] = Theirs(f"{theirs}.{kind}.q", factor=config.sizes["H"] ** 0.5)
            found |= {
                f"{ours}.{one}": f"{theirs}.{kind}.{other}"
                for one, other in (("key", "k"), ("value", "v"), ("output", "o"))
            }
    return found | {
        "encoder.norm": "encoder.final_layer_norm",
        "decoder.norm": "decoder.final_layer_norm",
        "table": "lm_head.weight",
    }


T5 = Family(
    name="t5",
    prefix="",
    fields={
        "vocab_size": Field("vocab", 32128),
        "d_model": Field("width", 512),
        "num_heads": Field("heads", 8),
        "d_ff": Field("ffn", 2048),
        "feed_forward_proj": Field("activation", "relu", ACTIVATIONS),
        "relative_attention_num_buckets": Field("buckets", 32),
        "relative_attention_max_distance": Field("bucket_distance", 128),
        "dropout_rate": Field("dropout", 0.1),
        "layer_norm_epsilon": Field("norm_eps", 1e-6),
        "tie_word_embeddings": Field("tied", True),
    },
    ours={"position": "buckets", "order": "pre", "norm": "rms", "embed_norm": False, "token_types": 0, "bias": False},
    only={"is_decoder": (False,)},
    free=frozenset(("dense_act_fn", "is_gated_act", "n_positions")),
    read=read,
    write=write,
    names=names,
    heads={"T5ForConditionalGeneration": Head("seq2seq"), "T5WithLMHeadModel": Head("seq2seq")},
    unused=r"embed_tokens\.weight$|^lm_head\.weight$|EncDecAttention\.relative_attention_bias",
)

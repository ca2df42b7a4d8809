"""BART (Lewis et al. 2020), Marian (Junczys-Dowmunt et al. 2018) and Pegasus (Zhang et al. 2020): one pair of stacks."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tfm.config.model import Config
from tfm.hf.config import ACTIVATIONS, Family, Field, Head
from tfm.hf.names import Theirs
from tfm.models import seq2seq

FIELDS = {
    "vocab_size": Field("vocab", 50265),
    "d_model": Field("width", 1024),
    "decoder_attention_heads": Field("heads", 16),
    "decoder_ffn_dim": Field("ffn", 4096),
    "activation_function": Field("activation", "gelu", ACTIVATIONS),
    "dropout": Field("dropout", 0.1),
    "attention_dropout": Field("attn_dropout", 0.0),
    "max_position_embeddings": Field("length", 1024),
    "scale_embedding": Field("embed_scale", False),
    "tie_word_embeddings": Field("tied", True),
}
SAME = {"encoder_attention_heads": "decoder_attention_heads", "encoder_ffn_dim": "decoder_ffn_dim"}
OURS = {"token_types": 0, "norm_eps": 1e-5, "output_bias": True}
FREE = frozenset(
    """encoder_layerdrop decoder_layerdrop activation_dropout num_hidden_layers classifier_dropout decoder_vocab_size
    share_encoder_decoder_embeddings""".split()
)
UNUSED = (
    r"embed_tokens\.weight$|^lm_head\.weight$|^model\.(en|de)coder\.embed_positions\.weight$|^model\.shared\.weight$"
)


def read(fields: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """The sizes of the two stacks."""
    layers, others = fields.get("encoder_layers", 12), fields.get("decoder_layers", 12)
    return {"layers": others, "encoder_layers": layers if layers != others else 0}, {"encoder_layers", "decoder_layers"}


def write(config: Config) -> dict[str, Any]:
    """See `read`."""
    layers = config.encoder_layers or config.layers
    return {
        "encoder_layers": layers,
        "num_hidden_layers": layers,
        "decoder_layers": config.layers,
        "is_encoder_decoder": True,
    }


def names() -> dict[str, str | Theirs]:
    """The tensors of both stacks; which of the norms there are depends on the family."""
    found: dict[str, str | Theirs] = {"encoder.embed.tokens": "model.shared.weight"}
    for side, attentions in {
        "encoder": {"attn": "self_attn"},
        "decoder": {"attn": "self_attn", "cross": "encoder_attn"},
    }.items():
        layer = f"model.{side}.layers.{{}}"
        for ours, theirs in attentions.items():
            projections = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
            found |= {f"{side}.blocks.{ours}.{one}": f"{layer}.{theirs}.{other}" for one, other in projections.items()}
            found[f"{side}.blocks.{ours}_norm"] = f"{layer}.{theirs}_layer_norm"
        found |= {
            f"{side}.embed.positions": Theirs(f"model.{side}.embed_positions.weight", skip=2),
            f"{side}.embed.norm": f"model.{side}.layernorm_embedding",
            f"{side}.blocks.ffn.up": f"{layer}.fc1",
            f"{side}.blocks.ffn.down": f"{layer}.fc2",
            f"{side}.blocks.ffn_norm": f"{layer}.final_layer_norm",
            f"{side}.norm": f"model.{side}.layer_norm",
        }
    return found | {"table": "lm_head.weight", "bias": Theirs("final_logits_bias", row=True)}


def adapt(config: Config, params: Any) -> tuple[Config, Any]:
    """Two differences that change nothing: a missing bias of the output is zeros, and the columns of states may stand in any order, so that
    sines and cosines may alternate or not."""
    if not isinstance(params, seq2seq.Seq2Seq) or config.source_vocab:
        return config, params
    if config.position == "sinusoidal" and not config.embed_width:
        order = np.concatenate([np.arange(0, config.width, 2), np.arange(1, config.width, 2)])

        def ordered(spec, array):
            for axis, letter in enumerate(spec.axes):
                array = jnp.take(array, order, axis, mode="clip") if letter in "DU" else array
            return array

        params = jax.tree.map(ordered, seq2seq.seq2seq_specs(config), params)
        config = dataclasses.replace(config, position="sinusoidal_halves")
    if params.bias is None:
        params = dataclasses.replace(params, bias=jnp.zeros(config.padded_vocab, jnp.float32))
    return dataclasses.replace(config, output_bias=True), params


BART = Family(
    name="bart",
    prefix="",
    fields=FIELDS,
    same=SAME,
    ours=OURS,
    only={
        "is_decoder": (False,),
        "add_final_layer_norm": (False,),
        "normalize_before": (False,),
        "normalize_embedding": (True,),
    },
    free=FREE,
    read=read,
    write=write,
    adapt=adapt,
    names=names(),
    heads={"BartForConditionalGeneration": Head("seq2seq"), "BartModel": Head("seq2seq")},
    unused=UNUSED,
)

MARIAN = Family(
    name="marian",
    prefix="",
    fields=FIELDS | {"vocab_size": Field("vocab", 58101)},
    same=SAME,
    ours=OURS | {"position": "sinusoidal_halves", "embed_norm": False},
    only={
        "share_encoder_decoder_embeddings": (True,),
        "is_decoder": (False,),
        "add_final_layer_norm": (False,),
        "normalize_before": (False,),
        "normalize_embedding": (False,),
    },
    free=FREE,
    read=read,
    write=write,
    adapt=adapt,
    names=names(),
    heads={"MarianMTModel": Head("seq2seq")},
    unused=UNUSED,
)

PEGASUS = Family(
    name="pegasus",
    prefix="",
    fields=FIELDS,
    same=SAME,
    ours=OURS | {"position": "sinusoidal_halves", "embed_norm": False, "order": "pre"},
    only={
        "is_decoder": (False,),
        "add_final_layer_norm": (True,),
        "normalize_before": (True,),
        "normalize_embedding": (False,),
    },
    free=FREE,
    read=read,
    write=write,
    adapt=adapt,
    names=names(),
    heads={"PegasusForConditionalGeneration": Head("seq2seq")},
    unused=UNUSED,
)

"""Bloom (BigScience 2022): ALiBi, and a norm of the embeddings."""

import dataclasses

from tfm.catalogue.options.positions.relative import Alibi
from tfm.config.inputs import Tokens
from tfm.config.model import Config
from tfm.config.residuals import PreNorm
from tfm.hf.families.decoders.bare import bare, in_both
from tfm.hf.family import Family, HfField, HfHead
from tfm.hf.fields import CODE, UNREAD, because
from tfm.hf.parameters import HfTensor
from tfm.params import PyTree

LAYER = "transformer.h.{}"
ALIBI = Alibi(slopes="interleaved")


def joined(part: int) -> HfTensor:
    """Queries, keys or values; the kernel holds all three, head by head."""
    return HfTensor(f"{LAYER}.self_attention.query_key_value", part=part, parts=3, by_head=True)


def canonicalize(config: Config, params: PyTree) -> tuple[Config, PyTree]:
    """A power of two of heads has the same slopes by either rule."""
    is_same = config.heads & (config.heads - 1) == 0 and config.position == Alibi()
    return (dataclasses.replace(config, position=ALIBI) if is_same else config), params


BLOOM = Family(
    name="bloom",
    prefix="transformer.",
    base=Config(input=Tokens(token_types=None), position=ALIBI, residual=PreNorm(), activation="gelu_tanh"),
    fields={
        "vocab_size": HfField("vocab", 250880),
        "hidden_size": HfField("width", 64),
        "n_layer": HfField("layers", 2),
        "n_head": HfField("heads", 8),
        "hidden_dropout": HfField("dropout", 0.0),
        "attention_dropout": HfField("attn_dropout", 0.0),
        "layer_norm_epsilon": HfField("norm_eps", 1e-5),
        "tie_word_embeddings": HfField("tie_embeddings", True),
    },
    allowed={"apply_residual_connection_post_layernorm": (False,), "n_inner": (None,)},
    aliases={"num_attention_heads": "n_head", "num_hidden_layers": "n_layer", "n_embed": "hidden_size"},
    ignored=because(CODE, "pretraining_tp slow_but_exact")
    | because(
        UNREAD,
        """seq_length offset_alibi skip_bias_add skip_bias_add_qkv unk_token_id attention_softmax_in_fp32
        bias_dropout_fusion masked_softmax_fusion""",
    ),
    canonicalize=canonicalize,
    names=in_both(
        {
            "decoder.embed.tokens": "transformer.word_embeddings.weight",
            "decoder.embed.norm": "transformer.word_embeddings_layernorm",
            "decoder.layers.mixer.query": joined(0),
            "decoder.layers.mixer.key": joined(1),
            "decoder.layers.mixer.value": joined(2),
            "decoder.layers.mixer.output": f"{LAYER}.self_attention.dense",
            "decoder.layers.residual.mixer": f"{LAYER}.input_layernorm",
            "decoder.layers.feed_forward.up": f"{LAYER}.mlp.dense_h_to_4h",
            "decoder.layers.feed_forward.down": f"{LAYER}.mlp.dense_4h_to_h",
            "decoder.layers.residual.feed_forward": f"{LAYER}.post_attention_layernorm",
            "decoder.norm": "transformer.ln_f",
            "table": "lm_head.weight",
        }
    ),
    heads={"BloomForCausalLM": HfHead("lm")} | bare("BloomModel"),
    unused=r"^lm_head\.weight$",
    copies={"transformer.word_embeddings.weight": ("lm_head.weight",)},
)

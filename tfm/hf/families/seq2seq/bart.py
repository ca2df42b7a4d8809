"""BART (Lewis et al. 2020), Marian (Junczys-Dowmunt et al. 2018) and Pegasus (Zhang et al. 2020)."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from tfm.config.heads import Head
from tfm.config.inputs import Tokens
from tfm.config.model import Config
from tfm.config.positions import Sinusoidal
from tfm.config.residuals import PreNorm
from tfm.hf.family import Family, HfField, HfHead, Reading, with_output_bias
from tfm.hf.fields import ACTIVATIONS, TRAINING, UNREAD, Fields, because
from tfm.hf.parameters import HfTensor
from tfm.models import seq2seq
from tfm.options.json_text import Json
from tfm.params import PyTree, Spec

FIELDS = {
    "vocab_size": HfField("vocab", 50265),
    "d_model": HfField("width", 1024),
    "decoder_attention_heads": HfField("heads", 16),
    "decoder_ffn_dim": HfField("ffn", 4096),
    "activation_function": HfField("activation", "gelu", ACTIVATIONS),
    "dropout": HfField("dropout", 0.1),
    "attention_dropout": HfField("attn_dropout", 0.0),
    "activation_dropout": HfField("ffn_dropout", 0.0),
    "max_position_embeddings": HfField("length", 1024),
    "scale_embedding": HfField("input.scale", False),
    "tie_word_embeddings": HfField("tie_embeddings", True),
}
MUST_EQUAL = {"encoder_attention_heads": "decoder_attention_heads", "encoder_ffn_dim": "decoder_ffn_dim"}
DEFAULTS = {"encoder_attention_heads": 16, "encoder_ffn_dim": 4096}
ALIASES = {
    "hidden_size": "d_model",
    "num_attention_heads": "encoder_attention_heads",
    "num_hidden_layers": "encoder_layers",
}
BASE = Config(input=Tokens(token_types=None), norm_eps=1e-5, head=Head(output_bias=True))
WITHOUT_NORM = Tokens(token_types=None, norm=False)
IGNORED = because(TRAINING, "encoder_layerdrop decoder_layerdrop classifier_dropout") | because(
    UNREAD, "decoder_vocab_size share_encoder_decoder_embeddings"
)
UNUSED = (
    r"embed_tokens\.weight$|^lm_head\.weight$|^model\.(en|de)coder\.embed_positions\.weight$|^model\.shared\.weight$"
)


def copies(model: str) -> dict[str, tuple[str, ...]]:
    """The copies of the table of tokens of a model with this name."""
    tables = f"{model}.encoder.embed_tokens.weight", f"{model}.decoder.embed_tokens.weight"
    return {f"{model}.shared.weight": (*tables, "lm_head.weight")}


def read(fields: Fields) -> Reading:
    """The sizes of the two stacks. Raises ValueError where the encoder names none, and the decoder others than its."""
    for name, reference in MUST_EQUAL.items():
        default = fields.get(name, DEFAULTS[name])
        if fields.get(reference, default) != default:
            raise ValueError(
                f"config.json has no {name}, which is {default} then, and {reference}={fields[reference]}; only equal "
                "ones are supported"
            )
    encoder_layers, layers = fields.get("encoder_layers", 12), fields.get("decoder_layers", 12)
    values = {"layers": layers, "encoder.layers": encoder_layers if encoder_layers != layers else None}
    return values, {"encoder_layers", "decoder_layers"}


def write(config: Config) -> dict[str, Json]:
    """See `read`."""
    encoder_layers = config.encoder.layers or config.layers
    return {
        "encoder_layers": encoder_layers,
        "decoder_layers": config.layers,
        "is_encoder_decoder": True,
    }


def write_marian(config: Config) -> dict[str, Json]:
    """See `write`; the last token fills rows and begins a translation."""
    return write(config) | dict.fromkeys(("pad_token_id", "decoder_start_token_id"), config.vocab - 1)


def names(model: str = "model") -> dict[str, str | HfTensor]:
    """The tensors of both stacks of a model with this name; which of the norms there are depends on the family."""
    tensors: dict[str, str | HfTensor] = {
        "encoder.embed.tokens": f"{model}.shared.weight",
        "table": "lm_head.weight",
        "bias": HfTensor("final_logits_bias", axes="1V"),
    }
    for stack in ("encoder", "decoder"):
        tensors |= {
            **stack_names(model, stack),
            f"{stack}.embed.positions": HfTensor(f"{model}.{stack}.embed_positions.weight", skip_rows=2),
            f"{stack}.embed.norm": f"{model}.{stack}.layernorm_embedding",
        }
    return tensors


def stack_names(model: str, stack: str) -> dict[str, str]:
    """The tensors of the layers of a stack, and of the norm behind them."""
    layer = f"{model}.{stack}.layers.{{}}"
    return {
        **_attention(stack, "mixer", f"{layer}.self_attn"),
        **(_attention(stack, "cross", f"{layer}.encoder_attn") if stack == "decoder" else {}),
        f"{stack}.layers.feed_forward.up": f"{layer}.fc1",
        f"{stack}.layers.feed_forward.down": f"{layer}.fc2",
        f"{stack}.layers.residual.feed_forward": f"{layer}.final_layer_norm",
        f"{stack}.norm": f"{model}.{stack}.layer_norm",
    }


def _attention(stack: str, part: str, hf_path: str) -> dict[str, str]:
    """The tensors of self-attention or cross-attention, and of its norm."""
    return {
        f"{stack}.layers.{part}.query": f"{hf_path}.q_proj",
        f"{stack}.layers.{part}.key": f"{hf_path}.k_proj",
        f"{stack}.layers.{part}.value": f"{hf_path}.v_proj",
        f"{stack}.layers.{part}.output": f"{hf_path}.out_proj",
        f"{stack}.layers.residual.{part}": f"{hf_path}_layer_norm",
    }


def canonicalize(config: Config, params: PyTree) -> tuple[Config, PyTree]:
    """The model with a bias of its output, zeros where it had none, and with all sines before all cosines.

    The columns of hidden states may stand in any order, so that this changes no result.
    """
    if not isinstance(params, seq2seq.Seq2Seq) or config.encoder.vocab is not None:
        return config, params
    if config.position == Sinusoidal(order="interleaved") and config.embed_axis == "D":
        columns = np.concatenate([np.arange(0, config.width, 2), np.arange(1, config.width, 2)])

        def reorder(spec: Spec, array: jax.Array) -> jax.Array:
            for axis, letter in enumerate(spec.axes):
                array = jnp.take(array, columns, axis, mode="clip") if letter in "DU" else array
            return array

        params = jax.tree.map(reorder, seq2seq.seq2seq_specs(config), params)
        config = dataclasses.replace(config, position=Sinusoidal(order="halves"))
    return with_output_bias(config, params)


BART = Family(
    name="bart",
    prefix="model.",
    base=BASE,
    fields=FIELDS,
    must_equal=MUST_EQUAL,
    allowed={
        "is_decoder": (False,),
        "add_final_layer_norm": (False,),
        "normalize_before": (False,),
        "normalize_embedding": (True,),
    },
    aliases=ALIASES,
    ignored=IGNORED,
    read=read,
    write=write,
    canonicalize=canonicalize,
    names=names(),
    heads={"BartForConditionalGeneration": HfHead("seq2seq"), "BartModel": HfHead("seq2seq")},
    unused=UNUSED,
    copies=copies("model"),
)

MARIAN = Family(
    name="marian",
    prefix="model.",
    fields=FIELDS | {"vocab_size": HfField("vocab", 58101)},
    must_equal=MUST_EQUAL | {"decoder_vocab_size": "vocab_size"},
    base=dataclasses.replace(BASE, input=WITHOUT_NORM, position=Sinusoidal(order="halves")),
    allowed={
        "share_encoder_decoder_embeddings": (True,),
        "is_decoder": (False,),
        "add_final_layer_norm": (False,),
        "normalize_before": (False,),
        "normalize_embedding": (False,),
    },
    aliases=ALIASES,
    ignored=IGNORED,
    read=read,
    write=write_marian,
    canonicalize=canonicalize,
    names=names(),
    heads={"MarianMTModel": HfHead("seq2seq")},
    unused=UNUSED,
    copies=copies("model"),
)

PEGASUS = Family(
    name="pegasus",
    prefix="model.",
    fields=FIELDS,
    must_equal=MUST_EQUAL,
    base=dataclasses.replace(BASE, input=WITHOUT_NORM, position=Sinusoidal(order="halves"), residual=PreNorm()),
    allowed={
        "is_decoder": (False,),
        "add_final_layer_norm": (True,),
        "normalize_before": (True,),
        "normalize_embedding": (False,),
    },
    aliases=ALIASES,
    ignored=IGNORED,
    read=read,
    write=write,
    canonicalize=canonicalize,
    names=names(),
    heads={"PegasusForConditionalGeneration": HfHead("seq2seq")},
    unused=UNUSED,
    constants={f"model.{stack}.embed_positions.weight": "PD" for stack in ("encoder", "decoder")},
    copies=copies("model"),
)

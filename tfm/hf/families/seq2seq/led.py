"""LED (Beltagy et al. 2020, section 7): BART whose encoder is a Longformer; its decoder sees everything.

Global tokens of the encoder are those of `longformer`; without the field there are none, as in transformers.
"""

import dataclasses

from tfm.config.model import Config, Layer
from tfm.hf.families.encoders.longformer import TYPES, even_window, global_names, read_mixers, write_windows
from tfm.hf.families.period import period_values
from tfm.hf.families.seq2seq import bart
from tfm.hf.family import Family, HfField, HfHead, Reading
from tfm.hf.fields import UNREAD, Fields, because
from tfm.hf.parameters import HfTensor
from tfm.options.json_text import Json
from tfm.params import PyTree

SELF = "led.encoder.layers.{}.self_attn"


def read(fields: Fields) -> Reading:
    """The sizes of the two stacks, and the kinds of layers of the encoder."""
    values, used = bart.read(fields)
    mixers = read_mixers(fields, "encoder_layers", fields.get("global_tokens", 0))
    values |= period_values([Layer(mixer=mixer) for mixer in mixers], "encoder.period")
    return values, used | {"attention_window", "global_tokens"}


def write(config: Config) -> dict[str, Json]:
    """See `read`."""
    return bart.write(config) | write_windows(config.in_encoder())


def canonicalize(config: Config, params: PyTree) -> tuple[Config, PyTree]:
    """The model with even windows, and with a bias of its output."""
    config, params = bart.canonicalize(config, params)
    period = tuple(dataclasses.replace(layer, mixer=even_window(layer.mixer)) for layer in config.encoder.period)
    return dataclasses.replace(config, encoder=dataclasses.replace(config.encoder, period=period)), params


def names() -> dict[str, str | HfTensor]:
    """The tensors of both stacks."""
    tensors = bart.names("led") | {
        f"encoder.layers.mixer.{name}": f"{SELF}.longformer_self_attn.{name}" for name in ("query", "key", "value")
    }
    return tensors | {
        **global_names("encoder.layers.mixer", f"{SELF}.longformer_self_attn"),
        "encoder.layers.mixer.output": f"{SELF}.output",
        "encoder.embed.positions": "led.encoder.embed_positions.weight",
        "decoder.embed.positions": "led.decoder.embed_positions.weight",
    }


LED = Family(
    name="led",
    prefix="",
    base=bart.BASE,
    fields={
        name: field for name, field in bart.FIELDS.items() if name not in ("max_position_embeddings", "scale_embedding")
    }
    | {
        "max_decoder_position_embeddings": HfField("length", 1024),
        "max_encoder_position_embeddings": HfField("encoder.length", 16384),
    },
    must_equal=bart.MUST_EQUAL,
    allowed={"is_decoder": (False,)},
    aliases=bart.ALIASES,
    ignored=bart.IGNORED
    | because(UNREAD, "scale_embedding normalize_before normalize_embedding add_final_layer_norm add_bias_logits"),
    types=TYPES,
    read=read,
    write=write,
    canonicalize=canonicalize,
    names=names(),
    heads={"LEDForConditionalGeneration": HfHead("seq2seq")},
    unused=bart.UNUSED.replace("model", "led"),
    copies=bart.copies("led"),
)

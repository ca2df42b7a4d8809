"""LongT5 (Guo et al. 2022): T5 whose encoder sees a window, and perhaps keys of blocks; its decoder is that of T5."""

import dataclasses

from tfm.catalogue.options.patterns import Sliding, Transient
from tfm.config.layers import EncoderOptions
from tfm.config.mixers import Softmax
from tfm.config.model import Config, Layer
from tfm.config.patterns import Pattern
from tfm.hf.families.seq2seq import t5
from tfm.hf.family import Family, HfHead, Reading
from tfm.hf.fields import OTHER_LAYERS, Fields, Size, because
from tfm.hf.parameters import HfTensor
from tfm.options.json_text import Json

LOCAL, TRANSIENT = "local", "transient-global"
# What self-attention of the encoder is called.
ATTENTION = {LOCAL: "LocalSelfAttention", TRANSIENT: "TransientGlobalSelfAttention"}


def read(fields: Fields) -> Reading:
    """The fields of T5, and the layers of the encoder."""
    values, used = t5.read(fields)
    radius = fields.get("local_radius", 127)
    layer: dict[str, object] = {"mixer": "softmax", "mixer.pattern": "sliding", "mixer.pattern.window": 2 * radius}
    if fields.get("encoder_attention_type", LOCAL) == TRANSIENT:
        layer = {
            "mixer": "softmax",
            "mixer.pattern": "transient",
            "mixer.pattern.radius": radius,
            "mixer.pattern.block": fields.get("global_block_size", 16),
            "position": "t5",
            "position.buckets": fields.get("relative_attention_num_buckets", 32),
            "position.max_distance": fields.get("relative_attention_max_distance", 128),
            "position.blocks": True,
        }
        used = used | {"global_block_size"}
    values |= {"encoder.period": 1} | {f"encoder.period.0.{name}": value for name, value in layer.items()}
    return values, used | {"local_radius"}


def write(config: Config) -> dict[str, Json]:
    """See `read`."""
    fields = {**t5.write(config), "encoder_attention_type": LOCAL}
    pattern = _pattern(config)
    if isinstance(pattern, Transient):
        fields |= {"encoder_attention_type": TRANSIENT, "global_block_size": pattern.block}
        return {**fields, "local_radius": pattern.radius}
    return {**fields, "local_radius": pattern.window // 2 if isinstance(pattern, Sliding) else 127}


def _pattern(config: Config) -> Pattern | None:
    """The pattern of the encoder's first kind of layers."""
    mixer = config.encoder.period[0].mixer if config.encoder.period else None
    return mixer.pattern if isinstance(mixer, Softmax) else None


def names(config: Config) -> dict[str, str | HfTensor]:
    """The tensors of T5, where self-attention of the encoder has another name, and those of keys of blocks."""
    attention = ATTENTION[TRANSIENT if isinstance(_pattern(config), Transient) else LOCAL]

    def renamed(entry: str | HfTensor) -> str | HfTensor:
        if isinstance(entry, HfTensor):
            return entry._replace(name=entry.name.replace(".SelfAttention.", f".{attention}."))
        return entry.replace(".SelfAttention.", f".{attention}.")

    tensors = {
        path: renamed(entry) if path.startswith("encoder.") else entry for path, entry in t5.names(config).items()
    }
    return tensors | {
        "encoder.positions.0.tokens": tensors["encoder.positions.0"],
        "encoder.positions.0.blocks": f"encoder.block.0.layer.0.{attention}.global_relative_attention_bias.weight",
        "encoder.layers.mixer.pattern": f"encoder.block.{{}}.layer.0.{attention}.global_input_layer_norm",
    }


LONGT5 = Family(
    name="longt5",
    prefix="",
    base=dataclasses.replace(
        t5.T5.base, encoder=EncoderOptions(period=(Layer(mixer=Softmax(pattern=Sliding(window=254))),))
    ),
    fields=t5.T5.fields,
    types={**t5.T5.types, "local_radius": Size, "global_block_size": Size},
    allowed=dict(t5.T5.allowed) | {"encoder_attention_type": (LOCAL, TRANSIENT)},
    aliases=t5.ALIASES,
    ignored={**t5.T5.ignored, **because(OTHER_LAYERS, "global_block_size")},
    read=read,
    write=write,
    names=names,
    heads={"LongT5ForConditionalGeneration": HfHead("seq2seq")},
    unused=t5.T5.unused,
    copies=t5.T5.copies,
    optional_output=t5.T5.optional_output,
)

"""mT5 (Xue et al. 2021), which never scales outputs, and umT5 (Chung et al. 2023), whose layers each have a table."""

import dataclasses

from tfm.config import positions
from tfm.config.model import Config
from tfm.hf.families.seq2seq import t5
from tfm.hf.family import HfField, HfHead, Reading
from tfm.hf.fields import Fields
from tfm.hf.parameters import HfTensor
from tfm.options.json_text import Json

DEFAULTS: dict[str, Json] = {"num_layers": 8, "num_heads": 6, "feed_forward_proj": "gated-gelu"}
FIELDS = {
    **t5.T5.fields,
    "vocab_size": HfField("vocab", 250112),
    "num_heads": HfField("heads", 6),
    "d_ff": HfField("ffn", 1024),
    "feed_forward_proj": HfField("activation", "gated-gelu", t5.ACTIVATIONS),
}


def read(fields: Fields) -> Reading:
    """See `t5.read`."""
    return t5.read({**DEFAULTS, **fields})


def read_mt5(fields: Fields) -> Reading:
    """As `read`; whether the output is tied says nothing of its scale."""
    values, used = read(fields)
    return values | {"head.scale_logits": False}, used


def write_mt5(config: Config) -> dict[str, Json]:
    """See `read_mt5`."""
    return {name: value for name, value in t5.write(config).items() if name != "scale_decoder_outputs"}


def umt5_names(config: Config) -> dict[str, str | HfTensor]:
    """The tensors of T5, and the tables of all layers."""
    tables = {
        f"{stack}.layers.position": f"{stack}.block.{{}}.layer.0.SelfAttention.relative_attention_bias.weight"
        for stack in ("encoder", "decoder")
    }
    return t5.names(config) | tables


MT5 = dataclasses.replace(
    t5.T5,
    name="mt5",
    fields=FIELDS,
    read=read_mt5,
    write=write_mt5,
    heads={"MT5ForConditionalGeneration": HfHead("seq2seq")},
)
UMT5 = dataclasses.replace(
    t5.T5,
    name="umt5",
    base=dataclasses.replace(t5.T5.base, position=positions.T5(every_layer=True)),
    fields=FIELDS,
    read=read,
    names=umt5_names,
    heads={"UMT5ForConditionalGeneration": HfHead("seq2seq")},
)

"""GPT (Radford et al. 2018): GPT-2 that normalizes after each sublayer."""

import dataclasses

from tfm.config.inputs import Tokens
from tfm.config.model import Config
from tfm.hf.families.decoders.bare import bare, in_both
from tfm.hf.families.decoders.gpt2 import GPT2, NAMES
from tfm.hf.family import HfField, HfHead, read_nothing, write_nothing
from tfm.hf.fields import UNREAD, because

RENAMED = in_both(
    {
        "decoder.embed.tokens": "transformer.tokens_embed.weight",
        "decoder.embed.positions": "transformer.positions_embed.weight",
    }
)

OPENAI_GPT = dataclasses.replace(
    GPT2,
    name="openai-gpt",
    base=Config(input=Tokens(token_types=None, norm=False)),
    fields={name: field for name, field in GPT2.fields.items() if name != "activation_function"}
    | {
        "vocab_size": HfField("vocab", 40478),
        "n_positions": HfField("length", 512),
        "afn": HfField("activation", "gelu", {"gelu": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}),
    },
    allowed={},
    ignored={**GPT2.ignored, **because(UNREAD, "predict_special_tokens")},
    read=read_nothing,
    write=write_nothing,
    names={path: RENAMED.get(path, tensor) for path, tensor in NAMES.items()},
    heads={"OpenAIGPTLMHeadModel": HfHead("lm")} | bare("OpenAIGPTModel"),
    unused=GPT2.unused + r"|position_ids$",
    copies={"transformer.tokens_embed.weight": ("lm_head.weight",)},
)

"""GPT-Neo (Black et al. 2021): layers that see all tokens take turns with layers that see the nearest ones.

Scores are not divided by the root of the head size.
"""

import dataclasses
from typing import Any

from tfm.catalogue.options.patterns import Sliding
from tfm.config.inputs import Tokens
from tfm.config.mixers import Softmax
from tfm.config.model import Config, Layer
from tfm.config.residuals import PreNorm
from tfm.hf.facts import agreed
from tfm.hf.families.decoders.bare import bare, in_both
from tfm.hf.families.period import period_values, window_of
from tfm.hf.family import Family, HfField, HfHead, Reading
from tfm.hf.fields import ACTIVATIONS, OTHER_HEAD, Fields, LayerCount, Size, because
from tfm.options.json_text import Json

GLOBAL, LOCAL = "global", "local"
LAYER = "transformer.h.{}"
MIXER = Softmax(score="dot", qkv_bias=False)


def read(fields: Fields) -> Reading:
    """The size of the feed-forward layer, whose default depends on the width, and the kinds of layers."""
    local = dataclasses.replace(MIXER, pattern=Sliding(window=fields.get("window_size", 256)))
    kinds = {GLOBAL: Layer(), LOCAL: Layer(mixer=local)}
    values = {"ffn": fields.get("intermediate_size") or 4 * fields.get("hidden_size", 2048)}
    values |= period_values([kinds[name] for name in attention_layers(fields)])
    return values, {"intermediate_size", "window_size", "attention_types", "attention_layers"}


def attention_layers(fields: Fields) -> list[str]:
    """The type of every layer. Raises ValueError for other types, for more or fewer of them than layers, and where the
    two fields that say them differ."""
    layers, types = fields.get("num_layers", 24), fields.get("attention_types")
    stated = agreed({"attention_layers": fields.get("attention_layers"), "attention_types": types and _layers(types)})
    names = _layers([[[GLOBAL, LOCAL], 12]]) if stated is None else stated
    if len(names) != layers or not set(names) <= {GLOBAL, LOCAL}:
        raise ValueError(
            f"config.json has attention_types={types or names} and num_layers={layers}; "
            f"of gpt_neo, only that many times {GLOBAL} or {LOCAL} are supported"
        )
    return names


def _layers(types: list[Any]) -> list[str]:
    """The types of all layers out of `attention_types`; [] for what is none."""
    try:
        return [name for period, count in types for name in period * count]
    except (TypeError, ValueError):
        return []


def write(config: Config) -> dict[str, Json]:
    """See `read`."""
    windows = [window_of(kind) for kind in config.layer_plan.layers]
    names = [LOCAL if window else GLOBAL for window in windows]
    local_windows = [window for window in windows if window]
    fields: dict[str, Json] = {
        "intermediate_size": config.sizes["F"],
        "attention_types": [[period, times] for period, times in _periods(names)],
        "attention_layers": names,
    }
    return {"window_size": local_windows[0], **fields} if local_windows else fields


def _periods(names: list[str]) -> list[tuple[list[str], int]]:
    """The field `attention_types`: periods and how often each is repeated."""
    size = next(size for size in range(1, len(names) + 1) if names[size:] == names[:-size])
    times, rest = divmod(len(names), size)
    return [(names[:size], times), *([(names[:rest], 1)] if rest else [])]


GPT_NEO = Family(
    name="gpt_neo",
    prefix="transformer.",
    base=Config(input=Tokens(token_types=None, norm=False), mixer=MIXER, residual=PreNorm()),
    fields={
        "vocab_size": HfField("vocab", 50257),
        "hidden_size": HfField("width", 2048),
        "num_layers": HfField("layers", 24),
        "num_heads": HfField("heads", 16),
        "max_position_embeddings": HfField("length", 2048),
        "activation_function": HfField("activation", "gelu_new", ACTIVATIONS),
        "resid_dropout": HfField("dropout", 0.0),
        "attention_dropout": HfField("attn_dropout", 0.0),
        "layer_norm_epsilon": HfField("norm_eps", 1e-5),
        "tie_word_embeddings": HfField("tie_embeddings", True),
    },
    must_equal={"embed_dropout": "resid_dropout"},
    aliases={"num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"},
    ignored=because(
        OTHER_HEAD, "summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout"
    ),
    types={
        "attention_types": list[list[list[str] | LayerCount]] | None,
        "attention_layers": list[str] | None,
        "intermediate_size": Size | None,
        "window_size": Size,
    },
    read=read,
    write=write,
    names=in_both(
        {
            "decoder.embed.tokens": "transformer.wte.weight",
            "decoder.embed.positions": "transformer.wpe.weight",
            "decoder.layers.mixer.query": f"{LAYER}.attn.attention.q_proj",
            "decoder.layers.mixer.key": f"{LAYER}.attn.attention.k_proj",
            "decoder.layers.mixer.value": f"{LAYER}.attn.attention.v_proj",
            "decoder.layers.mixer.output": f"{LAYER}.attn.attention.out_proj",
            "decoder.layers.residual.mixer": f"{LAYER}.ln_1",
            "decoder.layers.feed_forward.up": f"{LAYER}.mlp.c_fc",
            "decoder.layers.feed_forward.down": f"{LAYER}.mlp.c_proj",
            "decoder.layers.residual.feed_forward": f"{LAYER}.ln_2",
            "decoder.norm": "transformer.ln_f",
            "table": "lm_head.weight",
        }
    ),
    heads={"GPTNeoForCausalLM": HfHead("lm")} | bare("GPTNeoModel"),
    unused=r"\.attention\.(masked_)?bias$|^lm_head\.weight$",
    copies={"transformer.wte.weight": ("lm_head.weight",)},
)

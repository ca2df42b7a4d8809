"""Llama (Touvron et al. 2023), Mistral (Jiang et al. 2023), Qwen2 and Qwen3 (Yang et al. 2024, 2025)."""

import dataclasses
from collections.abc import Callable

from tfm.catalogue.options.patterns import Sliding
from tfm.config.inputs import Tokens
from tfm.config.mixers import Softmax
from tfm.config.model import Config, Layer
from tfm.config.positions import Rotary
from tfm.config.residuals import PreNorm
from tfm.hf.families.decoders.bare import bare, in_both
from tfm.hf.families.period import GLOBAL, LOCAL, checked_layer_types, period_values, window_of
from tfm.hf.families.rope import read_rotary, rope_parameters, rope_scaling
from tfm.hf.family import Family, HfField, HfHead, Reading
from tfm.hf.fields import CODE, GATED, OTHER_LAYERS, UNREAD, Fields, because
from tfm.options.json_text import Json

LAYER = "model.layers.{}"
FIELDS = {
    "vocab_size": HfField("vocab", 32000),
    "hidden_size": HfField("width", 4096),
    "intermediate_size": HfField("ffn", 11008),
    "num_hidden_layers": HfField("layers", 32),
    "num_attention_heads": HfField("heads", 32),
    "hidden_act": HfField("activation", "silu", GATED),
    "max_position_embeddings": HfField("length", 2048),
    "rms_norm_eps": HfField("norm_eps", 1e-6),
    "attention_dropout": HfField("attn_dropout", 0.0),
    "tie_word_embeddings": HfField("tie_embeddings", False),
}
BASE = Config(
    input=Tokens(token_types=None, norm=False),
    position=Rotary(),
    residual=PreNorm(),
    norm="rms",
    bias=False,
    dropout=0.0,
)
NAMES = in_both(
    {
        "decoder.embed.tokens": "model.embed_tokens.weight",
        "decoder.layers.mixer.query": f"{LAYER}.self_attn.q_proj",
        "decoder.layers.mixer.key": f"{LAYER}.self_attn.k_proj",
        "decoder.layers.mixer.value": f"{LAYER}.self_attn.v_proj",
        "decoder.layers.mixer.output": f"{LAYER}.self_attn.o_proj",
        "decoder.layers.residual.mixer": f"{LAYER}.input_layernorm",
        "decoder.layers.feed_forward.gate": f"{LAYER}.mlp.gate_proj",
        "decoder.layers.feed_forward.up": f"{LAYER}.mlp.up_proj",
        "decoder.layers.feed_forward.down": f"{LAYER}.mlp.down_proj",
        "decoder.layers.residual.feed_forward": f"{LAYER}.post_attention_layernorm",
        "decoder.norm": "model.norm",
        "table": "lm_head.weight",
    }
)
# Mixers of the families that have others than `Softmax()`.
FAMILY_MIXERS = {"qwen2": Softmax(own_qkv_bias=True), "qwen3": Softmax(qk_norm=True)}
# config.json -> the window, and the type of every layer.
Windows = Callable[[Fields], tuple[int | None, list[str]]]
COPIES = {"model.embed_tokens.weight": ("lm_head.weight",)}


def reader(
    family: str,
    kv_heads: int | None = None,
    head_size: int | None = None,
    windows: Windows | None = None,
    position: Rotary = Rotary(),  # noqa: B008
) -> Callable[[Fields], Reading]:
    """`Family.read` of a family with these defaults for the key/value heads and the size of a head.

    None stands for as many key/value heads as heads, and for width / heads.
    windows: of a family with sliding windows, the window and the types of layers that config.json says
    position: the rotary positions of a folder that has no base
    """

    def read(fields: Fields) -> Reading:
        values, used = read_rotary(fields, position)
        if values["position.fraction"] != 1:
            fraction = values["position.fraction"]
            raise ValueError(f"config.json has partial_rotary_factor={fraction}; of {family}, only 1.0 is supported")
        heads, width = fields.get("num_attention_heads", 32), fields.get("hidden_size", 4096)
        hf_kv_heads = fields.get("num_key_value_heads", kv_heads) or heads
        hf_head_size = fields.get("head_dim", head_size) or width // heads
        values["kv_heads"] = hf_kv_heads if hf_kv_heads != heads else None
        values["head_size"] = hf_head_size if hf_head_size * heads != width else None
        used = used | {"num_key_value_heads", "head_dim"}
        if windows is None:
            return values, used
        values |= _windowed(family, fields, *windows(fields))
        has_windows = values["mixer.pattern"] != "full" or "period" in values
        return values, used | (WINDOW_FIELDS if has_windows else {"use_sliding_window", "layer_types"})

    return read


WINDOW_FIELDS = {"sliding_window", "use_sliding_window", "max_window_layers", "layer_types"}


def _windowed(family: str, fields: Fields, window: int | None, layer_types: list[str]) -> dict[str, object]:
    """Layers of the types that `layer_types` lists. Raises ValueError for windows of no size."""
    layer_types = checked_layer_types(layer_types, len(layer_types), family)
    if LOCAL not in layer_types:
        return {"mixer.pattern": "full"}
    if not window:
        raise ValueError(
            f"config.json has layer_types with {LOCAL} and sliding_window={fields.get('sliding_window')}; "
            "say the size of the window"
        )
    if GLOBAL not in layer_types:
        return {"mixer.pattern": "sliding", "mixer.pattern.window": window}
    mixer = FAMILY_MIXERS.get(family, Softmax())
    layers = {GLOBAL: Layer(), LOCAL: Layer(mixer=dataclasses.replace(mixer, pattern=Sliding(window=window)))}
    return {"mixer.pattern": "full"} | period_values([layers[name] for name in layer_types])


def mistral_windows(fields: Fields) -> tuple[int | None, list[str]]:
    """The window of all layers, or of those of one type, as in Ministral."""
    window = fields.get("sliding_window", 4096)
    layers = fields.get("num_hidden_layers", 32)
    layer_types = fields.get("layer_types")
    if layer_types is None:
        return window, [LOCAL if window else GLOBAL] * layers
    return window, checked_layer_types(layer_types, layers, "mistral")


def qwen_windows(fields: Fields) -> tuple[int | None, list[str]]:
    """The window of the layers after the first ones, or of those of one type, where windows are in use at all."""
    window = fields.get("sliding_window", 4096) if fields.get("use_sliding_window") else None
    layers, layer_types = fields.get("num_hidden_layers", 32), fields.get("layer_types")
    if layer_types is not None:
        if LOCAL in layer_types and not fields.get("use_sliding_window"):
            raise ValueError(
                f"config.json has layer_types with {LOCAL} and use_sliding_window=false; correct one of them"
            )
        return window, checked_layer_types(layer_types, layers, "qwen")
    first = fields.get("max_window_layers", 28) if window else layers
    return window, [GLOBAL if layer < first else LOCAL for layer in range(layers)]


def write(config: Config) -> dict[str, Json]:
    """See `reader`; transformers 5 and 4 read positions in other fields."""
    position = config.position
    assert isinstance(position, Rotary)
    rope = rope_parameters(position, config.sizes["H"])
    return {
        "num_key_value_heads": config.sizes["K"],
        "head_dim": config.sizes["H"],
        "rope_theta": position.base,
        "rope_parameters": rope,
        **rope_scaling(rope),
    }


def write_windows(config: Config) -> dict[str, Json]:
    """See `mistral_windows`; where all layers are of one type, `layer_types` is left out."""
    windows = [window_of(kind) for kind in config.layer_plan.layers]
    window = next(filter(None, windows), None)
    is_mixed = len({*windows}) > 1
    types = {"layer_types": [LOCAL if window else GLOBAL for window in windows]} if is_mixed else {}
    return write(config) | {"sliding_window": window} | types


def write_qwen(config: Config) -> dict[str, Json]:
    """See `qwen_windows`."""
    windows = [window_of(kind) for kind in config.layer_plan.layers]
    types = [LOCAL if window else GLOBAL for window in windows]
    fields = write(config) | {"use_sliding_window": LOCAL in types, "layer_types": types}
    if LOCAL not in types:
        return fields
    return fields | {"sliding_window": next(filter(None, windows)), "max_window_layers": types.index(LOCAL)}


LLAMA = Family(
    name="llama",
    prefix="model.",
    base=BASE,
    fields=FIELDS,
    allowed={"attention_bias": (False,), "mlp_bias": (False,)},
    ignored=because(CODE, "pretraining_tp"),
    read=reader("llama"),
    write=write,
    names=NAMES,
    heads={"LlamaForCausalLM": HfHead("lm")} | bare("LlamaModel"),
    unused=r"rotary_emb\.inv_freq$|^lm_head\.weight$",
    copies=COPIES,
)

MISTRAL = Family(
    name="mistral",
    prefix="model.",
    base=BASE,
    ignored=because(OTHER_LAYERS, "sliding_window"),
    fields=FIELDS | {"intermediate_size": HfField("ffn", 14336), "max_position_embeddings": HfField("length", 131072)},
    read=reader("mistral", kv_heads=8, windows=mistral_windows),
    write=write_windows,
    names=NAMES,
    heads={"MistralForCausalLM": HfHead("lm")} | bare("MistralModel"),
    unused=r"rotary_emb\.inv_freq$|^lm_head\.weight$",
    copies=COPIES,
)

QWEN_FIELDS = FIELDS | {
    "vocab_size": HfField("vocab", 151936),
    "intermediate_size": HfField("ffn", 22016),
    "max_position_embeddings": HfField("length", 32768),
}

QWEN2 = Family(
    name="qwen2",
    prefix="model.",
    base=dataclasses.replace(BASE, mixer=FAMILY_MIXERS["qwen2"]),
    fields=QWEN_FIELDS,
    ignored=because(OTHER_LAYERS, "sliding_window max_window_layers") | because(UNREAD, "use_mrope"),
    read=reader("qwen2", 32, windows=qwen_windows),
    write=write_qwen,
    names=NAMES,
    heads={"Qwen2ForCausalLM": HfHead("lm")} | bare("Qwen2Model"),
    unused=r"rotary_emb\.inv_freq$|^lm_head\.weight$",
    copies=COPIES,
)

QWEN3 = Family(
    name="qwen3",
    prefix="model.",
    base=dataclasses.replace(BASE, mixer=FAMILY_MIXERS["qwen3"]),
    fields=QWEN_FIELDS,
    allowed={"attention_bias": (False,)},
    ignored=because(OTHER_LAYERS, "sliding_window max_window_layers"),
    read=reader("qwen3", 32, 128, qwen_windows),
    write=write_qwen,
    names=NAMES
    | in_both(
        {
            "decoder.layers.mixer.query_norm": f"{LAYER}.self_attn.q_norm",
            "decoder.layers.mixer.key_norm": f"{LAYER}.self_attn.k_norm",
        }
    ),
    heads={"Qwen3ForCausalLM": HfHead("lm")} | bare("Qwen3Model"),
    unused=r"^lm_head\.weight$",
    copies=COPIES,
)

"""ModernBERT (Warner et al. 2024): rotary positions; most layers attend within a window."""

import dataclasses

from tfm.catalogue.options.patterns import Sliding
from tfm.config.heads import Head
from tfm.config.inputs import Tokens
from tfm.config.mixers import Softmax
from tfm.config.model import Config, Layer
from tfm.config.positions import Rotary
from tfm.config.residuals import PreNorm
from tfm.hf.facts import agreed
from tfm.hf.families.period import GLOBAL, LOCAL, checked_layer_types, period_values, window_of
from tfm.hf.family import Family, HfField, HfHead, Reading
from tfm.hf.fields import CODE, OTHER_LAYERS, TRAINING, UNREAD, Fields, RopeByLayer, because
from tfm.hf.parameters import HfTensor
from tfm.options.json_text import Json

LAYER = "model.layers.{}"
NAMES: dict[str, str | HfTensor] = {
    "encoder.embed.tokens": "model.embeddings.tok_embeddings.weight",
    "encoder.embed.norm": "model.embeddings.norm",
    "encoder.layers.mixer.query": HfTensor(f"{LAYER}.attn.Wqkv", part=0, parts=3),
    "encoder.layers.mixer.key": HfTensor(f"{LAYER}.attn.Wqkv", part=1, parts=3),
    "encoder.layers.mixer.value": HfTensor(f"{LAYER}.attn.Wqkv", part=2, parts=3),
    "encoder.layers.mixer.output": f"{LAYER}.attn.Wo",
    "encoder.layers.residual.mixer": f"{LAYER}.attn_norm",
    "encoder.layers.feed_forward.gate": HfTensor(f"{LAYER}.mlp.Wi", part=0, parts=2),
    "encoder.layers.feed_forward.up": HfTensor(f"{LAYER}.mlp.Wi", part=1, parts=2),
    "encoder.layers.feed_forward.down": f"{LAYER}.mlp.Wo",
    "encoder.layers.residual.feed_forward": f"{LAYER}.mlp_norm",
    "encoder.norm": "model.final_norm",
}
# What all heads begin with.
POOLER = {"pooler": "head.dense", "norm": "head.norm"}
DENSE = {"dense": "head.dense", "norm": "head.norm"}
OUTPUT = {"output": "classifier"}


def read(fields: Fields) -> Reading:
    """The kinds of layers: the first one, which has no norm before its mixer, and a period of the others."""
    agreed({name: fields.get(name, False) for name in ("attention_bias", "mlp_bias")})
    layer_types = _layer_types(fields)
    global_base, local_base = _bases(fields)
    used = {
        "layer_types",
        "global_attn_every_n_layers",
        "rope_parameters",
        "rope_scaling",
        "global_rope_theta",
        "local_rope_theta",
        "mlp_bias",
        "sliding_window",
    }
    kinds = {GLOBAL: Layer()}
    if LOCAL in layer_types:
        half = fields.get("sliding_window")
        sides = {"local_attention": fields.get("local_attention"), "sliding_window * 2": half and 2 * half}
        window = Sliding(window=agreed(sides) or 128)
        kinds[LOCAL] = Layer(mixer=Softmax(pattern=window), position=Rotary(base=local_base))
        used.add("local_attention")
    layers = [kinds[name] for name in layer_types]
    first = [dataclasses.replace(layer, residual=PreNorm(mixer_norm=False)) for layer in layers[:1]]
    values = {"position.base": global_base} | period_values(first, "prefix") | period_values(layers[1:])
    return values, used


def _layer_types(fields: Fields) -> list[str]:
    """The type of every layer; in older folders every n-th one is global. Raises ValueError for other types."""
    layers, layer_types = fields.get("num_hidden_layers", 22), fields.get("layer_types")
    if layer_types is None:
        interval = fields.get("global_attn_every_n_layers", 3)
        return [LOCAL if not interval or layer % interval else GLOBAL for layer in range(layers)]
    return checked_layer_types(layer_types, layers, "modernbert")


def _bases(fields: Fields) -> tuple[float, float]:
    """The rotary bases of global and of local layers. Raises ValueError for scaled positions."""
    older = {
        GLOBAL: fields.get("global_rope_theta", 160_000.0),
        LOCAL: fields.get("local_rope_theta", 10_000.0),
    }
    bases = []
    for layer_type, base in older.items():
        by_type = (fields.get("rope_parameters") or {}).get(layer_type) or {}
        rope = {**by_type, **(fields.get("rope_scaling") or {})}
        places = [name for name in ("rope_parameters", "rope_scaling") if fields.get(name)]
        rope_type = rope.get("rope_type", rope.get("type", "default"))
        if rope_type != "default":
            raise ValueError(
                f"config.json has rotary positions of type {rope_type} in {' or '.join(places)}; "
                "only default ones are supported"
            )
        bases.append(rope.get("rope_theta") or base)
    return float(bases[0] or 160_000.0), float(bases[1] or bases[0] or 160_000.0)


def write(config: Config) -> dict[str, Json]:
    """See `read`; both the newer and the older fields."""
    kinds = config.layer_plan.layers
    layer_types = [LOCAL if window_of(kind) else GLOBAL for kind in kinds]
    assert isinstance(config.position, Rotary)
    windows = [window for window in map(window_of, kinds) if window]
    local_bases = [kind.position.base for kind in kinds if window_of(kind) and isinstance(kind.position, Rotary)]
    bases = {GLOBAL: config.position.base, LOCAL: local_bases[0] if local_bases else 10_000.0}
    fields: dict[str, Json] = {
        "mlp_bias": config.bias,
        "layer_types": layer_types,
        "global_attn_every_n_layers": _interval(layer_types),
        "rope_parameters": {name: {"rope_type": "default", "rope_theta": base} for name, base in bases.items()},
        "global_rope_theta": bases[GLOBAL],
        "local_rope_theta": bases[LOCAL],
    }
    return {"local_attention": windows[0], **fields} if windows else fields


def _interval(layer_types: list[str]) -> int | None:
    """The n of "every n-th layer from the first on is global"; None for other orders."""
    for interval in (3, *range(1, len(layer_types) + 1)):  # of a few layers several are true; 3 is the default
        if layer_types == [LOCAL if layer % interval else GLOBAL for layer in range(len(layer_types))]:
            return interval
    return None


MODERNBERT = Family(
    name="modernbert",
    prefix="model.",
    base=Config(
        input=Tokens(token_types=None),
        position=Rotary(),
        residual=PreNorm(),
        activation="geglu",
        head=Head(pool_activation="gelu", pool_norm=True),
    ),
    fields={
        "vocab_size": HfField("vocab", 50368),
        "hidden_size": HfField("width", 768),
        "intermediate_size": HfField("ffn", 1152),
        "num_hidden_layers": HfField("layers", 22),
        "num_attention_heads": HfField("heads", 12),
        "max_position_embeddings": HfField("length", 8192),
        "norm_eps": HfField("norm_eps", 1e-5),
        "norm_bias": HfField("norm", False, {False: "layer_no_bias", True: "layer"}),
        "attention_bias": HfField("bias", False),
        "classifier_bias": HfField("head.bias", False),
        "classifier_pooling": HfField("head.pool", "cls", {"cls": "first", "mean": "mean"}),
        "embedding_dropout": HfField("dropout", 0.0),
        "attention_dropout": HfField("attn_dropout", 0.0),
        "tie_word_embeddings": HfField("tie_embeddings", True),
    },
    must_equal={"mlp_dropout": "embedding_dropout"},
    ids={
        "pad_token_id": 50283,
        "eos_token_id": 50282,
        "bos_token_id": 50281,
        "cls_token_id": 50281,
        "sep_token_id": 50282,
    },
    allowed={"hidden_activation": ("gelu",), "classifier_activation": ("gelu",), "decoder_bias": (True,)},
    ignored=because(CODE, "deterministic_flash_attn reference_compile repad_logits_with_grad")
    | because(TRAINING, "initializer_cutoff_factor sparse_pred_ignore_index sparse_prediction")
    | because(UNREAD, "cls_token_id position_embedding_type")
    | because(OTHER_LAYERS, "local_attention"),
    types={"rope_parameters": RopeByLayer | None},
    read=read,
    write=write,
    names=NAMES,
    heads={
        "ModernBertForMaskedLM": HfHead(
            "mlm",
            {
                "head.dense": "head.dense",
                "head.norm": "head.norm",
                "head.bias": "decoder.bias",
                "head.table": "decoder.weight",
            },
        ),
        "ModernBertModel": HfHead("model"),
        "ModernBertForSequenceClassification": HfHead("classify", POOLER | OUTPUT),
        "ModernBertForTokenClassification": HfHead("tag", DENSE | OUTPUT),
        "ModernBertForQuestionAnswering": HfHead("span", DENSE | OUTPUT, {"classes": 2}),
        "ModernBertForMultipleChoice": HfHead("choice", POOLER | OUTPUT, {"classes": 1}),
    },
    unused=r"^head\.|^decoder\.|rotary_emb\.",
    copies={"model.embeddings.tok_embeddings.weight": ("decoder.weight",)},
)

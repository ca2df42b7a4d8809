"""ModernBERT (Warner et al. 2024): rotary positions, and most layers see only what is near."""

from collections.abc import Mapping
from typing import Any

from tfm.config.model import Config
from tfm.hf.config import Family, Field, Head
from tfm.hf.names import Theirs

LAYER = "model.layers.{}"
NAMES: dict[str, str | Theirs] = {
    "encoder.embed.tokens": "model.embeddings.tok_embeddings.weight",
    "encoder.embed.norm": "model.embeddings.norm",
    **{
        f"encoder.blocks.attn.{ours}": Theirs(f"{LAYER}.attn.Wqkv", n, 3)
        for n, ours in enumerate(("query", "key", "value"))
    },
    "encoder.blocks.attn.output": f"{LAYER}.attn.Wo",
    "encoder.blocks.attn_norm": Theirs(f"{LAYER}.attn_norm", first=1),
    **{f"encoder.blocks.ffn.{ours}": Theirs(f"{LAYER}.mlp.Wi", n, 2) for n, ours in enumerate(("gate", "up"))},
    "encoder.blocks.ffn.down": f"{LAYER}.mlp.Wo",
    "encoder.blocks.ffn_norm": f"{LAYER}.mlp_norm",
    "encoder.norm": "model.final_norm",
}
# What all heads begin with.
POOLER = {"pooler": "head.dense", "norm": "head.norm"}
DENSE = {"dense": "head.dense", "norm": "head.norm"}
OUTPUT = {"output": "classifier"}


def read(fields: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """Which layers see everything, and the bases of rotary positions: newer folders give both for each kind of layer."""
    every, (far, near) = _every(fields), _bases(fields)
    found = {"global_every": every, "rotary_base": far if every else near, "rotary_base_near": near if every else 0.0}
    known = {
        "layer_types",
        "global_attn_every_n_layers",
        "rope_parameters",
        "rope_scaling",
        "global_rope_theta",
        "local_rope_theta",
    }
    return found, known


def _every(fields: Mapping[str, Any]) -> int:
    """Every so many layers one sees everything; 0 for none. Raises ValueError for layers that are in another order."""
    kinds, said = fields.get("layer_types"), fields.get("global_attn_every_n_layers", 3)
    if kinds is None:
        return said
    for every in (said or 0, *range(len(kinds) + 1)):
        if list(kinds) == _kinds(every, len(kinds)):
            return every
    raise ValueError(
        "config.json has layer_types in which full_attention does not come at equal distances from the first layer on"
    )


def _kinds(every: int, layers: int) -> list[str]:
    """Their names of the layers."""
    return ["sliding_attention" if not every or layer % every else "full_attention" for layer in range(layers)]


def _bases(fields: Mapping[str, Any]) -> tuple[float, float]:
    """The bases of layers that see everything and of the others. Raises ValueError for scaled ones."""
    bases = []
    older = fields.get("global_rope_theta", 160_000.0), fields.get("local_rope_theta", 10_000.0)
    for kind, base in zip(("full_attention", "sliding_attention"), older, strict=True):
        given = {**((fields.get("rope_parameters") or {}).get(kind) or {}), **(fields.get("rope_scaling") or {})}
        scaling = given.get("rope_type", given.get("type", "default"))
        if scaling != "default":
            raise ValueError(f"config.json has rotary positions of type {scaling}; only default ones are supported")
        bases.append(given.get("rope_theta", base))
    return float(bases[0]), float(bases[1] or bases[0])


def write(config: Config) -> dict[str, Any]:
    """See `read`; both the newer and the older fields."""
    bases = {"full_attention": config.rotary_base, "sliding_attention": config.rotary_base_near or config.rotary_base}
    return {
        "layer_types": _kinds(config.global_every, config.layers),
        "global_attn_every_n_layers": config.global_every or None,
        "rope_parameters": {kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()},
        "global_rope_theta": bases["full_attention"],
        "local_rope_theta": bases["sliding_attention"],
    }


MODERNBERT = Family(
    name="modernbert",
    prefix="model.",
    fields={
        "vocab_size": Field("vocab", 50368),
        "hidden_size": Field("width", 768),
        "intermediate_size": Field("ffn", 1152),
        "num_hidden_layers": Field("layers", 22),
        "num_attention_heads": Field("heads", 12),
        "max_position_embeddings": Field("length", 8192),
        "local_attention": Field("window", 128),
        "norm_eps": Field("norm_eps", 1e-5),
        "norm_bias": Field("norm", False, {False: "layer_no_bias", True: "layer"}),
        "attention_bias": Field("bias", False),
        "classifier_bias": Field("head_bias", False),
        "classifier_pooling": Field("pool", "cls", {"cls": "first", "mean": "mean"}),
        "embedding_dropout": Field("dropout", 0.0),
        "attention_dropout": Field("attn_dropout", 0.0),
        "tie_word_embeddings": Field("tied", True),
    },
    same={"mlp_bias": "attention_bias", "mlp_dropout": "embedding_dropout"},
    only={"hidden_activation": ("gelu",), "classifier_activation": ("gelu",), "decoder_bias": (True,)},
    ours={
        "order": "pre",
        "position": "rotary",
        "activation": "geglu",
        "token_types": 0,
        "first_norm": False,
        "pool_activation": "gelu",
        "pool_norm": True,
    },
    free=frozenset(
        """cls_token_id deterministic_flash_attn initializer_cutoff_factor position_embedding_type reference_compile
        repad_logits_with_grad sparse_pred_ignore_index sparse_prediction""".split()
    ),
    read=read,
    write=write,
    names=NAMES,
    heads={
        "ModernBertForMaskedLM": Head(
            "mlm",
            {
                "head.dense": "head.dense",
                "head.norm": "head.norm",
                "head.bias": "decoder.bias",
                "head.table": "decoder.weight",
            },
        ),
        "ModernBertModel": Head("model"),
        "ModernBertForSequenceClassification": Head("classify", POOLER | OUTPUT),
        "ModernBertForTokenClassification": Head("tag", DENSE | OUTPUT),
        "ModernBertForQuestionAnswering": Head("tag", DENSE | OUTPUT, {"classes": 2}),
    },
    unused=r"^head\.|^decoder\.|rotary_emb\.",
)

"""DeBERTa-v2 and v3 (He et al. 2021, 2023): disentangled attention."""

from collections.abc import Mapping
from typing import Any

from tfm.config.model import Config
from tfm.hf.config import Family, Field, Head
from tfm.hf.families import bert
from tfm.hf.names import Theirs

ENCODER = "deberta.encoder"
ATTENTION = f"{ENCODER}.layer.{{}}.attention.self"


def read(fields: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """What attention knows of distances, and how wide the embeddings are. Raises ValueError for what fits no other field."""
    relative, types = fields.get("relative_attention", False), _types(fields.get("pos_att_type"))
    if types and not relative:
        raise ValueError(
            f"config.json has pos_att_type={types} without relative_attention; of deberta-v2, only both are supported"
        )
    width, heads = fields.get("hidden_size", 1536), fields.get("num_attention_heads", 24)
    size, embedding = fields.get("attention_head_size") or width / heads, fields.get("embedding_size", width)
    if size * heads != width:
        raise ValueError(
            f"config.json has attention_head_size={size}; of deberta-v2, only hidden_size / num_attention_heads is supported"
        )
    found: dict[str, Any] = {
        "relative": "_".join(types) or "none",
        "embed_width": embedding if embedding != width else 0,
    }
    known = "relative_attention pos_att_type share_att_key norm_rel_ebd position_buckets max_relative_positions legacy".split()
    known += ["embedding_size", "attention_head_size"]
    buckets, far = fields.get("position_buckets", -1), fields.get("max_relative_positions", -1)
    far = far if far > 0 else fields.get("max_position_embeddings", 512)
    return found | {
        "relative_shared": bool(types) and fields.get("share_att_key", False),
        "relative_norm": bool(types) and "layer_norm" in _words(fields.get("norm_rel_ebd", "none")),
        "buckets": (2 * (buckets if buckets > 0 else far)) if types else Config.buckets,
        "bucket_distance": (far if buckets > 0 else 0) if types else Config.bucket_distance,
    }, set(known)


def _types(given: str | list[str] | None) -> list[str]:
    """What is compared with distances, in our order. Raises ValueError for something else."""
    words = _words(given) if isinstance(given, str) else given or []
    if not set(words) <= {"c2p", "p2c", ""}:
        raise ValueError(f"config.json has pos_att_type={given}; of deberta-v2, only c2p and p2c are supported")
    return [word for word in ("c2p", "p2c") if word in words]


def _words(given: str) -> list[str]:
    """The parts of a|b."""
    return [word.strip() for word in given.lower().split("|")]


def write(config: Config) -> dict[str, Any]:
    """See `read`."""
    types = [word for word in ("p2c", "c2p") if word in config.relative]
    return {
        "relative_attention": bool(types),
        "pos_att_type": types,
        "share_att_key": config.relative_shared,
        "norm_rel_ebd": "layer_norm" if config.relative_norm else "none",
        "position_buckets": config.buckets // 2 if types and config.bucket_distance else -1,
        "max_relative_positions": (config.bucket_distance or config.buckets // 2) if types else -1,
        "embedding_size": config.sizes["U"],
        "legacy": True,
    }


DEBERTA = Family(
    name="deberta-v2",
    prefix="deberta.",
    fields=bert.FIELDS
    | {
        "vocab_size": Field("vocab", 128100),
        "hidden_size": Field("width", 1536),
        "num_hidden_layers": Field("layers", 24),
        "num_attention_heads": Field("heads", 24),
        "intermediate_size": Field("ffn", 6144),
        "type_vocab_size": Field("token_types", 0),
        "layer_norm_eps": Field("norm_eps", 1e-7),
        "position_biased_input": Field("position", True, {True: "learned", False: "none"}),
        "pooler_hidden_act": Field("pool_activation", "gelu", {name: name for name in ("gelu", "tanh", "relu")}),
    },
    same={"pooler_hidden_size": "hidden_size"},
    only={"conv_kernel_size": (0,), "tie_word_embeddings": (True,)},
    ours={"embed_map": "first"},
    free=frozenset(("cls_dropout", "conv_act", "conv_groups", "pooler_dropout", "position_embedding_type")),
    read=read,
    write=write,
    names=bert.names("deberta")
    | {
        "encoder.embed.up": "deberta.embeddings.embed_proj",
        "encoder.distances.table": f"{ENCODER}.rel_embeddings.weight",
        "encoder.distances.norm": f"{ENCODER}.LayerNorm",
        "encoder.blocks.attn.query": f"{ATTENTION}.query_proj",
        "encoder.blocks.attn.key": f"{ATTENTION}.key_proj",
        "encoder.blocks.attn.value": f"{ATTENTION}.value_proj",
        "encoder.blocks.attn.place_query": f"{ATTENTION}.pos_query_proj",
        "encoder.blocks.attn.place_key": f"{ATTENTION}.pos_key_proj",
    },
    heads={
        # With legacy=false the same head has other names.
        "DebertaV2ForMaskedLM": Head(
            "mlm",
            {
                "head.dense": Theirs("cls.predictions.transform.dense", other="lm_predictions.lm_head.dense"),
                "head.norm": Theirs("cls.predictions.transform.LayerNorm", other="lm_predictions.lm_head.LayerNorm"),
                "head.bias": Theirs("cls.predictions.bias", other="lm_predictions.lm_head.bias"),
            },
        ),
        "DebertaV2Model": Head("model"),
        "DebertaV2ForSequenceClassification": Head("classify", {"pooler": "pooler.dense", "output": "classifier"}),
        "DebertaV2ForTokenClassification": Head("tag", {"output": "classifier"}),
        "DebertaV2ForQuestionAnswering": Head("tag", {"output": "qa_outputs"}, {"classes": 2}),
    },
    unused=r"position_ids$|embeddings\.position_embeddings\.|encoder\.LayerNorm\.|^cls\.|^pooler\.|^(lm|mask)_predictions\.",
)

"""DeBERTa-v2 and v3 (He et al. 2021, 2023): disentangled attention."""

from tfm.catalogue.options.positions.relative import Disentangled
from tfm.config.inputs import Tokens
from tfm.config.model import Config
from tfm.config.positions import Learned
from tfm.hf.families.encoders import bert
from tfm.hf.family import Family, HfField, HfHead, Reading
from tfm.hf.fields import OTHER_LAYERS, TRAINING, UNREAD, Fields, because
from tfm.hf.parameters import HfTensor
from tfm.options.json_text import Json

ENCODER = "deberta.encoder"
ATTENTION = f"{ENCODER}.layer.{{}}.attention.self"


def read(fields: Fields) -> Reading:
    """Positions, and the width of the embeddings. Raises ValueError for combinations that are not supported."""
    width, heads = fields.get("hidden_size", 1536), fields.get("num_attention_heads", 24)
    head_size, embedding = fields.get("attention_head_size") or width / heads, fields.get("embedding_size", width)
    if head_size * heads != width:
        raise ValueError(
            f"config.json has attention_head_size={head_size}; "
            "of deberta-v2, only hidden_size / num_attention_heads is supported"
        )
    used = """relative_attention pos_att_type share_att_key norm_rel_ebd position_buckets max_relative_positions legacy
    position_biased_input embedding_size attention_head_size"""
    return {"input.width": embedding if embedding != width else None, **_position(fields)}, set(used.split())


def _position(fields: Fields) -> dict[str, object]:
    """Disentangled positions, or absolute ones or none."""
    terms, absolute = _terms(fields.get("pos_att_type")), fields.get("position_biased_input", True)
    if terms and not fields.get("relative_attention", False):
        raise ValueError(
            f"config.json has pos_att_type={terms} without relative_attention; of deberta-v2, only both are supported"
        )
    if not terms:
        return {"position": "learned" if absolute else "none"}
    buckets, max_distance = fields.get("position_buckets", -1), fields.get("max_relative_positions", -1)
    if max_distance < 1:
        max_distance = fields.get("max_position_embeddings", 512)
    return {
        "position": "disentangled",
        "position.terms": "_".join(terms),
        "position.buckets": 2 * (buckets if buckets > 0 else max_distance),
        "position.max_distance": max_distance if buckets > 0 else None,
        "position.share_projections": fields.get("share_att_key", False),
        "position.norm": "layer_norm" in _words(fields.get("norm_rel_ebd", "none")),
        "position.absolute": absolute,
    }


def _terms(pos_att_type: str | list[str] | None) -> list[str]:
    """The terms of scores that compare with distances, c2p first. Raises ValueError for others."""
    words = _words(pos_att_type) if isinstance(pos_att_type, str) else pos_att_type or []
    if not set(words) <= {"c2p", "p2c", ""}:
        raise ValueError(f"config.json has pos_att_type={pos_att_type}; of deberta-v2, only c2p and p2c are supported")
    return [word for word in ("c2p", "p2c") if word in words]


def _words(text: str) -> list[str]:
    """The parts of a|b."""
    return [word.strip() for word in text.lower().split("|")]


def write(config: Config) -> dict[str, Json]:
    """See `read`."""
    position = config.position
    fields = {"embedding_size": config.sizes["U"], "legacy": True}
    if not isinstance(position, Disentangled):
        absolute = isinstance(position, Learned)
        return fields | {"relative_attention": False, "pos_att_type": [], "position_biased_input": absolute}
    return fields | {
        "relative_attention": True,
        "pos_att_type": [term for term in ("p2c", "c2p") if term in position.terms],
        "share_att_key": position.share_projections,
        "norm_rel_ebd": "layer_norm" if position.norm else "none",
        "position_buckets": position.buckets // 2 if position.max_distance else -1,
        "max_relative_positions": position.max_distance or position.buckets // 2,
        "position_biased_input": position.absolute,
    }


DEBERTA = Family(
    name="deberta-v2",
    prefix="deberta.",
    base=Config(input=Tokens(projection="first")),
    fields=bert.FIELDS
    | {
        "vocab_size": HfField("vocab", 128100),
        "hidden_size": HfField("width", 1536),
        "num_hidden_layers": HfField("layers", 24),
        "num_attention_heads": HfField("heads", 24),
        "intermediate_size": HfField("ffn", 6144),
        "type_vocab_size": HfField("input.token_types", 0, zero_is_none=True),
        "layer_norm_eps": HfField("norm_eps", 1e-7),
        "pooler_hidden_act": HfField("head.pool_activation", "gelu", {name: name for name in ("gelu", "tanh", "relu")}),
    },
    must_equal={"pooler_hidden_size": "hidden_size"},
    allowed={"conv_kernel_size": (0,), "tie_word_embeddings": (True,)},
    ignored=because(TRAINING, "cls_dropout pooler_dropout")
    | because(OTHER_LAYERS, "conv_act conv_groups")
    | because(UNREAD, "position_embedding_type"),
    read=read,
    write=write,
    names=bert.names("deberta")
    | {
        "encoder.embed.projection": "deberta.embeddings.embed_proj",
        "encoder.positions.0.table": f"{ENCODER}.rel_embeddings.weight",
        "encoder.positions.0.norm": f"{ENCODER}.LayerNorm",
        "encoder.layers.mixer.query": f"{ATTENTION}.query_proj",
        "encoder.layers.mixer.key": f"{ATTENTION}.key_proj",
        "encoder.layers.mixer.value": f"{ATTENTION}.value_proj",
        "encoder.layers.position.query": f"{ATTENTION}.pos_query_proj",
        "encoder.layers.position.key": f"{ATTENTION}.pos_key_proj",
    },
    heads={
        "DebertaV2ForMaskedLM": HfHead(
            "mlm",
            {
                "head.dense": HfTensor("cls.predictions.transform.dense", fallback_name="lm_predictions.lm_head.dense"),
                "head.norm": HfTensor(
                    "cls.predictions.transform.LayerNorm", fallback_name="lm_predictions.lm_head.LayerNorm"
                ),
                "head.bias": HfTensor("cls.predictions.bias", fallback_name="lm_predictions.lm_head.bias"),
            },
        ),
        "DebertaV2Model": HfHead("model"),
        "DebertaV2ForSequenceClassification": HfHead("classify", {"pooler": "pooler.dense", "output": "classifier"}),
        "DebertaV2ForTokenClassification": HfHead("tag", {"output": "classifier"}),
        "DebertaV2ForQuestionAnswering": HfHead("span", {"output": "qa_outputs"}, {"classes": 2}),
        "DebertaV2ForMultipleChoice": HfHead(
            "choice", {"pooler": "pooler.dense", "output": "classifier"}, {"classes": 1}
        ),
    },
    unused=r"position_ids$|embeddings\.position_embeddings\.|encoder\.LayerNorm\."
    r"|^cls\.|^pooler\.|^(lm|mask)_predictions\.",
    copies=bert.copies("deberta"),
    spellings={"legacy": {True: "cls.predictions.", False: "lm_predictions."}},
)

"""ALBERT (Lan et al. 2020): narrow embeddings, and one layer that is used again and again."""

from tfm.config.inputs import Tokens
from tfm.config.model import Config
from tfm.hf.families.encoders import bert
from tfm.hf.family import Family, HfField, HfHead
from tfm.hf.fields import UNREAD, because

LAYER = "albert.encoder.albert_layer_groups.0.albert_layers.0"
MLM = {
    "head.dense": "predictions.dense",
    "head.norm": "predictions.LayerNorm",
    "head.bias": "predictions.bias",
}
POOLER = {"pooler": "albert.pooler"}

ALBERT = Family(
    name="albert",
    prefix="albert.",
    base=Config(share_layers=True, input=Tokens(width=128)),
    fields=bert.FIELDS
    | {
        "vocab_size": HfField("vocab", 30000),
        "embedding_size": HfField("input.width", 128),
        "hidden_size": HfField("width", 4096),
        "num_attention_heads": HfField("heads", 64),
        "intermediate_size": HfField("ffn", 16384),
        "hidden_act": bert.FIELDS["hidden_act"]._replace(default="gelu_new"),
        "hidden_dropout_prob": HfField("dropout", 0.0),
        "attention_probs_dropout_prob": HfField("attn_dropout", 0.0),
    },
    allowed=bert.ALLOWED | {"num_hidden_groups": (1,), "inner_group_num": (1,)},
    ignored=because(UNREAD, "net_structure_type gap_size num_memory_blocks down_scale_factor"),
    canonicalize=bert.canonicalize,
    names={
        "encoder.embed.tokens": "albert.embeddings.word_embeddings.weight",
        "encoder.embed.positions": "albert.embeddings.position_embeddings.weight",
        "encoder.embed.types": "albert.embeddings.token_type_embeddings.weight",
        "encoder.embed.norm": "albert.embeddings.LayerNorm",
        "encoder.embed.projection": "albert.encoder.embedding_hidden_mapping_in",
        "encoder.layers.mixer.query": f"{LAYER}.attention.query",
        "encoder.layers.mixer.key": f"{LAYER}.attention.key",
        "encoder.layers.mixer.value": f"{LAYER}.attention.value",
        "encoder.layers.mixer.output": f"{LAYER}.attention.dense",
        "encoder.layers.residual.mixer": f"{LAYER}.attention.LayerNorm",
        "encoder.layers.feed_forward.up": f"{LAYER}.ffn",
        "encoder.layers.feed_forward.down": f"{LAYER}.ffn_output",
        "encoder.layers.residual.feed_forward": f"{LAYER}.full_layer_layer_norm",
    },
    heads={
        "AlbertModel": HfHead("model", POOLER),
        "AlbertForMaskedLM": HfHead("mlm", MLM),
        "AlbertForPreTraining": HfHead("pretrain", MLM | POOLER | {"next": "sop_classifier.classifier"}),
        "AlbertForSequenceClassification": HfHead("classify", POOLER | {"output": "classifier"}),
        "AlbertForTokenClassification": HfHead("tag", {"output": "classifier"}),
        "AlbertForQuestionAnswering": HfHead("span", {"output": "qa_outputs"}, {"classes": 2}),
        "AlbertForMultipleChoice": HfHead("choice", POOLER | {"output": "classifier"}, {"classes": 1}),
    },
    unused=r"position_ids$|^predictions\.|^sop_classifier\.|pooler\.",
    copies=bert.copies("albert", "predictions"),
)

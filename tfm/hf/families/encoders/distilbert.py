"""DistilBERT (Sanh et al. 2019): half of BERT, without token types."""

from tfm.config.heads import Head
from tfm.config.inputs import Tokens
from tfm.config.model import Config
from tfm.hf.family import Family, HfField, HfHead
from tfm.hf.fields import ACTIVATIONS, TRAINING, UNREAD, because

LAYER = "distilbert.transformer.layer.{}"

DISTILBERT = Family(
    name="distilbert",
    prefix="distilbert.",
    base=Config(input=Tokens(token_types=None), norm_eps=1e-12, head=Head(pool_activation="relu")),
    fields={
        "vocab_size": HfField("vocab", 30522),
        "dim": HfField("width", 768),
        "n_layers": HfField("layers", 6),
        "n_heads": HfField("heads", 12),
        "hidden_dim": HfField("ffn", 3072),
        "activation": HfField("activation", "gelu", ACTIVATIONS),
        "dropout": HfField("dropout", 0.1),
        "attention_dropout": HfField("attn_dropout", 0.1),
        "max_position_embeddings": HfField("length", 512),
        "tie_word_embeddings": HfField("tie_embeddings", True),
    },
    aliases={"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"},
    ignored=because(TRAINING, "sinusoidal_pos_embds qa_dropout seq_classif_dropout") | because(UNREAD, "tie_weights_"),
    names={
        "encoder.embed.tokens": "distilbert.embeddings.word_embeddings.weight",
        "encoder.embed.positions": "distilbert.embeddings.position_embeddings.weight",
        "encoder.embed.norm": "distilbert.embeddings.LayerNorm",
        "encoder.layers.mixer.query": f"{LAYER}.attention.q_lin",
        "encoder.layers.mixer.key": f"{LAYER}.attention.k_lin",
        "encoder.layers.mixer.value": f"{LAYER}.attention.v_lin",
        "encoder.layers.mixer.output": f"{LAYER}.attention.out_lin",
        "encoder.layers.residual.mixer": f"{LAYER}.sa_layer_norm",
        "encoder.layers.feed_forward.up": f"{LAYER}.ffn.lin1",
        "encoder.layers.feed_forward.down": f"{LAYER}.ffn.lin2",
        "encoder.layers.residual.feed_forward": f"{LAYER}.output_layer_norm",
    },
    heads={
        "DistilBertModel": HfHead("model"),
        "DistilBertForMaskedLM": HfHead(
            "mlm",
            {
                "head.dense": "vocab_transform",
                "head.norm": "vocab_layer_norm",
                "head.table": "vocab_projector.weight",
                "head.bias": "vocab_projector.bias",
            },
        ),
        "DistilBertForSequenceClassification": HfHead("classify", {"pooler": "pre_classifier", "output": "classifier"}),
        "DistilBertForTokenClassification": HfHead("tag", {"output": "classifier"}),
        "DistilBertForQuestionAnswering": HfHead("span", {"output": "qa_outputs"}, {"classes": 2}),
        "DistilBertForMultipleChoice": HfHead(
            "choice", {"pooler": "pre_classifier", "output": "classifier"}, {"classes": 1}
        ),
    },
    unused=r"position_ids$|^vocab_",
    copies={"distilbert.embeddings.word_embeddings.weight": ("vocab_projector.weight",)},
)

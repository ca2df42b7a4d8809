"""ELECTRA (Clark et al. 2020): embeddings may be narrower than layers, and the discriminator is what is used."""

from tfm.config.heads import Head
from tfm.config.model import Config
from tfm.hf.families.encoders import bert
from tfm.hf.family import Family, HfField, HfHead, Reading
from tfm.hf.fields import TRAINING, Fields, because
from tfm.options.json_text import Json


def read(fields: Fields) -> Reading:
    """The width of embeddings; where it is that of the layers, there is no map between them."""
    embedding, width = fields.get("embedding_size", 128), fields.get("hidden_size", 256)
    return {"input.width": embedding if embedding != width else None}, {"embedding_size"}


def write(config: Config) -> dict[str, Json]:
    """See `read`."""
    return {"embedding_size": config.sizes["U"]}


ELECTRA = Family(
    name="electra",
    prefix="electra.",
    base=Config(head=Head(pool_activation="gelu")),
    fields=bert.FIELDS
    | {
        "hidden_size": HfField("width", 256),
        "num_attention_heads": HfField("heads", 4),
        "intermediate_size": HfField("ffn", 1024),
    },
    # The summary is the pooler of the multiple-choice head.
    allowed=bert.ALLOWED
    | {
        "hidden_act": ("gelu",),
        "summary_type": ("first",),
        "summary_use_proj": (True,),
        "summary_activation": ("gelu",),
    },
    ignored=because(TRAINING, "summary_last_dropout"),
    read=read,
    write=write,
    canonicalize=bert.canonicalize,
    names=bert.names("electra") | {"encoder.embed.projection": "electra.embeddings_project"},
    heads={
        "ElectraModel": HfHead("model"),
        "ElectraForMaskedLM": HfHead(
            "mlm",
            {
                "head.dense": "generator_predictions.dense",
                "head.norm": "generator_predictions.LayerNorm",
                "head.bias": "generator_lm_head.bias",
            },
        ),
        "ElectraForPreTraining": HfHead(
            "detect",
            {"dense": "discriminator_predictions.dense", "output": "discriminator_predictions.dense_prediction"},
            {"classes": 1},
        ),
        "ElectraForSequenceClassification": HfHead(
            "classify", {"pooler": "classifier.dense", "output": "classifier.out_proj"}
        ),
        "ElectraForTokenClassification": HfHead("tag", {"output": "classifier"}),
        "ElectraForQuestionAnswering": HfHead("span", {"output": "qa_outputs"}, {"classes": 2}),
        "ElectraForMultipleChoice": HfHead(
            "choice", {"pooler": "sequence_summary.summary", "output": "classifier"}, {"classes": 1}
        ),
    },
    unused=r"position_ids$|^generator_|^discriminator_",
    copies={"electra.embeddings.word_embeddings.weight": ("generator_lm_head.weight",)},
)

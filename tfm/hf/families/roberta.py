"""RoBERTa (Liu et al. 2019): BERT with other positions and a classifier that needs no pooler."""

from collections.abc import Mapping
from typing import Any

from tfm.config.model import Config
from tfm.hf.config import Family, Field, Head
from tfm.hf.families import bert
from tfm.hf.names import Theirs

# The first position is 2: the table's first rows belong to nothing and to padding.
UNUSED_ROWS = 2
CLASSIFIER = {"pooler": "classifier.dense", "output": "classifier.out_proj"}


def read(fields: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """The table of positions has rows that no position uses."""
    return {"length": fields.get("max_position_embeddings", 512) - UNUSED_ROWS}, {"max_position_embeddings"}


def write(config: Config) -> dict[str, Any]:
    """See `read`."""
    return {"max_position_embeddings": config.length + UNUSED_ROWS, "pad_token_id": 1}


ROBERTA = Family(
    name="roberta",
    prefix="roberta.",
    fields={name: field for name, field in bert.FIELDS.items() if name != "max_position_embeddings"}
    | {"vocab_size": Field("vocab", 50265)},
    only=bert.ONLY | {"pad_token_id": (1,), "hidden_act": ("gelu",)},
    read=read,
    write=write,
    names=bert.names("roberta")
    | {"encoder.embed.positions": Theirs("roberta.embeddings.position_embeddings.weight", skip=UNUSED_ROWS)},
    heads={
        "RobertaModel": Head("model", {"pooler": "roberta.pooler.dense"}),
        "RobertaForMaskedLM": Head(
            "mlm",
            {
                "head.dense": "lm_head.dense",
                "head.norm": "lm_head.layer_norm",
                "head.bias": "lm_head.bias",
            },
        ),
        "RobertaForSequenceClassification": Head("classify", CLASSIFIER),
        "RobertaForTokenClassification": Head("tag", {"output": "classifier"}),
        "RobertaForQuestionAnswering": Head("tag", {"output": "qa_outputs"}, {"classes": 2}),
    },
    unused=r"position_ids$|^lm_head\.|pooler\.",
)

"""RoBERTa (Liu et al. 2019), XLM-RoBERTa (Conneau et al. 2020), CamemBERT (Martin et al. 2020): shifted positions.

The classifier of texts has no pooler.
"""

import dataclasses

from tfm.config.model import Config
from tfm.hf.families.encoders import bert
from tfm.hf.family import Family, HfField, HfHead, Reading
from tfm.hf.fields import Fields
from tfm.hf.parameters import HfTensor
from tfm.options.json_text import Json

# Positions begin at 2: the first row of the table is unused, the second is for padding.
UNUSED_ROWS = 2


def read(fields: Fields) -> Reading:
    """The length; the table of positions has unused rows."""
    return {"length": fields.get("max_position_embeddings", 512) - UNUSED_ROWS}, {"max_position_embeddings"}


def write(config: Config) -> dict[str, Json]:
    """See `read`."""
    return {"max_position_embeddings": config.length + UNUSED_ROWS, "pad_token_id": 1}


def heads(model: str, name: str) -> dict[str, HfHead]:
    """The heads of a model whose tensors begin with `model`, and whose architectures begin with `name`."""
    classifier = {"pooler": "classifier.dense", "output": "classifier.out_proj"}
    pooler = {"pooler": f"{model}.pooler.dense"}
    mlm = {"head.dense": "lm_head.dense", "head.norm": "lm_head.layer_norm", "head.bias": "lm_head.bias"}
    return {
        f"{name}Model": HfHead("model", pooler),
        f"{name}ForMaskedLM": HfHead("mlm", mlm),
        f"{name}ForSequenceClassification": HfHead("classify", classifier),
        f"{name}ForTokenClassification": HfHead("tag", {"output": "classifier"}),
        f"{name}ForQuestionAnswering": HfHead("span", {"output": "qa_outputs"}, {"classes": 2}),
        f"{name}ForMultipleChoice": HfHead("choice", pooler | {"output": "classifier"}, {"classes": 1}),
    }


FIELDS = {name: field for name, field in bert.FIELDS.items() if name != "max_position_embeddings"}
ALLOWED = bert.ALLOWED | {"pad_token_id": (1,), "hidden_act": ("gelu",)}
UNUSED = r"position_ids$|^lm_head\.|pooler\."

ROBERTA = Family(
    name="roberta",
    prefix="roberta.",
    base=Config(),
    fields=FIELDS | {"vocab_size": HfField("vocab", 50265)},
    allowed=ALLOWED,
    read=read,
    write=write,
    canonicalize=bert.canonicalize,
    names=bert.names("roberta")
    | {"encoder.embed.positions": HfTensor("roberta.embeddings.position_embeddings.weight", skip_rows=UNUSED_ROWS)},
    heads=heads("roberta", "Roberta"),
    unused=UNUSED,
    copies=bert.copies("roberta", "lm_head"),
)
XLM_ROBERTA = dataclasses.replace(ROBERTA, name="xlm-roberta", heads=heads("roberta", "XLMRoberta"))
CAMEMBERT = dataclasses.replace(
    ROBERTA,
    name="camembert",
    fields=FIELDS | {"vocab_size": HfField("vocab", 32005)},
    heads=heads("roberta", "Camembert"),
)

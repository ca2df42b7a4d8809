"""FNet (Lee-Thorp et al. 2021): Fourier transforms in the place of attention.

transformers mixes padding as it is, whatever a mask says, and so do models that are read from its folders.
"""

import dataclasses

from tfm.catalogue.options.mixers.static import FNet
from tfm.config.inputs import Tokens
from tfm.config.model import Config
from tfm.hf.families.encoders import bert
from tfm.hf.family import Family, HfField, HfHead, Reading
from tfm.hf.fields import CODE, Fields, because
from tfm.params import PyTree

LAYER = "fnet.encoder.layer.{}"
POOLER = {"pooler": "fnet.pooler.dense"}
# What FNet lacks.
HEADS = ("num_attention_heads", "attention_probs_dropout_prob")


def read(fields: Fields) -> Reading:
    """A map leads from the embeddings, which are as wide as the layers, to the first layer."""
    return {"input.width": fields.get("hidden_size", 768)}, set()


def canonicalize(config: Config, params: PyTree) -> tuple[Config, PyTree]:
    """The model with one head: no parameter belongs to a head."""
    config, params = bert.canonicalize(config, params)
    if any(not isinstance(kind.mixer, FNet) for kind in config.kinds):
        return config, params
    return dataclasses.replace(config, heads=1, kv_heads=None, head_size=None, attn_dropout=None), params


FNET = Family(
    name="fnet",
    prefix="fnet.",
    base=Config(heads=1, mixer=FNet(reads_padding=True), input=Tokens(width=768)),
    fields={name: field for name, field in bert.FIELDS.items() if name not in HEADS}
    | {
        "vocab_size": HfField("vocab", 32000),
        "hidden_act": bert.FIELDS["hidden_act"]._replace(default="gelu_new"),
        "type_vocab_size": HfField("input.token_types", 4, zero_is_none=True),
    },
    # With them, transformers computes the same by other products.
    ignored=because(CODE, "use_tpu_fourier_optimizations tpu_short_seq_length"),
    allowed={"tie_word_embeddings": (True,)},
    read=read,
    canonicalize=canonicalize,
    names={
        "encoder.embed.tokens": "fnet.embeddings.word_embeddings.weight",
        "encoder.embed.positions": "fnet.embeddings.position_embeddings.weight",
        "encoder.embed.types": "fnet.embeddings.token_type_embeddings.weight",
        "encoder.embed.norm": "fnet.embeddings.LayerNorm",
        "encoder.embed.projection": "fnet.embeddings.projection",
        "encoder.layers.residual.mixer": f"{LAYER}.fourier.output.LayerNorm",
        "encoder.layers.feed_forward.up": f"{LAYER}.intermediate.dense",
        "encoder.layers.feed_forward.down": f"{LAYER}.output.dense",
        "encoder.layers.residual.feed_forward": f"{LAYER}.output.LayerNorm",
    },
    heads={
        "FNetModel": HfHead("model", POOLER),
        "FNetForMaskedLM": HfHead("mlm", bert.MLM),
        "FNetForPreTraining": HfHead("pretrain", bert.MLM | POOLER | {"next": "cls.seq_relationship"}),
        "FNetForSequenceClassification": HfHead("classify", POOLER | {"output": "classifier"}),
        "FNetForNextSentencePrediction": HfHead(
            "classify", POOLER | {"output": "cls.seq_relationship"}, {"classes": 2}
        ),
        "FNetForTokenClassification": HfHead("tag", {"output": "classifier"}),
        "FNetForQuestionAnswering": HfHead("span", {"output": "qa_outputs"}, {"classes": 2}),
        "FNetForMultipleChoice": HfHead("choice", POOLER | {"output": "classifier"}, {"classes": 1}),
    },
    unused=r"position_ids$|token_type_ids$|dft_mat_|^cls\.|pooler\.",
    spare=r"^fnet\.pooler\.",
    copies=bert.copies("fnet"),
)

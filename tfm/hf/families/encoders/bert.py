"""BERT (Devlin et al. 2018)."""

import dataclasses

import jax.numpy as jnp

from tfm.config.inputs import Tokens
from tfm.config.model import Config
from tfm.hf.family import Family, HfField, HfHead
from tfm.hf.fields import ACTIVATIONS, Fields
from tfm.inputs import Embed
from tfm.options.json_text import Json
from tfm.params import PyTree


def read_pooler(fields: Fields, default: str) -> dict[str, object]:
    """The activation of a pooler that has that of the layers, by default `default`."""
    return {"head.pool_activation": ACTIVATIONS.get(fields.get("hidden_act", default), "tanh")}


def names(model: str) -> dict[str, str]:
    """The tensors of an encoder whose names begin with `model`."""
    layer = f"{model}.encoder.layer.{{}}"
    return {
        "encoder.embed.tokens": f"{model}.embeddings.word_embeddings.weight",
        "encoder.embed.positions": f"{model}.embeddings.position_embeddings.weight",
        "encoder.embed.types": f"{model}.embeddings.token_type_embeddings.weight",
        "encoder.embed.norm": f"{model}.embeddings.LayerNorm",
        "encoder.layers.mixer.query": f"{layer}.attention.self.query",
        "encoder.layers.mixer.key": f"{layer}.attention.self.key",
        "encoder.layers.mixer.value": f"{layer}.attention.self.value",
        "encoder.layers.mixer.output": f"{layer}.attention.output.dense",
        "encoder.layers.residual.mixer": f"{layer}.attention.output.LayerNorm",
        "encoder.layers.feed_forward.up": f"{layer}.intermediate.dense",
        "encoder.layers.feed_forward.down": f"{layer}.output.dense",
        "encoder.layers.residual.feed_forward": f"{layer}.output.LayerNorm",
    }


def canonicalize(config: Config, params: PyTree) -> tuple[Config, PyTree]:
    """A model without token types as one with two that are zeros: transformers has no such model."""
    tokens = config.input
    embed = params.encoder.embed if hasattr(params, "encoder") else None
    if not isinstance(tokens, Tokens) or tokens.token_types is not None or not isinstance(embed, Embed):
        return config, params
    types = jnp.zeros((2, embed.tokens.shape[1]), jnp.float32)
    encoder = dataclasses.replace(params.encoder, embed=dataclasses.replace(embed, types=types))
    config = dataclasses.replace(config, input=dataclasses.replace(tokens, token_types=2))
    return config, dataclasses.replace(params, encoder=encoder)


FIELDS = {
    "vocab_size": HfField("vocab", 30522),
    "hidden_size": HfField("width", 768),
    "num_hidden_layers": HfField("layers", 12),
    "num_attention_heads": HfField("heads", 12),
    "intermediate_size": HfField("ffn", 3072),
    "hidden_act": HfField("activation", "gelu", ACTIVATIONS),
    "hidden_dropout_prob": HfField("dropout", 0.1),
    "attention_probs_dropout_prob": HfField("attn_dropout", 0.1),
    "max_position_embeddings": HfField("length", 512),
    "type_vocab_size": HfField("input.token_types", 2, zero_is_none=True),
    "layer_norm_eps": HfField("norm_eps", 1e-12),
}
ALLOWED: dict[str, tuple[Json, ...]] = {
    "tie_word_embeddings": (True,),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "position_embedding_type": ("absolute",),
}
MLM = {
    "head.dense": "cls.predictions.transform.dense",
    "head.norm": "cls.predictions.transform.LayerNorm",
    "head.bias": "cls.predictions.bias",
}
POOLER = {"pooler": "bert.pooler.dense"}


def copies(model: str, predictions: str = "cls.predictions") -> dict[str, tuple[str, ...]]:
    """The copies of the table of tokens and of the bias in an output that is tied to the table."""
    return {
        f"{model}.embeddings.word_embeddings.weight": (f"{predictions}.decoder.weight",),
        f"{predictions}.bias": (f"{predictions}.decoder.bias",),
    }


BERT = Family(
    name="bert",
    prefix="bert.",
    base=Config(),
    fields=FIELDS,
    allowed=ALLOWED,
    canonicalize=canonicalize,
    names=names("bert"),
    heads={
        "BertModel": HfHead("model", POOLER),
        "BertForMaskedLM": HfHead("mlm", MLM),
        "BertForPreTraining": HfHead("pretrain", MLM | POOLER | {"next": "cls.seq_relationship"}),
        "BertForSequenceClassification": HfHead("classify", POOLER | {"output": "classifier"}),
        "BertForNextSentencePrediction": HfHead(
            "classify", POOLER | {"output": "cls.seq_relationship"}, {"classes": 2}
        ),
        "BertForTokenClassification": HfHead("tag", {"output": "classifier"}),
        "BertForQuestionAnswering": HfHead("span", {"output": "qa_outputs"}, {"classes": 2}),
        "BertForMultipleChoice": HfHead("choice", POOLER | {"output": "classifier"}, {"classes": 1}),
    },
    unused=r"position_ids$|^cls\.predictions\.decoder\.|^bert\.pooler\.|^pooler\.|^cls\.",
    copies=copies("bert"),
)

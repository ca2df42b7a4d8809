"""RoFormer (Su et al. 2021): BERT with rotary positions, whose pairs are neighbours."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from tfm.config.model import Config
from tfm.config.positions import Rotary
from tfm.hf.families.encoders import bert
from tfm.hf.family import Family, HfField, HfHead, Reading
from tfm.hf.fields import Fields, Size
from tfm.options.json_text import Json
from tfm.params import PyTree


def read(fields: Fields) -> Reading:
    """The width of the embeddings, by default that of the layers, and the activation of the pooler."""
    embedding, width = fields.get("embedding_size"), fields.get("hidden_size", 768)
    values = {"input.width": None if embedding in (None, width) else embedding}
    return values | bert.read_pooler(fields, "gelu"), {"embedding_size"}


def write(config: Config) -> dict[str, Json]:
    """See `read`."""
    return {"embedding_size": config.sizes["U"]}


def canonicalize(config: Config, params: PyTree) -> tuple[Config, PyTree]:
    """The model with neighbours as the pairs that turn together: elements of queries and keys change their places."""
    config, params = bert.canonicalize(config, params)
    if config.position != Rotary() or not hasattr(params, "encoder"):
        return config, params
    order = np.arange(config.sizes["H"]).reshape(2, -1).T.ravel()

    def reorder(path: tuple, leaf: jax.Array) -> jax.Array:
        names = jax.tree_util.keystr(path, simple=True, separator=".").split(".")
        is_rotated = "mixer" in names and not {"query", "key"}.isdisjoint(names)
        return jnp.take(leaf, order, axis=-1, mode="clip") if is_rotated else leaf

    layers = jax.tree_util.tree_map_with_path(reorder, params.encoder.layers)
    encoder = dataclasses.replace(params.encoder, layers=layers)
    config = dataclasses.replace(config, position=Rotary(pairs="adjacent"))
    return config, dataclasses.replace(params, encoder=encoder)


ROFORMER = Family(
    name="roformer",
    prefix="roformer.",
    base=Config(position=Rotary(pairs="adjacent")),
    fields=bert.FIELDS
    | {
        "vocab_size": HfField("vocab", 50000),
        "max_position_embeddings": HfField("length", 1536),
    },
    types={"embedding_size": Size | None},
    allowed={name: values for name, values in bert.ALLOWED.items() if name != "position_embedding_type"}
    | {"rotary_value": (False,)},
    read=read,
    write=write,
    canonicalize=canonicalize,
    names=bert.names("roformer") | {"encoder.embed.projection": "roformer.embeddings_project"},
    heads={
        "RoFormerForMaskedLM": HfHead("mlm", bert.MLM),
        "RoFormerModel": HfHead("model"),
        "RoFormerForSequenceClassification": HfHead(
            "classify", {"pooler": "classifier.dense", "output": "classifier.out_proj"}
        ),
        "RoFormerForTokenClassification": HfHead("tag", {"output": "classifier"}),
        "RoFormerForQuestionAnswering": HfHead("span", {"output": "qa_outputs"}, {"classes": 2}),
    },
    unused=r"encoder\.embed_positions\.|^cls\.",
    constants={"roformer.encoder.embed_positions.weight": "PH"},
    copies=bert.copies("roformer"),
)

"""What the heads of the classes predict, by the names that transformers has for it."""

from typing import Any

import jax.numpy as jnp
from jax import Array

from tfm.compat.families import Seq2SeqReader
from tfm.config.model import Config
from tfm.models.classifier import Classifier, pooled_states, text_logits
from tfm.models.heads import MaskedLM, Tagger, mlm_logits, next_sentence, patch_logits, token_logits
from tfm.ops import linear
from tfm.params import PyTree

# Results of a pass by their names in transformers: arrays, tuples with an array a layer, a cache, or None.
Results = dict[str, Any]


def predictions(
    architecture: str, config: Config, model: PyTree, hidden: Array, valid: Array | None, key: Array | None
) -> Results:
    """What a head predicts from the states [B,T,D] of an encoder."""
    if isinstance(model, MaskedLM):
        logits = mlm_logits(model.head, config, hidden, model.encoder.embed.tokens)[..., : config.vocab]
        if model.next is None:
            return {"logits": logits}
        pair = "sop_logits" if architecture.startswith("Albert") else "seq_relationship_logits"
        return {"prediction_logits": logits, pair: next_sentence(model, config, hidden)}
    if architecture.endswith("MaskedImageModeling"):
        return {"logits": patch_logits(model, config, hidden, key)}
    if isinstance(model, Tagger):
        logits = token_logits(model, config, hidden, key)
        if architecture.endswith("QuestionAnswering"):
            return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}
        return {"logits": logits[..., 0] if architecture.endswith("PreTraining") else logits}
    assert isinstance(model, Classifier)
    if model.output is not None:
        return {"logits": text_logits(model, config, hidden, valid, key)}
    has_pooler = model.pooler is not None or not config.head.dense
    return {"last_hidden_state": hidden, "pooler_output": pooled_states(model, config, hidden) if has_pooler else None}


def reader_predictions(model: Seq2SeqReader, hidden: Array, is_end: Array) -> dict[str, Array]:
    """What outputs predict from the states [B,T,D] of a decoder; classes from the state of the last end of the text
    (Lewis et al. 2020, section 3.1)."""
    if model.dense is None:
        logits = linear(model.output, "BTD,DC->BTC", hidden).astype(jnp.float32)
        return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}
    length = is_end.shape[1]
    last = jnp.where(is_end.any(1), length - 1 - jnp.argmax(is_end[:, ::-1], axis=1), 0)
    states = jnp.take_along_axis(hidden, last[:, None, None], axis=1)[:, 0]
    states = jnp.tanh(linear(model.dense, "BD,DE->BE", states))
    return {"logits": linear(model.output, "BD,DC->BC", states).astype(jnp.float32)}

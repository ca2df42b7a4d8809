"""The classes of CLIP: a tower of texts, a tower of images, and both in one space."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from tfm.compat.classes import dropout_key, image_inputs
from tfm.compat.forward import Inputs, Program, Record, encoder_states, take_params
from tfm.compat.outputs import ConfigFields, Output
from tfm.compat.predictions import Results
from tfm.compat.pretrained import Pretrained
from tfm.config.model import Config
from tfm.hf.fields import Fields
from tfm.models.encoder import Encoder
from tfm.norms import norm
from tfm.ops import linear, split, unit_vectors
from tfm.params import PyTree

# [EOS] of CLIP; where config.json says 2, as older ones do, it is the largest token of a text.
END, OLDER_END = 49407, 2


class TextTowerModel(Pretrained):
    """A tower of texts."""

    config_part = "text_config"
    first_output = ""

    def __call__(
        self, input_ids, attention_mask=None, position_ids=None, params=None, dropout_rng=None, train=False,
        output_attentions=None, output_hidden_states=None, return_dict=None,
    ):  # fmt: skip
        """Rows of tokens [B,T] -> states, and that of [EOS] as pooler_output; params is a nested dict."""
        inputs = self._inputs(input_ids, attention_mask, None, position_ids)
        record = self._record(output_attentions, output_hidden_states)
        ends, key = text_ends(inputs.tokens, self.config), dropout_key(train, dropout_rng)
        values = self._results(record, self._tree(params), inputs, ends, key)
        return self._output(values, return_dict, self.first_output)

    def _results(self, record: Record, params: PyTree, inputs: Inputs, ends: Array, key: Array | None) -> Results:
        return run_texts(self._program, record, params, inputs, ends, key)


class ProjectedTextTowerModel(TextTowerModel):
    """A tower of texts, and the map of their vectors into the space that they share with images: text_embeds [B,p], of
    any length, stand before the states."""

    first_output = "text_embeds"

    @classmethod
    def _own_fields(cls, fields: Fields) -> dict[str, Any]:
        """The fields of the tower; a folder of both says the size of the space once."""
        own = super()._own_fields(fields)
        return own | {name: own.get(name, fields[name]) for name in ("projection_dim",) if name in fields}

    def _results(self, record: Record, params: PyTree, inputs: Inputs, ends: Array, key: Array | None) -> Results:
        return run_projected_texts(self._program, record, params, inputs, ends, key)


class ImageTowerModel(Pretrained):
    """A tower of images."""

    config_part, main_input_name = "vision_config", "pixel_values"

    def __call__(
        self, pixel_values, params=None, dropout_rng=None, train=False, output_attentions=None,
        output_hidden_states=None, return_dict=None,
    ):  # fmt: skip
        """Pixels [B,C,H,W] -> states, and that of [CLS] as pooler_output; params is a nested dict."""
        inputs, record = image_inputs(pixel_values), self._record(output_attentions, output_hidden_states)
        key = dropout_key(train, dropout_rng)
        return self._output(run_images(self._program, record, self._tree(params), inputs, key), return_dict)


class TowersModel(Pretrained):
    """Texts and images in one space."""

    def __call__(
        self, input_ids, pixel_values, attention_mask=None, position_ids=None, params=None, dropout_rng=None,
        train=False, output_attentions=None, output_hidden_states=None, return_dict=None,
    ):  # fmt: skip
        """Tokens [B,T] and pixels [C,...] -> logits_per_image [C,B], logits_per_text, vectors of length 1, and the
        outputs of both towers."""
        record, key = self._record(output_attentions, output_hidden_states), dropout_key(train, dropout_rng)
        texts = self._texts(input_ids, attention_mask, position_ids)
        values = compare(self._program, record, self._tree(params), *texts, image_inputs(pixel_values), key)
        towers = {name: Output(values[name]) for name in ("text_model_output", "vision_model_output")}
        return self._output(values | towers, return_dict)

    def get_text_features(
        self, input_ids, attention_mask=None, position_ids=None, params=None, dropout_rng=None, train=False
    ):
        """Tokens [B,T] -> their vectors in the shared space, of any length."""
        texts, key = self._texts(input_ids, attention_mask, position_ids), dropout_key(train, dropout_rng)
        return text_features(self._program, self._tree(params), *texts, key)

    def get_image_features(self, pixel_values, params=None, dropout_rng=None, train=False):
        """Pixels [B,C,H,W] -> their vectors in the shared space, of any length."""
        key = dropout_key(train, dropout_rng)
        return image_features(self._program, self._tree(params), image_inputs(pixel_values), key)

    def _texts(self, tokens: ArrayLike, valid: ArrayLike | None, positions: ArrayLike | None) -> tuple[Inputs, Array]:
        """What the tower of texts reads, and the places of [EOS]."""
        inputs = self._inputs(tokens, valid, None, positions)
        return inputs, text_ends(inputs.tokens, getattr(self.config, "text_config", None))


# The classes of a family, and of architectures that are called otherwise.
TOWERS = {
    "clip": TowersModel,
    "clip_text_model": TextTowerModel,
    "clip_vision_model": ImageTowerModel,
    "CLIPTextModelWithProjection": ProjectedTextTowerModel,
}


def text_ends(tokens: Array, config: ConfigFields | None) -> Array:
    """tokens [B,T] -> int32 [B], the place of the first [EOS]."""
    end = getattr(config, "eos_token_id", None)
    end = END if end is None else end
    return jnp.argmax(tokens if end == OLDER_END else tokens == end, axis=-1).astype(jnp.int32)


@partial(jax.jit, static_argnums=(0, 1))
def run_texts(
    program: Program, record: Record, params: PyTree, inputs: Inputs, ends: Array, key: Array | None
) -> Results:
    """The results of a tower of texts alone, by name."""
    return _texts(take_params(program, params).encoder, program.config, record, inputs, ends, key)


@partial(jax.jit, static_argnums=(0, 1))
def run_projected_texts(
    program: Program, record: Record, params: PyTree, inputs: Inputs, ends: Array, key: Array | None
) -> Results:
    """The results of a tower of texts and the vectors in the space of both, by name."""
    model = take_params(program, params)
    values = _texts(model.encoder, program.config, record, inputs, ends, key)
    return {"text_embeds": linear(model.projection, "BD,Dp->Bp", values.pop("pooler_output")), **values}


@partial(jax.jit, static_argnums=(0, 1))
def run_images(program: Program, record: Record, params: PyTree, inputs: Inputs, key: Array | None) -> Results:
    """The results of a tower of images alone, by name."""
    return _images(take_params(program, params).encoder, program.config, record, inputs, key)


@partial(jax.jit, static_argnums=(0,))
def text_features(program: Program, params: PyTree, inputs: Inputs, ends: Array, key: Array | None) -> Array:
    """[B,p] of texts."""
    model = take_params(program, params)
    values = _texts(model.text, program.config, Record(), inputs, ends, key)
    return linear(model.text_projection, "BD,Dp->Bp", values["pooler_output"])


@partial(jax.jit, static_argnums=(0,))
def image_features(program: Program, params: PyTree, inputs: Inputs, key: Array | None) -> Array:
    """[B,p] of images."""
    model = take_params(program, params)
    values = _images(model.image, program.config.in_images(), Record(), inputs, key)
    return linear(model.image_projection, "BD,Dp->Bp", values["pooler_output"])


@partial(jax.jit, static_argnums=(0, 1))
def compare(
    program: Program, record: Record, params: PyTree, texts: Inputs, ends: Array, images: Inputs, key: Array | None
) -> Results:
    """The logits of every image and every text, by name, with the vectors and the results of both towers."""
    model, (text_key, image_key) = take_params(program, params), split(key, 2)
    text_values = _texts(model.text, program.config, record, texts, ends, text_key)
    image_values = _images(model.image, program.config.in_images(), record, images, image_key)
    text_embeds = unit_vectors(linear(model.text_projection, "BD,Dp->Bp", text_values["pooler_output"]))
    image_embeds = unit_vectors(linear(model.image_projection, "BD,Dp->Bp", image_values["pooler_output"]))
    logits = jnp.exp(model.log_scale) * (text_embeds @ image_embeds.T)
    return {
        "logits_per_image": logits.T,
        "logits_per_text": logits,
        "text_embeds": text_embeds,
        "image_embeds": image_embeds,
        "text_model_output": text_values,
        "vision_model_output": image_values,
    }


def _texts(model: Encoder, config: Config, record: Record, inputs: Inputs, ends: Array, key: Array | None) -> Results:
    """The states of texts behind the last norm; recorded are those before it."""
    states, recorded = encoder_states(replace(model, norm=None), config, record, inputs, key, causal=True)
    hidden = _last_norm(model, config, states)
    pooled = jnp.take_along_axis(hidden, ends[:, None, None], axis=1)[:, 0]
    return {"last_hidden_state": hidden, "pooler_output": pooled, **recorded}


def _images(model: Encoder, config: Config, record: Record, inputs: Inputs, key: Array | None) -> Results:
    """The states of images before the last norm, and that of [CLS] behind it."""
    states, recorded = encoder_states(replace(model, norm=None), config, record, inputs, key)
    return {
        "last_hidden_state": states,
        "pooler_output": _last_norm(model, config, states[:, :1])[:, 0],
        **recorded,
    }


def _last_norm(model: Encoder, config: Config, states: Array) -> Array:
    """The norm of states [B,T,D] of all layers."""
    assert model.norm is not None
    return norm(config, model.norm, states)

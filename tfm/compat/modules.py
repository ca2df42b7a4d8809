"""The modules of Flax behind the towers of CLIP, for models that are built of them, such as a safety checker."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen
from jax import Array
from jax.typing import ArrayLike

from tfm.compat.forward import Inputs, Record
from tfm.compat.outputs import Output
from tfm.compat.pretrained import Pretrained
from tfm.compat.towers import ImageTowerModel, TextTowerModel, run_images, run_texts, text_ends
from tfm.params import PyTree

_STD = 0.02  # of new parameters


class FlaxCLIPVisionModule(linen.Module):
    """A tower of images as a module of Flax; its parameters are those of `FlaxCLIPVisionModel`.

    config: of the tower, an object with `to_dict` or a dict
    dtype: what layers compute in
    """

    config: Any
    dtype: Any = jnp.float32

    @linen.compact
    def __call__(
        self, pixel_values: ArrayLike, deterministic: bool = True, output_attentions: bool = False,
        output_hidden_states: bool = False, return_dict: bool = True,
    ) -> Output | tuple:  # fmt: skip
        """Pixels [B,H,W,C], the channels last -> states, and that of [CLS] as pooler_output."""
        model = _tower(ImageTowerModel, "clip_vision_model", "CLIPVisionModel", self)
        params = _params(self, model, "vision_model")
        inputs = Inputs(jnp.asarray(pixel_values, jnp.float32))
        record, key = Record(output_attentions, output_hidden_states), _key(self, deterministic)
        return model._output(run_images(model._program, record, model._tree(params), inputs, key), return_dict)


class FlaxCLIPTextModule(linen.Module):
    """A tower of texts as a module of Flax; its parameters are those of `FlaxCLIPTextModel`.

    config, dtype: as in `FlaxCLIPVisionModule`
    """

    config: Any
    dtype: Any = jnp.float32

    @linen.compact
    def __call__(
        self, input_ids: ArrayLike, attention_mask: ArrayLike | None = None, position_ids: ArrayLike | None = None,
        deterministic: bool = True, output_attentions: bool = False, output_hidden_states: bool = False,
        return_dict: bool = True,
    ) -> Output | tuple:  # fmt: skip
        """Rows of tokens [B,T] -> states, and that of [EOS] as pooler_output."""
        model = _tower(TextTowerModel, "clip_text_model", "CLIPTextModel", self)
        params = _params(self, model, "text_model")
        inputs = model._inputs(input_ids, attention_mask, None, position_ids)
        record, key = Record(output_attentions, output_hidden_states), _key(self, deterministic)
        ends = text_ends(inputs.tokens, model.config)
        return model._output(run_texts(model._program, record, model._tree(params), inputs, ends, key), return_dict)


MODULES = {module.__name__: module for module in (FlaxCLIPTextModule, FlaxCLIPVisionModule)}


def _tower(base: type[Pretrained], family: str, architecture: str, module: Any) -> Any:
    """The class of a tower, without parameters."""
    fields = {"family": family, "architecture": architecture, "base_model_prefix": ""}
    return type(architecture, (base,), fields)(module.config, dtype=module.dtype, _do_init=False)


def _params(module: linen.Module, model: Any, name: str) -> dict[str, Any]:
    """The parameters of a module, new ones at its start."""
    return {name: module.param(name, _new_params, model.params_shape_tree[name])}


def _new_params(rng: Array, shapes: PyTree) -> PyTree:
    """New parameters: 0 for biases, 1 for scales, and normal ones."""
    paths, structure = jax.tree.flatten_with_path(shapes)
    keys = jax.random.split(rng, len(paths))
    fixed = {"bias": jnp.zeros, "scale": jnp.ones}
    values = [
        fixed[path[-1].key](like.shape) if path[-1].key in fixed else _STD * jax.random.normal(key, like.shape)
        for key, (path, like) in zip(keys, paths, strict=True)
    ]
    return jax.tree.unflatten(structure, values)


def _key(module: linen.Module, deterministic: bool) -> Array | None:
    return None if deterministic else module.make_rng("dropout")

"""The base of models that scripts build of a module of Flax, such as a safety checker: parameters beside the module."""

import abc
import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen
from flax.traverse_util import unflatten_dict
from jax import Array
from jax.typing import DTypeLike

from tfm.compat.params import cast
from tfm.compat.pretrained import IGNORED, Pretrained
from tfm.hf.flax_layout import Keys, flat, flax_kernel, torch_kernel, torch_name
from tfm.hf.folder import open_weights
from tfm.hf.promised import abbreviate
from tfm.hf.tensors import write_folder


class FlaxPreTrainedModel(abc.ABC):
    """A module of Flax with its configuration and its parameters. A subclass has `config_class` and `init_weights`.

    The other classes of `tfm.compat` count as its subclasses.
    """

    config_class: Any = None
    base_model_prefix = ""
    main_input_name = "input_ids"

    def __init__(
        self,
        config: Any,
        module: linen.Module,
        input_shape: tuple = (1, 1),
        seed: int = 0,
        dtype: DTypeLike = jnp.float32,
        _do_init: bool = True,
    ):
        self.config, self.module, self.dtype = config, module, jnp.dtype(dtype)
        self.key, self.input_shape = jax.random.PRNGKey(seed), input_shape
        new = partial(self.init_weights, input_shape=input_shape)
        params = new(self.key) if _do_init else None
        self.params_shape_tree = jax.eval_shape(new, self.key) if params is None else jax.tree.map(_abstract, params)
        self._is_initialized, self._params = _do_init, params

    @abc.abstractmethod
    def init_weights(self, rng: Array, input_shape: tuple, params: Mapping | None = None) -> Mapping:
        """New parameters."""

    @classmethod
    def from_pretrained(
        cls,
        folder: str | Path,
        *,
        config: Any = None,
        dtype: DTypeLike = jnp.float32,
        _do_init: bool = True,
        subfolder: str = "",
        **kwargs: Any,
    ):
        """The model in a folder or in a subfolder of it, from safetensors or flax_model.msgpack.

        With _do_init=False, the model and its parameters. What the folder lacks starts anew, or is left out with
        _do_init=False, and what the module has not is left out: both are warned of. Raises ValueError for a parameter
        of another shape.
        """
        folder = Path(folder, subfolder)
        config = cls.config_class.from_pretrained(folder) if config is None else config
        arguments = {name: value for name, value in kwargs.items() if name == "seed" or name not in IGNORED}
        model = cls(config, dtype=dtype, _do_init=_do_init, **arguments)
        params = _read(folder, model.required_params)
        if not _do_init:
            return model, unflatten_dict(params)
        model._params = unflatten_dict(dict(flat(model.params)) | params)
        return model

    def save_pretrained(self, folder: str | Path, params: Mapping | None = None, **ignored: object):
        """Writes config.json and model.safetensors, by torch's names, of its own parameters or of others."""
        self.config.save_pretrained(folder)
        arrays = {keys: np.asarray(value) for keys, value in flat(self.params if params is None else params)}
        values = {torch_name(keys): torch_kernel(a) if keys[-1] == "kernel" else a for keys, a in arrays.items()}
        write_folder(folder, [(name, a.dtype, a.shape, partial(np.asarray, a)) for name, a in values.items()])

    @property
    def params(self) -> Mapping:
        """The parameters as a nested dict."""
        if not self._is_initialized or self._params is None:
            raise ValueError("the model was made with _do_init=False and holds no parameters; pass them as params=")
        return self._params

    @params.setter
    def params(self, params: Mapping):
        missing = self.required_params.keys() - {keys for keys, _ in flat(params)}
        if missing:
            raise ValueError(f"params lack {abbreviate(sorted(map('.'.join, missing)))}; give the whole tree")
        self._params = params

    @property
    def required_params(self) -> dict[Keys, jax.ShapeDtypeStruct]:
        """The shape of each parameter, by the keys that lead to it."""
        return {keys: _abstract(value) for keys, value in flat(self.params_shape_tree)}

    def to_bf16(self, params: Mapping, mask: Mapping | None = None) -> dict:
        """Parameters in bfloat16; with a mask, a nested dict of bools, those where it is True."""
        return cast(params, jnp.bfloat16, mask)


FlaxPreTrainedModel.register(Pretrained)


def _abstract(value: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(value.shape, value.dtype)


def _read(folder: Path, required: Mapping[Keys, jax.ShapeDtypeStruct]) -> dict[Keys, Array]:
    """The parameters in a folder, by the keys that lead to them."""
    tensors, names = open_weights(folder, {}), {keys: torch_name(keys) for keys in required}
    if missing := [name for name in names.values() if name not in tensors]:
        warnings.warn(f"{folder} has no {abbreviate(missing)}: train the model before you rely on it", stacklevel=3)
    if unused := sorted(tensors.keys() - set(names.values())):
        warnings.warn(f"{folder} has {abbreviate(unused)}, which the module has not: they are left out", stacklevel=3)
    params: dict[Keys, Array] = {}
    for keys, name in names.items():
        if name not in tensors:
            continue
        value = flax_kernel(tensors[name]) if keys[-1] == "kernel" else tensors[name]
        if value.shape != required[keys].shape:
            raise ValueError(f"{folder} has {name} of shape {value.shape}, where the module has {required[keys].shape}")
        params[keys] = jnp.array(value)
        tensors.release(name)
    return params

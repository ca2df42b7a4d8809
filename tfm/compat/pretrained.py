"""The base of the classes: loading and saving, parameters as a nested dict, inputs as arrays."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from tfm import params as specs_of
from tfm.compat.forward import Inputs, Program, Record, layout
from tfm.compat.generation import DEFAULTS, read_generation, write_generation
from tfm.compat.outputs import CONFIG_DEFAULTS, Fields, Output, fields_of
from tfm.hf import FAMILIES
from tfm.hf.folder import load, open_folder, read_config, to_hf

# Arguments of from_pretrained that are about where files come from, or change nothing here.
IGNORED = frozenset(
    """from_pt from_flax cache_dir force_download resume_download proxies local_files_only token use_auth_token revision
    trust_remote_code use_safetensors seed""".split()
)


class Pretrained:
    """What all classes share: configuration and parameters."""

    family: str
    architecture: str

    def __init__(
        self, config: Any, input_shape: tuple = (1, 1), seed: int = 0, dtype: Any = jnp.float32, _do_init: bool = True
    ):
        fields = {**fields_of(config)}
        if jnp.dtype(dtype).name not in ("float32", "bfloat16"):
            raise ValueError(
                f"dtype={jnp.dtype(dtype).name} is not supported; take jax.numpy.float32 or jax.numpy.bfloat16"
            )
        if fields.get("model_type", self.family) != self.family:
            raise ValueError(
                f"the model is of type {fields['model_type']}, and {type(self).__name__} is of {self.family}; "
                "try FlaxAutoModel"
            )
        fields |= {"model_type": self.family, "architectures": [self.architecture]}
        hf_family = FAMILIES[self.family]
        model_config = hf_family.config(fields, hf_family.heads[self.architecture])
        self.dtype = jnp.dtype(dtype)
        self.config = Fields(fields, hf_family.config_json(model_config, self.architecture))
        self.generation_config: dict[str, Any] = {}
        self._program = Program(self.family, self.architecture, replace(model_config, dtype=self.dtype.name))
        self._nested: dict | None = None
        self._model = specs_of.init(layout(self._program).specs, jax.random.key(seed)) if _do_init else None

    @classmethod
    def from_pretrained(
        cls, folder: str | Path, *, config: Any = None, dtype: Any = jnp.float32, _do_init: bool = True, **kwargs: Any
    ):
        """The model in a folder, of safetensors or flax_model.msgpack; with _do_init=False, also its parameters.

        A head that the folder lacks starts anew, with a warning; so does one of another size with
        ignore_mismatched_sizes=True. Other arguments are fields of config.json. Raises ValueError as `tfm.from_hf`
        does, and TypeError for an argument that is unknown.
        """
        fields = fields_of(config) if config is not None else read_config(Path(folder))
        ignore_mismatched_sizes = kwargs.pop("ignore_mismatched_sizes", False)
        reinitialize = ("missing", "other shape") if ignore_mismatched_sizes else ("missing",)
        fields = merge_fields(fields, {name: value for name, value in kwargs.items() if name not in IGNORED})
        model = cls(fields, dtype=dtype, _do_init=False)
        opened = open_folder(folder, model.config.to_dict(), reinitialize)
        model._model = load(opened, seed=kwargs.get("seed", 0))
        model.generation_config = read_generation(Path(folder))
        return model if _do_init else (model, model.params)

    def save_pretrained(
        self, folder: str | Path, params: Mapping | None = None, push_to_hub: bool = False, **ignored: Any
    ):
        """Writes config.json and model.safetensors, of its own parameters or of others."""
        if push_to_hub:
            raise ValueError("push_to_hub=True is not supported; save to a folder and upload that")
        model = self._tree() if params is None else layout(self._program).take(params)
        to_hf(self._program.config, model, folder, like=self.config.to_dict())
        write_generation(self.generation_config, Path(folder))

    @property
    def params(self) -> dict:
        """The parameters as a nested dict, in the layout of the old classes."""
        if self._nested is None:
            if self._model is None:
                raise ValueError(
                    "the model was made with _do_init=False and has no parameters; give them as params=, "
                    "or set model.params"
                )
            with jax.ensure_compile_time_eval():
                self._nested = layout(self._program).nest(self._model)
        return self._nested

    @params.setter
    def params(self, params: Mapping):
        layout(self._program).check(params)
        self._nested = _as_dicts(params)
        self._model = None

    def init_weights(self, rng: Array, input_shape: tuple = (1, 1), params: Mapping | None = None) -> dict:
        """New parameters."""
        return layout(self._program).nest(specs_of.init(layout(self._program).specs, rng))

    def _tree(self, params: Any = None) -> Any:
        """What a forward pass takes: these parameters, else the model's own, taken out of the nested dict only once."""
        if params is not None:
            return params
        if self._model is None:
            nested = self.params
            with jax.ensure_compile_time_eval():
                self._model = layout(self._program).take(nested)
        return self._model

    def _record(self, attentions: bool | None, hidden_states: bool | None) -> Record:
        config = self.config
        attentions = config.output_attentions if attentions is None else attentions
        hidden_states = config.output_hidden_states if hidden_states is None else hidden_states
        return Record(bool(attentions), bool(hidden_states))

    def _output(self, values: Mapping[str, Any], return_dict: bool | None) -> Any:
        output = Output(values)
        return output if (self.config.return_dict if return_dict is None else return_dict) else output.to_tuple()

    def _inputs(self, tokens: Any, valid: Any = None, types: Any = None, positions: Any = None) -> Inputs:
        """Inputs as arrays. Raises ValueError for more tokens than there are positions."""
        limit, tokens = self._program.config.max_length, jnp.asarray(tokens, jnp.int32)
        if tokens.ndim != 2:
            raise ValueError(f"input_ids have shape {tokens.shape}; they must be rows of tokens, [batch, length]")
        if limit is not None and tokens.shape[1] > limit:
            raise ValueError(
                f"{tokens.shape[1]} tokens are more than the {limit} positions of the model; truncate the input"
            )

        def rows(value: Any) -> Array | None:
            if value is None:
                return None
            return jnp.broadcast_to(jnp.atleast_2d(jnp.asarray(value, jnp.int32)), tokens.shape)

        return Inputs(tokens, None if valid is None else jnp.asarray(valid) > 0, rows(types), rows(positions))


def _as_dicts(tree: Any) -> Any:
    """Any mapping as dicts."""
    if isinstance(tree, Mapping):
        return {str(name): _as_dicts(value) for name, value in tree.items()}
    return jnp.asarray(tree)


def merge_fields(fields: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of config.json with overrides. Raises TypeError for an override that is no field."""
    overrides = dict(overrides)
    if "num_labels" in overrides:
        labels = {index: f"LABEL_{index}" for index in range(overrides.pop("num_labels"))}
        overrides = {"id2label": labels, "label2id": {label: index for index, label in labels.items()}, **overrides}
    names = {*fields, *CONFIG_DEFAULTS, *DEFAULTS, "id2label", "label2id"}
    names |= {name for hf_family in FAMILIES.values() for name in hf_family.fields}
    for name in overrides:
        if name not in names:
            raise TypeError(f"from_pretrained has no argument {name!r}, and config.json no such field")
    return {**fields, **overrides}

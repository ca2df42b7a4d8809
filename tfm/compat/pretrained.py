"""The base of the classes: loading and saving, parameters as a nested dict, inputs as arrays."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax.traverse_util import unflatten_dict
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from tfm.compat.families import COUNT_TOKENS, FAMILIES, is_bare
from tfm.compat.forward import PAD, Inputs, Program, Record, layout
from tfm.compat.generation import DEFAULTS, generation_fields, read_fields, write_generation
from tfm.compat.outputs import CONFIG_DEFAULTS, ConfigFields, ConfigLike, Output, fields_of
from tfm.compat.params import cast, completed, read_params
from tfm.compat.predictions import Results
from tfm.hf.fields import Fields
from tfm.hf.folder import open_folder, read_config
from tfm.hf.tensors import write_folder
from tfm.options.dotted import override
from tfm.params import PyTree, init

# Arguments of from_pretrained that are about where files come from, or change nothing here.
IGNORED = frozenset(
    """from_pt from_flax cache_dir force_download resume_download proxies local_files_only token use_auth_token revision
    trust_remote_code use_safetensors seed""".split()
)


class Pretrained:
    """What all classes share: configuration and parameters.

    base_model_prefix: what the bare model is called inside of one with a head
    main_input_name: the first argument of a call
    config_part: the field of config.json of a larger model that holds the configuration of this one
    """

    family: str
    architecture: str
    base_model_prefix: str
    main_input_name = "input_ids"
    config_part = ""

    def __init__(
        self,
        config: ConfigLike,
        input_shape: tuple = (1, 1),
        seed: int = 0,
        dtype: DTypeLike = jnp.float32,
        _do_init: bool = True,
    ):
        fields = self._own_fields(fields_of(config))
        if jnp.dtype(dtype).name not in ("float32", "bfloat16", "float16"):
            raise ValueError(f"dtype={jnp.dtype(dtype).name} must be float32, bfloat16 or float16")
        if fields.get("model_type", self.family) != self.family:
            raise ValueError(
                f"the model is of type {fields['model_type']}, and {type(self).__name__} is of {self.family}; "
                "try FlaxAutoModel"
            )
        fields |= {"model_type": self.family, "architectures": [self.architecture]}
        hf_family = FAMILIES[self.family]
        model_config = hf_family.config(fields, hf_family.heads[self.architecture])
        self.dtype = jnp.dtype(dtype)
        self.key, self.input_shape = jax.random.PRNGKey(seed), input_shape
        self.config = ConfigFields(fields, {**DEFAULTS, **hf_family.config_json(model_config, self.architecture)})
        self.generation_config: dict[str, Any] = {}
        model_config = override(model_config, {"dtype": self.dtype.name})
        self._program = Program(self.family, self.architecture, model_config, bool(fields.get("is_decoder")))
        self._is_initialized = _do_init
        self._params: dict | None = None
        self._model = init(layout(self._program).specs, jax.random.key(seed)) if _do_init else None

    @classmethod
    def from_pretrained(
        cls,
        folder: str | Path,
        *,
        config: ConfigLike | None = None,
        dtype: DTypeLike | None = None,
        _do_init: bool = True,
        subfolder: str = "",
        torch_dtype: object = None,
        **kwargs: Any,
    ):
        """The model in a folder, or in a subfolder of it.

        Files are safetensors or flax_model.msgpack; parameters keep their dtypes. With _do_init=False, the model
        without parameters, and the parameters that the folder has. A head that the folder lacks starts anew, with a
        warning; so does what has another size with ignore_mismatched_sizes=True. Other arguments are fields of
        config.json. torch_dtype is dtype as the classes of torch take it. Raises ValueError as `tfm.from_hf` does, and
        TypeError for an argument that is unknown.
        """
        dtypes = [dtype] if torch_dtype is None else [dtype, str(torch_dtype).removeprefix("torch.")]
        names = {jnp.dtype(name).name for name in dtypes if name is not None}
        if len(names) > 1:
            raise ValueError(f"dtype={jnp.dtype(dtype).name} and torch_dtype={torch_dtype} differ; give one of them")
        dtype = names.pop() if names else jnp.float32
        folder = Path(folder, subfolder)
        fields = fields_of(config) if config is not None else read_config(folder)
        reinitialize = ["missing head"] if _do_init else ["missing"]
        reinitialize += ["other shape"] if kwargs.pop("ignore_mismatched_sizes", False) else []
        fields = merge_fields(fields, {name: value for name, value in kwargs.items() if name not in IGNORED})
        model = cls(fields, seed=kwargs.get("seed", 0), dtype=dtype, _do_init=False)
        opened = open_folder(folder, model.config.to_dict(), reinitialize, FAMILIES[cls.family])
        params = read_params(layout(model._program), opened, kwargs.get("seed", 0), initialize=_do_init)
        model.generation_config = read_fields(folder)
        if not _do_init:
            return model, params
        model._params, model._is_initialized = params, True
        return model

    def save_pretrained(
        self, folder: str | Path, params: Mapping | None = None, push_to_hub: bool = False, **ignored: object
    ):
        """Writes config.json and model.safetensors, of its own parameters or of others, which keep their dtypes.

        A model that writes gets generation_config.json too.
        """
        if push_to_hub:
            raise ValueError("push_to_hub=True is not supported; save to a folder and upload that")
        nested: Mapping = self.params if params is None else params
        model_layout = layout(self._program)
        model_layout.check(nested, complete=self._is_initialized)
        entries = model_layout.entries(nested)
        dtypes = {str(dtype) for _, dtype, _, _ in entries}
        fields = FAMILIES[self.family].config_json(self._program.config, self.architecture) | self.config.to_dict()
        fields |= {"dtype": dtypes.pop() if len(dtypes) == 1 else "float32"}
        fields.pop("torch_dtype", None)
        write_folder(folder, entries)
        Path(folder, "config.json").write_text(json.dumps(fields, indent=2) + "\n")
        if self.can_generate():
            write_generation(self.generation_config or generation_fields(fields), Path(folder))

    @classmethod
    def can_generate(cls) -> bool:
        """Whether it has a language model's output, for `generate`."""
        return FAMILIES[cls.family].heads[cls.architecture].kind in ("lm", "seq2seq") and not is_bare(cls.architecture)

    @classmethod
    def _own_fields(cls, fields: Fields) -> dict[str, Any]:
        """The fields of this model; config.json may be that of a larger one, which says them in an object."""
        part = fields.get(cls.config_part)
        return {**part, "model_type": cls.family} if isinstance(part, Mapping) else {**fields}

    @property
    def params(self) -> dict:
        """The parameters as a nested dict, in the layout of the old classes."""
        self._check_initialized()
        if self._params is None:
            with jax.ensure_compile_time_eval():
                self._params = layout(self._program).nest(self._model)
        return self._params

    @params.setter
    def params(self, params: Mapping):
        self._check_initialized()
        layout(self._program).check(params)
        self._params = _as_dicts(params)
        self._model = None

    def _check_initialized(self):
        """Raises ValueError for a model that was made without parameters."""
        if not self._is_initialized:
            raise ValueError("the model was made with _do_init=False and holds no parameters; pass them as params=")

    @property
    def required_params(self) -> set[tuple[str, ...]]:
        """The keys that lead to each parameter."""
        return set(layout(self._program).shapes)

    @property
    def params_shape_tree(self) -> dict:
        """The shape of each parameter, as a nested dict."""
        shapes = layout(self._program).shapes
        return unflatten_dict({keys: jax.ShapeDtypeStruct(shape, jnp.float32) for keys, shape in shapes.items()})

    def init_weights(self, rng: Array, input_shape: tuple = (1, 1), params: Mapping | None = None) -> dict:
        """New parameters; with params, those that they lack are new."""
        new = layout(self._program).nest(init(layout(self._program).specs, rng))
        return new if params is None else completed(params, new)

    def to_bf16(self, params: Mapping, mask: Mapping | None = None) -> dict:
        """Parameters in bfloat16; with a mask, a nested dict of bools, those where it is True."""
        return cast(params, jnp.bfloat16, mask)

    def to_fp16(self, params: Mapping, mask: Mapping | None = None) -> dict:
        """Parameters in float16, as `to_bf16` does."""
        return cast(params, jnp.float16, mask)

    def to_fp32(self, params: Mapping, mask: Mapping | None = None) -> dict:
        """Parameters in float32, as `to_bf16` does."""
        return cast(params, jnp.float32, mask)

    def enable_gradient_checkpointing(self):
        """Computes blocks again in the backward pass instead of storing what they compute."""
        self._program = self._program._replace(config=replace(self._program.config, remat="block"))

    def _tree(self, params: PyTree = None) -> PyTree:
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

    def _output(self, values: Results, return_dict: bool | None, first: str = "") -> Output | tuple:
        output = Output(values, first)
        return output if (self.config.return_dict if return_dict is None else return_dict) else output.to_tuple()

    def _inputs(
        self,
        tokens: ArrayLike,
        valid: ArrayLike | None = None,
        types: ArrayLike | None = None,
        positions: ArrayLike | None = None,
    ) -> Inputs:
        """Inputs as arrays. Raises ValueError for more tokens than there are positions."""
        limit, tokens = self._program.config.max_length, jnp.asarray(tokens, jnp.int32)
        if limit is not None and self.family in COUNT_TOKENS:
            limit -= PAD + 1  # rows of the table that no token has
        if tokens.ndim != 2:
            raise ValueError(f"input_ids have shape {tokens.shape}; they must be rows of tokens, [batch, length]")
        if limit is not None and tokens.shape[1] > limit:
            raise ValueError(
                f"{tokens.shape[1]} tokens are more than the {limit} positions of the model; truncate the input"
            )

        def rows(value: ArrayLike | None) -> Array | None:
            if value is None:
                return None
            return jnp.broadcast_to(jnp.atleast_2d(jnp.asarray(value, jnp.int32)), tokens.shape)

        return Inputs(tokens, None if valid is None else jnp.asarray(valid) > 0, rows(types), rows(positions))


def _as_dicts(tree: PyTree) -> PyTree:
    """Any mapping as dicts."""
    if isinstance(tree, Mapping):
        return {str(name): _as_dicts(value) for name, value in tree.items()}
    return jnp.asarray(tree)


def merge_fields(fields: Fields, overrides: Fields) -> dict[str, Any]:
    """ConfigFields of config.json with overrides. Raises TypeError for an override that is no field."""
    overrides = dict(overrides)
    if "num_labels" in overrides:
        labels = {index: f"LABEL_{index}" for index in range(overrides.pop("num_labels"))}
        overrides = {"id2label": labels, "label2id": {label: index for index, label in labels.items()}, **overrides}
    names = {*fields, *CONFIG_DEFAULTS, *DEFAULTS, "id2label", "label2id"}
    names |= {name for hf_family in FAMILIES.values() for name in (*hf_family.fields, *hf_family.allowed)}
    for name in overrides:
        if name not in names:
            raise TypeError(f"from_pretrained has no argument {name!r}, and config.json no such field")
    return {**fields, **overrides}

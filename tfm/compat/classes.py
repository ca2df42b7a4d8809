"""The classes: what they load and save, and how they are called. Each is one of three bases with a family and an architecture."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from tfm import params as specs_of
from tfm.compat.forward import Given, Program, Watch, decode, encode, encode_source, layout
from tfm.compat.generation import DEFAULTS, generate, read_generation, write_generation
from tfm.compat.outputs import CONFIG_DEFAULTS, Fields, Output, fields_of
from tfm.decoding.cache import Cache
from tfm.hf import FAMILIES
from tfm.hf.folder import load, open_folder, read_config, to_hf

# Arguments of from_pretrained that are about where files come from, or change nothing here.
IGNORED = frozenset(
    """from_pt from_flax cache_dir force_download resume_download proxies local_files_only token use_auth_token revision
    trust_remote_code use_safetensors seed""".split()
)


class Pretrained:
    """What all classes share."""

    family: str
    architecture: str

    def __init__(
        self, config: Any, input_shape: tuple = (1, 1), seed: int = 0, dtype: Any = jnp.float32, _do_init: bool = True
    ):
        self._begin(fields_of(config), dtype)
        self._ours: Any = None
        if _do_init:
            self._ours = specs_of.init(layout(self._program).specs, jax.random.key(seed))

    def _begin(self, fields: Mapping[str, Any], dtype: Any):
        """Everything but the parameters."""
        if jnp.dtype(dtype).name not in ("float32", "bfloat16"):
            raise ValueError(
                f"dtype={jnp.dtype(dtype).name} is not supported; take jax.numpy.float32 or jax.numpy.bfloat16"
            )
        kind = FAMILIES[self.family]
        if fields.get("model_type", self.family) != self.family:
            raise ValueError(
                f"the model is of type {fields['model_type']}, and {type(self).__name__} is of {self.family}; try FlaxAutoModel"
            )
        fields = {**fields, "model_type": self.family, "architectures": [self.architecture]}
        own = kind.config(fields, kind.heads[self.architecture])
        self.dtype = jnp.dtype(dtype)
        self.config = Fields(fields, kind.config_json(own, self.architecture))
        self.generation_config: dict[str, Any] = {}
        self._program = Program(self.family, self.architecture, replace(own, dtype=self.dtype.name))
        self._nested: dict | None = None

    @classmethod
    def from_pretrained(
        cls, folder: str | Path, *, config: Any = None, dtype: Any = jnp.float32, _do_init: bool = True, **others
    ):
        """The model in a folder, of safetensors or flax_model.msgpack; with _do_init=False, a pair of it and its parameters.

        A head that the folder lacks starts anew, with a warning; so does one of another size with ignore_mismatched_sizes=True. Other
        arguments are fields of config.json. Raises ValueError as `tfm.from_hf` does, and TypeError for an argument that is unknown.
        """
        fields = fields_of(config) if config is not None else read_config(Path(folder))
        fresh = ("missing", "other shape") if others.pop("ignore_mismatched_sizes", False) else ("missing",)
        seed = others.get("seed", 0)
        fields = with_fields(fields, {name: value for name, value in others.items() if name not in IGNORED})
        model = cls(fields, dtype=dtype, _do_init=False)
        model._ours = load(open_folder(folder, model.config.to_dict(), fresh), seed=seed)
        model.generation_config = read_generation(Path(folder))
        return model if _do_init else (model, model.params)

    def save_pretrained(
        self, folder: str | Path, params: Mapping | None = None, push_to_hub: bool = False, **ignored: Any
    ):
        """Writes config.json and model.safetensors, of its own parameters or of others."""
        if push_to_hub:
            raise ValueError("push_to_hub=True is not supported; save to a folder and upload that")
        tree = self._tree() if params is None else layout(self._program).take(params)
        to_hf(self._program.config, tree, folder, like=self.config.to_dict())
        write_generation(self.generation_config, Path(folder))

    @property
    def params(self) -> dict:
        """The parameters as a nested dict, in the layout of the old classes."""
        if self._nested is None:
            if self._ours is None:
                raise ValueError(
                    "the model was made with _do_init=False and has no parameters; give them as params=, or set model.params"
                )
            with jax.ensure_compile_time_eval():
                self._nested = layout(self._program).nest(self._ours)
        return self._nested

    @params.setter
    def params(self, params: Mapping):
        layout(self._program).check(params)
        self._nested, self._ours = _plain(params), None

    def init_weights(self, rng: Array, input_shape: tuple = (1, 1), params: Mapping | None = None) -> dict:
        """New parameters."""
        return layout(self._program).nest(specs_of.init(layout(self._program).specs, rng))

    def _tree(self, params: Any = None) -> Any:
        """What a forward pass takes: the parameters that it is given, else the model's own, out of their layout once and for all."""
        if params is not None:
            return params
        if self._ours is None:
            nested = self.params
            with jax.ensure_compile_time_eval():
                self._ours = layout(self._program).take(nested)
        return self._ours

    def _watch(self, attentions: bool | None, states: bool | None) -> Watch:
        usual = self.config.output_attentions, self.config.output_hidden_states
        return Watch(
            *(bool(own if asked is None else asked) for asked, own in zip((attentions, states), usual, strict=True))
        )

    def _out(self, values: Mapping[str, Any], return_dict: bool | None) -> Any:
        output = Output(values)
        return output if (self.config.return_dict if return_dict is None else return_dict) else output.to_tuple()

    def _given(self, tokens: Any, valid: Any = None, types: Any = None, positions: Any = None) -> Given:
        """Inputs as arrays. Raises ValueError for more tokens than there are positions."""
        config, tokens = self._program.config, jnp.asarray(tokens, jnp.int32)
        if tokens.ndim != 2:
            raise ValueError(f"input_ids have shape {tokens.shape}; they must be rows of tokens, [batch, length]")
        if config.max_length is not None and tokens.shape[1] > config.max_length:
            raise ValueError(
                f"{tokens.shape[1]} tokens are more than the {config.length} positions of the model; truncate the input"
            )
        each = [None if value is None else jnp.asarray(value, jnp.int32) for value in (types, positions)]
        each = [value if value is None else jnp.broadcast_to(jnp.atleast_2d(value), tokens.shape) for value in each]
        return Given(tokens, None if valid is None else jnp.asarray(valid) > 0, *each)


def _plain(tree: Any) -> Any:
    """Any mapping as dicts."""
    return (
        {str(name): _plain(value) for name, value in tree.items()} if isinstance(tree, Mapping) else jnp.asarray(tree)
    )


def with_fields(fields: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Fields, and others that stand over them. Raises TypeError for one that is none."""
    others, known = dict(others), set(fields)
    if "num_labels" in others:
        labels = {number: f"LABEL_{number}" for number in range(others.pop("num_labels"))}
        others = {"id2label": labels, "label2id": {label: number for number, label in labels.items()}, **others}
    for name in others:
        if name not in known | {*CONFIG_DEFAULTS, *DEFAULTS, "id2label", "label2id"} | {
            field for kind in FAMILIES.values() for field in kind.fields
        }:
            raise TypeError(f"from_pretrained has no argument {name!r}, and config.json no such field")
    return {**fields, **others}


def _key(train: bool, rng: Array | None) -> Array | None:
    """What dropout is drawn from. Raises ValueError where there is none."""
    if train and rng is None:
        raise ValueError("train=True needs dropout_rng, a key of jax.random")
    return rng if train else None


def _refuse(**arguments: Any):
    """Raises ValueError for what is not supported."""
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(f"{name} is not supported; leave it out")


class Encoder(Pretrained):
    """An encoder with its head."""

    def __call__(
        self, input_ids, attention_mask=None, token_type_ids=None, position_ids=None, head_mask=None, encoder_hidden_states=None,
        encoder_attention_mask=None, params=None, dropout_rng=None, train=False, output_attentions=None, output_hidden_states=None,
        return_dict=None, past_key_values=None,
    ):  # fmt: skip
        """Rows of tokens [B,T] -> an output by name; params is a nested dict like `model.params`."""
        _refuse(head_mask=head_mask, encoder_hidden_states=encoder_hidden_states, past_key_values=past_key_values)
        given = self._given(input_ids, attention_mask, token_type_ids, position_ids)
        watch = self._watch(output_attentions, output_hidden_states)
        return self._out(encode(self._program, watch, self._tree(params), given, _key(train, dropout_rng)), return_dict)


class Decoding(Pretrained):
    """What writes."""

    generate = generate

    def init_cache(self, batch_size: int, max_length: int, encoder_outputs: Any = None) -> Cache:
        """Room for the keys and values of so many rows and tokens."""
        config = self._program.config
        sizes = config.layers, batch_size, max_length, config.sizes["K"], config.sizes["H"]
        empty = jnp.zeros(sizes, config.dtype)
        return Cache(empty, empty, jnp.zeros(batch_size, jnp.int32), jnp.int32(0))

    def _decode(
        self, watch: Watch, given: Given, source: Any, cache: Cache | None, params: Any, key: Array | None
    ) -> dict[str, Any]:
        """The outputs of the decoder. Raises ValueError for what cannot be watched or does not fit."""
        if cache is not None:
            slots, new = cache.keys.shape[2], given.tokens.shape[1]
            if watch.attentions:
                raise ValueError(
                    "output_attentions is not supported together with past_key_values; leave out one of both"
                )
            if new > slots:
                raise ValueError(
                    f"{new} tokens do not fit into a cache of max_length={slots}; make a longer one with init_cache"
                )
            if given.valid is not None:
                valid = jnp.pad(given.valid, ((0, 0), (0, max(0, slots - given.valid.shape[1]))), constant_values=True)
                given = given._replace(valid=valid)
        return decode(self._program, watch, self._tree(params), given, source, cache, key)


class Causal(Decoding):
    """A language model."""

    def __call__(
        self, input_ids, attention_mask=None, position_ids=None, encoder_hidden_states=None, encoder_attention_mask=None, params=None,
        past_key_values=None, dropout_rng=None, train=False, output_attentions=None, output_hidden_states=None, return_dict=None,
    ):  # fmt: skip
        """Rows of tokens [B,T] -> logits of the token after each, and the past_key_values with them where these are given."""
        _refuse(encoder_hidden_states=encoder_hidden_states)
        given = self._given(input_ids, attention_mask, None, position_ids)
        watch = self._watch(output_attentions, output_hidden_states)
        return self._out(
            self._decode(watch, given, None, past_key_values, params, _key(train, dropout_rng)), return_dict
        )


class Seq2Seq(Decoding):
    """A translation model."""

    def __call__(
        self, input_ids, attention_mask=None, decoder_input_ids=None, decoder_attention_mask=None, position_ids=None,
        decoder_position_ids=None, output_attentions=None, output_hidden_states=None, return_dict=None, train=False, params=None,
        dropout_rng=None,
    ):  # fmt: skip
        """Sources [B,S] and targets [B,T] -> logits of the target token after each."""
        key = _key(train, dropout_rng)
        encoder_key, decoder_key = (None, None) if key is None else jax.random.split(key)
        watch = self._watch(output_attentions, output_hidden_states)
        source = self._given(input_ids, attention_mask, None, position_ids)
        if decoder_input_ids is None:
            if self.family == "t5":
                raise ValueError("decoder_input_ids are missing; give input_ids and decoder_input_ids")
            decoder_input_ids = self._shifted(source.tokens)
        encoded = encode_source(self._program, watch, self._tree(params), source, encoder_key)
        given = self._given(decoder_input_ids, decoder_attention_mask, None, decoder_position_ids)
        found = self._decode(watch, given, (encoded["last_hidden_state"], source.valid), None, params, decoder_key)
        values = {
            "logits": found["logits"],
            "decoder_hidden_states": found["hidden_states"],
            "decoder_attentions": found["attentions"],
            "cross_attentions": found["cross_attentions"],
            **{f"encoder_{name}": value for name, value in encoded.items()},
        }
        return self._out(values, return_dict)

    def encode(
        self, input_ids, attention_mask=None, position_ids=None, output_attentions=None, output_hidden_states=None, return_dict=None,
        train=False, params=None, dropout_rng=None,
    ):  # fmt: skip
        """Sources [B,S] -> their last_hidden_state."""
        given = self._given(input_ids, attention_mask, None, position_ids)
        watch = self._watch(output_attentions, output_hidden_states)
        return self._out(
            encode_source(self._program, watch, self._tree(params), given, _key(train, dropout_rng)), return_dict
        )

    def decode(
        self, decoder_input_ids, encoder_outputs, encoder_attention_mask=None, decoder_attention_mask=None, decoder_position_ids=None,
        past_key_values=None, output_attentions=None, output_hidden_states=None, return_dict=None, train=False, params=None,
        dropout_rng=None,
    ):  # fmt: skip
        """Targets [B,T] and what `encode` has handed out -> logits of the target token after each."""
        given = self._given(decoder_input_ids, decoder_attention_mask, None, decoder_position_ids)
        watch = self._watch(output_attentions, output_hidden_states)
        source = encoder_outputs[0], None if encoder_attention_mask is None else jnp.asarray(encoder_attention_mask) > 0
        return self._out(
            self._decode(watch, given, source, past_key_values, params, _key(train, dropout_rng)), return_dict
        )

    def _shifted(self, tokens: Array) -> Array:
        """Sources as targets: one place later, behind the token that a target begins with."""
        start = jnp.full_like(tokens[:, :1], self.config.decoder_start_token_id)
        return jnp.concatenate([start, tokens[:, :-1]], axis=1)


BASES = {"lm": Causal, "seq2seq": Seq2Seq}


class Auto:
    """Chooses the class by the model_type in config.json."""

    choices: Mapping[str, type[Pretrained]]

    @classmethod
    def _of(cls, fields: Mapping[str, Any]) -> type[Pretrained]:
        """The class for a configuration. Raises ValueError where there is none."""
        name = str(fields.get("model_type"))
        if name not in cls.choices:
            raise ValueError(f"{cls.__name__} has no model of type {name}; it has {', '.join(cls.choices)}")
        return cls.choices[name]

    @classmethod
    def from_pretrained(cls, folder: str | Path, *, config: Any = None, **others: Any):
        """The model in a folder; arguments are those of its class."""
        fields = fields_of(config) if config is not None else read_config(Path(folder))
        return cls._of(fields).from_pretrained(folder, config=config, **others)

    @classmethod
    def from_config(cls, config: Any, **others: Any):
        """A new model."""
        return cls._of(fields_of(config))(config, **others)

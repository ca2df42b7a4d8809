"""What a family of models is: its fields and tensors by their names and by ours, and its heads."""

import dataclasses
import re
import warnings
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from tfm.config.model import Config
from tfm.hf.names import Names
from tfm.models import heads, seq2seq

# Fields of config.json that change nothing here: of their code, of how a model was made, and of texts that are written with it.
FREE = frozenset(
    """_name_or_path _attn_implementation architectures attn_implementation bad_words_ids bos_token_id chunk_size_feed_forward
    classif_dropout classifier_dropout classifier_dropout_prob decoder_start_token_id directionality dtype early_stopping eos_token_id
    extra_pos_embeddings finetuning_task forced_bos_token_id forced_eos_token_id force_bos_token_to_be_generated gradient_checkpointing
    id2label init_std initializer_factor initializer_range is_encoder_decoder label2id length_penalty max_length min_length model_type
    no_repeat_ngram_size num_beams num_labels output_attentions output_hidden_states output_past pad_token_id pooler_fc_size
    pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type prefix problem_type return_dict sep_token_id
    static_position_embeddings task_specific_params tokenizer_class torch_dtype transformers_version use_cache""".split()
)

# Ours that no folder knows: how a model is computed and trained.
OWN = frozenset(
    (
        "dropout",
        "attn_dropout",
        "scan",
        "remat",
        "dtype",
        "param_dtype",
        "kernel",
        "vocab_multiple",
        "init_std",
        "classes",
    )
)

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
GATED = {
    "silu": "swiglu",
    "swish": "swiglu",
    "gelu": "geglu",
    "gelu_new": "geglu_tanh",
    "gelu_pytorch_tanh": "geglu_tanh",
}


class Field(NamedTuple):
    """A field of ours, its value where config.json does not say, and ours for each value of theirs, where they differ."""

    ours: str
    default: Any
    values: Mapping[Any, Any] | None = None


class Head(NamedTuple):
    """What an architecture predicts (`KINDS`), with the names of its own tensors, and what our configuration is for it."""

    kind: str
    names: Names = MappingProxyType({})
    ours: Mapping[str, Any] = MappingProxyType({})

    def specs(self, config: Config) -> Any:
        """The spec tree of such a model."""
        return KINDS[self.kind](config, self.names)


def _model(config: Config, names: Names) -> heads.Classifier:
    """An encoder without a head; with a pooler where there is one."""
    specs = heads.classifier_specs(config)
    has = "pooler" in names
    return dataclasses.replace(
        specs, pooler=specs.pooler if has else None, norm=specs.norm if has else None, output=None
    )


KINDS: dict[str, Callable[[Config, Names], Any]] = {
    "model": _model,
    "mlm": lambda config, names: heads.masked_lm_specs(config),
    "pretrain": lambda config, names: heads.masked_lm_specs(config, next_sentence=True),
    "classify": lambda config, names: heads.classifier_specs(config),
    "tag": lambda config, names: heads.tagger_specs(config, dense="dense" in names),
    "lm": lambda config, names: heads.causal_lm_specs(config),
    "seq2seq": lambda config, names: seq2seq.seq2seq_specs(config),
}


@dataclasses.dataclass(frozen=True)
class Family:
    """A model_type.

    name: the model_type
    prefix: of the names of all tensors but those of heads; folders of the bare model lack it
    fields: our fields by theirs
    only: fields of theirs with the values that are supported, the default first
    same: fields of theirs that must be equal to another one
    ours: what our configuration is besides
    names: their tensors by the paths of ours, which may depend on our configuration
    heads: what their architectures are; the first is taken where config.json names none
    unused: a pattern of the names of tensors that are copies or constants
    free: fields of theirs that change nothing here
    read: their fields -> those of ours that take more than one of theirs, and which of theirs these are
    write: the reverse
    adapt: a model of ours -> one that computes the same and is more like theirs
    """

    name: str
    prefix: str
    fields: Mapping[str, Field]
    names: Names | Callable[[Config], Names]
    heads: Mapping[str, Head]
    ours: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    only: Mapping[str, tuple] = dataclasses.field(default_factory=dict)
    same: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unused: str = "$^"
    free: frozenset[str] = frozenset()
    read: Callable[[Mapping[str, Any]], tuple[dict[str, Any], set[str]]] = lambda fields: ({}, set())
    write: Callable[[Config], dict[str, Any]] = lambda config: {}
    adapt: Callable[[Config, Any], tuple[Config, Any]] = lambda config, params: (config, params)

    def table(self, config: Config, head: Head) -> Names:
        """The names of all tensors of a model."""
        return {**(self.names(config) if callable(self.names) else self.names), **head.names}

    def knows(self, tensor: str) -> bool:
        """Whether a tensor is a copy or a constant."""
        return re.search(self.unused, tensor) is not None

    def architecture(self, fields: Mapping[str, Any]) -> str:
        """The name of the head that config.json asks for. Raises ValueError for one that is not supported."""
        name = (fields.get("architectures") or [next(iter(self.heads))])[0]
        if name not in self.heads:
            raise ValueError(
                f"config.json has architectures=[{name}]; of {self.name}, supported are {', '.join(self.heads)}"
            )
        return name

    def config(self, fields: Mapping[str, Any], head: Head) -> Config:
        """Our configuration. Raises ValueError for what it cannot say; warns of fields that change nothing."""
        for name, allowed in self.only.items():
            if fields.get(name, allowed[0]) not in allowed:
                options = " or ".join(map(repr, allowed))
                raise ValueError(
                    f"config.json has {name}={fields[name]!r}; of {self.name}, only {options} is supported"
                )
        self._compare(fields)
        values = {field.ours: self._value(name, field, fields) for name, field in self.fields.items()}
        more, read = self.read(fields)
        known = FREE | self.free | set(self.fields) | set(self.only) | set(self.same) | read
        unknown = sorted(set(fields) - known)
        if unknown:
            warnings.warn(f"config.json has {', '.join(unknown)}, which change nothing here", stacklevel=5)
        classes = {"classes": len(fields.get("id2label") or range(fields.get("num_labels", 2)))}
        return Config(**{**self.ours, **values, **more, **classes, **head.ours})

    def _value(self, name: str, field: Field, fields: Mapping[str, Any]) -> Any:
        """Our value of a field of theirs. Raises ValueError where there is none."""
        value = fields.get(name, field.default)
        if field.values is None:
            return value
        if value not in field.values:
            raise ValueError(
                f"config.json has {name}={value!r}; of {self.name}, supported are {', '.join(map(str, field.values))}"
            )
        return field.values[value]

    def _compare(self, fields: Mapping[str, Any]):
        """Raises ValueError for fields that should be equal and are not; warns where only training differs."""
        for name, other in self.same.items():
            one, two = fields.get(name), fields.get(other)
            if name in fields and one != two:
                message = f"config.json has {name}={one} and {other}={two}"
                if "drop" not in name:
                    raise ValueError(f"{message}; of {self.name}, only equal ones are supported")
                warnings.warn(f"{message}; here both are {two}", stacklevel=6)

    def conflicts(self, config: Config, architecture: str) -> list[str]:
        """What our configuration has that a folder of this family cannot hold: what is read back from its config.json otherwise."""
        values = [(field, getattr(config, field.ours)) for field in self.fields.values()]
        unknown = [
            f"{field.ours}={value}"
            for field, value in values
            if field.values is not None and value not in field.values.values()
        ]
        if unknown:
            return unknown
        again, found = self.config(self.config_json(config, architecture), self.heads[architecture]), []
        for name in (field.name for field in dataclasses.fields(config) if field.name not in OWN):
            one, two = getattr(config, name), getattr(again, name)
            implied = type(one) is type(two) is int and not (one and two)  # 0 stands for the size that others imply
            same = one == two or (implied and dataclasses.replace(config, **{name: two}).sizes == config.sizes)
            found += [] if same else [f"{name}={one}"]
        return found

    def config_json(self, config: Config, architecture: str) -> dict[str, Any]:
        """The fields of config.json."""
        fields: dict[str, Any] = {"model_type": self.name, "architectures": [architecture]}
        for name, field in self.fields.items():
            value = {"attn_dropout": config.attn_rate, "ffn": config.sizes["F"]}.get(
                field.ours, getattr(config, field.ours)
            )
            if field.values is not None:
                value = next(theirs for theirs, ours in field.values.items() if ours == value)
            fields[name] = value
        fields |= {name: allowed[0] for name, allowed in self.only.items()} | self.write(config)
        fields |= {name: fields[other] for name, other in self.same.items() if other in fields}
        if self.heads[architecture].kind in ("classify", "tag"):
            labels = {str(n): f"LABEL_{n}" for n in range(config.classes)}
            fields |= {"id2label": labels, "label2id": {label: int(n) for n, label in labels.items()}}
        return fields

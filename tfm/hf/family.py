"""What a family of models is: its fields of config.json, its tensors and its architectures, by their names here."""

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import jax.numpy as jnp

from tfm.catalogue.models.object_queries import detector_specs
from tfm.catalogue.models.pixel_outputs import pixel_specs
from tfm.catalogue.models.towers import towers_specs
from tfm.config.model import MAX_SIZES, Config
from tfm.hf.facts import class_count, with_aliases
from tfm.hf.field_names import renamed
from tfm.hf.fields import IGNORED, TYPES, Fields, class_names, flat_fields, nested_fields
from tfm.hf.parameters import Names
from tfm.models.classifier import classifier_specs
from tfm.models.heads import CausalLM, causal_lm_specs, masked_image_specs, masked_lm_specs, tagger_specs
from tfm.models.seq2seq import Seq2Seq, seq2seq_specs
from tfm.options.choices import Hint, Range, check_object, check_type, is_optional, plain_type
from tfm.options.dotted import flatten, hint_of, override
from tfm.options.json_text import Json
from tfm.params import PyTree


class HfField(NamedTuple):
    """A field of `Config` that one field of config.json holds.

    name: its dotted name (`tfm.flatten`)
    default: the value in config.json where that has none
    values: the value in `Config` by that in config.json, where they differ
    zero_is_none: 0 in config.json is None in `Config`
    """

    name: str
    default: Json
    values: Mapping[Any, Any] | None = None
    zero_is_none: bool = False

    def hint(self, config: Config) -> Hint:
        """Type of the config.json value; sizes carry their allowed range."""
        if self.values is not None:
            return type(next(iter(self.values)))
        hint = hint_of(config, self.name)
        if self.name not in MAX_SIZES:
            return hint
        size: Any = Annotated[plain_type(hint), Range(1, MAX_SIZES[self.name])]
        return size | None if is_optional(hint) else size

    def holds(self, value: object) -> bool:
        """Whether config.json can say a value of `Config`."""
        if self.values is not None:
            return value in self.values.values()
        return value is not None or self.zero_is_none

    def read(self, value: Any) -> object:
        """The value in config.json -> that in `Config`. Raises KeyError for a value that is not supported."""
        if self.values is not None:
            return self.values[value]
        return None if self.zero_is_none and value == 0 else value

    def write(self, value: Any) -> Json:
        """The value in `Config` -> that in config.json."""
        if self.values is not None:
            return next(hf_value for hf_value, config_value in self.values.items() if config_value == value)
        zero = 0.0 if isinstance(self.default, float) else 0
        return zero if value is None and self.zero_is_none else value


class HfHead(NamedTuple):
    """What an architecture predicts, the names of its own tensors, and fields of `Config` by dotted name."""

    kind: str
    names: Names = MappingProxyType({})
    overrides: Mapping[str, object] = MappingProxyType({})

    def without(self, part: str) -> "HfHead":
        """The head without one of its parts."""
        return self._replace(names={name: tensor for name, tensor in self.names.items() if name != part})

    def of(self, params: PyTree) -> "HfHead":
        """The head without a pooler, where it is that of a bare model and the parameters have none."""
        lacks_pooler = self.kind == "model" and getattr(params, "pooler", None) is None
        return self.without("pooler") if lacks_pooler else self

    def specs(self, config: Config) -> PyTree:
        """The spec tree of such a model; a bare encoder and a tagger have those parts of a head that have names."""
        match self.kind:
            case "model":
                specs = classifier_specs(config)
                pooler = specs.pooler if "pooler" in self.names else None
                norm = specs.norm if "norm" in self.names else None
                return dataclasses.replace(specs, pooler=pooler, norm=norm, output=None)
            case "mlm" | "pretrain":
                return masked_lm_specs(config, next_sentence=self.kind == "pretrain")
            case "classify" | "classify_pixels" | "choice":
                return classifier_specs(config)
            case "tag" | "span" | "detect":
                return tagger_specs(config, dense="dense" in self.names)
            case "segment":
                return pixel_specs(config, config.classes)
            case "lm" | "pixels":
                return causal_lm_specs(config)
            case "objects":
                return detector_specs(config, config.head.queries or 1, config.head.query_layers or 1)
            case "masked_image" | "seq2seq" | "towers":
                specs_of = {"masked_image": masked_image_specs, "seq2seq": seq2seq_specs, "towers": towers_specs}
                return specs_of[self.kind](config)
        raise ValueError(f"{self.kind} is no kind of head")


# Heads with as many classes as config.json names.
COUNTED = ("classify", "classify_pixels", "tag", "segment", "detect", "objects", "read classes")

# Fields of `Config` by dotted name that several fields of config.json say, and the names of the latter.
Reading = tuple[dict[str, object], set[str]]


def read_nothing(fields: Fields) -> Reading:
    """The `read` of a family whose fields are all in its table."""
    return {}, set()


def write_nothing(config: Config) -> dict[str, Json]:
    """The `write` of a family whose fields are all in its table."""
    return {}


def unchanged(config: Config, params: PyTree) -> tuple[Config, PyTree]:
    """The `canonicalize` of a family that writes every model as it is."""
    return config, params


def with_output_bias(config: Config, params: CausalLM | Seq2Seq) -> tuple[Config, PyTree]:
    """A language model with a bias of its output, float32 zeros where it had none."""
    if params.bias is None:
        params = dataclasses.replace(params, bias=jnp.zeros(config.padded_vocab, jnp.float32))
    return dataclasses.replace(config, head=dataclasses.replace(config.head, output_bias=True)), params


@dataclasses.dataclass(frozen=True)
class Family:
    """A model_type.

    name: the model_type
    prefix: of the names of all tensors but those of heads; folders of the bare model lack it
    base: the configuration where no field of config.json says otherwise
    fields: fields of `Config` by the names of config.json
    names: tensors by the paths of parameters; a function of the configuration where they depend on it
    heads: what each architecture predicts; the first one is taken where config.json names none
    allowed: fields of config.json with the supported values, the default first
    ids: tokens that transformers takes where config.json names none; a smaller vocabulary has none of them
    must_equal: fields of config.json that must equal another one
    aliases: other names of fields of config.json, and the first names
    unused: a pattern of the names of tensors that are copies or constants
    spare: a pattern of the names of tensors that transformers saves with every architecture, in use or not
    copies: tensors that hold the same parameter as another, by the name of the latter
    optional_output: the tensor of an output for which the table of tokens stands where it is absent, tied or not
    absent: fields that transformers makes up by chance or by the text where they are absent, and what is taken here
    chance: fields of which transformers draws lots but for this value, which is written, and what they say
    constants: tensors that are computed here, and the letters of their axes
    spellings: how names of tensors begin by the values of a field of config.json, the default first
    ignored: fields of config.json that change nothing here, and why
    nested: fields of config.json that are objects with fields of their own, which are called OBJECT.FIELD here
    types: of fields of config.json that `read` reads, where they are others than in `fields.TYPES`
    read: fields of config.json -> `Reading`; of no fields, it names every field of `Config` that it may set
    write: a configuration -> the fields of config.json that `read` reads
    canonicalize: a model -> one that computes the same and that config.json can say
    """

    name: str
    prefix: str
    base: Config
    fields: Mapping[str, HfField]
    names: Names | Callable[[Config], Names]
    heads: Mapping[str, HfHead]
    allowed: Mapping[str, tuple[Json, ...]] = dataclasses.field(default_factory=dict)
    must_equal: Mapping[str, str] = dataclasses.field(default_factory=dict)
    ids: Mapping[str, int] = dataclasses.field(default_factory=dict)
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unused: str = "$^"
    spare: str = "$^"
    copies: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    optional_output: str = ""
    absent: Mapping[str, str] = dataclasses.field(default_factory=dict)
    chance: Mapping[str, tuple[Json, str]] = dataclasses.field(default_factory=dict)
    constants: Mapping[str, str] = dataclasses.field(default_factory=dict)
    spellings: Mapping[str, Mapping[bool, str]] = dataclasses.field(default_factory=dict)
    ignored: Mapping[str, str] = dataclasses.field(default_factory=dict)
    nested: tuple[str, ...] = ()
    types: Mapping[str, Hint] = dataclasses.field(default_factory=dict)
    read: Callable[[Fields], Reading] = read_nothing
    write: Callable[[Config], dict[str, Json]] = write_nothing
    canonicalize: Callable[[Config, PyTree], tuple[Config, PyTree]] = unchanged

    def table(self, config: Config, head: HfHead) -> Names:
        """The names of all tensors of a model."""
        return {**(self.names(config) if callable(self.names) else self.names), **head.names}

    def architecture(self, fields: Fields) -> str:
        """The name of the head that config.json asks for. Raises ValueError for one that is not supported."""
        names = check_type("config.json: architectures", fields.get("architectures"), TYPES["architectures"])
        name, supported = (names or list(self.heads))[0], ", ".join(self.heads)
        if name not in self.heads:
            raise ValueError(f"config.json has architectures=[{name}]; of {self.name}, supported are {supported}")
        return name

    def config(self, fields: Fields, head: HfHead) -> Config:
        """config.json as a configuration.

        Raises ValueError for values that are not supported; warns of fields that change nothing here.
        """
        fields = flat_fields(fields, self.nested)
        fields = self._checked(with_aliases(fields, self.aliases) if self.aliases else fields)
        computed, used = self.read(fields)
        supported = {*self.fields, *self.allowed, *self.must_equal, *self.chance, *used}
        ignored = IGNORED.keys() | self.ignored.keys()
        unknown = sorted(name for name in fields.keys() - supported if name.rpartition(".")[2] not in ignored)
        if unknown:
            warnings.warn(f"config.json has {', '.join(unknown)}, which change nothing here", stacklevel=5)
        for name, reason in self.absent.items():
            if fields.get(name) is None:
                warnings.warn(f"config.json has no {name}: {reason}", stacklevel=5)
        for name, (value, reason) in self.chance.items():
            if fields.get(name) != value:
                warnings.warn(f"config.json has {name}={fields.get(name)}: {reason}", stacklevel=5)
        is_counted = head.kind in COUNTED and "classes" not in head.overrides
        values: dict[str, object] = {"classes": class_count(fields) if is_counted else len(class_names(fields)) or 2}
        for name, field in self.fields.items():
            value = fields.get(name, field.default)
            if field.values is not None and value not in field.values:
                fault, options = f"config.json has {name}={value!r}", ", ".join(map(str, field.values))
                raise ValueError(f"{fault}; of {self.name}, supported are {options}")
            values[field.name] = field.read(value)
        try:
            return override(self.base, {**values, **computed, **head.overrides})
        except ValueError as error:
            names = {field.name: hf_name for hf_name, field in self.fields.items()}
            raise ValueError(f"config.json: {renamed(str(error), names, self.read, fields)}") from error

    def _checked(self, fields: Fields) -> Fields:
        """The fields with the types that they are declared with.

        Raises ValueError for other types, and for values that are not supported; warns where only training differs.
        """
        hints = {**TYPES, **self.types} | {name: field.hint(self.base) for name, field in self.fields.items()}
        fields = {**fields, **check_object("config.json: ", fields, hints)}
        for name, values in self.allowed.items():
            if name in fields and fields[name] is None and None not in values:
                del fields[name]  # null says nothing
            if fields.get(name, values[0]) not in values:
                fault, options = f"config.json has {name}={fields[name]!r}", " or ".join(map(repr, values))
                raise ValueError(f"{fault}; of {self.name}, only {options} is supported")
        for name, reference in self.must_equal.items():
            default = self.fields[reference].default if reference in self.fields else None
            value, required = fields.get(name), fields.get(reference, default)
            if name not in fields or value == required:
                continue
            message = f"config.json has {name}={value} and {reference}={required}"
            if "drop" not in name:
                raise ValueError(f"{message}; of {self.name}, only equal ones are supported")
            warnings.warn(f"{message}; here both are {required}", stacklevel=6)
        return fields

    def config_json(self, config: Config, architecture: str) -> dict[str, Json]:
        """The fields of config.json."""
        values = resolved_fields(config)
        fields: dict[str, Json] = {"model_type": self.name, "architectures": [architecture]}
        fields |= {name: field.write(values[field.name]) for name, field in self.fields.items()}
        fields |= {name: values[0] for name, values in (*self.allowed.items(), *self.chance.items())}
        fields |= self.write(config)
        fields |= {name: None for name, token in self.ids.items() if token >= config.vocab and name not in fields}
        fields |= {name: fields[reference] for name, reference in self.must_equal.items() if reference in fields}
        if self.heads[architecture].kind in ("classify", "classify_pixels", "tag", "span", "segment", "objects"):
            labels = [f"LABEL_{index}" for index in range(config.classes)]
            fields["id2label"] = {str(index): label for index, label in enumerate(labels)}
            fields["label2id"] = {label: index for index, label in enumerate(labels)}
        return nested_fields(fields)


def resolved_fields(config: Config) -> dict[str, object]:
    """All fields by dotted name, with the sizes that None stands for."""
    values = flatten(config) | {
        "encoder.layers": config.encoder.layers or config.layers,
        "encoder.length": config.encoder.length or config.length,
        "kv_heads": config.sizes["K"],
        "head_size": config.sizes["H"],
        "ffn": config.sizes["F"],
        "attn_dropout": config.attn_rate,
    }
    if config.images is not None:
        tower = config.in_images()
        values |= {
            "images.ffn": tower.sizes["F"],
            "images.activation": tower.activation,
            "images.norm_eps": tower.norm_eps,
        }
    return values

"""What a family of models is: its fields and tensors by their names and by ours, and its heads."""

import dataclasses
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from tfm.config.model import COMPUTE, Config, Kind, Layer
from tfm.hf.fields import IGNORED, TYPES, Field, class_names, flat_fields, nested_fields
from tfm.hf.heads import Head
from tfm.hf.names import Names
from tfm.options.choices import check_object, check_type
from tfm.options.dotted import flatten, override

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


def read_nothing(fields: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """The `read` of a family whose fields are all in its table."""
    return {}, set()


def write_nothing(config: Config) -> dict[str, Any]:
    """The `write` of a family whose fields are all in its table."""
    return {}


def unchanged(config: Config, params: Any) -> tuple[Config, Any]:
    """The `canonicalize` of a family that writes every model as it is."""
    return config, params


@dataclasses.dataclass(frozen=True)
class Family:
    """A model_type.

    name: the model_type
    prefix: of the names of all tensors but those of heads; folders of the bare model lack it
    base: what our configuration is where no field says otherwise
    fields: our fields by theirs
    names: their tensors by the paths of our parameters; a function of our configuration where they depend on it
    heads: their architectures; the first one is taken where config.json names none
    allowed: fields of theirs with the supported values, the default first
    must_equal: fields of theirs that must equal another field of theirs
    unused: a pattern of the names of tensors that are copies or constants
    ignored: fields of theirs that change nothing here
    nested: fields of theirs that are objects with fields of their own, which are called OBJECT.FIELD here
    types: of fields of theirs that `read` reads, where they are others than in `fields.TYPES`
    read: their fields -> our fields by dotted name that depend on several of theirs, and the names of those; of no
        fields, it names every field of ours that it may set
    write: our configuration -> their fields that `read` reads
    canonicalize: a model of ours -> one that computes the same and is more like theirs
    """

    name: str
    prefix: str
    base: Config
    fields: Mapping[str, Field]
    names: Names | Callable[[Config], Names]
    heads: Mapping[str, Head]
    allowed: Mapping[str, tuple] = dataclasses.field(default_factory=dict)
    must_equal: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unused: str = "$^"
    ignored: frozenset[str] = frozenset()
    nested: tuple[str, ...] = ()
    types: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    read: Callable[[Mapping[str, Any]], tuple[dict[str, Any], set[str]]] = read_nothing
    write: Callable[[Config], dict[str, Any]] = write_nothing
    canonicalize: Callable[[Config, Any], tuple[Config, Any]] = unchanged

    def table(self, config: Config, head: Head) -> Names:
        """The names of all tensors of a model."""
        return {**(self.names(config) if callable(self.names) else self.names), **head.names}

    def leaves_out(self, tensor: str) -> bool:
        """Whether a tensor is a copy or a constant."""
        return re.search(self.unused, tensor) is not None

    def architecture(self, fields: Mapping[str, Any]) -> str:
        """The name of the head that config.json asks for. Raises ValueError for one that is not supported."""
        names = check_type("config.json: architectures", fields.get("architectures"), TYPES["architectures"])
        name = (names or list(self.heads))[0]
        if name not in self.heads:
            raise ValueError(
                f"config.json has architectures=[{name}]; of {self.name}, supported are {', '.join(self.heads)}"
            )
        return name

    def config(self, fields: Mapping[str, Any], head: Head) -> Config:
        """config.json as our configuration.

        Raises ValueError for values that are not supported; warns of fields that change nothing here.
        """
        fields = self._checked(flat_fields(fields, self.nested))
        computed, used = self.read(fields)
        supported = set(self.fields) | set(self.allowed) | set(self.must_equal) | used
        ignored = IGNORED | self.ignored
        unknown = sorted(name for name in set(fields) - supported if name.rpartition(".")[2] not in ignored)
        if unknown:
            warnings.warn(f"config.json has {', '.join(unknown)}, which change nothing here", stacklevel=5)
        values = {field.name: self._value(name, field, fields) for name, field in self.fields.items()}
        classes = len(class_names(fields)) or fields.get("num_labels")
        values["classes"] = 2 if classes is None else classes
        try:
            return override(self.base, {**values, **computed, **head.overrides})
        except ValueError as error:
            raise ValueError(f"config.json: {self._renamed(str(error))}") from error

    def _renamed(self, message: str) -> str:
        """An error about a field of ours, with its name in config.json."""
        name, equals, rest = message.partition("=")
        return f"{next((hf_name for hf_name, field in self.fields.items() if field.name == name), name)}{equals}{rest}"

    def _checked(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields with the types that they are declared with.

        Raises ValueError for other types, and for values that are not supported; warns where only training differs.
        """
        hints = {**TYPES, **self.types} | {name: field.hint(self.base) for name, field in self.fields.items()}
        fields = {**fields, **check_object("config.json: ", fields, hints)}
        for name, values in self.allowed.items():
            if fields.get(name, values[0]) not in values:
                options = " or ".join(map(repr, values))
                raise ValueError(
                    f"config.json has {name}={fields[name]!r}; of {self.name}, only {options} is supported"
                )
        for name, reference in self.must_equal.items():
            value, required = fields.get(name), fields.get(reference)
            if name not in fields or value == required:
                continue
            message = f"config.json has {name}={value} and {reference}={required}"
            if "drop" not in name:
                raise ValueError(f"{message}; of {self.name}, only equal ones are supported")
            warnings.warn(f"{message}; here both are {required}", stacklevel=6)
        return fields

    def _value(self, name: str, field: Field, fields: Mapping[str, Any]) -> Any:
        """Our value of a field of theirs. Raises ValueError where there is none."""
        value = fields.get(name, field.default)
        if field.values is None:
            return None if field.zero_is_none and value == 0 else value
        if value not in field.values:
            raise ValueError(
                f"config.json has {name}={value!r}; of {self.name}, supported are {', '.join(map(str, field.values))}"
            )
        return field.values[value]

    def without_unread(self, config: Config, head: Head) -> Config:
        """The configuration, with that of the base where the head does not read it: the pooling, where nothing is
        predicted of a text, and the activation of a pooler, where there is none and no field holds it."""
        name, activation = "head.pool_activation", config.head.pool_activation
        is_held = any(field.name == name and field.holds(activation) for field in self.fields.values())
        unread = {} if "pooler" in head.names or is_held else {name: self.base.head.pool_activation}
        return override(config, unread | ({"head.pool": self.base.head.pool} if head.kind == "model" else {}))

    def conflicts(self, config: Config, architecture: str) -> list[str]:
        """`name=value` of our fields that a folder of this family cannot hold."""
        head = self.heads[architecture]
        config = self.without_unread(config, head)
        settable = {field.name for field in self.fields.values()} | set(self.read({})[0]) | set(head.overrides)
        fixed = [
            name
            for name in _differing(_weight_fields(config), _weight_fields(self.base))
            if not any(name == prefix or name.startswith(f"{prefix}.") for prefix in settable)
        ]
        values = resolved_fields(config)
        fields = [field for field in self.fields.values() if field.name in values]
        unsupported = fixed + [field.name for field in fields if not field.holds(values[field.name])]
        if unsupported:
            return [f"{name}={values[name]}" for name in unsupported]
        restored = self.config(self.config_json(config, architecture), head)
        return differences(config, self.without_unread(restored, head))

    def config_json(self, config: Config, architecture: str) -> dict[str, Any]:
        """The fields of config.json."""
        values = resolved_fields(config)
        fields: dict[str, Any] = {"model_type": self.name, "architectures": [architecture]}
        fields |= {name: field.write(values[field.name]) for name, field in self.fields.items()}
        fields |= {name: allowed[0] for name, allowed in self.allowed.items()} | self.write(config)
        fields |= {name: fields[reference] for name, reference in self.must_equal.items() if reference in fields}
        if self.heads[architecture].kind in ("classify", "classify_pixels", "tag", "span"):
            labels = {str(index): f"LABEL_{index}" for index in range(config.classes)}
            fields |= {"id2label": labels, "label2id": {label: int(index) for index, label in labels.items()}}
        return nested_fields(fields)


def layer_kinds(config: Config) -> list[Kind]:
    """The kind of every layer."""
    plan = config.layer_plan
    return [*plan.prefix, *plan.period * plan.times, *plan.tail]


def differences(config: Config, restored: Config) -> list[str]:
    """`name=value` of the fields that say what weights mean and are others in the restored configuration."""
    values, restored_values = _weight_fields(config), _weight_fields(restored)
    if values == restored_values:
        kinds, restored_kinds = _stack_kinds(config), _stack_kinds(restored)
        for name in kinds:
            if kinds[name] != restored_kinds[name]:
                values, restored_values = (flatten(Layer(*kind[name]), name) for kind in (kinds, restored_kinds))
                break
    return [f"{name}={values[name]}" for name in _differing(values, restored_values)]


def _stack_kinds(config: Config) -> dict[str, Kind]:
    """The kinds of all layers, and of those of the encoder of a translation model, by the beginnings of their names."""
    stacks = {"layers": config, "encoder": config.in_encoder()}
    return {f"{stack}.{n}.": kind for stack, model in stacks.items() for n, kind in enumerate(layer_kinds(model))}


def resolved_fields(config: Config) -> dict[str, Any]:
    """All fields by dotted name, with the sizes that None stands for."""
    return (
        flatten(config)
        | _image_sizes(config)
        | {
            "encoder.layers": config.encoder.layers or config.layers,
            "encoder.length": config.encoder.length or config.length,
            "kv_heads": config.sizes["K"],
            "head_size": config.sizes["H"],
            "ffn": config.sizes["F"],
            "attn_dropout": config.attn_rate,
        }
    )


def _image_sizes(config: Config) -> dict[str, Any]:
    """What None stands for in the tower of images, if there is one."""
    if config.images is None:
        return {}
    tower = config.in_images()
    return {"images.ffn": tower.sizes["F"], "images.activation": tower.activation, "images.norm_eps": tower.norm_eps}


def _weight_fields(config: Config) -> dict[str, Any]:
    """The fields that say what weights mean, except for kinds of layers; sizes are None where that means the same."""
    implied = {
        "encoder.layers": config.layers,
        "encoder.length": config.length,
        "kv_heads": config.heads,
        "head_size": config.width / config.heads,
        "ffn": 4 * config.width,
        "images.activation": config.activation,
        "images.norm_eps": config.norm_eps,
        "images.ffn": 4 * config.images.width if config.images else None,
    }
    for index, before in enumerate(config.stage_configs[:-1]):
        implied |= {f"stages.{index}.{name}": 2 * getattr(before, name) for name in ("width", "heads")}
    values = flatten(
        dataclasses.replace(
            config, prefix=(), period=(Layer(),), encoder=dataclasses.replace(config.encoder, period=())
        )
    )
    return {
        name: None if value == implied.get(name) else value
        for name, value in values.items()
        if name not in (*COMPUTE, "classes", *config.input.ignores)
    }


def _differing(values: Mapping[str, Any], restored: Mapping[str, Any]) -> list[str]:
    """The names whose restored value differs; the options of another variant are left out."""
    names = [name for name, value in values.items() if name not in restored or restored[name] != value]
    return [name for name in names if not any(name.startswith(f"{slot}.") for slot in names)]

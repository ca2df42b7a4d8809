"""Outputs of the classes, and the fields of config.json as attributes."""

import json
from collections.abc import Mapping
from typing import Any, Protocol

import jax

from tfm.hf.fields import Fields

# Defaults of fields that config.json may leave out.
CONFIG_DEFAULTS = dict(
    output_attentions=False, output_hidden_states=False, return_dict=True, use_cache=True, is_encoder_decoder=False,
    bos_token_id=None, eos_token_id=None, pad_token_id=None, sep_token_id=None, decoder_start_token_id=None,
    forced_bos_token_id=None, forced_eos_token_id=None, problem_type=None, finetuning_task=None,
    task_specific_params=None,
)  # fmt: skip

# Fields of an output, in this order; those that were not requested are None.
OUTPUT_NAMES = """last_hidden_state pooler_output logits prediction_logits seq_relationship_logits sop_logits
    start_logits end_logits past_key_values hidden_states attentions decoder_hidden_states decoder_attentions
    cross_attentions encoder_last_hidden_state encoder_hidden_states encoder_attentions sequences scores
    logits_per_image logits_per_text text_embeds image_embeds text_model_output vision_model_output""".split()


@jax.tree_util.register_pytree_node_class
class Output(dict):
    """Results by name or by place: `output.logits`, `output["logits"]`, `output[0]`."""

    def __init__(self, values: Fields, first: str = ""):
        names = [first, *OUTPUT_NAMES] if first else OUTPUT_NAMES
        super().__init__({name: values[name] for name in names if values.get(name) is not None})

    def __getattr__(self, name: str):
        if name in OUTPUT_NAMES:
            return self.get(name)
        raise AttributeError(f"the output has no {name!r}; it has {', '.join(self)}")

    def __getitem__(self, name):
        return super().__getitem__(name) if isinstance(name, str) else self.to_tuple()[name]

    def to_tuple(self) -> tuple:
        """All results, in their order."""
        return tuple(self.values())

    def tree_flatten(self):
        """For jax: an output is a pytree, so that `jit` and `pmap` may return it."""
        return self.to_tuple(), tuple(self)

    @classmethod
    def tree_unflatten(cls, names, values):
        """Inverse of `tree_flatten`."""
        output = cls({})
        dict.update(output, zip(names, values, strict=True))
        return output


class ConfigFields:
    """The fields of config.json as attributes; `defaults` stand in for fields that it leaves out."""

    def __init__(self, fields: Fields, defaults: Fields):
        vars(self).update(fields)
        for name, value in fields.items():
            if name.endswith("_config") and isinstance(value, Mapping):
                vars(self)[name] = ConfigFields(value, {})
        if isinstance(fields.get("id2label"), Mapping):
            self.id2label = {int(index): label for index, label in fields["id2label"].items()}
        vars(self)["_defaults"] = {**CONFIG_DEFAULTS, **defaults}

    def __getattr__(self, name: str):
        if not name.startswith("__") and name in vars(self).get("_defaults", {}):
            return vars(self)["_defaults"][name]
        raise AttributeError(f"config has no {name!r}; it has {', '.join(self.to_dict())}")

    @property
    def num_labels(self) -> int:
        """The number of classes."""
        return len(getattr(self, "id2label", None) or range(2))

    def to_dict(self) -> dict[str, Any]:
        """The fields of the file, and those that were set since."""
        fields = {name: value for name, value in vars(self).items() if name != "_defaults"}
        return {name: value.to_dict() if isinstance(value, ConfigFields) else value for name, value in fields.items()}

    def to_json_string(self) -> str:
        """The text of config.json."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"

    def __repr__(self) -> str:
        return f"ConfigFields({self.to_dict()})"


class HasFields(Protocol):
    """`ConfigFields`, or a configuration of transformers."""

    def to_dict(self) -> dict[str, Any]: ...


ConfigLike = Fields | HasFields


def fields_of(config: ConfigLike) -> dict[str, Any]:
    """The fields of a configuration: a dict, `ConfigFields`, or an object of transformers."""
    if isinstance(config, Mapping):
        return dict(config)
    if not hasattr(config, "to_diff_dict"):
        return dict(config.to_dict())
    # Defaults of transformers that depend on the family: they are no part of the difference.
    names = [name for name in CONFIG_DEFAULTS if name.endswith("_token_id")] + ["id2label", "label2id"]
    values = {name: getattr(config, name, None) for name in names}
    return {**config.to_diff_dict(), **{name: value for name, value in values.items() if value is not None}}

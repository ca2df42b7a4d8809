"""What the classes hand out: outputs, and the fields of config.json."""

from collections.abc import Mapping
from typing import Any

import jax

# Attributes that config.json need not say.
USUAL = dict(
    output_attentions=False, output_hidden_states=False, return_dict=True, use_cache=True, is_encoder_decoder=False,
    bos_token_id=None, eos_token_id=None, pad_token_id=None, sep_token_id=None, decoder_start_token_id=None,
    forced_bos_token_id=None, forced_eos_token_id=None, problem_type=None, finetuning_task=None, task_specific_params=None,
)  # fmt: skip

# Names that an output may have, in its order; what was not asked for is None.
NAMES = """last_hidden_state pooler_output logits prediction_logits seq_relationship_logits sop_logits start_logits end_logits
    past_key_values hidden_states attentions decoder_hidden_states decoder_attentions cross_attentions encoder_last_hidden_state
    encoder_hidden_states encoder_attentions sequences scores""".split()


@jax.tree_util.register_pytree_node_class
class Output(dict):
    """Results by name, as items or attributes, and in their order: `output.logits`, `output["logits"]`, `output[0]`."""

    def __init__(self, values: Mapping[str, Any]):
        super().__init__({name: values[name] for name in NAMES if values.get(name) is not None})

    def __getattr__(self, name: str):
        if name in NAMES:
            return self.get(name)
        raise AttributeError(f"the output has no {name!r}; it has {', '.join(self)}")

    def __getitem__(self, name):
        return super().__getitem__(name) if isinstance(name, str) else self.to_tuple()[name]

    def to_tuple(self) -> tuple:
        """All results."""
        return tuple(self.values())

    def tree_flatten(self):
        """For jax: an output may leave `jit` and `pmap`."""
        return self.to_tuple(), tuple(self)

    @classmethod
    def tree_unflatten(cls, names, values):
        """The reverse."""
        output = cls({})
        dict.update(output, zip(names, values, strict=True))
        return output


class Fields:
    """The fields of config.json as attributes; `usual` are those that it need not say."""

    def __init__(self, fields: Mapping[str, Any], usual: Mapping[str, Any]):
        vars(self).update(fields)
        if isinstance(fields.get("id2label"), Mapping):
            self.id2label = {int(number): label for number, label in fields["id2label"].items()}
        vars(self)["_usual"] = {**USUAL, **usual}

    def __getattr__(self, name: str):
        if not name.startswith("__") and name in vars(self).get("_usual", {}):
            return vars(self)["_usual"][name]
        raise AttributeError(f"config has no {name!r}; it has {', '.join(self.to_dict())}")

    @property
    def num_labels(self) -> int:
        """How many classes there are."""
        return len(getattr(self, "id2label", None) or range(2))

    def to_dict(self) -> dict[str, Any]:
        """The fields that were given, or set since."""
        return {name: value for name, value in vars(self).items() if name != "_usual"}

    def __repr__(self) -> str:
        return f"Fields({self.to_dict()})"


def fields_of(config: Any) -> dict[str, Any]:
    """The fields of a configuration: ours, one of transformers, or a dict."""
    if isinstance(config, Mapping):
        return dict(config)
    return dict(config.to_diff_dict() if hasattr(config, "to_diff_dict") else config.to_dict())

"""Folders of cross-encoders of sentence-transformers: a classifier with one output, and what is made of its score.

config.json says it (version 4 and later; an older name before), or config_sentence_transformers.json (version 6).
"""

from collections.abc import Mapping
from pathlib import Path

from tfm.options.json_text import parse, read_object, read_text
from train.text.module_list import MODULES
from train.text.sentence_transformers import PROMPTS, tokenizer_length

# The fields of config.json that say what is made of a score.
_FIELD, _OLDER_FIELD = "sentence_transformers", "sbert_ce_default_activation_function"

# Activations by the classes of torch.nn.
_ACTIVATIONS = {
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.linear.Identity": "identity",
}


def is_folder(root: Path, fields: Mapping[str, object]) -> bool:
    """Whether sentence-transformers saved a cross-encoder; `fields` are those of config.json."""
    return _FIELD in fields or _OLDER_FIELD in fields or _saved(root).get("model_type") == "CrossEncoder"


def activation(root: Path, fields: Mapping[str, object]) -> str:
    """sigmoid | identity. Raises ValueError for another one, and for a folder with a module or a prompt besides."""
    _check_alone(root)
    saved, of_config = _saved(root), fields.get(_FIELD)
    if saved.get("default_prompt_name"):
        raise ValueError(
            f"{root / PROMPTS}: default_prompt_name={saved['default_prompt_name']} stands before every query, which "
            "scores here do not have; remove it"
        )
    of_config = of_config if isinstance(of_config, dict) else {}
    name = saved.get("activation_fn") or of_config.get("activation_fn") or fields.get(_OLDER_FIELD)
    if name is None:
        return "sigmoid"
    if name not in _ACTIVATIONS:
        raise ValueError(f"{root}: the activation {name!r} of scores is not one of {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def length(root: Path) -> int | None:
    """The tokens that are read of a pair; None where the tokenizer cuts nothing."""
    return tokenizer_length(root)


def fields(activation: str) -> dict[str, object]:
    """The field of config.json that all versions since 4 read."""
    name = next(name for name, kind in _ACTIVATIONS.items() if kind == activation)
    return {_FIELD: {"activation_fn": name}}


def _saved(root: Path) -> dict[str, object]:
    """config_sentence_transformers.json; {} where there is none."""
    path = root / PROMPTS
    return read_object(path) if path.is_file() else {}


def _check_alone(root: Path):
    """Raises ValueError where modules.json names more than the model."""
    path = root / MODULES
    if not path.is_file():
        return
    entries = parse(read_text(path), str(path))
    if not isinstance(entries, list) or len(entries) != 1:
        raise ValueError(f"{path} must name one module, the model; scores of more are not understood")

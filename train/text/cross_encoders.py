"""Folders of cross-encoders of sentence-transformers: a classifier with one output, and what is made of its score.

config.json says it (version 4 and later; an older name before), or config_sentence_transformers.json (version 6).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from tfm.config.model import Config
from tfm.options.choices import Hint, check_object
from tfm.options.json_text import read_object
from train.text.module_list import MODULES, read_modules
from train.text.sentence_transformers import PROMPTS, check_model, check_no_parts
from train.text.transformer_module import length_field, read_transformer, tokenizer_length, transformer_file
from train.text.vector_layers import refuse_unknown

# The fields of config.json that say what is made of a score.
_FIELD, _OLDER_FIELD = "sentence_transformers", "sbert_ce_default_activation_function"

# Activations by the classes of torch.nn.
_ACTIVATIONS = {
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.linear.Identity": "identity",
}
_SHORT = {f"torch.nn.{name.rpartition('.')[2]}": kind for name, kind in _ACTIVATIONS.items()}

_TASK = "sequence-classification"


def is_folder(root: Path, fields: Mapping[str, object]) -> bool:
    """Whether sentence-transformers saved a cross-encoder; `fields` are those of config.json."""
    if _FIELD in fields or _OLDER_FIELD in fields or _saved(root).get("model_type") == "CrossEncoder":
        return True
    path = transformer_file(root)
    return path.is_file() and read_object(path).get("transformer_task") == _TASK


def activation(root: Path, fields: Mapping[str, object]) -> str:
    """sigmoid | identity. Raises ValueError for another one, and for a folder with a module or a prompt besides."""
    path, saved = root / PROMPTS, _read(root)
    of_config = fields.get(_FIELD)
    named = [(f"{path}: activation_fn", saved.get("activation_fn"))]
    if isinstance(of_config, dict) and "activation_fn" in of_config:
        named.append((f"{root / 'config.json'}: {_FIELD}.activation_fn", of_config["activation_fn"]))
    else:
        named.append((f"{root / 'config.json'}: {_OLDER_FIELD}", fields.get(_OLDER_FIELD)))
    for place, name in named:
        kind = (_ACTIVATIONS | _SHORT).get(name) if isinstance(name, str) else None
        if name is not None and kind is None:
            raise ValueError(f"{place}={name!r}, the activation of scores, is not one of {', '.join(_ACTIVATIONS)}")
        if kind is not None:
            return kind
    return "sigmoid"


def length(root: Path, folder: Path, model: Config) -> int | None:
    """The tokens that are read of a pair; None where nothing is cut. `folder` has the model of the folder `root`.

    Raises ValueError for a length without room for a pair, and for fields of a Transformer that are not understood.
    """
    limit = tokenizer_length(folder)
    if (root / MODULES).is_file():
        values = read_transformer(folder, model, task=_TASK)
        limit = values["length"]
        if values["lower"]:
            raise ValueError(f"{transformer_file(folder)}: do_lower_case=true is not done before pairs; remove it")
    if limit is not None and limit < 8:
        raise ValueError(f"{length_field(folder)}={limit} is less than the 8 tokens of the shortest pair; correct it")
    return limit


def fields(activation: str) -> dict[str, object]:
    """The field of config.json that all versions since 4 read."""
    name = next(name for name, kind in _ACTIVATIONS.items() if kind == activation)
    return {_FIELD: {"activation_fn": name}}


def _saved(root: Path) -> dict[str, object]:
    """config_sentence_transformers.json; {} where there is none."""
    path = root / PROMPTS
    return read_object(path) if path.is_file() else {}


def _read(root: Path) -> dict[str, Any]:
    """Its fields; {} without modules.json, as in version 5 and earlier. Raises ValueError for one that is not
    understood, and for modules beside the model."""
    if not (root / MODULES).is_file():
        check_no_parts(root)
        return {}
    entries = read_modules(root, ("Transformer",))
    if len(entries) != 1:
        raise ValueError(f"{root / MODULES} must name one module, the model; scores of more are not understood")
    check_model(root, entries[0].folder)
    path, fields = root / PROMPTS, _saved(root)
    if not path.is_file():
        return {}
    hints: dict[str, Hint] = {
        "model_type": Literal["CrossEncoder"],
        "activation_fn": str | None,
        "prompts": dict[str, str | None],
        "default_prompt_name": str | None,
    }
    refuse_unknown(path, fields, (*hints, "requirements", "keep_in_fp32_modules"))
    values = check_object(f"{path}: ", {"model_type": None, **fields}, hints)
    if values.get("default_prompt_name"):
        raise ValueError(
            f"{path}: default_prompt_name={values['default_prompt_name']} stands before every query, which scores "
            "here do not have; remove it"
        )
    return values

"""Tokenizers of Hugging Face folders: tokenizer.json and tokenizer_config.json."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tfm.config.model import Config
from tfm.options.choices import check_object
from tfm.options.json_text import read_object
from train import UserError
from train.files.strict_json import json_text
from train.settings.gate import user_errors
from train.settings.schema import Run
from train.text import hf_roles, tokenize
from train.text.special import AnyTokenizer, ConfiguredTokenizer, role_ids

if TYPE_CHECKING:
    from tokenizers.processors import TemplateProcessing


class MarksTexts(Protocol):
    """What an exported tokenizer asks of a task."""

    @property
    def hf_tokens(self) -> Mapping[str, str]:
        """Roles of special tokens in tokenizer_config.json, beside those of all tasks."""

    @property
    def hf_template(self) -> Callable[[Run, Any], tuple[str, ...]]:
        """A run and its tokenizer -> how the tokenizer marks a text and a pair of texts."""


def read(folder: Path, model: Config) -> ConfiguredTokenizer:
    """The tokenizer of a folder. Raises UserError where there is none, or one of another model than `model`."""
    if not any((folder / name).exists() for name in ("tokenizer.json", "vocab.txt")):
        remedy = "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
        raise UserError(f"{folder} has no tokenizer.json; make it once, where transformers is installed, with {remedy}")
    options = folder / "tokenizer_config.json"
    with user_errors(str(folder)):
        options_fields = read_object(options) if options.exists() else {}
        lower = check_object(f"{options}: ", options_fields, {"do_lower_case": bool | None}).get("do_lower_case")
    tokenizer = tokenize.read(folder, lower is not False)
    last, vocab = max(tokenizer.get_vocab().values()), model.vocab
    if last >= vocab:
        raise UserError(
            f"{folder}: the tokenizer numbers tokens up to {last}, and the model has {vocab}; take its own tokenizer"
        )
    with user_errors(str(folder)):
        return hf_roles.configured(folder, tokenizer, hf_roles.model_fields(folder))


def fields(tokenizer: AnyTokenizer) -> dict[str, object]:
    """The fields of config.json that a tokenizer decides."""
    return {"pad_token_id": tokenize.special_tokens(tokenizer).pad}


def save(tokenizer: AnyTokenizer, task: MarksTexts, run: Run, folder: Path):
    """Writes both files; special tokens stand around texts as the module `task` had them in training."""
    from tokenizers import Tokenizer

    exported = Tokenizer.from_str(tokenizer.to_str())
    special = role_ids(tokenizer)
    roles = {"pad_token": "pad", "unk_token": "unk", "cls_token": "cls", "sep_token": "sep", **task.hf_tokens}
    names = {role: exported.id_to_token(token) for role, token in special.items() if token >= 0}
    if template := task.hf_template(run, tokenizer):
        exported.post_processor = _post_processor(template, names, special)
    exported.save(str(folder / "tokenizer.json"))
    types = ["token_type_ids"] if run.model.sizes.get("Y", 0) > 1 else []
    options = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": run.model.length,
        "clean_up_tokenization_spaces": False,
        **{token: names.get(role) for token, role in roles.items()},
        **(tokenizer.fields if isinstance(tokenizer, ConfiguredTokenizer) else {}),
        "model_input_names": ["input_ids", *types, "attention_mask"],
    }
    (folder / "tokenizer_config.json").write_text(json_text(options, indent=2) + "\n")


def _post_processor(
    template: tuple[str, ...], names: Mapping[str, str | None], special: Mapping[str, int]
) -> "TemplateProcessing":
    """The template of a text, and of a pair of texts if there is one, with the names of the special tokens."""
    from tokenizers import processors

    used = [role for role in names if any(f"{{{role}}}" in text for text in template)]
    single, *pair = (text.format(**names) for text in template)
    tokens = [(str(names[role]), special[role]) for role in used]
    options = {"pair": pair[0]} if pair else {}
    return processors.TemplateProcessing(single=single, special_tokens=tokens, **options)

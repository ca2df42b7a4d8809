"""Tokenizers of Hugging Face folders: tokenizer.json and tokenizer_config.json."""

import json
import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tfm.config.model import Config
from train import UserError
from train.files.strict_json import json_text
from train.settings.gate import user_errors
from train.settings.schema import Run
from train.text import (
    hf_roles,
    languages,
    pair_types,
    tokenize,
    tokenizer_checks,
    tokenizer_classes,
    tokenizer_files,
    tokenizer_kinds,
    vocabulary_files,
)
from train.text.special import CLEANS, AnyTokenizer, ConfiguredTokenizer, role_ids, words_have_spaces

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.processors import TemplateProcessing


# The tokenizer of translations, beside tokenizer.json; transformers does not read it.
TARGET = "target_tokenizer.json"


class MarksTexts(Protocol):
    """What an exported tokenizer asks of a task."""

    @property
    def hf_tokens(self) -> Mapping[str, str]:
        """Roles of special tokens in tokenizer_config.json, beside those of all tasks."""

    @property
    def hf_template(self) -> Callable[[Run, Any], tuple[str, ...]]:
        """A run and its tokenizer -> how the tokenizer marks a text and a pair of texts."""

    @property
    def hf_tokenizer_fields(self) -> Callable[[Run, Any], Mapping[str, object]]:
        """A run and its tokenizer -> further fields of tokenizer_config.json."""


def read(folder: Path, model: Config) -> ConfiguredTokenizer:
    """The tokenizer of a folder. Raises UserError where there is none, or one of another model than `model`."""
    with user_errors(str(folder)):
        tokenizer, sides = _read(folder)
    last, vocab = max(tokenizer.get_vocab().values()), model.vocab
    if last >= vocab:
        raise UserError(
            f"{folder}: the tokenizer numbers tokens up to {last}, and the model has {vocab}; take its own tokenizer"
        )
    with user_errors(str(folder)):
        configured = hf_roles.configured(folder, tokenizer, hf_roles.model_fields(folder), sides)
        configured.target = _read_target(folder)
        files = tokenizer_files.read(folder)
        if _cleans(tokenizer, files):
            configured.fields[CLEANS] = True
        if name := _mark_languages(tokenizer, files):
            configured.fields[languages.FIELD] = name
    return configured


def _read(folder: Path) -> "tuple[Tokenizer, Mapping[str, Any]]":
    """tokenizer.json with the tokens that other files add, and how it pads and cuts texts; else what the folder's class
    makes of its vocabulary."""
    path = folder / "tokenizer.json"
    if not path.exists():
        return tokenizer_classes.read(folder), {}
    tokenizer, sides = tokenizer_kinds.read_padded(path)
    files = tokenizer_files.read(folder)
    tokenizer_files.add_tokens(tokenizer, files)
    rules = tokenizer_classes.CLASSES.get(tokenizer_checks.class_beside(files))
    if rules and rules.build is vocabulary_files.clip:
        tokenizer_kinds.write_ends(tokenizer)
    tokenizer_checks.check(tokenizer, files)
    return tokenizer, sides


def _read_target(folder: Path) -> "Tokenizer | None":
    """The tokenizer of translations, where the folder has one for them: Marian's, or what `save` writes."""
    if (folder / TARGET).exists():
        return tokenizer_kinds.read_own(folder / TARGET)
    return None if (folder / "tokenizer.json").exists() else tokenizer_classes.read_target(folder)


def _cleans(tokenizer: "Tokenizer", files: tokenizer_files.TokenizerFiles) -> bool:
    """Whether spaces before marks are left out of texts: of pairs of symbols only where a field of its own says so.

    As in transformers 5, but for classes that do not read tokenizer.json, which have no such rule.
    """
    is_pairs = type(tokenizer.model).__name__ == "BPE"
    has_rule = is_pairs and tokenizer_classes.class_name(files) not in ("MarianTokenizer", "M2M100Tokenizer")
    fields = (CLEANS, f"{CLEANS}_for_bpe_even_though_it_will_corrupt_output") if has_rule else (CLEANS,)
    return all(files.optional(field) for field in fields)


def _mark_languages(tokenizer: "Tokenizer", files: tokenizer_files.TokenizerFiles) -> str:
    """The class of a tokenizer that marks languages; "" for others. Texts get the marks that the class puts there.

    So transformers has it: what tokenizer.json puts around texts is that of the language when it was written.
    """
    name = files.text(languages.FIELD, "") or tokenizer_classes.class_name(files)
    if name not in languages.SCHEMES:
        return ""
    scheme = languages.SCHEMES[name]
    source = scheme.token.format(files.text("src_lang", scheme.source))
    is_language = tokenizer.token_to_id(source) is not None
    if "src_lang" in files.options and not is_language:
        warnings.warn(
            f"{files.folder}: src_lang={files.options['src_lang']} is no language of the tokenizer: texts have what "
            "tokenizer.json puts around them, and in transformers the unknown token",
            stacklevel=2,
        )
    if is_language and name == tokenizer_checks.class_beside(files):
        rules = tokenizer_classes.CLASSES[name]
        names = {field: files.name(field, default) for field, default in rules.special.items()}
        tokenizer.post_processor = tokenizer_classes.post_processor(tokenizer, rules, files, names)
    return name


def target_text(tokenizer: AnyTokenizer) -> str:
    """The file of the tokenizer of translations; "" where there is none."""
    target = tokenizer.target if isinstance(tokenizer, ConfiguredTokenizer) else None
    return "" if target is None else target.to_str(pretty=True)


def fields(tokenizer: AnyTokenizer) -> dict[str, object]:
    """The fields of config.json that a tokenizer decides."""
    return {"pad_token_id": tokenize.special_tokens(tokenizer).pad}


def save(tokenizer: AnyTokenizer, task: MarksTexts, run: Run, folder: Path):
    """Writes both files; special tokens stand around texts as the module `task` had them in training."""
    from tokenizers import Tokenizer

    exported = Tokenizer.from_str(_with_spaced_mask(tokenizer))
    special = role_ids(tokenizer)
    roles = {"pad_token": "pad", "unk_token": "unk", "cls_token": "cls", "sep_token": "sep", **task.hf_tokens}
    names = {role: exported.id_to_token(token) for role, token in special.items() if token >= 0}
    if special["unk"] == special["pad"]:  # there is none
        roles.pop("unk_token")
    if template := task.hf_template(run, tokenizer):
        exported.post_processor = _post_processor(template, names, tokenizer)
    exported.save(str(folder / "tokenizer.json"))
    if text := target_text(tokenizer):
        (folder / TARGET).write_text(text, encoding="utf-8")
    types = [pair_types.TYPES] if run.model.sizes.get("Y", 0) > 1 and pair_types.second_type(tokenizer) else []
    options = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": run.model.length,
        CLEANS: False,
        **{token: names.get(role) for token, role in roles.items()},
        **(tokenizer.fields if isinstance(tokenizer, ConfiguredTokenizer) else {}),
        **task.hf_tokenizer_fields(run, tokenizer),
        pair_types.FIELD: ["input_ids", *types, "attention_mask"],
    }
    (folder / "tokenizer_config.json").write_text(json_text(options, indent=2) + "\n")


def _with_spaced_mask(tokenizer: AnyTokenizer) -> str:
    """tokenizer.json, in which a mask takes the space before it where it stands for a word with one."""
    index, text = tokenize.special_tokens(tokenizer).mask, tokenizer.to_str()
    if index < 0 or not words_have_spaces(tokenizer, str(tokenizer.id_to_token(index))):
        return text
    fields = json.loads(text)
    for token in fields["added_tokens"]:
        token["lstrip"] = token["lstrip"] or token["id"] == index
    return json_text(fields)


def _post_processor(
    template: tuple[str, ...], names: Mapping[str, str | None], tokenizer: AnyTokenizer
) -> "TemplateProcessing":
    """The template of a text, and of a pair of texts if there is one: tokens, and names of special tokens in braces."""
    from tokenizers import processors

    single, *pair = (text.format(**names) for text in template)
    words = {re.sub(r":\d+$", "", word) for text in (single, *pair) for word in text.split()}
    tokens = [(word, tokenizer.token_to_id(word)) for word in sorted(words) if not word.startswith("$")]
    options = {"pair": pair[0]} if pair else {}
    return processors.TemplateProcessing(single=single, special_tokens=tokens, **options)

"""What stands around sources and translations: the marks of texts, and of languages where a model has several."""

import dataclasses
import warnings
from typing import TYPE_CHECKING

from tfm.options.errors import suggest
from train import UserError
from train.tasks.translate.options import Translate
from train.text import languages, tokenize
from train.text.languages import Languages
from train.text.special import AnyTokenizer, generation_of
from train.text.tokenize import SequenceTemplate

if TYPE_CHECKING:
    from tfm.hf.generation import FolderGeneration

# The languages that an error names.
_SHOWN = 5


def template(tokenizer: AnyTokenizer, task: Translate) -> SequenceTemplate:
    """The special tokens of a task. Raises UserError for a language that the model lacks, or where one must be named.

    Where the folder starts translations with the token of a language, that of the target takes its place, as mBART has
    it; else the token stands where that of the source stands.
    """
    plain = tokenize.sequence_template(tokenizer, task.start)
    spoken = languages.of(tokenizer)
    if spoken is None:
        for flag, language in (("source", task.source_language), ("target", task.target_language)):
            if language:
                raise UserError(f"--{flag}={language} names a language, and the model marks none; leave it out")
        return plain
    if not task.target_language:
        raise UserError(
            f"the model translates into {len(spoken.ids)} languages; say --target=LANG, such as {_some(spoken)} "
            "(--task.target-language of train.main)"
        )
    source = _token(spoken, "source", task.source_language or spoken.source)
    target = _token(spoken, "target", task.target_language)
    (prefix, suffix), target_frame = spoken.frame(source), spoken.frame(target)
    start = target if spoken.name(plain.decoder_start) else plain.decoder_start
    return plain._replace(prefix=prefix, suffix=suffix, decoder_start=start, target_frame=target_frame)


def generation(tokenizer: AnyTokenizer, task: Translate) -> "FolderGeneration | None":
    """How the model's folder wants translations to be written, the first token being that of the target's language."""
    folder, spoken = generation_of(tokenizer), languages.of(tokenizer)
    if folder is None or spoken is None or task.target_language not in spoken.ids:
        return folder
    starts_with_language = bool(spoken.name(tokenizer.token_to_id(task.start)))
    if starts_with_language and not spoken.name(folder.values.get("forced_bos_token_id")):
        return folder
    forced = {"forced_bos_token_id": spoken.ids[task.target_language]}
    return dataclasses.replace(folder, values={**folder.values, **forced})


def of_folder(tokenizer: AnyTokenizer, start: int) -> dict[str, str]:
    """The options of a run with the languages that a folder itself names; `start` is the token of the decoder, of which
    a warning says whether transformers writes it."""
    added = tokenizer.get_added_tokens_decoder().get(start)
    if added is None or not added.special:
        warnings.warn(
            f"decoder_start_token_id={start}, {tokenizer.id_to_token(start)!r}, is no special token: transformers "
            "writes it before each text, and here it is left out",
            stacklevel=2,
        )
    folder, spoken = generation_of(tokenizer), languages.of(tokenizer)
    if spoken is None:
        return {}
    forced = None if folder is None else folder.values.get("forced_bos_token_id")
    source = spoken.source if spoken.source in spoken.ids else ""
    target = spoken.name(forced) or spoken.name(start)
    return {"task.source_language": source, "task.target_language": target}


def text_template(tokenizer: AnyTokenizer, task: Translate) -> tuple[str, ...]:
    """How a written tokenizer marks a source, with the token of its language; () where texts have none."""
    spoken = languages.of(tokenizer)
    if spoken is None:
        return ()
    sides = spoken.frame(_token(spoken, "source", task.source_language or spoken.source))
    before, behind = ([str(tokenizer.id_to_token(token)) for token in side] for side in sides)
    return " ".join([*before, "$A", *behind]), " ".join([*before, "$A", "$B", *behind])


def named_languages(tokenizer: AnyTokenizer, task: Translate) -> dict[str, str]:
    """The fields of a written tokenizer_config.json that name the languages of a run."""
    spoken = languages.of(tokenizer)
    if spoken is None:
        return {}
    return {"src_lang": task.source_language or spoken.source, "tgt_lang": task.target_language}


def _token(spoken: Languages, flag: str, language: str) -> int:
    if language not in spoken.ids:
        nearest = suggest(language, spoken.ids)
        raise UserError(f"--{flag}={language} is no language of the model, which has {_some(spoken)}{nearest}")
    return spoken.ids[language]


def _some(spoken: Languages) -> str:
    names = list(spoken.ids)
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + rest

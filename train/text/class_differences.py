"""What transformers 5 does otherwise with the folders of single classes, as warnings."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from train.files.strict_json import json_text
from train.text import languages, pair_types
from train.text.extra_tokens import EXTRA
from train.text.tokenizer_files import TokenizerFiles

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def follows_file(tokenizer: "Tokenizer", class_name: str) -> bool:
    """Whether transformers 5 follows tokenizer.json, and not the class: that of Llama does so where it reads bytes."""
    parts = (tokenizer.pre_tokenizer, tokenizer.decoder, tokenizer.post_processor)
    return class_name == "LlamaTokenizer" and any("ByteLevel" in repr(part) for part in parts)


def steps(normalizer: object) -> Iterator[str]:
    """The types of a normalizer's steps."""
    from tokenizers import normalizers

    if isinstance(normalizer, normalizers.Sequence):
        for index in range(len(normalizer)):
            yield from steps(normalizer[index])
    elif normalizer is not None:
        yield type(normalizer).__name__


def of_bert(tokenizer: "Tokenizer", files: TokenizerFiles) -> Iterator[str]:
    """How the rules of BERT, and of GPT, prepare and write texts in another way than tokenizer.json does."""
    from tokenizers import decoders, normalizers

    step, decoder = tokenizer.normalizer, tokenizer.decoder
    if not isinstance(step, normalizers.BertNormalizer):
        kinds = ", ".join(steps(step)) or "none"
        yield f"has a normalizer of BertNormalizer, and tokenizer.json {kinds}"
        return
    if not step.clean_text:
        yield "has clean_text=true, and the normalizer of tokenizer.json false"
    strips = step.strip_accents
    if files.optional("strip_accents") is None and strips not in (None, step.lowercase):
        yield f"has a normalizer with strip_accents=null, and tokenizer.json {json_text(strips)}"
    if isinstance(decoder, decoders.WordPiece) and not decoder.cleanup:
        yield "has cleanup=true, and the decoder of tokenizer.json false"


def dropped_flags(files: TokenizerFiles, tokenizer: "Tokenizer | None" = None) -> Iterator[str]:
    """What transformers 5 does with flags of special tokens, also of tokenizer.json, in classes that add them anew."""
    numbered = files.numbered if tokenizer is None else tokenizer.get_added_tokens_decoder()
    flagged = {token.content: token for token in numbered.values()}
    for field, token in (*files.special.items(), *((EXTRA[0], token) for token in files.extra)):
        own = flagged.get(token.content, token)
        if own.lstrip or own.rstrip or own.single_word:
            yield f"{field} takes the spaces around it, or whole words; transformers 5 drops that for this class"
        elif not own.special:
            yield f"{field} has {own.content}, which is no special token beside the vocabulary; in transformers 5 it is"


def dropped_mask(files: TokenizerFiles) -> Iterator[str]:
    """What transformers 5 does with the space before a mask where no file says it."""
    mask = files.name("mask_token", "")
    is_null, is_numbered = "mask_token" in files.fields and not mask, mask in map(str, files.numbered.values())
    if not (is_null or is_numbered or "mask_token" in files.flagged):
        yield "mask_token takes the space before it, as in transformers 4; version 5 reads that as text"


def dropped_sentinels(files: TokenizerFiles) -> Iterator[str]:
    """What transformers 5 does with the sentinels of T5 where the files name special tokens, and none of them."""
    stated = [field for field in EXTRA if field in files.fields]
    if stated and not any(token.content.startswith("<extra_id_") for token in files.extra):
        yield f"{stated[0]} has no <extra_id_0>: there are {files.size('extra_ids', 100)}, and transformers 5 has none"


def dropped_languages(files: TokenizerFiles) -> Iterator[str]:
    """What transformers 5 does with the tokens of languages where the files name special tokens, and none of them."""
    if any(field in files.fields for field in EXTRA):
        yield from unnamed_languages(files)


def unnamed_languages(files: TokenizerFiles) -> Iterator[str]:
    """What transformers 5 does with the tokens of languages where the files name none of them."""
    field = next((field for field in EXTRA if field in files.fields), EXTRA[0])
    scheme = languages.SCHEMES.get(files.class_name)
    named = [token.content for token in (*files.extra, *files.numbered.values())]
    if scheme and not any(re.fullmatch(scheme.token.format(f"(?:{scheme.language})"), text) for text in named):
        yield f"{field} has no languages such as {scheme.source}: they are special here, and text in transformers 5"


def languages_and_types(files: TokenizerFiles) -> Iterator[str]:
    """What transformers 5 does with the types of a pair, beside `unnamed_languages`."""
    if pair_types.TYPES in files.words(pair_types.FIELD):
        yield f"{pair_types.FIELD} has {pair_types.TYPES}: that of a second text is 0, and in transformers 5 it is 1"
    yield from unnamed_languages(files)


def kept_spaces(files: TokenizerFiles) -> Iterator[str]:
    """What transformers 5 does with spaces at the end of a text, beside `dropped_languages`."""
    yield "spaces at the end of a text, or before a special token, are left out; transformers 5 keeps one"
    scheme, numbered = languages.SCHEMES.get(files.class_name), [*map(str, files.numbered.values())]
    tokens = (*languages.NLLB, files.name("mask_token", "<mask>")) if scheme and scheme.model == "BPE" else ()
    absent = next((token for token in tokens if token not in numbered), "")
    if absent:
        yield f"added_tokens_decoder has no {absent}: the mask is behind the languages, in transformers 5 before them"
    yield from dropped_languages(files)


def defaults_of_llama(files: TokenizerFiles) -> Iterator[str]:
    """What transformers 5 does with texts of Llama, and behind a special token of it, where no field says it."""
    if "add_bos_token" not in files.options:
        yield "there is no add_bos_token: bos_token stands before a text, and in transformers 5 nothing does"
    if files.option("legacy", True):
        yield "legacy is true, by default too: a text behind a special token gets a space; transformers 5 adds none"


def bytes_of_a_letter(tokenizer: "Tokenizer", *tokens: str) -> Iterator[str]:
    """How tokenizer.json writes the bytes of a letter, if there are such tokens."""
    ids = [index for token in tokens if (index := tokenizer.token_to_id(token)) is not None]
    if len(ids) == len(tokens) and (text := tokenizer.decode(ids)) != "\u00e9":
        yield f"writes the bytes of '\u00e9' as that, and tokenizer.json as {text!r}"

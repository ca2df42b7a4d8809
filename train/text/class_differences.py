"""What transformers 5 does otherwise with the folders of single classes, as warnings."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from train.text.tokenizer_files import EXTRA, TokenizerFiles

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def follows_file(tokenizer: "Tokenizer", class_name: str) -> bool:
    """Whether transformers 5 follows tokenizer.json, and not the class: that of Llama does so where it reads bytes."""
    parts = (tokenizer.pre_tokenizer, tokenizer.decoder, tokenizer.post_processor)
    return class_name == "LlamaTokenizer" and any("ByteLevel" in repr(part) for part in parts)


def dropped_flags(files: TokenizerFiles) -> Iterator[str]:
    """What transformers 5 does with special tokens that take the spaces around them, in classes that add them anew."""
    for field in sorted(files.flagged & files.special.keys()):
        if files.special[field].lstrip or files.special[field].rstrip:
            yield f"{field} takes the spaces around it; transformers 5 drops that for this class"


def dropped_sentinels(files: TokenizerFiles) -> Iterator[str]:
    """What transformers 5 does with the sentinels of T5 where the files name special tokens, and none of them."""
    stated = [field for field in EXTRA if field in files.fields]
    if stated and not any(token.content.startswith("<extra_id_") for token in files.extra):
        yield f"{stated[0]} has no <extra_id_0>: there are {files.size('extra_ids', 100)}, and transformers 5 has none"


def legacy_spaces(files: TokenizerFiles) -> Iterator[str]:
    """What transformers 5 does with texts behind a special token of Llama."""
    if files.option("legacy", True):
        yield "legacy is true, by default too: a text behind a special token gets a space; transformers 5 adds none"

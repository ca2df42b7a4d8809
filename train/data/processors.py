"""Processors turn raw examples into the arrays that a model reads; a corpus holds one, and a run folder keeps it.

The processor of texts is a tokenizer, a `tokenizers.Tokenizer`. A processor of images is another kind: a record like
TOKENIZER, which its task names.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from train.text.kinds import read_own


class ProcessorKind(NamedTuple):
    """How a run folder keeps a processor.

    file: its name in the folder
    to_text: processor -> the content of the file
    read: path of the file -> processor; raises ValueError where it is damaged
    """

    file: str
    to_text: Callable[[Any], str]
    read: Callable[[Path], Any]


def _tokenizer_text(tokenizer) -> str:
    return tokenizer.to_str(pretty=True)


TOKENIZER = ProcessorKind("tokenizer.json", _tokenizer_text, read_own)

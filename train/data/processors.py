"""Processors turn raw examples into the arrays that a model reads; a corpus holds one, and a run folder keeps it.

The processor of texts is a tokenizer, a `tokenizers.Tokenizer`. A processor of images is another kind: a record like
TOKENIZER, which its task names.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from train import UserError
from train.text import hf_tokenizer
from train.text.kinds import read_own


def _no_hf_folder(*_: Any) -> Any:
    raise UserError("transformers has no such processor; nothing is read or written")


class ProcessorKind(NamedTuple):
    """How a run folder keeps a processor, and how Hugging Face folders do.

    file: its name in the run folder
    to_text: processor -> the content of the file
    read: path of the file -> processor; raises ValueError where it is damaged
    read_hf: a Hugging Face folder, the configuration of its model -> processor; raises UserError or ValueError
    save_hf: writes what transformers reads: processor, module of the task, run, folder
    hf_fields: processor -> the fields of config.json that depend on it
    """

    file: str
    to_text: Callable[[Any], str]
    read: Callable[[Path], Any]
    read_hf: Callable[[Path, Any], Any] = _no_hf_folder
    save_hf: Callable[[Any, Any, Any, Path], None] = _no_hf_folder
    hf_fields: Callable[[Any], Mapping[str, Any]] = lambda processor: {}


def _tokenizer_text(tokenizer) -> str:
    return tokenizer.to_str(pretty=True)


TOKENIZER = ProcessorKind(
    "tokenizer.json", _tokenizer_text, read_own, hf_tokenizer.read, hf_tokenizer.save, hf_tokenizer.fields
)

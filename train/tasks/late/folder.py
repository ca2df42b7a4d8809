"""Runs as folders of MultiVectorEncoder of sentence-transformers, both ways."""

import string
from pathlib import Path

import numpy as np

from tfm.low_rank import merge_low_rank
from tfm.params import PyTree
from train.settings.gate import user_errors
from train.tasks.late.rows import punctuation
from train.tasks.record import Folder, HfSource
from train.text import multi_vector
from train.text.multi_vector import TokenVectors
from train.text.special import AnyTokenizer
from train.text.tokenize import special_tokens


def hf_run_values(head: str, folder: HfSource) -> dict[str, object]:
    """Options of a run that could have trained a folder of the library. Raises UserError for what it could not."""
    with user_errors():
        record = multi_vector.read(folder.path, folder.hf_model)
        values: dict[str, object] = {
            "data.field": "query,passage",
            "model.classes": record.kernel.shape[1],
            "task.size": record.kernel.shape[1],
            "task.query_length": record.query_length,
            "task.cut_queries": record.cuts_queries,
            "task.skip_punctuation": _skips(record, folder.processor),
            "task.query_prompt": record.query_prompt,
            "task.passage_prompt": record.passage_prompt,
        }
        _check_filler(record, folder.processor)
    return values if record.length is None else values | {"batch.length": record.length}


def _skips(record: TokenVectors, tokenizer: AnyTokenizer) -> bool:
    """Whether the words that do not score are punctuation. Raises ValueError for others."""
    unknown = special_tokens(tokenizer).unk
    ids = {tokenizer.token_to_id(word) for word in record.skipped} - {None, unknown}
    if ids and ids != {*punctuation(tokenizer).tolist()} - {unknown}:
        raise ValueError(
            f"{multi_vector.MODULES}: skiplist_words={list(record.skipped)[:4]} must be all signs of punctuation in "
            "ASCII, or none"
        )
    return bool(ids)


def _check_filler(record: TokenVectors, tokenizer: AnyTokenizer):
    """Raises ValueError for queries that are filled up with another token than [MASK]."""
    mask = special_tokens(tokenizer).mask
    if record.query_length and (mask < 0 or (record.filler and tokenizer.token_to_id(record.filler) != mask)):
        raise ValueError(
            f"sentence_bert_config.json: query_expansion.token={record.filler or 'null'}: queries are filled up with "
            f"[MASK] alone, and the tokenizer has {'none' if mask < 0 else 'another one'}"
        )


def projection(folder: HfSource) -> np.ndarray:
    """The projection of a folder, float32 [D,C]."""
    return multi_vector.read(folder.path, folder.hf_model).kernel


def save_hf(folder: Folder, params: PyTree, to: Path):
    """Writes beside the model what the library reads: the projection, and which tokens score."""
    task, tokenizer = folder.config.task, folder.processor
    unknown = special_tokens(tokenizer).unk
    signs = [sign for sign in string.punctuation if tokenizer.token_to_id(sign) not in (None, unknown)]
    record = TokenVectors(
        np.asarray(merge_low_rank(params).output.kernel, np.float32),
        skipped=tuple(signs) if task.skip_punctuation else (),
        query_length=task.query_length,
        cuts_queries=task.cut_queries,
        query_prompt=task.query_prompt,
        passage_prompt=task.passage_prompt,
    )
    multi_vector.save(to, record)

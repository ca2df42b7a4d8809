"""Tables of tokens that start from the vectors of words (Collobert & Weston 2008; Kim 2014, section 3)."""

import dataclasses

import jax
import numpy as np
from jax import Array

from tfm.params import PyTree
from train import UserError
from train.runs.state import State
from train.screens.console import Log
from train.text import tokenize
from train.text.special import AnyTokenizer
from train.text.word_vectors import WordVectors
from train.training import step
from train.training.job import Job


def with_vectors(state: State, job: Job, processor: AnyTokenizer, log: Log) -> State:
    """A fresh state whose first table of tokens has the vectors of `--init-embeddings` for tokens that are words;
    others stay as they are drawn. Raises UserError for vectors of another size, and for a file without these words."""
    path = job.run.init_embeddings
    if not path:
        return state
    params: PyTree = state.params
    main = next(field.name for field in dataclasses.fields(params))
    encoder: PyTree = getattr(params, main)
    table = getattr(getattr(encoder, "embed", None), "tokens", None)
    if not isinstance(table, Array):
        raise UserError(f"--init-embeddings={path} fills a table of tokens, and this model has none; leave it out")
    filled = _filled(np.array(jax.device_get(table)), path, processor, log)
    embed = dataclasses.replace(encoder.embed, tokens=jax.device_put(filled, table.sharding))
    params = dataclasses.replace(params, **{main: dataclasses.replace(encoder, embed=embed)})
    return dataclasses.replace(state, params=params, ema=None if state.ema is None else step.new_average(params))


def _filled(table: np.ndarray, path: str, processor: AnyTokenizer, log: Log) -> np.ndarray:
    """The table [V,U] with the vector of every token that is a whole word of the file, perhaps in lower case."""
    vectors, width = WordVectors(path), table.shape[1]
    if vectors.size != width:
        raise UserError(
            f"--init-embeddings={path} has vectors of {vectors.size} numbers, and tokens have {width}; add "
            f"--model.input.width={vectors.size}, from which a map leads to --model.width"
        )
    words, continues = tokenize.spellings(processor)
    count = 0
    for token, (word, is_inner) in enumerate(zip(words, continues, strict=True)):
        vector = None if is_inner or not word else vectors[word]
        vector = vectors[word.lower()] if vector is None and word and not is_inner else vector
        if vector is not None:
            table[token], count = vector, count + 1
    if not count:
        raise UserError(f"--init-embeddings={path} has a vector for no token; take a file of the language of the text")
    log.info(f"{path}: {count:,} of {len(words):,} tokens start from the vector of their word")
    return table

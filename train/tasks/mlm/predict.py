"""Filling blanks: the tokens that a masked language model expects where a text says [MASK]."""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from tokenizers import Tokenizer

import tfm
from train import UserError
from train.data import packing, pairs
from train.data.batching import length_sorted_batches
from train.data.sources import files
from train.screens.console import Log
from train.screens.finite import checked
from train.settings.predict import PredictOptions
from train.tasks.attended import text_alone, unmarked
from train.tasks.record import TOKENIZER_MARKS, AttendedRow, Folder, Prediction, Predictor
from train.text import tokenize
from train.text.special import words_have_spaces

# What a text may say for a blank, whatever the tokenizer calls it.
_BLANKS = ("[MASK]", "<mask>")


class Blanks(NamedTuple):
    """Texts with blanks, and how many tokens to name for each blank."""

    texts: list[str]
    top_k: int


class BlankRow(NamedTuple):
    """A row that the model reads: tokens [T] int32, the place of a blank, and the index of its text."""

    tokens: np.ndarray
    place: int
    text: int


def inputs(options: PredictOptions, folder: Folder) -> Blanks:
    """A text with blanks, or the lines or rows of a file; empty ones stay.

    Raises UserError for a text without a blank, unless its attention is drawn.
    """
    data = folder.config.data
    column = options.field or data.field
    texts = [options.text] if options.text else files.read_texts(Path(options.file), data, column)
    blank = _blank(_mask(folder.processor))
    for line, text in enumerate(texts, start=1):
        if text.strip() and not options.attention and not blank.search(text):
            where = "--text" if options.text else f"text {line} of {options.file}"
            raise UserError(f"{where} has no blank to fill; write {_BLANKS[0]} where a word is missing")
    return Blanks(texts, options.top_k)


def predict(params: tfm.MaskedLM, folder: Folder, blanks: Blanks, log: Log, batch: int) -> Iterator[Prediction]:
    """The most probable tokens at every blank of each text, with their probabilities."""
    run, tokenizer, texts = folder.config, folder.processor, blanks.texts
    if not isinstance(params, tfm.MaskedLM):
        raise UserError(
            f"--run={folder.path} holds a model without the head that fills blanks; train one with --task=mlm"
        )
    joins = _joins(folder)
    rows = [
        row for index, text in enumerate(texts) for row in blank_rows(tokenizer, text, index, run.batch.length, joins)
    ]
    candidates: dict[int, list[dict[str, Any]]] = {}
    with log.progress("filling blanks", len(rows)) as advance:
        for chosen, count in length_sorted_batches([len(row.tokens) for row in rows], max(1, min(batch, len(rows)))):
            probabilities = _predict_rows(params, run, [rows[index] for index in chosen], tokenizer)
            for index, values in zip(chosen[:count].tolist(), probabilities, strict=False):
                best = np.argsort(-values, kind="stable")[: blanks.top_k]
                candidates[index] = [
                    {"token": _spelled(tokenizer, token), "probability": float(values[token])} for token in best
                ]
            advance(count)
    by_text: list[list[list[dict[str, Any]]]] = [[] for _ in texts]
    for index, row in enumerate(rows):
        by_text[row.text].append(candidates[index])
    for text, guesses in zip(texts, by_text, strict=True):
        yield Prediction("\t".join(map(_line, guesses)), {"text": text, "blanks": guesses})


def blank_rows(tokenizer: Tokenizer, text: str, index: int, length: int, joins: bool) -> Iterator[BlankRow]:
    """A row for every blank of a text: all of it, or as many tokens around the blank as a row of training has.

    joins: whether a blank stands for the space before it too; else the tokenizer decides
    """
    specials = tokenize.special_tokens(tokenizer)
    mask = _mask(tokenizer)
    before = r"\s*" if joins else ""
    marked = re.sub(before + f"(?:{_blank(mask).pattern})", lambda match: mask, text)
    tokens = np.asarray(tokenizer.encode(marked, add_special_tokens=False).ids, np.int32)
    for place in np.flatnonzero(tokens == specials.mask).tolist():
        first = int(np.clip(place - (length - 2) // 2, 0, max(0, len(tokens) - (length - 2))))
        row, _ = pairs.join([tokens[first : first + length - 2]], length, specials)
        yield BlankRow(row, place - first + 1, index)


def _joins(folder: Folder) -> bool:
    """Whether a blank stands for the space before it too."""
    tokenizer = folder.processor
    return not folder.facts.get(TOKENIZER_MARKS) and words_have_spaces(tokenizer, _mask(tokenizer))


def _mask(tokenizer: Tokenizer) -> str:
    """The text of the tokenizer's mask. Raises UserError for a tokenizer without one."""
    mask = tokenize.special_tokens(tokenizer).mask
    if mask < 0:
        raise UserError("the tokenizer has no [MASK] or <mask> token; take a masked language model")
    return str(tokenizer.id_to_token(mask))


def _blank(mask: str) -> re.Pattern[str]:
    """What stands for a blank in a text: the mask of the tokenizer, or a usual one."""
    return re.compile("|".join(map(re.escape, dict.fromkeys((mask, *_BLANKS)))))


def _predict_rows(params: tfm.MaskedLM, run, rows: Sequence[BlankRow], tokenizer: Tokenizer) -> np.ndarray:
    """Probabilities [B,V] of the tokens at the blanks of rows."""
    length = min(tfm.bucket(max(len(row.tokens) for row in rows)), run.batch.length)
    tokens = np.full((len(rows), length), tokenize.special_tokens(tokenizer).pad, np.int32)
    segments = np.zeros_like(tokens)
    for index, row in enumerate(rows):
        tokens[index, : len(row.tokens)] = row.tokens
        segments[index, : len(row.tokens)] = 1
    where = np.asarray([[row.place] for row in rows], np.int32)
    probabilities = checked(_probabilities, params, run.model, tokens, segments, where)
    return np.asarray(probabilities)[:, : tokenizer.get_vocab_size()]


@partial(jax.jit, static_argnums=1)
def _probabilities(params, model: tfm.Config, tokens, segments, where):
    logits = tfm.masked_lm(params, model, tokens, where, packing.row_mask(model, segments))
    return jax.nn.softmax(logits[:, 0], axis=-1)


def _spelled(tokenizer: Tokenizer, token: int) -> str:
    """The text of a token; its name where it has none, as special tokens and bytes of a character may."""
    return tokenizer.decode([int(token)], skip_special_tokens=False).strip() or tokenizer.id_to_token(int(token)) or ""


def _line(guesses: Sequence[dict[str, Any]]) -> str:
    """The tokens expected at one blank."""
    return "  ".join(f"{guess['token']} {guess['probability']:.4f}" for guess in guesses)


def attended(options: PredictOptions, folder: Folder) -> AttendedRow:
    """The row of the first blank; that of the text where it has none."""
    rows = blank_rows(folder.processor, options.text, 0, folder.config.batch.length, _joins(folder))
    row = next(rows, None)
    return text_alone(options, folder) if row is None else unmarked(row.tokens)


PREDICTOR = Predictor(("field", "top_k"), inputs, predict, attended)

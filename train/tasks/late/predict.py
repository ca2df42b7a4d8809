"""Vectors of the tokens of texts, and the score of a query with a passage, as train.predict says it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from jax import Array

import tfm
from train.data.pairs import join
from train.data.tokens import in_memory
from train.devices.compiling import jit_reading
from train.screens.console import Log
from train.screens.finite import checked
from train.tasks.attended import text_alone
from train.tasks.contrast.predict import inputs
from train.tasks.late.loss import token_vectors
from train.tasks.late.rows import fill_up, punctuation, scored_places
from train.tasks.record import Folder, Prediction, Predictor
from train.text import control_tokens, tokenize
from train.text.special import AnyTokenizer

# The fewest places of a row.
_SHORTEST = 8


def encode(
    params: tfm.Classifier, folder: Folder, texts: Sequence[str], is_query: bool, log: Log, batch: int
) -> list[np.ndarray]:
    """The vectors of the tokens of each text that score, float32 [tokens,C] of length 1."""
    task, tokenizer = folder.config.task, folder.processor
    length, specials = folder.config.batch.length, tokenize.special_tokens(tokenizer)
    skipped = punctuation(tokenizer) if task.skip_punctuation else np.zeros(0, np.int32)
    prompt = task.query_prompt if is_query else task.passage_prompt
    length = min(length, task.query_length) if is_query and task.cut_queries else length
    ids = [join([row], length, specials)[0] for row in prompted_ids(tokenizer, prompt, texts)]
    order = np.argsort([-len(row) for row in ids], kind="stable")
    vectors: list[np.ndarray] = [np.zeros(0)] * len(ids)
    with log.progress(f"encoding {len(ids):,} texts", len(ids)) as advance:
        for start in range(0, len(order), batch):
            part = order[start : start + batch]
            longest = max(len(ids[part[0]]), task.query_length if is_query else _SHORTEST)
            places = min(max(length, _SHORTEST), tfm.bucket(longest))
            tokens = np.full((batch, places), specials.pad, np.int32)
            valid = np.zeros(tokens.shape, np.int32)
            for row, text in enumerate(part):
                tokens[row, : len(ids[text])], valid[row, : len(ids[text])] = ids[text], 1
            if is_query:
                scored = fill_up(tokens, valid, task.query_length, specials)
            else:
                scored = scored_places(tokens, valid, skipped)
            said = checked(_vectors, params, folder.config.model, {"tokens": tokens, "valid": valid})
            for row, text in enumerate(part):
                vectors[text] = np.asarray(said["vectors"][row])[scored[row] > 0]
            advance(len(part))
    return vectors


def prompted_ids(tokenizer: AnyTokenizer, prompt: str, texts: Sequence[str]) -> Iterable[np.ndarray]:
    """The ids of texts behind a prompt. A control token in it, such as [Q], is read as one, and stands apart."""
    with control_tokens.reading("keep"):
        marked = in_memory(tokenizer, [prompt])[0]
    if np.array_equal(marked, in_memory(tokenizer, [prompt])[0]):
        return in_memory(tokenizer, [prompt + text for text in texts]).split()
    return (np.concatenate([marked, ids]) for ids in in_memory(tokenizer, texts).split())


@jit_reading(1)
def _vectors(params: tfm.Classifier, model: tfm.Config, batch: Mapping[str, Array]) -> dict[str, Array]:
    """tokens and valid [B,T] -> float32 [B,T,C]."""
    return {"vectors": token_vectors(params, model, batch["tokens"], batch["valid"] > 0)}


def late_score(query: np.ndarray, passage: np.ndarray) -> float:
    """Vectors [Q,C] and [T,C] -> the sum of the largest products."""
    return float((query @ passage.T).max(1).sum())


def predict(
    params: tfm.Classifier, folder: Folder, pairs: Sequence[tuple[str, str]], log: Log, batch: int
) -> Iterator[Prediction]:
    """The score of each query with its passage."""
    queries = encode(params, folder, [query for query, _ in pairs], True, log, batch)
    passages = encode(params, folder, [passage for _, passage in pairs], False, log, batch)
    for (query, passage), first, second in zip(pairs, queries, passages, strict=True):
        score = late_score(first, second)
        yield Prediction(f"{score:.4f}", {"query": query, "passage": passage, "score": score})


PREDICTOR = Predictor(("pair", "field"), inputs, predict, text_alone)

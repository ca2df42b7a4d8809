"""The cosine of two texts, as train.predict says it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import numpy as np
from jax import Array

import tfm
from tfm.sharding import fold_rows, unfold_rows
from train import UserError
from train.data.tokens import in_memory
from train.screens.console import Log
from train.screens.finite import checked
from train.settings.gate import user_errors
from train.settings.predict import PredictOptions
from train.tasks.contrast.rows import RowFields, SideRows
from train.tasks.contrast.source import read_pairs
from train.tasks.record import Folder, Prediction, Predictor
from train.text.pooled import pooled, unpooled_tokens


def inputs(options: PredictOptions, folder: Folder) -> list[tuple[str, str]]:
    """Pairs of texts: of --text and --pair, or two columns of a file."""
    names = (options.field or folder.config.data.field).split(",")[:2]
    if options.text:
        if not options.pair:
            raise UserError(f"--text={options.text!r} needs a second text, --pair=TEXT, to be compared with")
        return [(options.text, options.pair)]
    return read_pairs(Path(options.file), folder.config.data, names)


def predict(
    params: tfm.Classifier, folder: Folder, pairs: Sequence[tuple[str, str]], log: Log, batch: int
) -> Iterator[Prediction]:
    """The cosine of the vectors of both texts of each pair, as the modules of the folder make them."""
    run, tokenizer, modules = folder.config, folder.processor, folder.modules
    if not pairs:
        return
    if modules.source:
        log.info(f"{modules.source}: {modules}")
    unpooled = unpooled_tokens(modules, tokenizer, prefix=1)
    texts = [in_memory(tokenizer, [modules.prompt_text + text for text in side]) for side in zip(*pairs, strict=True)]
    shape = replace(run.batch, size=batch, tokens=None, accumulate=1)
    fields_of_rows = RowFields(None, 1.0, np.zeros(len(pairs)), np.zeros((len(pairs), 2), np.int32))
    rows = SideRows(texts, fields_of_rows, shape, tokenizer, shape.shapes)
    cosines = np.zeros(len(pairs))
    with log.progress("comparing", len(pairs)) as advance:
        for places in rows.buckets.epoch():
            fields, kept = rows.batch(places), places >= 0
            sides = checked(
                _pooled_sides, params, run.model, modules.pools, unpooled, fields["tokens"], fields["valid"]
            )
            with user_errors():
                cosines[places[kept]] = _cosines(*(modules.apply(np.asarray(side)[kept]) for side in sides))
            advance(int(kept.sum()))
    for (text, pair), cosine in zip(pairs, cosines.tolist(), strict=True):
        yield Prediction(f"{cosine:.4f}", {"text": text, "pair": pair, "cosine": cosine})


@partial(jax.jit, static_argnums=(1, 2, 3))
def _pooled_sides(params, model: tfm.Config, pools: tuple[str, ...], unpooled: int, tokens: Array, valid: Array):
    """tokens, valid [B,2,T] -> the pooled states [B,D] of both texts."""
    rows = fold_rows(valid > 0)
    hidden = tfm.encoder(params.encoder, model, fold_rows(tokens), tfm.padding(rows))
    vectors = unfold_rows(pooled(hidden, rows, pools, unpooled), tokens)
    return vectors[:, 0], vectors[:, 1]


def _cosines(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """[N,D], [N,D] -> [N]."""
    return (x * y).sum(1) / np.maximum(np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1), 1e-12)


PREDICTOR = Predictor(("pair", "field"), inputs, predict)

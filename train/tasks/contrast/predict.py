"""The cosine of two texts, as train.predict says it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import numpy as np

import tfm
from train import UserError
from train.data.tokens import in_memory
from train.screens.console import Log
from train.screens.finite import checked
from train.settings.predict import PredictOptions
from train.tasks.contrast.loss import encode_rows
from train.tasks.contrast.rows import RowFields, SideRows
from train.tasks.contrast.source import read_pairs
from train.tasks.record import Folder, Prediction, Predictor


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
    """The cosine of the vectors of both texts of each pair."""
    run, tokenizer = folder.config, folder.processor
    if not pairs:
        return
    texts = [in_memory(tokenizer, side) for side in zip(*pairs, strict=True)]
    shape = replace(run.batch, size=batch, tokens=None, accumulate=1)
    fields_of_rows = RowFields(None, 1.0, np.zeros(len(pairs)), np.zeros((len(pairs), 2), np.int32))
    rows = SideRows(texts, fields_of_rows, shape, tokenizer, shape.shapes)
    cosines = np.zeros(len(pairs))
    with log.progress("comparing", len(pairs)) as advance:
        for places in rows.buckets.epoch():
            fields, kept = rows.batch(places), places >= 0
            outputs = checked(_cosines, params, run.model, fields["tokens"], fields["valid"])
            cosines[places[kept]] = np.asarray(outputs)[kept]
            advance(int(kept.sum()))
    for (text, pair), cosine in zip(pairs, cosines.tolist(), strict=True):
        yield Prediction(f"{cosine:.4f}", {"text": text, "pair": pair, "cosine": cosine})


@partial(jax.jit, static_argnums=1)
def _cosines(params, model: tfm.Config, tokens, valid):
    vectors = encode_rows(params, model, {"tokens": tokens, "valid": valid}, None)
    return (vectors[:, 0] * vectors[:, 1]).sum(-1)


PREDICTOR = Predictor(("pair", "field"), inputs, predict)

"""The scores of queries with passages, as train.predict says them and as rankings are made of."""

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.special import expit

import tfm
from train.screens.console import Log
from train.tasks.classify.predict import attended, logits
from train.tasks.contrast.predict import inputs
from train.tasks.record import Folder, Prediction, Predictor


def scores(
    params: tfm.Classifier, folder: Folder, pairs: Sequence[tuple[str, str]], log: Log, batch: int
) -> Iterator[float]:
    """The score of each query with its passage, after the activation of the run, float64."""
    is_sigmoid = folder.config.task.activation == "sigmoid"
    texts = [{"query": query, "passage": passage} for query, passage in pairs]
    for row in logits(params, folder, texts, log, batch):
        score = np.float64(row[0])
        yield float(expit(score) if is_sigmoid else score)


def predict(
    params: tfm.Classifier, folder: Folder, pairs: Sequence[tuple[str, str]], log: Log, batch: int
) -> Iterator[Prediction]:
    """The score of each pair."""
    for (query, passage), score in zip(pairs, scores(params, folder, pairs, log, batch), strict=True):
        yield Prediction(f"{score:.4f}", {"query": query, "passage": passage, "score": score})


PREDICTOR = Predictor(("pair", "field"), inputs, predict, attended)

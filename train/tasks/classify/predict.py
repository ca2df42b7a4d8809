"""Classes or values of texts and pairs of texts, as train.predict says them."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

import tfm
from train import UserError
from train.data.reading import blocks, read_texts, say_fallback
from train.data.sources import files
from train.data.tokens import in_memory
from train.devices.compiling import jit_reading
from train.screens.console import Log
from train.screens.finite import checked
from train.settings.predict import PredictOptions
from train.tasks.attended import joined
from train.tasks.classification import prediction
from train.tasks.classify.loss import outputs
from train.tasks.classify.rows import Examples
from train.tasks.record import AttendedRow, Folder, Prediction, Predictor


def inputs(options: PredictOptions, folder: Folder) -> list[dict[str, str]]:
    """The texts or pairs to classify, by column; empty lines included: every line gets a label.

    A folder of transformers takes either: the first text says which.
    """
    data = folder.config.data
    names = (options.field or data.field).split(",")
    texts: list[tuple[str, ...]]
    if options.text:
        texts = [(options.text, options.pair) if options.pair else (options.text,)]
    elif files.ending(Path(options.file), data) == ".txt":
        texts = [tuple(line.split("\t")) for line in files.read_lines(Path(options.file))]
    else:
        columns = files.Columns(tuple(names))
        texts = [columns.texts_of(row) for row in files.read(Path(options.file), data, columns)]
    if len(names) == 1 and not options.field and "hash" not in folder.facts and texts and len(texts[0]) == 2:
        names.append("pair")  # a folder of transformers does not say whether its texts come in pairs
    remedy = "two texts with a tab between, or --text and --pair" if len(names) == 2 else "one text, without a tab"
    for row, text in enumerate(texts, start=1):
        if len(text) != len(names):
            raise UserError(f"text {row} has {len(text)} parts; this run classifies {remedy}")
    return [dict(zip(names, text, strict=True)) for text in texts]


def predict(
    params: tfm.Classifier, folder: Folder, texts: Sequence[Mapping[str, str]], log: Log, batch: int
) -> Iterator[Prediction]:
    """The label of each text or pair, and its probability."""
    kind, classes = folder.config.task.kind, folder.facts["classes"]
    for columns, row_logits in zip(texts, logits(params, folder, texts, log, batch), strict=True):
        guess = prediction(kind, classes, row_logits)
        facts = {"label": guess.label, "probabilities": guess.probabilities}
        yield Prediction(f"{guess.label}\t{guess.probability}".rstrip("\t"), {**columns, **facts})


def logits(
    params: tfm.Classifier, folder: Folder, texts: Sequence[Mapping[str, str]], log: Log, batch: int
) -> Iterator[np.ndarray]:
    """The logits [C], or the value [1], of each text or pair."""
    run, tokenizer = folder.config, folder.processor
    say_fallback(run.model, log)
    scores_of = partial(checked, _scores, params, run.model)
    with log.progress("classifying", len(texts)) as advance:
        for block in blocks(len(texts), batch):
            columns = [
                in_memory(tokenizer, column) for column in zip(*(texts[row].values() for row in block), strict=True)
            ]
            examples = Examples(columns, np.zeros(len(block), np.int32), run.batch.length, tokenizer, run.task.pairs)
            yield from read_texts(scores_of, run.model, examples, range(len(block)), batch, advance)["scores"]


@jit_reading(1)
def _scores(params, model: tfm.Config, batch):
    return {"scores": outputs(params, model, batch, None).logits}


def attended(options: PredictOptions, folder: Folder) -> AttendedRow:
    """The text, or the pair."""
    return joined(folder, *filter(None, [options.text, options.pair]))


PREDICTOR = Predictor(("pair", "field"), inputs, predict, attended)

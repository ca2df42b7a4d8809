"""The most probable continuation of a text, as train.predict says it."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

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
from train.tasks.choice.loss import outputs
from train.tasks.choice.rows import Choices, ChoiceTokens, first_places
from train.tasks.choice.source import MultipleChoice
from train.tasks.classification import softmax
from train.tasks.record import AttendedRow, Folder, Prediction, Predictor


def inputs(options: PredictOptions, folder: Folder) -> list[dict[str, Any]]:
    """Texts with their continuations: of --text and --choices, or of a file in a form of the training data."""
    if options.text:
        choices = [choice.strip() for choice in options.choices.split("|")]
        if len(choices) < 2 or not all(choices):
            raise UserError(
                f"--choices={options.choices!r} must name two continuations or more, with | between, such as "
                "--choices='it broke|it flew'"
            )
        return [{"context": options.text, "choices": choices}]
    if options.choices:
        raise UserError("--choices belongs to --text; the rows of --file have their own")
    data = folder.config.data
    reader = MultipleChoice.of(data, labelled=False, field=options.field)
    return files.read(Path(options.file), data, reader)


def predict(
    params: tfm.Classifier, folder: Folder, texts: Sequence[Mapping[str, Any]], log: Log, batch: int
) -> Iterator[Prediction]:
    """The most probable continuation of each text, its place from 0, and its probability."""
    run, tokenizer = folder.config, folder.processor
    say_fallback(run.model, log)
    scores_of = partial(checked, _scores, params, run.model)
    count = max((len(row["choices"]) for row in texts), default=0)
    with log.progress("choosing", len(texts)) as advance:
        for block in blocks(len(texts), batch):
            rows = [texts[place] for place in block]
            contexts = in_memory(tokenizer, [row["context"] for row in rows])
            choices = in_memory(tokenizer, [choice for row in rows for choice in row["choices"]])
            text = ChoiceTokens(contexts, choices, first_places([row["choices"] for row in rows]))
            examples = Choices(text, np.zeros(len(rows), np.int32), count, run.batch.length, tokenizer)
            scores = read_texts(scores_of, run.model, examples, range(len(rows)), batch, advance)["scores"]
            for row, row_logits in zip(rows, scores, strict=True):
                yield _predicted(row, softmax(row_logits[: len(row["choices"])]))


def _predicted(row: Mapping[str, Any], probabilities: np.ndarray) -> Prediction:
    """The prediction for a row, from the probability of each continuation."""
    place = int(probabilities.argmax())
    choice = row["choices"][place]
    facts = {"index": place, "choice": choice, "probabilities": probabilities.tolist()}
    return Prediction(f"{place}\t{choice}\t{probabilities[place]:.4f}", {**row, **facts})


@jit_reading(1)
def _scores(params, model: tfm.Config, batch):
    return {"scores": outputs(params, model, batch, None).logits}


def attended(options: PredictOptions, folder: Folder) -> AttendedRow:
    """The text with the first of its continuations."""
    return joined(folder, options.text, options.choices.split("|")[0].strip())


PREDICTOR = Predictor(("choices", "field"), inputs, predict, attended)

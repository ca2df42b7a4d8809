"""Translations of sentences, as train.predict says them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import tfm
from train import UserError
from train.data.sources import files
from train.screens.console import Log
from train.settings.predict import PredictOptions
from train.tasks.attended import unmarked
from train.tasks.record import AttendedRow, Folder, Prediction, Predictor
from train.tasks.translate import marks, translation
from train.tasks.translate.source import columns_of
from train.text import control_tokens


def inputs(options: PredictOptions, folder: Folder) -> list[str]:
    """The sentences to translate: a text, or the lines or rows of a file; empty ones stay.

    Raises UserError for one that is too long for the model.
    """
    data = folder.config.data
    column = options.field or columns_of(data, folder.config.task).texts[0]
    texts = [options.text] if options.text else files.read_texts(Path(options.file), data, column)
    limit = folder.config.model.max_length
    template = marks.template(folder.processor, folder.config.task)
    for line, encoding in enumerate(control_tokens.encode(folder.processor, texts), start=1):
        tokens = len(template.wrap(encoding.ids))
        if limit is not None and tokens > limit:
            raise UserError(f"sentence {line} has {tokens} tokens, and the model has {limit} positions; shorten it")
    return texts


def predict(params: tfm.Seq2Seq, folder: Folder, texts: Sequence[str], log: Log, batch: int) -> Iterator[Prediction]:
    """The translation of each sentence, by beam search as in training; that of an empty one is empty."""
    sentences = [text for text in texts if text.strip()]
    size = max(1, min(batch, len(sentences)))
    translations = iter(translation.translate(params, folder.config, folder.processor, sentences, log, size))
    for text in texts:
        translated = next(translations) if text.strip() else ""
        yield Prediction(translated, {"text": text, "translation": translated})


def attended(options: PredictOptions, folder: Folder) -> AttendedRow:
    """The sentence to translate."""
    (encoding,) = control_tokens.encode(folder.processor, [options.text])
    return unmarked(marks.template(folder.processor, folder.config.task).wrap(encoding.ids))


PREDICTOR = Predictor(("field", "source", "target"), inputs, predict, attended)

"""Doubtful words: which words of a text a discriminator takes for replaced."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

import tfm
from train import UserError
from train.data import packing, windows
from train.data.reading import TokenTexts, blocks, read_texts, say_fallback
from train.data.sources import files
from train.devices.compiling import jit_reading
from train.screens.console import Log
from train.screens.finite import checked
from train.settings.predict import PredictOptions
from train.tasks.attended import text_alone
from train.tasks.record import Folder, Prediction, Predictor
from train.text import tokenize
from train.text.words import Word, basic_words


class DoubtedTexts(NamedTuple):
    """Texts, and how many words to name of each."""

    texts: list[str]
    top_k: int


def inputs(options: PredictOptions, folder: Folder) -> DoubtedTexts:
    """A text, or the lines or rows of a file; empty ones stay."""
    data = folder.config.data
    texts = [options.text] if options.text else files.read_texts(Path(options.file), data, options.field or data.field)
    return DoubtedTexts(texts, options.top_k)


def predict(
    params: tfm.ReplacedDetector | tfm.Tagger, folder: Folder, inputs: DoubtedTexts, log: Log, batch: int
) -> Iterator[Prediction]:
    """The words of each text by how probably they were replaced: that of the most doubtful of their tokens; float64."""
    run, tokenizer = folder.config, folder.processor
    discriminator = tfm.discriminator_of(params) if isinstance(params, tfm.ReplacedDetector) else params
    if not isinstance(discriminator, tfm.Tagger):
        raise UserError(
            f"--run={folder.path} holds a model without the head that tells replaced tokens; train one with --task=rtd"
        )
    say_fallback(run.model, log)
    specials, length = tokenize.special_tokens(tokenizer), run.batch.length
    encoded = [tokenizer.encode(text, add_special_tokens=False) for text in inputs.texts]
    cut = windows.cut([len(text.ids) for text in encoded], length - 2, length - 2)
    pieces = [
        np.array([specials.cls, *encoded[text].ids[start:end], specials.sep], np.int32)
        for text, start, end in zip(*cut, strict=True)
    ]
    rows, probabilities = TokenTexts(pieces, length, specials), [np.zeros(len(text.ids)) for text in encoded]
    logits_of = partial(checked, _logits, discriminator, run.model)
    with log.progress("reading texts", len(pieces)) as advance:
        for block in blocks(len(pieces), batch):
            logits = read_texts(logits_of, run.model, rows, block, batch, advance)["logits"]
            for row, row_logits in zip(block, logits.astype(np.float64), strict=True):
                text, start, end = cut.texts[row], cut.starts[row], cut.ends[row]
                probabilities[text][start:end] = 1 / (1 + np.exp(-row_logits[1 : 1 + end - start]))
    for text, tokens, of_tokens in zip(inputs.texts, encoded, probabilities, strict=True):
        yield _doubted(text, tokens.offsets, of_tokens, inputs.top_k)


def _doubted(text: str, offsets: Sequence[tuple[int, int]], probabilities: np.ndarray, top_k: int) -> Prediction:
    """The words of a text with the highest probabilities [tokens]."""
    words, of_words = basic_words(text), []
    for word in words:
        of_tokens = [p for (start, end), p in zip(offsets, probabilities, strict=True) if _meets(word, start, end)]
        of_words.append(max(of_tokens, default=0.0))
    best = np.argsort(-np.array(of_words), kind="stable")[:top_k]
    doubted = [{**words[n]._asdict(), "probability": float(of_words[n])} for n in best]
    line = "  ".join(f"{word['text']} {word['probability']:.4f}" for word in doubted)
    return Prediction(line, {"text": text, "words": doubted})


def _meets(word: Word, start: int, end: int) -> bool:
    return start < word.end and word.start < end


@jit_reading(1)
def _logits(params: tfm.Tagger, model: tfm.Config, batch):
    mask = packing.row_mask(model, batch["segments"])
    positions = batch["positions"] if model.reads_packed else None
    return {"logits": tfm.replaced_logits(params, model, batch["tokens"], mask, positions)}


PREDICTOR = Predictor(("field", "top_k"), inputs, predict, text_alone)

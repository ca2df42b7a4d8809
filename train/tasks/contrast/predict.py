"""The cosine of two texts, as train.predict says it."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

import tfm
from train import UserError
from train.data import packing
from train.data.pairs import join
from train.data.reading import TokenTexts, blocks, read_texts, say_fallback
from train.data.tokens import in_memory
from train.devices.compiling import jit_reading
from train.screens.console import Log
from train.screens.finite import checked
from train.settings.gate import user_errors
from train.settings.predict import PredictOptions
from train.tasks.attended import text_alone
from train.tasks.classification import texts_of
from train.tasks.contrast.source import read_pairs
from train.tasks.record import Folder, Prediction, Predictor
from train.text import tokenize
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
    say_fallback(run.model, log)
    unpooled = unpooled_tokens(modules, tokenizer, prefix=1)
    vectors_of = partial(checked, _vectors, params, run.model, modules.pools, unpooled)
    # A run was trained with prompts of both sides; a folder of sentence-transformers says which is the default.
    names = (None, None) if modules.source else ("query", "document")
    before = [modules.prompts.get(name or "", modules.prompt_text) for name in names]
    with log.progress("comparing", 2 * len(pairs)) as advance:
        for block in blocks(len(pairs), batch):
            texts = [prompt + text for row in block for prompt, text in zip(before, pairs[row], strict=True)]
            rows = _rows(texts, tokenizer, run.batch.length)
            vectors = read_texts(vectors_of, run.model, rows, range(len(texts)), batch, advance)["vectors"]
            with user_errors():
                vectors = modules.apply(np.where(rows.sizes[:, None] > 2, vectors, 0))
            for row, cosine in zip(block, _cosines(vectors[::2], vectors[1::2]).tolist(), strict=True):
                text, pair = pairs[row]
                yield Prediction(f"{cosine:.4f}", {"text": text, "pair": pair, "cosine": cosine})


def _rows(texts: Sequence[str], tokenizer: Tokenizer, length: int) -> TokenTexts:
    """Texts as rows of tokens, at most `length` each: special ones around those of the text."""
    specials = tokenize.special_tokens(tokenizer)
    ids = [join([tokens], length, specials)[0] for tokens in in_memory(tokenizer, texts).split()]
    return TokenTexts(ids, length, specials)


@jit_reading(1, 2, 3)
def _vectors(params, model: tfm.Config, pools: tuple[str, ...], unpooled: int, batch):
    """A batch of texts (`train.data.text_rows`) -> the pooled states [B*n,D] of each."""
    positions = batch["positions"] if model.reads_packed else None
    hidden = tfm.encoder(params.encoder, model, batch["tokens"], packing.row_mask(model, batch["segments"]), positions)
    return {"vectors": pooled(hidden, texts_of(batch), pools, unpooled, batch["positions"])}


def _cosines(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """[N,D], [N,D] -> [N]."""
    return (x * y).sum(1) / np.maximum(np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1), 1e-12)


PREDICTOR = Predictor(("pair", "field"), inputs, predict, text_alone)

"""Pictures with captions: the processor of both, and the rows."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer

import tfm
from tfm.options.json_text import read_object
from train import UserError
from train.data.processors import with_tokenizer
from train.data.tokens import TokenizedTexts, contents_of
from train.images.model_processor import run_processor
from train.images.palette import IMAGE_PROCESSOR
from train.images.processor import ImageProcessor
from train.images.rows import ImageRows
from train.screens.console import Log
from train.settings.schema import Run
from train.tasks.record import Facts, Saved
from train.text import tokenize

# With this eos_token_id, as transformers 4 wrote it, the largest token of a text ends it.
LARGEST = 2


class CaptionProcessor(NamedTuple):
    """What turns pictures into pixels, and captions into tokens."""

    images: ImageProcessor
    tokenizer: Any


def processor_of(run: Run, model: tfm.Config, texts: Sequence[str], saved: Saved | None, log: Log) -> CaptionProcessor:
    """That of the run to resume or start from, whose tokenizer may be all that it has; else a new one.

    `model` reads the pictures; a new tokenizer is trained on `texts`. Raises UserError for one of pictures alone, and
    of another size than the model reads.
    """
    parts = saved.processor if saved else None
    if isinstance(parts, ImageProcessor):
        raise UserError(f"--init={run.init} reads pictures alone; name a run of pictures and captions, or of texts")
    if isinstance(parts, CaptionProcessor):
        images, tokenizer = parts.images, parts.tokenizer
    else:
        images, tokenizer = None, parts or tokenize.load(run.tokenizer, texts, log)
    of_pictures: Any = run_processor(run, model, images)
    return CaptionProcessor(of_pictures, tokenizer)


class TextFrame(NamedTuple):
    """The special tokens around a text, as the tokenizer adds them, and padding."""

    prefix: list[int]
    suffix: list[int]
    pad: int

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "TextFrame":
        """The frame of a tokenizer."""
        prefix, _, suffix = tokenize.added_tokens(tokenizer, "a")
        return cls(prefix, suffix, tokenize.special_tokens(tokenizer).pad)

    def sizes(self, lengths: np.ndarray) -> np.ndarray:
        """Tokens of texts -> tokens of their rows."""
        return lengths + len(self.prefix) + len(self.suffix)

    def capacity(self, length: int) -> int:
        """The tokens of a text in a row of `length` places."""
        return length - len(self.prefix) - len(self.suffix)

    def fill(self, texts: TokenizedTexts, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """`tokens` and `valid`, int32 [B,length], of some texts; -1 is an empty row. The end of a long text is cut off.

        An empty row keeps its special tokens, for a model that reads the state of the last one.
        """
        tokens, valid = np.full((len(rows), length), self.pad, np.int32), np.zeros((len(rows), length), np.int32)
        capacity = self.capacity(length)
        for b, row in enumerate(rows):
            inner = texts[row][:capacity] if row >= 0 else ()
            ids = [*self.prefix, *inner, *self.suffix]
            tokens[b, : len(ids)], valid[b, : len(ids)] = ids, 1
        return {"tokens": tokens, "valid": valid}


def until_end(texts: TokenizedTexts, tokenizer: Tokenizer, model: tfm.Config) -> TokenizedTexts:
    """The texts, of which the causal tower of a `model` reads each as far as the first token that ends texts.

    That token is in a text only with --data.control-tokens=keep. As in transformers, its state stands for the text.
    """
    places = np.flatnonzero(np.isin(texts.ids[: texts.num_tokens], TextFrame.of(tokenizer).suffix[-1:]))
    if not (model.head.causal and len(places)):
        return texts
    text, lengths = np.searchsorted(texts.starts, places, side="right") - 1, texts.lengths
    np.minimum.at(lengths, text, places - texts.starts[text])
    return TokenizedTexts(texts.read(texts.starts[:-1], lengths), np.cumsum([0, *lengths]))


class CaptionRows:
    """The pictures of `ImageRows`, each with its caption, of at most `length` tokens.

    cut: the share of captions that are longer, and lose their end
    """

    buckets, batches_ahead, independent_rows = None, 2, True

    def __init__(self, images: ImageRows, captions: TokenizedTexts, tokenizer: Tokenizer, length: int):
        self.images, self.captions, self.length = images, captions, length
        self.frame = TextFrame.of(tokenizer)
        sizes = self.frame.sizes(captions.lengths)
        self.cut = float((sizes > length).mean()) if len(sizes) else 0.0
        texts = int(np.minimum(sizes, length).sum())
        self.padding = 1 - texts / max(1, length * len(images))
        self.tokens = texts + images.tokens

    def __len__(self):
        return len(self.images)

    def overview(self, facts: Facts) -> dict[str, str]:
        """Lines of the start-up table; `facts` are those of run.json about the data."""
        processor = self.images.processor
        height, width = processor.shape
        longer = f"; {self.cut:.1%} are longer and lose their end" if self.cut else ""
        return {
            "data": f"{facts['source']}, hash {facts['hash']}",
            "pictures": f"{facts['train_rows']:,} with captions to train on, {facts['eval_rows']:,} to validate on",
            "pixels": f"{height} x {width} x {processor.channels}, {self.images.length} tokens to the model",
            "captions": f"{self.length} tokens, {self.padding:.1%} padding{longer}",
        }

    def example_ids(self) -> Iterator[np.ndarray]:
        """The tokens of every caption."""
        return self.captions.split()

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The fields of `train.tasks.captions.task`."""
        fields = self.images.batch(rows, rng)
        return {
            "pixels": fields["pixels"],
            **self.frame.fill(self.captions, rows, self.length),
            "weights": (rows >= 0).astype(np.float32),
            "withheld": fields["withheld"],
            "contents": np.where(rows[:, None] < 0, -1, self.contents[rows]),
        }

    @cached_property
    def contents(self) -> np.ndarray:
        """Numbers of the picture and the caption of every row, int32 [N,2]: equal ones for equal pictures, or captions
        whose tokens are equal as far as the model reads them."""
        captions = contents_of([self.captions], self.frame.capacity(self.length))[:, 0]
        return np.stack([self.images.groups, len(self) + captions], axis=1).astype(np.int32)


_BOTH = with_tokenizer(IMAGE_PROCESSOR, CaptionProcessor)


def _read_hf(folder: Path, model: Any) -> CaptionProcessor:
    processor = _BOTH.read_hf(folder, model)
    if model.head.causal:
        _check_end(folder, processor.tokenizer)
    return processor


def _check_end(folder: Path, tokenizer: Tokenizer) -> None:
    """Raises UserError where config.json names another token than that which ends a text."""
    fields = read_object(folder / "config.json").get("text_config")
    end = fields.get("eos_token_id") if isinstance(fields, dict) else None
    last = TextFrame.of(tokenizer).suffix[-1:]
    means = tokenizer.get_vocab_size() - 1 if end == LARGEST else end
    if means not in (None, *last):
        actual = f"{last[0]} ({tokenizer.id_to_token(last[0])!r})" if last else "none"
        largest = f", which stands for the largest token, {means}," if end == LARGEST else ","
        raise UserError(
            f"{folder}/config.json has text_config.eos_token_id={end}{largest} and the token with which the tokenizer "
            f"ends texts is {actual}; make them equal"
        )


def _hf_fields(processor: CaptionProcessor) -> Mapping[str, Any]:
    """The special tokens of texts: the state of [EOS] stands for a text."""
    frame = TextFrame.of(processor.tokenizer)
    tokens = {"bos": frame.prefix[:1], "eos": frame.suffix[-1:], "pad": [frame.pad]}
    return {"text_config": {f"{role}_token_id": ids[0] for role, ids in tokens.items() if ids}}


# The processor of pictures with captions, in the files of its two parts.
CAPTION_PROCESSOR = _BOTH._replace(read_hf=_read_hf, hf_fields=_hf_fields)

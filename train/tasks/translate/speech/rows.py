"""Sounds with what is said in them: the processor of both, and the rows."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tfm.config.model import Config
from train.data.processors import TOKENIZER, ProcessorKind
from train.data.tokens import TokenizedTexts
from train.settings.schema import Run
from train.sounds.processor import SOUND_PROCESSOR, SoundProcessor
from train.sounds.rows import Sounds
from train.tasks.record import Facts
from train.text.hf_tokenizer import MarksTexts
from train.text.special import AnyTokenizer
from train.text.tokenize import SequenceTemplate


class SpeechProcessor(NamedTuple):
    """What turns sounds into frames, and texts into tokens."""

    sounds: SoundProcessor
    tokenizer: AnyTokenizer


class SpeechRows:
    """Sounds with their texts, each of at most `length` tokens with its special tokens."""

    buckets, batches_ahead, independent_rows = None, 2, True

    def __init__(
        self,
        sounds: Sounds,
        texts: Sequence[str],
        ids: TokenizedTexts,
        template: SequenceTemplate,
        length: int,
        smoothing: float = 0.0,
    ):
        self.sounds, self.texts, self.ids, self.template = sounds, texts, ids, template
        self.length, self.smoothing = length, smoothing
        prefix, suffix = template.target
        sizes = ids.lengths + len(prefix) + len(suffix)
        self.tokens = int(sizes.sum()) + len(sounds) * sounds.length
        self.padding = 1 - float(sizes.mean()) / length if len(sizes) else 0.0

    def __len__(self):
        return len(self.sounds)

    @property
    def digests(self) -> list[str]:
        """What tells sounds apart."""
        return self.sounds.names

    def overview(self, facts: Facts) -> dict[str, str]:
        """Lines of the start-up table; `facts` are those of run.json about the data."""
        processor = self.sounds.processor
        seconds, dropped = processor.samples / processor.rate, facts["long"]
        lines = {
            "data": f"{facts['source']}, hash {facts['hash']}",
            "sounds": f"{facts['train_rows']:,} to train on, {facts['eval_rows']:,} to validate on, of {seconds:g} "
            f"seconds at most, {self.sounds.padding:.0%} padding",
            "frames": f"{processor.size} of {processor.bands} bands, {self.sounds.length} tokens to the encoder",
            "texts": f"{self.length} tokens, {self.padding:.1%} padding",
        }
        return lines | ({"left out": f"{dropped:,} texts of more than {self.length} tokens"} if dropped else {})

    def example_ids(self) -> Iterator[np.ndarray]:
        """The tokens of every text."""
        return self.ids.split()

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The fields of `train.tasks.translate.speech.task`."""
        prefix, suffix = self.template.target
        targets = np.full((len(rows), self.length), self.template.pad, np.int32)
        valid = np.zeros((len(rows), self.length), np.int32)
        for place in np.flatnonzero(rows >= 0):
            ids = [*prefix, *self.ids[rows[place]], *suffix]
            targets[place, : len(ids)], valid[place, : len(ids)] = ids, 1
        target = np.where(valid > 0, np.roll(targets, 1, axis=1), self.template.pad)
        target[:, 0] = self.template.decoder_start
        return self.sounds.batch(rows) | {
            "target": target,
            "valid": valid,
            "targets": targets,
            "weights": valid.astype(np.float32),
            "smoothing": np.full(len(rows), self.smoothing, np.float32),
        }


def _to_texts(processor: SpeechProcessor) -> tuple[str, ...]:
    return (*SOUND_PROCESSOR.to_texts(processor.sounds), *TOKENIZER.to_texts(processor.tokenizer))


def _read(sounds: Path, *tokenizer: Path) -> SpeechProcessor:
    return SpeechProcessor(SOUND_PROCESSOR.read(sounds), TOKENIZER.read(*tokenizer))


def _read_hf(folder: Path, model: Config) -> SpeechProcessor:
    return SpeechProcessor(SOUND_PROCESSOR.read_hf(folder, model), TOKENIZER.read_hf(folder, model))


def _save_hf(processor: SpeechProcessor, task: MarksTexts, run: Run, folder: Path) -> None:
    SOUND_PROCESSOR.save_hf(processor.sounds, task, run, folder)
    TOKENIZER.save_hf(processor.tokenizer, task, run, folder)


def _hf_fields(processor: SpeechProcessor) -> Mapping[str, object]:
    return TOKENIZER.hf_fields(processor.tokenizer)


# The processor of sounds with texts, in the files of its two parts.
SPEECH_PROCESSOR: ProcessorKind[SpeechProcessor] = ProcessorKind(
    SOUND_PROCESSOR.files + TOKENIZER.files,
    _to_texts,
    _read,
    _read_hf,
    _save_hf,
    _hf_fields,
    tokenizer=lambda processor: processor.tokenizer,
    optional=TOKENIZER.optional,
)

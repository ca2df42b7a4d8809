"""Sounds with what is said in them: the processor of both, and the rows."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from train.data.processors import with_tokenizer
from train.data.tokens import TokenizedTexts
from train.sounds.processor import SOUND_PROCESSOR, SoundProcessor
from train.sounds.rows import Sounds
from train.tasks.record import Facts
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


# The processor of sounds with texts, in the files of its two parts.
SPEECH_PROCESSOR = with_tokenizer(SOUND_PROCESSOR, SpeechProcessor)

"""Rows of sounds with a class each."""

from collections.abc import Iterator, Sequence

import numpy as np

from train.data.labels import LossFields
from train.data.sources.files import Row
from train.sounds.processor import SoundProcessor
from train.sounds.rows import Sounds
from train.tasks.record import Facts

# Classes that the start-up table names.
_NAMED = 12


class SoundRows:
    """Sounds and their classes int32 [N]; `loss` says how rows count in training."""

    buckets, batches_ahead, independent_rows = None, 2, True

    def __init__(self, rows: Sequence[Row], labels: np.ndarray, processor: SoundProcessor, length: int):
        self.sounds, self.labels, self.loss = Sounds(rows, processor, length), labels, LossFields()
        self.padding, self.tokens = self.sounds.padding, len(rows) * length

    def __len__(self):
        return len(self.sounds)

    @property
    def digests(self) -> list[str]:
        """What tells sounds apart."""
        return self.sounds.names

    def overview(self, facts: Facts) -> dict[str, str]:
        """Lines of the start-up table; `facts` are those of run.json about the data."""
        processor, length = self.sounds.processor, self.sounds.length
        train, valid = (facts[name] // length for name in ("train_tokens", "eval_tokens"))
        seconds, names = processor.samples / processor.rate, facts["classes"]
        return {
            "data": f"{facts['source']}, hash {facts['hash']}",
            "sounds": f"{train:,} to train on, {valid:,} to validate on, of {seconds:g} seconds at most, "
            f"{self.padding:.0%} padding",
            "frames": f"{processor.size} of {processor.bands} bands, {length} tokens to the model",
            "classes": f"{len(names):,}: {', '.join(names[:_NAMED])}{', ...' * (len(names) > _NAMED)}",
        }

    def example_ids(self) -> Iterator[np.ndarray]:
        """No sound has tokens of a vocabulary."""
        return iter(())

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The fields of `train.tasks.image.sounds.task`."""
        labels, is_row = self.labels[rows], rows >= 0
        none = np.zeros(len(rows), np.float32)
        return self.sounds.batch(rows) | {"labels": labels, "withheld": none} | self.loss.fields(labels, is_row)

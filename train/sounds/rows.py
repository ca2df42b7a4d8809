"""Sounds as rows of frames, which are computed when a batch asks for them."""

from collections.abc import Sequence

import numpy as np

import tfm
from train import UserError
from train.data.fields import Field
from train.data.sources.files import Row
from train.settings.schema import Run
from train.sounds import sources
from train.sounds.processor import SoundProcessor

# Bytes of frames that stay in memory once they are computed.
_CACHED = 1 << 28


class Sounds:
    """The sounds of rows, of which each is `length` tokens to the model."""

    def __init__(self, rows: Sequence[Row], processor: SoundProcessor, length: int):
        self.names = [row["sound"] for row in rows]
        self.counts = np.array([processor.frame_count(row["samples"]) for row in rows], np.int32)
        self.processor, self.length = processor, length
        self.padding = 1 - float(self.counts.mean()) / processor.size if len(rows) else 0.0
        self._frames: dict[int, np.ndarray] = {}

    def __len__(self):
        return len(self.names)

    def batch(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """`frames` float32 [B,T,C] and `lengths` int32 [B]; -1 is an empty row, of one frame of silence."""
        frames = np.zeros((len(rows), self.processor.size, self.processor.bands), np.float32)
        for place in np.flatnonzero(rows >= 0):
            frames[place] = self.frames(int(rows[place]))
        return {"frames": frames, "lengths": np.where(rows >= 0, self.counts[rows], 1).astype(np.int32)}

    def frames(self, row: int) -> np.ndarray:
        """The frames of a sound, float32 [T,C]."""
        if row in self._frames:
            return self._frames[row]
        try:
            samples = sources.samples(self.names[row], self.processor)
        except UserError as error:
            raise UserError(f"{error}; it was whole when the run began: restore it") from error
        frames = self.processor.frames(samples)
        if (len(self._frames) + 1) * frames.nbytes <= _CACHED:
            self._frames[row] = frames
        return frames


def frame_fields(run: Run, model: tfm.Config) -> dict[str, Field]:
    """The fields of sounds for a model, or an encoder, that reads frames."""
    sizes = dict(zip("tc", model.input.array_shape or (), strict=True))
    frames = Field("Btc", np.float32, sizes, counts_tokens=True, row_tokens=model.input.max_length(model))
    return {"frames": frames, "lengths": Field("B", np.int32)}

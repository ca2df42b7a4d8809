"""Pictures in files and in arrays. They are decoded when a batch needs them."""

import hashlib
import os
from typing import NamedTuple

import numpy as np
from PIL import Image

from train.images.decoding import array_image, decode


class PictureFile(NamedTuple):
    """A picture in a file of its own."""

    path: str

    def __str__(self):
        return self.path

    def open(self, channels: int) -> Image.Image:
        """The picture, decoded."""
        return decode(self.path, channels)

    def digest(self) -> str:
        """A hash of the file."""
        with open(self.path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:32]

    def stamp(self) -> str | None:
        """Its path, size and time."""
        try:
            status = os.stat(self.path)
        except OSError:
            return f"{self.path} absent"
        return f"{self.path} {status.st_size} {status.st_mtime_ns}"


class PictureInArray(NamedTuple):
    """One of the pictures of an array uint8 [N,H,W] or [N,H,W,C]."""

    name: str
    array: np.ndarray
    place: int

    def __str__(self):
        return f"{self.name}, picture {self.place}"

    def open(self, channels: int) -> Image.Image:
        """The picture."""
        return array_image(self.array[self.place], channels)

    def digest(self) -> str:
        """A hash of its pixels."""
        return hashlib.sha256(self.array[self.place].tobytes()).hexdigest()[:32]

    def stamp(self) -> str | None:
        """None: it is in memory."""
        return None

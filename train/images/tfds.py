"""Pictures and labels of TensorFlow datasets, which are decoded when a batch asks for them."""

import hashlib
from collections.abc import Callable
from typing import NamedTuple

from PIL import Image

from train import UserError
from train.data.sources import tfds
from train.data.sources.features import converter, with_encoded_images
from train.data.sources.files import Row
from train.images.decoding import decode
from train.settings.gate import user_errors


class PictureOfSet(NamedTuple):
    """An encoded picture of a TensorFlow dataset, such as a PNG."""

    name: str
    encoded: bytes

    def __str__(self):
        return self.name

    def open(self, channels: int) -> Image.Image:
        """The picture, decoded."""
        return decode(self.encoded, channels)

    def digest(self) -> str:
        """A hash of its bytes."""
        return hashlib.sha256(self.encoded).hexdigest()[:32]

    def stamp(self) -> str:
        """Its bytes do not change."""
        return f"{self.name} {self.digest()}"


def read(source: str, image: str, label: str, check_label: Callable[[object], None]) -> list[Row]:
    """`tfds:NAME[:SPLIT]` -> rows with the pictures and labels of two features. Raises UserError for another set."""
    features, examples = tfds.examples(source, with_encoded_images)
    named = dict(features.items()) if features else {}
    for flag, name in (("field", image), ("label", label)):
        if name not in named:
            raise UserError(
                f"{source} has no feature {name!r} (it has {', '.join(named)}); name it with --data.{flag}=NAME"
            )
    to_label = converter(named[label])
    rows: list[Row] = []
    for index, example in enumerate(examples):
        where = f"{source}, picture {index}"
        if not isinstance(example[image], bytes):
            raise UserError(f"{source}: its feature {image!r} holds no pictures; name another with --data.field=NAME")
        value = to_label(example[label])
        with user_errors(where):
            check_label(value)
        rows.append({"image": PictureOfSet(where, example[image]), "label": value})
    return rows

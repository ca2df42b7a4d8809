"""Built-in pictures with boxes: one to three of the shapes of `train.images.drawings`, which do not touch."""

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image

from train.data.sources.files import Row
from train.images import drawings, sources
from train.images.boxes import Box
from train.images.decoding import array_image

# Shapes of a scene, and how often a place is tried for each before the scene is dropped.
COUNTS, _TRIES = (1, 2, 3), 20


class Scene(NamedTuple):
    """Shapes on a grey ground."""

    shapes: tuple[drawings.DrawnShape, ...]
    ground: int

    def __str__(self):
        return f"the drawing of {' and '.join(shape.words for shape in self.shapes)}"

    @property
    def is_withheld(self) -> bool:
        """Whether a shape of it is never in training."""
        return any(shape.is_withheld for shape in self.shapes)

    @property
    def boxes(self) -> tuple[Box, ...]:
        """The box around the pixels that each shape covers, in pixels."""
        return tuple(_box(shape) for shape in self.shapes)

    def digest(self) -> str:
        """A hash of what it shows, and where."""
        return drawings.digest_of(self)

    def stamp(self) -> str | None:
        """None: it is in memory."""
        return None

    def open(self, channels: int) -> Image.Image:
        """The scene, drawings.SIDE x drawings.SIDE pixels."""
        return array_image(drawings.paint(self.shapes, self.ground), channels)


def _box(shape: drawings.DrawnShape) -> Box:
    rows, columns = (np.flatnonzero(shape.covered.any(axis)) for axis in (1, 0))
    left, top = shape.x - shape.radius + int(columns[0]), shape.y - shape.radius + int(rows[0])
    return Box(shape.shape, left, top, int(np.ptp(columns)) + 1, int(np.ptp(rows)) + 1)


class SceneParts(NamedTuple):
    """Scenes to train on, to validate on, and those with a pair of colour and shape that is withheld."""

    train: list[Scene]
    valid: list[Scene]
    withheld: list[Scene]


def generate(train: int = 20_000, valid: int = 1000, withheld: int = 500) -> SceneParts:
    """Different scenes, always the same ones."""
    usual, rare = drawings.different(_scenes(random.Random(0)), train + valid, withheld)
    return SceneParts(usual[valid:], usual[:valid], rare)


def _scenes(rng: random.Random) -> Iterator[Scene]:
    """Scenes without end."""
    while True:
        shapes: list[drawings.DrawnShape] = []
        count = rng.choice(COUNTS)
        for _ in range(count * _TRIES):
            size, colour = rng.choice(list(drawings.SIZES)), rng.choice(list(drawings.COLOURS))
            kind, radius = rng.choice(drawings.SHAPES), rng.choice(drawings.SIZES[size])
            x, y = (rng.choice(drawings.centres(radius)) for _ in range(2))
            if _is_free(shapes, x, y, radius):
                shade = drawings.shade(colour, rng)
                shapes.append(drawings.DrawnShape(size, colour, kind, x, y, radius, shade))
            if len(shapes) == count:
                yield Scene(tuple(shapes), rng.randrange(216, 256))
                break


def arranged(kinds: Sequence[tuple[str, str]], rng: random.Random) -> tuple[drawings.DrawnShape, ...]:
    """Shapes of these colours and forms, small and large, where they do not touch; none where they find no room."""
    shapes: list[drawings.DrawnShape] = []
    for colour, form in kinds:
        for _ in range(_TRIES):
            size = rng.choice(list(drawings.SIZES))
            radius = rng.choice(drawings.SIZES[size])
            x, y = (rng.choice(drawings.centres(radius)) for _ in range(2))
            if _is_free(shapes, x, y, radius):
                shapes.append(drawings.DrawnShape(size, colour, form, x, y, radius, drawings.shade(colour, rng)))
                break
        else:
            return ()
    return tuple(shapes)


def _is_free(shapes: Sequence[drawings.DrawnShape], x: int, y: int, radius: int) -> bool:
    """Whether a shape around a place touches none of those that are there."""
    return all(max(abs(x - shape.x), abs(y - shape.y)) > radius + shape.radius for shape in shapes)


def rows(scenes: list[Scene]) -> list[Row]:
    """Rows of `train.images.sources` with the boxes of each, and whether they show a withheld pair."""
    return [
        {
            "image": scene,
            "digest": scene.digest(),
            "label": "",
            "boxes": scene.boxes,
            "size": (drawings.SIDE, drawings.SIDE),
            "withheld": scene.is_withheld,
        }
        for scene in scenes
    ]


def drawn() -> sources.Parts:
    """Built-in scenes: those to train on, and to validate on, with those of withheld pairs."""
    train, valid, withheld = generate()
    return sources.Parts(rows(train), rows([*valid, *withheld]))

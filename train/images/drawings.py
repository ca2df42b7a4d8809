"""Built-in pictures: two shapes, one beside or above the other, and a caption that says so.

    a small red circle left of a large blue square

A quarter of all pairs of a colour and a shape is withheld: no such shape is in a drawing of the training data, and each
colour and each shape is. Drawings are made of whole numbers alone, so that they are the same on every machine.
"""

import functools
import hashlib
import random
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from PIL import Image

from train import UserError
from train.data.sources.files import Row
from train.images import sources
from train.images.decoding import array_image

SIDE = 32  # pixels
GRID = 4  # pixels between the places where centres are

SHAPES = ("circle", "square", "triangle", "cross")
COLOURS = {
    "red": (208, 40, 44),
    "green": (44, 148, 60),
    "blue": (44, 76, 204),
    "yellow": (224, 192, 36),
    "purple": (136, 52, 160),
    "black": (28, 28, 28),
}
SIZES = {"small": (4, 5), "large": (6, 7)}  # radii in pixels

# What a caption says of the first shape, and what it says if it begins with the second.
RELATIONS = {"left of": "right of", "above": "below"}

# The classes of the pixels of a mask.
MASK_CLASSES = ("background", *SHAPES)

# What a drawing may be labelled with (--data.label).
LABELS = ("label", "caption", "relation", "shape", "colour", "size")

_CELLS = 4  # cells of a pixel along each side, whose mean is its colour


class DrawnShape(NamedTuple):
    """A shape: the words for it, its centre and radius in pixels, and its colour, RGB."""

    size: str
    colour: str
    shape: str
    x: int
    y: int
    radius: int
    rgb: tuple[int, int, int]

    @property
    def words(self) -> str:
        """What a caption calls it."""
        return f"a {self.size} {self.colour} {self.shape}"

    @property
    def is_withheld(self) -> bool:
        """Whether its colour and its shape never go together in training."""
        return is_withheld(self.colour, self.shape)

    @property
    def covered(self) -> np.ndarray:
        """Whether it covers half of each pixel of its square or more, bool [2 * radius, 2 * radius]."""
        return 2 * _coverage(self.shape, self.radius)[:, :, 0] >= _CELLS * _CELLS


class Drawing(NamedTuple):
    """Two shapes on a grey ground: the first is left of the second, or above it."""

    first: DrawnShape
    relation: str
    second: DrawnShape
    ground: int
    begins_with_second: bool

    def __str__(self):
        return f"the drawing of {self.caption}"

    @property
    def caption(self) -> str:
        """What it shows."""
        if self.begins_with_second:
            return f"{self.second.words} {RELATIONS[self.relation]} {self.first.words}"
        return f"{self.first.words} {self.relation} {self.second.words}"

    @property
    def is_withheld(self) -> bool:
        """Whether a shape of it is never in training."""
        return self.first.is_withheld or self.second.is_withheld

    def label(self, name: str) -> str:
        """A label of LABELS: `label` is both shapes and their relation; shape, colour and size are of the first."""
        if name == "label":
            return f"{self.first.shape} {self.relation} {self.second.shape}"
        return getattr(self if name in ("caption", "relation") else self.first, name)

    def digest(self) -> str:
        """A hash of what it shows, and where."""
        return digest_of(self)

    def stamp(self) -> str | None:
        """None: it is in memory."""
        return None

    def open(self, channels: int) -> Image.Image:
        """The drawing, SIDE x SIDE pixels."""
        return array_image(draw(self), channels)


def digest_of(picture: tuple[object, ...]) -> str:
    """A hash of the facts of a drawn picture."""
    return hashlib.sha256(repr(tuple(picture)).encode()).hexdigest()[:32]


def is_withheld(colour: str, shape: str) -> bool:
    """Whether a pair of a colour and a shape is not in the training data: one shape of each colour."""
    return (list(COLOURS).index(colour) + SHAPES.index(shape)) % len(SHAPES) == 0


def draw(drawing: Drawing) -> np.ndarray:
    """A drawing -> uint8 [SIDE, SIDE, 3]."""
    return paint((drawing.first, drawing.second), drawing.ground)


def paint(shapes: Iterable[DrawnShape], ground: int) -> np.ndarray:
    """Shapes on a grey ground -> uint8 [SIDE, SIDE, 3]."""
    pixels = np.full((SIDE, SIDE, 3), ground, np.int64)
    full = _CELLS * _CELLS
    for shape in shapes:
        rows, columns = (slice(centre - shape.radius, centre + shape.radius) for centre in (shape.y, shape.x))
        coverage, behind = _coverage(shape.shape, shape.radius), pixels[rows, columns]
        pixels[rows, columns] = (behind * (full - coverage) + np.array(shape.rgb) * coverage + full // 2) // full
    return pixels.astype(np.uint8)


def mask(drawing: Drawing) -> np.ndarray:
    """A drawing -> uint8 [SIDE, SIDE]: the place in MASK_CLASSES of the shape that covers half of a pixel or more."""
    values = np.zeros((SIDE, SIDE), np.uint8)
    for shape in (drawing.first, drawing.second):
        rows, columns = (slice(centre - shape.radius, centre + shape.radius) for centre in (shape.y, shape.x))
        values[rows, columns][shape.covered] = MASK_CLASSES.index(shape.shape)
    return values


@functools.cache
def _coverage(shape: str, radius: int) -> np.ndarray:
    """The cells of every pixel that a shape covers, int [2 * radius, 2 * radius, 1], at most _CELLS squared."""
    points = 2 * np.arange(2 * radius * _CELLS) + 1 - 2 * radius * _CELLS  # from the centre, in halves of a cell
    dx, dy, r = points[None], points[:, None], 2 * radius * _CELLS
    inside = {
        "circle": dx * dx + dy * dy <= r * r,
        "square": np.maximum(abs(dx), abs(dy)) * 8 <= 7 * r,
        "triangle": 2 * abs(dx) <= dy + r,
        "cross": np.minimum(abs(dx), abs(dy)) * 3 <= r,
    }
    return inside[shape].reshape(2 * radius, _CELLS, 2 * radius, _CELLS).sum((1, 3))[:, :, None]


class DrawnParts(NamedTuple):
    """Drawings to train on, to validate on, and those with a pair that is withheld."""

    train: list[Drawing]
    valid: list[Drawing]
    withheld: list[Drawing]


def generate(train: int = 20_000, valid: int = 1000, withheld: int = 500) -> DrawnParts:
    """Different drawings, always the same ones."""
    usual, rare = different(_drawings(random.Random(0)), valid + train, withheld)
    return DrawnParts(usual[valid:], usual[:valid], rare)


class DrawnPicture(Protocol):
    """A picture that is drawn: whether it shows a pair of colour and shape that is withheld, and a hash of it."""

    @property
    def is_withheld(self) -> bool:
        """Whether a shape of it is never in training."""

    def digest(self) -> str:
        """A hash of what it shows, and where."""


Drawn = TypeVar("Drawn", bound=DrawnPicture)


def different(pictures: Iterator[Drawn], usual: int, withheld: int) -> tuple[list[Drawn], list[Drawn]]:
    """The first different pictures of a stream: `usual` without a withheld pair, and `withheld` with one."""
    sizes = {False: usual, True: withheld}
    kinds: dict[bool, dict[str, Drawn]] = {False: {}, True: {}}
    for picture in pictures:
        chosen = kinds[picture.is_withheld]
        if len(chosen) < sizes[picture.is_withheld]:
            chosen.setdefault(picture.digest(), picture)
        elif all(len(kinds[key]) == size for key, size in sizes.items()):
            break
    return list(kinds[False].values()), list(kinds[True].values())


def _drawings(rng: random.Random) -> Iterator[Drawing]:
    """Drawings without end: the first shape stands to the second as it says more than in the other direction."""
    while True:
        relation = rng.choice(list(RELATIONS))
        kinds = [(rng.choice(list(SIZES)), rng.choice(list(COLOURS)), rng.choice(SHAPES)) for _ in range(2)]
        radius, second_radius = (rng.choice(SIZES[size]) for size, _, _ in kinds)
        distance = radius + second_radius + 1  # at least
        alongs = [(a, b) for a in centres(radius) for b in centres(second_radius) if b - a >= distance]
        first_along, second_along = rng.choice(alongs)
        across = rng.choice(centres(radius))
        offset = (second_along - first_along) // 2
        second_across = rng.choice([place for place in centres(second_radius) if abs(place - across) <= offset])
        places = (first_along, across), (second_along, second_across)
        shapes = [
            DrawnShape(*kind, *(place if relation == "left of" else place[::-1]), size, shade(kind[1], rng))
            for kind, place, size in zip(kinds, places, (radius, second_radius), strict=True)
        ]
        yield Drawing(shapes[0], relation, shapes[1], rng.randrange(216, 256), bool(rng.randrange(2)))


def centres(radius: int) -> list[int]:
    """Where the centre of a shape may be, along one side."""
    return [place for place in range(0, SIDE, GRID) if radius <= place <= SIDE - radius]


def shade(colour: str, rng: random.Random) -> tuple[int, int, int]:
    """A colour, a little lighter or darker."""
    red, green, blue = (value + rng.randrange(-16, 17) for value in COLOURS[colour])
    return red, green, blue


def check_label(label: str):
    """Raises UserError for what no drawing is labelled with."""
    if label not in LABELS:
        raise UserError(f"--data.label={label} is no label of the built-in drawings; known are {', '.join(LABELS)}")


def rows(drawings: list[Drawing], label: str) -> list[Row]:
    """Rows of `train.images.sources`, and whether they show a withheld pair."""
    return [
        {
            "image": drawing,
            "digest": drawing.digest(),
            "label": drawing.label(label),
            "withheld": drawing.is_withheld,
        }
        for drawing in drawings
    ]


def builtin(label: str) -> sources.Parts:
    """The drawings under labels: those to train on, and to validate on, with those of withheld pairs."""
    check_label(label)
    train, valid, withheld = generate()
    return sources.Parts(rows(train, label), rows([*valid, *withheld], label))

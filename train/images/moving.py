"""Built-in videos: a shape that goes along two sides of a square, and back along the others.

    right then down        from the upper left corner
    down then right        the same places, the other way around

The eight classes begin at the four corners of the square, both ways around. A video has eight frames, and in each the
shape is at another of the same eight places, so that the frames of all classes are the same ones in another order. The
square is anywhere, and what leaves a frame at a side comes in at the opposite one: a single frame says nothing.
"""

import random
from typing import NamedTuple

import numpy as np
from PIL import Image

from train import UserError
from train.data.sources.files import Row
from train.images import drawings, sources, videos
from train.images.decoding import array_image

DIRECTIONS = ("right", "down", "left", "up")

# The places of the shape, (row, column), clockwise from the upper left corner.
_ROUND = ((0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0))

FRAMES = len(_ROUND)


class MovingDrawing(NamedTuple):
    """A shape, the corner at which it begins, which way around it goes, where the square is, and the frames that are
    read. From frame to frame it goes drawings.GRID pixels."""

    shape: drawings.DrawnShape
    ground: int
    corner: int
    clockwise: bool
    row: int
    column: int
    frames: int

    def __str__(self):
        return f"the video of {self.shape.words} that goes {self.label}"

    @property
    def label(self) -> str:
        """Where it goes first, and then."""
        clockwise = [DIRECTIONS[self.corner], DIRECTIONS[(self.corner + 1) % 4]]
        return " then ".join(clockwise if self.clockwise else clockwise[::-1])

    def video(self) -> np.ndarray:
        """uint8 [FRAMES, SIDE, SIDE, 3]."""
        still, sign = drawings.paint([self.shape], self.ground), 1 if self.clockwise else -1
        places = [_ROUND[(2 * self.corner + sign * time) % FRAMES] for time in range(FRAMES)]
        return np.stack(
            [
                np.roll(still, (self.row + row * drawings.GRID, self.column + column * drawings.GRID), (0, 1))
                for row, column in places
            ]
        )

    def digest(self) -> str:
        """A hash of what it shows."""
        return drawings.digest_of(self)

    def stamp(self) -> str | None:
        """None: it is in memory."""
        return None

    def open(self, channels: int) -> Image.Image:
        """The frames, from above to below."""
        frames = self.video()[videos.places(FRAMES, self.frames)]
        return array_image(frames.reshape(-1, drawings.SIDE, 3), channels)


def generate(count: int, seed: int, frames: int) -> list[MovingDrawing]:
    """Videos, always the same ones."""
    rng, middle = random.Random(seed), drawings.SIDE // 2
    drawn = []
    for _ in range(count):
        colour, radius = rng.choice(list(drawings.COLOURS)), rng.choice(drawings.SIZES["small"])
        shape = drawings.DrawnShape(
            "small", colour, rng.choice(drawings.SHAPES), middle, middle, radius, drawings.shade(colour, rng)
        )
        motion = rng.randrange(4), bool(rng.randrange(2))
        place = rng.randrange(0, drawings.SIDE, drawings.GRID), rng.randrange(0, drawings.SIDE, drawings.GRID)
        drawn.append(MovingDrawing(shape, rng.randrange(216, 256), *motion, *place, frames))
    return drawn


def builtin(label: str, frames: int) -> sources.Parts:
    """Rows to train on and to validate on. Raises UserError for another label."""
    if label != "label":
        raise UserError(f"--data.label={label} is no label of the built-in videos; leave it out")
    return sources.Parts(
        *([_row(video) for video in generate(count, seed, frames)] for seed, count in enumerate((12_000, 1000)))
    )


def _row(video: MovingDrawing) -> Row:
    return {"image": video, "digest": video.digest(), "label": video.label}

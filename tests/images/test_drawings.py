"""Built-in drawings: always the same, with captions that are true, and pairs that never occur in training."""

import hashlib
import re
from collections import Counter

import numpy as np
import pytest

from train.images import drawings
from train.images.drawings import COLOURS, RELATIONS, SHAPES


@pytest.fixture(scope="module")
def parts():
    return drawings.generate(train=600, valid=100, withheld=60)


def test_a_quarter_of_the_pairs_is_withheld(parts):
    withheld = {(colour, shape) for colour in COLOURS for shape in SHAPES if drawings.is_withheld(colour, shape)}
    assert len(withheld) * 4 == len(COLOURS) * len(SHAPES)
    assert {colour for colour, _ in withheld} == set(COLOURS)
    assert {shape for _, shape in withheld} == set(SHAPES)
    for drawing in (*parts.train, *parts.valid):
        assert withheld.isdisjoint({(part.colour, part.shape) for part in (drawing.first, drawing.second)})
    for drawing in parts.withheld:
        assert withheld & {(part.colour, part.shape) for part in (drawing.first, drawing.second)}


def test_no_drawing_is_twice_and_all_words_occur(parts):
    assert [len(part) for part in parts] == [600, 100, 60]
    assert len({drawing.digest() for part in parts for drawing in part}) == 760
    words = Counter(word for drawing in parts.train for word in drawing.caption.split())
    assert {*SHAPES, *COLOURS, "small", "large", "left", "right", "above", "below"} <= set(words)


def test_captions_are_true(parts):
    """Read back by their words; the centre of each colour is where the caption says."""
    for drawing in parts.train[:100]:
        pattern = rf"a (\w+) (\w+) (\w+) ({'|'.join([*RELATIONS, *RELATIONS.values()])}) a (\w+) (\w+) (\w+)"
        *named, relation, _, colour, _ = [re.fullmatch(pattern, drawing.caption)[n] for n in (1, 2, 3, 4, 5, 6, 7)]
        if named[1] == colour:
            continue
        places = [centre(drawings.draw(drawing), word) for word in (named[1], colour)]
        axis = 1 if relation in ("left of", "right of") else 0
        assert (places[0][axis] < places[1][axis]) == (relation in RELATIONS), drawing.caption
        assert abs(np.subtract(*places)).argmax() == axis


def centre(pixels, colour):
    """The mean place of the pixels that are nearest to a colour."""
    distances = np.abs(pixels.astype(int)[:, :, None] - [*COLOURS.values(), (240, 240, 240)]).sum(-1)
    return np.argwhere(distances.argmin(-1) == list(COLOURS).index(colour)).mean(0)


def test_every_machine_draws_the_same(parts):
    digest = hashlib.sha256(b"".join(drawings.draw(drawing).tobytes() for drawing in parts.train)).hexdigest()
    assert digest[:16] == "ac7c98c19aa6cecc"


def test_shapes_cover_their_area():
    """Compared with the areas of the figures, in pixels."""
    areas = {"circle": np.pi, "square": (2 * 7 / 8) ** 2, "triangle": 2.0, "cross": 4 * (2 / 3) - (2 / 3) ** 2}
    for shape, area in areas.items():
        covered = drawings._coverage(shape, 7).sum() / 16
        assert covered == pytest.approx(area * 7**2, rel=0.06), shape

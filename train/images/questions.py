"""Built-in questions about pictures: how many there are of a shape, its colour, and what is beside it.

    how many red circles are there ?     0 to 3
    what colour is the square ?          one of six
    what is left of the blue cross ?     one of four shapes

Each answer to a question is as frequent, so that the question alone says little.
"""

import itertools
import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from train.data.sources.files import Row
from train.images import drawings, scenes, sources
from train.images.drawings import COLOURS, RELATIONS, SHAPES

# A colour and a shape.
Kind = tuple[str, str]

_ALL = tuple(itertools.product(COLOURS, SHAPES))
_PLURALS = {"cross": "crosses"}
_OPPOSITES = RELATIONS | {after: before for before, after in RELATIONS.items()}


class Asked(NamedTuple):
    """A scene, a question about it, and the answer."""

    scene: scenes.Scene
    question: str
    answer: str

    @property
    def is_withheld(self) -> bool:
        """Whether a shape of the scene is never in training."""
        return self.scene.is_withheld

    def digest(self) -> str:
        """A hash of what the scene shows, and where."""
        return self.scene.digest()


def drawn(train: int = 20_000, valid: int = 1000, withheld: int = 500) -> sources.Parts:
    """Built-in questions: those to train on, and to validate on, with those about withheld pairs."""
    usual, rare = drawings.different(_asked(random.Random(0)), train + valid, withheld)
    return sources.Parts(_rows(usual[valid:]), _rows([*usual[:valid], *rare]))


def _rows(asked: list[Asked]) -> list[Row]:
    """Rows of `train.images.sources`."""
    return [
        {
            "image": item.scene,
            "digest": item.digest(),
            "question": item.question,
            "label": item.answer,
            "withheld": item.is_withheld,
        }
        for item in asked
    ]


class Composition(NamedTuple):
    """The shapes of a scene, a question, its answer, and whether shapes stand as the question says."""

    kinds: list[Kind]
    question: str
    answer: str
    stand: Callable[[tuple[drawings.DrawnShape, ...]], bool] = bool


def _asked(rng: random.Random) -> Iterator[Asked]:
    """Questions without end, of each kind in turn; a scene is drawn until its shapes stand as the question says."""
    for compose in itertools.cycle((_count, _colour, _beside)):
        kinds, question, answer, stand = compose(rng)
        shapes: tuple[drawings.DrawnShape, ...] = ()
        while not (shapes and stand(shapes)):
            shapes = scenes.arranged(kinds, rng)
        yield Asked(scenes.Scene(shapes, rng.randrange(216, 256)), question, answer)


def _count(rng: random.Random) -> Composition:
    """How many there are: of three shapes at most."""
    wanted, count = rng.choice(_ALL), rng.randrange(4)
    colour, shape = wanted
    rest = rng.randrange(max(1 - count, 0), 4 - count)
    kinds = [wanted] * count + [rng.choice([kind for kind in _ALL if kind != wanted]) for _ in range(rest)]
    return Composition(kinds, f"how many {colour} {_PLURALS.get(shape, f'{shape}s')} are there ?", str(count))


def _colour(rng: random.Random) -> Composition:
    """The colour of the only shape of its kind."""
    shape, colour = rng.choice(SHAPES), rng.choice(list(COLOURS))
    rest = [(rng.choice(list(COLOURS)), rng.choice([s for s in SHAPES if s != shape])) for _ in range(rng.randrange(3))]
    return Composition([(colour, shape), *rest], f"what colour is the {shape} ?", colour)


def _beside(rng: random.Random) -> Composition:
    """The shape on one side of another one."""
    before, after = rng.choice(_ALL), rng.choice(_ALL)
    relation = rng.choice(list(_OPPOSITES))

    def stand(shapes: tuple[drawings.DrawnShape, ...]) -> bool:
        answer, named = shapes
        along, across = answer.x - named.x, answer.y - named.y
        if relation in ("above", "below"):
            along, across = across, along
        return abs(along) >= 2 * abs(across) and (along < 0) == (relation in RELATIONS)

    return Composition([before, after], f"what is {relation} the {' '.join(after)} ?", before[1], stand)

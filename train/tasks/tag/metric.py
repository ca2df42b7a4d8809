"""Entities in sequences of tags, and how well they are recognized."""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

# A tag of an entity: its place in the entity (begin, inside, end, single; in BILOU last and unit) and its type.
_TAG = re.compile(r"([BIESLU])(?:-(.+))?")
_PLACES = {"L": "E", "U": "S"}

OUTSIDE = "O"


class Entity(NamedTuple):
    """Words start to end - 1 of a sentence, as an entity of a type."""

    type: str
    start: int
    end: int


def marks_entities(labels: Iterable[str]) -> bool:
    """Whether labels are tags of entities, rather than parts of speech or other labels of words."""
    inside = [label for label in labels if label != OUTSIDE]
    typed = [label for label in inside if "-" in label or label == "B"]
    return bool(typed) and all(_TAG.fullmatch(label) for label in inside)


def scheme(sentences: Iterable[Sequence[str]]) -> str:
    """What the tags of sentences are: IOB1, IOB2, BIOES, BILOU, or "labels" where they mark no entities.

    IOB1: B- begins only an entity that follows one of its own type. IOB2: every entity begins with B-. Tags of which
    neither is true are IOB2 with errors (Tjong Kim Sang and Veenstra 1999, section 2).
    """
    sequences = [list(tags) for tags in sentences]
    labels = {label for tags in sequences for label in tags}
    if not marks_entities(labels):
        return "labels"
    places = {label[0] for label in labels}
    if places & {"L", "U"}:
        return "BILOU"
    if places & {"E", "S"}:
        return "BIOES"
    begins = [_begins(tags) for tags in sequences]
    has_inside_start = any(inside for inside, _ in begins)
    has_needless_begin = any(needless for _, needless in begins)
    return "IOB1" if has_inside_start and not has_needless_begin else "IOB2"


def inside_starts(sentences: Iterable[Sequence[str]]) -> int:
    """The entities that begin with I-: right in IOB1, errors in IOB2, which are read as if B- stood there."""
    return sum(_begins(tags)[0] for tags in sentences)


def _begins(tags: Sequence[str]) -> tuple[int, int]:
    """Entities that begin with I-, and those that begin with B- where none of their type ends."""
    starts, needless, before = 0, 0, ("", "")
    for label in tags:
        place, kind = _parse(label)
        continues = before[0] and before[1] == kind
        starts += place == "I" and not continues
        needless += place == "B" and not continues
        before = (place, kind)
    return starts, needless


def _parse(label: str) -> tuple[str, str]:
    """A tag -> its place, of BIES, and its type; two empty texts outside of entities."""
    match = _TAG.fullmatch(label)
    return (_PLACES.get(match[1], match[1]), match[2] or "_") if match else ("", "")


def entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of a sentence, as conlleval and the default mode of seqeval read all schemes.

    An entity begins with B- and S-, after E- and S-, after O, and where the type changes: I- after O begins one too.
    It ends with E- and S-, and before what begins another (Tjong Kim Sang and De Meulder 2003; conlleval).
    """
    spans: list[Entity] = []
    before, start = ("", ""), 0
    for n, label in enumerate([*tags, OUTSIDE]):
        place, kind = _parse(label)
        begins = place in ("B", "S") or before[0] in ("", "E", "S") or before[1] != kind
        if before[0] and (begins or not place):
            spans.append(Entity(before[1], start, n))
        if place and begins:
            start = n
        before = (place, kind)
    return spans


def scores(predicted: Collection[Any], labelled: Collection[Any]) -> dict[str, float]:
    """Precision, recall and F1 of entities among those that are there; 0 where there are none to divide by.

    Members are places in the text with their types: an entity is right where both are.
    """
    right = len(set(predicted) & set(labelled))
    return {
        "precision": right / max(len(predicted), 1),
        "recall": right / max(len(labelled), 1),
        "f1": 2 * right / max(len(predicted) + len(labelled), 1),
    }


def entity_scores(
    predicted: Sequence[Sequence[Entity]], labelled: Sequence[Sequence[Entity]]
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Entities of N sentences, predicted and right ones -> scores of all of them (micro), and by type.

    A type also has its `support`: how many entities of it are there.
    """
    guesses, truths = _numbered(predicted), _numbered(labelled)
    by_type: dict[str, dict[str, float]] = {}
    for kind in sorted({entity.type for _, entity in (*guesses, *truths)}):
        of_type = [[member for member in members if member[1].type == kind] for members in (guesses, truths)]
        by_type[kind] = {**scores(*of_type), "support": len(of_type[1])}
    return scores(guesses, truths), by_type


def _numbered(sentences: Sequence[Sequence[Entity]]) -> list[tuple[int, Entity]]:
    """All entities, with the sentence of each."""
    return [(n, entity) for n, spans in enumerate(sentences) for entity in spans]

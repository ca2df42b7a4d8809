"""The tenth of the data that is held out for validation: of the characters of documents, else of the rows."""

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from train import UserError
from train.data.sources.files import Reader, Row

# The share that is held out, and between which shares chance may leave it.
_SHARE, HELD_OUT = 0.1, (0.05, 0.2)
_LEAST, _MOST = HELD_OUT

# How far the beginning of a line may be from where a document is to be cut, of all characters.
_NEAR = 0.05


def train_valid_split(rows: list[Row], columns: Reader) -> tuple[list[Row], list[Row]]:
    """Rows to train on and to validate on, about a tenth, by the hash of their text.

    Of documents, which have one text and no label, it is a tenth of the characters; where they are too large for that,
    the end of one of them, from the beginning of a line on. Raises UserError for rows of one and the same text, which
    cannot stand on both sides.
    """
    are_documents = len(columns.texts) == 1 and not columns.labels
    if len(rows) == 1 and are_documents:
        (name,), (row,) = columns.texts, rows
        place = int(len(row[name]) * (1 - _SHARE))
        cut = _line_start(row[name], place, _NEAR * len(row[name])) or place
        return [{name: row[name][:cut]}], [{name: row[name][cut:]}]
    texts = ["\0".join(columns.texts_of(row)) for row in rows]
    hashes = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts]
    if len(set(hashes)) == 1:
        raise UserError(
            "all rows of the data are the same, and validation needs different ones; "
            "add some, or name others with --eval-data"
        )
    sizes: Counter[bytes] = Counter()
    for digest, text in zip(hashes, texts, strict=True):
        sizes[digest] += len(text) if are_documents else 1
    chosen, ends = set(filter(is_held_out, sizes)), {}
    if not _LEAST <= _share(chosen, sizes) <= _MOST:
        chosen = _fitting(sizes)
        ends = _end_of_one(rows, hashes, columns, chosen, sizes) if are_documents else {}
        if not chosen and not ends:
            chosen = {min(sizes, key=lambda digest: (sizes[digest], digest))}
    train: list[Row] = []
    valid: list[Row] = []
    for row, digest in zip(rows, hashes, strict=True):
        if digest in ends:
            (name,), cut = columns.texts, ends[digest]
            train.append({name: row[name][:cut]})
            valid.append({name: row[name][cut:]})
        else:
            (valid if digest in chosen else train).append(row)
    return train, valid


def is_held_out(digest: bytes) -> bool:
    """Whether a row with this hash is, where that makes about a tenth of all."""
    return digest[0] % 10 == 0


def _share(chosen: Collection[bytes], sizes: Mapping[bytes, int]) -> float:
    """The share of all that these hashes have."""
    return sum(sizes[digest] for digest in chosen) / sum(sizes.values())


def _fitting(sizes: Mapping[bytes, int]) -> set[bytes]:
    """The first hashes that have a tenth together, without those that would make it more than a fifth."""
    chosen: set[bytes] = set()
    for digest in sorted(sizes):
        if _share(chosen, sizes) < _SHARE and _share({*chosen, digest}, sizes) <= _MOST:
            chosen.add(digest)
    return chosen


def _end_of_one(
    rows: Sequence[Row], hashes: Sequence[bytes], columns: Reader, chosen: Collection[bytes], sizes: Mapping[bytes, int]
) -> dict[bytes, int]:
    """The hash of a document whose end makes the chosen ones a tenth, and where that end begins; none if they are
    enough, or no line begins there."""
    total, share = sum(sizes.values()), _share(chosen, sizes)
    if share >= _LEAST:
        return {}
    for digest, row in sorted(zip(hashes, rows, strict=True), key=lambda item: item[0]):
        (text,) = columns.texts_of(row)
        copies = hashes.count(digest)
        place = len(text) - int((_SHARE - share) * total / copies)
        if digest not in chosen and place > 0 and (cut := _line_start(text, place, _NEAR * total)):
            return {digest: cut}
    return {}


def _line_start(text: str, place: int, distance: float) -> int:
    """Where a line begins, next to a place and at most so far from it; 0 where none does."""
    starts = (text.rfind("\n", 0, place) + 1, text.find("\n", place) + 1)
    nearest = min(starts, key=lambda start: abs(start - place))
    return nearest if 0 < nearest < len(text) and abs(nearest - place) <= distance else 0

"""Boxes around objects in pictures: COCO's files, and boxes that go along with changes of their pictures."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from train import UserError
from train.data.sources.files import Row
from train.files import cache
from train.images import sources
from train.images.augmentation import random_box
from train.images.checking import outcomes
from train.settings.images import Augment

# An object of a COCO file, and a type of its fields.
Entry = Mapping[str, object]
Value = TypeVar("Value")

# Folders beside a file of boxes, or above it, where its pictures may lie.
FOLDERS = ("", "images", "train2017", "val2017", "train", "val", "valid")

# Folders that are for training, and for validation.
_TRAIN, _VALID = ("train", "training"), ("val", "valid", "validation")

# Raised with what counts as a good box, so that verdicts are made anew.
_VERSION = "1"

# By how much of a side a box may leave its picture: files round.
_BEYOND = 0.02


class Box(NamedTuple):
    """A box around an object: its class, and its least x and y, width and height in pixels of its picture.

    crowd: it is around many objects, which are not told apart
    """

    name: str
    x: float
    y: float
    width: float
    height: float
    crowd: bool = False

    @property
    def area(self) -> float:
        """Square pixels."""
        return self.width * self.height


def folder_rows(source: Path, log_line: Callable[[str], None]) -> sources.Parts:
    """The pictures and boxes of a COCO file, or of a folder with one, or with a folder for each part that has one.

    Says how many boxes have no area, and are left out. Raises UserError for files that are no COCO files.
    """
    if source.is_file():
        return sources.Parts(coco_rows(source, log_line))
    if files := _files(source):
        if len(files) > 1:
            shown = ", ".join(path.name for path in files)
            raise UserError(
                f"{source} has several files of boxes ({shown}); name one with --data, one with --eval-data"
            )
        return sources.Parts(coco_rows(files[0], log_line))
    parts = []
    for names in (_TRAIN, _VALID):
        inner = [path for folder in names if (source / folder).is_dir() for path in _files(source / folder)]
        parts.append(inner[0] if inner else None)
    if parts[0] is None:
        raise UserError(
            f"{source} holds no file of boxes; it must have a COCO file beside its pictures, such as annotations.json, "
            "or folders train and valid with one each"
        )
    train, valid = parts[0], parts[1]
    return sources.Parts(coco_rows(train, log_line), coco_rows(valid, log_line) if valid else None)


def _files(folder: Path) -> list[Path]:
    """The JSON files of a folder."""
    return sorted(folder.glob("*.json"))


def coco_rows(path: Path, log_line: Callable[[str], None]) -> list[Row]:
    """A row for each picture of a COCO file: `image`, `boxes`, `id` and `size`, its width and height. Raises UserError
    for a file that is none, and for boxes outside of their pictures or of no class."""
    content = _content(path)
    names = _names(path, content["categories"])
    pictures = {_field(path, "images", picture, "id", (int, str)): picture for picture in content["images"]}
    boxes: dict[object, list[Box]] = {name: [] for name in pictures}
    for entry in content["annotations"]:
        picture = pictures.get(_field(path, "annotations", entry, "image_id", (int, str)))
        if picture is None:
            raise UserError(
                f"{path}: a box is of the picture {entry['image_id']!r}, which is not in images; correct it"
            )
        boxes[entry["image_id"]].append(_box(path, entry, picture, names))
    empty = sum(box.area == 0 for inner in boxes.values() for box in inner)
    if empty:
        log_line(f"{empty:,} boxes of {path} have no area, and are left out")
    if not any(boxes.values()):
        raise UserError(f"{path} has no boxes; there must be annotations with a bbox each")
    return [
        {
            "image": sources.PictureFile(str(_picture(path, picture["file_name"]))),
            "label": "",
            "boxes": tuple(box for box in boxes[name] if box.area),
            "id": name,
            "size": (picture["width"], picture["height"]),
            "categories": names,
        }
        for name, picture in pictures.items()
    ]


def _content(path: Path) -> dict[str, list[Entry]]:
    """The lists of a COCO file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is no JSON file: {error}; name a COCO file") from error
    for key in ("images", "annotations", "categories"):
        values = content.get(key) if isinstance(content, dict) else None
        if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
            raise UserError(
                f"{path} has no list {key!r} of objects; a COCO file has images, annotations and categories"
            )
    if not content["images"]:
        raise UserError(f"{path} names no picture; check the file, or choose another")
    return content


def _names(path: Path, categories: Sequence[Entry]) -> dict[int, str]:
    """The names of classes by their ids, in the order of these."""
    names = {
        _field(path, "categories", c, "id", (int,)): _field(path, "categories", c, "name", (str,)) for c in categories
    }
    if len({*names.values()}) < len(categories):
        raise UserError(f"{path} has two categories of one id or one name; give each its own")
    return dict(sorted(names.items()))


def _field(path: Path, name: str, entry: Entry, key: str, kinds: tuple[type[Value], ...]) -> Value:
    """A field of an entry. Raises UserError where it is absent, or of another type."""
    value = entry.get(key)
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise UserError(f"{path}: an entry of {name} has {key}={value!r}; correct it")
    return value


def _box(path: Path, entry: Entry, picture: Entry, names: Mapping[int, str]) -> Box:
    """The box of an annotation, within its picture. Raises UserError for one that is not."""
    numbers, where = entry.get("bbox"), f"{path}: a box of {picture.get('file_name')!r}"
    if not isinstance(numbers, list) or len(numbers) != 4 or not all(map(_is_finite, numbers)):
        raise UserError(f"{where} has bbox={numbers!r}; it must be x, y, width and height in pixels")
    category = entry.get("category_id")
    if not isinstance(category, int) or category not in names:
        raise UserError(f"{where} has category_id={category!r}, which is not in categories; correct it")
    sides = [_field(path, "images", picture, side, (int,)) for side in ("width", "height")]
    low, high = numbers[:2], [numbers[0] + numbers[2], numbers[1] + numbers[3]]
    if min(numbers[2:]) < 0 or any(
        first < -_BEYOND * side or last > (1 + _BEYOND) * side
        for first, last, side in zip(low, high, sides, strict=True)
    ):
        raise UserError(
            f"{where} has bbox={numbers}, which is outside of its {sides[0]} x {sides[1]} pixels; correct it"
        )
    x, y = (max(0.0, value) for value in low)
    right, bottom = (min(value, side) for value, side in zip(high, sides, strict=True))
    return Box(names[category], x, y, right - x, bottom - y, bool(entry.get("iscrowd", 0)))


def check_rows(rows: Sequence[Row], source: str, limit: int, log):
    """Raises UserError for rows without boxes, for more than `limit` in a picture, and for pictures of another size
    than their file says."""
    for row in rows:
        if "boxes" not in row:
            raise UserError(f"{source} has no boxes; name a COCO file such as annotations.json, or a folder with one")
        if len(row["boxes"]) > limit:
            raise UserError(
                f"{row['image']} has {len(row['boxes'])} boxes, more than --task.queries={limit}; raise that to "
                f"{max(len(row['boxes']) for row in rows)}, or leave boxes out"
            )
    files = [row for row in rows if "id" in row]
    stamps = [f"{row['image'].stamp()} {row['size']}" for row in files]
    if files:
        name = f"boxes-{cache.digest([_VERSION], stamps)}"
        cache.json_value(name, lambda: outcomes(_check_size, files, log, "comparing the sizes of pictures"))


def _check_size(row: Row) -> None:
    """Raises UserError for a picture of another size than its file of boxes says."""
    size = sources.opened(row["image"], 3).size
    if size != row["size"]:
        shown = [f"{width} x {height}" for width, height in (row["size"], size)]
        raise UserError(
            f"{row['image']} has {shown[1]} pixels, and its file of boxes says {shown[0]}; correct one of them"
        )


def classes_of(rows: Sequence[Row], saved: Sequence[str] | None) -> list[str]:
    """The names of classes: those of a saved run, or of all categories of COCO files in the order of their ids, or of
    the boxes. Raises UserError for a box of a class that a saved run does not have."""
    names: dict[str, None] = {}
    for row in rows:
        names |= dict.fromkeys(row.get("categories", {}).values())
    present = sorted({box.name for row in rows for box in row["boxes"]})
    if saved is None:
        return [*names] or present
    if strange := [name for name in present if name not in saved]:
        raise UserError(f"the boxes have the class {strange[0]}, and the run has {', '.join(saved[:8])}; leave it out")
    return [*saved]


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _picture(path: Path, name: object) -> Path:
    """The path of a picture that a COCO file names. Raises UserError where it is nowhere."""
    if not isinstance(name, str) or not name:
        raise UserError(f"{path}: an entry of images has file_name={name!r}; correct it")
    for folder in (path.parent, path.parent.parent):
        for inner in FOLDERS:
            if (folder / inner / name).is_file():
                return folder / inner / name
    raise UserError(f"{path} names {name}, which is neither beside it nor in a folder {', '.join(FOLDERS[1:])} there")


def scaled(boxes: Sequence[Box], width: float, height: float) -> np.ndarray:
    """Boxes in a picture of some size -> float64 [k,4]: the center's x and y, width and height in parts of it."""
    rows = [(box.x + box.width / 2, box.y + box.height / 2, box.width, box.height) for box in boxes]
    return np.array(rows, np.float64).reshape(-1, 4) / [width, height, width, height]


def changed(boxes: np.ndarray, size: tuple[int, int], augment: Augment, rng: np.random.Generator) -> np.ndarray:
    """Boxes [k,4] of `scaled` as they are in the picture that `augmented` makes of a picture of this width and height,
    with the same random numbers; one that a random part leaves out has no area."""
    low, high = boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2
    if augment.crop is not None:
        left, top, right, bottom = random_box(*size, augment.crop, rng)
        start, part = np.array([left, top]) / size, np.array([right - left, bottom - top]) / size
        low, high = (((side - start) / part).clip(0, 1) for side in (low, high))
    if augment.flip and rng.random() < 0.5:
        low[:, 0], high[:, 0] = 1 - high[:, 0], 1 - low[:, 0]
    return np.concatenate([(low + high) / 2, high - low], axis=1)

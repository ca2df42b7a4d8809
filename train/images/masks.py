"""Masks: pictures whose values are the classes of the pixels of another picture."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from PIL import Image

from train import UserError
from train.data.sources.files import Row
from train.files import cache
from train.images import drawings, sources
from train.images.checking import outcomes
from train.images.decoding import BrokenImageError, decode_values

# Names of a folder of pictures, and of that of their masks beside it.
PICTURES = ("images", "JPEGImages")
MASKS = ("masks", "annotations", "labels", "SegmentationClass")

# Folders in these that are for training, and for validation.
_TRAIN, _VALID = ("train", "training"), ("val", "valid", "validation")

# Raised with what counts as a good mask, so that verdicts are made anew.
_VERSION = "1"


class PictureMask(Protocol):
    """A mask that is not decoded yet; `str` of it says where it is."""

    def open(self) -> Image.Image:
        """Its values, as a grey picture."""

    def digest(self) -> str:
        """A hash of its content: equal masks have equal ones."""


class MaskFile(NamedTuple):
    """A mask in a file of its own."""

    path: str

    def __str__(self):
        return self.path

    def open(self) -> Image.Image:
        """Its values. Raises BrokenImageError for a file that holds no mask."""
        return decode_values(self.path)

    def digest(self) -> str:
        """A hash of the file."""
        return sources.PictureFile(self.path).digest()

    def stamp(self) -> str | None:
        """Its path, size and time."""
        return sources.PictureFile(self.path).stamp()


class DrawnMask(NamedTuple):
    """The mask of a built-in drawing."""

    drawing: drawings.Drawing

    def open(self) -> Image.Image:
        """Its values, places in `drawings.MASK_CLASSES`."""
        return Image.fromarray(drawings.mask(self.drawing))

    def digest(self) -> str:
        """A hash of what the drawing shows."""
        return self.drawing.digest()


def drawn() -> sources.Parts:
    """Built-in drawings and their masks: those to train on, and to validate on."""
    return sources.Parts(
        *([row | {"label": DrawnMask(row["image"])} for row in rows or []] for rows in drawings.builtin("label"))
    )


def folder_rows(folder: Path, log_line: Callable[[str], None]) -> sources.Parts:
    """The pictures of a folder `images` and the masks of the same names in a folder `masks` beside it.

    Folders in both that are called train and val are a training and a validation part. Raises UserError for a folder
    without the two, and for masks without a picture; says how many pictures have no mask.
    """
    pictures, masks = (_child(folder, names) for names in (PICTURES, MASKS))
    if pictures is None or masks is None:
        raise UserError(
            f"{folder} must have two folders, {PICTURES[0]} and {MASKS[0]}, with a mask FOLDER/{MASKS[0]}/a.png for "
            f"each picture FOLDER/{PICTURES[0]}/a.jpg; or name a table of both"
        )
    by_name = {_name(path, pictures): path for path in sources.pictures_below(pictures)}
    mask_paths = {_name(path, masks): path for path in sources.pictures_below(masks)}
    if alone := [path for name, path in mask_paths.items() if name not in by_name]:
        raise UserError(f"{alone[0]} is a mask without a picture in {pictures}; give both the same name")
    if not mask_paths:
        raise UserError(f"{masks} holds no mask; put a .png for each picture into it")
    if bare := len(by_name) - len(mask_paths):
        log_line(f"{bare:,} of {len(by_name):,} pictures of {folder} have no mask, and are left out")
    parts: dict[str, list[Row]] = {}
    for name, path in mask_paths.items():
        row = {"image": sources.PictureFile(str(by_name[name])), "label": str(path)}
        parts.setdefault(Path(name).parts[0], []).append(row)
    if {*parts} <= {*_TRAIN, *_VALID}:
        train, valid = ([row for name in names for row in parts.get(name, [])] for names in (_TRAIN, _VALID))
        if train and valid:
            return sources.Parts(train, valid)
    return sources.Parts([row for rows in parts.values() for row in rows])


def _child(folder: Path, names: Iterable[str]) -> Path | None:
    """The first folder of these names in a folder."""
    return next((folder / name for name in names if (folder / name).is_dir()), None)


def _name(path: Path, folder: Path) -> str:
    """The path of a file in a folder, without its ending."""
    return path.relative_to(folder).with_suffix("").as_posix()


def with_masks(rows: Sequence[Row]) -> list[Row]:
    """Rows whose labels are masks."""
    return [row if not isinstance(row["label"], str) else row | {"label": MaskFile(row["label"])} for row in rows]


def values(rows: Sequence[Row], log) -> list[list[int]]:
    """The values that occur in the mask of each row; those of files are cached. Raises UserError for a mask that is
    broken, has colours, or is of another size than its picture."""
    files = [row for row in rows if isinstance(row["label"], MaskFile)]
    if len(files) < len(rows):
        return [list(range(len(drawings.MASK_CLASSES)))] * len(rows)
    stamps = [f"{row['image'].stamp()} {row['label'].stamp()}" for row in rows]
    name = f"masks-{cache.digest([_VERSION], stamps)}"
    return cache.json_value(name, lambda: outcomes(_values, rows, log, "reading every mask once"))


def _values(row: Row) -> list[int]:
    """The values of the mask of a row."""
    try:
        mask = row["label"].open()
    except BrokenImageError as error:
        raise UserError(f"{row['label']}, the mask of {row['image']}, {error}") from error
    picture = row["image"].open(3)
    if mask.size != picture.size:
        sizes = [f"{width} x {height}" for width, height in (mask.size, picture.size)]
        raise UserError(
            f"{row['label']} has {sizes[0]} pixels, and its picture {row['image']} has {sizes[1]}; make them equal"
        )
    return np.unique(np.asarray(mask)).tolist()

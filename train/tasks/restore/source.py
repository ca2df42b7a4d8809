"""Pictures without labels."""

from pathlib import Path

from train import UserError
from train.images import sources
from train.images.decoding import ENDINGS


def all_pictures(folder: Path) -> sources.Parts:
    """All pictures of a folder and of those in it. Raises UserError where there are none."""
    rows = [{"image": sources.PictureFile(str(path)), "label": ""} for path in sources.pictures_below(folder)]
    if not rows:
        raise UserError(f"{folder} holds no picture ({', '.join(ENDINGS)}); name another folder")
    return sources.Parts(rows)

"""Bytes -> a picture in grey or in colours, upright, by Pillow; hostile files are refused before they fill memory."""

import contextlib
import io
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Protocol

import numpy as np
from PIL import Image, ImageOps

# The formats that are read, as Pillow calls them, and the endings of their files.
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "PPM")
ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".ppm", ".pgm")

# A picture of more pixels is refused: 8,192 x 8,192 fill 200 MB when they are decoded.
MAX_PIXELS = 1 << 26

# Pictures of more pixels are decoded one at a time, whatever the threads are.
_LARGE = 1 << 23
_large_lock = threading.RLock()

# What Pillow calls grey and colours, by the count of channels.
MODES = {1: "L", 3: "RGB"}

warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # MAX_PIXELS is below Pillow's own limit


class BrokenImageError(ValueError):
    """A file that holds no picture, or none that may be decoded; the text says why."""


def alone(pixels: int) -> contextlib.AbstractContextManager[object]:
    """A context in which a picture of so many pixels is decoded: large ones one at a time."""
    return _large_lock if pixels > _LARGE else contextlib.nullcontext()


def decode(source: str | Path | bytes, channels: int = 3) -> Image.Image:
    """A file, or its bytes -> a picture of `channels` 1 (grey) or 3 (RGB), turned as its EXIF orientation says.

    What is transparent becomes white. Of several frames the first is taken. 16-bit grey becomes 8-bit by a division by
    257, which a UserWarning says: transformers cuts it at 255. Raises BrokenImageError for a file that is missing,
    empty, damaged, of another format or of more than MAX_PIXELS.
    """
    return decoded(source, lambda image: converted(ImageOps.exif_transpose(image), MODES[channels]))


def decode_values(source: str | Path) -> Image.Image:
    """A grey picture, or one with a palette -> its values, or places in the palette, as a grey picture, upright. Raises
    BrokenImageError as `decode` does, and for colours and 16 bits."""
    return decoded(source, lambda image: _values(ImageOps.exif_transpose(image)))


def decode_alpha(source: str | Path) -> Image.Image:
    """A file -> how opaque each pixel is, 255 where fully, as a grey picture, upright. Raises BrokenImageError as
    `decode` does."""
    return decoded(source, lambda image: ImageOps.exif_transpose(image).convert("RGBA").getchannel("A"))


def decoded(source: str | Path | bytes, convert: Callable[[Image.Image], Image.Image]) -> Image.Image:
    """What `convert` makes of an open picture. Raises BrokenImageError as `decode` does."""
    try:
        with _opened(source) as file, Image.open(file, formats=FORMATS) as image:
            width, height = image.size
            if width * height > MAX_PIXELS:
                raise BrokenImageError(f"has {width:,} x {height:,} pixels, and {MAX_PIXELS:,} are the limit")
            with alone(width * height):
                return convert(image)
    except BrokenImageError:
        raise
    except FileNotFoundError as error:
        raise BrokenImageError("does not exist") from error
    except Image.DecompressionBombError as error:
        raise BrokenImageError(f"has more than {MAX_PIXELS:,} pixels, which are the limit") from error
    except Image.UnidentifiedImageError as error:
        raise BrokenImageError(f"is no picture of the formats {', '.join(FORMATS)}") from error
    except Exception as error:  # decoders of damaged files raise errors of all types
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise BrokenImageError(f"cannot be decoded ({reason})") from error


@contextlib.contextmanager
def _opened(source: str | Path | bytes) -> Iterator[IO[bytes]]:
    """The bytes as a file that is open. Raises BrokenImageError where there are none."""
    with io.BytesIO(source) if isinstance(source, bytes) else Path(source).open("rb") as file:
        if not file.read(1):
            raise BrokenImageError("is empty: it has zero bytes")
        file.seek(0)
        yield file


def _values(image: Image.Image) -> Image.Image:
    """The values of a picture of one channel. Raises BrokenImageError for another one."""
    if image.mode not in ("1", "L", "P"):
        raise BrokenImageError(
            f"is of the mode {image.mode}; write a value from 0 to 255 a pixel, grey or in a palette"
        )
    return Image.fromarray(np.asarray(image).astype(np.uint8))


def converted(image: Image.Image, mode: str) -> Image.Image:
    """A picture of any mode in the mode "L" or "RGB"."""
    if image.mode.startswith("I"):  # 16 bits
        warnings.warn(
            "pictures of 16 bits: greys are divided by 257; transformers makes all above 255 white", stacklevel=2
        )
        image = Image.fromarray((np.asarray(image).clip(0, 65535) // 257).astype(np.uint8))
    if image.mode == "RGB" and "transparency" in image.info:
        warnings.warn(
            "pictures with a colour that stands for nothing: it becomes white; transformers keeps it where "
            "do_convert_rgb is not true",
            stacklevel=2,
        )
    if image.mode == "P" and "transparency" not in image.info:
        image = image.convert("RGB")
    if image.mode in ("P", "PA", "LA", "La", "RGBA", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        background = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(background, image)
    return image if image.mode == mode else image.convert(mode)


def array_image(pixels: np.ndarray, channels: int) -> Image.Image:
    """uint8 [H,W] or [H,W,C] with C of 1, 3 or 4 -> a picture of `channels` 1 or 3."""
    pixels = pixels[:, :, 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    return converted(Image.fromarray(np.ascontiguousarray(pixels)), MODES[channels])


def to_array(image: Image.Image) -> np.ndarray:
    """A picture -> uint8 [H,W,C]."""
    pixels = np.asarray(image)
    return pixels[:, :, None] if pixels.ndim == 2 else pixels


class Picture(Protocol):
    """A picture that is not decoded yet; `str` of it says where it is."""

    def open(self, channels: int) -> Image.Image:
        """The picture, of 1 or 3 channels."""

    def digest(self) -> str:
        """A hash of its content: equal pictures have equal ones."""

    def stamp(self) -> str | None:
        """What changes if a file does; None of a picture in memory."""

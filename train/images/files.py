"""Pictures in arrays: the IDX files of MNIST, also gzipped, and .npz files of numpy."""

import gzip
import math
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from train import UserError
from train.devices import cpu

if TYPE_CHECKING:
    from _typeshed import SupportsRead


# Arrays of pictures stay in memory: they may have this share of it.
MAX_SHARE = 0.25


class Labelled(NamedTuple):
    """Pictures uint8 [N,H,W] or [N,H,W,C], and the label of each, [N]."""

    images: np.ndarray
    labels: np.ndarray


def is_idx(path: Path) -> bool:
    """Whether the name of a file is that of IDX pictures, such as train-images-idx3-ubyte.gz."""
    return bool(re.search(r"images?[-.]idx3-ubyte(\.gz)?$", path.name))


def read_idx(path: Path) -> Labelled:
    """The pictures of an IDX file, and the labels of the file beside it (LeCun et al. 1998)."""
    name = re.sub(r"images?([-.])idx3", r"labels\1idx1", path.name)
    labels = next(
        (path.with_name(ending) for ending in _with_and_without_gz(name) if path.with_name(ending).exists()), None
    )
    if labels is None:
        raise UserError(f"{path} has no labels beside it; put {name} into the same folder")
    return _checked(_read_idx(path, 3), _read_idx(labels, 1), str(path), str(labels))


def _with_and_without_gz(name: str) -> tuple[str, str]:
    return name, name.removesuffix(".gz") if name.endswith(".gz") else f"{name}.gz"


def _read_idx(path: Path, axes: int) -> np.ndarray:
    """The array of bytes in an IDX file with this count of axes. Raises UserError for another or a damaged file."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            header = file.read(4 + 4 * axes)
            if len(header) < 4 + 4 * axes or header[:4] != bytes([0, 0, 8, axes]):
                raise UserError(f"{path} is no IDX file of bytes with {axes} axes; give the file as it was published")
            shape = np.frombuffer(header, ">u4", axes, 4).astype(np.int64).tolist()
            size = int(np.prod(shape, dtype=object))
            check_size(str(path), size, _limit())
            content = b"".join(_pieces(file, size + 1))
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path} is not a whole .gz file ({error}); download it again") from error
    if len(content) != size:
        raise UserError(f"{path} has not the {size:,} bytes that its header names; download it again")
    return np.frombuffer(content, np.uint8).reshape(shape)


def _pieces(file: "SupportsRead[bytes]", size: int) -> Iterator[bytes]:
    """At most `size` bytes of a file; a file that is shorter takes no more memory than it has bytes."""
    while size and (piece := file.read(min(size, 1 << 20))):
        size -= len(piece)
        yield piece


def _limit() -> int:
    return int(MAX_SHARE * cpu.memory_bytes())


def check_size(where: str, size: int, limit: int):
    """Raises UserError for arrays of more bytes than memory has room for."""
    if size > limit:
        raise UserError(
            f"{where} holds {size / 1e9:.1f} GB of pictures, and a quarter of the memory here is {limit / 1e9:.1f} GB; "
            "write them as files, which are read one by one"
        )


# Names of pictures and labels in .npz files, of training and of validation.
_NAMES = {
    "train": (("x_train", "y_train"), ("train_images", "train_labels"), ("images", "labels"), ("x", "y")),
    "valid": (("x_test", "y_test"), ("val_images", "val_labels"), ("test_images", "test_labels")),
}


def read_npz(path: Path) -> tuple[Labelled, Labelled | None]:
    """Pictures and labels of an .npz, and those for validation where it has any. Raises UserError for other files."""
    try:
        with zipfile.ZipFile(path) as archive:
            check_size(str(path), sum(map(_array_bytes(archive), archive.infolist())), _limit())
        with np.load(path, allow_pickle=False) as arrays:
            parts = {part: _part(arrays, path, names) for part, names in _NAMES.items()}
            names = ", ".join(arrays.files)
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist; give the path of a file") from error
    except UserError:
        raise
    except Exception as error:  # zipfile, its decompressors and numpy raise errors of all types
        raise UserError(f"{path} is not a whole .npz file of arrays ({error}); save it again") from error
    if parts["train"] is None:
        pairs = " or ".join("/".join(pair) for pair in _NAMES["train"])
        raise UserError(f"{path} holds {names or 'nothing'}; name its arrays {pairs}")
    return parts["train"], parts["valid"]


def _array_bytes(archive: zipfile.ZipFile) -> Callable[[zipfile.ZipInfo], int]:
    """The bytes of an entry of an .npz: those that it has, or those that its header asks numpy to allocate."""
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}

    def count(entry: zipfile.ZipInfo) -> int:
        with archive.open(entry) as file:
            if not entry.filename.endswith(".npy") or (read := readers.get(np.lib.format.read_magic(file))) is None:
                return entry.file_size
            shape, _, dtype = read(file)
        return max(entry.file_size, math.prod(shape) * dtype.itemsize)

    return count


def _part(arrays: Mapping[str, np.ndarray], path: Path, names: tuple[tuple[str, str], ...]) -> Labelled | None:
    """The first pair of arrays of these names; None where there is none."""
    for images, labels in names:
        if images in arrays and labels in arrays:
            return _checked(arrays[images], arrays[labels], f"{path}, {images}", f"{path}, {labels}")
    return None


def _checked(images: np.ndarray, labels: np.ndarray, where: str, where_labels: str) -> Labelled:
    """Both arrays. Raises UserError for other types and shapes, and for different counts."""
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[3] not in (1, 3, 4)):
        raise UserError(
            f"{where} is {images.dtype} {list(images.shape)}; pictures are uint8 [N,H,W] or [N,H,W,C], from 0 to 255"
        )
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.shape != images.shape[:1]:
        raise UserError(
            f"{where_labels} is {list(labels.shape)}, for {len(images):,} pictures; there must be a label for each"
        )
    return Labelled(images, labels)

"""Videos in files and in folders of frames. Evenly spaced frames are decoded when a batch needs them, and stand below
one another as a single picture, which the processor takes apart."""

import contextlib
import glob
import hashlib
import importlib.util
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from train import UserError
from train.images import decoding
from train.images.decoding import MAX_PIXELS, MODES, BrokenImageError
from train.images.pictures import PictureFile
from train.images.rows import ImageRows
from train.images.sources import Parts, PictureReader
from train.metrics import scores

# The endings of files of videos; all but the first need PyAV.
ENDINGS = (".gif", ".mp4", ".webm", ".mov", ".mkv", ".avi")
_FRAME_ENDINGS = tuple(ending for ending in decoding.ENDINGS if ending not in ENDINGS)

# Videos whose frames the baselines read, numbers of these that they keep, and videos that are read at a time.
_VIDEOS, _KEPT, _AT_A_TIME = 2000, 1 << 25, 16


class Video(NamedTuple):
    """A file of a video, or a folder of its frames, of which so many are read."""

    path: str
    frames: int

    def __str__(self):
        return self.path

    def open(self, channels: int) -> Image.Image:
        """The frames, from above to below. Raises BrokenImageError for a video of one frame or none, and of a file that
        cannot be decoded."""
        path = Path(self.path)
        if path.is_dir():
            return _of_folder(path, self.frames, channels)
        if path.suffix.lower() == ".gif":
            return decoding.decoded(path, lambda image: _of_animation(image, self.frames, channels))
        return _of_stream(path, self.frames, channels)

    def digest(self) -> str:
        """A hash of its content."""
        content = hashlib.sha256()
        for file in self._files:
            content.update(file.digest().encode())
        return content.hexdigest()[:32]

    def stamp(self) -> str | None:
        """The paths, sizes and times of its files, and how many frames are read."""
        stamps = "\n".join(str(file.stamp()) for file in self._files)
        return f"{self.path} {self.frames} {hashlib.sha256(stamps.encode()).hexdigest()}"

    @property
    def _files(self) -> list[PictureFile]:
        path = Path(self.path)
        return [PictureFile(str(file)) for file in (_frame_files(path) if path.is_dir() else [path])]


def reader(image: str, label: str, check_label: Callable[[object], None], frames: int) -> PictureReader:
    """What reads videos, of which so many frames are taken."""

    def file(path: str) -> Video:
        return Video(path, frames)

    def folder(path: Path) -> Parts:
        return Parts([{"image": file(str(video)), "label": name} for video, name in _in_classes(path)])

    return PictureReader(image, label, check_label, folder=folder, file=file, endings=ENDINGS)


def named_videos(pattern: str, frames: int) -> list[Video]:
    """The videos of a path, a glob or a folder, in order. Raises UserError where there are none."""
    paths = [Path(name) for name in sorted(glob.glob(pattern, recursive=True))]
    videos = [video for path in paths for video in ([path] if _is_video(path) else _below(path))]
    if not videos:
        raise UserError(
            f"no video ({', '.join(ENDINGS)}, or a folder of frames) matches {pattern!r}; give the path of one, or a "
            "quoted glob such as '*.mp4'"
        )
    return [Video(str(path), frames) for path in videos]


def places(count: int, frames: int) -> list[int]:
    """The frames that are read of `count`: those in the middle of as many equal parts. Fewer are read several times."""
    return [(2 * place + 1) * count // (2 * frames) for place in range(frames)]


def baselines(train: ImageRows, valid: ImageRows) -> dict[str, float]:
    """Accuracy of the class whose mean over training videos is the nearest, of the first frame, `first_frame`, and of
    the mean over all frames, which has no order, `mean_frame`."""
    shown, seen = _seen(valid), _seen(train)
    return {name: scores.nearest_mean(seen[name], train.labels, shown[name], valid.labels) for name in shown}


def _seen(rows: ImageRows) -> dict[str, np.ndarray]:
    """The first frame and the mean over the frames of the first videos, float32 [N,H*W*C]."""
    height, width = rows.processor.shape
    count = min(len(rows), _VIDEOS, max(1, _KEPT // (height * width * rows.processor.channels)))
    parts = [rows.pixels(np.arange(first, min(first + _AT_A_TIME, count))) for first in range(0, count, _AT_A_TIME)]
    by_name = {
        "first_frame": [part[:, 0].astype(np.float32) for part in parts],
        "mean_frame": [part.mean(1, dtype=np.float32) for part in parts],
    }
    return {name: np.concatenate(frames).reshape(count, -1) for name, frames in by_name.items()}


def _in_classes(folder: Path) -> Iterator[tuple[Path, str]]:
    """The videos of a folder with a folder for each class. Raises UserError for another one."""
    count = 0
    for directory in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        if _is_video(directory):
            raise UserError(
                f"{directory} holds no video ({', '.join(ENDINGS)}) and no folder of frames; put the frames of each "
                "video into a folder of its own"
            )
        for video in _below(directory):
            count += 1
            yield video, directory.name
    if not count:
        raise UserError(f"{folder} has no folder with videos; it must have a folder for each class")


def _below(directory: Path) -> list[Path]:
    """The videos in a folder and in those in it, in order."""
    return [path for path in sorted(directory.rglob("*")) if _is_video(path)]


def _is_video(path: Path) -> bool:
    """Whether a path is that of a file of a video, or of a folder without other folders and videos: one of frames."""
    if not path.is_dir():
        return path.suffix.lower() in ENDINGS
    return not any(inner.is_dir() or inner.suffix.lower() in ENDINGS for inner in path.iterdir())


def _frame_files(folder: Path) -> list[Path]:
    """The pictures of a folder; numbers in their names count as numbers."""

    def key(path: Path) -> list[tuple[int, str]]:
        return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", path.name)]

    return sorted((path for path in folder.iterdir() if path.suffix.lower() in _FRAME_ENDINGS), key=key)


def _of_folder(folder: Path, frames: int, channels: int) -> Image.Image:
    files = _frame_files(folder)
    _check_count(len(files))
    return _below_another((decoding.decode(files[place], channels) for place in places(len(files), frames)), frames)


def _of_animation(image: Image.Image, frames: int, channels: int) -> Image.Image:
    """An open .gif -> its frames."""
    count = getattr(image, "n_frames", 1)
    _check_count(count)

    def read() -> Iterator[Image.Image]:
        for place in places(count, frames):
            image.seek(place)
            yield decoding.converted(image.copy(), MODES[channels])

    return _below_another(read(), frames)


def _of_stream(path: Path, frames: int, channels: int) -> Image.Image:
    """A file that PyAV decodes -> its frames. Raises UserError where PyAV lacks."""
    if not importlib.util.find_spec("av"):
        raise UserError(f"{path} needs PyAV; install tfm[video], or make it a .gif or a folder of frames")
    import av

    def packets() -> Iterator[av.Packet]:
        with av.open(str(path)) as container:
            yield from (packet for packet in container.demux(video=0) if packet.size)

    def read(chosen: Sequence[int]) -> Iterator[Image.Image]:
        with av.open(str(path)) as container:
            for place, frame in enumerate(container.decode(video=0)):
                if place > chosen[-1]:
                    break
                if place in chosen:
                    image = decoding.converted(frame.to_image().rotate(frame.rotation, expand=True), MODES[channels])
                    yield from [image] * chosen.count(place)

    try:
        count = sum(1 for _ in packets())
        _check_count(count)
        return _below_another(read(places(count, frames)), frames)
    except (av.FFmpegError, IndexError) as error:
        raise BrokenImageError(f"cannot be decoded ({' '.join(str(error).split())[:200]})") from error


def _check_count(count: int) -> None:
    """Raises BrokenImageError for a video that has no motion."""
    if count < 2:
        raise BrokenImageError("has one frame, and a video has two or more" if count else "has no frame")


def _below_another(images: Iterable[Image.Image], frames: int) -> Image.Image:
    """Frames of one size as one picture. Raises BrokenImageError for frames of several sizes, for fewer than `frames`,
    and for more pixels than fit the limit of a picture."""
    film: Image.Image | None = None
    with contextlib.ExitStack() as stack:
        count = 0
        for place, image in enumerate(images):
            if film is None:
                pixels = image.width * image.height * frames
                if pixels > MAX_PIXELS:
                    raise BrokenImageError(
                        f"has {frames} frames of {image.width:,} x {image.height:,} pixels, and {MAX_PIXELS:,} are the "
                        "limit of all"
                    )
                stack.enter_context(decoding.alone(pixels))
                film = Image.new(image.mode, (image.width, image.height * frames))
            if (image.width, image.height * frames) != film.size:
                sizes = f"{film.width} x {film.height // frames} pixels and of {image.width} x {image.height}"
                raise BrokenImageError(f"has frames of {sizes}")
            film.paste(image, (0, place * image.height))
            count += 1
        if film is None or count < frames:
            raise BrokenImageError(f"ends behind {count} of the {frames} frames that are read")
        return film

"""Videos: the frames that are read, files, folders of frames, and what is no video."""

import sys
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

from train import UserError
from train.images import drawings, moving, videos
from train.images.decoding import BrokenImageError
from train.images.processor import ImageProcessor
from train.images.videos import Video

FRAMES = np.repeat(np.repeat(moving.generate(1, 3, 8)[0].video(), 2, 1), 2, 2)  # uint8 [8,64,64,3]


def write_gif(path, frames=FRAMES):
    first, *rest = [Image.fromarray(frame) for frame in frames]
    first.save(path, save_all=True, append_images=rest, duration=100)


def write_folder(path, frames=FRAMES, first=5):
    """Frames whose numbers have one digit, and then two."""
    path.mkdir(parents=True)
    for index, frame in enumerate(frames):
        Image.fromarray(frame).save(path / f"frame{first + index}.png")


def read(path, frames):
    return np.asarray(Video(str(path), frames).open(3)).reshape(frames, 64, 64, 3)


@pytest.mark.parametrize(
    ("count", "frames", "expected"),
    [(8, 8, list(range(8))), (8, 4, [1, 3, 5, 7]), (300, 3, [50, 150, 250]), (3, 6, [0, 0, 1, 1, 2, 2]), (9, 1, [4])],
)
def test_frames_are_in_the_middle_of_equal_parts(count, frames, expected):
    assert videos.places(count, frames) == expected


@pytest.mark.parametrize("frames", [8, 3, 16])
def test_a_gif_and_a_folder_have_the_same_frames(frames, tmp_path):
    write_gif(tmp_path / "a.gif")
    write_folder(tmp_path / "a")
    expected = FRAMES[videos.places(8, frames)]
    np.testing.assert_array_equal(read(tmp_path / "a", frames), expected)
    np.testing.assert_array_equal(read(tmp_path / "a.gif", frames), expected)


def test_streams_by_pyav(tmp_path):
    av = pytest.importorskip("av")
    with av.open(str(tmp_path / "a.mp4"), "w") as container:
        stream = container.add_stream("mpeg4", rate=4)
        stream.width = stream.height = 64
        for frame in FRAMES:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    for frames in (8, 3, 16):
        difference = read(tmp_path / "a.mp4", frames).astype(int) - FRAMES[videos.places(8, frames)]
        assert np.abs(difference).mean() < 6
    (tmp_path / "cut.mp4").write_bytes((tmp_path / "a.mp4").read_bytes()[:500])
    with pytest.raises(BrokenImageError, match="cannot be decoded"):
        Video(str(tmp_path / "cut.mp4"), 8).open(3)


def test_pyav_lacks(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (tmp_path / "a.mp4").write_bytes(b"?")
    with pytest.raises(UserError, match=r"a\.mp4 needs PyAV; install tfm\[video\], or make it a \.gif or a folder of"):
        Video(str(tmp_path / "a.mp4"), 8).open(3)


def test_a_digest_is_of_the_content_and_a_stamp_of_files_and_frames(tmp_path):
    write_folder(tmp_path / "a")
    write_folder(tmp_path / "b")
    write_folder(tmp_path / "c", FRAMES[::-1])
    digests = [Video(str(tmp_path / name), 8).digest() for name in "abc"]
    assert digests[0] == digests[1] != digests[2]
    stamp = Video(str(tmp_path / "a"), 8).stamp()
    assert stamp == Video(str(tmp_path / "a"), 8).stamp() != Video(str(tmp_path / "a"), 4).stamp()
    (tmp_path / "a" / "frame5.png").write_bytes(b"")
    assert Video(str(tmp_path / "a"), 8).stamp() != stamp


def test_videos_that_are_none(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    write_folder(tmp_path / "one", FRAMES[:1])
    write_gif(tmp_path / "one.gif", FRAMES[:1])
    write_folder(tmp_path / "sizes")
    Image.fromarray(FRAMES[0, :32]).save(tmp_path / "sizes" / "frame7.png")
    (tmp_path / "text.gif").write_text("hello")
    sentences = {
        "empty": "has no frame",
        "one": "has one frame, and a video has two or more",
        "one.gif": "has one frame, and a video has two or more",
        "sizes": "has frames of 64 x 64 pixels and of 64 x 32",
        "text.gif": "is no picture of the formats",
        "absent.gif": "does not exist",
    }
    for name, sentence in sentences.items():
        with pytest.raises(BrokenImageError, match=sentence):
            Video(str(tmp_path / name), 8).open(3)
    write_gif(tmp_path / "a.gif")
    monkeypatch.setattr(videos, "MAX_PIXELS", 8 * 64 * 64 - 1)
    with pytest.raises(BrokenImageError, match="has 8 frames of 64 x 64 pixels, and 32,767 are the limit of all"):
        Video(str(tmp_path / "a.gif"), 8).open(3)


def test_a_processor_takes_the_frames_apart(tmp_path):
    write_gif(tmp_path / "a.gif")
    processor, still = ImageProcessor((16, 24), frames=4), ImageProcessor((16, 24))
    assert processor.array_shape == (4, 16, 24, 3)
    assert processor.empty(2).shape == (2, 4, 16, 24, 3)
    actual = processor.prepare(Video(str(tmp_path / "a.gif"), 4).open(3))
    expected = [still.prepare(Image.fromarray(frame)) for frame in FRAMES[videos.places(8, 4)]]
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(processor.restore(processor.normalize(actual)), actual)


def test_the_frames_of_all_classes_are_the_same_ones():
    """In another order, whose first two steps a class names; so a single frame says nothing, and neither do all of them
    without their order."""
    video, classes = moving.generate(1, 0, 8)[0], {}
    for corner in range(4):
        for clockwise in (False, True):
            moving_so = video._replace(corner=corner, clockwise=clockwise)
            classes[moving_so.label] = moving_so.video()
    assert len(classes) == 8
    multisets = {tuple(sorted(frame.tobytes() for frame in frames)) for frames in classes.values()}
    assert len(multisets) == 1
    assert len(set(next(iter(multisets)))) == 8
    steps = {"right": (0, 1), "down": (1, 0), "left": (0, -1), "up": (-1, 0)}
    for label, frames in classes.items():
        first, second = (np.array(steps[name]) * drawings.GRID for name in label.split(" then "))
        moves = [first, first, second, second]
        for (before, after), move in zip(pairwise(frames[:5]), moves, strict=True):
            np.testing.assert_array_equal(np.roll(before, move, (0, 1)), after)


def test_builtin_videos_have_no_other_label():
    with pytest.raises(UserError, match="--data.label=caption is no label of the built-in videos; leave it out"):
        moving.builtin("caption", 8)

"""Pictures of every mode become grey or colours; hostile files are refused in one sentence, in little memory."""

import io
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from PIL import Image

from train.images.decoding import BrokenImageError, array_image, decode, to_array

COLOURS = np.random.default_rng(0).integers(0, 256, (6, 4, 3), np.uint8)


def encoded(image, kind="PNG", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def luma(colours):
    """ITU-R 601-2, as Pillow rounds it."""
    return (colours.astype(np.int64) @ [19595, 38470, 7471] + 0x8000) >> 16


def png(width, height, rows=b""):
    """A PNG of these sides, whatever its content is."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def test_colours_and_grey():
    content = encoded(Image.fromarray(COLOURS))
    np.testing.assert_array_equal(to_array(decode(content)), COLOURS)
    np.testing.assert_array_equal(to_array(decode(content, 1))[:, :, 0], luma(COLOURS))
    grey = encoded(Image.fromarray(COLOURS[:, :, 0]))
    np.testing.assert_array_equal(to_array(decode(grey)), np.repeat(COLOURS[:, :, :1], 3, 2))


def test_what_is_transparent_becomes_white():
    alpha = np.full((6, 4, 1), 255, np.uint8)
    alpha[0] = 0
    expected = COLOURS.copy()
    expected[0] = 255
    content = encoded(Image.fromarray(np.concatenate([COLOURS, alpha], 2)))
    np.testing.assert_array_equal(to_array(decode(content)), expected)
    grey = encoded(Image.merge("LA", [Image.fromarray(COLOURS[:, :, 0]), Image.fromarray(alpha[:, :, 0])]))
    np.testing.assert_array_equal(to_array(decode(grey, 1)), expected[:, :, :1])


def test_a_palette_with_transparency():
    image = Image.fromarray(np.array([[0, 1, 2]], np.uint8))
    image.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    np.testing.assert_array_equal(to_array(decode(encoded(image)))[0], [[255, 0, 0], [0, 255, 0], [0, 0, 255]])
    transparent = encoded(image, transparency=1)
    np.testing.assert_array_equal(to_array(decode(transparent))[0], [[255, 0, 0], [255, 255, 255], [0, 0, 255]])
    gif = encoded(image, "GIF", transparency=2)
    np.testing.assert_array_equal(to_array(decode(gif))[0], [[255, 0, 0], [0, 255, 0], [255, 255, 255]])


def test_a_colour_that_is_transparent():
    """Of a file without alpha; the processors of transformers differ in it, which is said."""
    colour = tuple(map(int, COLOURS[0, 0]))
    with pytest.warns(UserWarning, match="a colour that stands for nothing: it becomes white"):
        decoded = to_array(decode(encoded(Image.fromarray(COLOURS), transparency=colour)))
    expected = np.where((COLOURS[0, 0] == COLOURS).all(2, keepdims=True), 255, COLOURS)
    np.testing.assert_array_equal(decoded, expected)


def test_cmyk():
    content = encoded(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG", quality=95)
    assert np.abs(to_array(decode(content)).astype(int) - [255, 0, 0]).max() < 8


def test_16_bits():
    wide = np.array([[0, 257 * 100, 65535]], np.uint16)
    with pytest.warns(UserWarning, match="pictures of 16 bits: greys are divided by 257"):
        decoded = decode(encoded(Image.fromarray(wide)), 1)
    np.testing.assert_array_equal(to_array(decoded)[0, :, 0], [0, 100, 255])


def test_the_orientation_of_a_camera():
    exif = Image.Exif()
    exif[0x0112] = 6  # turned to the left: the first row is the right side
    content = encoded(Image.fromarray(COLOURS), exif=exif)
    np.testing.assert_array_equal(to_array(decode(content)), np.rot90(COLOURS, -1))


def test_arrays():
    np.testing.assert_array_equal(to_array(array_image(COLOURS, 3)), COLOURS)
    np.testing.assert_array_equal(to_array(array_image(COLOURS[:, :, :1], 1)), COLOURS[:, :, :1])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty: it has zero bytes"),
        (b"a text", "is no picture of the formats PNG, JPEG"),
        (encoded(Image.fromarray(COLOURS))[:-40], "cannot be decoded ("),
        (png(4, 6, b"\0"), "cannot be decoded ("),
        (png(20_000, 4_000), "has 20,000 x 4,000 pixels, and 67,108,864 are the limit"),
    ],
)
def test_broken_pictures(content, sentence):
    with pytest.raises(BrokenImageError) as caught:
        decode(content)
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


def test_a_huge_picture_is_refused_before_it_is_decoded():
    content = png(100_000, 100_000)
    tracemalloc.start()
    with pytest.raises(BrokenImageError, match="67,108,864"):
        decode(content)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_a_file_that_is_absent(tmp_path):
    with pytest.raises(BrokenImageError, match="does not exist"):
        decode(tmp_path / "absent.png")

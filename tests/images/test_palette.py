"""Palettes against loops, and files as transformers has them."""

import json

import numpy as np
import pytest
from PIL import Image

from train.images import palette
from train.images.processor import ImageProcessor

RNG = np.random.default_rng(0)
PICTURES = [RNG.integers(0, 256, (6, 6, 3), np.uint8) for _ in range(4)]


def processor(colours=5):
    return palette.palette_processor(4, palette.fit(PICTURES, colours, False, np.random.default_rng(0)), "bilinear")


def test_tokens_are_the_nearest_colours():
    makes = processor()
    pixels = RNG.integers(0, 256, (2, 4, 4, 3), np.uint8)
    tokens = makes.normalize(pixels)
    assert (tokens.shape, tokens.dtype, makes.start) == ((2, 16), np.int32, 5)
    colours = np.array(makes.clusters)
    for row in range(2):
        for place in range(16):
            pixel = pixels[row, place // 4, place % 4] / 127.5 - 1
            distances = [((pixel - colour) ** 2).sum() for colour in colours]
            assert tokens[row, place] == np.argmin(distances)
    restored = makes.restore(tokens)
    assert restored.shape == (2, 4, 4, 3)
    np.testing.assert_array_equal(makes.normalize(restored), tokens)


def test_clusters_are_means_of_what_is_nearest():
    """As a loop over clusters says, once they no longer change: two of the points are far from the others."""
    points = np.array([[0.0], [1.0], [10.0], [11.0], [12.0], [50.0]])
    weights = np.array([1, 3, 1, 1, 1, 2])
    centres = np.sort(palette.k_means(points, weights, 3, np.random.default_rng(1)), 0)
    np.testing.assert_allclose(centres, [[0.75], [11.0], [50.0]])


def test_few_colours_are_kept_as_they_are():
    picture = np.array([[[0, 0, 0], [255, 255, 255]], [[9, 8, 7], [0, 0, 0]]], np.uint8)
    colours = palette.fit([picture], 16, False, np.random.default_rng(0))
    assert colours.tolist() == [[0, 0, 0], [9, 8, 7], [255, 255, 255]]
    greys = palette.fit([picture], 2, True, np.random.default_rng(0))
    assert greys.shape == (2, 3)
    assert (greys == greys[:, :1]).all()


def test_files_keep_the_palette(tmp_path):
    path = tmp_path / "preprocessor_config.json"
    path.write_text(palette.to_text(processor()))
    assert palette.read(path) == processor()
    assert json.loads(path.read_text())["image_processor_type"] == "ImageGPTImageProcessor"
    plain = ImageProcessor((4, 4))
    path.write_text(palette.to_text(plain))
    assert palette.read(path) == plain


@pytest.mark.parametrize(
    ("clusters", "sentence"),
    [
        ([[0, 0, 0]], "clusters has 1 colours; there must be 2 or more"),
        ([[0, 0], [1, 1]], "of 3 numbers each"),
        ("red", "clusters='red' must be a list of lists"),
    ],
)
def test_damaged_palettes_are_refused(clusters, sentence, tmp_path):
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(palette.to_text(processor())) | {"clusters": clusters}))
    with pytest.raises(ValueError, match=sentence):
        palette.read(path)


@pytest.mark.parity
def test_transformers_makes_the_same_tokens(tmp_path):
    import transformers

    (tmp_path / "preprocessor_config.json").write_text(palette.to_text(processor()))
    makes = transformers.ImageGPTImageProcessorPil.from_pretrained(tmp_path)
    image = Image.fromarray(PICTURES[0])
    expected = np.asarray(makes(image, return_tensors="np")["input_ids"]).ravel()
    np.testing.assert_array_equal(processor().normalize(processor().prepare(image)), expected)

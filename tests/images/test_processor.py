"""The image processor: pixels as a loop computes them, and files as transformers writes and reads them."""

import json

import numpy as np
import pytest
from PIL import Image

from train.images.decoding import decode
from train.images.processor import ImageProcessor, processor_text
from train.images.processor_file import read_processor

PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8))

PROCESSORS = {
    "vit": ImageProcessor((8, 8)),
    "deit": ImageProcessor((12, 12), (8, 8), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), resample="bicubic"),
    "clip": ImageProcessor(10, (8, 8), resample="bicubic"),
    "grey": ImageProcessor((8, 6), None, (0.1,), (0.3,), resample="nearest"),
    "crop": ImageProcessor(None, (8, 8)),
}


def test_normalized_pixels_are_those_of_a_loop():
    processor = PROCESSORS["deit"]
    pixels = processor.prepare(PICTURE)
    assert pixels.shape == (8, 8, 3)
    normalized = processor.normalize(pixels)
    assert normalized.dtype == np.float32
    for row, column, channel in np.ndindex(pixels.shape):
        value = (pixels[row, column, channel] / 255 - processor.mean[channel]) / processor.std[channel]
        assert normalized[row, column, channel] == pytest.approx(value, abs=1e-5)
    np.testing.assert_array_equal(processor.restore(normalized), pixels)


def test_pictures_of_another_size():
    """What they are cropped from grows as they do; a processor for its own shape is itself."""
    shapes = {"vit": (16, 24), "deit": (16, 24), "clip": (16, 24), "crop": (16, 24), "grey": (16, 24)}
    resized = {name: PROCESSORS[name].of_shape(*shape) for name, shape in shapes.items()}
    assert {processor.shape for processor in resized.values()} == {(16, 24)}
    sizes = {name: (processor.size, processor.crop) for name, processor in resized.items()}
    assert sizes["vit"] == ((16, 24), None)
    assert sizes["deit"] == ((24, 36), (16, 24)), "two thirds of each side, as before"
    assert sizes["clip"] == (30, (16, 24)), "10 for 8 pixels: 30 for 24"
    assert sizes["crop"] == (None, (16, 24))
    assert (resized["deit"].mean, resized["deit"].resample) == (PROCESSORS["deit"].mean, "bicubic")
    assert all(processor.of_shape(*processor.shape) == processor for processor in PROCESSORS.values())
    with pytest.raises(ValueError, match=r"sides must be from 1 to 8,192 pixels"):
        PROCESSORS["vit"].of_shape(9000, 9000)


def test_the_centre_and_the_shorter_edge():
    pixels = np.asarray(PICTURE)
    np.testing.assert_array_equal(PROCESSORS["crop"].prepare(PICTURE), pixels[6:14, 11:19])
    halved = np.asarray(PICTURE.resize((15, 10), Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(PROCESSORS["clip"].prepare(PICTURE), halved[1:9, 3:11])


@pytest.mark.parametrize("name", PROCESSORS)
def test_files_keep_the_processor(name, tmp_path):
    path = tmp_path / "preprocessor_config.json"
    path.write_text(processor_text(PROCESSORS[name]))
    assert read_processor(path) == PROCESSORS[name]


def test_files_of_older_versions(tmp_path):
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps({"feature_extractor_type": "ViTFeatureExtractor", "size": 224, "do_resize": True}))
    assert read_processor(path) == ImageProcessor((224, 224))
    fields = {"feature_extractor_type": "CLIPFeatureExtractor", "size": 224, "crop_size": 224, "do_center_crop": True}
    path.write_text(json.dumps(fields | {"resample": 3, "do_normalize": False}))
    assert read_processor(path) == ImageProcessor(224, (224, 224), (0.0,) * 3, (1.0,) * 3, resample="bicubic")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"size": "big"}, "size='big' must be a height and a width, or a shortest_edge"),
        ({"size": {"height": 0, "width": 8}}, "sides must be from 1 to 8,192 pixels"),
        ({"size": {"shortest_edge": 8}}, "size=8 leaves pictures of several shapes"),
        ({"do_resize": False}, "do_resize=false without do_center_crop leaves pictures of several shapes"),
        ({"image_mean": [0.5]}, r"image_mean=\[0.5\] and image_std=\[0.5, 0.5, 0.5\] must have a number for each"),
        ({"image_std": [0, 1, 1]}, "must be more than 0"),
        ({"image_mean": "0.5"}, "image_mean='0.5' must be a list of numbers"),
        ({"resample": 9}, "resample=9 must be one of"),
        ({"rescale_factor": True}, "rescale_factor=True must be a number"),
        (
            {"do_center_crop": True, "crop_size": {"height": 300, "width": 8}},
            r"crop_size=\[300, 8\] is larger than size",
        ),
    ],
)
def test_damaged_files(fields, sentence, tmp_path):
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps(fields))
    with pytest.raises(ValueError, match=sentence):
        read_processor(path)


@pytest.mark.parity
@pytest.mark.parametrize("name", ["vit", "deit", "clip"])
def test_transformers_makes_the_same_pixels(name, tmp_path):
    transformers = pytest.importorskip("transformers")
    (tmp_path / "preprocessor_config.json").write_text(processor_text(PROCESSORS[name]))
    hf_processor = transformers.AutoImageProcessor.from_pretrained(tmp_path, backend="pil")
    pixels = hf_processor(PICTURE, return_tensors="np")["pixel_values"][0].transpose(1, 2, 0)
    processor = PROCESSORS[name]
    np.testing.assert_allclose(processor.normalize(processor.prepare(PICTURE)), pixels, atol=1e-5)
    hf_processor.save_pretrained(tmp_path / "hf")
    assert read_processor(tmp_path / "hf/preprocessor_config.json") == processor


@pytest.mark.parity
@pytest.mark.parametrize("backend", ["pil", "torchvision"])
def test_what_is_transparent_is_white_in_transformers_too(backend, tmp_path):
    """Since 5: a picture that was converted to RGB before has lost its transparency; its hidden colours are read."""
    transformers = pytest.importorskip("transformers")
    alpha = np.linspace(0, 255, 600).astype(np.uint8).reshape(20, 30, 1)
    picture = Image.fromarray(np.concatenate([np.asarray(PICTURE), alpha], axis=2))
    picture.save(tmp_path / "picture.png")
    (tmp_path / "preprocessor_config.json").write_text(processor_text(PROCESSORS["clip"]))
    hf_processor = transformers.AutoImageProcessor.from_pretrained(tmp_path, backend=backend)
    pixels = np.asarray(hf_processor(picture, return_tensors="np")["pixel_values"][0]).transpose(1, 2, 0)
    processor = PROCESSORS["clip"]
    own = processor.normalize(processor.prepare(decode(tmp_path / "picture.png")))
    np.testing.assert_allclose(own, pixels, atol=1e-5 if backend == "pil" else 0.02)


@pytest.mark.parity
def test_greys_of_16_bits_differ_from_transformers(tmp_path):
    """Here they are divided by 257; transformers cuts them at 255, which makes nearly all of them white."""
    transformers = pytest.importorskip("transformers")
    greys = np.repeat(np.uint16([[0], [200], [256], [25_700], [65_535]]), 5, axis=1)
    Image.fromarray(greys).save(tmp_path / "picture.png")
    processor = ImageProcessor((5, 5), None, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), resample="nearest")
    (tmp_path / "preprocessor_config.json").write_text(processor_text(processor))
    hf_processor = transformers.AutoImageProcessor.from_pretrained(tmp_path, backend="pil")
    hf_pixels = hf_processor(Image.open(tmp_path / "picture.png").convert("RGB"), return_tensors="np")["pixel_values"][
        0
    ]
    np.testing.assert_allclose(hf_pixels[0, :, 0] * 255, [0, 200, 255, 255, 255], atol=1e-3)
    with pytest.warns(UserWarning, match="greys are divided by 257; transformers makes all above 255 white"):
        own = processor.normalize(processor.prepare(decode(tmp_path / "picture.png")))
    np.testing.assert_allclose(own[:, 0, 0] * 255, [0, 0, 0, 100, 255], atol=1e-3)

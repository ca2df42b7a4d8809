"""Files of processors of pictures: defaults by class, nulls, two files, and pixels against transformers."""

import json
import warnings

import numpy as np
import pytest
from PIL import Image

import tfm
from train import UserError
from train.images import palette
from train.images.processor import ImageProcessor, processor_text
from train.images.processor_file import DEFAULTS, of_fields, read_processor

CLIP = {"image_processor_type": "CLIPImageProcessor"}
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
FILES = [
    (CLIP, ImageProcessor(224, (224, 224), CLIP_MEAN, CLIP_STD, resample="bicubic")),
    ({"feature_extractor_type": "DeiTFeatureExtractor"}, ImageProcessor((256, 256), (224, 224), resample="bicubic")),
    ({"image_processor_type": "BeitImageProcessorFast", "size": 32}, ImageProcessor((32, 32), resample="bicubic")),
    ({"image_processor_type": "ViTImageProcessor", "size": [8, 16]}, ImageProcessor((8, 16))),
    ({**CLIP, "size": 40, "crop_size": 32}, ImageProcessor(40, (32, 32), CLIP_MEAN, CLIP_STD, resample="bicubic")),
    (
        {**CLIP, "size": {"shortest_edge": 256, "longest_edge": None}, "image_mean": None, "resample": None},
        ImageProcessor(256, (224, 224), CLIP_MEAN, CLIP_STD, resample="bicubic"),
    ),
    (
        {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 28}},
        ImageProcessor(32, (28, 28), resample="bicubic"),
    ),
    ({"image_processor_type": "ConvNextImageProcessor"}, ImageProcessor((384, 384), resample="bicubic")),
    ({"do_normalize": None, "do_rescale": None}, ImageProcessor((224, 224), None, (0.0,) * 3, (1.0,) * 3, 1.0)),
    ({"image_mean": 0.25, "do_normalize": True}, ImageProcessor((224, 224), mean=(0.25, 0.25, 0.25))),
    (
        {**CLIP, "use_square_size": True, "size": {"shortest_edge": 300}},  # as in transformers, `size` is not read
        ImageProcessor((224, 224), (224, 224), CLIP_MEAN, CLIP_STD, resample="bicubic"),
    ),
    (
        {"image_processor_type": "VideoMAEImageProcessor", "num_frames": 4},
        ImageProcessor(224, (224, 224), frames=4),
    ),
    (
        {"image_processor_type": "VivitImageProcessor", "num_frames": 4},  # x / 127.5 - 1, and (x - 0.5) / 0.5 of that
        ImageProcessor(256, (224, 224), mean=(1.5,) * 3, rescale=1 / 127.5, frames=4),
    ),
    (
        {
            "image_processor_type": "DetrImageProcessor",
            "size": {"height": 8, "width": 6},
            "do_pad": True,
            "format": "coco",
        },
        ImageProcessor((8, 6), mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
    ),
    (
        {"image_processor_type": "VivitImageProcessor", "offset": False, "rescale_factor": 0.5, "image_mean": 0.25},
        ImageProcessor(256, (224, 224), mean=(0.25,) * 3, rescale=0.5),
    ),
]


@pytest.mark.parametrize(("fields", "processor"), FILES)
def test_what_a_file_does_not_say(fields, processor):
    assert of_fields(fields) == processor


REFUSED = [
    ({"image_processor_type": "LevitImageProcessor"}, "image_processor_type=LevitImageProcessor is not known here"),
    ({"image_processor_type": "MyProcessor"}, "MyProcessor is not known here; known are ViT, DeiT"),
    (
        {"image_processor_type": "VivitImageProcessor", "do_rescale": False},
        "offset=true is of values that are rescaled, and do_rescale=false; add offset=false",
    ),
    ({"do_pad": True}, "do_pad=true is not supported"),
    (
        {"image_processor_type": "DetrImageProcessor", "do_pad": True},
        "all pictures have one shape here; name its height",
    ),
    ({"image_processor_type": "DetrFeatureExtractor", "size": 800, "max_size": 1333}, "size=800 leaves pictures of"),
    ({**CLIP, "crop_size": {"shortest_edge": 32}}, "crop_size=.* must have a height and a width"),
    ({"size": {"longest_edge": 32}}, "must be a height and a width, or a shortest_edge"),
    ({"size": {"shortest_edge": 32, "longest_edge": 64}}, "must be a height and a width, or a shortest_edge"),
    ({"image_processor_type": "ConvNextImageProcessor", "size": {"height": 8, "width": 8}}, "a share of it are read"),
]


@pytest.mark.parametrize(("fields", "sentence"), REFUSED)
def test_what_is_refused(fields, sentence):
    with pytest.raises(ValueError, match=sentence):
        of_fields(fields)


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("ViT", "num_frames"),
        ("VideoMAE", "offset"),
        ("CLIP", "clusters"),
        ("Siglip", "use_square_size"),
        ("ViT", "crop_pct"),
        ("ViT", "colour"),
    ],
)
def test_a_field_of_another_class_changes_nothing(kind, field):
    """The class decides whether videos, or colours of a palette, are read; the field is named."""
    fields = {"image_processor_type": f"{kind}ImageProcessor"}
    with pytest.warns(UserWarning, match=f"the processor has {field}, which change nothing here"):
        processor = palette._of_fields(fields | {field: 2}, "ViT")
    assert processor == of_fields(fields)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [({}, "there are no clusters"), ({"do_color_quantize": False, "clusters": [[0.0] * 3]}, "do_color_quantize=False")],
)
def test_a_class_of_palettes_has_one(fields, sentence):
    with pytest.raises(ValueError, match=sentence):
        palette._of_fields({"image_processor_type": "ImageGPTImageProcessor", **fields}, "ViT")


def test_a_folder_that_transformers_5_saved(tmp_path):
    """processor_config.json alone is read; another file beside it must say the same."""
    nested = {"processor_class": "CLIPProcessor", "image_processor": {**CLIP, "size": {"shortest_edge": 230}}}
    (tmp_path / "processor_config.json").write_text(json.dumps(nested))
    processor = palette.read_hf(tmp_path, tfm.Config())
    assert processor == of_fields({**CLIP, "size": 230})
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**CLIP, "size": 230, "resample": 3}))
    assert palette.read_hf(tmp_path, tfm.Config()) == processor
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**CLIP, "size": 240}))
    with pytest.raises(
        ValueError,
        match=r"processor_config.json: image_processor and .*preprocessor_config.json differ in size \(230 and",
    ):
        palette.read_hf(tmp_path, tfm.Config())


def test_a_processor_of_videos(tmp_path):
    """transformers 5 writes it into a file of its own, or into a field of the joint one."""
    fields = {"video_processor_type": "VivitVideoProcessor", "size": {"shortest_edge": 230}, "do_sample_frames": False}
    (tmp_path / "video_preprocessor_config.json").write_text(json.dumps(fields))
    with pytest.warns(UserWarning, match="the processor has do_sample_frames, offset, which change nothing"):
        processor = of_fields(fields | {"offset": False})
    assert (processor.size, processor.rescale, processor.mean[0]) == (230, 1 / 127.5, 1.5)
    with pytest.warns(UserWarning, match="do_sample_frames"):
        assert palette.read_hf(tmp_path, tfm.Config()) == processor
    older = {"image_processor_type": "VivitImageProcessor", "size": {"shortest_edge": 240}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(older))
    with pytest.raises(
        ValueError, match=r"video_preproc.*json and .*preprocessor_config.json differ in size \(230 and"
    ):
        palette.read_hf(tmp_path, tfm.Config())
    (tmp_path / "preprocessor_config.json").unlink()
    (tmp_path / "processor_config.json").write_text(json.dumps({"video_processor": fields | {"resample": 3}}))
    with pytest.raises(
        ValueError, match=r"processor_config.json: video_processor and .*video_pre.* differ in resample"
    ):
        palette.read_hf(tmp_path, tfm.Config())


def test_the_class_of_a_file_without_one(tmp_path):
    """It is that of the model."""
    (tmp_path / "preprocessor_config.json").write_text('{"resample": null}')
    (tmp_path / "config.json").write_text('{"model_type": "siglip"}')
    assert palette.read_hf(tmp_path, tfm.Config()) == ImageProcessor((224, 224), resample="bicubic")
    (tmp_path / "preprocessor_config.json").unlink()
    (tmp_path / "processor_config.json").write_text('{"processor_class": "SiglipProcessor"}')
    with pytest.raises(UserError, match="has no preprocessor_config.json, and no processor_config.json with"):
        palette.read_hf(tmp_path, tfm.Config())


def picture(height, width):
    return Image.fromarray(np.random.default_rng(height).integers(0, 255, (height, width, 3)).astype(np.uint8))


@pytest.mark.parametrize("shape", [(1, 1000), (1000, 1), (2, 900)])
def test_a_long_picture_is_cut_as_if_it_were_resized_whole(shape):
    """Of 32 x 32,000 pixels the middle alone is made."""
    processor, image = ImageProcessor(32, (32, 32), resample="bicubic"), picture(*shape)
    height, width = processor._target(*shape)
    resized = image.resize((width, height), Image.Resampling.BICUBIC)
    top, left = (height - 32) // 2, (width - 32) // 2
    expected = np.asarray(resized.crop((left, top, left + 32, top + 32)))
    assert abs(processor.prepare(image).astype(int) - expected).max() <= 1


@pytest.mark.parity
@pytest.mark.parametrize(
    "changes", [{}, {"offset": False}, {"offset": None, "rescale_factor": 1 / 255, "image_std": 0.3}]
)
def test_videos_of_vivit(changes, tmp_path):
    """Every frame, read from its own file and from the one that is written of it."""
    transformers = pytest.importorskip("transformers")
    sizes = {"size": {"shortest_edge": 40}, "crop_size": [32, 24]}
    fields = {"image_processor_type": "VivitImageProcessor", "num_frames": 3, **sizes, **changes}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(fields))
    processor = read_processor(tmp_path / "preprocessor_config.json")
    frames = [picture(60 + index, 90).resize((90, 60)) for index in range(3)]
    video = Image.fromarray(np.concatenate([np.asarray(frame) for frame in frames]))
    actual = processor.normalize(processor.prepare(video))
    for text in (json.dumps(fields), processor_text(processor)):
        (tmp_path / "preprocessor_config.json").write_text(text)
        hf_processor = transformers.AutoImageProcessor.from_pretrained(tmp_path, backend="pil")
        pixels = np.asarray(hf_processor(frames, return_tensors="np")["pixel_values"])[0]
        np.testing.assert_allclose(actual, pixels.transpose(0, 2, 3, 1), atol=1e-5)


@pytest.mark.parity
@pytest.mark.parametrize("name", DEFAULTS)
@pytest.mark.parametrize("ending", ["ImageProcessor", "ImageProcessorFast"])
def test_defaults_are_those_of_transformers(name, ending, tmp_path):
    """Of a file with nothing but its class, and of one with a step that is null, the pixels."""
    transformers = pytest.importorskip("transformers")
    if name == "ImageGPT":
        pytest.skip("makes tokens, and no pixels: tests/images/test_palette.py")
    step = {"do_normalize": None, "do_convert_rgb": None, "data_format": "channels_first"}
    square = {"use_square_size": True, "crop_size": 200, "num_frames": 2}
    for fields in ({}, step, *([square] if name == "CLIP" else [])):
        path = tmp_path / "preprocessor_config.json"
        shape = {"size": {"height": 40, "width": 64}} if name == "Detr" else {}  # by itself it makes several
        path.write_text(json.dumps({"image_processor_type": f"{name}{ending}", **fields, **shape}))
        hf_processor = transformers.AutoImageProcessor.from_pretrained(tmp_path, backend="pil")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the processor has num_frames")
            processor = read_processor(path)
        for shape in ((60, 90), (300, 200)):
            values = hf_processor(picture(*shape), return_tensors="np")["pixel_values"]  # of videos, one frame
            pixels = values.reshape(values.shape[-3:]).transpose(1, 2, 0)
            np.testing.assert_allclose(processor.normalize(processor.prepare(picture(*shape))), pixels, atol=1e-5)

"""preprocessor_config.json and processor_config.json: the processor of pictures, as transformers reads it.

A field that is absent has the default of the class that `image_processor_type` names. A null has it, too; but that of a
step, such as do_normalize, leaves the step out, as in transformers.
"""

import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tfm.options.choices import check_type
from tfm.options.json_text import read_object
from train.images.processor import FILTERS, ImageProcessor

_Channels = tuple[float, float, float]
_HALF: tuple[_Channels, _Channels] = ((0.5,) * 3, (0.5,) * 3)
_IMAGENET: tuple[_Channels, _Channels] = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_CLIP: tuple[_Channels, _Channels] = (
    (0.48145466, 0.4578275, 0.40821073),
    (0.26862954, 0.26130258, 0.27577711),
)


class Defaults(NamedTuple):
    """What a class of transformers does where a file says nothing.

    size: (height, width), or the shorter edge
    resample: the number of Pillow's filter
    mean, std: of the channels
    crop: (height, width) of the centre; `crops`: whether it is cut out
    square: an int as size is a height and a width, not the shorter edge
    share: what the crop is of the resized picture, below 384 pixels; None: `crop` says it
    rescale: what values from 0 to 255 are multiplied by
    offset: whether 1 is taken from that
    reads: fields that this class reads and the rest do not
    may_crop: whether do_center_crop changes anything
    """

    size: tuple[int, int] | int
    resample: int
    channels: tuple[_Channels, _Channels]
    crop: tuple[int, int] = (224, 224)
    crops: bool = False
    square: bool = True
    share: float | None = None
    rescale: float = 1 / 255
    offset: bool = False
    reads: tuple[str, ...] = ()
    may_crop: bool = True


# By the class, without the end of its name; transformers 5.24.
DEFAULTS = {
    "ViT": Defaults((224, 224), 2, _HALF),
    "DeiT": Defaults((256, 256), 3, _HALF, crops=True),
    "Beit": Defaults((224, 224), 3, _HALF),
    "CLIP": Defaults(224, 3, _CLIP, crops=True, square=False, reads=("use_square_size",)),
    "ChineseCLIP": Defaults(224, 3, _CLIP, crops=True, square=False),
    "Siglip": Defaults((224, 224), 3, _HALF, square=False),
    "Bit": Defaults(224, 3, _CLIP, crops=True, square=False),
    "Blip": Defaults((384, 384), 3, _CLIP),
    "ConvNext": Defaults(384, 3, _HALF, square=False, share=0.875, reads=("crop_pct",)),
    "ImageGPT": Defaults((256, 256), 2, _HALF, reads=("clusters", "do_color_quantize")),
    "MobileNetV1": Defaults(256, 2, _HALF, crops=True, square=False),
    "MobileNetV2": Defaults(256, 2, _HALF, crops=True, square=False),
    "Pvt": Defaults((224, 224), 3, _IMAGENET),
    "VideoMAE": Defaults(224, 2, _HALF, crops=True, square=False, reads=("num_frames",)),
    "Vivit": Defaults(
        256,
        2,
        _HALF,
        crops=True,
        square=False,
        rescale=1 / 127.5,
        offset=True,
        reads=("num_frames", "offset"),
    ),
    "Segformer": Defaults((512, 512), 2, _IMAGENET, may_crop=False),
    "Detr": Defaults(
        800,
        2,
        _IMAGENET,
        square=False,
        may_crop=False,
        reads=("format", "do_convert_annotations", "pad_and_return_pixel_mask", "max_size"),
    ),
}

# The class of a file that names none, by the model_type of config.json.
_OF_MODELS = {
    "vit": "ViT",
    "deit": "DeiT",
    "beit": "Beit",
    "swin": "ViT",
    "swinv2": "ViT",
    "vit_mae": "ViT",
    "dinov2": "Bit",
    "clip": "CLIP",
    "clip_vision_model": "CLIP",
    "siglip": "Siglip",
    "imagegpt": "ImageGPT",
    "vivit": "Vivit",
    "videomae": "VideoMAE",
    "pvt": "Pvt",
    "segformer": "Segformer",
    "detr": "Detr",
}

# What all classes read.
_READ = set(
    """image_processor_type video_processor_type feature_extractor_type do_pad do_resize size default_to_square
    do_center_crop crop_size do_normalize image_mean image_std do_rescale rescale_factor resample""".split()
)
# What changes no picture here, and why.
IGNORED = {
    "do_convert_rgb": "pictures are decoded as grey or as colours, whichever image_mean has numbers for",
    "pad_size": "it is of do_pad, which is refused",
    "frames": "it is a note for people",
    **dict.fromkeys(("do_reduce_labels", "reduce_labels"), "it is of labels, and of no pictures"),
    **dict.fromkeys(
        "data_format device disable_grouping input_data_format processor_class return_tensors auto_map "
        "_valid_processor_keys".split(),
        "it says how transformers runs a processor, and in which arrays it gives pictures",
    ),
}

_ENDINGS = ("ImageProcessor", "ImageProcessorFast", "ImageProcessorPil", "FeatureExtractor", "VideoProcessor")


def model_class(folder: Path) -> str:
    """The class of processors that the model of a folder has in transformers."""
    path = folder / "config.json"
    return _OF_MODELS.get(str(read_object(path).get("model_type")), "ViT") if path.is_file() else "ViT"


def read_processor(path: Path, default_class: str = "ViT") -> ImageProcessor:
    """A processor from preprocessor_config.json. Raises ValueError for a damaged file, or one that it cannot follow."""
    return of_fields(read_object(path), default_class)


def of_fields(fields: Mapping[str, Any], default_class: str = "ViT") -> ImageProcessor:
    """A processor from the fields of a file. Raises ValueError for those that it cannot follow; warns of those that
    change nothing here."""
    defaults = class_defaults(fields, default_class)
    unknown = sorted(fields.keys() - _READ - IGNORED.keys() - {*defaults.reads})
    if unknown:
        warnings.warn(f"the processor has {', '.join(unknown)}, which change nothing here", stacklevel=2)
    steps = {name: False for name, value in fields.items() if value is None and name.startswith(("do_", "offset"))}
    fields = {name: value for name, value in fields.items() if value is not None and name not in unknown} | steps
    if fields.get("use_square_size"):  # whatever `size` is, transformers takes that of the class
        fields |= {"size": [defaults.size] * 2}
    if _flag(fields, "do_pad", False) and not _has_one_shape(fields):
        raise ValueError(
            "do_pad=true is not supported: all pictures have one shape here; name its height and width as size"
        )
    is_resized = _flag(fields, "do_resize", True)
    size = _size(fields, "size", defaults.size, _flag(fields, "default_to_square", defaults.square))
    crops = defaults.may_crop and _flag(fields, "do_center_crop", defaults.crops)
    crop = _crop(fields, defaults) if crops else None
    if is_resized and defaults.share is not None:
        size, crop = _shared(size, crop, _number(fields, "crop_pct", defaults.share))
    mean, std = (_channels(fields, name, values) for name, values in zip(_STATISTICS, defaults.channels, strict=True))
    if not _flag(fields, "do_normalize", True):
        mean, std = (0.0,) * 3, (1.0,) * 3
    is_rescaled = _flag(fields, "do_rescale", True)
    factor = _number(fields, "rescale_factor", defaults.rescale) if is_rescaled else 1.0
    if _flag(fields, "offset", defaults.offset):
        if not is_rescaled:
            raise ValueError("offset=true is of values that are rescaled, and do_rescale=false; add offset=false")
        mean = tuple(value + 1 for value in mean)
    names = {int(resampling): name for name, resampling in FILTERS.items()}
    resample = fields.get("resample", defaults.resample)
    if type(resample) is not int or resample not in names:
        raise ValueError(f"resample={resample!r} must be one of {sorted(names)}, a filter of Pillow")
    frames = fields.get("num_frames")  # of a class of videos
    if frames is not None and not 1 <= check_type("num_frames", frames, int) <= 1 << 16:
        raise ValueError(f"num_frames={frames} must be from 1 to {1 << 16:,}")
    if not is_resized and crop is None:
        raise ValueError("do_resize=false without do_center_crop leaves pictures of several shapes; name a size")
    return ImageProcessor(size if is_resized else None, crop, mean, std, factor, names[resample], frames)


_STATISTICS = ("image_mean", "image_std")


def _has_one_shape(fields: Mapping[str, object]) -> bool:
    """Whether all pictures get one height and width, so that nothing is padded."""
    size = fields.get("size")
    return isinstance(size, dict) and size.keys() == {"height", "width"} and _flag(fields, "do_resize", True)


def class_defaults(fields: Mapping[str, Any], default_class: str) -> Defaults:
    """The defaults of the class that a file names. Raises ValueError for a class that is not known here."""
    types = (fields.get(f"{kind}_type") for kind in ("video_processor", "image_processor", "feature_extractor"))
    name = str(next(filter(None, types), f"{default_class}{_ENDINGS[0]}"))
    ending = next((ending for ending in _ENDINGS if name.endswith(ending)), "")
    kind = name.removesuffix(ending)
    if kind not in DEFAULTS:
        raise ValueError(
            f"image_processor_type={name} is not known here; known are {', '.join(DEFAULTS)}, each with {_ENDINGS[0]}"
        )
    return DEFAULTS[kind]._replace(reads=("num_frames",)) if ending == "VideoProcessor" else DEFAULTS[kind]


def _crop(fields: Mapping[str, Any], defaults: Defaults) -> tuple[int, int]:
    """The centre that is kept. Raises ValueError for one without a height and a width."""
    crop = _size(fields, "crop_size", defaults.crop, square=True)
    if not isinstance(crop, tuple):
        raise ValueError(f"crop_size={fields['crop_size']} must have a height and a width")
    return crop


def _shared(
    size: tuple[int, int] | int, crop: tuple[int, int] | None, share: float
) -> tuple[tuple[int, int] | int, tuple[int, int] | None]:
    """Size and crop of a class whose crop is a share of the resized picture; from 384 pixels the picture is warped.

    Raises ValueError for a size that is no shorter edge, a crop of its own, and a share of nothing.
    """
    if isinstance(size, tuple) or crop is not None or not 0 < share <= 1:
        raise ValueError(f"size={size}, crop_size={crop}, crop_pct={share}: a shorter edge and a share of it are read")
    return (int(size / share), (size, size)) if size < 384 else ((size, size), None)


def _size(fields: Mapping[str, Any], name: str, default: tuple[int, int] | int, square: bool) -> tuple[int, int] | int:
    """A size of transformers: {"height", "width"}, {"shortest_edge"}, [height, width], or an int of older files."""
    value = fields.get(name, default)
    if type(value) is int:
        return (value, value) if square and name in fields else value
    if isinstance(value, dict):
        sides = {side: edge for side, edge in value.items() if edge is not None}
        value = (sides["height"], sides["width"]) if sides.keys() == {"height", "width"} else value
        if sides.keys() == {"shortest_edge"} and type(sides["shortest_edge"]) is int:
            return sides["shortest_edge"]
    if isinstance(value, list | tuple) and len(value) == 2 and all(type(side) is int for side in value):
        return value[0], value[1]
    raise ValueError(f"{name}={value!r} must be a height and a width, or a shortest_edge, in pixels")


def _channels(fields: Mapping[str, Any], name: str, default: _Channels) -> tuple[float, ...]:
    """A number for each channel, or one for all. Raises ValueError for anything else."""
    value = fields.get(name, list(default))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (float(value),) * 3
    return tuple(map(float, check_type(name, value, list[float])))


def _flag(fields: Mapping[str, Any], name: str, default: bool) -> bool:
    return bool(check_type(name, fields.get(name, default), bool))


def _number(fields: Mapping[str, Any], name: str, default: float) -> float:
    value = float(check_type(name, fields.get(name, default), float))
    if not math.isfinite(value):
        raise ValueError(f"{name}={value} must be finite")
    return value

"""The processor that fits a model of pictures."""

from collections.abc import Sequence
from typing import Any

from tfm.config.model import Config
from train import UserError
from train.images.palette import AnyProcessor, PaletteProcessor
from train.images.processor import ImageProcessor
from train.settings.gate import user_errors
from train.settings.images import Pixels, parsed_channels
from train.settings.schema import Run


def run_processor(run: Run, model: Config, saved: AnyProcessor | None) -> AnyProcessor:
    """The processor of a run for the pictures that a model, or a tower, reads: a new one, or the `saved` one of another
    run. Pictures of a run that starts from `--init` may be of another size.

    Raises UserError for a processor of another kind or shape than the model reads.
    """
    processor = saved or model_processor(model, run.task.pixels)
    if run.init and isinstance(processor, ImageProcessor) and not reads_palette(model):
        *_, height, width, _ = picture_shape(model)
        with user_errors("--model.input"):
            processor = processor.of_shape(height, width)
    check_processor(processor, model)
    return processor


def check_processor(processor: AnyProcessor, model: Config):
    """Raises UserError for a processor of another kind or shape than the model reads."""
    of_palette = reads_palette(model)
    if isinstance(processor, PaletteProcessor) != of_palette:
        source = "pixels" if of_palette else "image"
        raise UserError(
            f"model.input={model.input.name} does not read what the processor of --init makes of pictures; name a "
            f"run of --task={source}, or another --preset"
        )
    height, width = processor.shape
    shape = processor.array_shape if isinstance(processor, ImageProcessor) else height * width
    required = model.length if of_palette else picture_shape(model)
    if shape != required:
        raise UserError(
            f"the model reads pictures of {_sides(required)} pixels (image_size and num_channels of config.json, or "
            f"--model.input), and their processor makes {_sides(shape)} (size, crop_size and image_mean of "
            "preprocessor_config.json); correct one of them, leave --model.input out, or train without --init"
        )


def reads_palette(model: Config) -> bool:
    """Whether a model reads pictures as colours of a palette, which are tokens, and no pixels."""
    return model.input.array_shape is None and not model.input.suffix


def size_values(processor: AnyProcessor) -> dict[str, object]:
    """Options of a model that reads the pictures of a processor."""
    height, width = processor.shape
    return {"model.input.size": height, "model.input.image_width": None if width == height else width}


def picture_shape(model: Config) -> tuple[int, ...]:
    """Height, width and channels of the pictures that a model, or a tower, reads; of videos, frames before these."""
    options: Any = model.input
    return options.array_shape or options.pixels


def image_tokens(model: Config) -> int:
    """The tokens that a model, or a tower, makes of a picture."""
    rows, columns = model.input.grid or (0, 0)
    return model.input.prefix + rows * columns


def model_processor(model: Config, pixels: Pixels) -> ImageProcessor:
    """The processor that --task.pixels describes, for the pictures that a model, or a tower, reads.

    Raises UserError for a model that reads a palette, which --task=pixels makes.
    """
    if reads_palette(model):
        raise UserError("the model reads the colours of a palette; name a run of --task=pixels with --init=FOLDER")
    *frames, height, width, channels = picture_shape(model)
    mean, std = (parsed_channels(name, getattr(pixels, name)) for name in ("mean", "std"))
    crop = None if pixels.resize is None else (height, width)
    size = (height, width) if pixels.resize is None else pixels.resize
    mean, std = (values * channels if len(values) == 1 else values for values in (mean, std))
    try:
        return ImageProcessor(
            size, crop, tuple(mean), tuple(std), resample=pixels.resample, frames=next(iter(frames), None)
        )
    except ValueError as error:
        raise UserError(f"--task.pixels: {error}") from error


def _sides(shape: Sequence[int] | int) -> str:
    return f"{shape:,}" if isinstance(shape, int) else " x ".join(map(str, shape))

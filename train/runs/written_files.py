"""What the files beside the weights of a written folder say, against the model that was written: pixels and vectors."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from train import UserError
from train.runs import parity
from train.runs.hf_folder import HfFolder


def file_differences(folder: Any, to: Path) -> dict[str, float]:
    """The largest differences of the pixels of a picture, and of the vectors of texts, where the folder makes such.

    `folder` is the run folder, or the Hugging Face folder, of which `to` was written. Raises UserError as
    `parity.largest_difference` does, and where texts are pooled otherwise.
    """
    written = HfFolder(to)
    differences: dict[str, float] = {}
    images = image_processor(folder.processor)
    if images is not None:
        pixels = (random_pixels(processor) for processor in (images, image_processor(written.processor)))
        differences["pixels"] = parity.largest_difference("pixels", *pixels)
    if written.has_modules:
        differences["vectors"] = _vector_difference(folder, written)
    return differences


def image_processor(processor: Any) -> Any:
    """What turns pictures into pixels, of a processor; None where there are no pictures."""
    return processor if hasattr(processor, "prepare") else getattr(processor, "images", None)


def random_picture(channels: int) -> Any:
    """A `PIL.Image` of 48 x 67 pixels."""
    from PIL import Image

    values = np.random.default_rng(0).integers(0, 256, (48, 67, 3)).astype(np.uint8)
    return Image.fromarray(values).convert("L" if channels == 1 else "RGB")


def random_pixels(processor: Any) -> jnp.ndarray:
    """What a processor makes of a random picture: float32 [height, width, channels]."""
    return jnp.asarray(processor.normalize(processor.prepare(random_picture(processor.channels))), jnp.float32)


def _vector_difference(folder: Any, written: HfFolder) -> float:
    """The largest difference of vectors that the modules of two folders make of the same pooled states."""
    before, after = folder.modules, written.modules
    if before.pools != after.pools:
        raise UserError(
            f"--run={folder.path} pools {' and '.join(before.pools)}, and the written modules.json "
            f"{' and '.join(after.pools)}: nothing is saved; that is a mistake in the program: please report it"
        )
    width = written.config.model.width * len(before.pools)
    states = np.random.default_rng(0).normal(size=(4, width)).astype(np.float32)
    return parity.largest_difference("vectors", *(jnp.asarray(modules.apply(states)) for modules in (before, after)))

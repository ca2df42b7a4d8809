"""Pictures that a model of pixels makes: from nothing, or from the upper part of a picture."""

from collections.abc import Sequence
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import tfm
from train.images import sheets
from train.images.palette import PaletteProcessor


def complete(
    params: tfm.CausalLM,
    model: tfm.Config,
    processor: PaletteProcessor,
    beginnings: Sequence[np.ndarray],
    strategy: tfm.Greedy | tfm.Sample,
) -> np.ndarray:
    """The first tokens of pictures, equally many of each -> uint8 [N,H,W,3], the pictures as the model goes on."""
    prompts = [[processor.start, *map(int, beginning)] for beginning in beginnings]
    rest = model.length + 1 - len(prompts[0])
    if not rest:
        return processor.restore(np.array(beginnings))
    generated = tfm.generate(params, model, prompts, rest, strategy).tokens
    pictures = [[*prompt[1:], *tokens] for prompt, tokens in zip(prompts, generated, strict=True)]
    return processor.restore(np.array(pictures))


def kept_part(tokens: np.ndarray, processor: PaletteProcessor, share: float) -> np.ndarray:
    """The first rows of a picture: this share of them."""
    height, width = processor.shape
    return tokens[: round(share * height) * width]


def masked(pixels: np.ndarray, count: int) -> np.ndarray:
    """A picture uint8 [H,W,C] of which the model sees the first `count` pixels; the others are grey."""
    flat = pixels.reshape(-1, pixels.shape[-1]).copy()
    flat[count:] = 128
    return flat.reshape(pixels.shape)


def draw_samples(params: tfm.CausalLM, model: tfm.Config, processor: PaletteProcessor, count: int, path: Path):
    """Draws pictures that the model makes from nothing."""
    pictures = complete(params, model, processor, [np.zeros(0, np.int32)] * count, _strategy(count))
    sheets.contact_sheet(pictures, [""] * count, path)


def draw_completions(
    params: tfm.CausalLM, model: tfm.Config, processor: PaletteProcessor, originals: np.ndarray, path: Path
):
    """Draws pictures [N,H*W] and how the model completes the upper half of each, twice."""
    halves = [kept_part(tokens, processor, 0.5) for tokens in originals for _ in range(2)]
    pictures = complete(params, model, processor, halves, _strategy(len(halves)))
    restored = processor.restore(originals)
    rows: list[np.ndarray] = []
    for index, pixels in enumerate(restored):
        rows += [pixels, masked(pixels, len(halves[0])), *pictures[2 * index : 2 * index + 2]]
    sheets.contact_sheet(np.stack(rows), ["picture", "half of it", "completed", "again"] * len(originals), path)


def _strategy(count: int) -> tfm.Sample:
    """Draws as probable as the model says; each picture has a seed of its own."""
    return tfm.Sample(seed=jnp.arange(count, dtype=jnp.int32))

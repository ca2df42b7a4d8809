"""Images by captions and captions by images, as SentEval learns it on given features of images.

Two linear maps into one space of 1,000 numbers; the loss asks that a caption and its image have a cosine larger by 0.2
than those of 30 random images and 30 random captions (Kiros et al. 2014, section 2.3).
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from train.lab.sentences import intervals
from train.lab.sentences.intervals import Metric
from train.lab.sentences.randomness import best_round, linear_starts

# Captions of an image; captions that are ranked at a time; and the settings of the training.
_CAPTIONS, _RANKED = 5, 5000
_SIZE, _MARGIN, _BATCH, _CONTRAST, _LAST_EPOCH, _TENACITY, _RATE = 1000, 0.2, 128, 30, 20, 3, 1e-3
_OPTIMIZER = optax.scale_by_adam(eps=1e-8)


def measure(parts: Mapping[str, tuple[np.ndarray, np.ndarray]], seed: int) -> dict[str, Metric]:
    """Vectors of captions [5N,D] and features of images [N,I] of train, dev and test -> recalls of the test part.

    `image_1`, `image_5`, `image_10`: the share of captions whose image is among the first 1, 5 or 10; `caption_1` and
    so on: the share of images. `image_rank`, `caption_rank`: the median rank.
    """
    texts, images = parts["train"]
    params = _start(seed, images.shape[1], texts.shape[1])
    state, generator = _OPTIMIZER.init(params), np.random.RandomState(seed)
    arrays = jnp.asarray(texts), jnp.asarray(images)

    def rounds(params, state):
        for _ in range(_LAST_EPOCH + 1):
            for batch in _batches(generator, len(texts)):
                params, state = _step(params, state, *arrays, *batch)
            recalls, _ = _recalls(params, *parts["dev"])
            yield params, sum(100 * float(np.mean(flags)) for flags in recalls.values())

    best_params, _ = best_round(params, rounds(params, state), _TENACITY)
    recalls, ranks = _recalls(best_params, *parts["test"])
    metrics = {name: intervals.share(flags) for name, flags in recalls.items()}
    mean = float(np.mean([metric.value for metric in metrics.values()]))
    return {"recall": Metric(mean)} | metrics | {f"{name}_rank": Metric(rank) for name, rank in ranks.items()}


def _start(seed: int, image_size: int, text_size: int) -> dict[str, tuple[Array, Array]]:
    """Both maps as torch starts them, that of images first."""
    generator = np.random.RandomState(seed)
    layers = [linear_starts(seed, (size, _SIZE), generator)[0] for size in (image_size, text_size)]
    image, text = ((jnp.asarray(kernel), jnp.asarray(bias)) for kernel, bias in layers)
    return {"image": image, "text": text}


def _batches(generator: np.random.RandomState, count: int):
    """Captions of a batch [B], -1 for none; captions of contrasting images, and contrasting captions, [B,30]."""
    order = generator.permutation(count)
    for start in range(0, count, _BATCH):
        rows = order[start : start + _BATCH]
        outside = np.concatenate([order[:start], order[start + _BATCH :]])
        contrasts = [generator.choice(outside, _CONTRAST * len(rows)).reshape(-1, _CONTRAST) for _ in range(2)]
        missing = _BATCH - len(rows)
        yield (
            np.pad(rows, (0, missing), constant_values=-1),
            *(np.pad(contrast, ((0, missing), (0, 0))) for contrast in contrasts),
        )


@jax.jit
def _step(params, state, texts: Array, images: Array, rows: Array, image_rows: Array, text_rows: Array):
    """One step of Adam on the sum of all violations of the margin."""

    def loss(params) -> Array:
        image = _project(params["image"], images[rows // _CAPTIONS])
        text = _project(params["text"], texts[rows])
        anchor = (image * text).sum(-1, keepdims=True)
        contrast_images = _project(params["image"], images[image_rows // _CAPTIONS])
        contrast_texts = _project(params["text"], texts[text_rows])
        costs = jax.nn.relu(_MARGIN - anchor + jnp.einsum("bd,bcd->bc", image, contrast_texts))
        costs += jax.nn.relu(_MARGIN - anchor + jnp.einsum("bd,bcd->bc", text, contrast_images))
        return jnp.where(rows[:, None] >= 0, costs, 0.0).sum()

    updates, state = _OPTIMIZER.update(jax.grad(loss)(params), state)
    return jax.tree.map(lambda leaf, update: leaf - _RATE * update, params, updates), state


@jax.jit
def _project(params, x: Array) -> Array:
    """x [...,D] -> [...,1000], of length 1."""
    kernel, bias = params
    y = x @ kernel + jnp.reshape(bias, (*[1] * (x.ndim - 1), -1))
    return y * jax.lax.rsqrt(jnp.square(y).sum(-1, keepdims=True))


def _recalls(params, texts: np.ndarray, images: np.ndarray) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Whether the right one is among the first 1, 5 and 10, by direction; and the median ranks.

    Test sets are ranked in parts of 1,000 images, as SentEval does; ranks are means over the parts.
    """
    ranks: dict[str, list[np.ndarray]] = {"caption": [], "image": []}
    for start in range(0, max(1, len(texts) // _RANKED) * _RANKED, _RANKED):
        captions = np.asarray(_project(params["text"], texts[start : start + _RANKED]))
        part = np.asarray(_project(params["image"], images[start // _CAPTIONS : (start + _RANKED) // _CAPTIONS]))
        scores = part @ captions.T
        own = np.arange(len(captions)) // _CAPTIONS
        right = scores[own, np.arange(len(captions))]
        by_caption = (scores[own] > right[:, None]).sum(1)
        ranks["caption"].append(by_caption.reshape(-1, _CAPTIONS).min(1))
        ranks["image"].append((scores > right[None]).sum(0))
    flags = {f"{name}_{size}": np.concatenate(places) < size for name, places in ranks.items() for size in (1, 5, 10)}
    medians = {
        name: float(np.mean([np.floor(np.median(part)) + 1 for part in places])) for name, places in ranks.items()
    }
    return flags, medians

"""The loss of detected objects (DETR: Carion et al. 2020, section 3.1 and appendix A.2)."""

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

import tfm
from train.losses.assignment import assign
from train.losses.loss import RatioLoss
from train.metrics.boxes import overlaps

# Factors of the L1 distance and of the generalized intersection over union beside the class, and the weight of a query
# without an object.
L1, OVERLAP, NO_OBJECT = 5.0, 2.0, 0.1


def compute(
    params: tfm.ObjectDetector, model: tfm.Config, batch: Mapping[str, Array], key: Array | None
) -> dict[str, Array]:
    """Sums over the pictures of a batch, float32: `loss` and `weight`, the count of pictures, of the last layer;
    `auxiliary_layers`, the sum of the losses of the layers before it; and what `metrics` divides.

    For evaluation also [B,...]: `scores` and `guesses` of queries, the most probable class but none; `guessed_boxes`,
    theirs; and the fields of the batch.
    """
    detected = tfm.detect(params, model, batch["pixels"], key)
    chosen = assign_all(*detected, batch)
    layers = [_sums(*layer, batch) for layer in zip(*detected, chosen, strict=True)]
    losses, last = [_loss(sums, batch) for sums in layers], layers[-1]
    guesses, scores, boxes = _answers(detected)
    return {
        "loss": losses[-1],
        "weight": batch["weights"].sum(),
        **last,
        **({"auxiliary_layers": sum(losses[1:-1], losses[0])} if len(losses) > 1 else {}),
        "scores": scores,
        "guesses": guesses,
        "guessed_boxes": boxes,
        **{name: batch[name] for name in ("labels", "boxes", "objects", "crowds", "withheld")},
        "counts": batch["weights"],
    }


def _loss(sums: Mapping[str, Array], batch: Mapping[str, Array]) -> Array:
    """The loss of a part of a batch: means over queries and over objects, times the pictures of the batch."""
    of_boxes = L1 * sums["loss_l1"] + OVERLAP * sums["loss_overlap"]
    of_classes = sums["loss_class"] / jnp.maximum(batch["total_queries"], 1e-6)
    return batch["total_pictures"] * (of_classes + of_boxes / jnp.maximum(batch["total_objects"], 1))


def assign_all(logits: Array, boxes: Array, batch: Mapping[str, Array]) -> Array:
    """logits [l,B,q,C] and boxes [l,B,q,4] of all layers -> float32 [l,B,o,q], 1 for the query of each object."""
    l1, overlap = _distances(boxes, batch)
    chance = jnp.einsum("BoC,lBqC->lBoq", _classes(logits, batch), jax.nn.softmax(logits))
    costs = jax.lax.stop_gradient(L1 * l1 + OVERLAP * overlap - chance)
    return jax.vmap(assign, in_axes=(0, None))(costs, batch["objects"] > 0).astype(jnp.float32)


def _classes(logits: Array, batch: Mapping[str, Array]) -> Array:
    """logits [...,C] -> 1 for the class of each object, [B,o,C]."""
    return jax.nn.one_hot(batch["labels"], logits.shape[-1])


def _distances(boxes: Array, batch: Mapping[str, Array]) -> tuple[Array, Array]:
    """boxes [...,B,q,4] -> their L1 distances to objects, and 1 less the generalized overlap, [...,B,o,q] both."""
    boxes = boxes[..., None, :, :]
    truths = jnp.expand_dims(batch["boxes"][:, :, None], range(boxes.ndim - 4))
    return abs(boxes - truths).sum(-1), 1 - overlaps(boxes, truths)[1]


def _sums(logits: Array, boxes: Array, chosen: Array, batch: Mapping[str, Array]) -> dict[str, Array]:
    """logits [B,q,C], boxes [B,q,4] and chosen queries [B,o,q] of a layer -> sums over the queries and the objects of a
    batch."""
    weights, labels, is_class = batch["weights"], batch["labels"], _classes(logits, batch)
    l1, overlap = _distances(boxes, batch)
    is_taken = chosen.sum(1)
    none = jax.nn.one_hot(logits.shape[-1] - 1, logits.shape[-1])[None, None]
    truths = jnp.einsum("Boq,BoC->BqC", chosen, is_class) + (1 - is_taken)[..., None] * none
    of_queries = (is_taken + NO_OBJECT * (1 - is_taken)) * weights[:, None]
    entropy = -(truths * jax.nn.log_softmax(logits)).sum(-1)
    of_objects = chosen * weights[:, None, None]
    is_right = (logits.argmax(-1)[:, None] == labels[:, :, None]).astype(jnp.float32)
    return {
        "loss_class": (entropy * of_queries).sum(),
        "loss_l1": (l1 * of_objects).sum(),
        "loss_overlap": (overlap * of_objects).sum(),
        "right": (is_right * of_objects).sum(),
        "object_count": of_objects.sum(),
        "query_count": of_queries.sum(),
    }


def totals(batch: Mapping[str, Array]) -> dict[str, Array]:
    """The pictures, the objects and the weighted queries of a batch, of which the loss is a ratio."""
    weights = batch["weights"]
    counts = jnp.stack([weights, batch["objects"].sum(-1) * weights, batch["queries"] * weights])
    # One sum over all devices: several are free to come in another order on each.
    pictures, objects, queries = counts.sum(tuple(range(1, counts.ndim)))
    return {
        "total_pictures": pictures,
        "total_objects": objects,
        "total_queries": objects + NO_OBJECT * (queries - objects),
    }


loss = RatioLoss(compute, totals)


@partial(jax.jit, static_argnums=1)
def answers(params: tfm.ObjectDetector, model: tfm.Config, pixels: Array) -> tuple[Array, Array, Array]:
    """Normalized pixels [B,H,W,C] -> by query the most probable class but none int32 [B,q], its probability [B,q], and
    the box [B,q,4]."""
    return _answers(tfm.detect(params, model, pixels))


def _answers(detected: tfm.DetectedObjects) -> tuple[Array, Array, Array]:
    """What the last layer says; see `answers`."""
    probabilities = jax.nn.softmax(detected.logits[-1])[..., :-1]
    return probabilities.argmax(-1), probabilities.max(-1), detected.boxes[-1]

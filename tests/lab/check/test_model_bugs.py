"""Bugs that are planted in models, losses and rows: the right probe notices each, and passes without it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lab.check.bugs import texts_that_leak, weight_that_counts_rows

import tfm
from tfm.decoding import cache
from tfm.masks import distance
from tfm.models import pooling
from tfm.tables.mixers import MIXERS
from train.data import packing
from train.lab.check import model
from train.tasks.lm import rows, task
from train.training import step

pytestmark = pytest.mark.slow


def mask_that_sees_one_more(plant):
    """Causal masks let a token see the next one."""

    def later(original):
        return lambda mask, i, j: original(mask, i, j) | (j[:, None, :] - i[:, :, None] == 1)

    plant(distance.Window, "__call__", later)


def first_token_that_sees_nothing(plant):
    """Causal masks hide a token from itself: the first one then averages all of them."""
    plant(distance.Window, "__call__", lambda original: lambda mask, i, j: (j[:, None, :] - i[:, :, None]) < 0)


def directions_that_are_swapped(plant):
    """What has read the tokens up to a place predicts the one before it."""
    plant(tfm, "directions", lambda original: lambda hidden: original(hidden)[::-1])


def rows_that_leak(plant):
    """States are moved towards their mean over the batch."""

    def leaky(original):
        def vocabulary_loss(config, table, x, *arguments, **options):
            return original(config, table, x + 0.01 * x.mean(0, keepdims=True), *arguments, **options)

        return vocabulary_loss

    plant(tfm, "vocabulary_loss", leaky)


def pictures_that_leak(plant):
    """Vectors of pictures are centred over the batch."""

    def leaky(original):
        def image_vectors(*arguments, **options):
            vectors = original(*arguments, **options)
            return vectors - vectors.mean(0, keepdims=True)

        return image_vectors

    plant(tfm, "image_vectors", leaky)


def visible_padding(plant):
    plant(tfm, "padding", lambda original: lambda valid: None)


def visible_padding_of_texts(plant):
    plant(packing, "row_mask", lambda original: lambda model, segments: None)


def mean_over_rows(plant):
    """The vector of a text is a mean over all places of its row."""
    plant(pooling, "_weights", lambda original: lambda texts, kind: original(jnp.ones_like(texts), kind))


def visible_padding_of_sources(plant):
    def unmasked(original):
        return lambda call, context: original(
            call, context if context.causal else dataclasses.replace(context, mask=None)
        )

    plant(MIXERS, "softmax.prepare", unmasked)


def positions_of_the_cache_off_by_one(plant):
    def shifted(original):
        def context_of(length, *rest):
            context = original(length, *rest)
            return dataclasses.replace(context, positions=context.positions + (0 if isinstance(length, int) else 1))

        return context_of

    plant(cache, "_context", shifted)


def slots_of_the_cache_off_by_one(plant):
    plant(
        MIXERS,
        "softmax.write",
        lambda original: lambda state, output, length: original(state, output, length + 1),
    )


def positions_of_training_off_by_one(plant):
    """Training counts positions from 1, and the cache from 0."""

    def shifted(original):
        return lambda model, config, tokens, mask, positions, key: original(
            model, config, tokens, mask, positions + 1, key
        )

    plant(tfm, "decoder", shifted)


def loss_over_padding(plant):
    def careless(original):
        def vocabulary_loss(config, table, x, targets, weights, *arguments, **options):
            return original(config, table, x, targets, jnp.ones_like(weights), *arguments, **options)

        return vocabulary_loss

    plant(tfm, "vocabulary_loss", careless)


def targets_in_padding(plant):
    plant(rows, "_weights", lambda original: lambda is_target, size: original(np.ones_like(is_target), size))


def loss_in_bits(plant):
    """Sums that nobody divided: a third more than nats."""

    def scaled(original):
        def loss(params, model, batch, key):
            sums = original(params, model, batch, key)
            return sums | {"loss": sums["loss"] / jnp.log(2.0)}

        return loss

    plant(task, "LM.loss", scaled)


def dropout_in_evaluation(plant):
    def with_key(original):
        def make_eval_step(loss, model):
            return lambda params, batch: loss(params, model, step._first_part(dict(batch)), jax.random.key(0))

        return make_eval_step

    plant(step, "make_eval_step", with_key)


# Bug, the run that it is planted in, and the probe that notices it.
BUGS = [
    (mask_that_sees_one_more, "lm", model.causality),
    (mask_that_sees_one_more, "translate", model.causality),
    (mask_that_sees_one_more, "pixels", model.causality),
    (first_token_that_sees_nothing, "lm", model.causality),
    (directions_that_are_swapped, "bilm", model.causality),
    (texts_that_leak, "lm", model.isolation),
    (texts_that_leak, "mlm", model.isolation),
    (rows_that_leak, "lm", model.isolation),
    (pictures_that_leak, "clip", model.isolation),
    (texts_that_leak, "classify", model.isolation),
    (mean_over_rows, "classify", model.isolation),
    (visible_padding_of_texts, "classify", model.padding_is_unseen),
    (visible_padding, "contrast", model.padding_is_unseen),
    (mean_over_rows, "classify", model.padding_is_unseen),
    (mean_over_rows, "classify", model.padding_changes_nothing),
    (visible_padding_of_sources, "translate", model.padding_is_unseen),
    (visible_padding_of_sources, "translate", model.padding_changes_nothing),
    (positions_of_the_cache_off_by_one, "lm", model.cached_is_full),
    (slots_of_the_cache_off_by_one, "lm", model.cached_is_full),
    (slots_of_the_cache_off_by_one, "translate", model.cached_is_full),
    (slots_of_the_cache_off_by_one, "pixels", model.cached_is_full),
    (positions_of_training_off_by_one, "lm", model.cached_is_full),
    (loss_over_padding, "lm", model.weighted_sum),
    (loss_over_padding, "mlm", model.weighted_sum),
    (loss_over_padding, "bilm", model.weighted_sum),
    (weight_that_counts_rows, "lm", model.weighted_sum),
    (targets_in_padding, "lm", model.targets_are_tokens),
    (dropout_in_evaluation, "lm", model.evaluation_without_dropout),
    (loss_in_bits, "lm", model.start),
]

PROBES = dict.fromkeys((name, probe) for _, name, probe in BUGS)


@pytest.mark.parametrize(("name", "probe"), PROBES, ids=lambda item: getattr(item, "__name__", item))
def test_without_bugs_a_probe_passes(subjects, name, probe):
    result = probe(subjects(name))
    assert result.status == "pass", result


@pytest.mark.parametrize(("bug", "name", "probe"), BUGS, ids=lambda item: getattr(item, "__name__", item))
def test_a_bug_is_noticed(subjects, plant, bug, name, probe):
    subject = subjects(name)
    bug(plant)
    result = probe(subject)
    assert result.status == "fail", result

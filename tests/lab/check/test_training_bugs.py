"""Bugs that are planted in training steps and checkpoints: the right probe notices each, and passes without it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from lab.check.bugs import texts_that_leak, weight_that_counts_rows

from tfm.layers import groups, stack
from tfm.losses import vocabulary
from train.data.corpus import Corpus
from train.lab.check import training
from train.runs.saved import SavedCheckpoints
from train.training import step

pytestmark = pytest.mark.slow


def mean_of_means(plant):
    """Every part of a batch counts as much as another, however few targets it has."""

    def by_part(original):
        def normalized(gradient):
            (grads, changes), (sums, memory) = gradient
            return (jax.tree.map(lambda leaf: leaf / sums["weight"], grads), changes), (sums, memory)

        def accumulate(compute, first, inputs, scale):
            of_part = lambda *part: normalized(compute(*part))
            (grads, changes), sums, memory = original(of_part, normalized(first), inputs, scale)
            share = sums["weight"] / step._parts(inputs)
            return (jax.tree.map(lambda leaf: leaf * share, grads), changes), sums, memory

        return accumulate

    plant(step, "_accumulate", by_part)


def forgotten_part(plant):
    def first_only(original):
        def accumulate(compute, first, inputs, scale):
            return original(compute, first, jax.tree.map(lambda field: field[:1], inputs), scale)

        return accumulate

    plant(step, "_accumulate", first_only)


def layers_in_another_order(plant):
    """A scan goes through the layers from the last to the first."""

    def reversed_scan(original):
        def run_group(group, config, x, context):
            if config.scan and group.times is not None:
                params = jax.tree.map(lambda leaf: leaf[::-1], group.rows[0])
                group = group._replace(rows=(params, *group.rows[1:]))
            return original(group, config, x, context)

        return run_group

    plant(stack, "run_group", reversed_scan)


def sums_of_one_device(plant):
    """Gradients of the output table are not added up over devices."""
    plant(vocabulary.ShardAxes, "sum_tokens", lambda original: lambda axes, sums: sums)


def layer_without_gradient(plant):
    def constant(original):
        return lambda layer, **arguments: original(jax.lax.stop_gradient(layer), **arguments)

    plant(groups, "transformer_block", constant)


def gradients_that_vanish(plant):
    def vanishing(original):
        def block(layer, x, **rest):
            return original(layer, x=1e-4 * x + jax.lax.stop_gradient((1 - 1e-4) * x), **rest)

        return block

    plant(groups, "transformer_block", vanishing)


def uphill(plant):
    plant(optax, "apply_updates", lambda original: lambda params, updates: jax.tree.map(jnp.subtract, params, updates))


def forgotten_optimizer(plant):
    def without_moments(original):
        def restore(checkpoints, like, log):
            state, note, done = original(checkpoints, like, log)
            return dataclasses.replace(state, opt=like.opt), note, done

        return restore

    plant(SavedCheckpoints, "restore", without_moments)


def batches_that_depend_on_the_past(plant):
    """Random numbers of a batch come from one stream, and a resumed run draws them anew."""
    stream = np.random.default_rng(0)
    plant(Corpus, "_rng", lambda original: lambda corpus, name, n: stream)


# Bug, the run that it is planted in, and the probe that notices it.
BUGS = [
    (layers_in_another_order, "lm", training.scan_is_unrolled),
    (sums_of_one_device, "lm", training.devices_are_one),
    (mean_of_means, "lm", training.accumulation_is_one_batch),
    (mean_of_means, "translate", training.accumulation_is_one_batch),
    (mean_of_means, "bilm", training.accumulation_is_one_batch),
    (forgotten_part, "lm", training.accumulation_is_one_batch),
    (weight_that_counts_rows, "lm", training.accumulation_is_one_batch),
    (texts_that_leak, "classify", training.packed_is_padded),
    (layer_without_gradient, "lm", training.gradients_of_layers),
    (gradients_that_vanish, "lm", training.gradients_of_layers),
    (uphill, "lm", training.overfits_a_batch),
    (forgotten_optimizer, "lm", training.resumed_is_unstopped),
    (batches_that_depend_on_the_past, "mlm", training.resumed_is_unstopped),
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

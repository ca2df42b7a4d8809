"""Bugs that are planted in the library and the trainer: the right probe notices each, and passes without it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import FLAGS, write_text

import tfm
from tfm import masks
from tfm.decoding import cache
from tfm.layers import stack
from tfm.losses import vocabulary as losses
from tfm.mixers import softmax
from tfm.models import classifier, pooling
from train.check import load, model, training
from train.data.corpus import Corpus
from train.data.rows import causal, packing
from train.reporting.console import Log
from train.runs.checkpoint import Checkpoints
from train.tasks import lm
from train.training import step

pytestmark = pytest.mark.slow

SUBJECTS = {
    "lm": "--task=lm --data.split=line --model.layers=2 --tokenizer.kind=wordpiece",
    "mlm": "--task=mlm --data.split=line",
    "classify": "--task=classify --data=rows.tsv",
    "translate": "--task=translate --data=rows.tsv --data.field=text,label --task.source=text --task.target=label "
    "--batch.tokens=256 --model.layers=2",
}


@pytest.fixture(scope="module")
def subjects(tmp_path_factory):
    """A function that makes the subject of a name, once."""
    home, by_name = tmp_path_factory.mktemp("home"), {}
    write_text(home / "text.txt")
    lines = (home / "text.txt").read_text().splitlines()
    rows = "\n".join(f"{line}\t{lines[-n][:20]}" for n, line in enumerate(lines, 1))
    (home / "rows.tsv").write_text(f"text\tlabel\n{rows}\n")
    classes = "\n".join(f"{line}\t{n % 3 % 2}" for n, line in enumerate(lines))
    (home / "classes.tsv").write_text(f"text\tlabel\n{classes}\n")

    def subject(name):
        if name not in by_name:
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(home)
                words = SUBJECTS[name].replace("rows.tsv", "classes.tsv" if name == "classify" else "rows.tsv")
                by_name[name] = load.subject_of_flags([*FLAGS, *words.split()], Log(quiet=True))
        return dataclasses.replace(by_name[name])  # without what was computed before

    return subject


def mask_that_sees_one_more(patch):
    """Causal masks let a token see the next one."""
    patch.setattr(masks.Window, "__call__", lambda mask, i, j: (j[:, None, :] - i[:, :, None]) <= (mask.right or 0) + 1)


def first_token_that_sees_nothing(patch):
    """Causal masks hide a token from itself: the first one then averages all of them."""
    patch.setattr(masks.Window, "__call__", lambda mask, i, j: (j[:, None, :] - i[:, :, None]) < 0)


def texts_that_leak(patch):
    patch.setattr(packing, "row_mask", lambda model, segments: tfm.padding(segments > 0))


def rows_that_leak(patch):
    """States are moved towards their mean over the batch."""
    original = losses.vocabulary_loss

    def leaky(config, table, x, *arguments, **options):
        return original(config, table, x + 0.01 * x.mean(0, keepdims=True), *arguments, **options)

    patch.setattr(tfm, "vocabulary_loss", leaky, raising=False)


def visible_padding(patch):
    patch.setattr(classifier, "padding", lambda valid: None)


def mean_over_padding(patch):
    """The vector of a text is a mean over all places of its row."""
    patch.setitem(pooling.POOLS, "mean", lambda hidden, valid: hidden.mean(1))


def visible_padding_of_sources(patch):
    original = softmax.Prepared
    patch.setattr(softmax, "Prepared", lambda context, mask: original(context, None))


def positions_of_the_cache_off_by_one(patch):
    original = cache._context

    def shifted(length, tokens, starts):
        context = original(length, tokens, starts)
        return dataclasses.replace(context, positions=context.positions + (0 if isinstance(length, int) else 1))

    patch.setattr(cache, "_context", shifted)


def slots_of_the_cache_off_by_one(patch):
    original = softmax.MIXER.write
    record = softmax.MIXER._replace(write=lambda state, output, length: original(state, output, length + 1))
    patch.setattr(softmax, "MIXER", record)


def positions_of_training_off_by_one(patch):
    """Training counts positions from 1, and the cache from 0."""
    original = tfm.decoder
    patch.setattr(
        tfm,
        "decoder",
        lambda model, config, tokens, mask, positions, key: original(model, config, tokens, mask, positions + 1, key),
        raising=False,
    )


def loss_over_padding(patch):
    original = losses.vocabulary_loss

    def careless(config, table, x, targets, weights, *arguments, **options):
        return original(config, table, x, targets, jnp.ones_like(weights), *arguments, **options)

    patch.setattr(tfm, "vocabulary_loss", careless, raising=False)


def targets_in_padding(patch):
    original = causal._weights
    patch.setattr(causal, "_weights", lambda is_target, size: original(np.ones_like(is_target), size))


def weight_that_counts_rows(patch):
    """The loss is divided by rows, not by targets."""
    original = lm.loss

    def counts_rows(params, model, batch, key):
        return original(params, model, batch, key) | {"weight": jnp.float32(len(batch["tokens"]))}

    patch.setattr(lm, "loss", counts_rows)


def loss_in_bits(patch):
    """Sums that nobody divided: a third more than nats."""
    original = lm.loss

    def scaled(params, model, batch, key):
        sums = original(params, model, batch, key)
        return sums | {"loss": sums["loss"] / jnp.log(2.0)}

    patch.setattr(lm, "loss", scaled)


def dropout_in_evaluation(patch):
    def make_eval_step(loss, model):
        return lambda params, batch: loss(params, model, step._part(batch, 0), jax.random.key(0))

    patch.setattr(step, "make_eval_step", make_eval_step)


def mean_of_means(patch):
    """Every part of a batch counts as much as another, however few targets it has."""
    original = step._accumulate

    def accumulate(gradient, batch, key):
        def normalized(part, key):
            grads, sums = gradient(part, key)
            return jax.tree.map(lambda leaf: leaf / sums["weight"], grads), sums

        grads, sums = original(normalized, batch, key)
        return jax.tree.map(lambda leaf: leaf * sums["weight"] / 2, grads), sums

    patch.setattr(step, "_accumulate", accumulate)


def forgotten_part(patch):
    patch.setattr(step, "_accumulate", lambda gradient, batch, key: gradient(step._part(batch, 0), None))


def layers_in_another_order(patch):
    """A scan goes through the layers from the last to the first."""
    original = stack._repeated

    def reverse(run, x):
        if run.config.scan:
            period = jax.tree.map(lambda leaf: leaf[::-1], run.params.period)
            run = run._replace(params=dataclasses.replace(run.params, period=period))
        return original(run, x)

    patch.setattr(stack, "_repeated", reverse)


def sums_of_one_device(patch):
    """Gradients of the output table are not added up over devices."""
    patch.setattr(losses.ShardAxes, "sum_tokens", lambda axes, sums: sums)


def layer_without_gradient(patch):
    original = stack.transformer_block

    def block(layer, *arguments):
        return original(jax.lax.stop_gradient(layer), *arguments)

    patch.setattr(stack, "transformer_block", block)


def gradients_that_vanish(patch):
    original = stack.transformer_block
    patch.setattr(
        stack,
        "transformer_block",
        lambda layer, kind, config, x, *rest: original(
            layer, kind, config, 1e-4 * x + jax.lax.stop_gradient((1 - 1e-4) * x), *rest
        ),
    )


def uphill(patch):
    patch.setattr(optax, "apply_updates", lambda params, updates: jax.tree.map(jnp.subtract, params, updates))


def forgotten_optimizer(patch):
    original = Checkpoints.restore

    def restore(store, like, log):
        state, note, done = original(store, like, log)
        return dataclasses.replace(state, opt=like.opt), note, done

    patch.setattr(Checkpoints, "restore", restore)


def batches_that_depend_on_the_past(patch):
    """Random numbers of a batch come from one stream, and a resumed run draws them anew."""
    stream = np.random.default_rng(0)
    patch.setattr(Corpus, "_rng", lambda corpus, name, n: stream)


# Bug, the run that it is planted in, and the probe that notices it.
BUGS = [
    (mask_that_sees_one_more, "lm", model.causality),
    (mask_that_sees_one_more, "translate", model.causality),
    (first_token_that_sees_nothing, "lm", model.causality),
    (texts_that_leak, "lm", model.isolation),
    (texts_that_leak, "mlm", model.isolation),
    (rows_that_leak, "lm", model.isolation),
    (visible_padding, "classify", model.padding_is_unseen),
    (mean_over_padding, "classify", model.padding_is_unseen),
    (mean_over_padding, "classify", model.padding_changes_nothing),
    (visible_padding_of_sources, "translate", model.padding_is_unseen),
    (visible_padding_of_sources, "translate", model.padding_changes_nothing),
    (positions_of_the_cache_off_by_one, "lm", model.cached_is_full),
    (slots_of_the_cache_off_by_one, "lm", model.cached_is_full),
    (slots_of_the_cache_off_by_one, "translate", model.cached_is_full),
    (positions_of_training_off_by_one, "lm", model.cached_is_full),
    (loss_over_padding, "lm", model.weighted_sum),
    (loss_over_padding, "mlm", model.weighted_sum),
    (weight_that_counts_rows, "lm", model.weighted_sum),
    (targets_in_padding, "lm", model.targets_are_tokens),
    (dropout_in_evaluation, "lm", model.evaluation_without_dropout),
    (loss_in_bits, "lm", model.start),
    (layers_in_another_order, "lm", training.scan_is_unrolled),
    (sums_of_one_device, "lm", training.devices_are_one),
    (mean_of_means, "lm", training.accumulation_is_one_batch),
    (forgotten_part, "lm", training.accumulation_is_one_batch),
    (weight_that_counts_rows, "lm", training.accumulation_is_one_batch),
    (layer_without_gradient, "lm", training.gradients_of_layers),
    (gradients_that_vanish, "lm", training.gradients_of_layers),
    (uphill, "lm", training.overfits_a_batch),
    (forgotten_optimizer, "lm", training.resumed_is_unstopped),
    (batches_that_depend_on_the_past, "mlm", training.resumed_is_unstopped),
]

PROBES = sorted({(name, probe.__name__) for _, name, probe in BUGS})


@pytest.mark.parametrize(("name", "probe"), PROBES, ids=lambda word: word)
def test_without_bugs_a_probe_passes(subjects, name, probe):
    result = getattr(model, probe, None) or getattr(training, probe)
    assert result(subjects(name)).status == "pass"


@pytest.mark.parametrize(("bug", "name", "probe"), BUGS, ids=lambda item: getattr(item, "__name__", item))
def test_a_bug_is_noticed(subjects, monkeypatch, bug, name, probe):
    subject = subjects(name)
    bug(monkeypatch)
    result = probe(subject)
    assert result.status == "fail", result

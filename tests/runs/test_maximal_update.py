"""Models in proportion to a narrower or shallower one, against formulas and against factors written out."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import job_of

import tfm
from train import UserError
from train.lab.check import load, widths
from train.runs import maximal_update, tuning
from train.screens.console import Log
from train.settings.optim import Optim
from train.training.optimizer import optimizer

MODEL = ["--task=lm", "--model.layers=4", "--model.heads=4", "--model.width=64", "--model.residual=pre"]
UNTIED = [*MODEL, "--model.tie-embeddings=false"]


def standard_deviation(spec):
    return float(spec.init(jax.random.key(0), spec.shape, None).std())


@pytest.mark.slow
def test_start_and_rate_of_every_kind():
    """Yang et al. 2022, table 3: a width four times as large."""
    specs, unscaled = job_of(*UNTIED, "--optim.base-width=16").specs, job_of(*UNTIED).specs
    layer, plain, embed = specs.decoder.layers.period[0], unscaled.decoder.layers.period[0], specs.decoder.embed
    for sublayer, name in (("mixer", "query"), ("mixer", "output"), ("feed_forward", "up"), ("feed_forward", "down")):
        linear, plain_linear = (getattr(getattr(block, sublayer), name) for block in (layer, plain))
        assert (linear.kernel.rate, linear.bias.rate) == (1 / 4, 1)
        assert standard_deviation(linear.kernel) == pytest.approx(standard_deviation(plain_linear.kernel) / 2)
    assert specs.table.rate == 1 / 4
    assert standard_deviation(specs.table) == pytest.approx(standard_deviation(unscaled.table) / 4)
    assert (embed.tokens.rate, embed.positions.rate, specs.decoder.norm.scale.rate) == (1, 1, 1)
    assert standard_deviation(embed.tokens) == standard_deviation(unscaled.decoder.embed.tokens)
    assert {spec.rate for spec in jax.tree.leaves(unscaled)} == {1}


def test_ends_of_branches_have_their_share_of_the_depth():
    specs, unscaled = job_of(*MODEL, "--optim.base-layers=2").specs, job_of(*MODEL).specs
    layer, plain = specs.decoder.layers.period[0], unscaled.decoder.layers.period[0]
    for end, start in ((layer.mixer.output, layer.mixer.value), (layer.feed_forward.down, layer.feed_forward.up)):
        assert (end.kernel.rate, end.bias.rate, start.kernel.rate, start.bias.rate) == (1 / 2, 1 / 2, 1, 1)
    ratio = standard_deviation(layer.mixer.output.kernel) / standard_deviation(plain.mixer.output.kernel)
    assert ratio == pytest.approx(1 / 2)


def test_epsilon_falls_as_gradients_do():
    run = job_of(*UNTIED, "--optim.base-width=16", "--optim.base-layers=1", "--optim.eps=1e-6").run
    assert maximal_update.optim_of(run).eps == pytest.approx(1e-6 / 16)
    assert maximal_update.optim_of(job_of(*MODEL).run).eps == job_of(*MODEL).run.optim.eps


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adamw", "stable_adamw", "lion"])
def test_a_share_of_start_and_rate_is_a_factor_in_front(name):
    """To train c W is to train W' = c W from c times the start at c times the rate; decay included."""
    share, x = 0.25, jnp.asarray(np.random.default_rng(0).normal(size=(8, 6)), jnp.float32)
    spec = tfm.Spec("DF", (6, 5), lambda *_: None, decay=True, inputs=1)
    start = jnp.asarray(np.random.default_rng(1).normal(size=(6, 5)), jnp.float32)

    def trained(specs, kernel, factor, eps):
        adam = optimizer(Optim(name=name, rate=0.05, decay=0.3, eps=eps, clip=None), 4, {"kernel": specs})
        params = {"kernel": kernel}
        state = adam.init(params)
        for _ in range(4):
            slopes = jax.grad(lambda params: jnp.tanh(factor * x @ params["kernel"]).sum())(params)
            updates, state = adam.update(slopes, state, params)
            params = jax.tree.map(jnp.add, params, updates)
        return factor * params["kernel"]

    expected = trained(spec, start, share, 1e-3)
    shared = tfm.Spec("DF", (6, 5), lambda *_: None, decay=True, inputs=1, rate=share)
    # Gradients of W are `share` times those of W', and so is what is added to the roots of their squares.
    np.testing.assert_allclose(trained(shared, share * start, 1.0, 1e-3 / share), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([*MODEL, "--optim.base-width=16"], "needs an output table of its own; add --model.tie-embeddings=false"),
        ([*UNTIED, "--optim.base-width=24"], "heads grow with its width: heads=4 of width=64 would be 1.5"),
        ([*MODEL, "--model.residual=post", "--optim.base-layers=2"], "not for residual=post; say --model.residual=pre"),
        ([*MODEL, "--model.mixer=fnet", "--optim.base-layers=2"], "and fnet does not; leave it out"),
        ([*UNTIED, "--optim.base-width=16", "--optim.name=muon"], "not for name=muon; say name=adamw"),
        ([*UNTIED, "--optim.base-width=0"], "base-width=0 must be at least 1"),
    ],
)
def test_what_has_no_proportion(flags, message):
    with pytest.raises(UserError, match=re.escape(message)):
        _ = job_of(*flags).specs


@pytest.mark.slow
def test_sizes_stay_at_all_widths(monkeypatch, tmp_path):
    """And grow where models start and learn unscaled: the probe notices."""
    flags = [*UNTIED, "--data=builtin", "--model.layers=2", "--batch.length=32", "--batch.size=8", "--optim.rate=3e-3"]
    subject = load.subject_of_flags([*flags, "--optim.base-width=32"], Log(quiet=True))
    assert widths.activations_of_widths(subject).status == "pass"
    monkeypatch.setattr(maximal_update, "specs_of", lambda task, run: task.specs(run))
    monkeypatch.setattr(tuning.maximal_update, "optim_of", lambda run: run.optim)
    result = widths.activations_of_widths(subject)
    assert result.measured is not None
    assert result.measured > 0.4

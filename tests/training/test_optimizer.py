"""The learning rate, and what the optimizer does with a gradient."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import tfm
from train.settings.optim import Optim
from train.training import optimizer as optim
from train.training.optimizers import OPTIMIZERS

MODEL = tfm.Config(layers=2, heads=2, width=8, ffn=8, vocab=8, length=8, pad_vocab_to=8)
STEPS = 40


def rates(steps=STEPS, **fields):
    rate = optim.schedule(Optim(**fields), steps)
    return np.array([float(rate(n)) for n in range(steps)])


def decay(name, n, warmup, steps):
    """The rate of step n + 1 after the warm-up, as a share of the peak."""
    done = (n - (warmup - 1)) / (steps - (warmup - 1))
    return {
        "linear": 1 - done,
        "cosine": (1 + math.cos(math.pi * done)) / 2,
        "noam": math.sqrt(warmup / (n + 1)),
        "constant": 1.0,
    }[name]


@pytest.mark.parametrize("warmup", [1, 10])
@pytest.mark.parametrize("name", ["linear", "cosine", "noam", "constant"])
def test_schedules(name, warmup):
    wanted = [0.5 * ((n + 1) / warmup if n < warmup else decay(name, n, warmup, STEPS)) for n in range(STEPS)]
    np.testing.assert_allclose(rates(rate=0.5, warmup=warmup, schedule=name), wanted, rtol=1e-4)


@pytest.mark.parametrize("name", ["linear", "cosine", "noam", "constant"])
def test_warm_up_ends_at_the_peak_and_no_step_is_wasted(name):
    rate = rates(rate=0.5, warmup=8, schedule=name)
    assert rate[7] == pytest.approx(0.5)
    assert rate.max() == rate[7]
    assert rate[0] == pytest.approx(0.5 / 8)
    assert (rate > 0).all()


@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_decay_ends_at_zero_after_the_last_step(name):
    assert float(optim.schedule(Optim(schedule=name), STEPS)(STEPS)) == pytest.approx(0, abs=1e-9)


def test_noam_is_the_formula_of_the_paper():
    """d^-0.5 * min(step^-0.5, step * warmup^-1.5) with its peak (d * warmup)^-0.5 (Vaswani et al. 2017, eq. 3)."""
    width, warmup = 512, 10
    paper = np.array([width**-0.5 * min(s**-0.5, s * warmup**-1.5) for s in range(1, STEPS + 1)])
    np.testing.assert_allclose(rates(rate=(width * warmup) ** -0.5, warmup=warmup, schedule="noam"), paper, rtol=1e-5)


@pytest.mark.parametrize(("cooldown", "steps"), [(0.25, 10), (10, 10), (0, 1), (35, 31), (1000, 31)])
def test_wsd_stays_at_the_peak_and_falls_at_the_end(cooldown, steps):
    """Warm-up, stable, decay: `steps` of the last, but for what the warm-up needs."""
    rate = rates(rate=0.5, warmup=10, schedule="wsd", cooldown=cooldown)
    wanted = [0.5 * min((n + 1) / 10, 1, (STEPS - n) / steps) for n in range(STEPS)]
    np.testing.assert_allclose(rate, wanted, rtol=1e-4)


def test_warm_up_as_a_share_of_the_steps():
    np.testing.assert_array_equal(rates(warmup=0.25), rates(warmup=10))
    np.testing.assert_array_equal(rates(warmup=0), rates(warmup=1))
    assert rates(steps=1, rate=0.5) == 0.5


@pytest.fixture(scope="module")
def specs():
    return tfm.masked_lm_specs(MODEL)


def one_update(specs, params, grads, **fields):
    optimizer = optim.optimizer(Optim(warmup=1, **fields), STEPS, specs)

    @jax.jit
    def step(params, grads):
        trained, frozen = optimizer.split(params)
        updates, state = optimizer.update(optimizer.split(grads)[0], optimizer.init(params), trained)
        return optimizer.join(optax.apply_updates(trained, updates), frozen), state

    return step(params, grads)


def test_decay_moves_matrices_only(specs, fill):
    params = fill(specs)
    moved, _ = one_update(specs, params, jax.tree.map(jnp.zeros_like, params), rate=0.5, decay=0.1)
    for (path, before), after, decays in zip(
        jax.tree_util.tree_leaves_with_path(params), *map(jax.tree.leaves, (moved, tfm.decay_mask(specs))), strict=True
    ):
        assert decays == (path[-1].name not in ("bias", "scale")), path
        np.testing.assert_allclose(after, before * (1 - 0.5 * 0.1) if decays else before, rtol=1e-6)


def test_clip_limits_the_norm_of_the_whole_gradient(specs, fill):
    params, grads = fill(specs), fill(specs, seed=1)
    norm = np.sqrt(sum(np.square(grad).sum() for grad in jax.tree.leaves(grads)))
    assert norm > 1
    for clip, scale in [(1.0, 1 / norm), (None, 1.0)]:
        _, state = one_update(specs, params, grads, clip=clip)
        first_moment = optax.tree_utils.tree_get(state, "mu")
        for moment, grad in zip(*map(jax.tree.leaves, (first_moment, grads)), strict=True):
            np.testing.assert_allclose(moment, (1 - Optim().beta1) * scale * grad, rtol=1e-4)


def test_adamw_against_numpy(specs, fill):
    """The first step of Adam moves every parameter by the rate, against the sign of its gradient.

    Loshchilov & Hutter 2019, algorithm 2.
    """
    params, grads = fill(specs), fill(specs, seed=1)
    options = Optim(rate=0.01, decay=0.3, clip=None, eps=1e-3, warmup=1)
    moved, _ = one_update(
        specs, params, grads, **{k: v for k, v in dataclasses.asdict(options).items() if k != "warmup"}
    )
    for spec, before, grad, after in zip(*map(jax.tree.leaves, (specs, params, grads, moved)), strict=True):
        wanted = before - 0.01 * (grad / (jnp.abs(grad) + 1e-3) + 0.3 * spec.decay * before)
        np.testing.assert_allclose(after, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name != "adamw")) for name in OPTIMIZERS],
)
def test_untrained_parameters(name, specs, fill):
    """As if they were not there: no moments, no decay, no part in the norm that is clipped, and no update."""
    params, grads = fill(specs), fill(specs, seed=1)
    embed = specs.encoder.embed
    untrained = dataclasses.replace(embed.tokens, trained=False)
    untrained_specs = with_embed(specs, dataclasses.replace(embed, tokens=untrained))
    options = {"name": name, "rate": 0.1, "decay": 0.3, "clip": 0.5, "schedule": "constant"}
    moved, state = one_update(untrained_specs, params, grads, **options)

    without = [
        with_embed(tree, dataclasses.replace(tree.encoder.embed, tokens=None)) for tree in (specs, params, grads)
    ]
    expected, expected_state = one_update(*without, **options)
    np.testing.assert_array_equal(moved.encoder.embed.tokens, params.encoder.embed.tokens)
    for leaf, expected_leaf in zip(jax.tree.leaves(state), jax.tree.leaves(expected_state), strict=True):
        np.testing.assert_array_equal(leaf, expected_leaf)
    trained = with_embed(moved, dataclasses.replace(moved.encoder.embed, tokens=None))
    for leaf, expected_leaf in zip(jax.tree.leaves(trained), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(leaf, expected_leaf)


def with_embed(tree, embed):
    """A tree of a masked language model with other embeddings."""
    return dataclasses.replace(tree, encoder=dataclasses.replace(tree.encoder, embed=embed))


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [pytest.param((1, 8, 1), marks=pytest.mark.slow), (2, 2, 2)])
def test_global_norm(sizes):
    """That of all elements in a row, however they are sharded; the tables are long enough to be cut."""
    mesh = tfm.make_mesh(*sizes)
    specs = tfm.masked_lm_specs(tfm.Config(layers=2, heads=2, width=32, vocab=128, length=40))
    with jax.set_mesh(mesh):
        params = jax.jit(lambda: tfm.init(specs, jax.random.key(0), mesh))()
        norm = jax.jit(optim.global_norm)(params)
    every = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])
    np.testing.assert_allclose(norm, np.linalg.norm(every.astype(np.float64)), rtol=1e-5)

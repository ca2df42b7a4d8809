"""Running state: what layers observe moves it, and nothing else changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import clustered

import tfm
from tfm.catalogue.mixers.clustered import running
from tfm.catalogue.options.mixers.clustered import Routing
from tfm.params import constant
from train.training import step
from train.training.optimizer import Optimizer

CONFIG = tfm.Config(layers=3, heads=2, width=8, vocab=20, length=8, dropout=0.0)
MOMENTUM = 0.9


SPECS = {
    "scale": tfm.stacked(tfm.scale_spec(CONFIG, ""), 3),
    "sums": tfm.stacked(tfm.running_spec(CONFIG, "s", constant(0.0), s=2), 3),
}


def loss(params, model, batch, key):
    """Three layers x -> scale x, of which every one observes the sum and the count of what it reads."""

    def layer(x, row):
        scale, sums = row
        seen = jnp.stack([x.sum(), jnp.float32(x.size)])
        return running.observe(sums, scale * x, seen, MOMENTUM), running.running_value(sums)

    x, _ = jax.lax.scan(layer, batch["x"], (params["scale"], params["sums"]))
    return {"loss": (x**2).sum(), "weight": jnp.float32(x.size)}


@pytest.mark.parametrize("parts", [1, 2])
def test_a_step_moves_every_layer_by_what_it_observes(parts):
    """The mean over the parts of a batch, and not scaled by the loss; the gradient is as without running state."""
    mesh = tfm.make_mesh(1, devices=jax.devices()[:1])
    descent = lambda grads, state, params, rates: (jax.tree.map(lambda grad: -0.1 * grad, grads), state)
    optimizer = Optimizer(lambda params: (), descent, SPECS, lambda: jnp.ones(1))
    train_step = step.make_train_step(loss, CONFIG, optimizer, 0, dropout=False)
    state = step.new_state(SPECS, optimizer, 0, mesh)
    x = np.arange(1, 9, dtype=np.float32).reshape(parts, -1) / 8
    with jax.set_mesh(mesh):
        for _ in range(2):
            scales, sums = np.array(state.params["scale"]), np.array(state.params["sums"])
            state, _ = train_step(state, {"x": jnp.asarray(x)})
            read = x.sum() / parts * np.concatenate([[1.0], np.cumprod(scales)[:-1]])
            observed = np.stack([read, np.full(3, x.size / parts)], 1)
            expected = MOMENTUM * sums + (1 - MOMENTUM) * observed
            np.testing.assert_allclose(state.params["sums"], expected, rtol=1e-5)
            gradient = 2 * np.prod(scales) ** 2 / scales * np.square(x).mean()
            assert np.abs(gradient).min() > 0.1
            np.testing.assert_allclose(state.params["scale"], scales - 0.1 * gradient, rtol=1e-4)


def test_running_state_is_not_trained():
    assert tfm.trained_mask(SPECS) == {"scale": True, "sums": False}


@pytest.mark.slow
def test_clusters_move_to_the_means_of_their_keys():
    """The routing mixer observes the sums and counts of its clusters; padding is not counted."""
    options = Routing(clusters=3, chunk=2)
    mixer = tfm.mixer_of(options)
    params = tfm.init(mixer.specs(options, CONFIG), jax.random.key(0))
    x = np.random.default_rng(0).normal(size=(2, 6, 8)).astype(np.float32)
    valid = np.arange(6)[None] < np.array([[6], [4]])
    context = tfm.AttentionContext(jnp.arange(6)[None], tfm.padding(jnp.asarray(valid)))

    @jax.jit
    @jax.grad
    def change(clusters):
        layer = params.replace(clusters=clusters)
        call = tfm.LayerCall(options, CONFIG, layer, mixer.prepare(tfm.LayerCall(options, CONFIG), context), None)
        return mixer.forward(call, x, lambda q, k, projections: (q, k, None), None)[0].sum()

    q, _ = clustered.shared_heads(params.attention, x)
    keys = (q - q.mean(-1, keepdims=True)) / np.sqrt(q.var(-1, keepdims=True) + 1e-6)
    means = np.asarray(params.clusters)[..., :-1]
    nearest = np.square(keys[..., None, :] - means).sum(-1).argmin(-1)
    expected = np.zeros(params.clusters.shape)
    for b, t, k, g in np.ndindex(nearest.shape):
        if valid[b, t]:
            expected[k, g, nearest[b, t, k, g]] += [*keys[b, t, k, g], 1]
    observed = np.asarray(params.clusters) + change(params.clusters) / (1 - options.momentum)
    np.testing.assert_allclose(observed, expected, rtol=1e-3, atol=1e-2)

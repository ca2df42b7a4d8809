"""Arrays that training draws anew: at the steps that their spec names, and as the step says, whatever came before."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm
from train.settings.optim import Optim
from train.training import optimizer as optim
from train.training import step

CONFIG = tfm.Config(layers=1, heads=2, width=4, ffn=4, vocab=8)


def draw(key, shape, sharding):
    return jax.random.normal(key, shape)


SPECS = {
    "features": tfm.fixed_spec(CONFIG, "mH", draw, redraw=2, m=3),
    "fixed": tfm.fixed_spec(CONFIG, "mH", draw, m=3),
    "kernel": tfm.weight_spec(CONFIG, "DE"),
}


def loss(params, model, batch, key):
    return {"loss": (params["kernel"].sum() + params["features"].sum()) * batch["x"].sum(), "weight": jnp.float32(1)}


@pytest.mark.slow
def test_features_are_drawn_anew_by_the_step():
    optimizer = optim.optimizer(Optim(warmup=1, rate=1e-2), 10, SPECS)
    mesh = tfm.make_mesh(1, devices=jax.devices()[:1])
    state = step.new_state(SPECS, optimizer, 7, mesh, has_average=True)
    train_step = step.make_train_step(loss, CONFIG, optimizer, 7, dropout=False, ema=0.9)
    features, saved = [np.array(state.params["features"])], None
    with jax.set_mesh(mesh):
        for n in range(6):
            state, _ = train_step(state, {"x": jnp.ones((1, 2))})
            features.append(np.array(state.params["features"]))
            saved = jax.tree.map(np.array, state) if n == 2 else saved
        assert (state.params["fixed"] == tfm.init(SPECS, jax.random.key(7))["fixed"]).all()
        assert (state.ema["features"] == state.params["features"]).all(), "an average of features is none"
        resumed, _ = train_step(jax.tree.map(jnp.asarray, saved), {"x": jnp.ones((1, 2))})
    changes = [bool((features[n] != features[n + 1]).any()) for n in range(6)]
    assert changes == [False, False, True, False, True, False]
    assert (resumed.params["features"] == features[4]).all(), "as if it had not been interrupted"
    assert (features[3] != features[5]).any()

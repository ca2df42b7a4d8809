"""A batch that is encoded part by part has the loss and the gradients of the whole batch, on one device and eight."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contracts import MESHES, assert_near
from random_params import random_params

import tfm
from train.data import feed
from train.settings.schema import Batch, Data, Optim, Run
from train.tasks.contrast.loss import compare, encode_rows
from train.tasks.contrast.options import Contrast
from train.tasks.contrast.task import CONTRAST
from train.training import optimizer as optim
from train.training import step
from train.training.gradient_cache import cached_gradient

MODEL = tfm.Config(layers=1, heads=8, width=16, ffn=16, vocab=60, length=8, pad_vocab_to=64, dropout=0.0)
SPECS = tfm.Classifier(encoder=tfm.encoder_specs(MODEL), pooler=None, output=None)


def batch_of(sides=3, rows=16):
    """Rows of texts of several lengths; a wrong text is absent, a row is empty, and some texts are equal."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, 7, (rows, sides))
    lengths[1, -1] = 0 if sides > 2 else 3
    lengths[5] = 0
    valid = np.arange(6) < lengths[:, :, None]
    return {
        "tokens": np.int32(rng.integers(5, 60, valid.shape) * valid),
        "valid": np.int32(valid),
        "weights": np.float32(np.arange(rows) != 5),
        "withheld": np.zeros(rows, np.float32),
        "temperature": np.full(rows, 0.3, np.float32),
        "contents": rng.integers(0, 20, (rows, sides), np.int32),
    }


def on_mesh(batch, mesh, parts):
    sides = batch["tokens"].shape[1]
    data, rows = Data(field=",".join("abc"[:sides])), Batch(length=8)
    spec = CONTRAST.batch_spec(Run(task=Contrast(), data=data, batch=rows, model=DROPPING))
    return feed.to_devices(batch, spec, mesh, parts)


DROPPING = dataclasses.replace(MODEL, dropout=0.3)


def cached(params, parts, model=MODEL, key=None):
    """Loss and gradients by parts."""

    @jax.jit
    def gradients(params, parts):
        grads, sums, _ = cached_gradient(CONTRAST.loss, model, lambda changing, _: changing, params, parts, key)
        return sums["loss"], grads

    return gradients(params, parts)


def undivided(params, batch):
    """Loss and gradients of a batch in one part."""
    return jax.jit(jax.value_and_grad(lambda params, batch: CONTRAST.loss(params, MODEL, batch, None)["loss"]))(
        params, batch
    )


def as_parts(batch, parts):
    return {name: field.reshape(parts, -1, *field.shape[1:]) for name, field in batch.items()}


@pytest.fixture(scope="module")
def params():
    return random_params(SPECS)


@pytest.mark.slow
def test_parts_are_the_whole_batch(params):
    batch = batch_of()
    loss, grads = undivided(params, batch)
    assert float(loss) > 1
    cached_loss, cached_grads = cached(params, as_parts(batch, 4))
    assert_near((cached_loss, cached_grads), (loss, grads), 1e-5)


@pytest.mark.slow
def test_both_passes_drop_the_same(params):
    """One text a row, whose two vectors differ by dropout alone."""
    parts, key = as_parts(batch_of(sides=1, rows=8), 2), jax.random.key(3)

    @jax.jit
    def plain(params):
        def loss(params):
            keys = jax.random.split(key, 2)
            fields = [{name: field[n] for name, field in parts.items()} for n in range(2)]
            vectors = [encode_rows(params, DROPPING, fields[n], keys[n]) for n in range(2)]
            return compare(params, jnp.stack(vectors), parts)["loss"]

        return jax.value_and_grad(loss)(params)

    assert_near(cached(params, parts, DROPPING, key), plain(params), 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", MESHES)
def test_eight_devices_are_one(params, name):
    """Rows of all devices meet one another, in a batch in one part and in two."""
    batch = batch_of()
    expected = undivided(params, batch)
    mesh = tfm.make_mesh(*MESHES[name])
    with jax.set_mesh(mesh):
        sharded = jax.device_put(params, tfm.shardings(SPECS, mesh))
        fields = {field: array[0] for field, array in on_mesh(batch, mesh, 1).items()}
        assert_near(undivided(sharded, fields), expected, 1e-5)
        assert_near(cached(sharded, on_mesh(batch, mesh, 2)), expected, 1e-5)


@pytest.mark.slow
def test_the_step_takes_parts_together():
    """Its sums and the norm of its gradient do not depend on the number of parts."""
    mesh = tfm.make_mesh(1, devices=jax.devices()[:1])
    optimizer = optim.optimizer(Optim(warmup=1), 10, SPECS)
    train_step = step.make_train_step(CONTRAST.loss, MODEL, optimizer, 0, False)
    results = []
    with jax.set_mesh(mesh):
        for parts in (1, 4):
            state = step.new_state(SPECS, optimizer, 0, mesh)
            results.append(train_step(state, on_mesh(batch_of(), mesh, parts))[1])
    for name in ("loss", "weight", "right", "padding", "grad_norm"):
        np.testing.assert_allclose(results[1][name], results[0][name], rtol=1e-5, err_msg=name)

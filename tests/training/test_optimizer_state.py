"""What optimizers keep, on any mesh and in few bits, and what they learn so."""

import contextlib
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from training.test_optimizers import MODEL, SPECS, options
from training.test_step import BATCH_SPEC, batch, one_device

import tfm
from train.data import feed
from train.devices.mesh import bytes_per_device
from train.runs import checkpoint, saved
from train.tasks.mlm.task import MLM
from train.training import eight_bits, optimizers, step, stochastic_rounding
from train.training import optimizer as optim
from train.training.matrices import matrix_axes

# What is kept


def kept(name, mesh=None, **fields):
    """Parameters, optimizer state and the state after a step, as shapes."""
    specs = tfm.masked_lm_specs(
        dataclasses.replace(MODEL, width=32, ffn=64, param_dtype=fields.pop("param_dtype", "float32"))
    )
    optimizer = optim.optimizer(options(name, clip=1.0, **fields), 10, specs)
    params = tfm.abstract(specs, mesh)
    state = jax.eval_shape(optimizer.init, params)
    wide = jax.eval_shape(stochastic_rounding.widen, (params, state))
    return specs, params, state, jax.eval_shape(optimizer.update, wide[0], wide[1], wide[0])


@pytest.mark.parametrize("sizes", [pytest.param((1, 8, 1), marks=pytest.mark.slow), (2, 2, 2)], ids=["fsdp", "all"])
@pytest.mark.parametrize("name", sorted(optimizers.OPTIMIZERS.keys() - {"soap"}))
def test_moments_are_sharded_as_parameters_and_stay_so(name, sizes):
    mesh = tfm.make_mesh(*sizes)
    with jax.set_mesh(mesh):
        specs, params, state, (updates, after) = kept(name, mesh)
    kinds = lambda tree: [(leaf.shape, leaf.dtype, leaf.ndim and leaf.sharding.spec) for leaf in jax.tree.leaves(tree)]
    assert kinds(updates) == kinds(params)
    assert kinds(after) == kinds(state)
    homes = {(leaf.shape, leaf.sharding.spec) for leaf in jax.tree.leaves(params)}
    if name in ("adafactor", "normuon"):  # axes of size 1 are whole, the others as in the parameter
        cut = lambda leaf, axes: jax.P(
            *(None if n - len(leaf.shape) in axes else place for n, place in enumerate(leaf.sharding.spec))
        )
        size = lambda leaf, axes: tuple(1 if n - leaf.ndim in axes else size for n, size in enumerate(leaf.shape))
        pairs = list(zip(jax.tree.leaves(specs), jax.tree.leaves(params), strict=True))
        homes |= {(size(leaf, axes), cut(leaf, axes)) for spec, leaf in pairs for axes in matrix_axes(spec)}
    moments = [leaf for leaf in jax.tree.leaves(state) if leaf.ndim]
    assert len(moments) >= len(jax.tree.leaves(params))
    for leaf in moments:
        assert (leaf.shape, leaf.sharding.spec) in homes
    assert sum(any(leaf.sharding.spec) for leaf in moments) > 5


@pytest.mark.slow
def test_how_much_each_keeps():
    size = {name: bytes_per_device(jax.tree.leaves(kept(name)[2])) for name in optimizers.OPTIMIZERS}
    params = bytes_per_device(jax.tree.leaves(kept("adamw")[1]))
    assert size["adamw"] == pytest.approx(2 * params, abs=16)
    assert size["lion"] == pytest.approx(params, abs=16)
    assert size["lion"] < size["muon"] < size["adamw"]
    assert size["adafactor"] < 0.2 * params


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(optimizers.OPTIMIZERS.keys() - {"schedule_free", "soap"}))
def test_bfloat16_takes_half(name):
    _, params, state, _ = kept(name)
    _, half_params, half_state, _ = kept(name, param_dtype="bfloat16", moment_dtype="bfloat16")
    count = 4 * sum(leaf.ndim == 0 for leaf in jax.tree.leaves(state))
    assert 2 * bytes_per_device(jax.tree.leaves(half_params)) == bytes_per_device(jax.tree.leaves(params))
    assert (
        2 * (bytes_per_device(jax.tree.leaves(half_state)) - count) == bytes_per_device(jax.tree.leaves(state)) - count
    )
    _, half_params, state, _ = kept(name, param_dtype="bfloat16")
    assert all(leaf.dtype in (jnp.float32, jnp.int32) for leaf in jax.tree.leaves(state)), (
        "moments are as the option says"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adamw", "stable_adamw", "lion", "muon"])
def test_eight_bits_take_a_quarter(name):
    """And the largest magnitude of every row; vectors stay as they are."""
    _, _, state, _ = kept(name)
    narrow_state = kept(name, moment_dtype="int8")[2]
    matrices = [leaf for leaf in jax.tree.leaves(state) if leaf.ndim > 1]
    codes = [leaf for leaf in jax.tree.leaves(narrow_state) if leaf.dtype == jnp.int8]
    assert sorted(leaf.shape for leaf in codes) == sorted(leaf.shape for leaf in matrices)
    rest = bytes_per_device(jax.tree.leaves(state)) - bytes_per_device(matrices)
    rows = sum(4 * leaf.size // leaf.shape[-1] for leaf in matrices)
    assert bytes_per_device(jax.tree.leaves(narrow_state)) == rest + rows + sum(leaf.size for leaf in matrices)


# Rounding at random


@pytest.mark.slow
def test_eight_bits_are_right_on_average():
    """Within 19 % each; nothing becomes 0, and 0 stays."""
    x = np.float32([1, -0.7, 0.9999, 3e-5, -1e-7, 1e-30, 0, 0.25]) * np.float32([[1], [1e-5], [300]])
    rows = jnp.tile(x, (4000, 1, 1))
    encoded = jax.jit(eight_bits.encode)(rows, stochastic_rounding.chance(rows, jnp.uint32([3, 4])))
    assert (encoded.codes.dtype, encoded.largest.shape) == (jnp.int8, (4000, 3, 1))
    decoded = np.float64(jax.jit(eight_bits.decode)(encoded))
    ratios = np.delete(decoded / np.where(x == 0, 1, x), (5, 6), -1)  # the sixth lies below the smallest magnitude
    assert (ratios > 2**-0.2501).all()
    assert (ratios < 2**0.2501).all()
    np.testing.assert_allclose(ratios.mean(0), 1, atol=0.005)
    assert (decoded[..., 6] == 0).all()
    np.testing.assert_allclose(decoded[0, :, 5], 2.0**-31.5 * x[:, 0], rtol=1e-5)
    again = eight_bits.encode(jnp.float32(decoded), jnp.zeros(decoded.shape))
    assert (np.abs(np.int32(again.codes) - encoded.codes) <= 1).all()


def test_rounding_at_random_is_right_on_average():
    x = np.float32([1 + 1 / 512, -3.3, 1e-30, 0, 256.5, 3e38, np.inf, np.nan])
    salts = jax.random.bits(jax.random.key(0), (4, 2))
    rounded = [jax.jit(stochastic_rounding.at_random)(jnp.tile(x, (25, 40, 1)), salt) for salt in salts]
    assert {array.dtype for array in rounded} == {jnp.dtype(jnp.bfloat16)}
    rounded = np.float64(rounded)
    below, above = rounded.min((0, 1, 2))[:6], rounded.max((0, 1, 2))[:6]
    assert (below <= x[:6]).all()
    assert (x[:6] <= above).all()
    assert ((above - below) <= np.abs(x[:6]) / 128).all(), "neighbours"
    np.testing.assert_allclose(rounded.mean((0, 1, 2))[:6], x[:6], atol=0, rtol=1 / 128 / 4000**0.5 * 2)
    assert np.isposinf(rounded[..., 6]).all()
    assert np.isnan(rounded[..., 7]).all()
    ups = rounded[..., 0].reshape(4, -1) > 1
    assert np.abs(np.corrcoef(ups) - np.eye(4)).max() < 0.1, "every salt has its own noise"
    assert abs(np.corrcoef(ups[:, 1:].ravel(), ups[:, :-1].ravel())[0, 1]) < 0.05, "and every place"


def test_the_noise_is_the_same_on_any_mesh():
    x, salt = np.random.default_rng(0).normal(size=(8, 6, 4)).astype(np.float32), jnp.uint32([1, 2])
    mesh = tfm.make_mesh(2, 2, 2)
    with jax.set_mesh(mesh):
        rounded = jax.jit(stochastic_rounding.at_random)(
            jax.device_put(x, jax.NamedSharding(mesh, jax.P("tensor", None, "fsdp"))), salt
        )
    assert rounded.sharding.spec == jax.P("tensor", None, "fsdp")
    np.testing.assert_array_equal(rounded, stochastic_rounding.at_random(jnp.asarray(x), salt))


def test_a_second_moment_falls_only_where_it_is_rounded_at_random():
    """1000 steps without gradient at beta2=0.999 leave exp(-1) of it."""
    moment = nearest = jnp.ones(512, jnp.bfloat16)

    @jax.jit
    def fall(moment, nearest, key):
        after = stochastic_rounding.narrow(0.999 * stochastic_rounding.widen(moment), moment, key)
        return after, (0.999 * nearest.astype(jnp.float32)).astype(jnp.bfloat16)

    for n in range(1000):
        moment, nearest = fall(moment, nearest, jax.random.key(n))
    assert moment.dtype == jnp.bfloat16
    assert float(moment.astype(jnp.float32).mean()) == pytest.approx(np.exp(-1), rel=0.02)
    assert (nearest == 1).all()


def test_what_is_kept_in_float32_is_not_touched():
    tree = {"a": jnp.float32([1.2345678]), "b": jnp.int32(3)}
    assert stochastic_rounding.narrow(tree, tree, jax.random.key(0))["a"] is tree["a"]
    assert stochastic_rounding.widen(tree)["b"] is tree["b"]


# Training


class Trainer:
    """A state on a mesh, and steps."""

    def __init__(self, mesh, name, model, moments="float32"):
        specs = tfm.masked_lm_specs(model)
        optimizer = optim.optimizer(options(name, clip=1.0, decay=0.01, moment_dtype=moments), 10, specs)
        self.mesh, self.state = mesh, step.new_state(specs, optimizer, 0, mesh)
        self.step = step.make_train_step(MLM.loss, model, optimizer, 0, dropout=False)

    def losses(self, steps):
        with jax.set_mesh(self.mesh):
            return [self._loss() for _ in range(steps)]

    def _loss(self):
        self.state, sums = self.step(self.state, feed.to_devices(batch(0), BATCH_SPEC, self.mesh))
        return float(sums["loss"] / sums["weight"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adafactor", "lion", "muon", "normuon"])
def test_it_learns_the_same_on_eight_devices_and_after_an_interruption(name, tmp_path):
    """On a restored state the same program runs."""
    sharded, single = Trainer(tfm.make_mesh(2, 2, 2), name, MODEL), Trainer(one_device(), name, MODEL)
    losses = sharded.losses(3)
    store = checkpoint.Checkpoints(tmp_path)
    store.save(3, sharded.state, {}, None)
    losses += sharded.losses(3)
    np.testing.assert_allclose(losses, single.losses(6), atol=1e-5, rtol=0)
    assert losses[-1] < losses[0] - 0.3
    fresh = step.new_state(SPECS, optim.optimizer(options(name, clip=1.0), 10, SPECS), 1, sharded.mesh)
    store.close()
    sharded.state, _, _ = saved.SavedCheckpoints(tmp_path).restore(fresh, print)
    assert sharded.losses(3) == losses[3:]
    assert sharded.step._cache_size() == 1


@pytest.mark.slow
def test_bfloat16_learns_nearly_the_same():
    """With Muon, that is with AdamW too."""
    exact = Trainer(one_device(), "muon", MODEL).losses(12)
    rough = Trainer(one_device(), "muon", dataclasses.replace(MODEL, param_dtype="bfloat16"), "bfloat16")
    before = jax.tree.map(lambda leaf: leaf.dtype, rough.state)
    np.testing.assert_allclose(rough.losses(12), exact, rtol=0.05)
    assert before == jax.tree.map(lambda leaf: leaf.dtype, rough.state)
    assert rough.step._cache_size() == 1


@pytest.mark.slow
def test_eight_bits_learn_nearly_the_same_on_eight_devices_too(tmp_path):
    exact = Trainer(one_device(), "adamw", MODEL).losses(12)
    sharded, single = (Trainer(mesh, "adamw", MODEL, "int8") for mesh in (tfm.make_mesh(2, 2, 2), one_device()))
    losses = sharded.losses(12)
    np.testing.assert_allclose(losses, exact, rtol=0.02)
    np.testing.assert_allclose(losses, single.losses(12), rtol=1e-3)
    with contextlib.closing(checkpoint.Checkpoints(tmp_path)) as store:
        store.save(12, sharded.state, {}, None)
        losses = sharded.losses(3)
    sharded.state, _, _ = saved.SavedCheckpoints(tmp_path).restore(sharded.state, print)
    assert sharded.losses(3) == losses
    assert sharded.step._cache_size() == 1

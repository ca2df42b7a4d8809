"""Low-rank updates: products with them against products with the merged kernel, and what a step trains."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm
from tfm.low_rank import LowRank, factors, low_rank_base, low_rank_specs, merge_low_rank, with_base, with_dropout_keys
from train.settings.optim import Optim
from train.training import optimizer as optim
from train.training import step

CONFIG = tfm.Config(layers=3, heads=4, kv_heads=2, width=16, ffn=24, vocab=56, length=12, pad_vocab_to=8, dropout=0.0)
SPECS = low_rank_specs(tfm.masked_lm_specs(CONFIG), ["query", "value", "output", "down"], 2, 1.5)
MESHES = {"fsdp and tensor": (2, 2, 2), "tensor and context": (1, 1, 4, 2)}


encoder, masked_lm = (jax.jit(function, static_argnums=1) for function in (tfm.encoder, tfm.masked_lm))


def filled(specs, seed=0):
    """Parameters without zeros."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda spec: jax.device_put(np.float32(0.3 * rng.standard_normal(spec.shape))), specs)


@pytest.mark.parametrize(
    ("equation", "inputs", "outputs"),
    [("BTD,DKGH->BTKGH", (8,), (2, 3, 4)), ("BTKGH,KGHD->BTD", (2, 3, 4), (8,)), ("BTD,DF->BTF", (8,), (5,))],
)
def test_product(equation, inputs, outputs):
    rng = np.random.default_rng(1)
    x, base, down, up = (
        rng.standard_normal(s) for s in ((2, 3, *inputs), inputs + outputs, (*inputs, 2), (2, *outputs))
    )
    kernel = LowRank(*map(jnp.float32, (base, down, up)), scale=0.5)
    merged = base + 0.5 * np.tensordot(down, up, 1)
    np.testing.assert_allclose(kernel.kernel, merged, rtol=1e-5, atol=1e-6)
    expected = np.tensordot(x, merged, len(inputs))
    np.testing.assert_allclose(tfm.einsum(equation, jnp.float32(x), kernel), expected, rtol=1e-4, atol=1e-5)


def test_factors():
    kernel = LowRank("base", "down", "up")
    assert factors("BTKGH,KGHD->BTD", kernel) == (("BTKGH,KGHr->BTr", "down"), ("BTr,rD->BTD", "up"))
    assert factors("BMD,VD->BMV", kernel) == (("BMD,rD->BMr", "up"), ("BMr,Vr->BMV", "down"))


@pytest.mark.slow
def test_a_table_with_an_update_is_the_merged_table():
    """Before the layers and behind them."""
    params = filled(low_rank_specs(tfm.masked_lm_specs(CONFIG), ["tokens"], rank=2, scale=0.5))
    merged = merge_low_rank(params)
    assert isinstance(params.encoder.embed.tokens, LowRank)
    tokens, where = jnp.arange(24).reshape(2, 12), jnp.arange(6).reshape(2, 3)
    logits, expected = (masked_lm(tree, CONFIG, tokens, where) for tree in (params, merged))
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
    x, targets = np.float32(np.random.default_rng(0).normal(size=(2, 3, 16))), where
    loss = jax.jit(lambda table: tfm.vocabulary_loss(CONFIG, table, x, targets, jnp.ones((2, 3)))[0])
    losses = [loss(tree.output) for tree in (params, merged)]
    np.testing.assert_allclose(*losses, rtol=1e-5)
    fresh = tfm.init(low_rank_specs(tfm.masked_lm_specs(CONFIG), ["tokens"], 2, 1.0), jax.random.key(0))
    np.testing.assert_array_equal(fresh.encoder.embed.tokens.kernel, fresh.encoder.embed.tokens.base)
    assert float(jnp.abs(fresh.encoder.embed.tokens.up).max()) > 0.5


@pytest.mark.parametrize("scan", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_merged_model_computes_the_same(scan):
    config, params = dataclasses.replace(CONFIG, scan=scan), filled(SPECS)
    tokens = jnp.arange(24).reshape(2, 12)
    actual = encoder(params.encoder, config, tokens)
    merged = merge_low_rank(params)
    assert jax.tree.structure(merged) == jax.tree.structure(tfm.masked_lm_specs(CONFIG))
    np.testing.assert_allclose(actual, encoder(merged.encoder, config, tokens), rtol=1e-4, atol=1e-5)
    base = encoder(low_rank_base(params).encoder, config, tokens)
    assert float(jnp.abs(actual - base).max()) > 0.1


@pytest.mark.slow
def test_fresh_updates_change_nothing():
    params = jax.jit(lambda key: tfm.init(SPECS, key))(jax.random.key(0))
    kernel = params.encoder.layers.period[0].mixer.query.kernel
    assert kernel.down.shape == (3, 16, 2)
    assert kernel.up.shape == (3, 2, 2, 2, 4)
    assert 0.2 < float(jnp.abs(kernel.down).max()) <= 0.25, "uniform in 16^-0.5"
    jax.tree.map(np.testing.assert_array_equal, merge_low_rank(params), low_rank_base(params))
    base = jax.tree.map(lambda leaf: leaf + 1, low_rank_base(params))
    jax.tree.map(np.testing.assert_array_equal, low_rank_base(with_base(params, base)), base)


def test_unknown_target():
    with pytest.raises(
        ValueError, match="'quary' is no kernel of the model; it has down, key, output, query, tokens, up"
    ):
        low_rank_specs(tfm.masked_lm_specs(CONFIG), ["quary"], 2, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("scan", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_dropout_of_every_layer_is_its_own(scan):
    config = dataclasses.replace(CONFIG, scan=scan)
    params = filled(low_rank_specs(tfm.masked_lm_specs(config), ["value"], 2, 1.0, dropout=0.5))
    keyed = with_dropout_keys(params, jax.random.key(3))
    keys = jax.random.key_data(keyed.encoder.layers.period[0].mixer.value.kernel.key)
    assert len({tuple(key) for key in np.asarray(keys).tolist()}) == 3
    tokens = jnp.arange(24).reshape(2, 12)
    plain, dropped = (encoder(tree.encoder, config, tokens) for tree in (params, keyed))
    assert float(jnp.abs(plain - dropped).max()) > 1e-3
    assert with_dropout_keys(params, None) is params


def loss(params, model, batch, key):
    """A loss of everything that the model says."""
    logits = masked_lm(params, model, batch["tokens"], batch["tokens"] % 12, key=key)
    return {"loss": jnp.square(logits).sum(), "weight": jnp.float32(batch["tokens"].size)}


def one_step(mesh, specs):
    """The parameters before and after a step, its sums, and the optimizer's state."""
    optimizer = optim.optimizer(Optim(warmup=1, rate=1e-2), 10, specs)
    train_step = step.make_train_step(loss, CONFIG, optimizer, 0, dropout=False)
    with jax.set_mesh(mesh):
        before = jax.device_put(filled(low_rank_base(specs)), tfm.shardings(low_rank_base(specs), mesh))
        state = step.new_state(specs, optimizer, 0, mesh)
        state = dataclasses.replace(state, params=with_base(state.params, before))
        tokens = jnp.arange(48).reshape(1, 4, 12) % 50
        batch = {"tokens": jax.device_put(tokens, jax.NamedSharding(mesh, jax.P(None, ("data", "fsdp"))))}
        after, sums = train_step(jax.tree.map(jnp.copy, state), batch)
    return jax.device_get((state.params, after.params, sums, after.opt))


def frozen_specs():
    """Updates and head alone train."""
    is_low_rank = lambda node: isinstance(node, LowRank)
    encoder = jax.tree.map(
        lambda node: node if is_low_rank(node) else dataclasses.replace(node, trained=False),
        SPECS.encoder,
        is_leaf=is_low_rank,
    )
    return dataclasses.replace(SPECS, encoder=encoder)


@pytest.mark.slow
def test_a_step_moves_what_is_trained():
    specs = frozen_specs()
    before, after, sums, opt = one_step(tfm.make_mesh(1, devices=jax.devices()[:1]), specs)
    trained = jax.tree.leaves(tfm.trained_mask(specs))
    for (path, old), new, is_trained in zip(
        jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), trained, strict=True
    ):
        name = jax.tree_util.keystr(path)
        if not is_trained:
            np.testing.assert_array_equal(old, new, err_msg=name)
        elif not name.endswith(".down"):  # the gradient of `down` is zero while `up` is
            assert (old != new).any(), name
    moments = [leaf for leaf in jax.tree.leaves(opt) if leaf.ndim]
    assert sum(leaf.size for leaf in moments) == 2 * sum(
        leaf.size for leaf, is_trained in zip(jax.tree.leaves(before), trained, strict=True) if is_trained
    )
    assert sums["grad_norm"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("shape", [MESHES["fsdp and tensor"], MESHES["tensor and context"]], ids=str)
def test_eight_devices_are_one(shape):
    specs = frozen_specs()
    _, expected, sums, _ = one_step(tfm.make_mesh(1, devices=jax.devices()[:1]), specs)
    _, actual, mesh_sums, _ = one_step(tfm.make_mesh(*shape), specs)
    np.testing.assert_allclose(mesh_sums["grad_norm"], sums["grad_norm"], rtol=1e-4)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-3), actual, expected)

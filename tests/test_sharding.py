import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from layers.blocks import context_of

import tfm
from tfm.sharding import spec_of

pytestmark = pytest.mark.usefixtures("strict")

CONFIG = tfm.Config(layers=2, heads=8, width=16, vocab=60, pad_vocab_to=64, length=8, dropout=0.0)
MESHES = {"fsdp": (1, 8, 1), "tensor": (1, 1, 8), "all": (2, 2, 2), "context": (1, 2, 2, 2)}


def put(mesh, axes, x):
    return jax.device_put(x, NamedSharding(mesh, tfm.partition(axes, x.shape, mesh)))


KINDS_OF_LAYERS = {
    "layers": 4,
    "position": "rotary",
    "residual": "pre",
    "norm": "layer_no_bias",
    "prefix": 1,
    "prefix.0.residual": "pre",
    "prefix.0.residual.mixer_norm": False,
    "period": 2,
    "period.0.mixer": "softmax",
    "period.0.mixer.pattern": "sliding",
}
DISTANCES = {
    "input.width": 8,
    "input.projection": "first",
    "position": "disentangled",
    "position.buckets": 8,
    "position.max_distance": 5,
    "position.norm": True,
}


@pytest.mark.parametrize(
    ("sizes", "values"),
    [
        *(pytest.param(sizes, {}, marks=[pytest.mark.slow] * (name != "all")) for name, sizes in MESHES.items()),
        *(pytest.param(MESHES["context"], values, marks=pytest.mark.slow) for values in (KINDS_OF_LAYERS, DISTANCES)),
    ],
)
def test_gradients_are_sharded_as_their_parameters(fill, sizes, values):
    """Their values are in `contracts.py`."""
    config = tfm.override(CONFIG, values)
    mesh, specs = tfm.make_mesh(*sizes), tfm.masked_lm_specs(config)
    shardings = tfm.shardings(specs, mesh)

    def loss(model, tokens, where):
        mask = tfm.segments(tokens // 30)
        return tfm.cross_entropy(tfm.masked_lm(model, config, tokens, where, mask), where).mean()

    with jax.set_mesh(mesh):
        model = jax.device_put(fill(specs), shardings)
        tokens = put(mesh, "BT", jnp.arange(48).reshape(8, 6) % 60)
        where = put(mesh, "BM", jnp.arange(16).reshape(8, 2) % 6)
        gradients = jax.jit(jax.grad(loss))(model, tokens, where)
    actual = jax.tree.map(lambda gradient: gradient.sharding, gradients)
    assert jax.tree_util.tree_leaves_with_path(actual) == jax.tree_util.tree_leaves_with_path(shardings)
    assert all(np.isfinite(gradient).all() for gradient in jax.tree.leaves(gradients))
    assert any(any(sharding.spec) for sharding in jax.tree.leaves(shardings))


@pytest.mark.parametrize("sizes", [(8, 1, 1), *MESHES.values()], ids=["data", *MESHES])
def test_feed_forward_moves_no_activations_between_all_devices(fill, sizes):
    """No all-to-all, forward or backward: leading axes are folded without moving anything."""
    config = dataclasses.replace(CONFIG, activation="swiglu")
    mesh, specs = tfm.make_mesh(*sizes), tfm.feed_forward_specs(config)
    with jax.set_mesh(mesh):
        layer = jax.device_put(fill(specs), tfm.shardings(specs, mesh))
        x = put(mesh, "BTD", jnp.ones((8, 6, 16)))
        step = jax.jit(jax.grad(lambda layer, x: tfm.feed_forward(layer, config, x).sum(), argnums=(0, 1)))
        program = step.lower(layer, x).compile().as_text()
    assert "all-reduce" in program or "reduce-scatter" in program
    assert "all-to-all" not in program


def test_a_sharded_length_is_not_folded(fill):
    """As a context-parallel batch will have it."""
    specs = tfm.feed_forward_specs(CONFIG)
    layer = fill(specs)
    x = np.random.default_rng(1).normal(size=(2, 8, 16)).astype(np.float32)
    expected = tfm.feed_forward(layer, CONFIG, x)
    mesh = tfm.make_mesh(2, 2, 2)
    with jax.set_mesh(mesh):
        layer = jax.device_put(layer, tfm.shardings(specs, mesh))
        sharded = jax.device_put(x, NamedSharding(mesh, P("data", "fsdp", None)))
        run = jax.jit(lambda layer, x: tfm.feed_forward(layer, CONFIG, x))
        y = run(layer, sharded)
        assert "all-to-all" not in run.lower(layer, sharded).compile().as_text()
    assert spec_of(y) == ("data", "fsdp", None)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("heads", "kv_heads", "query", "key"),
    [
        (8, 2, P("fsdp", "tensor", None, None), P("fsdp", "tensor", None)),
        (
            6,
            3,
            P("fsdp", None, "tensor", None),
            P("fsdp", None, None),
        ),  # 3 kv heads on 2 devices: the groups are sharded
        (3, 3, P("fsdp", None, None, None), P("fsdp", None, None)),  # nothing left to shard: replicated
    ],
)
def test_kv_heads_that_tensor_does_not_divide(fill, heads, kv_heads, query, key):
    config = tfm.Config(heads=heads, kv_heads=kv_heads, width=24, dropout=0.0)
    mesh, specs = tfm.make_mesh(2, 2, 2), tfm.attention_specs(config)
    shardings = tfm.shardings(specs, mesh)
    assert (shardings.query.kernel.spec, shardings.key.kernel.spec, shardings.value.kernel.spec) == (query, key, key)
    layer = fill(specs)
    x = np.random.default_rng(1).normal(size=(4, 5, 24)).astype(np.float32) * 0.3
    expected = tfm.multi_head_attention(layer, config, x, tfm.causal())
    with jax.set_mesh(mesh):
        layer = jax.device_put(layer, shardings)
        y = jax.jit(lambda layer, x: tfm.multi_head_attention(layer, config, x, tfm.causal()))(
            layer, put(mesh, "BTD", x)
        )
    assert spec_of(y) == (("data", "fsdp"), None, None)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


def test_gather_makes_whole_along_fsdp_only():
    mesh = tfm.make_mesh(2, 2, 2)
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    with jax.set_mesh(mesh):
        kernel = tfm.unshard_fsdp(jax.device_put(x, NamedSharding(mesh, P("tensor", "fsdp"))))
    assert spec_of(kernel) == ("tensor", None)
    np.testing.assert_array_equal(kernel, x)


@pytest.mark.slow
def test_dropout_is_the_same_however_x_is_sharded():
    mesh, x, key = tfm.make_mesh(2, 2, 2), jnp.ones((8, 6, 16)), jax.random.key(0)
    expected = tfm.dropout(x, 0.5, key)
    with jax.set_mesh(mesh):
        for spec in (P("data"), P(("data", "fsdp"), None, "tensor"), P(None, "tensor", "fsdp")):
            y = tfm.dropout(jax.device_put(x, NamedSharding(mesh, spec)), 0.5, key)
            assert y.sharding.is_equivalent_to(NamedSharding(mesh, spec), 3)
            np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(
    ("sizes", "length", "mesh_axis"),
    [((1, 1, 8), 8, "tensor"), ((1, 1, 4, 2), 8, ("context", "tensor")), ((1, 1, 8), 6, None)],
)
def test_between_blocks_devices_that_share_a_layer_have_some_positions_each(sizes, length, mesh_axis, monkeypatch):
    """Before and after each block; what comes out of the stack lives where its input did."""
    mesh, config, seen = tfm.make_mesh(*sizes), tfm.override(CONFIG, {"residual": "pre", "layers": 3, "period": 2}), []

    def watch(layer, x, **arguments):
        y, output = tfm.transformer_block(layer, x=x, **arguments)
        seen.extend(spec_of(array)[1] for array in (x, y))
        return y, output

    monkeypatch.setattr("tfm.layers.groups.transformer_block", watch)
    with jax.set_mesh(mesh):
        x = put(mesh, "BTD", jnp.ones((2, length, 16)))
        model = tfm.abstract(tfm.encoder_specs(config), mesh)
        y = jax.eval_shape(lambda model, x: tfm.stack(model, config, x, context_of(x))[0], model, x)
    assert len(seen) >= 6
    assert set(seen) == {mesh_axis}
    assert y.sharding.spec == jax.typeof(x).sharding.spec

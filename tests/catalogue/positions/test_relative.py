"""Relative schemes, and TUPE, against loops over pairs: heads and the slopes of a loss."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import positions as oracles

import tfm

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("strict")]

T, K, G, H, LIMIT = 5, 2, 2, 4, 2
BASE = tfm.Config(layers=1, heads=K * G, kv_heads=K, width=K * G * H, length=T, init_std=0.5)
CLIPPED = {"position.max_distance": LIMIT}
BUCKETS = {"position.relative": True, "position.buckets": 4, "position.max_distance": 3}


def exact_buckets(distance):
    """Four buckets, two a side: of a distance of 0, and of all longer ones."""
    return min(abs(distance), 1) + 2 * (distance > 0)


def causal_buckets(distance):
    """Four buckets: 0, 1, 2 and longer; 2 is where they start to widen."""
    return min(-distance, 3)


# name: options, and (shared parameters, parameters of a layer, causal) -> score and value of a pair.
CASES = {
    "shaw": ({"position": "shaw"} | CLIPPED, lambda shared, layer, causal: oracles.shaw(layer, LIMIT)),
    "shaw_keys": (
        {"position": "shaw", "position.values": False} | CLIPPED,
        lambda shared, layer, causal: oracles.shaw(layer, LIMIT),
    ),
    "sinusoidal_relative": (
        {"position": "sinusoidal_relative"} | CLIPPED,
        lambda shared, layer, causal: oracles.sinusoidal_relative(LIMIT, H),
    ),
    **{
        f"huang_{method}": (
            {"position": "huang", "position.method": method} | CLIPPED,
            lambda shared, layer, causal, method=method: oracles.huang(method, layer, LIMIT),
        )
        for method in (1, 2, 3, 4)
    },
    "transformer_xl": (
        {"position": "transformer_xl"},
        lambda shared, layer, causal: oracles.transformer_xl(shared, layer.kernel, BASE.width),
    ),
    "tupe": ({"position": "tupe"}, lambda shared, layer, causal: oracles.tupe(shared, BASE.norm_eps, None)),
    "tupe_tied": (
        {"position": "tupe", "position.reset": False},
        lambda shared, layer, causal: oracles.tupe(shared, BASE.norm_eps, None),
    ),
    "tupe_relative": (
        {"position": "tupe"} | BUCKETS,
        lambda shared, layer, causal: oracles.tupe(shared, BASE.norm_eps, causal_buckets if causal else exact_buckets),
    ),
}


def heads(config, causal, arrays):
    """The states of heads [B,T,K,G,H] by the scheme of a config."""
    (q, k, v), shared, layer = arrays
    options, position = config.position, tfm.position_of(config.position)
    context = tfm.AttentionContext(jnp.arange(T)[None], causal=causal)
    prepared = position.prepare(tfm.LayerCall(options, config, shared), context)
    q, k, bias = position.score(tfm.LayerCall(options, config, layer, prepared, None), q, k, None)
    return tfm.attend(q, k, v, tfm.causal() if causal else None, bias)


@pytest.mark.parametrize("causal", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["shaw", *(pytest.param(name, marks=pytest.mark.slow) for name in list(CASES)[1:])])
def test_a_scheme_is_its_loop(name, causal):
    """Values, and slopes along random directions, of every parameter and of queries, keys and values."""
    values, oracle = CASES[name]
    config, rng = tfm.override(BASE, values), np.random.default_rng(0)
    position = tfm.position_of(config.position)
    q, k, v = (rng.normal(size=shape) for shape in ((1, T, K, G, H), (1, T, K, H), (1, T, K, H)))
    shared, layer = (
        jax.tree.map(lambda spec: rng.normal(size=spec.shape), specs(config.position, config))
        for specs in (position.shared_specs, position.specs)
    )
    arrays, weights = ((q, k, v), shared, layer), rng.normal(size=q.shape)

    def loss_by_loop(arrays):
        (q, k, v), shared, layer = arrays
        return (oracles.attention(q, k, v, *oracle(shared, layer, causal), causal) * weights).sum()

    @jax.jit
    def loss_and_heads(arrays):
        y = heads(config, causal, arrays)
        return (y * weights.astype(np.float32)).sum(), y

    single = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), arrays)
    (_, y), gradient = jax.value_and_grad(loss_and_heads, has_aux=True)(single)
    expected = oracles.attention(q, k, v, *oracle(shared, layer, causal), causal)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
    leaves, structure = jax.tree.flatten(arrays)
    for index, slope in enumerate(jax.tree.leaves(gradient)):
        direction = rng.normal(size=slope.shape)
        ends = []
        for step in (1e-5, -1e-5):
            moved = [*leaves[:index], leaves[index] + step * direction, *leaves[index + 1 :]]
            ends.append(loss_by_loop(jax.tree.unflatten(structure, moved)))
        np.testing.assert_allclose((slope * direction).sum(), (ends[0] - ends[1]) / 2e-5, rtol=1e-5, atol=2e-5)

"""Attention in windows of a grid, and positions in them, against loops."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import grid as oracle

import tfm
from tfm.catalogue.options.positions.absolute import NoPosition

pytestmark = pytest.mark.usefixtures("strict")

BASE = tfm.Config(
    layers=2, width=8, heads=2, kv_heads=1, input=tfm.Patches(size=12, patch=2, cls=False), position=NoPosition()
)
# Grid, side and shift of windows: plain, shifted, filled up with zeros, and a grid that is one window.
CASES = {"plain": (2, 0), "shifted": (2, 1), "filled_up": (4, 0), "shifted_and_filled_up": (4, 3), "one_window": (6, 2)}


def config_of(window, shift, position="none"):
    values = {"mixer.pattern": "windows", "mixer.pattern.window": window, "mixer.pattern.shift": shift}
    return tfm.override(BASE, values | {"position": position})


def run(config, params, position_params, x):
    """A mixer and positions alone, on states x [B,T,D]."""
    options, position = config.mixer, tfm.position_of(config.position)
    context = tfm.AttentionContext(jnp.broadcast_to(jnp.arange(x.shape[1])[None], x.shape[:2]), restarts=False)
    mixer = tfm.mixer_of(options)
    call = tfm.LayerCall(options, config, params, mixer.prepare(tfm.LayerCall(options, config), context), None)
    position_call = tfm.LayerCall(config.position, config, position_params, None, None)
    score = lambda q, k, projections: position.score(position_call, q, k, projections)
    return mixer.forward(call, jnp.asarray(x, jnp.float32), score, None)[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "shifted_and_filled_up" else [pytest.mark.slow]) for name in CASES]
)
def test_windows_are_those_of_a_loop(name, fill):
    config = config_of(*CASES[name])
    params = fill(tfm.mixer_of(config.mixer).specs(config.mixer, config))
    x = np.random.default_rng(0).normal(size=(2, 36, 8))
    size, shift = CASES[name] if name != "one_window" else (6, 0)
    np.testing.assert_allclose(
        run(config, params, None, x), oracle.windowed(params, x, (6, 6), size, shift), rtol=1e-4, atol=1e-4
    )


@pytest.mark.slow
def test_windows_that_divide_the_grid_are_dense_attention_under_their_mask(fill):
    """What notebooks draw is what layers compute."""
    config = config_of(3, 1)
    dense = tfm.override(config, {"mixer.pattern": "full"})
    params = fill(tfm.mixer_of(config.mixer).specs(config.mixer, config))
    x = jax.device_put(np.float32(np.random.default_rng(0).normal(size=(2, 36, 8))))
    masked = tfm.multi_head_attention(params, dense, x, tfm.grid_windows(6, 6, 3, 1))
    np.testing.assert_allclose(run(config, params, None, x), masked, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_recorded_weights_are_those_of_all_places(fill):
    """Windows that divide the grid and are shifted: against dense attention under their mask."""
    config = config_of(3, 1)
    params = fill(tfm.mixer_of(config.mixer).specs(config.mixer, config))
    x = jax.device_put(np.float32(np.random.default_rng(0).normal(size=(2, 36, 8))))
    context = tfm.AttentionContext(jnp.broadcast_to(jnp.arange(36)[None], (2, 36)), restarts=False, record=True)
    mixer = tfm.mixer_of(config.mixer)
    call = tfm.LayerCall(
        config.mixer, config, params, mixer.prepare(tfm.LayerCall(config.mixer, config), context), None
    )
    _, output = mixer.forward(call, x, lambda q, k, projections: (q, k, None), None)
    q, (k, _) = tfm.queries(params, config, x), tfm.keys_values(params, config, x)
    expected = tfm.attention_weights(q, k, tfm.grid_windows(6, 6, 3, 1))
    np.testing.assert_allclose(output.weights, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_swin_adds_a_trained_bias_of_offsets(fill):
    config = config_of(4, 1, "swin")
    params = fill(tfm.mixer_of(config.mixer).specs(config.mixer, config))
    table = fill(tfm.position_of(config.position).specs(config.position, config), 1)
    assert table.shape == (49, 1, 2)
    x = np.random.default_rng(0).normal(size=(2, 36, 8))
    bias = lambda rows, columns: np.asarray(table)[(rows + 3) * 7 + columns + 3]
    expected = oracle.windowed(params, x, (6, 6), 4, 1, bias)
    np.testing.assert_allclose(run(config, params, table, x), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_swin_v2_compares_cosines_and_computes_its_bias(fill):
    config = config_of(3, 1, "swin_v2")
    config = tfm.override(config, {"position.hidden": 5})
    layer = fill(tfm.mixer_of(config.mixer).specs(config.mixer, config))
    params = fill(tfm.position_of(config.position).specs(config.position, config), 1)
    up, down = (np.asarray(linear.kernel, np.float64) for linear in (params.up, params.down))
    steps = lambda offset: math.copysign(math.log(1 + 8 * abs(offset) / 2) / math.log(8), offset)

    def bias(rows, columns):
        hidden = np.maximum(np.array([steps(rows), steps(columns)]) @ up + np.asarray(params.up.bias), 0)
        return 16 / (1 + np.exp(-np.einsum("m,mkg->kg", hidden, down)))

    x = np.random.default_rng(0).normal(size=(2, 36, 8))
    unit = lambda rows: rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    scale = np.exp(np.minimum(np.asarray(params.log_scale, np.float64), math.log(100)))[..., None] * 4**0.5
    expected = oracle.windowed(layer, x, (6, 6), 3, 1, bias, lambda q, k: (unit(q) * scale, unit(k)))
    np.testing.assert_allclose(run(config, layer, params, x), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"input": "tokens"}, "pattern=windows needs a grid of patches"),
        ({"input.cls": True}, "take input=patches, without input.cls"),
        ({"position": "rotary"}, "position=rotary compares places of a text"),
        ({"mixer.pattern": "full", "position": "swin"}, "position=swin is for layers with mixer.pattern=windows"),
        ({"mixer.pattern.shift": 3}, "shift=3 must be less than window=3"),
    ],
)
def test_models_that_have_no_windows_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        tfm.override(config_of(3, 0), values)


def test_masks_and_causality_are_refused():
    config = config_of(3, 0)
    for context in (
        tfm.AttentionContext(jnp.zeros((1, 36), jnp.int32), causal=True),
        tfm.AttentionContext(jnp.zeros((1, 36), jnp.int32), tfm.causal()),
        tfm.AttentionContext(jnp.zeros((1, 35), jnp.int32)),
    ):
        with pytest.raises(tfm.VariantError, match="windows (is for encoders of images|reads a grid of 6 x 6 patches)"):
            tfm.mixer_of(config.mixer).prepare(tfm.LayerCall(config.mixer, config), context)

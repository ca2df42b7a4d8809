"""Stochastic depth: examples skip sublayers, later layers more often; and scales of branches."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm
from tfm.layers.stack import drop_path_rates
from tfm.ops import drop_rows

pytestmark = pytest.mark.usefixtures("strict")

CONFIG = tfm.override(
    tfm.Config(layers=2, heads=2, width=8, ffn=12, vocab=20, pad_vocab_to=1, length=4, dropout=0.0),
    {"residual": "pre", "position": "none"},
)
TOKENS = jnp.tile(jnp.array([[3, 1, 4, 1]]), (64, 1))
ENCODER = jax.jit(tfm.encoder, static_argnums=1)


def test_examples_are_zero_or_scaled():
    x = jax.random.normal(jax.random.key(0), (2000, 2, 3))
    y = np.asarray(drop_rows(x, jnp.float32(0.25), jax.random.key(1)))
    kept = (y != 0).all((1, 2))
    assert 0.7 < kept.mean() < 0.8
    np.testing.assert_allclose(y, np.where(kept[:, None, None], x / 0.75, 0), rtol=1e-6)
    assert drop_rows(x, None, jax.random.key(1)) is x
    assert drop_rows(x, jnp.float32(0.25), None) is x


def test_rates_grow_in_equal_steps_over_all_stages():
    config = dataclasses.replace(CONFIG, layers=3, drop_path=0.4)
    np.testing.assert_allclose(drop_path_rates(config)[0], [0, 0.2, 0.4], rtol=1e-6)
    stages = {"layers": 2, "stages": 2, "stages.0.layers": 3, "stages.1.layers": 4}
    config = tfm.override(config, {"input": "patches", "input.size": 32, "input.patch": 4, "input.cls": False}, stages)
    first, second, third = drop_path_rates(config)
    np.testing.assert_allclose(second, 0.4 * np.array([2, 3, 4]) / 8, rtol=1e-6)
    np.testing.assert_allclose(np.concatenate([first, second, third]), 0.4 * np.arange(9) / 8, rtol=1e-6)
    assert drop_path_rates(CONFIG) == [None]


@pytest.mark.slow
def test_every_example_skips_sublayers_of_its_own(fill):
    """Of two layers, the first is never skipped: each state is one of the four that the second can make."""
    params = jax.tree.map(lambda leaf: 0.4 * leaf, fill(tfm.encoder_specs(CONFIG)))

    def states(mixer, feed_forward):
        """What comes out if the sublayers of the last layer are multiplied by these numbers."""
        (block,) = params.layers.period
        scaled = jax.tree.map(
            lambda leaf, factor: leaf.at[1].mul(factor),
            (block.mixer.output, block.feed_forward.down),
            (
                jax.tree.map(lambda _: mixer, block.mixer.output),
                jax.tree.map(lambda _: feed_forward, block.feed_forward.down),
            ),
        )
        block = dataclasses.replace(
            block,
            mixer=dataclasses.replace(block.mixer, output=scaled[0]),
            feed_forward=dataclasses.replace(block.feed_forward, down=scaled[1]),
        )
        layers = dataclasses.replace(params.layers, period=(block,))
        return np.asarray(ENCODER(dataclasses.replace(params, layers=layers), CONFIG, TOKENS[:1]))[0]

    possible = [states(mixer, feed_forward) for mixer in (0.0, 2.0) for feed_forward in (0.0, 2.0)]
    config = dataclasses.replace(CONFIG, drop_path=0.5)
    actual = np.asarray(ENCODER(params, config, TOKENS, key=jax.random.key(2)))
    distances = np.abs(actual[:, None] - np.stack(possible)[None]).max((2, 3))
    assert (distances.min(1) < 1e-4).all()
    counts = np.bincount(distances.argmin(1), minlength=4)
    assert counts.min() > 4, f"each of the four in about a quarter of 64 examples: {counts}"
    np.testing.assert_allclose(ENCODER(params, config, TOKENS[:1]), ENCODER(params, CONFIG, TOKENS[:1]), rtol=1e-6)


@pytest.mark.parametrize("scheme", ["pre", pytest.param("parallel", marks=pytest.mark.slow)])
def test_the_scale_of_a_branch_is_that_of_its_last_map(fill, scheme):
    config = tfm.override(CONFIG, {"residual": scheme, "residual.layer_scale": 0.01})
    specs = tfm.encoder_specs(config)
    params = jax.tree.map(lambda leaf: 0.4 * leaf, fill(specs))
    (block,) = params.layers.period
    scales = block.residual.scales
    assert set(scales) == {"mixer", "feed_forward"}
    output, down = block.mixer.output, block.feed_forward.down
    plain = dataclasses.replace(
        block,
        mixer=dataclasses.replace(
            block.mixer,
            output=tfm.Linear(output.kernel * scales["mixer"][:, None, None, None], output.bias * scales["mixer"]),
        ),
        feed_forward=dataclasses.replace(
            block.feed_forward,
            down=tfm.Linear(down.kernel * scales["feed_forward"][:, None], down.bias * scales["feed_forward"]),
        ),
        residual=dataclasses.replace(block.residual, scales=None),
    )
    without = dataclasses.replace(params, layers=dataclasses.replace(params.layers, period=(plain,)))
    expected = ENCODER(without, tfm.override(CONFIG, {"residual": scheme}), TOKENS[:1])
    np.testing.assert_allclose(ENCODER(params, config, TOKENS[:1]), expected, rtol=1e-4, atol=1e-5)
    start = specs.layers.period[0].residual.scales["mixer"]
    np.testing.assert_array_equal(start.init(jax.random.key(0), start.shape, None), np.full((2, 8), 0.01, np.float32))
    assert not start.decay


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"drop_path": 1.0}, "drop_path=1.0 must be at least 0 and less than 1"),
        ({"residual.layer_scale": 2.0}, r"layer_scale=2\.0 must be at most 1"),
        (
            {"residual": "post", "residual.layer_scale": 0.1},
            "belongs to residual=pre or patch_interaction or",
        ),
    ],
)
def test_options_out_of_range(values, message):
    with pytest.raises(ValueError, match=message):
        tfm.override(CONFIG, values)

"""Tubes of videos as vectors: a loop over every tube, places along three axes, and videos that do not fit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm
from tfm.config.positions import Rotary, Sinusoidal
from tfm.positions.absolute import sinusoidal, waves
from tfm.positions.grid_axes import centres, places
from tfm.tables.patterns import pattern_of

pytestmark = pytest.mark.usefixtures("strict")

TUBES = {"input": "tubes", "input.frames": 6, "input.size": 4, "input.image_width": 6, "input.patch": 2}
CONFIG = tfm.override(tfm.Config(layers=2, heads=2, width=12, ffn=16, classes=5, dropout=0.0, norm_eps=1e-5), TUBES)
VIDEOS = jax.device_put(np.float32(np.random.default_rng(0).normal(size=(2, 6, 4, 6, 3))))


def test_embeddings_are_those_of_a_loop(fill):
    """A tube is 2 frames, 2 rows and 2 columns; the first frames come first, and [CLS] before them."""
    config = tfm.override(CONFIG, {"position": "none"})
    tables = fill(tfm.embed_specs(config))
    actual = tfm.embed(tables, config, VIDEOS)
    kernel, bias = np.asarray(tables.projection.kernel), np.asarray(tables.projection.bias)
    expected = [np.tile(tables.cls, (2, 1))]
    for time in range(0, 6, 2):
        for row in range(0, 4, 2):
            for column in range(0, 6, 2):
                tube = np.asarray(VIDEOS)[:, time : time + 2, row : row + 2, column : column + 2]
                expected.append(np.tensordot(tube, kernel, axes=4) + bias)
    assert actual.shape == (2, config.max_length, 12) == (2, 19, 12)
    np.testing.assert_allclose(actual, np.stack(expected, axis=1), rtol=1e-4, atol=1e-4)


def test_a_tube_has_a_time_a_row_and_a_column():
    positions = jnp.arange(19)[None]
    expected = [[-1, -1, -1], *np.ndindex(3, 2, 3)]
    np.testing.assert_array_equal(places(CONFIG, positions)[0], expected)
    middles = 2 * np.pi * (2 * (np.array(expected[1:]) + 0.5) / [3, 2, 3] - 1)
    np.testing.assert_allclose(centres(CONFIG, positions)[0], [[0, 0, 0], *middles], rtol=1e-6)


def test_waves_tell_columns_rows_and_times():
    actual = waves(Sinusoidal(axes=3), CONFIG, jnp.arange(19)[None], 12)[0]
    assert not actual[0].any()
    for position, place in enumerate(np.ndindex(3, 2, 3)):
        parts = [sinusoidal(jnp.array([[axis]]), 4)[0, 0] for axis in reversed(place)]
        np.testing.assert_allclose(actual[1 + position], np.concatenate(parts), rtol=1e-6)


def test_layers_in_turn_see_the_tubes_of_a_time_and_those_of_a_place():
    """Patterns of texts do it: blocks of as many tubes as a frame has, and windows whose tubes are as far apart."""
    local = {"mixer": "softmax", "mixer.pattern": "local", "mixer.pattern.block": 6, "mixer.pattern.neighbours": 0}
    sliding = {"mixer": "softmax", "mixer.pattern": "sliding", "mixer.pattern.dilation": 6, "mixer.pattern.window": 6}
    layers = {
        f"period.{index}.{name}": value for index, kind in enumerate((local, sliding)) for name, value in kind.items()
    }
    config = tfm.override(CONFIG, {"input.cls": False, "period": 2} | layers)
    positions = jnp.arange(18, dtype=jnp.int32)[None]
    time, place = np.divmod(np.arange(18), 6)
    for kind, group in zip(config.kinds, (time, place), strict=True):
        mask = pattern_of(kind.mixer.pattern).mask(kind.mixer.pattern, config, False)
        np.testing.assert_array_equal(mask(positions, positions)[0], group[:, None] == group[None])


@pytest.mark.slow
def test_rotary_scores_depend_on_how_far_apart_tubes_are(fill):
    """Three axes are not one; and tubes of one content have one state, wherever they are."""
    values = {"position": "rotary", "position.axes": 3, "input.cls": False, "heads": 2, "head_size": 6}
    config = tfm.override(CONFIG, values)
    assert isinstance(config.position, Rotary)
    params = fill(tfm.encoder_specs(config))
    states = jax.jit(tfm.encoder, static_argnums=1)(params, config, VIDEOS)
    assert states.shape == (2, 18, 12)
    in_line = tfm.override(config, {"position.axes": 1})
    assert np.abs(states - jax.jit(tfm.encoder, static_argnums=1)(params, in_line, VIDEOS)).max() > 1e-3
    same = jnp.ones_like(VIDEOS)
    states = jax.jit(tfm.encoder, static_argnums=1)(params, config, same)
    np.testing.assert_allclose(states, jnp.broadcast_to(states[:, :1], states.shape), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"input.frames": 5}, "frames=5 must be a multiple of tube=2; try frames=4"),
        ({"input.size": 5}, "size=5 must be a multiple of patch=2; try size=4"),
        ({"input.frames": 0}, "frames=0 must be at least 1"),
        ({"position": "sinusoidal", "position.axes": 2}, "counts rows and columns, which input=tubes does not have"),
        ({"position": "sinusoidal", "position.axes": 3, "width": 16}, "16 elements .* must be a multiple of 6"),
        ({"position": "sinusoidal", "position.axes": 4}, "axes=4 must be at most 3: a video has times, rows"),
        ({"input": "tokens", "position": "rotary", "position.axes": 3}, "counts times, rows and columns, which input="),
        ({"mixer.pattern": "windows"}, "needs a grid of patches"),
    ],
)
def test_options_that_do_not_fit(values, message):
    with pytest.raises(ValueError, match=message):
        tfm.override(CONFIG, values)


@pytest.mark.parametrize(
    ("videos", "message"),
    [
        (VIDEOS[:, :4], r"shape \[B,6,4,6,3\] of the videos that the model reads, not \[2, 4, 4, 6, 3\]; resize them"),
        (VIDEOS[0], r"shape \[B,6,4,6,3\] of the videos that the model reads, not \[6, 4, 6, 3\]"),
        (VIDEOS.astype(jnp.int16), "videos must be floating-point numbers, not int16; divide by 255"),
        ([1.0], r"videos must be an array \[B,F,H,W,C\], not a list; wrap it in jnp\.array"),
    ],
)
def test_arrays_that_are_no_videos(fill, videos, message):
    with pytest.raises(ValueError, match=message):
        tfm.embed(fill(tfm.embed_specs(CONFIG)), CONFIG, videos)


def test_videos_have_no_sentences(fill):
    with pytest.raises(ValueError, match="types tell the sentences of a pair apart, and videos have none"):
        tfm.embed(fill(tfm.embed_specs(CONFIG)), CONFIG, VIDEOS, types=jnp.zeros((2, 19), jnp.int32))

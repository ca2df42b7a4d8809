"""Squares of spectrograms as vectors: a loop over every square, the mean of the vectors before them, and options that
do not fit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm

pytestmark = pytest.mark.usefixtures("strict")

SPECTROGRAM = {
    "input": "spectrogram",
    "input.size": 12,
    "input.channels": 7,
    "input.patch": 3,
    "input.time_stride": 2,
    "input.band_stride": 4,
    "residual": "pre",
    "head.dense": False,
    "head.pool_norm": True,
}
CONFIG = tfm.override(tfm.Config(layers=2, heads=2, width=8, ffn=16, classes=5, dropout=0.0), SPECTROGRAM)
FRAMES = jax.device_put(np.float32(np.random.default_rng(0).normal(size=(2, 12, 7))))


def test_embeddings_are_those_of_a_loop(fill):
    """Squares of the lowest bands come first, and the last frame, which fills no square, is not read."""
    config = tfm.override(CONFIG, {"position": "none"})
    tables = fill(tfm.embed_specs(config))
    actual = tfm.embed(tables, config, FRAMES)
    kernel, bias = np.asarray(tables.projection.kernel)[:, :, 0], np.asarray(tables.projection.bias)
    expected = [np.tile(tables.cls, (2, 1)), np.tile(tables.distilled, (2, 1))]
    for band in (0, 4):
        for time in (0, 2, 4, 6, 8):
            square = np.asarray(FRAMES)[:, time : time + 3, band : band + 3].swapaxes(1, 2)
            expected.append(np.tensordot(square, kernel, axes=2) + bias)
    assert actual.shape == (2, config.max_length, 8) == (2, 12, 8)
    np.testing.assert_allclose(actual, np.stack(expected, axis=1), rtol=1e-4, atol=1e-4)
    unread = tfm.embed(tables, config, FRAMES.at[:, 11].set(9.0))
    np.testing.assert_array_equal(unread, actual)


@pytest.mark.slow
def test_classes_are_read_from_the_mean_of_the_vectors_before_the_squares(fill):
    config = tfm.override(CONFIG, {"head.pool": "prefix"})
    params = jax.tree.map(lambda leaf: 0.3 * leaf, fill(tfm.classifier_specs(config)))
    states = np.asarray(tfm.encoder(params.encoder, config, FRAMES), np.float64)
    mean = (states[:, 0] + states[:, 1]) / 2
    centred = mean - mean.mean(-1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + config.norm_eps)
    normal = normal * np.asarray(params.norm.scale) + np.asarray(params.norm.bias)
    expected = normal @ np.asarray(params.output.kernel) + np.asarray(params.output.bias)
    inputs = tfm.PaddedFrames(FRAMES, jnp.array([12, 5], jnp.int32))
    valid = tfm.valid_frames(config, inputs.lengths)
    for logits in (tfm.classify(params, config, FRAMES), tfm.classify(params, config, inputs, valid)):
        np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_the_mean_of_squares_leaves_the_vectors_before_them_out(fill):
    """Also where the lengths of sounds are said."""
    config = tfm.override(CONFIG, {"head.pool": "mean", "head.pool_norm": False})
    params = fill(tfm.classifier_specs(config))
    states = np.asarray(tfm.encoder(params.encoder, config, FRAMES), np.float64)
    expected = states[:, 2:].mean(1) @ np.asarray(params.output.kernel) + np.asarray(params.output.bias)
    valid = tfm.valid_frames(config, jnp.array([12, 5], jnp.int32))
    assert valid.shape == (2, 12)
    for logits in (tfm.classify(params, config, FRAMES), tfm.classify(params, config, FRAMES, valid)):
        np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"input.patch": 8}, "patch=8 is more than the size=12 frames or the channels=7 of an input; make it smaller"),
        ({"input.time_stride": 0}, "time_stride=0 must be at least 1"),
        ({"input.cls": False}, r"distilled=true puts a vector behind \[CLS\], and cls=false has none; add cls=true"),
        (
            {"input.cls": False, "input.distilled": False, "head.pool": "prefix"},
            "head.pool=prefix reads the trained vectors before an image or a sound, and input=spectrogram has none",
        ),
        ({"input": "tokens", "head.pool": "prefix"}, "input=tokens has none here; try head.pool=mean"),
    ],
)
def test_options_that_do_not_fit(values, message):
    with pytest.raises(ValueError, match=message):
        tfm.override(CONFIG, values)


def test_a_spectrogram_of_another_size(fill):
    with pytest.raises(ValueError, match=r"must have the shape \[B,12,7\] of what the model reads, not \[2, 12, 6\]"):
        tfm.embed(fill(tfm.embed_specs(CONFIG)), CONFIG, FRAMES[..., :6])


def test_rows_are_those_of_bands_and_columns_those_of_time():
    """What positions with two axes count."""
    assert CONFIG.input.axes == (2, 5)
    assert tfm.override(CONFIG, {"position": "sinusoidal", "position.axes": 2}).position.axes == 2

"""Frames as vectors: convolutions along time, padding, and frames that do not fit."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm

pytestmark = pytest.mark.usefixtures("strict")

FRAMES = {"input": "frames", "input.size": 11, "input.channels": 3, "residual": "pre", "head.dense": False}
CONFIG = tfm.override(tfm.Config(layers=2, heads=2, width=8, ffn=16, classes=5, dropout=0.0), FRAMES)
INPUTS = jax.device_put(np.float32(np.random.default_rng(0).normal(size=(2, 11, 3))))


def convolved(x, kernel, bias, stride):
    """x [T,C] -> [S,D]: sums over the frames around every `stride`-th one, place by place."""
    width, first = len(kernel), -((len(kernel) - stride + 1) // 2)
    y = np.zeros((-(-len(x) // stride), kernel.shape[-1]))
    for place in range(len(y)):
        for offset in range(width):
            frame = place * stride + first + offset
            if 0 <= frame < len(x):
                y[place] += x[frame] @ kernel[offset]
    return y + bias


def gelu(x):
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


@pytest.mark.parametrize(
    ("convolutions", "activation"), [("3x1,3x2", "gelu"), ("4x4", "none"), ("5x3,2x1,4x2", "gelu")]
)
def test_embeddings_are_those_of_a_loop(fill, convolutions, activation):
    values = {"input.convolutions": convolutions, "input.activation": activation, "position": "none"}
    config = tfm.override(CONFIG, values)
    tables = fill(tfm.embed_specs(config))
    actual = tfm.embed(tables, config, INPUTS)
    assert actual.shape[1] == config.max_length
    for row, x in enumerate(np.asarray(INPUTS, np.float64)):
        for layer, (_, stride) in zip(tables.convolutions, config.input.layers, strict=True):
            x = convolved(x, np.asarray(layer.kernel, np.float64), np.asarray(layer.bias, np.float64), stride)
            x = gelu(x) if activation == "gelu" else x
        np.testing.assert_allclose(actual[row], x, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_what_stands_behind_the_end_is_not_read(fill):
    """States of an input alone, of its own size, and of the same before other frames."""
    params = jax.tree.map(lambda leaf: 0.3 * leaf, fill(tfm.classifier_specs(CONFIG)))
    lengths = jnp.array([7, 11], jnp.int32)
    valid = tfm.valid_frames(CONFIG, lengths)
    assert valid.astype(int).tolist() == [[1, 1, 1, 1, 0, 0], [1] * 6]
    rest = jnp.arange(11)[None, :, None] >= lengths[:, None, None]

    @jax.jit
    def logits(frames):
        return tfm.classify(params, CONFIG, tfm.PaddedFrames(frames, lengths), valid)

    np.testing.assert_allclose(logits(INPUTS), logits(jnp.where(rest, 9.0, INPUTS)), rtol=1e-5, atol=1e-6)
    short = tfm.override(CONFIG, {"input.size": 7, "position": "none"})
    long = tfm.override(CONFIG, {"position": "none"})
    tables = fill(tfm.embed_specs(short))
    alone = tfm.embed(tables, short, INPUTS[:1, :7])
    padded = tfm.embed(tables, long, tfm.PaddedFrames(INPUTS, lengths))
    np.testing.assert_allclose(padded[:1, :4], alone, rtol=1e-5, atol=1e-6)
    seen = tfm.override(long, {"input.mask_padding": False})
    assert tfm.valid_frames(seen, lengths).all()
    unmasked = tfm.embed(tables, seen, tfm.PaddedFrames(INPUTS, lengths))
    np.testing.assert_allclose(unmasked, tfm.embed(tables, seen, INPUTS), rtol=1e-6)


@pytest.mark.slow
def test_the_source_of_a_translator_may_be_frames(fill):
    """The decoder keeps the table of tokens; the encoder reads frames, and what stands behind their end does not
    count."""
    fields = {"encoder.input": "frames", "encoder.input.size": 11, "encoder.input.channels": 3, "residual": "pre"}
    config = tfm.override(
        tfm.Config(layers=2, heads=2, width=8, ffn=16, vocab=20, pad_vocab_to=1, length=6, dropout=0.0), fields
    )
    specs = tfm.seq2seq_specs(config)
    assert (specs.decoder.embed.tokens.shape, specs.decoder.embed.positions.shape) == ((20, 8), (6, 8))
    assert specs.encoder.embed.positions.shape == (6, 8)
    params = jax.tree.map(lambda leaf: 0.3 * leaf, fill(specs))
    lengths, target = jnp.array([7, 11], jnp.int32), jnp.array([[1, 2, 3], [4, 5, 6]])
    rest = jnp.arange(11)[None, :, None] >= lengths[:, None, None]
    valid = tfm.valid_frames(tfm.encoder_config(config), lengths)

    @jax.jit
    def logits(frames):
        return tfm.seq2seq(params, config, tfm.PaddedFrames(frames, lengths), target, valid)

    expected = logits(INPUTS)
    assert expected.shape == (2, 3, 20)
    np.testing.assert_allclose(logits(jnp.where(rest, 9.0, INPUTS)), expected, rtol=1e-4, atol=1e-5)
    assert np.abs(logits(INPUTS + 1) - expected).max() > 1e-3


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"input.convolutions": "3x4"}, "convolutions=3x4 must be WIDTHxSTRIDE, joined by commas, with strides of"),
        ({"input.convolutions": "3"}, "convolutions=3 must be WIDTHxSTRIDE"),
        ({"input.size": 0}, r"size=0 must be at least 1"),
        ({"input": "tokens", "encoder.input": "frames", "encoder.vocab": 9}, "vocab=9 is of a table of tokens that"),
        ({"mixer.pattern": "windows"}, "needs a grid of patches"),
    ],
)
def test_options_that_do_not_fit(values, message):
    base = tfm.override(CONFIG, {"input": "tokens"}) if "encoder.input" in values else CONFIG
    with pytest.raises(ValueError, match=message):
        tfm.override(base, values)


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        (INPUTS[:, :10], r"must have the shape \[B,11,3\] of what the model reads, not \[2, 10, 3\]; pad shorter"),
        (INPUTS.astype(jnp.int16), "must be floating-point numbers, not int16; convert and scale them"),
        ([1.0], r"must be an array \[B,T,C\], not a list; wrap it in jnp\.array"),
    ],
)
def test_arrays_that_are_no_frames(fill, frames, message):
    with pytest.raises(ValueError, match=message):
        tfm.embed(fill(tfm.embed_specs(CONFIG)), CONFIG, frames)


def test_frames_have_neither_sentences_nor_tokens_to_predict(fill):
    with pytest.raises(ValueError, match="types tell the sentences of a pair apart, and frames have none"):
        tfm.embed(fill(tfm.embed_specs(CONFIG)), CONFIG, INPUTS, types=jnp.zeros((2, 6), jnp.int32))
    with pytest.raises(ValueError, match="input=frames has no vocabulary to predict"):
        tfm.seq2seq_specs(CONFIG)

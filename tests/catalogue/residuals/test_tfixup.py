"""Initial values of T-Fixup against the paper's formulas."""

import numpy as np
import pytest
from oracles.residuals import start

import tfm

pytestmark = pytest.mark.slow

BASE = tfm.override(
    tfm.Config(layers=4, heads=4, width=64, vocab=500, pad_vocab_to=1, length=32),
    {"residual": "tfixup", "input.norm": False},
)


def std(leaf):
    return float(np.std(np.asarray(leaf)))


def xavier(inputs, outputs):
    """The standard deviation of Glorot and Bengio."""
    return (2 / (inputs + outputs)) ** 0.5


def check_block(block, scale, attention="mixer"):
    """Queries and keys are Xavier's; values, outputs and feed-forward layers `scale` times as large."""
    layer = getattr(block, attention)
    for name, gain in (("query", 1), ("key", 1), ("value", scale), ("output", scale)):
        np.testing.assert_allclose(std(getattr(layer, name).kernel), gain * xavier(64, 64), rtol=0.03)
    for name in ("up", "down"):
        np.testing.assert_allclose(std(getattr(block.feed_forward, name).kernel), scale * xavier(64, 256), rtol=0.03)
    assert not np.any(block.feed_forward.up.bias)


def check_embeddings(embed, layers, tables):
    """N(0, 1/D), scaled."""
    for name in tables:
        np.testing.assert_allclose(std(getattr(embed, name)), 64**-0.5 * (9 * layers) ** -0.25, rtol=0.05)


@pytest.mark.parametrize("layers", [4, 9])
def test_encoders(layers):
    """A decoder alone has the sublayers of an encoder, and its values."""
    config = tfm.override(BASE, {"layers": layers})
    params = start(tfm.encoder_specs(config))
    check_block(params.layers.period[0], 0.67 * layers**-0.25)
    check_embeddings(params.embed, layers, ["tokens", "positions"])
    assert params.norm is None
    assert params.layers.period[0].residual is None


def test_translators():
    """Each side has its own depth."""
    config = tfm.override(BASE, {"layers": 3, "encoder.layers": 6, "position": "sinusoidal"})
    params = start(tfm.seq2seq_specs(config))
    check_block(params.encoder.layers.period[0], 0.67 * 6**-0.25)
    check_block(params.decoder.layers.period[0], 27**-0.25)
    check_block(params.decoder.layers.period[0], 27**-0.25, "cross")
    check_embeddings(params.encoder.embed, 6, ["tokens"])


def test_tables_of_another_width_are_scaled_before_their_map():
    config = tfm.override(BASE, {"input.width": 16})
    embed = start(tfm.encoder_specs(config)).embed
    np.testing.assert_allclose(std(embed.tokens), 16**-0.5 * 36**-0.25, rtol=0.05)
    np.testing.assert_allclose(std(embed.projection.kernel), xavier(16, 64), rtol=0.05)


def test_a_norm_of_embeddings_is_refused():
    with pytest.raises(ValueError, match=r"^input.norm=true undoes .*; try input.norm=false$"):
        tfm.override(tfm.Config(), {"residual": "tfixup"})

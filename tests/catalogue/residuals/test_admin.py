"""Admin's scales after a batch, against a loop that adds up variances."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import residuals as oracle
from oracles.residuals import start

import tfm

pytestmark = pytest.mark.slow

CONFIG = tfm.override(
    tfm.Config(layers=4, heads=2, width=16, vocab=40, pad_vocab_to=1, length=8, dropout=0.0, init_std=0.2),
    {"residual": "admin"},
)
TOKENS = jnp.array([[1, 2, 3, 4], [5, 6, 7, 8]])


def test_scales_are_the_deviation_of_the_stream():
    params = start(tfm.masked_lm_specs(CONFIG))
    assert all((scale == 1).all() for scale in params.encoder.layers.period[0].residual.scales.values())
    calibrated = jax.jit(tfm.calibrate, static_argnums=1)(params, CONFIG, TOKENS)
    _, variances = oracle.encoder(
        oracle.unstacked(params.encoder.layers),
        oracle.embedded(params.encoder, CONFIG, TOKENS),
        lambda block, name, x, y: oracle.normalized(getattr(block.residual.norms, name), x + y),
    )
    expected = np.sqrt(1 + np.cumsum([0, *variances[:-1]])).reshape(4, 2)
    scales = calibrated.encoder.layers.period[0].residual.scales
    for index, name in enumerate(("mixer", "feed_forward")):
        np.testing.assert_allclose(scales[name], expected[:, index : index + 1] * np.ones(16), rtol=1e-4)
    assert expected[-1, -1] > 1.1


def test_shared_layers_are_refused():
    with pytest.raises(ValueError, match=r"^share_layers=true .*residual=admin.*; try residual=deepnorm$"):
        tfm.override(CONFIG, {"share_layers": True})


def test_a_decoder_counts_three_sublayers():
    params = start(tfm.seq2seq_specs(CONFIG))
    calibrated = jax.jit(tfm.calibrate, static_argnums=1)(params, CONFIG, TOKENS, TOKENS)
    scales = calibrated.decoder.layers.period[0].residual.scales
    ordered = np.stack([np.asarray(scales[name])[:, 0] for name in ("mixer", "cross", "feed_forward")], axis=1)
    assert (np.diff(ordered.ravel()) > 0).all()
    assert ordered[0, 0] == 1

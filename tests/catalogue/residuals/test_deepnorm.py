"""DeepNorm's alpha and beta for encoders, decoders and translators, against the table of the paper."""

import jax
import numpy as np
import pytest
from oracles.residuals import start

import tfm
from tfm.residuals import Sublayer

pytestmark = pytest.mark.slow

BASE = tfm.override(
    tfm.Config(layers=6, heads=4, width=64, vocab=40, pad_vocab_to=1, length=8, dropout=0.0), {"residual": "deepnorm"}
)


def alpha_of(block, config, names):
    """The scale of the stream, seen where a sublayer adds nothing and the norm is a fixed scale: x -> alpha x."""
    fixed = tfm.override(config, {"norm": "rms", "norm_eps": 1.0})
    residual = tfm.residual_of(fixed.residual)
    norms = tfm.init(residual.specs(fixed.residual, fixed, names), jax.random.key(0))
    x = 1e-4 * jax.random.normal(jax.random.key(1), (1, 2, 64))
    zero = Sublayer(lambda y: (0 * y, None), None)
    y, _ = residual.chain(tfm.LayerCall(fixed.residual, fixed, norms), x, dict.fromkeys(names, zero))
    return float((y / x).mean()) ** (1 / len(names))


def check(block, config, alpha, beta, names=("mixer", "feed_forward")):
    np.testing.assert_allclose(alpha_of(block, config, names), alpha, rtol=1e-4)
    for name, gain in (("query", 1), ("key", 1), ("value", beta), ("output", beta)):
        np.testing.assert_allclose(np.std(getattr(block.mixer, name).kernel), gain / 8, rtol=0.05)
    np.testing.assert_allclose(np.std(block.feed_forward.down.kernel), beta * (2 / 320) ** 0.5, rtol=0.05)


def test_encoders_and_decoders_alone():
    params = start(tfm.encoder_specs(BASE))
    check(params.layers.period[0], BASE, 12**0.25, 48**-0.25)


def test_translators():
    config = tfm.override(BASE, {"layers": 3, "encoder.layers": 12})
    params = start(tfm.seq2seq_specs(config))
    depth = 12**4 * 3
    reader = tfm.encoder_config(config)
    check(params.encoder.layers.period[0], reader, 0.81 * depth ** (1 / 16), 0.87 * depth ** (-1 / 16))
    check(params.decoder.layers.period[0], config, 9**0.25, 36**-0.25, ("mixer", "cross", "feed_forward"))


def test_a_layer_with_its_own_residual_knows_its_side_too():
    config = tfm.override(BASE, {"residual": "post", "period.0.residual": "deepnorm"})
    assert tfm.encoder_config(config).period[0].residual.alpha == pytest.approx(0.81 * (6**5) ** (1 / 16))


def test_options_take_the_place_of_the_table():
    config = tfm.override(BASE, {"residual.alpha": 3.0, "residual.beta": 0.5})
    params = start(tfm.encoder_specs(config))
    check(params.layers.period[0], config, 3.0, 0.5)
    with pytest.raises(ValueError, match=r"residual.beta=-1.0 must be at least 0"):
        tfm.override(BASE, {"residual.beta": -1.0})

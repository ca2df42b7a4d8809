import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm
from tfm.interfaces import Block
from tfm.residuals import SUBLAYERS
from tfm.tables.calibrations import CALIBRATIONS

pytestmark = pytest.mark.usefixtures("strict")

BASE = tfm.override(
    tfm.Config(layers=3, heads=2, width=8, vocab=20, pad_vocab_to=1, length=8, dropout=0.0), {"period": 2}
)
TOKENS = jnp.array([[1, 2, 3, 4], [5, 6, 7, 8]])


@pytest.fixture
def recorded(monkeypatch):
    """A scheme whose scales become the variances of what the sublayers before them have added."""

    def calibrate(options, config, blocks, profile):
        total, results = jnp.zeros(()), []
        for block, outputs in zip(blocks, profile.branches, strict=True):
            norms, scales = block.residual, {}
            for name in (name for name in SUBLAYERS if name in outputs):
                scales[name] = getattr(norms, name).replace(scale=jnp.full(config.width, total))
                total = total + outputs[name].var()
            results.append(block.replace(residual=norms.replace(**scales)))
        return results

    monkeypatch.setitem(CALIBRATIONS, "post", calibrate)


@pytest.mark.slow
def test_other_models_are_returned_as_they_are():
    params = tfm.init(tfm.masked_lm_specs(BASE), jax.random.key(0))
    assert tfm.calibrate(params, BASE, TOKENS) is params


@pytest.mark.slow
def test_residual_parameters_are_set_by_what_the_layers_add(recorded):
    """Against a loop over the layers; all other parameters stay."""
    params = tfm.init(tfm.causal_lm_specs(BASE), jax.random.key(0))
    calibrated = tfm.calibrate(params, BASE, TOKENS)
    kind, config = BASE.kinds[0], BASE
    context = tfm.AttentionContext(tfm.default_positions(TOKENS), causal=True)
    context = tfm.prepare_layers(context, config)
    x, total = tfm.embed(params.decoder.embed, config, TOKENS), 0.0
    rows = [jax.tree.map(lambda leaf: leaf[0], tree) for tree in params.decoder.layers.period]
    new_rows = [jax.tree.map(lambda leaf: leaf[0], tree) for tree in calibrated.decoder.layers.period]
    for block, new_block in zip(
        [*rows, *params.decoder.layers.tail], [*new_rows, *calibrated.decoder.layers.tail], strict=True
    ):
        attended = tfm.multi_head_attention(block.mixer, config, x, tfm.causal())
        np.testing.assert_allclose(new_block.residual.mixer.scale, np.full(8, total), rtol=1e-4, atol=1e-6)
        total += float(attended.var())
        np.testing.assert_allclose(new_block.residual.feed_forward.scale, np.full(8, total), rtol=1e-4)
        middle = tfm.layer_norm(block.residual.mixer, x + attended, config.norm_eps)
        total += float(tfm.feed_forward(block.feed_forward, config, middle).var())
        x, _ = tfm.transformer_block(block, kind, config, x, context)
    same = jax.tree.map(jnp.array_equal, params.replace(decoder=None), calibrated.replace(decoder=None))
    assert all(jax.tree.leaves(same))
    assert isinstance(calibrated.decoder.layers.period[0], Block)


@pytest.mark.slow
def test_translators_too(recorded):
    params = tfm.init(tfm.seq2seq_specs(BASE), jax.random.key(0))
    calibrated = tfm.calibrate(params, BASE, TOKENS, TOKENS)
    assert jax.tree.structure(calibrated) == jax.tree.structure(params)
    cross = calibrated.decoder.layers.period[1].residual.cross.scale
    assert (np.asarray(cross) > 0).all()

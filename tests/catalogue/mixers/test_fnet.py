"""FNet: what stands in padding is never seen."""

import jax.numpy as jnp
import numpy as np
import pytest
from variants import VARIANTS

import tfm

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("reads_padding", [False, True])
def test_padding_counts_as_zeros_or_as_it_is(reads_padding):
    config = tfm.override(VARIANTS["fnet"].config, {"mixer.reads_padding": reads_padding})
    mixer = tfm.mixer_of(config.mixer)
    x = np.random.default_rng(0).normal(size=(1, 6, 16)).astype(np.float32)
    context = tfm.AttentionContext(jnp.arange(6)[None], tfm.padding(jnp.arange(6)[None] < 4))
    call = tfm.LayerCall(config.mixer, config, None, mixer.prepare(tfm.LayerCall(config.mixer, config), context), None)
    y, _ = mixer.forward(call, jnp.asarray(x), None, None)
    x[:, 4:] *= reads_padding
    np.testing.assert_allclose(y, np.fft.fft2(x).real, rtol=1e-5, atol=1e-5)

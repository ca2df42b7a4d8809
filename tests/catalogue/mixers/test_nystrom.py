"""Nystromformer: as many landmarks as tokens are attention; padding is never averaged."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from variants import VARIANTS

import tfm
from tfm.catalogue.mixers.fewer_keys.nystrom import landmark_shares, nystrom, pseudo_inverse
from tfm.catalogue.options.mixers.fewer_keys import Nystrom

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(0)
Q = jax.device_put(np.float32(RNG.normal(size=(2, 6, 2, 2, 4))))
K, V = (jax.device_put(np.float32(RNG.normal(size=(2, 6, 2, 4)))) for _ in range(2))


def test_as_many_landmarks_as_tokens_are_attention():
    np.testing.assert_allclose(nystrom(Q, K, V, Nystrom(6, 40)), tfm.attend(Q, K, V), rtol=1e-2, atol=1e-3)


def test_a_text_without_tokens_is_finite():
    valid = jnp.zeros((2, 6), bool)
    assert jnp.isfinite(nystrom(Q, K, V, Nystrom(3), valid)).all()


def test_tokens_of_landmarks():
    """Five tokens around padding for three landmarks: 2, 2 and 1; two tokens: a landmark each."""
    valid = jnp.array([[1, 1, 0, 1, 1, 1, 0], [0, 1, 0, 0, 0, 1, 0]], bool)
    shares = landmark_shares(valid, 7, 3)
    segments = np.where(shares.any(2), shares.argmax(2), -1)
    assert segments.tolist() == [[0, 0, -1, 1, 1, 2, -1], [-1, 0, -1, -1, -1, 1, -1]]


def layer_of(**values):
    """A mixer of these options, and its output for random states, the last two of which are padding."""
    config = tfm.override(VARIANTS["nystrom"].config, {f"mixer.{name}": value for name, value in values.items()})
    mixer = tfm.mixer_of(config.mixer)
    specs = mixer.specs(config.mixer, config)
    rng = np.random.default_rng(2)
    params = jax.tree.map(lambda spec: jax.device_put(np.float32(0.5 * rng.normal(size=spec.shape))), specs)
    x = rng.normal(size=(2, 6, 16)).astype(np.float32)

    def run(x):
        context = tfm.AttentionContext(jnp.arange(6)[None], tfm.padding(jnp.arange(6)[None] < 4))
        call = tfm.LayerCall(
            config.mixer, config, params, mixer.prepare(tfm.LayerCall(config.mixer, config), context), None
        )
        return mixer.forward(call, jnp.asarray(x), lambda q, k, projections: (q, k, None), None)[0]

    return params, x, run


def test_without_landmarks_attention_is_exact():
    """Softmax attention to the tokens, and the convolution."""
    params, x, run = layer_of(landmarks=None)
    q, k, v = oracles.heads(params.attention, x.astype(np.float64))
    scores = np.einsum("btkgh,bskgh->bkgts", q, k)[..., :4] * q.shape[-1] ** -0.5
    mixed = np.einsum("bkgts,bskgh->btkgh", oracles.softmax(scores), v[:, :4])
    padded = np.pad(v[:, :4], ((0, 0), (2, 4), (0, 0), (0, 0), (0, 0)))
    for place, kernel in enumerate(np.asarray(params.convolution)):
        mixed += padded[:, place : place + 6] * kernel[:, None, None]
    np.testing.assert_allclose(run(x), oracles.output(params.attention, mixed), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("landmarks", [None, 2])
def test_padding_is_read_where_an_option_says_so(landmarks):
    for reads_padding in (False, True):
        _, x, run = layer_of(landmarks=landmarks, reads_padding=reads_padding)
        changed = x.copy()
        changed[:, 4:] += 1
        is_same = np.allclose(run(x)[:, :4], run(changed)[:, :4], atol=1e-5)
        assert is_same != reads_padding


def test_iterations_that_start_from_one_number():
    """The largest sum of a column of all matrices divides their transposes."""
    a = np.exp(np.random.default_rng(3).normal(size=(2, 3, 4, 4)))
    a = a / a.sum(-1, keepdims=True)
    z = np.swapaxes(a, -1, -2) / a.sum(-2).max()
    for _ in range(2):
        az = a @ z
        z = z @ (13 * np.eye(4) - az @ (15 * np.eye(4) - az @ (7 * np.eye(4) - az))) / 4
    actual = pseudo_inverse(jnp.asarray(a, jnp.float32), 2, shared_start=True)
    np.testing.assert_allclose(actual, z, rtol=1e-5, atol=1e-5)
    assert not np.allclose(pseudo_inverse(jnp.asarray(a, jnp.float32), 2), z, atol=1e-3)

"""Bidirectional language models, Skip-Thought and features of layers, by gradients and against numpy."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm

pytestmark = pytest.mark.usefixtures("strict")

BASE = tfm.Config(layers=2, heads=2, width=8, ffn=8, vocab=30, pad_vocab_to=32, dropout=0.0, init_std=0.5)
ELMO = tfm.override(
    BASE,
    {
        "mixer": "lstm",
        "mixer.size": 6,
        "mixer.projection": 4,
        "mixer.output": False,
        "mixer.clip": 3.0,
        "mixer.bidirectional": True,
        "mixer.separate": True,
        "position": "none",
        "residual": "mixer_only",
        "residual.skip": True,
        "prefix": 1,
        "prefix.0.residual": "mixer_only",
        "input.width": 4,
        "input.projection": "repeat",
        "input.norm": False,
        "input.token_types": None,
    },
)
SKIP = tfm.override(
    BASE,
    {
        "layers": 1,
        "mixer": "gru",
        "mixer.output": False,
        "position": "none",
        "residual": "mixer_only",
        "input.width": 4,
        "input.norm": False,
        "input.token_types": None,
        "head.pool": "last",
    },
)
TOKENS = jnp.array([[5, 9, 0, 7, 11, 3], [1, 2, 3, 4, 5, 6]])


def params_of(specs):
    return jax.jit(lambda: tfm.init(specs, jax.random.key(0)))()


@pytest.mark.slow
def test_directions_never_meet():
    """By gradient: states of the left half depend on embeddings before them alone, those of the right half on later
    ones."""
    params = params_of(tfm.bidirectional_lm_specs(ELMO))
    context = tfm.AttentionContext(tfm.default_positions(TOKENS[:1]), restarts=False)
    x = tfm.embed(params.encoder.embed, ELMO, TOKENS[:1])
    jacobian = jax.jit(jax.jacrev(lambda x: tfm.stack(params.encoder, ELMO, x, context)[0]))(x)
    influence = np.abs(jacobian[0, :, :, 0]).max(3)  # [T, D, S]
    forward, backward = influence[:, :4].max(1), influence[:, 4:].max(1)
    np.testing.assert_array_equal(forward > 0, np.tril(np.ones((6, 6))) > 0)
    np.testing.assert_array_equal(backward > 0, np.triu(np.ones((6, 6))) > 0)


@pytest.mark.slow
def test_both_directions_read_the_same_embeddings():
    params = params_of(tfm.bidirectional_lm_specs(ELMO))
    x = tfm.embed(params.encoder.embed, ELMO, TOKENS)
    expected = np.asarray(params.encoder.embed.tokens)[TOKENS]
    np.testing.assert_allclose(x, np.concatenate([expected, expected], axis=-1), rtol=1e-6)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mixer": "softmax"}, "mixer=softmax lets both directions of reading meet; try mixer=lstm with"),
        ({"residual": "pre"}, "residual=pre lets both directions of reading meet; try residual=mixer_only"),
        ({"input.width": 8}, "input.width=8 must be half of width=8"),
    ],
)
def test_models_in_which_directions_meet_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        tfm.bidirectional_lm_specs(tfm.override(ELMO, values))


def test_sampled_loss():
    """Against loops: a sample counts as often as it is less frequent than a draw of it."""
    rng = np.random.default_rng(0)
    x, table, bias = rng.normal(size=(2, 3, 4)), rng.normal(size=(9, 4)), rng.normal(size=9)
    targets, weights = rng.integers(0, 9, (2, 3)), rng.random((2, 3))
    samples = np.array([[3, 8, 1, 0], [0, 5, 0, 2]])
    shares = np.log((np.arange(9) + 2) / (np.arange(9) + 1)) / np.log(10)
    np.testing.assert_allclose(np.exp(tfm.log_uniform(jnp.arange(9), 9)), shares, rtol=1e-5)
    expected = 0.0
    for b, t in np.ndindex(2, 3):
        target = targets[b, t]
        score = lambda k, b=b, t=t: np.exp(x[b, t] @ table[k] + bias[k])
        rest = sum(score(k) / (8 * shares[k]) for k in samples.ravel() if k != target)
        expected += weights[b, t] * (np.log(score(target) + rest) - np.log(score(target)))
    arrays = [jnp.asarray(array, jnp.float32) for array in (table, bias, x)]
    fields = jnp.asarray(targets), jnp.asarray(weights, jnp.float32), jnp.asarray(samples)
    loss = jax.jit(lambda *arguments: tfm.sampled_loss(*arguments, 9))
    np.testing.assert_allclose(loss(*arrays, *fields), expected, rtol=1e-5)


@pytest.mark.slow
def test_the_vector_of_a_sentence_is_the_state_that_has_read_it():
    """Padding changes nothing; in two directions each half is from its own end."""
    for values, pool in (({}, "last"), ({"mixer.bidirectional": True}, "ends")):
        config = tfm.override(SKIP, {**values, "head.pool": pool})
        params = params_of(tfm.skip_thought_specs(config))
        valid = jnp.arange(6)[None] < jnp.array([[4], [6]])
        vectors = tfm.sentence_vector(params, config, TOKENS, valid)
        alone = tfm.encoder(params.encoder, config, TOKENS[:1, :4])[0]
        expected = alone[-1] if pool == "last" else jnp.concatenate([alone[-1, :4], alone[0, 4:]])
        np.testing.assert_allclose(vectors[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_decoders_read_the_vector_and_earlier_tokens():
    """Kiros et al. 2015, eq. 5 to 8, by loops."""
    params = params_of(tfm.skip_thought_specs(SKIP))
    vector = jax.device_put(np.float32(np.random.default_rng(0).normal(size=(2, 8))))
    actual = tfm.write_sentence(params, params.following, SKIP, TOKENS, vector)
    layer = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64)[0], params.following.layers.period[0].mixer)
    embedded = np.asarray(tfm.embed(params.encoder.embed, SKIP, TOKENS), np.float64)
    for b in range(2):
        state = np.zeros(8)
        for t in range(6):
            read = np.einsum("d,dgr->gr", embedded[b, t], layer.input.kernel[:, 0]) + layer.input.bias[0]
            read += np.einsum("d,dgr->gr", np.asarray(vector[b], np.float64), layer.condition.kernel[:, 0])
            recalled = np.einsum("s,sgr->gr", state, layer.hidden[0])
            reset, update = (1 / (1 + np.exp(-read[gate] - recalled[gate])) for gate in range(2))
            candidate = np.tanh(read[2] + reset * recalled[2])
            state = update * state + (1 - update) * candidate
            expected = state @ np.asarray(params.dense.kernel, np.float64) + np.asarray(params.dense.bias)
            np.testing.assert_allclose(actual[b, t], expected, rtol=1e-4, atol=1e-5)


def test_layers_that_read_no_vector_are_refused():
    with pytest.raises(ValueError, match="mixer=softmax reads no vector of another text; try mixer=gru"):
        tfm.skip_thought_specs(BASE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "causal"),
    [
        ("mix", False),
        ("concat", True),
        ("mix", True),
        ("sum", False),
        ("sum", True),
        ("concat", False),
    ],
)
def test_features(kind, causal):
    """A softmax that has one layer left gives that layer, times the factor; sums and concatenations, by numpy."""
    config = tfm.override(BASE, {"head.features": kind, "head.feature_layers": 2, "head.causal": causal, "classes": 3})
    params = params_of(tfm.classifier_specs(config))
    valid = jnp.arange(6)[None] < jnp.array([[4], [6]])
    mix = params.mix
    if kind == "mix":
        np.testing.assert_array_equal(mix.weights, np.zeros(3))
        mix = tfm.LayerMix(jnp.array([0.0, 100.0, 0.0]), jnp.float32(2.5))
    mask = tfm.padding(valid)
    actual = jax.jit(lambda params: tfm.features(params, mix, config, TOKENS, mask))(params.encoder)
    states = jax.jit(lambda params: tfm.hidden_states(params, config, TOKENS, mask, causal=causal))(params.encoder)
    expected = {
        "mix": lambda: 2.5 * states[1],
        "sum": lambda: states[1] + states[2],
        "concat": lambda: np.concatenate(states[1:], axis=-1),
    }
    np.testing.assert_allclose(actual, expected[kind](), rtol=1e-5, atol=1e-6)
    classes = jax.eval_shape(lambda params: tfm.classify(params, config, TOKENS, valid), params)
    assert classes.shape == (2, 3)
    labels = jax.eval_shape(lambda specs: tfm.classify_tokens(specs, config, TOKENS, valid), tfm.tagger_specs(config))
    assert labels.shape == (2, 6, 3)


def test_more_layers_than_there_are_are_refused():
    with pytest.raises(ValueError, match="head.feature_layers=4 are more than the 2 layers and the embeddings"):
        dataclasses.replace(BASE, head=tfm.Head(features="sum"))

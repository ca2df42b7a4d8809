"""GRUs and LSTMs; that they are their definitions, reset at segments and skip padding is in the contracts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm

pytestmark = pytest.mark.slow

CONFIG = tfm.Config(layers=2, heads=2, width=6, ffn=8, vocab=60, dropout=0.0)


def mixer_and_params(tag, **values):
    """A mixer, its configuration and parameters."""
    config = tfm.override(CONFIG, {"mixer": tag, **{f"mixer.{name}": value for name, value in values.items()}})
    mixer = tfm.mixer_of(config.mixer)
    return mixer, config, jax.jit(lambda: tfm.init(mixer.specs(config.mixer, config), jax.random.key(0)))()


def test_hidden_matrices_are_orthogonal_and_lstms_remember_at_first():
    _, _, params = mixer_and_params("lstm", size=5)
    for gate in range(4):
        matrix = params.hidden[0, :, gate]
        np.testing.assert_allclose(matrix @ matrix.T, np.eye(5), atol=1e-5)
    np.testing.assert_array_equal(params.input.bias[0], np.array([[0.0], [1.0], [0.0], [0.0]]) * np.ones(5))


@pytest.mark.parametrize("tag", ["gru", "lstm"])
def test_a_decode_state_has_a_constant_size(tag):
    config = tfm.override(CONFIG, {"mixer": tag, "mixer.size": 5})
    model = tfm.abstract(tfm.encoder_specs(config))
    tokens = jax.ShapeDtypeStruct((3, 4), jnp.int32)
    shapes = {
        slots: jax.eval_shape(
            lambda model, tokens, slots=slots: tfm.prefill(model, config, tokens, jnp.zeros(3, jnp.int32), slots)[1],
            model,
            tokens,
        ).states
        for slots in (8, 500)
    }
    assert shapes[8] == shapes[500]
    assert {leaf.shape for leaf in jax.tree.leaves(shapes[8])} == {(2, 3, 5)}


def test_a_decoder_refuses_two_directions():
    config = tfm.override(CONFIG, {"mixer": "gru", "mixer.bidirectional": True})
    params = tfm.abstract(tfm.encoder_specs(config))
    with pytest.raises(tfm.VariantError, match=r"gru with bidirectional=true.*mixer.bidirectional=false"):
        jax.eval_shape(lambda params: tfm.decoder(params, config, jnp.zeros((1, 4), jnp.int32)), params)


@pytest.mark.parametrize("tag", ["gru", "lstm", "lightconv", "dynamicconv", "gmlp", "synthesizer"])
def test_positions_in_scores_are_refused_where_there_are_no_scores(tag):
    config = tfm.override(CONFIG, {"mixer": tag, "position": "alibi"})
    params = tfm.abstract(tfm.encoder_specs(config))
    with pytest.raises(tfm.VariantError, match=f"{tag} has no scores of queries and keys for positions to change"):
        jax.eval_shape(lambda params: tfm.encoder(params, config, jnp.zeros((1, 4), jnp.int32)), params)


@pytest.mark.parity
@pytest.mark.parametrize("tag", ["gru", "lstm"])
def test_torch_computes_the_same(tag):
    """Both directions, with the gates in torch's order."""
    torch = pytest.importorskip("torch")
    mixer, config, params = mixer_and_params(tag, size=5, bidirectional=True)
    gates = {"gru": [0, 1, 2], "lstm": [0, 1, 3, 2]}[tag]
    layer = {"gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[tag](6, 5, bidirectional=True, batch_first=True)

    def rows(leaf):
        return torch.tensor(np.asarray(leaf)[gates].reshape(len(gates) * 5, -1))

    with torch.no_grad():
        for n, suffix in enumerate(["", "_reverse"]):
            getattr(layer, f"weight_ih_l0{suffix}").copy_(rows(np.moveaxis(params.input.kernel[:, n], 0, -1)))
            getattr(layer, f"weight_hh_l0{suffix}").copy_(rows(np.moveaxis(params.hidden[n], 0, -1)))
            getattr(layer, f"bias_ih_l0{suffix}").copy_(rows(params.input.bias[n])[:, 0])
            getattr(layer, f"bias_hh_l0{suffix}").zero_()
        x = np.random.default_rng(0).normal(size=(2, 7, 6)).astype(np.float32)
        states = layer(torch.tensor(x))[0].numpy().reshape(2, 7, 2, 5)
    expected = np.einsum("btnr,nrd->btd", states, params.output.kernel) + np.asarray(params.output.bias)
    prepared = mixer.prepare(config.mixer, config, tfm.AttentionContext(jnp.arange(7)[None]))
    y, _ = mixer.forward(tfm.LayerCall(config.mixer, config, params, prepared, None), x, None, None)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)

"""GRUs and LSTMs; that they are their definitions, reset at segments and skip padding is in the contracts."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params
from small import FLAGS, write_text

import tfm

pytestmark = pytest.mark.slow

CONFIG = tfm.Config(layers=2, heads=2, width=6, ffn=8, vocab=60, dropout=0.0)


def mixer_and_params(tag, **values):
    """A mixer, its configuration and parameters."""
    config = tfm.override(CONFIG, {"mixer": tag, **{f"mixer.{name}": value for name, value in values.items()}})
    mixer = tfm.mixer_of(config.mixer)
    return mixer, config, random_params(mixer.specs(config.mixer, config))


def test_hidden_matrices_are_orthogonal_and_lstms_remember_at_first():
    mixer, config, _ = mixer_and_params("lstm", size=5)
    params = tfm.init(mixer.specs(config.mixer, config), jax.random.key(0))
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


@pytest.mark.parametrize("tag", ["gru", "lstm"])
def test_a_vector_of_another_text_is_asked_for(tag):
    config = tfm.override(CONFIG, {"mixer": tag, "mixer.condition": True})
    params = tfm.abstract(tfm.encoder_specs(config))
    with pytest.raises(tfm.VariantError, match=f"{tag} with condition=true reads a vector of another text"):
        jax.eval_shape(lambda params: tfm.decoder(params, config, jnp.zeros((1, 4), jnp.int32)), params)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"separate": True}, "separate=true keeps two directions apart; add bidirectional=true"),
        ({"output": False, "size": 5}, "states the stream, and they are 5, not width=6; change mixer.size"),
        ({"output": False, "projection": 3}, "states the stream, and they are 3, not width=6"),
        ({"clip": 0.0}, "clip=0.0 must be more than 0; for no limit say none"),
    ],
)
def test_options_that_do_not_fit_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        tfm.override(CONFIG, {"mixer": "lstm", **{f"mixer.{name}": value for name, value in values.items()}})


def test_cells_and_projections_are_clipped():
    """Sizes that only a limit keeps small: a stream of large numbers, and weights that add them up."""
    mixer, config, params = mixer_and_params("lstm", size=4, projection=3, clip=0.25)
    params = jax.tree.map(lambda leaf: jnp.full_like(leaf, 2.0), params)
    prepared = mixer.prepare(
        tfm.LayerCall(config.mixer, config), tfm.AttentionContext(jnp.arange(5)[None], causal=True, keep=True)
    )
    call = tfm.LayerCall(config.mixer, config, params, prepared, None)
    state = mixer.forward(call, jnp.full((1, 5, 6), 9.0), None, None)[1].state
    np.testing.assert_array_equal(state.cell, np.full((1, 4), 0.25, np.float32))
    np.testing.assert_array_equal(state.hidden, np.full((1, 3), 0.25, np.float32))


@pytest.mark.parity
@pytest.mark.parametrize(("tag", "projection"), [("gru", None), ("lstm", None), ("lstm", 4)])
def test_torch_computes_the_same(tag, projection):
    """Both directions, values and gradients, with the gates in torch's order."""
    torch = pytest.importorskip("torch")
    values = {"projection": projection} if projection else {}
    mixer, config, params = mixer_and_params(tag, size=5, bidirectional=True, **values)
    gates, size = {"gru": [0, 1, 2], "lstm": [0, 1, 3, 2]}[tag], projection or 5
    options = {"proj_size": projection} if projection else {}
    layer = {"gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[tag](6, 5, bidirectional=True, batch_first=True, **options)

    def rows(leaf):
        return np.asarray(leaf)[gates].reshape(len(gates) * 5, -1)

    def in_torch(params):
        """The leaves of both directions by torch's names."""
        leaves = {}
        for n, suffix in enumerate(["", "_reverse"]):
            leaves[f"weight_ih_l0{suffix}"] = rows(np.moveaxis(params.input.kernel[:, n], 0, -1))
            leaves[f"weight_hh_l0{suffix}"] = rows(np.moveaxis(params.hidden[n], 0, -1))
            leaves[f"bias_ih_l0{suffix}"] = rows(params.input.bias[n])[:, 0]
            if projection:
                leaves[f"weight_hr_l0{suffix}"] = np.asarray(params.projection[n]).T
        return leaves

    for name, leaf in layer.named_parameters():
        leaf.data.copy_(torch.tensor(in_torch(params).get(name, np.zeros(leaf.shape, np.float32))))
    rng = np.random.default_rng(0)
    x, slopes = rng.normal(size=(2, 7, 6)).astype(np.float32), rng.normal(size=(2, 7, 6)).astype(np.float32)
    inputs = torch.tensor(x, requires_grad=True)
    states = layer(inputs)[0].reshape(2, 7, 2, size)
    kernel, bias = (torch.tensor(np.asarray(leaf)) for leaf in (params.output.kernel, params.output.bias))
    expected = torch.einsum("btnr,nrd->btd", states, kernel) + bias
    (expected * torch.tensor(slopes)).sum().backward()
    prepared = mixer.prepare(tfm.LayerCall(config.mixer, config), tfm.AttentionContext(jnp.arange(7)[None]))

    def weighted(params, x):
        y = mixer.forward(tfm.LayerCall(config.mixer, config, params, prepared, None), x, None, None)[0]
        return (y * slopes).sum(), y

    (_, y), gradients = jax.jit(jax.value_and_grad(weighted, argnums=(0, 1), has_aux=True))(params, x)
    np.testing.assert_allclose(y, expected.detach().numpy(), atol=1e-5)
    np.testing.assert_allclose(gradients[1], inputs.grad.numpy(), atol=1e-5)
    for name, gradient in in_torch(gradients[0]).items():
        np.testing.assert_allclose(gradient, getattr(layer, name).grad.numpy(), rtol=1e-5, atol=1e-5, err_msg=name)


def test_a_run_on_two_devices_begins(tmp_path):
    """In a process of its own, which has a device for each core: what starts the parameters may not wait for ever."""
    write_text(tmp_path / "text.txt")
    words = [*FLAGS, "--task=lm", "--model.mixer=gru", "--steps=1", "--eval.final=false", "--out=run"]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "train.main", *words]
    result = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr

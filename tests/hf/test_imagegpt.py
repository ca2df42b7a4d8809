"""Folders of ImageGPT: what transformers computes, ours computes, in both directions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm

pytestmark = pytest.mark.parity

# 20 colours, a start token, images of 4 x 4 pixels.
FIELDS = dict(vocab_size=21, n_embd=24, n_layer=3, n_head=3, n_positions=16, num_labels=5)
HEADS = {"ForCausalImageModeling": tfm.causal_lm, "ForImageClassification": tfm.classify}


@pytest.fixture(params=HEADS)
def torch_model(request):
    import torch
    import transformers

    torch.manual_seed(0)
    model = getattr(transformers, f"ImageGPT{request.param}")(transformers.ImageGPTConfig(**FIELDS)).eval()
    with torch.no_grad():
        for values in model.parameters():
            values.copy_(0.3 * torch.randn_like(values) + (values.ndim == 1))
    return model


def pixels():
    return np.random.default_rng(0).integers(0, 21, (2, 16))


def torch_logits(model):
    import torch

    with torch.no_grad():
        return model(torch.from_numpy(pixels())).logits.numpy()


def our_logits(model, config, params):
    predict = next(predict for name, predict in HEADS.items() if type(model).__name__.endswith(name))
    return np.asarray(jax.jit(predict, static_argnums=1)(params, config, jnp.asarray(pixels(), jnp.int32)))


def assert_near(actual, expected):
    """Of the colours: the start token is never predicted."""
    assert (actual[..., expected.shape[-1] :] < -1e9).all()
    np.testing.assert_allclose(actual[..., : expected.shape[-1]], expected, rtol=1e-4, atol=1e-4)


def test_a_folder_of_transformers_is_read(torch_model, tmp_path):
    torch_model.save_pretrained(tmp_path)
    config, params = tfm.from_hf(tmp_path)
    assert (config.vocab, config.outputs, config.length, config.norm) == (21, 20, 16, "rms")
    assert_near(our_logits(torch_model, config, params), torch_logits(torch_model))


def test_a_folder_of_ours_is_read_by_transformers(torch_model, tmp_path):
    torch_model.save_pretrained(tmp_path / "hf")
    config, params = tfm.from_hf(tmp_path / "hf")
    params = jax.tree.map(lambda leaf: leaf * 1.1, params)
    tfm.to_hf(config, params, tmp_path / "ours", like=tmp_path / "hf")
    again, restored = tfm.from_hf(tmp_path / "ours")
    assert again == config
    assert jax.tree.all(jax.tree.map(lambda leaf, same: bool((leaf == same).all()), params, restored))
    model = type(torch_model).from_pretrained(tmp_path / "ours").eval()
    assert_near(our_logits(torch_model, config, params), torch_logits(model))


def test_states_of_a_layer_are_those_of_transformers(torch_model, tmp_path):
    """A probe reads h_2 by the norm of the layer after it."""
    import torch

    torch_model.save_pretrained(tmp_path)
    config, params = tfm.from_hf(tmp_path)
    stack = params.decoder if isinstance(params, tfm.CausalLM) else params.encoder
    with torch.no_grad():
        states = torch_model.transformer(torch.from_numpy(pixels()), output_hidden_states=True).hidden_states[2]
        expected = torch_model.transformer.h[2].ln_1(states).numpy()
    part, part_config = tfm.first_layers(stack, config, 2)
    np.testing.assert_allclose(tfm.decoder(part, part_config, jnp.asarray(pixels(), jnp.int32)), expected, atol=1e-4)


def test_what_transformers_cannot_say_is_refused(torch_model, tmp_path):
    torch_model.save_pretrained(tmp_path / "hf")
    config, params = tfm.from_hf(tmp_path / "hf")
    with pytest.raises(ValueError, match="head.layer"):
        tfm.to_hf(tfm.override(config, {"head.layer": 2}), params, tmp_path / "ours")

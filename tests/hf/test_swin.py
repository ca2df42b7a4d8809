"""Folders of Swin and Swin V2: what transformers computes, ours computes, in both directions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm
from tfm.catalogue.options.patterns import Windows

pytestmark = pytest.mark.parity

# Grids of 12 x 12, 6 x 6 and 3 x 3 patches: windows do not divide all of them, and the last is one window.
FIELDS = dict(
    image_size=48, patch_size=4, embed_dim=8, depths=[2, 3, 1], num_heads=[2, 4, 2], window_size=4, num_labels=5,
    drop_path_rate=0.0,
)  # fmt: skip
CLASSES = {"swin": "Swin", "swinv2": "Swinv2"}


@pytest.fixture(params=CLASSES)
def torch_model(request):
    import torch
    import transformers

    name = CLASSES[request.param]
    # Of windows larger than a grid, transformers' Swin cannot compute the bias.
    fields = FIELDS | ({"window_size": 2} if name == "Swin" else {})
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}ForImageClassification")(
        getattr(transformers, f"{name}Config")(**fields)
    ).eval()
    with torch.no_grad():
        for values in model.parameters():
            values.copy_(0.3 * torch.randn_like(values) + (values.ndim == 1))
    return model


def images():
    return np.random.default_rng(0).normal(size=(2, 48, 48, 3)).astype(np.float32)


def logits_of(model):
    import torch

    with torch.no_grad():
        return model(torch.from_numpy(images().transpose(0, 3, 1, 2))).logits.numpy()


def assert_near(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_a_folder_of_transformers_is_read(torch_model, tmp_path):
    torch_model.save_pretrained(tmp_path)
    config, params = tfm.from_hf(tmp_path)
    assert [stage.layers for stage in config.stage_configs] == [2, 3, 1]
    assert config.stage_configs[-1].width == torch_model.config.hidden_size
    assert_near(jax.jit(tfm.classify, static_argnums=1)(params, config, jnp.asarray(images())), logits_of(torch_model))


def test_a_folder_of_ours_is_read_by_transformers(torch_model, tmp_path):
    import transformers

    torch_model.save_pretrained(tmp_path / "hf")
    config, params = tfm.from_hf(tmp_path / "hf")
    params = jax.tree.map(lambda leaf: leaf * 1.1, params)
    tfm.to_hf(config, params, tmp_path / "ours")
    again, restored = tfm.from_hf(tmp_path / "ours")
    assert again == config
    assert jax.tree.all(jax.tree.map(lambda leaf, same: bool((leaf == same).all()), params, restored))
    model = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "ours").eval()
    expected = jax.jit(tfm.classify, static_argnums=1)(params, config, jnp.asarray(images()))
    assert_near(logits_of(model), expected)


def test_windows_that_transformers_cannot_say_are_refused(torch_model, tmp_path):
    torch_model.save_pretrained(tmp_path / "hf")
    config, params = tfm.from_hf(tmp_path / "hf")
    assert isinstance(config.mixer.pattern, Windows)
    unshifted = tfm.override(config, {"period.1.mixer.pattern.shift": 0})
    with pytest.raises(ValueError, match="layers.1.mixer.pattern.shift=0"):
        tfm.to_hf(unshifted, params, tmp_path / "ours")

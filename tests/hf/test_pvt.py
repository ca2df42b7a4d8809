"""Folders of PVT and SegFormer: what transformers computes, ours computes, in both directions."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm
from tfm.hf import FAMILIES
from tfm.hf.match import conflicts_of
from tfm.models.encoder import stage_states

# Four stages; of PVT the last is one patch with [CLS], of SegFormer the grids are odd: 24, 12, 6, 3 of 48 pixels.
SIZES = dict(
    num_encoder_blocks=4, depths=[1, 2, 1, 2], hidden_sizes=[8, 12, 20, 32], num_attention_heads=[1, 3, 2, 4],
    mlp_ratios=[3, 2, 4, 2], num_labels=5, num_channels=3,
)  # fmt: skip
FIELDS = {
    "pvt": SIZES | dict(image_size=32, sequence_reduction_ratios=[8, 4, 2, 1], layer_norm_eps=1e-3, hidden_act="relu"),
    "segformer": SIZES | dict(image_size=48, sr_ratios=[8, 6, 2, 3], patch_sizes=[7, 5, 3, 5], strides=[2, 2, 2, 2]),
}
SEGMENTATION = "SegformerForSemanticSegmentation"
CLASSES = {"pvt": "Pvt", "segformer": "Segformer"}


@pytest.fixture(params=CLASSES)
def torch_model(request):
    import torch
    import transformers

    name = CLASSES[request.param]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**FIELDS[request.param])
    model = getattr(transformers, f"{name}ForImageClassification")(config).eval()
    with torch.no_grad():
        for values in model.parameters():
            values.copy_(0.3 * torch.randn_like(values) + (values.ndim == 1))
    return model


def images(side):
    return np.random.default_rng(0).normal(size=(2, side, side, 3)).astype(np.float32)


def logits_of(model):
    import torch

    with torch.no_grad():
        return model(torch.from_numpy(images(model.config.image_size).transpose(0, 3, 1, 2).copy())).logits.numpy()


def assert_near(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parity
def test_a_folder_of_transformers_is_read(torch_model, tmp_path):
    torch_model.save_pretrained(tmp_path)
    config, params = tfm.from_hf(tmp_path)
    assert [stage.layers for stage in config.stage_configs] == SIZES["depths"]
    pixels = jnp.asarray(images(torch_model.config.image_size))
    assert_near(jax.jit(tfm.classify, static_argnums=1)(params, config, pixels), logits_of(torch_model))


@pytest.mark.parity
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
    pixels = jnp.asarray(images(torch_model.config.image_size))
    assert_near(logits_of(model), jax.jit(tfm.classify, static_argnums=1)(params, config, pixels))


@pytest.mark.parity
def test_all_stages_of_segformer_are_read_for_classes_of_pixels(tmp_path):
    """Every stage, and the classes by running statistics, of odd grids and both ways; a written folder lacks nothing
    that transformers reads."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.SegformerConfig(**FIELDS["segformer"], decoder_hidden_size=10)
    model = transformers.SegformerForSemanticSegmentation(config).eval()
    with torch.no_grad():
        for values in model.parameters():
            values.copy_(0.3 * torch.randn_like(values) + (values.ndim == 1))
        model.decode_head.batch_norm.running_mean.normal_()
        model.decode_head.batch_norm.running_var.uniform_(0.5, 2)
        expected = model(torch.from_numpy(images(48).transpose(0, 3, 1, 2).copy()), output_hidden_states=True)
    model.save_pretrained(tmp_path / "hf")
    config, params = tfm.from_hf(tmp_path / "hf")
    assert (config.classes, config.head.decoder_width) == (5, 10)
    states = jax.jit(stage_states, static_argnums=1)(params.encoder, config, jnp.asarray(images(48)))
    for stage, hidden in zip(states, expected.hidden_states, strict=True):
        assert_near(stage, hidden.flatten(2).transpose(1, 2).numpy())
    label = jax.jit(tfm.pixel_logits, static_argnums=1)
    assert_near(label(params, config, jnp.asarray(images(48))), expected.logits.movedim(1, -1).numpy())

    params = jax.tree.map(lambda leaf: leaf * 1.1, params)
    tfm.to_hf(config, params, tmp_path / "ours")
    load = transformers.AutoModelForSemanticSegmentation.from_pretrained
    model, report = load(tmp_path / "ours", output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert_near(np.moveaxis(logits_of(model.eval()), 1, -1), label(params, config, jnp.asarray(images(48))))


def config_of(name, **fields):
    """The configuration of a config.json with these fields."""
    family = FAMILIES[name]
    fields = {"num_labels": 5} | {key: value for key, value in (FIELDS[name] | fields).items() if value is not None}
    return family.config(fields, next(iter(family.heads.values())))


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("pvt", {"depths": [1, 2, 1]}, r"num_encoder_blocks=4 and depths=\[1, 2, 1\]; give each stage a number"),
        ("pvt", {"patch_sizes": [2, 2, 2, 2]}, "only 4 in the first stage and 2 in later ones are supported"),
        ("pvt", {"image_size": 40}, "image_size=40; only multiples of 32 are supported"),
        (
            "pvt",
            {"image_size": 64, "sequence_reduction_ratios": [8, 4, 3, 1]},
            "stage 2 has 4 x 4 patches, which squares of 3 x 3 do not fill",
        ),
        ("pvt", {"sequence_reduction_ratios": [8, 4, 2, 0]}, "sequence_reduction_ratios"),
        ("pvt", {"image_size": 64, "sequence_reduction_ratios": [8, 4, 2, 2]}, "needs a grid of patches"),
        ("segformer", {"patch_sizes": [7, 4, 3, 3]}, "only odd patches that are larger than their strides"),
        ("segformer", {"patch_sizes": [7, 3, 3, 1]}, "only odd patches that are larger than their strides"),
        ("segformer", {"image_size": 49, "sr_ratios": [1, 1, 1, 1]}, "image_size=49"),
        ("segformer", {"hidden_sizes": [8, 13, 20, 32]}, "must divide"),
        ("segformer", {"decoder_hidden_size": 0}, "decoder_hidden_size"),
    ],
)
def test_what_is_not_supported_is_refused(name, fields, message):
    with pytest.raises(ValueError, match=message):
        config_of(name, **fields)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("pvt", {"stages.0.kernel": 3}, "stages.0.kernel=3"),
        ("pvt", {"stages.1.ffn": 50}, "stages.1.ffn=50"),
        ("pvt", {"stages.0.mixer": "softmax"}, "stages.0.mixer=softmax"),
        ("segformer", {"stages.2.norm_before": False}, "stages.2.norm_before=False"),
        ("segformer", {"feed_forward.kernel": 5}, "feed_forward.kernel=5"),
    ],
)
def test_what_a_folder_cannot_say_is_named(name, values, message):
    config = tfm.override(config_of(name), values)
    config, _ = FAMILIES[name].canonicalize(config, None)
    assert message in conflicts_of(FAMILIES[name], config, f"{CLASSES[name]}ForImageClassification")


def test_the_decoder_of_all_stages_is_that_of_classes_of_pixels_alone():
    family, values = FAMILIES["segformer"], config_of("segformer")
    assert values.head.decoder_width is None
    of_pixels = family.config(FIELDS["segformer"] | {"decoder_hidden_size": 10}, family.heads[SEGMENTATION])
    assert of_pixels.head.decoder_width == 10
    assert family.config_json(of_pixels, SEGMENTATION)["decoder_hidden_size"] == 10
    assert conflicts_of(family, values, SEGMENTATION) == ["head.decoder_width=None"]


def test_classes_that_nothing_counts_are_those_of_imagenet():
    family = FAMILIES["pvt"]
    assert family.config({"num_labels": None}, family.heads["PvtForImageClassification"]).classes == 1000


@pytest.mark.parametrize("name", CLASSES)
def test_sizes_that_follow_are_said_in_a_folder(name):
    """A model whose stages say nothing is the one whose stages say what follows."""
    config = config_of(name, hidden_sizes=[8, 16, 32, 64], num_attention_heads=[1, 2, 4, 8], mlp_ratios=[2, 2, 2, 2])
    silent = tfm.override(config, dict.fromkeys(f"stages.{i}.{size}" for i in range(3) for size in ("width", "ffn")))
    said, _ = FAMILIES[name].canonicalize(silent, None)
    assert said == config
    fields = FAMILIES[name].config_json(silent, f"{CLASSES[name]}ForImageClassification")
    assert json.loads(json.dumps(fields))["hidden_sizes"] == [8, 16, 32, 64]

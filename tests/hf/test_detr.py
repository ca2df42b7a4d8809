"""Folders of DETR: what transformers computes, ours computes, in both directions; networks of timm; what is refused."""

import json
import re

import jax
import numpy as np
import pytest
from hf_models import stored, weights

import tfm
from tfm.hf import FAMILIES
from tfm.hf.families.vision import detr
from tfm.hf.tensors import Tensors, write
from train.tasks.detect.hf import run_values
from train.tasks.detect.task import DETECT

FAMILY = FAMILIES["detr"]
HEAD = FAMILY.heads["DetrForObjectDetection"]
SMALL = {
    "d_model": 24, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 3,
    "decoder_attention_heads": 3, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "num_queries": 5,
}  # fmt: skip
# Grids of 2 x 3 places of 64 x 96 pixels, by networks of three and of four stages.
NETWORKS = {
    "bottleneck": dict(embedding_size=8, hidden_sizes=[16, 24, 32, 40], depths=[1, 2, 1, 1], layer_type="bottleneck"),
    "basic": dict(embedding_size=6, hidden_sizes=[6, 10, 8, 12], depths=[2, 1, 1, 1], layer_type="basic"),
}


@pytest.fixture(params=NETWORKS)
def torch_model(request):
    import torch
    import transformers

    network = NETWORKS[request.param]
    backbone = transformers.ResNetConfig(**network, out_features=[f"stage{len(network['depths'])}"])
    config = transformers.DetrConfig(backbone_config=backbone, use_timm_backbone=False, num_labels=3, **SMALL)
    model = transformers.DetrForObjectDetection(config).eval()
    with torch.no_grad():
        for name, values in [*model.named_parameters(), *model.named_buffers()]:
            values.copy_(torch.from_numpy(weights(name, tuple(values.shape))))
    return model


def pixels():
    return np.random.default_rng(0).normal(size=(2, 64, 96, 3)).astype(np.float32)


def torch_outputs(model, **arguments):
    import torch

    with torch.no_grad():
        return model(torch.from_numpy(pixels().transpose(0, 3, 1, 2).copy()), **arguments)


@pytest.mark.parity
def test_there_and_back_at_another_size(torch_model, tmp_path):
    torch_model.save_pretrained(tmp_path / "read")
    config, params = tfm.from_hf(tmp_path / "read")
    assert config.input.pixels == (800, 800, 3)
    config, params = tfm.interpolate_positions(config, params, (64, 96))
    assert config.input.grid == (2, 3)
    expected = torch_outputs(torch_model)
    detected = jax.jit(tfm.detect, static_argnums=1)(params, config, pixels())
    np.testing.assert_allclose(detected.logits[-1], expected.logits, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(detected.boxes[-1], expected.pred_boxes, rtol=1e-4, atol=1e-4)
    assert np.ptp(expected.pred_boxes.numpy(), axis=1).max() > 0.01
    for name, like in {"like": tmp_path / "read", "alone": None}.items():
        tfm.to_hf(config, params, tmp_path / name, like=like)
        again = type(torch_model).from_pretrained(tmp_path / name).eval()
        np.testing.assert_allclose(torch_outputs(again).logits, expected.logits, atol=1e-5)
        np.testing.assert_allclose(torch_outputs(again).pred_boxes, expected.pred_boxes, atol=1e-5)
        assert tfm.from_hf(tmp_path / name)[0] == config


@pytest.mark.parity
def test_losses_are_those_of_transformers(torch_model, tmp_path):
    """Two objects in a picture and one in the other; the sums of the last layer."""
    import torch

    torch_model.save_pretrained(tmp_path)
    config, params = tfm.interpolate_positions(*tfm.from_hf(tmp_path), (64, 96))
    boxes = np.float32([[[0.3, 0.4, 0.2, 0.5], [0.7, 0.6, 0.4, 0.3]], [[0.5, 0.5, 0.6, 0.2], [0, 0, 0, 0]]])
    classes, objects = np.int32([[2, 0], [1, 0]]), np.float32([[1, 1], [1, 0]])
    labels = [
        {"class_labels": torch.from_numpy(kinds[real > 0]).long(), "boxes": torch.from_numpy(box[real > 0])}
        for kinds, box, real in zip(classes, boxes, objects, strict=True)
    ]
    expected = torch_outputs(torch_model, labels=labels)
    ones = np.ones(2, np.float32)
    batch = {"pixels": pixels(), "labels": classes, "boxes": boxes, "objects": objects, "crowds": 0 * objects}
    batch |= {"queries": 5 * ones, "weights": ones, "withheld": 0 * ones}
    sums = jax.jit(DETECT.loss, static_argnums=1)(params, config, batch, None)
    means = DETECT.metrics({name: np.asarray(value) for name, value in sums.items()})
    names = {"loss_class": "loss_ce", "loss_l1": "loss_bbox", "loss_overlap": "loss_giou"}
    for name, hf_name in names.items():
        assert means[name] == pytest.approx(float(expected.loss_dict[hf_name]), rel=1e-4)
    assert means["loss"] == pytest.approx(float(expected.loss), rel=1e-4)


def name_of_timm(name):
    """A tensor of a ResNet by the name that timm has for it."""
    kinds = {"convolution": ("conv", "0"), "normalization": ("bn", "1")}
    if match := re.search(r"embedder\.embedder\.(\w+)", name):
        return name.replace(match[0], f"{kinds[match[1]][0]}1")
    if match := re.search(r"encoder\.stages\.(\d)\.layers\.(\d)\.shortcut\.(\w+)", name):
        return name.replace(match[0], f"layer{int(match[1]) + 1}.{match[2]}.downsample.{kinds[match[3]][1]}")
    if match := re.search(r"encoder\.stages\.(\d)\.layers\.(\d)\.layer\.(\d)\.(\w+)", name):
        kind = f"{kinds[match[4]][0]}{int(match[3]) + 1}"
        return name.replace(match[0], f"layer{int(match[1]) + 1}.{match[2]}.{kind}")
    return name


@pytest.mark.slow
def test_networks_of_timm_are_read_and_written_as_those_of_transformers(tmp_path, monkeypatch):
    """The first folders, such as that of facebook, have them."""
    stored(tmp_path / "own", "detr", "DetrForObjectDetection")
    fields = json.loads((tmp_path / "own/config.json").read_text())
    network = fields.pop("backbone_config")
    monkeypatch.setattr(
        detr, "TIMM", {name: network[name] for name in ("embedding_size", "hidden_sizes", "layer_type")}
    )
    monkeypatch.setitem(detr.TIMM_DEPTHS, "resnet50", network["depths"])
    config, params = tfm.from_hf(tmp_path / "own")
    said = {
        "old": {"backbone": "resnet50", "use_timm_backbone": True, "backbone_config": None},
        "new": {"backbone_config": {"model_type": "timm_backbone", "backbone": "resnet50", "num_channels": 3}},
    }
    for kind, backbone in said.items():
        folder = tmp_path / kind
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(fields | backbone))
        tensors = Tensors(tmp_path / "own")
        entries = [
            (name_of_timm(name), value.dtype, value.shape, lambda value=value: value) for name, value in tensors.items()
        ]
        assert sum("layer1" in name for name, *_ in entries) == 5 * (2 * 3 + 1)
        write(folder / "model.safetensors", entries)
        config_again, params_again = tfm.from_hf(folder)
        assert config_again == config
        assert jax.tree.all(jax.tree.map(lambda leaf, expected: (leaf == expected).all(), params_again, params))
        tfm.to_hf(config_again, params_again, tmp_path / f"{kind}_written", like=folder)
        written = json.loads((tmp_path / f"{kind}_written/config.json").read_text())
        assert (written["use_timm_backbone"], written.get("backbone")) == (False, None)
        assert written["backbone_config"]["hidden_sizes"] == network["hidden_sizes"]
        assert written["backbone_config"]["model_type"] == "resnet"
        assert set(Tensors(tmp_path / f"{kind}_written")) == set(tensors)


def test_the_sizes_of_the_first_folder():
    """Of facebook/detr-resnet-50: config.json names a network of timm, and no size of pictures."""
    fields = {"model_type": "detr", "backbone": "resnet50", "use_timm_backbone": True, "num_labels": 91}
    config = FAMILY.config(fields, HEAD)
    assert (config.layers, config.width, config.heads, config.sizes["F"]) == (6, 256, 8, 2048)
    assert (config.head.queries, config.head.query_layers, config.classes) == (100, 6, 91)
    assert config.input.stages == ((256, 3), (512, 4), (1024, 6), (2048, 3))
    specs = HEAD.specs(config)
    # ResNet-50 has 25,557,032 parameters, 2,049,000 of them in its last map; norms of 26,560 channels have statistics.
    network = specs.encoder.embed.stem, specs.encoder.embed.blocks
    assert tfm.count_params(network) == 25_557_032 - 2_049_000 + 2 * 26_560
    assert specs.classes.kernel.shape == (256, 92)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dilation": True}, "config.json has dilation=True; of detr, only False is supported"),
        ({"auxiliary_loss": True}, "config.json has auxiliary_loss=True; of detr, only False is supported"),
        ({"position_embedding_type": "learned"}, "position_embedding_type='learned'; of detr, only 'sine'"),
        ({"decoder_ffn_dim": 512}, "decoder_ffn_dim=512 and encoder_ffn_dim=2048; of detr, only equal ones"),
        ({"backbone": "convnext_tiny"}, "config.json has the backbone convnext_tiny; only ResNets are supported"),
        ({"backbone_config": {"model_type": "swin"}}, "config.json has the backbone swin; only ResNets are supported"),
        (
            {"backbone_config": {"model_type": "resnet", "depths": [3, 4]}},
            r"hidden_sizes=\[256, 512, 1024, 2048\] and depths=\[3, 4\]; give each stage both",
        ),
        (
            {"backbone_config": {"model_type": "resnet", "out_features": ["stage3"]}},
            r"out_features=\['stage3'\]; only stage4, the last, is supported",
        ),
        ({"backbone_config": {"model_type": "resnet", "downsample_in_bottleneck": True}}, "only False is supported"),
        ({"image_size": 700}, r"size=700 must be a multiple of 32; try size=704 \(input.size is of image_size\)"),
        ({"num_queries": 0}, "num_queries=0 must be at least 1"),
    ],
)
def test_what_is_not_supported_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        FAMILY.config({"model_type": "detr"} | changes, HEAD)


def test_a_run_of_a_folder_has_its_queries_and_the_size_of_its_processor():
    config = FAMILY.config({"num_queries": 7, "decoder_layers": 3}, HEAD)

    class Folder:
        hf_model, fields = config, {"image_size": 800}

    assert run_values("objects", Folder) == {"task.queries": 7, "task.layers": 3}
    assert run_values("classify", Folder) == {}

"""The weights of --init where pictures have another size: positions are interpolated, and nothing else changes."""

import json
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from flax import struct
from PIL import Image
from small import call, run

import tfm
from train import UserError, evaluate
from train.main import main
from train.runs import pretrained
from train.runs.run_folder import open_folder

VIT = tfm.override(
    tfm.Config(layers=1, heads=2, width=16, ffn=16, classes=2),
    {"input": "patches", "input.size": 16, "input.patch": 4, "residual": "pre", "head.dense": False},
)
CLIP = tfm.override(
    tfm.Config(layers=1, heads=2, width=16, ffn=16, vocab=40, length=8),
    {"images": "tower", "images.width": 16, "images.layers": 1, "images.input.size": 16, "images.input.patch": 4}
    | {"images.projection": 8},
)
SPECS = {"vit": tfm.classifier_specs, "clip": tfm.towers_specs}


def loaded(monkeypatch, name, source_model, model, mesh):
    """The parameters of the folder, those that a fresh model takes from it, and what is logged."""
    lines, specs = [], SPECS[name](source_model)
    with jax.set_mesh(mesh):
        source = tfm.init(specs, jax.random.key(0), mesh)
        fresh = tfm.init(SPECS[name](model), jax.random.key(1), mesh)
    folder = SimpleNamespace(config=SimpleNamespace(model=source_model), load=lambda mesh, log: source)
    monkeypatch.setattr(pretrained, "open_folder", lambda path: folder)
    return source, *pretrained.load_parts("there", model, fresh, mesh, lines.append), fresh, lines


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "config", "field"),
    [pytest.param("vit", VIT, "input.size", marks=pytest.mark.slow), ("clip", CLIP, "images.input.size")],
)
def test_positions_fit_pictures_of_another_size(monkeypatch, name, config, field):
    """On a mesh of eight devices, where the parameters are spread as those of a fresh model."""
    model, mesh = tfm.override(config, {field: 24}), tfm.make_mesh(data=2, fsdp=2, tensor=2)
    source, taken, parts, fresh, lines = loaded(monkeypatch, name, config, model, mesh)
    assert parts == []
    assert lines == ["positions of there are interpolated, from pictures of 16 x 16 pixels to 24 x 24"]
    host = jax.device_get(source)
    expected = tfm.interpolate_positions(config, host, 24)[1]
    for leaf, value, like in zip(*map(jax.tree.leaves, (taken, expected, fresh)), strict=True):
        np.testing.assert_allclose(leaf, value, rtol=1e-6, atol=1e-6)
        assert leaf.sharding == like.sharding
    changed = [
        leaf.shape for leaf, old in zip(*map(jax.tree.leaves, (taken, host)), strict=True) if leaf.shape != old.shape
    ]
    assert changed == [(37, 16)]


@pytest.mark.slow
def test_pictures_of_the_same_size_are_left_alone(monkeypatch):
    source, taken, _, _, lines = loaded(monkeypatch, "vit", VIT, VIT, tfm.make_mesh())
    assert (jax.tree.all(jax.tree.map(lambda leaf, old: leaf is old, taken, source)), lines) == (True, [])


def test_a_head_of_other_classes_stays_fresh():
    assert pretrained.heads_of_classes(tfm.classifier_specs(VIT)) == ["output"]
    assert pretrained.heads_of_classes(tfm.tagger_specs(tfm.override(VIT, {"input": "tokens"}))) == ["output"]
    assert pretrained.heads_of_classes(tfm.masked_lm_specs(tfm.override(VIT, {"input": "tokens"}))) == []
    fresh, source = (Model(encoder=np.zeros(3), output=np.full(2, value)) for value in (0, 1))
    taken, names = pretrained.take_parts("there", source, fresh)
    assert (taken.output.tolist(), names) == ([1, 1], [])
    taken, names = pretrained.take_parts("there", source, fresh, ["output"])
    assert (taken.output.tolist(), names) == ([0, 0], ["output"])


@struct.dataclass
class Model:
    encoder: Any
    output: Any


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "changes", "sentence"),
    [
        (
            {"mixer": "gmlp"},
            {"mixer": "gmlp"},
            "--init=there: a parameter of shape .* depends on how many patches there are",
        ),
        ({}, {"input.channels": 1}, "--init=there is of another architecture: encoder.embed.projection.kernel is"),
        ({"input.patch": 16}, {"input.patch": 8}, "--init=there: size=24 must be a multiple of patch=16; try size=32"),
    ],
)
def test_models_that_do_not_fit(monkeypatch, source, changes, sentence):
    model = tfm.override(VIT, {**changes, "input.size": 24})
    with pytest.raises(UserError, match=sentence):
        loaded(monkeypatch, "vit", tfm.override(VIT, source), model, tfm.make_mesh())


@pytest.mark.slow
def test_a_run_starts_from_smaller_pictures(tmp_path, monkeypatch):
    """It begins with interpolated positions, reads larger pictures, is resumed and evaluated; a size that the patch
    does not divide is refused before anything is written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFM_CACHE", str(tmp_path / ".cache"))
    rng = np.random.default_rng(0)
    for colour, channel in (("red", 0), ("blue", 2)):
        (tmp_path / "colours" / colour).mkdir(parents=True)
        for n in range(40):
            pixels = rng.integers(0, 100, (20, 24, 3), np.uint8)
            pixels[:, :, channel] += 100
            Image.fromarray(pixels).save(tmp_path / "colours" / colour / f"{n}.jpg")
    shape = (
        "--model.layers=1 --model.width=32 --model.heads=2 --model.ffn=64 --model.input.patch=8 --model.input.size=16"
    )
    flags = ("--task=image", "--data=colours", "--batch.size=16", "--log.every=20")
    run(*flags, *shape.split(), "--preset=vit-micro", "--steps=60", "--task.pixels.resize=20", "--out=small")
    large = (*flags, "--init=small", "--model.input.size=32", "--steps=2", "--optim.rate=1e-9", "--out=large")
    err = run(*large, "--stop-at=1")
    assert "positions of small are interpolated, from pictures of 16 x 16 pixels to 32 x 32" in err
    assert "32 x 32 x 3, 17 tokens to the model" in err
    run("--resume", "--out=large")
    small, large_folder = open_folder("small"), open_folder("large")
    expected = tfm.interpolate_positions(small.config.model, small.load(), 32)[1]
    np.testing.assert_allclose(
        large_folder.load().encoder.embed.positions, expected.encoder.embed.positions, rtol=1e-4, atol=1e-5
    )
    fields = json.loads((tmp_path / "large/preprocessor_config.json").read_text())
    assert (fields["size"], fields["crop_size"]) == ({"shortest_edge": 40}, {"height": 32, "width": 32})
    code, out, err = call(evaluate.main, "--run=large", "--data=colours")
    assert (code, json.loads(out)["accuracy"]) == (0, 1.0), err
    code, out, err = call(main, *large[:-1], "--model.input.size=36", "--out=bad")
    assert (code, out, (tmp_path / "bad").exists()) == (2, "", False)
    assert "--model.input.size=36 must be a multiple of patch=8; try size=" in err.splitlines()[-1]

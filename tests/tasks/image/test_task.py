"""Classification of pictures: the loss against a loop, whole runs, and one sentence for bad input."""

import json
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from random_params import random_params
from small import call, read_lines, run

import tfm
from tfm.hf import FAMILIES
from train import UserError, evaluate, export, plan, predict
from train.images import drawings, sources
from train.images.decoding import decode
from train.images.processor import ImageProcessor, processor_text
from train.lab import inspect
from train.main import main
from train.tasks import presets, resolve
from train.tasks.image import attention
from train.tasks.image.task import IMAGE, is_among_best

SMALL = (
    "--task=image --preset=vit-micro --model.layers=1 --model.width=32 --model.heads=2 --model.ffn=64 "
    "--model.input.patch=8 --model.input.size=16 --batch.size=16 --steps=60 --log.every=20 "
    "--eval.every=30 --checkpoint.every=60"
).split()


@pytest.mark.slow
def test_the_loss_is_that_of_a_loop():
    """With smoothing, two classes a picture, and a row that is empty."""
    config = tfm.override(presets.model("vit-micro"), {"layers": 1, "classes": 5, "width": 16, "heads": 2, "ffn": 8})
    params = random_params(tfm.classifier_specs(config))
    rng = np.random.default_rng(0)
    batch = {
        "pixels": rng.normal(size=(4, 32, 32, 3)).astype(np.float32),
        "labels": np.array([0, 3, 4, 1], np.int32),
        "partners": np.array([1, 0, 3, 4], np.int32),
        "shares": np.array([0.25, 1.0, 0.5, 0.7], np.float32),
        "weights": np.array([1, 1, 0, 2], np.float32),
        "withheld": np.array([0, 0, 1, 0], np.float32),
        "smoothing": np.full(4, 0.1, np.float32),
    }
    sums = IMAGE.loss(params, config, batch, None)
    logits = np.asarray(tfm.classify(params, config, batch["pixels"]), np.float64)
    total = right = 0.0
    for row in range(4):
        logprobs = logits[row] - np.log(np.exp(logits[row]).sum())
        targets = np.full(5, 0.1 / 5)
        targets[batch["labels"][row]] += 0.9 * batch["shares"][row]
        targets[batch["partners"][row]] += 0.9 * (1 - batch["shares"][row])
        total -= batch["weights"][row] * (targets * logprobs).sum()
        right += batch["weights"][row] * (logits[row].argmax() == batch["labels"][row])
    assert float(sums["loss"]) == pytest.approx(total, rel=1e-5)
    assert (float(sums["weight"]), float(sums["right"])) == (4, right)
    assert float(sums["withheld"]) == 1


def test_the_right_class_among_the_best():
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(50, 9)), rng.integers(0, 9, 50)
    expected = [label in sorted(range(9), key=lambda c: -row[c])[:5] for row, label in zip(logits, labels, strict=True)]
    assert is_among_best(logits, labels, 5).tolist() == expected


@pytest.mark.parametrize(
    ("preset", "mixer", "reason"),
    [
        ("vit-micro", "softmax", None),
        ("vit-micro", "fnet", "--model.mixer=fnet has none"),
        ("swin-mini", None, "its stages have several grids"),
    ],
)
def test_attention_is_drawn_or_refused_in_a_sentence(preset, mixer, reason, tmp_path):
    model = presets.model(preset)
    model = tfm.override(model, {"mixer": mixer}) if mixer else model
    model = tfm.override(model, {"classes": 2})
    params = random_params(tfm.classifier_specs(model))
    assert attention.has_weights(params, model) == (reason is None)
    folder = types.SimpleNamespace(
        path="run", config=types.SimpleNamespace(model=model), processor=None, facts={"classes": ["a", "b"]}
    )
    pictures = [{"file": "a.png", "image": "a.png", "attention": str(tmp_path)}]
    if reason:
        with pytest.raises(UserError, match=f"--attention={tmp_path} draws .* {reason}; leave it out"):
            next(IMAGE.predictor.predict(params, folder, pictures, None, 32))


def test_rollout_is_that_of_a_loop():
    rng = np.random.default_rng(0)
    layers = [rng.dirichlet(np.ones(5), 5) for _ in range(3)]
    expected = np.eye(5)
    for weights in layers:
        mixed = np.zeros((5, 5))
        for i in range(5):
            for j in range(5):
                mixed[i, j] = 0.5 * weights[i, j] + 0.5 * (i == j)
        expected = mixed @ expected
    np.testing.assert_allclose(attention.rollout(layers), expected, atol=1e-12)
    np.testing.assert_array_equal(attention.on_grid(expected, (2, 2)), expected[0, 1:].reshape(2, 2))
    np.testing.assert_allclose(attention.on_grid(expected[:4, :4], (2, 2)).ravel(), expected[:4, :4].mean(0))


def test_weights_of_attention():
    config = tfm.override(presets.model("vit-micro"), {"layers": 2, "width": 16, "heads": 2, "ffn": 8})
    params = random_params(tfm.classifier_specs(config))
    weights = attention.attention_weights(params, config, jnp.ones((2, 32, 32, 3)))
    assert [layer.shape for layer in weights] == [(2, 17, 17)] * 2
    np.testing.assert_allclose(weights[1].sum(-1), 1, atol=1e-5)


def test_tokens_of_a_batch_are_patches():
    fields = IMAGE.batch_spec(_run("--task.augment.mixup=1"))
    pixels = fields["pixels"]
    assert pixels.shape(4, 128) == (4, 16, 16, 3)
    assert pixels.tokens(np.prod(pixels.shape(4, 128))) == 4 * 5
    assert {"partners", "shares"} < fields.keys()
    assert "shares" not in IMAGE.batch_spec(_run())


def _run(*flags):
    return resolve.resolve([*SMALL, *flags], None, None)[0]


def pictures(folder, count=40):
    """Red and blue pictures in folders of these names."""
    rng = np.random.default_rng(0)
    for colour, channel in (("red", 0), ("blue", 2)):
        (folder / colour).mkdir(parents=True)
        for n in range(count):
            pixels = rng.integers(0, 100, (20, 24, 3), np.uint8)
            pixels[:, :, channel] += 100
            Image.fromarray(pixels).save(folder / colour / f"{n}.jpg")


@pytest.mark.slow
@pytest.mark.parametrize(("preset", "draws"), [("swin-mini", True), ("davit-mini", False)])
def test_models_in_stages_train_to_the_end(preset, draws, home):
    """Pictures and all; only Swin has positions to draw, those in a window."""
    pictures(home / "data", 12)
    flags = ["--model.width=12", "--model.heads=1", "--steps=2", "--batch.size=8", "--eval.every=1", "--out=run"]
    run("--task=image", f"--preset={preset}", "--data=data", *flags)
    assert json.loads((home / "run" / "result.json").read_text())["eval_n"] > 0
    assert (home / "run" / "plots" / "confusion.png").exists()
    assert (home / "run" / "plots" / "positions.png").exists() == draws


@pytest.mark.slow
def test_beit_learns_classes_after_visual_tokens(home):
    """A folder of masked image modeling predicts no class; what is fine-tuned from it does, as an export of it."""
    fields = {"image_size": 16, "patch_size": 4, "vocab_size": 11, "use_mask_token": True, "hidden_size": 32}
    fields |= {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64, "drop_path_rate": 0.0}
    family = FAMILIES["beit"]
    head = family.heads["BeitForMaskedImageModeling"]
    config = family.config(fields | {"use_shared_relative_position_bias": True}, head)
    tfm.to_hf(config, random_params(head.specs(config)), home / "beit")
    processor = ImageProcessor((16, 16), None, (0.5,) * 3, (0.5,) * 3)
    (home / "beit/preprocessor_config.json").write_text(processor_text(processor))
    pictures(home / "colours")
    code, _, err = call(predict.main, "--run=beit", "--file=colours/*/1.jpg")
    assert code == 2
    assert "--run=beit holds a model without a head of classes; fine-tune it first with --task=image --init" in err
    run(
        "--task=image",
        "--init=beit",
        "--data=colours",
        "--out=run",
        "--steps=60",
        "--batch.size=16",
        "--optim.rate=1e-3",
    )
    assert json.loads((home / "run/result.json").read_text())["eval_accuracy"] > 0.9
    code, out, err = call(predict.main, "--run=run", "--file=colours/*/1.jpg")
    assert (code, [line.split("\t")[1] for line in out.splitlines()]) == (0, ["blue", "red"]), err
    assert call(export.main, "--run=run", "--to=folder")[0] == 0
    written = json.loads((home / "folder/config.json").read_text())
    assert (written["architectures"], written["id2label"]) == (
        ["BeitForImageClassification"],
        {"0": "blue", "1": "red"},
    )
    assert call(predict.main, "--run=folder", "--file=colours/*/1.jpg")[1] == out


@pytest.mark.slow
def test_a_folder_of_transformers_classifies(home):
    """A grey ViT for pictures of 12 x 8, with its processor; and it is exported again."""
    shape = {"input.size": 12, "input.image_width": 8, "input.patch": 4, "input.channels": 1, "layers": 1, "width": 8}
    config = tfm.override(presets.model("vit-micro"), shape | {"heads": 2, "ffn": 8, "classes": 2})
    params = random_params(tfm.classifier_specs(config))
    tfm.to_hf(config, params, home / "vit", like={"id2label": {"0": "cat", "1": "dog"}})
    processor = ImageProcessor((12, 8), None, (0.4,), (0.3,))
    (home / "vit/preprocessor_config.json").write_text(processor_text(processor))
    for n in range(3):
        Image.fromarray(np.random.default_rng(n).integers(0, 256, (30, 20, 3), np.uint8)).save(home / f"{n}.png")
    code, out, err = call(predict.main, "--run=vit", "--file=*.png", "--batch=2", "--to=out.jsonl")
    assert (code, out) == (0, ""), err
    lines = read_lines(home / "out.jsonl")
    assert [line["file"] for line in lines] == ["0.png", "1.png", "2.png"]
    for line in lines:
        pixels = processor.normalize(processor.prepare(decode(line["file"], 1)))[None]
        expected = jax.nn.softmax(tfm.classify(params, config, pixels)[0])
        np.testing.assert_allclose([line["probabilities"][name] for name in ("cat", "dog")], expected, atol=1e-5)
    code, out, err = call(export.main, "--run=vit", "--to=again")
    assert (code, max(json.loads(out).values())) == (0, pytest.approx(0, abs=1e-5)), err
    assert (home / "again/preprocessor_config.json").read_text() == processor_text(processor)
    (home / "vit/preprocessor_config.json").write_text(processor_text(ImageProcessor((12, 12), None, (0.4,), (0.3,))))
    code, _, err = call(predict.main, "--run=vit", "--file=*.png")
    assert (code, "their processor makes 12 x 12 x 1 (size, crop_size and image_mean" in err) == (2, True), err
    (home / "vit/preprocessor_config.json").unlink()
    code, _, err = call(predict.main, "--run=vit", "--file=*.png")
    assert (code, "vit has no preprocessor_config.json, and no processor_config.json" in err) == (2, True), err


@pytest.mark.slow
def test_a_run_on_a_folder(home):
    """Trained, resumed, evaluated, asked, exported, looked at and planned."""
    pictures(home / "colours")
    (home / "colours/red/bad.jpg").write_bytes(b"")
    augment = ("--task.augment.flip=true", "--task.augment.crop=0.5", "--task.augment.mixup=0.5")
    flags = (*SMALL, "--data=colours", "--data.broken=skip", *augment, "--out=run")
    err = run(*flags, "--stop-at=40")
    assert "left out: colours/red/bad.jpg is empty" in err
    assert "16 x 16 x 3, 5 tokens to the model" in err
    run("--resume", "--out=run")
    result = json.loads((home / "run/result.json").read_text())
    assert result["eval_accuracy"] == 1.0
    run(*(flags[:-1]), "--out=straight")
    assert json.loads((home / "straight/result.json").read_text())["eval_loss"] == pytest.approx(result["eval_loss"])
    assert json.loads((home / "run/preprocessor_config.json").read_text())["size"] == {"height": 16, "width": 16}
    plots = {path.name for path in (home / "run/plots").iterdir()}
    assert {"confusion.png", "reliability.png", "attention-1.png", "attention-4.png"} <= plots

    code, out, err = call(evaluate.main, "--run=run", "--data=colours")
    assert code == 0, err
    assert json.loads(out)["accuracy"] == 1.0
    code, out, err = call(predict.main, "--run=run", "--file=colours/*/1.jpg", "--attention=maps")
    assert code == 0, err
    assert [line.split("\t")[:2] for line in out.splitlines()] == [
        ["colours/blue/1.jpg", "blue"],
        ["colours/red/1.jpg", "red"],
    ]
    assert [path.name for path in sorted((home / "maps").iterdir())] == ["attention-1.png", "attention-2.png"]
    code, _, err = call(export.main, "--run=run", "--to=folder")
    assert code == 0, err
    assert {"config.json", "model.safetensors", "preprocessor_config.json"} <= {
        p.name for p in (home / "folder").iterdir()
    }
    code, exported, err = call(predict.main, "--run=folder", "--file=colours/*/1.jpg")
    assert (code, exported) == (0, out), err
    code, _, err = call(inspect.main, *flags[:-1], "--to=page.png", "--rows=6")
    assert code == 0, err
    assert Image.open(home / "page.png").width > 400
    code, out, err = call(plan.main, *SMALL, "--topology=h100:8", "--search=false")
    assert code == 0, err
    assert json.loads(out)["tokens_a_step"] == 16 * 5


@pytest.mark.slow
def test_drawings_and_withheld_pairs(home, monkeypatch):
    generate = drawings.generate
    monkeypatch.setattr(drawings, "generate", lambda: generate(train=200, valid=40, withheld=20))
    run(*SMALL, "--data.label=relation", "--task.smoothing=0.1", "--task.augment.cutmix=1", "--out=run")
    result = json.loads((home / "run/result.json").read_text())
    assert 0 <= result["eval_accuracy_withheld"] <= 1
    assert result["eval_n"] == 40


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--data=nowhere", "no file matches 'nowhere'; give a folder with a folder for each class"),
        ("--data.label=kind", "--data.label=kind is no label of the built-in drawings; known are label, caption"),
        ("--task.augment.crop=2", "--task.augment.crop=2.0 must be more than 0 and at most 1"),
        ("--task.pixels.mean=red", "--task.pixels.mean=red must be a number between 0 and 1, or three with commas"),
        ("--task.pixels.resize=8", "--task.pixels: crop_size=[16, 16] is larger than size=8"),
        ("--task.pixels.mean=0.1,0.2,0.3 --model.input.channels=1", "must have a number for each channel"),
        ("--task.class-weights=1,2 --task.augment.mixup=1", "class-weights=1,2 is for pictures of one class"),
        (
            "--task=mlm --preset=bert-tiny --model.input=patches",
            "does not read the texts of task=mlm; say --model.input=tok",
        ),
        ("--data.broken=ignore", "--data.broken=ignore"),
    ],
)
def test_bad_input(home, monkeypatch, flags, sentence):
    generate = drawings.generate
    monkeypatch.setattr(drawings, "generate", lambda: generate(train=40, valid=8, withheld=4))
    code, out, err = call(main, *SMALL, *flags.split(), "--out=bad")
    assert (code, out) == (2, ""), err
    assert sentence in err.splitlines()[-1]
    assert not (home / "bad").exists()


def test_a_model_of_texts_reads_no_pictures():
    with pytest.raises(UserError, match=r"model.input=tokens does not read the pictures of task=image; say"):
        resolve.resolve(["--task=image", "--model.input=tokens"], None, None)


def test_bad_predictions(home):
    (home / "broken.png").write_bytes(b"")
    folder = types.SimpleNamespace(config=types.SimpleNamespace(model=presets.model("vit-micro")))
    with pytest.raises(UserError, match=r"--text=a is for models of texts; name pictures with --file"):
        IMAGE.predictor.inputs(types.SimpleNamespace(text="a", file=""), folder)
    with pytest.raises(UserError, match=r"no file matches 'x\*.png'"):
        IMAGE.predictor.inputs(types.SimpleNamespace(text="", file="x*.png", attention=""), folder)
    (picture,) = IMAGE.predictor.inputs(types.SimpleNamespace(text="", file="broken.png", attention=""), folder)
    with pytest.raises(UserError, match=r"broken.png is empty: it has zero bytes; leave it out of --file"):
        sources.opened(picture["image"], 3)

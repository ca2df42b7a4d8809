"""Restored pictures: what is lost, the loss against a loop, whole runs, sentences for bad input."""

import json

import jax
import numpy as np
import pytest
from PIL import Image
from random_params import random_params
from small import call, read_lines, run

import tfm
from train import evaluate, predict
from train.images import damage, drawings, sources
from train.images.processor import ImageProcessor
from train.images.rows import ImageRows
from train.lab import inspect
from train.main import main
from train.tasks import presets
from train.tasks.restore.options import Restoration
from train.tasks.restore.rows import DamagedRows, result_processor
from train.tasks.restore.task import RESTORE

SMALL = (
    "--task=restore --model.layers=1 --model.width=32 --model.heads=2 --model.ffn=64 --model.input.size=8 "
    "--batch.size=8 --steps=40 --log.every=20 --eval.every=20 --checkpoint.every=40"
).split()


def rows_of(task, size=(8, 12), count=6):
    """Rows of random pictures, and these pictures."""
    processor = ImageProcessor(size, None, (0.4,) * 3, (0.2,) * 3)
    results = result_processor(processor, task.factor)
    pixels = np.random.default_rng(0).integers(0, 256, (count, *results.shape, 3), np.uint8)
    rows = [{"image": sources.PictureInArray("pixels", pixels, n), "withheld": n == 1} for n in range(count)]
    images = ImageRows(rows, np.zeros(count, np.int32), results, 1)
    return DamagedRows(images, processor, task, 4), pixels


def test_upscaling_reads_a_smaller_picture():
    rows, pixels = rows_of(Restoration(kind="upscale", scale=2))
    batch = rows.batch(np.array([0, 1, -1, 3]), np.random.default_rng(0))
    for row in (0, 1, 3):
        small = Image.fromarray(pixels[row]).resize((12, 8), Image.Resampling.BICUBIC)
        np.testing.assert_allclose(batch["pixels"][row], (np.asarray(small) / 255 - 0.4) / 0.2, atol=1e-5)
        start = np.asarray(small.resize((24, 16), Image.Resampling.BICUBIC)) / 255
        np.testing.assert_allclose(batch["starts"][row], start, atol=1e-6)
        np.testing.assert_allclose(batch["targets"][row], pixels[row] / 255, atol=1e-6)
    assert batch["weights"].sum((1, 2)).tolist() == [16 * 24, 0, 0, 16 * 24]
    assert batch["withheld"].tolist() == [0, 1, 0, 0]


def test_colours_are_lost_with_their_brightness_kept():
    rows, pixels = rows_of(Restoration(kind="colour"))
    batch = rows.batch(np.array([2]), np.random.default_rng(0))
    brightness = pixels[2] @ np.array([0.299, 0.587, 0.114])
    np.testing.assert_allclose(255 * batch["starts"][0], np.repeat(brightness[..., None], 3, 2), atol=1)
    np.testing.assert_allclose(batch["pixels"][0], (batch["starts"][0] - 0.4) / 0.2, atol=1e-5)


@pytest.mark.parametrize(("shape", "share"), [("rectangle", 0.25), ("patches", 0.5)])
def test_holes_hide_a_share_and_the_rest_is_right(shape, share):
    rows, pixels = rows_of(Restoration(kind="holes", shape=shape, share=share))
    batch = rows.batch(np.array([0, 2, 3, 4, 5]), np.random.default_rng(0))
    holes = batch["holes"] > 0
    assert abs(holes.mean((1, 2)) - share).max() < 0.07
    for place, row in enumerate((0, 2, 3, 4, 5)):
        hole, start = holes[place], 255 * batch["starts"][place]
        visible = pixels[row][~hole]
        np.testing.assert_allclose(start[~hole], visible, atol=1e-3)
        np.testing.assert_allclose(start[hole], np.broadcast_to(visible.mean(0), start[hole].shape), atol=0.51)
        assert (batch["pixels"][place][hole] == 0).all()
        if shape == "rectangle":
            ys, xs = np.nonzero(hole)
            assert hole.sum() == (np.ptp(ys) + 1) * (np.ptp(xs) + 1)
        else:
            blocks = hole.reshape(2, 4, 3, 4).mean((1, 3))
            assert sorted(blocks.ravel()) == [0, 0, 0, 1, 1, 1]
    assert len({mask.tobytes() for mask in holes}) > 1
    again = rows.batch(np.array([0, 2, 3, 4, 5]), np.random.default_rng(0))
    assert all((batch[name] == again[name]).all() for name in batch)


@pytest.mark.slow
def test_the_loss_is_that_of_a_loop():
    """With a hole, an empty row and a withheld drawing."""
    rows, _ = rows_of(Restoration(kind="holes", share=0.3), (8, 8), 4)
    model = presets.model("holes-micro", layers=1, width=16, heads=2, ffn=16)
    model = tfm.override(model, {"input.size": 8})
    params = random_params(tfm.pixel_specs(model, 3, 4))
    batch = rows.batch(np.array([0, 1, -1, 3]), np.random.default_rng(0))
    sums = jax.jit(RESTORE.loss, static_argnums=1)(params, model, batch, None)
    hidden = tfm.features(params.encoder, params.mix, model, batch["pixels"])
    added = np.asarray(tfm.pixel_outputs(params, model, hidden, (8, 8, 3)), np.float64)
    total, decibels, trivial = 0.0, [], []
    for row in (0, 3):
        restored = batch["starts"][row] + batch["holes"][row][..., None] * added[row]
        for y, x in np.argwhere(batch["holes"][row]):
            total += ((restored[y, x] - batch["targets"][row, y, x]) ** 2).mean()
        truth = np.rint(255 * batch["targets"][row])
        for values, image in ((decibels, restored), (trivial, batch["starts"][row])):
            error = ((np.rint(255 * np.clip(image, 0, 1)) - truth) ** 2).mean()
            values.append(10 * np.log10(255**2 / error))
    assert float(sums["loss"]) == pytest.approx(total, rel=1e-4)
    means = RESTORE.metrics({name: np.asarray(value) for name, value in sums.items()})
    assert means["loss"] == pytest.approx(total / batch["holes"][[0, 3]].sum(), rel=1e-4)
    assert means["psnr"] == pytest.approx(np.mean(decibels), abs=0.02)
    assert means["psnr_trivial"] == pytest.approx(np.mean(trivial), abs=0.02)
    assert {"psnr_withheld", "psnr_trivial_withheld", "ssim", "ssim_trivial"} <= means.keys()


def test_what_is_trivial():
    seen = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    assert (damage.trivial(seen, np.ones((4, 4), bool)) == seen).all()
    assert damage.trivial(seen[:, :, :1], np.ones((8, 6), bool)).shape == (8, 6, 1)


def write_pictures(folder, count=40):
    """Pictures of two halves in two folders; the first four have a transparent hole."""
    rng = np.random.default_rng(0)
    for n in range(count):
        path = folder / "ab"[n % 2] / f"{n}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.repeat(rng.integers(0, 256, (1, 2, 3), np.uint8), 10, 1).repeat(20, 0)
        alpha = np.full((20, 20, 1), 255, np.uint8)
        alpha[5:15, 5:12] = 0 if n < 4 else 255
        Image.fromarray(np.concatenate([pixels, alpha], 2)).save(path)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["upscale-micro", "colour-micro", "holes-micro"])
def test_a_run_on_a_folder(preset, home):
    """Trained, resumed, evaluated, asked, looked at; and a classifier starts from it."""
    write_pictures(home / "data")
    flags = (*SMALL, f"--preset={preset}", "--data=data", "--task.augment.flip=true")
    err = run(*flags, "--stop-at=20", "--out=run")
    assert "8 x 8 x 3, " in err
    run("--resume", "--out=run")
    result = json.loads((home / "run/result.json").read_text())
    assert {"eval_psnr", "eval_ssim", "eval_psnr_trivial", "eval_ssim_trivial", "eval_n"} <= result.keys()
    assert (home / "run/plots/restored.png").exists()
    (home / "table.tsv").write_text("image\n" + "".join(f"data/a/{n}.png\n" for n in range(0, 40, 2)))
    for data in ("data", "table.tsv"):
        code, out, err = call(evaluate.main, "--run=run", f"--data={data}")
        assert code == 0, err
        assert json.loads(out)["psnr"] > 0
    asked = ("--run=run", "--file=data/*/[0-3].png", "--pictures=made", "--to=out.jsonl", "--batch=3")
    code, _, err = call(predict.main, *asked)
    assert code == 0, err
    side = 16 if preset == "upscale-micro" else 8
    assert [Image.open(line["picture"]).size for line in read_lines(home / "out.jsonl")] == [(side, side)] * 4
    if preset == "holes-micro":
        code, _, err = call(predict.main, "--run=run", "--file=data/a/8.png", "--pictures=made")
        assert (code, "data/a/8.png has no pixel that is transparent; make transparent what" in err) == (2, True), err
    assert call(inspect.main, *flags, "--to=page.png", "--rows=3")[0] == 0
    run("--task=image", "--init=run", "--data=data", "--batch.size=8", "--steps=2", "--out=classes")


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--data=nothing", "nothing holds no picture (.png, .jpg"),
        ("--task.scale=1", "--task.scale=1 must be at least 2"),
        ("--task.share=1", "--task.share=1.0 must be more than 0 and less than 1; 0.2 is usual, of patches 0.6"),
        ("--preset=colour-micro --model.input.channels=1", "colour makes three channels, and model.input.channels=1"),
        ("--task.augment.erase=0.5", "augment.mixup, cutmix, randaugment and erase change what is right; leave them"),
    ],
)
def test_bad_input(flags, sentence, home, monkeypatch):
    generate = drawings.generate
    monkeypatch.setattr(drawings, "generate", lambda: generate(train=40, valid=8, withheld=4))
    (home / "nothing").mkdir()
    code, out, err = call(main, *SMALL, *flags.split(), "--out=bad")
    assert (code, out) == (2, ""), err
    assert sentence in err.splitlines()[-1]
    assert not (home / "bad").exists()


def test_predictions_need_a_folder(home):
    options = type("Options", (), {"text": "", "pictures": "", "file": "a.png"})
    with pytest.raises(Exception, match="--pictures=FOLDER must name the folder for the restored pictures"):
        RESTORE.predictor.inputs(options, None)

"""Pictures pixel by pixel: the loss against a loop, a whole run and what follows it, and sentences for bad input."""

import json

import jax
import numpy as np
import pytest
from PIL import Image
from random_params import random_params
from small import call, run

import tfm
from train import UserError, evaluate, export, generate, predict
from train.main import main
from train.tasks import presets, resolve
from train.tasks.pixels.task import PIXELS

SMALL = (
    "--task=pixels --model.layers=2 --model.width=16 --model.heads=2 --model.ffn=32 --model.length=16 "
    "--task.samples=2 --batch.size=8 --steps=60 --log.every=20 --eval.every=30 --checkpoint.every=60"
).split()
COLOURS = np.array([[250, 10, 10], [10, 250, 10], [10, 10, 250], [240, 240, 240]], np.uint8)


def test_the_loss_is_that_of_a_loop():
    """With an empty row and a withheld drawing; the start token has no probability."""
    config = presets.model("imagegpt-tiny", layers=1, width=16, heads=2, length=4, vocab=6)
    params = random_params(tfm.causal_lm_specs(config))
    rng = np.random.default_rng(0)
    targets = rng.integers(0, 5, (3, 4)).astype(np.int32)
    tokens = np.concatenate([np.full((3, 1), 5, np.int32), targets[:, :-1]], 1)
    weights, withheld = np.repeat([[1], [0], [0]], 4, 1).astype(np.float32), np.array([0, 1, 0], np.float32)
    batch = {"tokens": tokens, "targets": targets, "weights": weights, "withheld": withheld}
    sums = {
        name: float(value)
        for name, value in jax.jit(PIXELS.loss, static_argnums=1)(params, config, batch, None).items()
    }
    logits = np.asarray(jax.jit(tfm.causal_lm, static_argnums=1)(params, config, tokens), np.float64)[..., :5]
    expected = np.zeros(3)
    for row, place in np.ndindex(3, 4):
        values = logits[row, place]
        expected[row] += np.log(np.exp(values).sum()) - values[targets[row, place]]
    assert sums["loss"] == pytest.approx(expected[0], rel=1e-5)
    assert sums["withheld_loss"] == pytest.approx(expected[1], rel=1e-5)
    means = PIXELS.metrics(sums)
    assert means["bits_per_dim"] == pytest.approx(expected[0] / 4 / np.log(2), rel=1e-5)
    assert means["bits_per_dim_withheld"] == pytest.approx(expected[1] / 4 / np.log(2), rel=1e-5)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a run on pictures of one colour each: all pixels but the first can be known."""
    home = tmp_path_factory.mktemp("pixels")
    patch = pytest.MonkeyPatch()
    patch.chdir(home)
    patch.setenv("TFM_CACHE", str(home / ".cache"))
    labels = np.arange(96) % 4
    pictures = np.broadcast_to(COLOURS[labels][:, None, None], (96, 4, 4, 3))
    np.savez("colours.npz", x_train=pictures[:64], y_train=labels[:64], x_test=pictures[64:], y_test=labels[64:])
    for name, picture in zip(("red", "green"), pictures, strict=False):
        Image.fromarray(picture).save(f"{name}.png")
    run(*SMALL, "--data=colours.npz", "--out=run", "--optim.rate=1e-2")
    yield home
    patch.undo()


@pytest.mark.slow
def test_a_run_learns_more_than_frequencies(home):
    result = json.loads((home / "run/result.json").read_text())
    assert result["eval_unigram_bits_per_dim"] == pytest.approx(2, abs=1e-6)
    assert 2 / 16 < result["eval_bits_per_dim"] < 0.7
    assert {"samples.png", "completions.png"} <= {path.name for path in (home / "run/plots").iterdir()}
    processor = json.loads((home / "run/preprocessor_config.json").read_text())
    restored = np.rint((np.array(processor["clusters"]) + 1) * 127.5)
    assert sorted(restored.tolist()) == sorted(COLOURS.tolist())
    code, out, err = call(evaluate.main, "--run=run")
    assert code == 0, err
    assert json.loads(out)["bits_per_dim"] == pytest.approx(result["eval_bits_per_dim"], rel=1e-4)


@pytest.mark.slow
def test_halves_are_completed(home):
    code, _, err = call(generate.main, "--run=run", "--complete=red.png", "--n=2", "--to=out.png")
    assert code == 0, err
    assert Image.open("out.png").size[0] > 0
    code, _, err = call(generate.main, "--run=run", "--n=3", "--to=new.png", "--top-k=2")
    assert code == 0, err


@pytest.mark.slow
def test_a_probe_and_a_classifier_start_from_the_run(home):
    flags = (
        "--task=image --init=run --data=colours.npz --batch.size=8 --steps=40 --log.every=20 --eval.every=40 "
        "--checkpoint.every=40 --optim.rate=3e-2"
    ).split()
    run(*flags, "--tune=head", "--model.head.layer=1", "--out=probe")
    result = json.loads((home / "probe/result.json").read_text())
    assert result["eval_accuracy"] == 1.0
    code, out, err = call(predict.main, "--run=probe", "--file=green.png")
    assert code == 0, err
    assert out.split("\t")[:2] == ["green.png", "1"]
    code, _, err = call(export.main, "--run=probe", "--to=exported")
    assert code == 2
    assert "head.layer=1" in err


@pytest.mark.slow
def test_an_export_is_a_run_again(home):
    code, _, err = call(export.main, "--run=run", "--to=hf")
    assert code == 0, err
    fields = json.loads((home / "hf/config.json").read_text())
    assert fields["architectures"] == ["ImageGPTForCausalImageModeling"]
    code, out, err = call(evaluate.main, "--run=hf", "--data=colours.npz")
    assert code == 0, err
    result = json.loads((home / "run/result.json").read_text())
    assert json.loads(out)["bits_per_dim"] == pytest.approx(result["eval_bits_per_dim"], rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--run=run --prompt=red --to=out.png", "--prompt is for texts, and --run=run makes pictures; leave it out"),
        ("--run=run --beams=2 --to=out.png", "is for texts, and --run=run makes pictures"),
        ("--run=run", "--to= cannot be drawn; name a file that ends in .png"),
        ("--run=run --to=none/out.png", "--to=none/out.png cannot be drawn"),
        ("--run=run --complete=blue.png --to=out.png", "no file matches 'blue.png'"),
        ("--run=run --complete=run/run.json --to=out.png", "is no picture of the formats"),
        ("--run=run --complete=red.png --keep=1 --to=out.png", "keep=1.0 must be at least 0 and less than 1"),
        ("--run=run --n=600 --to=out.png", "are more than the 512 of a sheet"),
    ],
)
def test_bad_flags_of_generate(home, flags, sentence):
    code, _, err = call(generate.main, *flags.split())
    assert code == 2
    assert sentence in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--model.length=20", "model.length=20 must be the pixels of a square picture; try model.length=16"),
        ("--task.colours=1", "colours=1 must be at least 2"),
        ("--task.grey=true", "colours=512 must be at most 256 with grey=true"),
        ("--model.head.input-only=0", "model.head.input-only=0 must be 1"),
        ("--model.input=patches", "model.input=patches does not read the pictures of task=pixels"),
    ],
)
def test_bad_settings(flags, sentence):
    preset = "imagegpt-s" if "grey" in flags else "imagegpt-tiny"
    with pytest.raises(UserError, match=sentence):
        resolve.resolve(["--task=pixels", f"--preset={preset}", flags], None, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--data=white.npz --eval-data=colours.npz", "of --data=white.npz have one colour"),
        ("--init=run --data=colours.npz --model.length=64", "makes 16; leave --model.length out"),
    ],
)
def test_bad_data(home, flags, sentence):
    white = np.full((20, 4, 4, 3), 255, np.uint8)
    np.savez("white.npz", images=white, labels=np.arange(20) % 2)
    small = [flag for flag in SMALL if "length" not in flag or "length" not in flags]
    code, _, err = call(main, *small, *flags.split(), "--out=bad")
    assert code == 2
    assert sentence in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_a_classifier_needs_a_palette(home):
    code, _, err = call(main, "--task=image", "--preset=imagegpt-tiny", "--data=colours.npz", "--out=bad")
    assert code == 2
    assert "reads the colours of a palette; name a run of --task=pixels with --init=FOLDER" in err


def test_presets_have_the_sizes_of_the_paper():
    millions = {"imagegpt-s": 76, "imagegpt-m": 455, "imagegpt-l": 1362, "imagegpt-xl": 6800}
    sizes = {name: tfm.count_params(PIXELS.specs(_run(name))) / 1e6 for name in millions}
    assert sizes == pytest.approx(millions, rel=0.01)


def _run(name):
    return resolve.resolve(["--task=pixels", f"--preset={name}", "--model.vocab=513"], None, None)[0]

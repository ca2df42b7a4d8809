"""Classes of sounds: rows, whole runs, sentences for bad input."""

import json
import shutil

import numpy as np
import pytest
from small import call, read_lines, run
from sound_files import write

from train import evaluate, export, predict
from train.lab import inspect
from train.main import main
from train.sounds import files, synthetic

SMALL = (
    "--task=image --preset=sound-micro --model.layers=1 --model.width=32 --model.heads=2 --model.ffn=64 "
    "--batch.size=8 --steps=40 "
    "--optim.rate=5e-3 --log.every=20 --eval.every=20 --checkpoint.every=40"
).split()


def write_digits(folder, digits=(2, 7), count=12, seed=0):
    """A folder with a folder of sounds for each digit."""
    for digit in digits:
        (folder / synthetic.WORDS[digit]).mkdir(parents=True)
        for index in range(count):
            samples = synthetic.samples(synthetic.name_of([digit], 1000 * seed + index))
            write(folder / synthetic.WORDS[digit] / f"{index}.wav", samples)


@pytest.mark.slow
def test_a_run_on_a_folder(home):
    """Trained, resumed, evaluated, asked, looked at, and started from."""
    write_digits(home / "data")
    err = run(*SMALL, "--data=data", "--stop-at=20", "--out=run")
    assert "32 of 40 bands, 16 tokens to the model" in err
    run("--resume", "--out=run")
    result = json.loads((home / "run/result.json").read_text())
    assert {"eval_accuracy", "eval_majority", "eval_n"} <= result.keys()
    assert (home / "run/plots/confusion.png").exists()
    write_digits(home / "more", seed=1)
    code, out, err = call(evaluate.main, "--run=run", "--data=more")
    assert code == 0, err
    assert json.loads(out)["accuracy"] >= 0.9
    code, out, err = call(predict.main, "--run=run", "--file=more/*/*.wav", "--to=out.jsonl")
    assert code == 0, err
    rows = read_lines(home / "out.jsonl")
    assert np.mean([row["label"] in row["file"] for row in rows]) >= 0.9
    lines = ["sound\tlabel", *(f"two/{index}.wav\ttwo" for index in range(12))]
    (home / "data" / "table.tsv").write_text("\n".join([*lines, "seven/0.wav\tseven"]) + "\n")
    assert call(evaluate.main, "--run=run", "--data=data/table.tsv")[0] == 0
    assert call(inspect.main, *SMALL, "--data=data", "--to=page.png")[0] == 0
    run(*SMALL, "--data=data", "--init=run", "--steps=2", "--out=on")


SQUARES = (
    "--model.input=spectrogram --model.input.size=64 --model.input.channels=40 --model.head.pool=prefix "
    "--model.head.pool-norm=true --model.norm-eps=1e-12 --task.sound.features=kaldi --task.sound.hop=160"
).split()


@pytest.mark.slow
def test_squares_of_filter_banks(home):
    """Trained, and written as a folder of AST, which is read again and says the same; windows that AST has none of."""
    write_digits(home / "data", count=8)
    run(*SMALL, *SQUARES, "--data=data", "--steps=2", "--out=run")
    said = call(evaluate.main, "--run=run", "--data=data")
    assert call(export.main, "--run=run", "--to=folder")[0] == 0
    fields = json.loads((home / "folder/preprocessor_config.json").read_text())
    assert fields["feature_extractor_type"] == "ASTFeatureExtractor"
    read = call(evaluate.main, "--run=folder", "--data=data")
    assert json.loads(read[1])["loss"] == pytest.approx(json.loads(said[1])["loss"], rel=1e-5)
    write(home / "data" / "two" / "short.wav", np.zeros(399))
    code, out, err = call(evaluate.main, "--run=run", "--data=data")
    assert (code, out) == (2, "")
    assert "short.wav has 399 samples, fewer than the 400 of a frame; leave it out, or add silence" in err
    (home / "data" / "two" / "short.wav").unlink()
    run(*SMALL, *SQUARES, "--task.sound.hop=320", "--data=data", "--steps=2", "--out=wide")
    code, out, err = call(export.main, "--run=wide", "--to=no")
    assert code == 2
    assert "at every 160th one, and those of 400 at every 320th one are others; take window=400 and hop=160" in err
    assert not (home / "no").exists()


@pytest.mark.parity
def test_a_folder_of_ast_says_what_its_pipeline_says(home):
    """Classes of files, and their probabilities."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.ASTConfig(**sizes, num_mel_bins=40, max_length=64, id2label={0: "low", 1: "high"})
    transformers.ASTForAudioClassification(config).save_pretrained("ast")
    transformers.ASTFeatureExtractor(num_mel_bins=40, max_length=64).save_pretrained("ast")
    write_digits(home / "data", count=2)
    code, _, err = call(predict.main, "--run=ast", "--file=data/*/*.wav", "--to=out.jsonl")
    assert code == 0, err
    pipeline = transformers.pipeline("audio-classification", model="ast")
    for row in read_lines(home / "out.jsonl"):
        samples = files.read(row["file"], 1 << 20)
        expected = pipeline({"raw": samples, "sampling_rate": 16_000})
        assert row["label"] == expected[0]["label"]
        assert row["probabilities"] == pytest.approx({part["label"]: part["score"] for part in expected}, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--data=nowhere", "nowhere"),
        ("--data=empty", "empty has no folder with sounds (.wav, .flac, .ogg, .mp3); it must have a folder for each"),
        ("--data=data", "silent.wav holds no sample; leave it out (--data.broken=skip leaves such sounds out)"),
        ("--data=slow", "0.wav has 8,000 samples a second, and the model reads 16,000; convert it, or train with"),
        ("--model.input.size=1 --task.sound.hop=20", "1 frames of 20 samples are less than half a window of 400"),
        ("--task.augment.flip=true", "task.augment changes pictures, and model.input=frames reads none"),
        ("--task.generative=1", "predicts tokens, and model.input=frames has none; leave it out"),
        ("--model.input.convolutions=3x9", "convolutions=3x9 must be WIDTHxSTRIDE"),
    ],
)
def test_bad_input(flags, sentence, home):
    (home / "empty").mkdir()
    for name in ("data", "slow"):
        write_digits(home / name, count=1)
    write(home / "data" / "two" / "silent.wav", [])
    shutil.rmtree(home / "slow" / "two")
    (home / "slow" / "two").mkdir()
    write(home / "slow" / "two" / "0.wav", np.zeros(4000), rate=8000)
    code, out, err = call(main, *SMALL, *flags.split(), "--out=bad")
    assert (code, out) == (2, ""), err
    assert sentence in err.splitlines()[-1], err
    assert not (home / "bad").exists()

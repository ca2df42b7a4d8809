"""What is said in sounds: rows, whole runs, sentences for bad input."""

import json

import numpy as np
import pytest
from small import call, read_lines, run
from sound_files import write

import tfm
from train import evaluate, export, generate, predict
from train.lab import inspect
from train.main import main
from train.sounds import synthetic

SMALL = (
    "--task=translate --preset=whisper-micro --model.layers=1 --model.width=32 --model.heads=2 --model.ffn=64 "
    "--batch.size=8 --steps=20 "
    "--log.every=10 --eval.every=10 --checkpoint.every=20 --task.bleu=4"
).split()


def write_table(path, count, seed=0):
    """A table of sounds and their texts, beside their files."""
    lines = ["sound\ttext"]
    for name in synthetic.generate(count, (2, 4), seed):
        file = f"{name.replace(' ', '_').replace(':', '-')}.wav"
        write(path.parent / file, synthetic.samples(name))
        lines.append(f"{file}\t{synthetic.words_of(name)}")
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.slow
def test_a_run_on_a_table(home):
    """Trained, resumed, evaluated, asked, looked at, started from, and written as a folder of transformers."""
    write_table(home / "train.tsv", 60)
    write_table(home / "more.tsv", 10, seed=1)
    flags = (*SMALL, "--data=train.tsv", "--eval-data=more.tsv")
    err = run(*flags, "--stop-at=10", "--out=run")
    assert "50 of 40 bands, 25 tokens to the encoder" in err
    run("--resume", "--out=run")
    result = json.loads((home / "run/result.json").read_text())
    assert {"wer", "exact", "eval_accuracy", "eval_n"} <= result.keys()
    assert (home / "run/plots/alignment.png").exists()
    code, out, err = call(evaluate.main, "--run=run", "--data=more.tsv")
    assert code == 0, err
    assert json.loads(out)["wer"] == pytest.approx(result["wer"])
    code, out, err = call(predict.main, "--run=run", "--file=*-1000001.wav", "--to=out.jsonl")
    assert code == 0, err
    assert [row.keys() for row in read_lines(home / "out.jsonl")] == [{"file", "text"}]
    assert call(inspect.main, *flags, "--to=page.png")[0] == 0
    run(*flags, "--init=run", "--steps=2", "--out=on")
    code, _, err = call(generate.main, "--run=run", "--prompt=a")
    assert (code, "writes what is said in sounds; name these with python -m train.predict" in err) == (2, True), err
    code, _, err = call(export.main, "--run=run", "--to=folder")
    assert code == 0, err
    config, params = tfm.from_hf(home / "folder")
    assert config.encoder.input.array_shape == (50, 40)
    assert isinstance(params, tfm.Seq2Seq)
    assert json.loads((home / "folder/preprocessor_config.json").read_text())["hop_length"] == 640


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--data=words.tsv", "words.tsv, line 2 has no text column 'sound' (it has text); name it"),
        ("--data=lost.tsv", "nowhere.wav is no whole"),
        ("--data=slow.tsv", "slow.wav has 8,000 samples a second, and the model reads 16,000; convert it"),
        (
            "--batch.length=8 --data=long.tsv",
            "tokens, and --batch.length=8; raise that, or leave the sound out",
        ),
        ("--model.encoder.input=patches", "model.encoder.input=patches is not for task=translate; say frames"),
        ("--model.encoder.vocab=50", "vocab=50 is of a table of tokens that both sides would share"),
    ],
)
def test_bad_input(flags, sentence, home):
    write(home / "a.wav", np.full(4000, 0.1))
    write(home / "slow.wav", np.full(4000, 0.1), rate=8000)
    (home / "words.tsv").write_text("text\na b\n")
    (home / "lost.tsv").write_text("sound\ttext\n" + "".join(f"nowhere.wav\ta b {n}\n" for n in range(30)))
    (home / "slow.tsv").write_text("sound\ttext\n" + "".join(f"slow.wav\ta b {n}\n" for n in range(30)))
    (home / "long.tsv").write_text("sound\ttext\n" + "".join(f"a.wav\t{'a b ' * 10}{n}\n" for n in range(30)))
    code, out, err = call(main, *SMALL, *flags.split(), "--out=bad")
    assert (code, out) == (2, ""), err
    assert sentence in err.splitlines()[-1], err
    assert not (home / "bad").exists()


@pytest.mark.slow
def test_frames_are_for_translation_alone(home):
    code, _, err = call(main, "--task=denoise", "--model.encoder.input=frames", "--out=bad")
    assert (code, "model.encoder.input=frames is not for task=denoise; leave it out" in err) == (2, True), err

"""Classes of videos: whole runs, and sentences for bad input."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image
from small import call, read_lines, run

from train import evaluate, predict
from train.images import moving
from train.lab import inspect
from train.main import main

SMALL = (
    "--task=image --preset=video-micro --model.layers=1 --model.width=32 --model.heads=2 --model.ffn=64 "
    "--model.input.size=16 --batch.size=8 --steps=8 --log.every=4 --eval.every=4 --checkpoint.every=8"
).split()


def write_videos(folder, count=6, seed=0):
    """A folder for each of two colours, with files and folders of frames."""
    for index, colour in enumerate(((200, 0, 0), (0, 0, 200))):
        name = ("red", "blue")[index]
        (folder / name).mkdir(parents=True)
        for place, video in enumerate(moving.generate(count, seed + index, 8)):
            frames = [Image.fromarray(frame) for frame in np.uint8(video.video() * 0.2 + 0.8 * np.array(colour))]
            if place % 2:
                (folder / name / f"{place}").mkdir()
                for time, frame in enumerate(frames):
                    frame.save(folder / name / f"{place}" / f"{time}.png")
            else:
                frames[0].save(folder / name / f"{place}.gif", save_all=True, append_images=frames[1:])


@pytest.mark.slow
def test_a_run_on_a_folder(home):
    """Trained, resumed, evaluated, asked, looked at, and started from."""
    write_videos(home / "data")
    flags = [*SMALL, "--steps=40", "--optim.rate=1e-2", "--data=data"]
    err = run(*flags, "--stop-at=4", "--out=run")
    assert "8 frames of 16 x 16 x 3, 4 tokens to the model" in err
    run("--resume", "--out=run")
    result = json.loads((home / "run/result.json").read_text())
    assert {"eval_accuracy", "eval_majority", "eval_first_frame", "eval_mean_frame", "eval_n"} <= result.keys()
    assert json.loads((home / "run/preprocessor_config.json").read_text())["num_frames"] == 8
    assert (home / "run/plots/attention-1.png").exists()
    write_videos(home / "more", seed=5)
    code, out, err = call(evaluate.main, "--run=run", "--data=more")
    assert code == 0, err
    assert json.loads(out)["accuracy"] == 1
    code, out, err = call(predict.main, "--run=run", "--file=more", "--to=out.jsonl")
    assert code == 0, err
    rows = read_lines(home / "out.jsonl")
    assert len(rows) == 12
    assert all(row["label"] in row["file"] for row in rows)
    lines = ["video\tlabel", *(f"red/{place}{'' if place % 2 else '.gif'}\tred" for place in range(6)), "blue/1\tblue"]
    (home / "data" / "table.tsv").write_text("\n".join(lines) + "\n")
    assert call(evaluate.main, "--run=run", "--data=data/table.tsv")[0] == 0
    assert call(evaluate.main, "--run=run", "--data=data/blue/*.gif")[0] == 0
    assert call(inspect.main, *SMALL, "--data=data", "--to=page.png")[0] == 0
    run(*SMALL, "--data=data", "--init=run", "--steps=2", "--out=on")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--data=nowhere", "--data=nowhere names no videos; give a folder with a folder for each class, a table (.tsv"),
        ("--data=tfds:mnist", "--data=tfds:mnist names no videos; give a folder"),
        ("--data=empty", "empty has no folder with videos; it must have a folder for each class"),
        ("--data=flat", "holds no video (.gif, .mp4, .webm, .mov, .mkv, .avi) and no folder of frames; put the frames"),
        ("--data=one", "0.gif has one frame, and a video has two or more; repair it, or leave broken pictures out"),
        ("--data=none", "1 has no frame; repair it, or leave broken pictures out with --data.broken=skip"),
        ("--data.label=caption", "--data.label=caption is no label of the built-in videos; leave it out"),
        ("--task.augment.flip=true", "task.augment changes pictures, and model.input=tubes reads none"),
        ("--model.input.frames=7", "frames=7 must be a multiple of tube=8; try frames=8"),
        ("--task.generative=1", "predicts tokens, and model.input=tubes has none; leave it out"),
    ],
)
def test_bad_input(flags, sentence, home):
    (home / "empty").mkdir()
    still = Image.new("RGB", (16, 16))
    for name in ("one", "none"):
        write_videos(home / name, count=2)
    still.save(home / "one" / "red" / "0.gif")
    shutil.rmtree(home / "none" / "red" / "1")
    (home / "none" / "red" / "1").mkdir()
    (home / "flat" / "red").mkdir(parents=True)
    still.save(home / "flat" / "red" / "0.png")
    code, out, err = call(main, *SMALL, *flags.split(), "--out=bad")
    assert (code, out) == (2, ""), err
    assert sentence in err.splitlines()[-1], err
    assert not (home / "bad").exists()

"""Objects in pictures: rows, the loss against a loop, whole runs, bad input."""

import json

import jax
import numpy as np
import pytest
from hf_models import stored
from PIL import Image
from random_params import random_params
from scipy.optimize import linear_sum_assignment
from small import call, read_lines, run

import tfm
from train import evaluate, export, predict
from train.images import drawings, scenes
from train.lab import inspect
from train.main import main
from train.runs.run_folder import open_folder
from train.tasks import presets
from train.tasks.detect.loss import compute, totals
from train.tasks.detect.predict import in_pixels
from train.tasks.detect.task import DETECT

SMALL = (
    "--task=detect --model.layers=1 --model.width=32 --model.heads=2 --model.ffn=64 --model.input.size=16 "
    "--task.layers=1 --batch.size=8 --steps=40 --log.every=20 --eval.every=20 --checkpoint.every=40"
).split()


def overlap(a, b):
    """The generalized intersection over union of two boxes."""
    low = [max(a[n] - a[n + 2] / 2, b[n] - b[n + 2] / 2) for n in (0, 1)]
    high = [min(a[n] + a[n + 2] / 2, b[n] + b[n + 2] / 2) for n in (0, 1)]
    hull = np.prod([max(a[n] + a[n + 2] / 2, b[n] + b[n + 2] / 2) - min(a[n] - a[n + 2] / 2, b[n] - b[n + 2] / 2)
                    for n in (0, 1)])  # fmt: skip
    both = max(0, high[0] - low[0]) * max(0, high[1] - low[1])
    union = a[2] * a[3] + b[2] * b[3] - both
    return both / union - (hull - union) / hull


@pytest.mark.slow
@pytest.mark.parametrize("layers", [2, 0])
def test_the_loss_is_that_of_a_loop(layers):
    """With crowds, an empty row, one without objects and a withheld drawing; as one batch and in parts. Four trained
    queries, or four patches."""
    model = tfm.override(presets.model("detect-micro"), {"layers": 1, "width": 16, "heads": 2, "classes": 3})
    model = tfm.override(model, {"input.size": 8})
    params = random_params(tfm.detector_specs(model, queries=4, layers=layers))
    rng = np.random.default_rng(0)
    batch = {
        "pixels": rng.normal(size=(6, 8, 8, 3)).astype(np.float32),
        "labels": rng.integers(0, 3, (6, 4)).astype(np.int32),
        "boxes": rng.uniform(0.2, 0.6, (6, 4, 4)).astype(np.float32),
        "objects": np.array(
            [[1, 1, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 0, 0]], np.float32
        ),
        "weights": np.array([1, 1, 1, 0, 0, 1], np.float32),
        "withheld": np.array([0, 0, 0, 0, 1, 0], np.float32),
    }
    batch |= {"crowds": 1 - batch["objects"], "queries": np.full(6, 4, np.float32)}
    logits, boxes = (
        np.asarray(values, np.float64)
        for values in jax.jit(tfm.detect, static_argnums=1)(params, model, batch["pixels"])
    )
    losses = []
    for layer in range(max(1, layers)):
        entropy, weight, l1, generalized, objects = 0.0, 0.0, 0.0, 0.0, 0
        for row in np.flatnonzero(batch["weights"]):
            log_chances = logits[layer, row] - np.log(np.exp(logits[layer, row]).sum(-1, keepdims=True))
            real = np.flatnonzero(batch["objects"][row])
            guessed, right = boxes[layer, row], batch["boxes"][row].astype(np.float64)
            costs = [[5 * abs(guessed[q] - right[o]).sum() + 2 * (1 - overlap(guessed[q], right[o]))
                      - np.exp(log_chances[q, batch["labels"][row, o]]) for q in range(4)] for o in real]  # fmt: skip
            classes = np.full(4, 3)
            for o, q in zip(*linear_sum_assignment(np.reshape(costs, (len(real), 4))), strict=True):
                classes[q] = batch["labels"][row, real[o]]
                l1 += abs(guessed[q] - right[real[o]]).sum()
                generalized += 1 - overlap(guessed[q], right[real[o]])
                objects += 1
            for q in range(4):
                part = 0.1 if classes[q] == 3 else 1.0
                entropy, weight = entropy - part * log_chances[q, classes[q]], weight + part
        losses.append(entropy / weight + (5 * l1 + 2 * generalized) / objects)
    sums = jax.jit(DETECT.loss, static_argnums=1)(params, model, batch, None)
    assert float(sums["loss"] / sums["weight"]) == pytest.approx(losses[-1], rel=1e-4)
    assert ("auxiliary_layers" in sums) == (layers > 1)
    if layers > 1:
        assert float(sums["auxiliary_layers"] / sums["weight"]) == pytest.approx(losses[0], rel=1e-4)
    means = DETECT.metrics({name: np.asarray(value) for name, value in sums.items()})
    assert means["loss"] == pytest.approx(losses[-1], rel=1e-4)
    assert {"ap", "ap50", "ap75", "ap50_withheld", "accuracy"} <= means.keys()
    parts = [{name: value[rows] for name, value in batch.items()} for rows in (slice(0, 3), slice(3, 6))]
    part_sums = jax.jit(compute, static_argnums=1)
    of_parts = [part_sums(params, model, {**totals(batch), **part}, None) for part in parts]
    assert sum(float(part["loss"]) for part in of_parts) == pytest.approx(float(sums["loss"]), rel=1e-4)


def test_boxes_in_pixels_stay_within_their_picture():
    assert in_pixels(np.array([0.5, 0.25, 0.5, 0.5]), 40, 20) == [10, 0, 20, 10]
    assert in_pixels(np.array([0.9, 0.5, 0.4, 2.0]), 10, 10) == pytest.approx([7, 0, 3, 10])


def write_squares(folder, count=48, suffix="jpg"):
    """Pictures of 40 x 20 pixels with a bright square each, and a COCO file beside them."""
    rng = np.random.default_rng(0)
    (folder / "images").mkdir(parents=True)
    content = {"images": [], "annotations": [], "categories": [{"id": 5, "name": "dark"}, {"id": 2, "name": "bright"}]}
    for n in range(count):
        x, y, kind = int(rng.integers(0, 30)), int(rng.integers(0, 10)), int(rng.integers(2))
        pixels = rng.integers(90, 130, (20, 40, 3), np.uint8)
        pixels[y : y + 10, x : x + 10] = 250 * kind
        Image.fromarray(pixels).save(folder / "images" / f"{n}.{suffix}")
        content["images"].append({"id": 100 + n, "file_name": f"{n}.{suffix}", "width": 40, "height": 20})
        box = {"id": n, "image_id": 100 + n, "category_id": (5, 2)[kind], "bbox": [x, y, 10, 10], "iscrowd": 0}
        content["annotations"].append(box)
    (folder / "annotations.json").write_text(json.dumps(content))


@pytest.mark.slow
def test_a_run_on_a_coco_file(home):
    """Trained, resumed, evaluated, asked, looked at; results as COCO's evaluator reads them."""
    write_squares(home / "squares")
    flags = (*SMALL, "--data=squares", "--task.queries=3", "--task.augment.flip=true", "--task.augment.crop=0.7")
    err = run(*flags, "--optim.rate=3e-3", "--stop-at=20", "--out=run")
    assert "classes     2: bright, dark" in err
    assert "boxes       48, 1 in a picture at most" in err
    run("--resume", "--out=run")
    result = json.loads((home / "run/result.json").read_text())
    assert {"eval_ap", "eval_ap50", "eval_ap_dark", "eval_fixed_ap50", "eval_loss_class"} <= result.keys()
    assert (home / "run/plots/boxes.png").exists()
    code, _, err = call(evaluate.main, "--run=run", "--data=squares/annotations.json", "--to=results.json")
    assert code == 0, err
    results = json.loads((home / "results.json").read_text())
    assert len(results) == 3 * 48
    assert {entry["image_id"] for entry in results} == {*range(100, 148)}
    assert {entry["category_id"] for entry in results} <= {2, 5}
    assert all(len(entry["bbox"]) == 4 and 0 <= entry["score"] <= 1 for entry in results)
    asked = ("--run=run", "--file=squares/images", "--pictures=made", "--to=out.jsonl")
    code, _, err = call(predict.main, *asked)
    assert code == 0, err
    lines = read_lines(home / "out.jsonl")
    assert len(lines) == 48
    assert all({"class", "score", "box"} == {*entry} for line in lines for entry in line["objects"])
    assert Image.open(home / "made/7.png").width > 100
    assert call(inspect.main, *flags, "--to=page.png", "--rows=6")[0] == 0
    err = run(*SMALL, "--data=squares", "--task.queries=3", "--init=run", "--out=on")
    assert "fresh" not in err


@pytest.mark.slow
def test_a_folder_of_detr_is_trained_and_written(home):
    """Its queries and layers, the size of its processor, and the head, whose classes are those of the data."""
    stored(home / "hf", "detr", "DetrForObjectDetection")
    fields = json.loads((home / "hf/config.json").read_text()) | {"id2label": {"0": "dark", "1": "bright"}}
    assert fields.pop("image_size") == 8
    (home / "hf/config.json").write_text(json.dumps(fields))
    processor = {"image_processor_type": "DetrImageProcessor", "size": {"height": 8, "width": 16}, "do_pad": True}
    (home / "hf/preprocessor_config.json").write_text(json.dumps(processor))
    write_squares(home / "squares", 16)
    err = run("--task=detect", "--init=hf", "--data=squares", "--steps=2", "--batch.size=8", "--out=run")
    assert "pixels      8 x 16 x 3" in err
    assert "fresh" not in err
    saved = json.loads((home / "run/run.json").read_text())
    assert (saved["config"]["task"]["queries"], saved["config"]["task"]["layers"]) == (5, 3)
    assert saved["data"]["classes"] == ["dark", "bright"]
    read, trained = (tfm.from_hf(home / "hf")[1], open_folder("run").load())
    frozen = [params.encoder.embed.stem.norm for params in (read, trained)]
    assert jax.tree.all(jax.tree.map(lambda leaf, expected: (leaf == expected).all(), *frozen))
    assert not (read.encoder.embed.stem.kernel == trained.encoder.embed.stem.kernel).all()
    code, _, err = call(export.main, "--run=run", "--to=written")
    assert code == 0, err
    written = json.loads((home / "written/config.json").read_text())
    assert (written["model_type"], written["image_size"], written["num_queries"]) == ("detr", [8, 16], 5)
    assert written["id2label"] == {"0": "dark", "1": "bright"}
    said = json.loads((home / "written/preprocessor_config.json").read_text())
    assert (said["image_processor_type"], said["do_pad"]) == ("DetrImageProcessor", False)
    results = []
    for folder in ("run", "written"):
        code, out, err = call(evaluate.main, f"--run={folder}", "--data=squares")
        assert code == 0, err
        results.append(json.loads(out)["loss"])
        assert call(predict.main, f"--run={folder}", "--file=squares/images/0.jpg")[0] == 0
    assert results[0] == pytest.approx(results[1], rel=1e-5)
    (home / "hf/preprocessor_config.json").write_text(json.dumps(processor | {"size": {"shortest_edge": 8}}))
    code, _, err = call(predict.main, "--run=hf", "--file=squares/images/0.jpg")
    assert code == 2
    assert "do_pad=true is not supported: all pictures have one shape here; name its height and width" in err


@pytest.mark.slow
def test_drawings_and_a_classifier_that_it_starts_from(home, monkeypatch):
    generate = scenes.generate
    monkeypatch.setattr(scenes, "generate", lambda: generate(train=400, valid=16, withheld=8))
    of_drawings = drawings.generate
    monkeypatch.setattr(drawings, "generate", lambda: of_drawings(train=400, valid=16, withheld=8))
    short = [flag for flag in SMALL if not flag.startswith(("--steps", "--eval"))] + ["--steps=4", "--eval.every=2"]
    run(*short, "--out=drawn")
    result = json.loads((home / "drawn/result.json").read_text())
    assert 0 <= result["eval_ap50_withheld"] <= 1
    assert result["eval_n"] == 16
    image = [flag for flag in short[1:] if not flag.startswith("--task")]
    run("--task=image", *image, "--preset=vit-micro", "--model.input.patch=4", "--out=classes")
    run("--task=detect", "--init=classes", "--steps=2", "--batch.size=8", "--task.layers=1", "--out=on")


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--data=squares --task.queries=0", "--task.queries=0 must be at least 1"),
        (
            "--data=squares --task.layers=0 --task.queries=17",
            "--task.queries=17 must be at most 16, the patches of a picture",
        ),
        ("--data=table.tsv", "table.tsv has no boxes; name a COCO file such as annotations.json, or a folder with one"),
        ("--data=squares --task.augment.mixup=1", "augment.mixup, cutmix, randaugment and erase know no boxes; leave"),
        (
            "--data=squares --task.pixels.resize=20",
            "pixels.resize crops the centre of pictures, and boxes are of all of",
        ),
        ("--data=many --task.queries=1", "many/images/0.jpg has 2 boxes, more than --task.queries=1; raise that to 2"),
        ("--data=sizes", "sizes/images/3.jpg has 30 x 20 pixels, and its file of boxes says 40 x 20; correct one"),
    ],
)
def test_bad_input(flags, sentence, home):
    for name in ("squares", "many", "sizes"):
        write_squares(home / name, 12)
    Image.new("RGB", (30, 20)).save(home / "sizes/images/3.jpg")
    content = json.loads((home / "many/annotations.json").read_text())
    content["annotations"].append(content["annotations"][0])
    (home / "many/annotations.json").write_text(json.dumps(content))
    rows = "".join(f"squares/images/{n}.jpg\t{n % 2}\n" for n in range(12))
    (home / "table.tsv").write_text(f"image\tlabel\n{rows}")
    code, out, err = call(main, *SMALL, *flags.split(), "--out=bad")
    assert (code, out) == (2, ""), err
    assert sentence in err.splitlines()[-1]
    assert not (home / "bad").exists()

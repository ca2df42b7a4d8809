"""Classes of pixels: metrics against a plain evaluator, the loss against a loop, whole runs, bad input."""

import itertools
import json

import jax
import numpy as np
import pytest
from PIL import Image
from random_params import random_params
from small import call, read_lines, run

import tfm
from train import evaluate, predict
from train.images import drawings, masks, sources
from train.images.processor import ImageProcessor
from train.images.rows import ImageRows
from train.lab import inspect
from train.main import main
from train.metrics.overlap import class_ious, mean_iou
from train.settings.images import Augment
from train.tasks import presets
from train.tasks.segment.options import PixelClasses
from train.tasks.segment.rows import MaskRows, is_class, reduced
from train.tasks.segment.task import SEGMENT

SMALL = (
    "--task=segment --model.layers=1 --model.width=32 --model.heads=2 --model.ffn=64 --model.input.size=16 "
    "--batch.size=8 --steps=60 --log.every=20 --eval.every=30 --checkpoint.every=60"
).split()


def test_intersection_over_union_is_that_of_a_plain_evaluator():
    """200 random predictions: sets of pixels of all pictures, by class, with pixels that count nowhere."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        classes, shape = int(rng.integers(2, 6)), tuple(rng.integers(1, 6, 3))
        truths, guesses = rng.integers(0, classes, shape), rng.integers(0, int(rng.integers(1, classes + 1)), shape)
        counts = rng.random(shape) > 0.3
        expected = []
        for label in range(classes):
            pixels = list(itertools.product(*map(range, shape)))
            labelled = {pixel for pixel in pixels if counts[pixel] and truths[pixel] == label}
            predicted = {pixel for pixel in pixels if counts[pixel] and guesses[pixel] == label}
            union = labelled | predicted
            expected.append(len(labelled & predicted) / len(union) if union else float("nan"))
        totals = [
            [(where & counts & (value == label)).sum() for label in range(classes)]
            for value, where in ((truths, truths == guesses), (guesses, True), (truths, True))
        ]
        ious = class_ious(*map(np.array, totals))
        np.testing.assert_allclose(ious, expected, rtol=1e-12)
        occurring = [iou for iou in expected if iou == iou]
        assert mean_iou(*map(np.array, totals)) == pytest.approx(sum(occurring) / max(1, len(occurring)))


@pytest.mark.slow
def test_the_loss_is_that_of_a_loop():
    """With pixels that count nowhere, an empty row, and a drawing that is withheld."""
    model = presets.model("segment-micro", layers=1, width=16, heads=2, ffn=16, classes=3)
    model = tfm.override(model, {"input.size": 8})
    params = random_params(tfm.pixel_specs(model, 3, 2))
    rng = np.random.default_rng(0)
    weights = (rng.random((4, 8, 8)) > 0.3) * np.array([1, 1, 0, 0])[:, None, None]
    withheld = (rng.random((4, 8, 8)) > 0.3) * np.array([0, 0, 0, 1])[:, None, None]
    batch = {
        "pixels": rng.normal(size=(4, 8, 8, 3)).astype(np.float32),
        "labels": rng.integers(0, 3, (4, 8, 8)).astype(np.int32),
        "weights": weights.astype(np.float32),
        "withheld": withheld.astype(np.float32),
    }
    sums = jax.jit(SEGMENT.loss, static_argnums=1)(params, model, batch, None)
    hidden = tfm.features(params.encoder, params.mix, model, batch["pixels"])
    logits = np.asarray(tfm.pixel_outputs(params, model, hidden, (8, 8, 3)), np.float64)
    loss, table = 0.0, np.zeros((2, 3, 3), int)
    for row, y, x in np.ndindex(4, 8, 8):
        values, label = logits[row, y, x], batch["labels"][row, y, x]
        if weights[row, y, x]:
            loss += np.log(np.exp(values).sum()) - values[label]
        if weights[row, y, x] or withheld[row, y, x]:
            table[int(row == 3), label, values.argmax()] += 1
    assert float(sums["loss"]) == pytest.approx(loss, rel=1e-5)
    means = SEGMENT.metrics({name: np.asarray(value) for name, value in sums.items()})
    ious = [np.diag(part) / (part.sum(0) + part.sum(1) - np.diag(part)) for part in table]
    assert means["loss"] == pytest.approx(loss / weights.sum(), rel=1e-5)
    assert means["accuracy"] == pytest.approx(np.trace(table[0]) / table[0].sum())
    assert means["mean_iou"] == pytest.approx(ious[0].mean())
    assert means["mean_iou_withheld"] == pytest.approx(ious[1].mean())


def test_masks_of_drawings_are_where_a_pixel_has_the_colour_of_a_shape():
    train, _, withheld = drawings.generate(30, 1, 10)
    for drawing in [*train, *withheld]:
        values, pixels = drawings.mask(drawing), drawings.draw(drawing).astype(float)
        for shape in (drawing.first, drawing.second):
            of_shape = values == drawings.MASK_CLASSES.index(shape.shape)
            part = np.zeros_like(of_shape)
            part[shape.y - shape.radius : shape.y + shape.radius, shape.x - shape.radius : shape.x + shape.radius] = (
                True
            )
            share = (drawing.ground - pixels) @ (drawing.ground - np.array(shape.rgb, float))
            share /= ((drawing.ground - np.array(shape.rgb)) ** 2).sum()  # covered by the shape, up to rounding
            assert (of_shape & part)[share > 0.52].sum() == ((share > 0.52) & part & of_shape).sum()
            assert not (of_shape & part & (share < 0.48)).any()


@pytest.mark.parametrize("ignore", [255, 7, None])
def test_reduced_labels_are_those_of_a_loop(ignore):
    """As transformers has them: 0 has no class, 255 none either, and others are less by 1."""
    options, values = PixelClasses(reduce_labels=True, ignore=ignore), np.arange(256).astype(np.uint8)
    classes = reduced(values, options)
    for value in range(256):
        expected = 255 if value in (0, 255) else value - 1
        assert classes[value] == expected
        assert is_class(classes, options)[value] == (expected not in (255, ignore))
    plain = PixelClasses(ignore=ignore)
    assert (reduced(values, plain) == values).all()
    assert (is_class(values, plain) == (values != ignore)).all()


class Pixels:
    """A mask, or a picture, of these values."""

    def __init__(self, values):
        self.values = values

    def open(self, channels=1):
        """A picture."""
        return Image.fromarray(self.values if channels == 1 else np.repeat(self.values[:, :, None], 3, 2))


def test_a_mask_is_cropped_and_mirrored_as_its_picture_is():
    values = np.random.default_rng(0).integers(0, 200, (20, 24), np.uint8)
    processor = ImageProcessor((12, 16), None, (0.5,) * 3, (0.5,) * 3, resample="nearest")
    images = ImageRows([{"image": Pixels(values)}] * 8, np.zeros(8, np.int32), processor, 1)
    rows = MaskRows(images, [Pixels(values)] * 8, processor, PixelClasses(ignore=7))
    images.train_with(images.loss, Augment(flip=True, crop=0.3))
    batch = rows.batch(np.array([0, 1, 2, -1, 4, 5]), np.random.default_rng(1))
    pixels = processor.restore(batch["pixels"])[..., 0]
    counts = batch["weights"] > 0
    np.testing.assert_array_equal(batch["labels"][counts], pixels[counts])
    assert not counts[3].any()
    assert (pixels[[0, 1, 2, 4, 5]][~counts[[0, 1, 2, 4, 5]]] == 7).all()
    assert len({mask.tobytes() for mask in batch["labels"]}) == 6
    again = rows.batch(np.array([0, 1, 2, -1, 4, 5]), np.random.default_rng(1))
    assert all((batch[name] == again[name]).all() for name in batch)


def write_masks(folder, count=48, suffix="png", palette=True):
    """Pictures with a bright square each, in folders, and masks of it; a frame has no class."""
    rng = np.random.default_rng(0)
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True)
    for n in range(count):
        y, x = rng.integers(2, 12, 2)
        pixels, mask = rng.integers(0, 90, (20, 24, 3), np.uint8), np.zeros((20, 24), np.uint8)
        pixels[y : y + 6, x : x + 6] += 150
        mask[y : y + 6, x : x + 6] = 1
        mask[0] = 255
        Image.fromarray(pixels).save(folder / "images" / f"{n}.{suffix}")
        image = Image.fromarray(mask)
        if palette:
            image.putpalette(rng.integers(0, 256, 768, np.uint8).tobytes())
        image.save(folder / "masks" / f"{n}.png")


@pytest.mark.slow
def test_a_run_on_a_folder(home):
    """Trained, resumed, evaluated, asked, looked at, and gone on from; a table of the same files reads the same."""
    write_masks(home / "squares", suffix="jpg")
    flags = (*SMALL, "--data=squares", "--task.classes=ground,square", "--task.cells=4", "--task.augment.flip=true")
    err = run(*flags, "--optim.rate=3e-3", "--stop-at=40", "--out=run")
    assert "classes     2: ground, square" in err
    run("--resume", "--out=run", "--steps=60")
    result = json.loads((home / "run/result.json").read_text())
    assert result["eval_mean_iou"] > 0.7 > result["eval_majority_iou"]
    assert {"eval_iou_ground", "eval_iou_square", "eval_majority"} <= result.keys()
    assert (home / "run/plots/masks.png").exists()

    rows = "\n".join(f"images/{n}.jpg\tmasks/{n}.png" for n in range(48))
    (home / "squares/table.tsv").write_text(f"image\tmask\n{rows}\n")
    measured = [json.loads(call(evaluate.main, "--run=run", f"--data={data}")[1])
                for data in ("squares", "squares/table.tsv")]  # fmt: skip
    assert measured[0]["mean_iou"] == pytest.approx(measured[1]["mean_iou"])

    code, _, err = call(predict.main, "--run=run", "--file=squares/images", "--pictures=made", "--to=out.jsonl")
    assert code == 0, err
    right = predicted = labelled = np.zeros(2)
    for line in read_lines(home / "out.jsonl"):
        mask = np.asarray(Image.open(line["mask"]))
        truth = np.asarray(Image.open(line["file"].replace("images", "masks").replace("jpg", "png")))
        assert mask.shape == (20, 24)
        mask, truth = mask[truth < 255], truth[truth < 255]
        right = right + np.bincount(truth[truth == mask], minlength=2)
        predicted, labelled = predicted + np.bincount(mask, minlength=2), labelled + np.bincount(truth, minlength=2)
    assert mean_iou(right, predicted, labelled) > 0.6
    assert call(inspect.main, *flags, "--to=page.png", "--rows=6")[0] == 0
    assert Image.open(home / "page.png").width > 400
    err = run(*SMALL, "--data=squares", "--task.classes=ground,square", "--init=run")
    assert "fresh" not in err


@pytest.mark.slow
def test_heads_stages_and_sizes(home, monkeypatch):
    """An MLP without cells, a Swin, and a classifier that it starts from; drawings with withheld pairs."""
    generate = drawings.generate
    monkeypatch.setattr(drawings, "generate", lambda: generate(train=400, valid=16, withheld=8))
    short = [flag for flag in SMALL if not flag.startswith(("--steps", "--eval"))] + ["--steps=4", "--eval.every=2"]
    run(*short, "--task.head=mlp", "--task.cells=1", "--out=mlp")
    result = json.loads((home / "mlp/result.json").read_text())
    assert 0 <= result["eval_mean_iou_withheld"] <= 1
    assert result["eval_n"] == 16
    run("--task=image", *short[1:], "--preset=vit-micro", "--model.input.patch=4", "--out=classes")
    run("--task=segment", "--init=classes", "--steps=2", "--batch.size=8", "--out=on")
    swin = ["--model.width=12", "--model.heads=1", "--steps=2", "--batch.size=8", "--eval.every=1", "--out=swin"]
    run("--task=image", "--preset=swin-mini", *swin)
    run("--task=segment", "--init=swin", "--task.cells=4", "--steps=2", "--batch.size=8", "--out=stages")


def test_two_parts_of_a_folder(home):
    for part in ("training", "validation"):
        write_masks(home / part, 3)
    for name in ("images", "annotations"):
        for part in ("training", "validation"):
            (home / "ade" / name / part).parent.mkdir(parents=True, exist_ok=True)
            (home / part / name.replace("annotations", "masks")).rename(home / "ade" / name / part)
    (home / "ade/annotations/training/1.png").unlink()
    lines = []
    train, valid = masks.folder_rows(home / "ade", lines.append)
    assert lines == [f"1 of 6 pictures of {home}/ade have no mask, and are left out"]
    assert [len(train), len(valid)] == [2, 3]
    assert str(train[1]["image"]).endswith("images/training/2.png")


def _broken(home, kind):
    """A folder with a fault."""
    folder = home / "data"
    write_masks(folder, 8)
    match kind:
        case "no masks":
            (folder / "masks").rename(folder / "others")
        case "a mask alone":
            (folder / "images/3.png").unlink()
        case "colours":
            Image.open(folder / "masks/2.png").convert("RGB").save(folder / "masks/2.png")
        case "size":
            Image.open(folder / "masks/2.png").resize((12, 10)).save(folder / "masks/2.png")
        case "value":
            Image.fromarray(np.full((20, 24), 9, np.uint8)).save(folder / "masks/2.png")
        case "empty":
            (folder / "masks/2.png").write_bytes(b"")
        case "table":
            (folder / "table.tsv").write_text("image\tmask\nimages/1.png\tmasks/77.png\nimages/2.png\tmasks/2.png\n")


@pytest.mark.parametrize(
    ("kind", "flags", "sentence"),
    [
        ("no masks", "", "data must have two folders, images and masks, with a mask FOLDER/masks/a.png for each"),
        ("a mask alone", "", "data/masks/3.png is a mask without a picture in data/images; give both the same name"),
        ("colours", "", "data/masks/2.png, the mask of data/images/2.png, is of the mode RGB; write a value from 0"),
        ("size", "", "data/masks/2.png has 12 x 10 pixels, and its picture data/images/2.png has 24 x 20; make them"),
        ("value", "--task.classes=a,b", "data/masks/2.png has the value 9, and classes are 0 to 1 (a, b); correct it"),
        ("empty", "", "data/masks/2.png, the mask of data/images/2.png, is empty: it has zero bytes"),
        ("table", "--data=data/table.tsv", "masks/77.png, the mask of data/images/1.png, does not exist"),
        ("value", "--task.reduce_labels=true --task.classes=a,b", "has the value 9, and classes are 1 to 2 (a, b)"),
        (
            "",
            "--model.head.decoder_width=8 --task.head=mlp",
            "task.head=mlp is a map before the classes, and",
        ),
        ("", "--task.cells=5", "task.cells=5 must be at most 4, the side of a patch in pixels"),
        ("", "--task.classes=a", "classes=a must name two classes or more, such as ground,tree; or say none"),
        ("", "--task.augment.mixup=1", "augment.mixup, cutmix and randaugment are not for masks; leave them out"),
    ],
)
def test_bad_input(kind, flags, sentence, home):
    _broken(home, kind)
    code, out, err = call(main, *SMALL, "--data=data", *flags.split(), "--out=bad")
    assert (code, out) == (2, ""), err
    assert sentence in err.splitlines()[-1]
    assert not (home / "bad").exists()


def test_predictions_need_a_name_and_a_folder_each(home):
    for folder in ("a", "b"):
        write_masks(home / folder, 1)

    def asked(**fields):
        return SEGMENT.predictor.inputs(type("Options", (), {"text": "", "pictures": "", "file": "", **fields}), None)

    with pytest.raises(Exception, match=r"a/images/0.png and b/images/0.png would both become made/0.png"):
        asked(file="*/images", pictures="made")
    with pytest.raises(Exception, match=r"--pictures=a/images would replace a/images/0.png; name another folder"):
        asked(file="a/images", pictures="a/images")
    with pytest.raises(Exception, match=r"--pictures=x/y cannot be made; name a folder in one that is there"):
        asked(file="a/images", pictures="x/y")
    assert [row.to for row in asked(file="a/images")] == [""]
    assert isinstance(asked(file="a/images")[0].image, sources.PictureFile)

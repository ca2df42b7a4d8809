"""Boxes of pictures: of drawings against their pixels, along with random changes, and COCO's files."""

import json

import numpy as np
import pytest
from PIL import Image

from train import UserError
from train.images import boxes, drawings, scenes
from train.images.augmentation import augmented
from train.images.processor import ImageProcessor
from train.settings.images import Augment


def test_boxes_of_drawings_are_around_their_pixels():
    train, valid, withheld = scenes.generate(60, 5, 10)
    assert (len(train), len(valid), len(withheld)) == (60, 5, 10)
    assert {len(scene.shapes) for scene in train} == {1, 2, 3}
    assert not any(scene.is_withheld for scene in train)
    assert all(scene.is_withheld for scene in withheld)
    for scene in [*train, *withheld]:
        pixels = np.asarray(scene.open(3)).astype(float)
        for shape, box in zip(scene.shapes, scene.boxes, strict=True):
            rgb = np.array(shape.rgb, float)
            share = (scene.ground - pixels) @ (scene.ground - rgb) / ((scene.ground - rgb) ** 2).sum()
            part = np.zeros(share.shape, bool)
            part[shape.y - shape.radius : shape.y + shape.radius, shape.x - shape.radius : shape.x + shape.radius] = (
                True
            )
            ys, xs = np.nonzero(part & (share > 0.48))
            assert (box.x, box.y) == (xs.min(), ys.min())
            assert (box.width, box.height) == (np.ptp(xs) + 1, np.ptp(ys) + 1)
            assert box.name == shape.shape in drawings.SHAPES


def test_boxes_go_along_with_their_pictures():
    """A bright square, cropped and mirrored: its box is where its pixels are."""
    pixels = np.zeros((40, 60, 3), np.uint8)
    pixels[10:22, 30:50] = 255
    image, processor = Image.fromarray(pixels), ImageProcessor((80, 120), resample="nearest")
    box = boxes.scaled([boxes.Box("square", 30, 10, 20, 12)], 60, 40)
    augment, seen = Augment(flip=True, crop=0.4), 0
    for seed in range(30):
        picture = augmented(image, processor, augment, np.random.default_rng(seed))
        (x, y, width, height) = boxes.changed(box, image.size, augment, np.random.default_rng(seed))[0]
        ys, xs = np.nonzero(picture[:, :, 0] > 128)
        if not len(ys):
            assert min(width, height) < 0.05
            continue
        seen += 1
        right = [(xs.min() + xs.max() + 1) / 240, (ys.min() + ys.max() + 1) / 160, np.ptp(xs) / 120, np.ptp(ys) / 80]
        np.testing.assert_allclose([x, y, width, height], right, atol=0.03)
    assert seen > 20


CONTENT = {
    "images": [{"id": 7, "file_name": "a.png", "width": 24, "height": 20}],
    "categories": [{"id": 3, "name": "tree"}, {"id": 1, "name": "car"}],
    "annotations": [{"id": 1, "image_id": 7, "category_id": 3, "bbox": [2, 3, 10, 8], "iscrowd": 1}],
}


def write(folder, content=CONTENT, **fields):
    """A COCO file with some fields changed, and its picture."""
    folder.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (24, 20)).save(folder / "a.png")
    (folder / "annotations.json").write_text(json.dumps({**content, **fields}))
    return folder / "annotations.json"


def test_a_coco_file(tmp_path):
    row = boxes.coco_rows(write(tmp_path), print)[0]
    assert row["boxes"] == (boxes.Box("tree", 2, 3, 10, 8, True),)
    assert row["categories"] == {1: "car", 3: "tree"}
    assert (row["id"], row["size"], str(row["image"])) == (7, (24, 20), str(tmp_path / "a.png"))
    assert boxes.classes_of([row], None) == ["car", "tree"]
    with pytest.raises(UserError, match="the boxes have the class tree, and the run has car; leave it out"):
        boxes.classes_of([row], ["car"])


def test_boxes_without_area_are_left_out(tmp_path):
    lines, flat = [], CONTENT["annotations"][0] | {"bbox": [2, 3, 10, 0]}
    rows = boxes.coco_rows(write(tmp_path, annotations=[flat, *CONTENT["annotations"]]), lines.append)
    assert len(rows[0]["boxes"]) == 1
    assert lines == [f"1 boxes of {tmp_path}/annotations.json have no area, and are left out"]


def test_folders_with_a_file_in_each(tmp_path):
    for part in ("train", "valid"):
        write(tmp_path / part)
    train, valid = boxes.folder_rows(tmp_path, print)
    assert [len(train), len(valid)] == [1, 1]
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        UserError, match="holds no file of boxes; it must have a COCO file beside its pictures, such as"
    ):
        boxes.folder_rows(tmp_path / "empty", print)
    (tmp_path / "train" / "more.json").write_text("{}")
    with pytest.raises(UserError, match=r"has several files of boxes \(annotations.json, more.json\); name one with"):
        boxes.folder_rows(tmp_path / "train", print)


BOX = CONTENT["annotations"][0]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"images": None}, "has no list 'images' of objects; a COCO file has images, annotations and categories"),
        ({"annotations": []}, "has no boxes; there must be annotations with a bbox each"),
        ({"annotations": [BOX | {"image_id": 8}]}, "a box is of the picture 8, which is not in images; correct it"),
        ({"annotations": [BOX | {"category_id": 9}]}, "has category_id=9, which is not in categories; correct it"),
        (
            {"annotations": [BOX | {"bbox": [1, 2, 3]}]},
            r"bbox=\[1, 2, 3\]; it must be x, y, width and height in pixels",
        ),
        ({"annotations": [BOX | {"bbox": [20, 3, 10, 8]}]}, "which is outside of its 24 x 20 pixels; correct it"),
        ({"annotations": [BOX | {"bbox": [9, 3, -2, 8]}]}, "which is outside of its 24 x 20 pixels; correct it"),
        ({"categories": [{"id": 3, "name": "a"}, {"id": 1, "name": "a"}]}, "two categories of one id or one name"),
        ({"images": [CONTENT["images"][0] | {"file_name": "b.png"}]}, "names b.png, which is neither beside it nor in"),
        ({"images": [CONTENT["images"][0] | {"id": None}]}, "an entry of images has id=None; correct it"),
    ],
)
def test_bad_files(fields, sentence, tmp_path):
    with pytest.raises(UserError, match=sentence):
        boxes.coco_rows(write(tmp_path, **fields), print)


def test_a_file_that_is_no_json(tmp_path):
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(UserError, match="is no JSON file"):
        boxes.coco_rows(tmp_path / "a.json", print)

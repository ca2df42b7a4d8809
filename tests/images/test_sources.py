"""Pictures from folders, tables and arrays; one sentence for whatever is in the way."""

import gzip
import struct
import types

import numpy as np
import pytest
from PIL import Image

from train import UserError
from train.data.labels import label_checker
from train.images import sources
from train.images.checking import NAMED
from train.images.decoding import to_array
from train.settings.schema import Data

pytestmark = pytest.mark.usefixtures("home")
READER = sources.PictureReader("image", "label", label_checker("single", ["label"]))


class Log:
    """Keeps lines."""

    def __init__(self):
        self.lines = []

    def info(self, text):
        self.lines.append(text)

    def progress(self, title, total):
        return self

    def __enter__(self):
        return lambda units: None

    def __exit__(self, *error):
        return None


def pictures(folder, count=8, classes=("cat", "dog")):
    for label in classes:
        (folder / label).mkdir(parents=True, exist_ok=True)
        for n in range(count):
            pixels = np.random.default_rng([n, len(label), ord(label[0])]).integers(0, 256, (4, 5, 3), np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{n}.png")


def load(source, log=None, **options):
    return sources.load(Data(source=str(source), **options), READER, lambda: None, log or Log())


def labels(rows):
    return [row["label"] for row in rows]


def test_a_folder_with_a_folder_for_each_class(home):
    pictures(home / "pets", 30)
    train, valid = load("pets")
    assert sorted(labels(train + valid)) == ["cat"] * 30 + ["dog"] * 30
    assert valid
    assert {str(row["image"]) for row in train}.isdisjoint({str(row["image"]) for row in valid})
    assert load("pets")[1] == valid, "the split is always the same"
    by_glob = load("pets/*/*.png")
    assert [labels(part) for part in by_glob] == [labels(train), labels(valid)]


def test_equal_pictures_stay_together(home):
    pictures(home / "pets", 20)
    for n in range(20):
        (home / f"pets/cat/copy{n}.png").write_bytes((home / f"pets/cat/{n}.png").read_bytes())
    train, valid = load("pets")
    assert {row["digest"] for row in train}.isdisjoint({row["digest"] for row in valid})
    assert len(train) + len(valid) == 60


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl"])
def test_tables(home, kind):
    pictures(home / "pets")
    rows = [("pets/cat/0.png", "a cat"), ("pets/dog/1.png", "a dog"), ("pets/dog/2.png", "a dog")]
    lines = {
        "tsv": ["image\tlabel", *("\t".join(row) for row in rows)],
        "csv": ["image,label", *(",".join(row) for row in rows)],
        "jsonl": [f'{{"image": "{image}", "label": "{label}"}}' for image, label in rows],
    }
    (home / f"table.{kind}").write_text("\n".join(lines[kind]) + "\n")
    train, valid = load(f"table.{kind}", eval=f"table.{kind}")
    assert [(str(row["image"]), row["label"]) for row in train] == rows
    assert labels(valid) == labels(train)


def test_a_table_without_a_header(home):
    pictures(home / "pets")
    (home / "table.tsv").write_text("pets/cat/0.png\tx\ta\npets/dog/0.png\ty\tb\n")
    train, _ = load("table.tsv", eval="table.tsv", header=False)
    assert [(str(row["image"]), row["label"]) for row in train] == [("pets/cat/0.png", "a"), ("pets/dog/0.png", "b")]


def test_paths_begin_at_the_table(home):
    pictures(home / "data/pets")
    (home / "data/table.tsv").write_text("image\tlabel\npets/cat/0.png\ta\npets/dog/0.png\tb\n")
    train, _ = load("data/table.tsv", eval="data/table.tsv")
    assert [str(row["image"]) for row in train] == ["data/pets/cat/0.png", "data/pets/dog/0.png"]


def write_idx(path, array):
    content = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def test_idx_files(home):
    digits = np.arange(5 * 12, dtype=np.uint8).reshape(5, 3, 4)
    for part, ending in (("train", ""), ("t10k", ".gz")):
        write_idx(home / f"{part}-images-idx3-ubyte{ending}", digits)
        write_idx(home / f"{part}-labels-idx1-ubyte{ending}", np.arange(5, dtype=np.uint8))
    train, valid = load(home)
    assert labels(train) == labels(valid) == list("01234")
    np.testing.assert_array_equal(to_array(train[3]["image"].open(1))[:, :, 0], digits[3])
    train, valid = load("train-images-idx3-ubyte", eval="t10k-images-idx3-ubyte.gz")
    assert (len(train), len(valid)) == (5, 5)


def test_npz(home):
    colours = np.random.default_rng(0).integers(0, 256, (6, 3, 4, 3), np.uint8)
    np.savez(home / "a.npz", x_train=colours, y_train=np.arange(6)[:, None], x_test=colours[:2], y_test=np.arange(2))
    train, valid = load("a.npz")
    assert (labels(train), labels(valid)) == (list("012345"), ["0", "1"])
    np.testing.assert_array_equal(to_array(train[3]["image"].open(3)), colours[3])


def test_broken_pictures_are_named_and_counted(home):
    pictures(home / "pets", 20)
    for n in range(NAMED + 2):
        (home / f"pets/cat/broken{n}.png").write_bytes(b"no picture" * (n % 2))
    with pytest.raises(UserError, match=r"broken0.png is empty: .* \(6 more are broken\); repair it, or .*=skip"):
        load("pets")
    log = Log()
    train, valid = load("pets", log, broken="skip")
    assert len(train) + len(valid) == 40
    assert sum("left out: " in line for line in log.lines) == NAMED + 1
    assert log.lines[-1] == "pets: 7 of 47 pictures are broken"
    repaired = (home / "pets/cat/0.png").read_bytes()
    for n in range(NAMED + 2):
        (home / f"pets/cat/broken{n}.png").write_bytes(repaired)
    assert sum(map(len, load("pets"))) == 47, "a verdict is of the file as it was"


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("nowhere", "no file matches 'nowhere'; give a folder with a folder for each class"),
        ("empty", r"empty has no folder with pictures \(.png, .jpg"),
        ("splits", "splits has a folder for each split; name them: --data=splits/train --eval-data=splits/test"),
        ("notes.txt", r"notes.txt is no picture \(.png"),
        ("two.tsv", "two.tsv names pets/cat/0.png with the label 'cat' and with 'dog'; leave one of them out"),
        ("nothing.tsv", "nothing.tsv, line 3, column 'label': the label '' names no class"),
        ("absent.tsv", r"gone.png does not exist; repair it"),
        ("columns.tsv", r"columns.tsv, line 2 has no text column 'image' \(it has path, label\); name it with"),
        ("missing.jsonl", "missing.jsonl, line 1 has a row with nothing in its column 'label'"),
        ("x-images-idx3-ubyte", "has no labels beside it; put x-labels-idx1-ubyte into the same folder"),
        ("y-images-idx3-ubyte", "y-images-idx3-ubyte has not the 1,000,000,000 bytes|holds 1.0 GB of pictures"),
        ("z-images-idx3-ubyte", "is no IDX file of bytes with 3 axes"),
        ("torn.npz", "torn.npz is not a whole .npz file"),
        ("names.npz", "names.npz holds a, b; name its arrays x_train/y_train or"),
        ("floats.npz", r"floats.npz, x is float64 \[2, 3, 3\]; pictures are uint8"),
        ("counts.npz", r"counts.npz, y is \[3\], for 2 pictures"),
    ],
)
def test_bad_sources(home, source, sentence):
    pictures(home / "pets")
    for name in ("empty", "splits/train", "splits/test"):
        (home / name).mkdir(parents=True)
    tables = {
        "two.tsv": "image\tlabel\npets/cat/0.png\tcat\npets/cat/0.png\tdog\n",
        "nothing.tsv": "image\tlabel\npets/cat/0.png\tcat\npets/cat/1.png\t\n",
        "absent.tsv": "image\tlabel\npets/cat/0.png\tcat\ngone.png\tdog\n",
        "columns.tsv": "path\tlabel\npets/cat/0.png\tcat\n",
        "missing.jsonl": '{"image": "pets/cat/0.png", "label": null}\n',
        "notes.txt": "a text\n",
    }
    for name, text in tables.items():
        (home / name).write_text(text)
    write_idx(home / "x-images-idx3-ubyte", np.zeros((2, 3, 3), np.uint8))
    (home / "y-images-idx3-ubyte").write_bytes(bytes([0, 0, 8, 3]) + struct.pack(">III", 1000, 1000, 1000))
    (home / "z-images-idx3-ubyte").write_bytes(b"text")
    for name in "yz":
        write_idx(home / f"{name}-labels-idx1-ubyte", np.zeros(2, np.uint8))
    (home / "torn.npz").write_bytes(b"PK")
    images = np.zeros((2, 3, 3), np.uint8)
    np.savez(home / "names.npz", a=images, b=images)
    np.savez(home / "floats.npz", x=images / 1.0, y=np.arange(2))
    np.savez(home / "counts.npz", x=images, y=np.arange(3))
    with pytest.raises(UserError, match=sentence) as caught:
        load(source)
    assert "\n" not in str(caught.value)


def test_pictures_of_a_dataset(monkeypatch, home):
    """Of a set as tensorflow-datasets decodes it: bytes of a picture, and the index of a class."""
    from tensorflow_datasets import features

    from train.data.sources import tfds

    kinds = features.FeaturesDict({"image": features.Image(), "label": features.ClassLabel(names=["a", "b"])})
    content = types.SimpleNamespace(red=b"")

    def examples(source, keep):
        return keep(kinds), [{"image": content.red, "label": 1}]

    monkeypatch.setattr(tfds, "examples", examples)
    with pytest.raises(UserError, match="tfds:pets, picture 0 is empty"):
        load("tfds:pets", eval="tfds:pets")
    Image.new("RGB", (2, 2), "red").save("red.png")
    content.red = (home / "red.png").read_bytes()
    train, _ = load("tfds:pets", eval="tfds:pets")
    assert labels(train) == ["b"]
    assert to_array(train[0]["image"].open(3))[0, 0].tolist() == [255, 0, 0]
    with pytest.raises(UserError, match=r"tfds:pets has no feature 'kind' \(it has image, label\)"):
        sources.load(Data(source="tfds:pets"), READER._replace(label="kind"), lambda: None, Log())


def test_named_pictures(home):
    pictures(home / "pets", 2)
    assert [str(picture) for picture in sources.named_pictures("pets/*/0.png")] == ["pets/cat/0.png", "pets/dog/0.png"]
    assert len(sources.named_pictures("pets")) == 4
    with pytest.raises(UserError, match="no file matches 'x.png'"):
        sources.named_pictures("x.png")

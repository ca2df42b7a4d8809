"""Pictures in tars and in files of columns: read from the disk, whatever is beside them."""

import io
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow import ipc, parquet

from train import UserError
from train.data.labels import label_checker
from train.images import sources
from train.images.decoding import to_array
from train.screens.console import Log
from train.settings.schema import Data

pytestmark = pytest.mark.usefixtures("home")
CHECK = label_checker("single", ["label"])


def pixels_of(n, side=6):
    return np.random.default_rng(n).integers(0, 256, (side, side, 3), np.uint8)


def png(n, side=6):
    file = io.BytesIO()
    Image.fromarray(pixels_of(n, side)).save(file, "PNG")
    return file.getvalue()


def write_tar(path, samples):
    """Samples {ending: bytes}, numbered from 0."""
    with tarfile.open(path, "w") as archive:
        for n, files in enumerate(samples):
            for ending, content in files.items():
                member = tarfile.TarInfo(f"train/{n:04}.{ending}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


def load(source, field="image", label="cls", several=False, check=CHECK):
    reader = sources.PictureReader(field, label, check, several=several)
    return sources.load(Data(source=str(source), eval=str(source)), reader, lambda: None, Log(quiet=True))[0]


def check_rows(rows, labels):
    assert [row["label"] for row in rows] == labels
    for n, row in enumerate(rows):
        np.testing.assert_array_equal(to_array(row["image"].open(3)), pixels_of(n))


def test_tars_of_classes(home):
    for shard in range(2):
        numbers = range(3 * shard, 3 * shard + 3)
        write_tar(home / f"{shard}.tar", [{"png": png(n), "cls": f"{n % 2}\n".encode()} for n in numbers])
    rows = load("*.tar")
    check_rows(rows, ["0", "1"] * 3)
    assert str(rows[4]["image"]) == "1.tar, train/0001.png"
    assert len({row["digest"] for row in rows}) == 6


def test_tars_of_captions(home):
    samples = [{"json": json.dumps({"texts": [f"a {n}", f"b {n}"]}).encode(), "png": png(n)} for n in range(3)]
    write_tar(home / "0.tar", samples)
    rows = load("0.tar", label="json.texts", several=True)
    assert [row["label"] for row in rows] == ["a 0", "b 0", "a 1", "b 1", "a 2", "b 2"]
    check_rows(rows[::2], ["a 0", "a 1", "a 2"])
    check_rows(load("0.tar", label="__key__"), ["train/0000", "train/0001", "train/0002"])


def test_one_of_two_pictures_is_named(home):
    write_tar(home / "0.tar", [{"seg.png": png(9), "png": png(n), "cls": b"a"} for n in range(2)])
    check_rows(load("0.tar", field="png"), ["a", "a"])
    with pytest.raises(UserError, match=r"0000 must have one picture, and it has seg.png, png; name one with"):
        load("0.tar")


def table(**columns):
    return pyarrow.table({"label": [0, 1, 1], **columns})


@pytest.mark.parametrize("is_struct", [False, True])
def test_parquet(home, is_struct):
    """Bytes in a column, or as `datasets` writes pictures and the names of classes."""
    content = [png(n) for n in range(3)]
    names = {"info": {"features": {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}
    if is_struct:
        cells = table(image=[{"bytes": picture, "path": None} for picture in content])
        cells = cells.replace_schema_metadata({"huggingface": json.dumps(names)})
    else:
        cells = table(image=content)
    parquet.write_table(cells, "0.parquet", row_group_size=2)
    labels = ["cat", "dog", "dog"] if is_struct else ["0", "1", "1"]
    check_rows(load("0.parquet", label="label"), labels)
    (copy,) = (home / ".cache").glob("shard-*.bin")
    check_rows(load("0.parquet", label="label"), labels)
    copy.unlink()
    check_rows(load("0.parquet", label="label"), labels)


def test_arrow(home):
    cells = table(image=[png(n) for n in range(3)])
    with ipc.new_stream("0.arrow", cells.schema) as writer:
        writer.write_table(cells)
    check_rows(load("0.arrow", label="label"), ["0", "1", "1"])


BAD = {
    "no label": ({"png": png(0)}, r"0000 has no file 'cls' \(it has png, __key__\); name it with --data.label=NAME"),
    "no picture": ({"cls": b"a"}, r"0000 must have one picture, and it has none that ends in .png"),
    "broken": ({"png": png(0)[:50], "cls": b"a"}, r"0.tar, train/0000.png cannot be decoded"),
    "empty": ({"png": b"", "cls": b"a"}, r"0.tar, train/0000.png is empty"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_tars(home, name):
    files, sentence = BAD[name]
    write_tar(home / "0.tar", [files])
    with pytest.raises(UserError, match=sentence):
        load("0.tar")


def test_other_bad_files(home):
    write_tar(home / "0.tar", [{"png": png(n), "cls": b"a"} for n in range(3)])
    content = (home / "0.tar").read_bytes()
    (home / "1.tar").write_bytes(b"x" * 900)
    (home / "2.tar").write_bytes(content[:1400])
    with pytest.raises(UserError, match=r"1.tar is damaged, or no tar"):
        load("1.tar")
    with pytest.raises(UserError, match=r"2.tar.*"):
        load("2.tar")
    (home / "1.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(UserError, match=r"1.parquet is damaged, or of another format"):
        load("1.parquet")
    parquet.write_table(table(image=["a text"] * 3), "2.parquet")
    with pytest.raises(UserError, match=r"2.parquet, row 1, column 'image' holds no bytes of a picture"):
        load("2.parquet", label="label")
    with pytest.raises(UserError, match=r"2.parquet has .* column 'class' .*it has label, image"):
        load("2.parquet", label="class")
    rows = load("0.tar")
    (home / "0.tar").unlink()
    with pytest.raises(ValueError, match=r"is in 0.tar, which does not exist"):
        rows[0]["image"].open(3)


# What a process needs to make batches of a source, in MB of memory that is its own.
MEASURE = """
import re, sys
from train.screens.console import Log
from train.tasks import resolve, table

def own():
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1000

argv = ["--task=" + sys.argv[1], "--data=" + sys.argv[2], *sys.argv[3:], "--batch.size=16", "--steps=10"]
run = resolve.resolve(argv, None, None)[0]
import jax, train.training.startup
before = own()
corpus = table.task_of(run).load(run, Log(quiet=True))
for n in range(20):
    corpus.batch(n)
print(len(corpus.train[0]), own() - before)
"""


def measured(*argv) -> tuple[float, float]:
    """Rows to train on, and MB of memory."""
    environ = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    ended = subprocess.run([sys.executable, "-c", MEASURE, *argv], capture_output=True, text=True, env=environ)
    assert ended.returncode == 0, ended.stderr
    rows, megabytes = map(float, re.split(r"\s+", ended.stdout.strip()))
    return rows, megabytes


@pytest.mark.slow
def test_memory_of_small_pictures(home):
    """A picture is a place in a file, less than 1.5 KB, however many there are."""
    noise, grown = np.random.default_rng(0).integers(0, 256, (4, 4, 3), np.uint8), []
    for count in (2_000, 22_000):
        samples = []
        for n in range(count):
            noise[0, 0] = n % 3, n % 256, n // 256
            file = io.BytesIO()
            Image.fromarray(noise).save(file, "PPM")
            samples.append({"ppm": file.getvalue(), "cls": f"c {n % 7}".encode()})
        write_tar(home / f"{count}.tar", samples)
        grown.append(measured("image", f"{count}.tar", "--data.label=cls")[1])
    print(f"\n{grown} MB")
    assert grown[1] - grown[0] < 30


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "kind", "label"),
    [("image", "tar", "cls"), ("image", "parquet", "label"), ("contrast", "tar", "cls"), ("pixels", "tar", "cls")],
)
def test_memory_is_a_part_of_the_pictures(home, task, kind, label):
    """Half a gigabyte of noise. `-s` shows the memory."""
    noise = np.random.default_rng(0).integers(0, 256, (64, 512, 3), np.uint8)
    size = 0
    for shard in range(8):
        samples = []
        for n in range(640):
            noise[0, 0] = shard, n % 256, n // 256
            file = io.BytesIO()
            Image.fromarray(noise).save(file, "PPM")
            samples.append({"ppm": file.getvalue(), "cls": f"c {n % 7}".encode()})
        path = home / f"{shard}.{kind}"
        if kind == "tar":
            write_tar(path, samples)
        else:
            cells = {"image": [files["ppm"] for files in samples], "label": [n % 7 for n in range(640)]}
            parquet.write_table(pyarrow.table(cells), path, row_group_size=64)
        size += path.stat().st_size
    assert size > 5e8
    flags = ["--preset=clip-tiny"] if task == "contrast" else []
    rows, megabytes = measured(task, f"*.{kind}", f"--data.label={label}", *flags)
    print(f"\n{task}: {size / 1e6:.0f} MB in files of {kind}, {megabytes:.0f} MB of memory")
    assert rows > 0.85 * 8 * 640
    assert megabytes < 200

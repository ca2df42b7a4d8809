"""What was asked for cannot be: devices, folders in the place of files, places that cannot be written, bad labels."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small import FLAGS, call, run, write_text

from train import evaluate
from train.generate import main as generate
from train.main import main
from train.predict import main as predict
from train.runs import manifest

ENV = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_home")]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Runs of a language model and of a classifier, and folders in the place of files."""
    folder = tmp_path_factory.mktemp("home")
    write_text(folder / "text.txt")
    for name in ("folder", "folder.txt"):
        (folder / name).mkdir()
    rows = [f"the {word} film {n}\t{label}" for n in range(60) for word, label in (("good", "yes"), ("bad", "no"))]
    (folder / "labels.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run(*FLAGS, "--task=lm", "--out=lm")
        run(*FLAGS, "--task=classify", "--data=labels.tsv", "--steps=2", "--out=classify")
    return folder


def refused(command, *flags):
    """The sentence with which a command refuses; nothing is left behind."""
    before = sorted(Path().rglob("*"))
    code, out, err = call(command, *flags)
    assert (code, out) == (2, ""), err
    assert "Traceback" not in err
    (sentence,) = (line for line in err.splitlines() if line.startswith("error: "))
    assert err.splitlines()[-1] == sentence
    assert sorted(Path().rglob("*")) == before
    return sentence


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        (generate, ["--run=lm", "--file=folder"]),
        (generate, ["--run=lm", "--prompt-file=folder"]),
        (generate, ["--run=lm", "--file=folder.txt"]),
        (predict, ["--run=classify", "--file=folder.txt"]),
        (predict, ["--run=classify", "--file=folder"]),
    ],
    ids=lambda value: "".join(value[1:]) if isinstance(value, list) else "",
)
def test_folders_in_the_place_of_files(command, flags):
    assert flags[1].partition("=")[2] in refused(command, *flags)


@pytest.mark.parametrize("to", ["out.txt", "out.jsonl"])
@pytest.mark.parametrize(
    ("command", "flags"),
    [(generate, ["--run=lm", "--prompt=the cat", "--max-new-tokens=2"]), (predict, ["--run=classify", "--text=good"])],
    ids=["generate", "predict"],
)
def test_a_place_that_cannot_be_written(command, flags, to, tmp_path):
    mount = ["mount", "-t", "tmpfs", "-o", "ro,size=64k", "tmpfs", str(tmp_path)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no right to mount a disk")
    try:
        sentence = refused(command, *flags, f"--to={tmp_path / to}")
        assert "Read-only file system" in sentence
        assert str(tmp_path / to) in sentence
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


@pytest.mark.parametrize(
    "words",
    [
        ["train.main", *FLAGS, "--out=tpu"],
        ["train.evaluate", "--run=lm"],
        ["train.generate", "--run=lm", "--prompt=the"],
        ["train.predict", "--run=classify", "--text=good"],
        ["train.export", "--run=lm", "--to=tpu"],
    ],
    ids=lambda words: words[0],
)
def test_a_platform_that_is_not_there(words):
    env = ENV | {"JAX_PLATFORMS": "tpu"}
    process = subprocess.run([sys.executable, "-m", *words], env=env, capture_output=True, text=True)
    assert (process.returncode, process.stdout) == (2, ""), process.stderr
    assert process.stderr.splitlines()[-1].startswith("error: JAX_PLATFORMS=tpu cannot be used: ")
    assert "Traceback" not in process.stderr
    assert not Path("tpu").exists()


def test_a_note_of_another_type(tmp_path):
    """With the checksum that it should have: somebody else may write both."""
    path = Path(shutil.copytree("lm", tmp_path / "run")) / "checkpoints" / "6"
    note = path / "note" / "metadata"
    note.write_text(json.dumps(json.loads(note.read_text()) | {"window": 3}))
    manifest.write(path, 6)
    sentence = refused(main, "--resume", f"--out={tmp_path / 'run'}", "--steps=8")
    assert f"checkpoint 6 of {tmp_path / 'run'}: note.window=3 must be an object" in sentence
    assert call(evaluate.main, f"--run={tmp_path / 'run'}")[0] == 0, "its parameters are whole"


@pytest.mark.parametrize(
    ("kind", "cells", "label"),
    [
        ("multi", ("7", "1"), "a,b"),
        ("multi", ("nan", "1"), "a,b"),
        ("single", ("", "x"), "a"),
        ("regression", ("nan", "1"), "a"),
        ("regression", ("inf", "1"), "a"),
        ("regression", ("1e300", "1"), "a"),
    ],
)
def test_bad_labels_leave_nothing_behind(kind, cells, label):
    rows = ["text\ta\tb", *(f"film {n}\t{n % 2}\t{n % 2}" for n in range(60)), "a film\t" + "\t".join(cells)]
    Path("cells.tsv").write_text("\n".join(rows) + "\n")
    flags = [*FLAGS, "--task=classify", f"--task.kind={kind}", "--data=cells.tsv", f"--data.label={label}"]
    assert "line 62" in refused(main, *flags, "--out=bad")
    assert "line 62" in refused(main, *flags)
    assert not Path("runs").exists()

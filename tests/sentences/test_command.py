"""The command: tables, resumption, refusals."""

import json

import numpy as np
import pytest
from small import call

from train.sentences.__main__ import main
from train.sentences.table import draw

LETTERS = "abcdef"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Word vectors, and tasks that they make easy."""
    folder = tmp_path_factory.mktemp("sentences")
    rng = np.random.default_rng(0)
    vectors = {letter: np.eye(6)[n] for n, letter in enumerate(LETTERS)} | {
        f"w{n}": rng.normal(size=6) * 0.1 for n in range(9)
    }
    (folder / "words.vec").write_text(
        "".join(f"{word} {' '.join(map(str, vector))}\n" for word, vector in vectors.items())
    )
    data = folder / "data"
    (data / "STS13-en-test").mkdir(parents=True)

    def lines(count, classes):
        return "".join(f"{n % classes} {LETTERS[n % classes]} w{n % 7}\n" for n in range(count))

    (data / "rt-polarity.all").write_text(lines(60, 2))
    (data / "TREC.train.all").write_text(lines(90, 6))
    (data / "TREC.test.all").write_text(lines(30, 6))
    for name in ("FNWN", "headlines", "OnWN"):
        pairs = [(LETTERS[n % 5], LETTERS[(n + n % 2) % 6]) for n in range(12)]
        (data / f"STS13-en-test/STS.input.{name}.txt").write_text("".join(f"{a} w1\t{b} w2\n" for a, b in pairs))
        (data / f"STS13-en-test/STS.gs.{name}.txt").write_text("".join(f"{5.0 * (a == b)}\n" for a, b in pairs))
    return folder


FAST = ("--protocol=prototype", "--classifier.kfold=3", "--classifier.max-epoch=4")


def test_table_and_resumption(home, in_home, monkeypatch):
    flags = ("--encoder=bow:words.vec", "--data=data", "--out=out", *FAST)
    code, out, err = call(main, *flags, "--tasks=MR,STS13")
    assert code == 0, err
    rows = {line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]] for line in out.splitlines()}
    assert rows["MR"][:2] == ["accuracy", "100.00"]
    assert rows["MR"][3] == "50.0", "the constant guess"
    assert rows["STS13"][0] == "pearson"
    assert rows["mean: similarity"][1] == "none without STS12, STS14, STS15, STS16"
    saved = json.loads((home / "out/results.json").read_text())
    assert (saved["protocol"], saved["classifier"]["kfold"], saved["classifier"]["optim"]) == (
        "prototype",
        3,
        "rmsprop",
    )
    before = (home / "out/MR.json").read_bytes()
    code, out, err = call(main, *flags)
    assert code == 0, err
    assert "MR: finished before" in err
    assert list(json.loads((home / "out/results.json").read_text())["tasks"]) == ["MR", "TREC", "STS13"]
    assert (home / "out/MR.json").read_bytes() == before
    assert (home / "out/table.md").read_text() == out
    assert (home / "out/plots/scores.png").read_bytes().startswith(b"\x89PNG")
    draw({"tasks": saved["tasks"]}, home / "out/again.png")
    code, _, err = call(main, *flags, "--classifier.seed=3")
    assert code == 2
    assert "--classifier=" in err
    assert "differs from" in err
    (home / "data/rt-polarity.all").write_text((home / "data/rt-polarity.all").read_text().replace("w1", "w2"))
    code, _, err = call(main, *flags)
    assert code == 2
    assert "the files of MR have changed since out/MR.json; restore them, or name a new --out" in err


BAD = [
    (["--encoder=bow:words.vec"], "--data=FOLDER must name the folder with the files of the tasks"),
    (["--data=data"], "--run=FOLDER or --encoder=bow:FILE must say what encodes texts, one of the two"),
    (["--encoder=bow:none.vec", "--data=data", *FAST], "none.vec does not exist; name a file of word vectors"),
    (["--encoder=bow:words.vec", "--data=data", "--tasks=SST"], "--tasks=SST is unknown; did you mean SST5?"),
    (
        ["--encoder=bow:words.vec", "--data=data", "--protocol=fast"],
        "--protocol=fast is unknown; known are comparable, prototype",
    ),
    (["--encoder=bow:words.vec", "--data=data", "--tasks=MR"], "MR has 60 rows, and 10 folds need 100"),
    (["--run=none", "--data=data", *FAST], "none is not a run folder"),
    (["--encoder=bow:words.vec", "--data=data", "--classifier.nhidden=4"], "did you mean classifier.nhid?"),
]


@pytest.mark.parametrize(("argv", "message"), BAD, ids=[message[:30] for _, message in BAD])
def test_bad_usage(argv, message, in_home):
    code, out, err = call(main, *argv)
    assert (code, out) == (2, "")
    assert message in err.splitlines()[-1]


def test_help(capsys):
    assert main(["--help"]) == 0
    assert "--classifier.tenacity=5" in capsys.readouterr().out

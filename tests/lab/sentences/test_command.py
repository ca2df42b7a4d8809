"""The command: tables, resumption, refusals."""

import json

import numpy as np
import pytest
from small import call

from train.lab.sentences.command import main
from train.lab.sentences.table import draw

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


@pytest.mark.slow
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


@pytest.mark.slow
def test_several_encoders_in_one_table(home, in_home):
    """Columns are tasks; seeds are a mean and a deviation; other settings are refused."""
    (home / "other.vec").write_text("a 1 0\nb 0 1\nc 1 1\n")
    for file, out in (("words", "road/words/0"), ("other", "road/words/1"), ("other", "road/other")):
        code, _, err = call(main, f"--encoder=bow:{file}.vec", "--data=data", f"--out={out}", *FAST, "--tasks=MR,STS13")
        assert code == 0, err
    code, out, err = call(main, "--compare=road/words,road/other", "--out=new/table")
    assert code == 0, err
    header, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in out.splitlines()]
    assert header == ["encoder", "MR", "STS13"]
    assert [row[0] for row in rows] == ["words", "other"]
    saved = [json.loads((home / f"road/{name}/MR.json").read_text()) for name in ("words/0", "words/1", "other")]
    first, second, single = (result["metrics"]["accuracy"]["value"] for result in saved)
    assert rows[0][1] == f"{(first + second) / 2:.1f} ± {abs(first - second) / 2**0.5:.1f}"
    assert rows[1][1] == f"{single:.1f}"
    assert (home / "new/table/table.md").read_text() == out
    assert (home / "new/table/plots/comparison.png").read_bytes().startswith(b"\x89PNG")
    call(main, "--encoder=bow:other.vec", "--data=data", "--out=slow", *FAST, "--tasks=MR", "--classifier.nhid=3")
    code, _, err = call(main, "--compare=road/other,slow")
    assert code == 2
    assert "slow and other were measured by other settings of classifiers; measure one of them again" in err
    code, _, err = call(main, "--compare=road/other,./road/other")
    assert code == 2
    assert "has two folders of one name, which names its row; rename one" in err
    for content, sentence in (("{", "is damaged"), ("{}", "is of another command; name the --out of suites")):
        (home / "slow/results.json").write_text(content)
        code, _, err = call(main, "--compare=slow")
        assert code == 2
        assert sentence in err


BAD = [
    (["--compare=nowhere", "--data=data"], "shows results that are there; leave run, encoder and data out"),
    (["--compare=nowhere"], "--compare=nowhere holds no results.json, nor do folders in it"),
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

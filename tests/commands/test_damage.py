"""Damaged run folders: every flipped bit is noticed, or changes nothing. TFM_TEST_FLIPS says how many are tried."""

import contextlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from small import FLAGS, call, run, write_text

from train import evaluate
from train.main import main
from train.runs import manifest, run_folder, saved
from train.runs.claim import OWNER, claimed_folder
from train.tasks.table import AnyRun

FLIPS = int(os.environ.get("TFM_TEST_FLIPS", "12"))

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_home")]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a text, and a run on it: the metrics of its evaluation are in evaluation.json."""
    folder = tmp_path_factory.mktemp("home")
    write_text(folder / "text.txt")
    with contextlib.chdir(folder):
        run(*FLAGS, "--out=whole")
        code, out, err = call(evaluate.main, "--run=whole")
        assert code == 0, err
        Path("evaluation.json").write_text(out)
    return folder


@pytest.fixture
def copy(home, tmp_path):
    """The same run, to be damaged."""
    return Path(shutil.copytree(home / "whole", tmp_path / "copy"))


def flip(path, bit):
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(bytes(data))


def numbers(folder):
    """Whatever a run says in numbers, but for its clock."""
    clock = {"tokens_per_s", "ms_per_step", "seconds"}
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    lines.append(json.loads((folder / "result.json").read_text()))
    return [{name: value for name, value in line.items() if name not in clock} for line in lines]


def outcome(command, folder, home):
    """What a command makes of a damaged folder: refused in a sentence, named in a line, or the same numbers."""
    if command is evaluate.main:
        code, out, err = call(command, f"--run={folder}")
        same = code == 0 and out == (home / "evaluation.json").read_text()
    else:
        code, out, err = call(command, "--resume", f"--out={folder}")
        same = code == 0 and numbers(folder) == numbers(home / "whole")
    assert "Traceback" not in err
    sentences = [line for line in err.splitlines() if line.startswith("error: ")]
    if code == 2 and len(sentences) == 1:
        return "refused"
    signs = ("cannot be read (", "is damaged; it is left out", "is not as the run wrote it")
    if code == 0 and any(sign in err for sign in signs):
        return "named"
    return "same" if same else f"SILENT: {code} {out} {err}"


def test_a_flipped_bit_is_noticed_or_changes_nothing(home, tmp_path):
    """In any file of a run folder, whichever command reads it: larger files are hit more often, small ones too."""
    rng = np.random.default_rng(int(os.environ.get("TFM_TEST_SEED", "0")))
    paths = [path.relative_to(home / "whole") for path in sorted((home / "whole").rglob("*")) if path.is_file()]
    outcomes: dict[str, int] = {}
    for index in range(FLIPS):
        name = paths[int(rng.integers(len(paths)))]
        size = (home / "whole" / name).stat().st_size
        if not size:
            continue
        folder = Path(shutil.copytree(home / "whole", tmp_path / str(index)))
        bit = int(rng.integers(8 * size))
        flip(folder / name, bit)
        command = (evaluate.main, main)[index % 2]
        verdict = outcome(command, folder, home)
        assert verdict in ("refused", "named", "same"), f"bit {bit} of {name}, {command.__module__}: {verdict}"
        outcomes[verdict] = outcomes.get(verdict, 0) + 1
        shutil.rmtree(folder)
    print(outcomes)


def refused(command, *flags):
    """The sentence with which a command refuses."""
    code, out, err = call(command, *flags)
    assert (code, out) == (2, ""), err
    (sentence,) = (line for line in err.splitlines() if line.startswith("error: "))
    assert "Traceback" not in err
    return sentence


def contents(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_a_changed_configuration_is_told_as_what_it_is(copy):
    """By the part that was changed; without checksums it is as it is, and then does not fit the checkpoint."""
    path = copy / "run.json"
    values = json.loads(path.read_text())
    values["config"]["model"]["layers"] = 3
    path.write_text(json.dumps(values))
    before = contents(copy)
    remedy = 'undo that, or remove "checksums" from the file to go on with it as it is'
    for command, flags in ((main, ("--resume", f"--out={copy}")), (evaluate.main, (f"--run={copy}",))):
        sentence = refused(command, *flags)
        assert f"{path} is not as the run wrote it: config.model was changed or damaged; {remedy}" in sentence
    del values["checksums"]
    path.write_text(json.dumps(values))
    before = contents(copy)
    for command, flags in ((main, ("--resume", f"--out={copy}")), (evaluate.main, (f"--run={copy}",))):
        sentence = refused(command, *flags)
        assert "is of another architecture than its run.json says" in sentence
        assert "damaged" not in sentence
        assert contents(copy) == before


def test_a_tokenizer_of_another_run_is_refused(copy, tmp_path):
    write_text(tmp_path / "other.txt", seed=5)
    run(*FLAGS, f"--data={tmp_path / 'other.txt'}", f"--out={tmp_path / 'b'}", "--steps=1", "--eval.final=false")
    shutil.copy(tmp_path / "b" / "tokenizer.json", copy)
    sentence = f"{copy / 'tokenizer.json'} is damaged, or of another run; restore it or start a new run"
    for command, flags in ((evaluate.main, [f"--run={copy}"]), (main, ["--resume", f"--out={copy}", "--steps=9"])):
        assert sentence in refused(command, *flags)


@pytest.mark.parametrize("flag", ["--steps=3", "--stop-at=3"])
def test_less_than_what_is_done(copy, flag):
    """It changes nothing, and says so."""
    before = contents(copy)
    sentence = refused(main, "--resume", f"--out={copy}", flag)
    assert f"{flag} lies before step 6, which {copy} has done; ask for more" in sentence
    assert contents(copy) == before


@pytest.mark.parametrize("name", ["checkpoints", "run.json.part", "metrics.jsonl", "tokenizer.json", "run.json"])
def test_files_as_folders_and_folders_as_files(copy, name):
    path = copy / name
    if path.is_dir():
        shutil.rmtree(path)
        path.write_text("")
    else:
        path.unlink(missing_ok=True)
        path.mkdir()
    assert str(path) in refused(main, "--resume", f"--out={copy}", "--steps=7")


def test_damaged_lines_of_metrics(copy):
    """They are named, and the run goes on; the checkpoints then speak of the file as it is."""
    lines = (copy / "metrics.jsonl").read_text().splitlines()
    (copy / "metrics.jsonl").write_text("\n".join([*lines[:2], '{"ste', *lines[2:]]) + "\n")
    err = run("--resume", f"--out={copy}", "--steps=8")
    assert f"{copy / 'metrics.jsonl'}, line 3 is damaged; it is left out" in err
    assert (copy / "metrics.jsonl").read_text().splitlines()[: len(lines)] == lines
    assert "is damaged" not in run("--resume", f"--out={copy}", "--steps=9")


def test_a_live_run_is_left_alone(copy):
    with claimed_folder(AnyRun(out=str(copy), resume=True)):
        before = contents(copy)
        assert f"{copy} belongs to process {os.getpid()} on " in refused(main, "--resume", f"--out={copy}", "--steps=8")
        assert contents(copy) == before
    assert not (copy / OWNER).exists()


def test_a_damaged_checkpoint_is_made_again(copy, home):
    """The remedy that evaluation names leads to the same weights."""
    newest = copy / "checkpoints" / "6"
    data = max((newest / "params").rglob("*"), key=lambda path: path.stat().st_size * path.is_file())
    flip(data, 4000)
    assert "--resume" in refused(evaluate.main, f"--run={copy}")
    err = run("--resume", f"--out={copy}")
    assert f"checkpoint 6 cannot be read ({data.relative_to(newest)} differs from its checksum)" in err
    assert "going on from step 4" in err
    assert numbers(copy) == numbers(home / "whole")
    assert call(evaluate.main, f"--run={copy}")[1] == (home / "evaluation.json").read_text()
    assert manifest.damage(newest, ["params", "opt", "note", "metrics"]) is None
    assert (copy / saved.DAMAGED / "6").is_dir()


def test_run_json_says_what_it_is(home):
    values = json.loads((home / "whole" / "run.json").read_text())
    assert values["format"] == run_folder.FORMAT
    assert {"config.model", "config.optim", "data", "files", "versions"} <= values["checksums"].keys()
    assert values["files"].keys() == {"tokenizer.json"}

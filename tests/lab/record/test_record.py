"""The board: what its rules refuse before anything is written, and a trial of each board from end to end."""

import json
from pathlib import Path

import pytest
from small import FLAGS, call, write_text

from train import UserError
from train.lab.record import command, rules

OWN = ["--text=text.txt", "--changed=nothing", "--to=entry"]
SMALL = [flag for flag in FLAGS if not flag.startswith("--data")]
CHARACTERS = ["--task=lm", "--tokenizer.kind=char", "--model.vocab=64"]


@pytest.fixture
def text(tmp_path, monkeypatch):
    """A text in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    write_text(Path("text.txt"))


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--init=run"], "--init is not for entries of the board: weights begin at random; leave it out"),
        (["--teacher.folder=run"], "weights begin at random"),
        (["--tune=lora"], "weights begin at random"),
        (["--eval-data=easy.txt"], "the text is that of --text"),
        (["--data.hold-out=0.01"], "the text is that of --text"),
        (["--eval.batches=1"], "all of the text that is held out"),
        (["--stop-at=4"], "one run from its first step to its last"),
        (["--tokenizer.kind=bpe"], "counts nats a character"),
        (["--task=mlm"], "counts nats a character"),
        (
            [],
            "is not tiny Shakespeare (SHA-256 86c4e6aa9db7...) nor the test set of WikiText-2 (SHA-256 d790b833",
        ),
        (["--batch.sise=4", "--trial"], "unknown flag --batch.sise"),
        (["--board=encoder"], "labels=FOLDER is what board=encoder is measured by"),
        (["--board=encoder", "--labels=nowhere", "--task=mlm"], "--labels=nowhere has no sst2.train.jsonl"),
        (["--changed="], "changed= must say what the entry changes"),
    ],
)
def test_rules(text, flags, says):
    code, out, err = call(command.main, *OWN, *CHARACTERS, *flags)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1
    assert not Path("entry").exists()


def test_a_vocabulary_has_each_character(text):
    """What stands in no vocabulary is one token, and costs nothing."""
    Path("text.txt").write_text("the cat\n")
    rules.check_characters(12, "text.txt")
    with pytest.raises(UserError, match="vocab=11 has no room for the 7 characters of text.txt and 5 special tokens"):
        rules.check_characters(11, "text.txt")


def test_a_task_must_be_said(text):
    code, _, err = call(command.main, *OWN)
    assert code == 2
    assert "say what to train for, with --task=lm" in err


def test_classes_of_hardware():
    assert rules.check_hardware("cpu", "cpu", 2, 2) == "two cores"
    assert rules.check_hardware("gpu", "NVIDIA H100 80GB HBM3", 1, 16) == "one GPU"
    for hardware in (("cpu", "cpu", 1, 4), ("gpu", "NVIDIA H100 80GB HBM3", 8, 16), ("gpu", "NVIDIA A100", 1, 2)):
        with pytest.raises(UserError, match="classes for two cores of a CPU and for one H100 or H200"):
            rules.check_hardware(*hardware)


@pytest.mark.slow
def test_a_trial_of_a_decoder(text):
    """Its loss is that of the run, and its clock is not shorter than the run's own."""
    code, out, err = call(command.main, *OWN, "--trial", "--task=lm", "--tokenizer.kind=char", *SMALL)
    assert code == 0, err
    entry, result = json.loads(out), json.loads(Path("entry/trained/result.json").read_text())
    assert entry == json.loads(Path("entry/entry.json").read_text())
    assert entry["loss"] == result["eval_loss"]
    assert entry["minutes"] * 60 >= result["seconds"] - 1
    assert (entry["class"], entry["counts"], entry["seed"]) == ("trial", False, 0)
    assert " 2/6 " in Path("entry/log.txt").read_text()
    code, _, err = call(command.main, *OWN, "--trial", "--task=lm", "--tokenizer.kind=char", *SMALL)
    assert code == 2
    assert "--to=entry is there already" in err


@pytest.mark.slow
def test_a_trial_of_an_encoder(text):
    """Four runs start from what was trained, and the entry has their mean."""
    labels = Path("labels")
    labels.mkdir()
    for part in ("train", "dev"):
        rows = [{"text": f"the cat sat {n}", "label": n % 2} for n in range(60)]
        pairs = [{"first": "the cat", "second": f"a dog {n}", "label": n / 10} for n in range(60)]
        for name, content in {"sst2": rows, "cola": rows, "stsb": pairs}.items():
            (labels / f"{name}.{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in content))
        names = "".join(f"cat{n}\tB-animal\nsat\tO\n\n" for n in range(60))
        (labels / f"ner.{part}.conll").write_text(names)
    flags = ["--board=encoder", "--labels=labels", "--trial", "--task=mlm", "--model.length=64", *SMALL]
    code, out, err = call(command.main, *OWN, *flags)
    assert code == 0, err
    entry = json.loads(out)
    assert set(entry["scores"]) == {"sst2", "cola", "stsb", "ner"}
    assert entry["mean"] == pytest.approx(sum(entry["scores"].values()) / 4)

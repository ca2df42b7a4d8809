"""Bad usage and bad input: exit 2, one plain sentence that names the culprit, and nothing left behind."""

import dataclasses
import errno
import gzip
import json
import os
import subprocess

import orbax.checkpoint as ocp
import pytest
from small import FLAGS, write_text

from train import evaluate
from train.files import cache
from train.main import main
from train.runs import run_folder
from train.tasks import resolve
from train.tasks.mlm.task import MLM
from train.tasks.table import AnyRun

SMALL = [flag for flag in FLAGS if not flag.startswith("--data")]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A folder with all kinds of files, good and bad."""
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "text.txt")
    for name, content in {
        "empty.txt": b"",
        "blank.txt": b" \n\n\t\n",
        "binary.txt": b"\x7fELF\0\0\1",
        "latin.txt": "Das Café ist geöffnet.".encode("latin-1"),
        "tiny.txt": b"one two three",
        "notes.md": b"text",
        "plain.txt.gz": b"not compressed",
        "short.txt.gz": gzip.compress(b"a text that is cut short" * 99)[:-20],
        "field.jsonl": b'{"text": "a"}\n\n{"body": "b", "id": 1}\n',
        "number.jsonl": b'{"text": 5}\n',
        "list.jsonl": b'["a"]\n',
        "broken.jsonl": b'{"text": "a"}\n{"text": \n',
        "tokenizer.json": b"{}",
        "taken": b"a file",
    }.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("a")
    for name in ("run", "damaged"):
        (tmp_path / name).mkdir()
        run_folder.write_json(tmp_path / name / "run.json", run_folder.describe(AnyRun(preset="bert-tiny"), {}))
    (tmp_path / "damaged" / "run.json").write_text('{"config": {"st')
    return tmp_path


def contents(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def refused(command, flags, capsys):
    """The sentence with which a command refuses."""
    assert command(flags) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (sentence,) = (line for line in err.splitlines() if not line.startswith(("training a ", "tokenizing ")))
    assert sentence.startswith("error: ")
    return sentence


# Mixers that are refused in one sentence: the first is a plain test, the others are slow ones, as are other sentences
# that take a model.
ONE_SENTENCE = ("fnet", "xca", "channel_groups", "linformer", "nystrom")
SLOW_SENTENCES = ("position=shaw", "pattern=transient", "mixer.window=8", "mixer=delta")

BAD = [
    # names
    ("--task=mml", "--task=mml is unknown; did you mean mlm?"),
    ("--task=summarize", "--task=summarize is unknown; known are mlm"),
    ("--preset=bert-tyni", "--preset=bert-tyni is unknown; did you mean bert-tiny?"),
    ("--preset=bert_tiny", "did you mean bert-tiny?"),
    ("--modle.layers=2", "unknown flag --modle.layers; did you mean model.layers?"),
    ("--model.layer=2", "did you mean model.layers?"),
    ("--layers=2", "did you mean model.layers?"),
    ("--preset=BERT-Base", "did you mean bert-base?"),
    ("--qqqqq=5", "unknown flag --qqqqq; --help lists all flags"),
    ("--optim.beta1=2", "--optim.beta1=2.0 must be at least 0 and less than 1"),
    ("--eval.batches=-1", "--eval.batches=-1 must be at least 1, or none"),
    ("--stpes=5", "unknown flag --stpes; did you mean steps?"),
    ("--bogus-thing", "unknown flag --bogus-thing"),
    ("steps=5", "'steps=5' is not a flag; write --name=value"),
    # types and values
    ("--steps=abc", "--steps=abc must be a whole number"),
    ("--steps=1.5", "--steps=1.5 must be a whole number"),
    ("--steps", "--steps needs a value"),
    ("--steps=0", "--steps=0 must be at least 1"),
    ("--steps=-3", "--steps=-3 must be at least 1"),
    ("--steps=99999999999999999999", "--steps=99999999999999999999 is too large for a number of 64 bits"),
    ("--task=translate --data=notes.md", "of two files of lines, name both with a comma between"),
    ("--stop-at=-1", "--stop-at=-1 must be at least 1, or none"),
    ("--seed=-1", "--seed=-1 must be at least 0"),
    ("--model.scan=perhaps", "--model.scan=perhaps must be true or false"),
    ("--optim.rate=fast", "--optim.rate=fast must be a number"),
    ("--optim.rate=nan", "--optim.rate=nan must be a number"),
    ("--optim.rate=-1", "--optim.rate=-1.0 must not be negative"),
    ("--optim.schedule=linaer", "--optim.schedule=linaer is unknown; did you mean linear?"),
    ("--optim.name=rmsprop", "--optim.name=rmsprop is unknown; known are adamw"),
    ("--task.rate=1.5", "--task.rate=1.5 must be between 0 and 1"),
    ("--data.split=lines", "--data.split=lines is unknown; did you mean line?"),
    ("--tokenizer.kind=wordpeice", "--tokenizer.kind=wordpeice is unknown; did you mean wordpiece?"),
    ("--tokenizer.vocab=10", "--tokenizer.vocab=10 must be at least 300"),
    ("--log.every=0", "--log.every=0 must be at least 1"),
    ("--eval.every=0", "--eval.every=0 must be at least 1"),
    ("--checkpoint.keep=0", "--checkpoint.keep=0 must be at least 1"),
    ("--checkpoint.every=-5", "--checkpoint.every=-5 must be at least 1"),
    # the model
    ("--model.heads=5", "--model.heads=5 must divide width=32; try heads=4"),
    ("--model.heads=4 --model.kv_heads=3", "--model.kv-heads=3 must divide heads=4"),
    ("--model.layers=0", "--model.layers=0 must be at least 1"),
    ("--model.dropout=1", "--model.dropout=1.0 must be at least 0 and less than 1"),
    ("--model.activation=gelo", "--model.activation=gelo is unknown; did you mean gelu?"),
    ("--model.vocab=50", "--model.vocab=50 is less than the"),
    # the batch and the mesh, on 8 devices
    ("--batch.size=0", "--batch.size=0 must be at least 1"),
    ("--batch.length=4", "--batch.length=4 must be at least 8"),
    ("--batch.length=600", "--batch.length=600 is more than model.length=512; add --model.length=600"),
    ("--batch.accumulate=3", "--batch.accumulate=3 must divide batch.size=8"),
    ("--batch.accumulate=2", "--mesh.data = 8 must divide the batch axis of size 4"),
    ("--mesh.data=3", "--mesh.data=3 mesh.fsdp=1 mesh.tensor=1 mesh.context=1 must multiply to the 8 devices here"),
    ("--mesh.fsdp=3", "mesh.fsdp=3 mesh.tensor=1 mesh.context=1 must divide the 8 devices here"),
    ("--mesh.data=0", "--mesh.data=0"),
    ("--mesh.fsdp=-1", "more than one -1"),
    (
        "--mesh.context=4 --batch.length=30",
        "--batch.length=30 must be a multiple of mesh.context=4; try --batch.length=32",
    ),
    ("--mesh.fsdp=8 --model.width=36", "--mesh.fsdp = 8 must divide the width axis of size 36"),
    ("--mesh.tensor=8 --model.ffn=12", "--mesh.tensor = 8 must divide the feed-forward axis of size 12"),
    # attention
    ("--attention.kernel=cudn", "--attention.kernel=cudn is unknown; did you mean cudnn?"),
    ("--model.kernel=splash", "--attention.kernel=splash cannot do this: splash needs a TPU, and this is cpu"),
    ("--attention.kernel=splash", "--attention.kernel=splash cannot do this: splash needs a TPU, and this is cpu"),
    (
        "--attention.kernel=chunked --model.position=shaw",
        "--attention.kernel=chunked cannot do this: the bias is computed for all positions at once",
    ),
    # mixers and patterns
    *(
        (
            f"--task=lm --model.mixer={mixer}",
            f"--model.mixer or --model.position: {mixer} mixes later tokens into all; a decoder needs another mixer",
        )
        for mixer in ONE_SENTENCE
    ),
    (
        "--task=lm --model.mixer.pattern=transient",
        "--model.mixer or --model.position: transient mixes later tokens into all; a decoder needs another pattern",
    ),
    (
        "--task=lm --model.mixer=routing --model.mixer.window=8",
        "--model.mixer or --model.position: routing takes the nearest tokens of a whole text; a decoder needs",
    ),
    (
        "--model.mixer=delta",
        "--model.mixer or --model.position: delta reads a text from left to right; an encoder needs another mixer",
    ),
    (
        "--model.mixer.pattern=global --model.mixer.pattern.tokens=600",
        "--model.mixer.pattern.tokens=600 global tokens are more than length=512; choose fewer",
    ),
    (
        "--model.mixer.pattern=global --model.mixer.pattern.places=7,600",
        "--model.mixer.pattern.places=7,600: place 600 is behind the end of texts of length=512; choose places from 0",
    ),
    (
        "--model.mixer.pattern=etc --model.mixer.pattern.tokens=601",
        "--model.mixer.pattern.tokens=601 global tokens are more than length=512; choose fewer",
    ),
    (
        "--model.mixer.pattern=sliding --model.mixer.pattern.dilation=2 --model.mixer.pattern.dilated-heads=2",
        "--model.mixer.pattern.dilated-heads=2 must be less than heads=2; none stands for all heads",
    ),
    # the data
    ("--data=missing.txt", "no file matches 'missing.txt'"),
    ("--data=*.nothing", "no file matches '*.nothing'"),
    ("--data=", "no file matches ''"),
    ("--data=texts", "texts is a folder; give a quoted glob of its files, such as 'texts/*.txt'"),
    ("--data=notes.md", "notes.md is not a .txt, .jsonl, .tsv, .csv file"),
    ("--data=empty.txt", "empty.txt holds no text"),
    ("--data=blank.txt", "blank.txt holds no text"),
    ("--data=binary.txt", "binary.txt is a binary file"),
    ("--data=latin.txt", "latin.txt is not UTF-8 (byte 7); convert it"),
    ("--data=plain.txt.gz", "plain.txt.gz is not a whole .gz file"),
    ("--data=short.txt.gz", "short.txt.gz is not a whole .gz file"),
    ("--data=tiny.txt", "--data=tiny.txt fills 1 rows of 32 tokens, too few for --batch.size=8"),
    (
        "--data=field.jsonl",
        "field.jsonl, line 3 has no text column 'text' (it has body, id); name it with --data.field=NAME",
    ),
    ("--data=number.jsonl", "number.jsonl, line 1 has 5 in its column 'text', which is no text; write it in quotes"),
    (
        "--task.nsp=true --data.split=line",
        "--task.nsp=true needs documents of two sentences or more, and each document here has one",
    ),
    ("--data=list.jsonl", "list.jsonl, line 1 is a list, not an object with a text field 'text'"),
    ("--data=broken.jsonl", "broken.jsonl, line 2 is not JSON"),
    ("--data=field.jsonl --data.field=bdoy", "field.jsonl, line 1 has no text column 'bdoy' (it has text)"),
    ("--eval-data=missing.txt", "no file matches 'missing.txt'"),
    ("--eval-data=empty.txt", "empty.txt holds no text"),
    # the tokenizer
    ("--tokenizer.path=missing", "--tokenizer.path=missing does not exist"),
    ("--tokenizer.path=texts", "--tokenizer.path=texts holds none of tokenizer.json, vocab.txt, encoder.json"),
    ("--tokenizer.path=notes.md", "--tokenizer.path=notes.md is none of tokenizer.json"),
    ("--tokenizer.path=tokenizer.json", "--tokenizer.path=tokenizer.json cannot be read as a tokenizer"),
    # run folders
    ("--out=run", "--out=run already holds something; choose another folder, or add --resume"),
    ("--out=taken", "--out=taken"),
    ("--out=taken/deeper", "--out=taken/deeper cannot be made: Not a directory"),
    ("--init=nowhere", "nowhere is not a run folder"),
    ("--init=taken", "taken is not a run folder"),
    ("--init=texts", "texts is not a run folder"),
    ("--init=run", "--init=run brings its own tokenizer; leave --tokenizer.vocab out"),
]


def is_slow(flags):
    return flags.endswith((*(f"mixer={mixer}" for mixer in ONE_SENTENCE[1:]), *SLOW_SENTENCES))


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [pytest.param(*row, id=row[0], marks=[pytest.mark.slow] * is_slow(row[0])) for row in BAD],
)
def test_bad_input(flags, sentence, home, capsys):
    before = contents(home)
    assert sentence in refused(main, ["--data=text.txt", *SMALL, *flags.split()], capsys)
    assert contents(home) == before, "something was left behind"


RESUME = [
    ("--resume", "--resume found no run in runs/; name one with --out=DIR"),
    ("--resume --out=nowhere", "nowhere is not a run folder: it has no run.json"),
    ("--resume --out=taken", "taken is not a run folder"),
    ("--resume --out=damaged", "run.json is damaged"),
    ("--resume=maybe", "--resume=maybe must be true or false"),
    (
        "--resume --out=run --model.width=64",
        "--model.width=64 differs from 128 in the run to resume; leave it out, or start a new run",
    ),
    ("--resume --out=run --batch.size=16", "--batch.size=16 differs from 32"),
    ("--resume --out=run --data=text.txt", "--data.source=text.txt differs from builtin"),
    ("--resume --out=run --optim.rate=0.5", "--optim.rate=0.5 differs from"),
    ("--resume --out=run --seed=3", "--seed=3 differs from 0"),
    ("--init=run --data=text.txt --batch.length=32", "run is not a run folder: it has no tokenizer.json"),
    ("--init=damaged --data=text.txt", "run.json is damaged"),
]


@pytest.mark.parametrize(("flags", "sentence"), RESUME, ids=[flags for flags, _ in RESUME])
def test_nothing_to_go_on_with(flags, sentence, home, capsys):
    before = contents(home)
    assert sentence in refused(main, flags.split(), capsys)
    assert contents(home) == before


EVALUATE = [
    ("", "say which run to evaluate with --run=DIR"),
    ("--run=nowhere", "nowhere is not a run folder"),
    ("--run=taken", "taken is not a run folder"),
    ("--rnu=run", "unknown flag --rnu; did you mean run?"),
    ("--run=run --data=text.txt", "run is not a run folder: it has no tokenizer.json"),
]


@pytest.mark.parametrize(("flags", "sentence"), EVALUATE, ids=[flags for flags, _ in EVALUATE])
def test_evaluate_refuses(flags, sentence, home, capsys):
    before = contents(home)
    assert sentence in refused(evaluate.main, flags.split(), capsys)
    assert contents(home) == before


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A run of one step."""
    folder = tmp_path_factory.mktemp("done")
    write_text(folder / "text.txt")
    assert main([*FLAGS, f"--data={folder / 'text.txt'}", f"--out={folder / 'run'}", "--stop-at=1"]) == 0
    return folder / "run"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--model.width=64", "is of another architecture: encoder.embed.tokens is (128, 32) there and (128, 64) here"),
        ("--model.layers=2", "is of another architecture"),
        ("--model.norm=rms --model.bias=false --model.tie_embeddings=false", "is of another architecture"),
        ("--preset=bert-tiny", "is of another architecture"),
    ],
)
def test_init_of_another_architecture(done, flags, sentence, home, capsys):
    before = contents(home)
    refusal = refused(
        main, [f"--init={done}", "--data=text.txt", "--batch.size=8", "--batch.length=32", *flags.split()], capsys
    )
    assert sentence in refusal
    assert str(done) in refusal
    assert contents(home) == before


@pytest.mark.slow
def test_data_that_changed_since(done, home, capsys):
    """A run goes on with the text that it began with, or not at all."""
    text = done.parent / "text.txt"
    kept = text.read_text()
    try:
        text.write_text(kept.replace("cat", "kitten"))
        assert "text" in refused(main, ["--resume", f"--out={done}"], capsys)
    finally:
        text.write_text(kept)


@pytest.mark.slow
def test_evaluate_without_its_data(done, capsys):
    assert "no file matches 'missing.txt'" in refused(evaluate.main, [f"--run={done}", "--data=missing.txt"], capsys)


# A full disk


@pytest.mark.slow
def test_disk_full_while_saving(home, monkeypatch, capsys):
    def save(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ocp.CheckpointManager, "save", save)
    assert main([*FLAGS, "--out=a"]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: the disk is full: ")
    assert "free some space and add --resume" in last


def test_disk_full_while_caching(home, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("TFM_CACHE", str(tmp_path / "cache"))

    def replace(*args):
        raise OSError(errno.ENOSPC, "No space left on device", "/cache/x")

    monkeypatch.setattr(cache.os, "replace", replace)
    assert "the disk is full (/cache/x); free some space" in refused(main, FLAGS, capsys)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert not (home / "runs").exists()


@pytest.mark.slow
def test_disk_really_full(home, capsys):
    """On a file system of a few megabytes: the earlier checkpoint survives, and the run can be resumed."""
    disk = home / "disk"
    disk.mkdir()
    if (
        os.geteuid()
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], capture_output=True).returncode
    ):
        pytest.skip("no right to mount a small disk")
    try:
        assert main([*FLAGS, "--out=disk/a", "--stop-at=2"]) == 0
        with pytest.raises(OSError, match="No space left"):
            (disk / "filler").write_bytes(bytes(16 << 20))
        os.truncate(disk / "filler", (disk / "filler").stat().st_size - 100_000)
        capsys.readouterr()
        assert main(["--resume", "--out=disk/a"]) == 2
        err = capsys.readouterr().err
        assert err.splitlines()[-1].startswith("error: the disk is full")
        assert "Traceback" not in err
        (disk / "filler").unlink()
        assert main(["--resume", "--out=disk/a"]) == 0
        assert "going on from step 2" in capsys.readouterr().err
        assert json.loads((disk / "a" / "result.json").read_text())["steps"] == 6
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


# Our own bugs


@pytest.mark.parametrize("kind", [KeyError, ValueError, TypeError, RuntimeError, OSError])
def test_our_own_bugs_keep_their_traceback(home, monkeypatch, kind):
    def load(*args, **kwargs):
        raise kind("a bug")

    monkeypatch.setattr("train.tasks.mlm.task.MLM", dataclasses.replace(MLM, load=load))
    with pytest.raises(kind, match="a bug"):
        main(["--data=text.txt", *SMALL])
    with pytest.raises(kind, match="a bug"):
        resolve.resolve(["--resume"], load, load)

"""Files with a line of ten million characters are read, looked through and trained on, in time that it bounds."""

import json
import time

import numpy as np
import pytest
from small import call

from train import check, inspect, main
from train.data.sources import files
from train.settings.schema import Data

SIZE = 10_000_000
LETTERS = np.random.default_rng(0).integers(97, 123, (SIZE // 4, 4), np.uint8)
LETTERS[:, -1] = ord(" ")
SPACED = LETTERS.tobytes().decode()[:-1] + "."
SOLID = SPACED.replace(" ", "x")
SHORT = ["a fox and a dog", "a red sea", "the old ship ran"]


def write(path, long):
    """A file of texts and labels, of which the second text is long."""
    texts = [SHORT[0], long, *SHORT[1:] * 10]
    if path.suffix == ".txt":
        path.write_text("\n".join(texts) + "\n")
    elif path.suffix == ".jsonl":
        rows = ({"text": text, "label": row % 2} for row, text in enumerate(texts))
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        rows = [("text", "label"), *((text, str(row % 2)) for row, text in enumerate(texts))]
        path.write_text("".join("\t".join(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("name", ["long.txt", "long.jsonl", "long.tsv"])
def test_a_line_is_read_whole(tmp_path, name):
    """In less than a second of processor time."""
    path = write(tmp_path / name, SPACED)
    data = Data(source=str(path), split="line", field="text", label="label")
    start = time.process_time()
    rows = files.read(path, data, files.Columns.of(data, labelled=path.suffix != ".txt"))
    assert time.process_time() - start < 1
    assert len(rows) == 22
    assert rows[1]["text"] == SPACED
    assert rows[2]["text"] == SHORT[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "long"), [("a.txt", SOLID), ("a.jsonl", SOLID), ("a.tsv", SPACED)], ids=["txt", "jsonl", "tsv"]
)
def test_commands_take_seconds(home, name, long):
    """train.inspect, train.check, of which a probe may fail, and a step of train.main: two minutes each at most. The
    square of ten million would take hours."""
    path, valid = write(home / name, long), write(home / f"valid{name[1:]}", "an old sea")
    task = "--task=mlm --data.split=line" if path.suffix == ".txt" else "--task=classify --data.field=text"
    flags = [*task.split(), f"--data={path}", f"--eval-data={valid}", "--batch.size=8", "--batch.length=32"]
    flags += ["--tokenizer.vocab=300", "--model.layers=1", "--model.width=16", "--model.heads=2"]
    for command, more in ((inspect, ["--rows=1"]), (check, []), (main, ["--steps=1", "--out=run"])):
        start = time.process_time()
        code, _, err = call(command.main, *flags, *more)
        assert time.process_time() - start < 120
        assert code == 0 or (command is check and code == 1 and "probes fail" in err), err

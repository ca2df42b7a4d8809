"""Answers to questions about pictures: built-in ones, whole runs, bad input."""

import json
from collections import Counter, defaultdict

import numpy as np
import pytest
from PIL import Image
from small import call, read_lines, run

from train import evaluate, predict
from train.images import questions
from train.lab import inspect
from train.main import main

SMALL = (
    "--task=answer-picture --model.layers=1 --model.width=32 --model.heads=2 --model.ffn=64 --model.input.size=16 "
    "--model.init-std=0.1 --optim.rate=1e-2 --batch.size=8 --steps=120 --log.every=40 --eval.every=60 "
    "--checkpoint.every=60"
).split()


def write_squares(folder, count=48):
    """Bright and dark pictures, and a table with two questions about each."""
    rng = np.random.default_rng(0)
    (folder / "pictures").mkdir(parents=True)
    lines = ["image,question,answer"]
    for n in range(count):
        colour, size = n % 2, n // 2 % 2
        pixels = rng.integers(30, 50, (20, 20 + 20 * size, 3)) + 170 * colour
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"pictures/{n}.png")
        lines.append(f"pictures/{n}.png,is it bright ?,{('no', 'yes')[colour]}")
        lines.append(f"pictures/{n}.png,is it dark ?,{('yes', 'no')[colour]}")
    (folder / "table.csv").write_text("\n".join(lines) + "\n")


def test_answers_are_true_and_balanced():
    """Counted, compared and looked up in the shapes themselves."""
    rows = questions.drawn(train=800, valid=10, withheld=10).train
    by_kind = defaultdict(Counter)
    for row in rows:
        words, shapes, answer = row["question"].split(), row["image"].shapes, row["label"]
        by_kind[words[1]][answer] += 1
        if words[1] == "many":
            name = words[3].removesuffix("es") if words[3] == "crosses" else words[3][:-1]
            assert answer == str(sum((shape.colour, shape.shape) == (words[2], name) for shape in shapes))
        elif words[1] == "colour":
            assert [shape.colour for shape in shapes if shape.shape == words[4]] == [answer]
        else:
            answered, named = shapes
            assert (named.colour, named.shape, answered.shape) == (*words[-3:-1], answer)
            offset = {"left": answered.x - named.x, "right": named.x - answered.x, "above": answered.y - named.y}
            assert offset.get(words[2], named.y - answered.y) < 0
    assert {kind: len(answers) for kind, answers in by_kind.items()} == {"many": 4, "colour": 6, "is": 4}
    assert all(max(answers.values()) < 1.6 * min(answers.values()) for answers in by_kind.values())
    assert not any(row["withheld"] for row in rows)


@pytest.mark.slow
def test_a_run_on_a_table(home):
    """Trained, resumed, evaluated, asked, looked at; without the pictures there is nothing to learn."""
    write_squares(home / "squares")
    flags = (*SMALL, "--data=squares/table.csv")
    err = run(*flags, "--stop-at=60", "--out=run")
    assert "answers     2" in err
    assert "with questions to train on" in err
    run("--resume", "--out=run")
    result = json.loads((home / "run/result.json").read_text())
    assert result["eval_accuracy"] == 1
    assert result["eval_question"] < 0.8
    assert (home / "run/plots/answers.png").exists()
    code, out, err = call(evaluate.main, "--run=run", "--data=squares/table.csv")
    assert code == 0, err
    assert json.loads(out)["accuracy"] == 1
    for question, answer in (("is it dark ?", "no"), ("is it bright ?", "yes")):
        asked = ("--run=run", "--file=squares/pictures/1.png", f"--question={question}", "--to=out.jsonl")
        code, _, err = call(predict.main, *asked)
        assert code == 0, err
        (line,) = read_lines(home / "out.jsonl")
        assert line["answer"] == answer
        assert line["probabilities"][answer] > 0.5
    assert call(inspect.main, *flags, "--to=page.png", "--rows=6")[0] == 0
    run(*flags, "--task.hide=picture", "--out=blind")
    assert json.loads((home / "blind/result.json").read_text())["eval_accuracy"] < 0.8


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--data=squares/pictures", "--data=squares/pictures has no questions about its pictures; name a table of"),
        ("--data=squares/table.csv --data.field=image", "data.field=image must name two columns, such as"),
        (
            "--data=squares/table.csv --data.field=image,asked",
            "table.csv, line 2 has no text column 'asked' (it",
        ),
        (
            "--data=twice.csv",
            "twice.csv names squares/pictures/0.png, is it bright ? with the label 'no' and with 'yes'",
        ),
        ("--data=squares/table.csv --task.augment.mixup=1", "mix classes, and questions do not mix; leave them out"),
        ("--data=squares/table.csv --model.input=patches", "does not read the texts of task=answer-picture; say"),
    ],
)
def test_bad_input(flags, sentence, home):
    write_squares(home / "squares", 12)
    rows = "".join(f"squares/pictures/0.png,is it bright ?,{answer}\n" for answer in ("no", "yes"))
    (home / "twice.csv").write_text(f"image,question,answer\n{rows}")
    code, out, err = call(main, *SMALL, *flags.split(), "--out=bad")
    assert (code, out) == (2, ""), err
    assert sentence in err.splitlines()[-1]
    assert not (home / "bad").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("", "--question= must ask something about the pictures, such as --question='what colour is it ?'"),
        (f"--question={'is_' * 20}", "--question has"),
    ],
)
def test_questions_that_nothing_answers(flags, sentence, home):
    write_squares(home / "squares", 12)
    run(*SMALL, "--data=squares/table.csv", "--steps=2", "--out=run")
    code, _, err = call(predict.main, "--run=run", "--file=squares/pictures/1.png", *flags.split())
    assert code == 2
    assert sentence in err.splitlines()[-1]

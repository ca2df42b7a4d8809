"""Multiple choice: scores, forms of files, batches, the loss, and whole runs on a small file."""

import dataclasses
import functools
import itertools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contracts import MESHES, assert_near
from jax.sharding import NamedSharding
from small import call, read_lines, run, write_rows

import tfm
from train import UserError, evaluate, export, predict
from train.data.labels import LossFields
from train.data.tokens import TokenizedTexts, in_memory
from train.main import main
from train.screens.console import Log
from train.tasks.choice.rows import Choices, ChoiceTokens, first_places
from train.tasks.choice.source import MultipleChoice
from train.tasks.choice.task import CHOICE
from train.tasks.table import AnyRun
from train.text import tokenize

pytestmark = pytest.mark.usefixtures("in_home")

SMALL = (
    "--task=choice --model.layers=1 --model.width=32 --model.heads=2 --model.ffn=64 --model.scan=true "
    "--tokenizer.vocab=300 --batch.size=8 --batch.length=16 --steps=200 --optim.rate=5e-3 --model.dropout=0 "
    "--model.init-std=0.1 --log.every=40 --eval.every=40 --checkpoint.every=40"
).split()
MODEL = tfm.Config(layers=1, heads=2, width=16, vocab=50, length=16, pad_vocab_to=8, classes=1, dropout=0.0)
FIT = {"cold": ("a coat", "a scarf"), "dark": ("a lamp", "a candle"), "hungry": ("a pizza", "an apple")}


def stories(count, seed):
    """Rows of two or three continuations; a word of the text decides."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        needs = rng.permutation(list(FIT))[: rng.integers(2, 4)]
        label = int(rng.integers(len(needs)))
        choices = [f"so bring {rng.choice(FIT[need])}" for need in needs]
        yield {"premise": f"I am {needs[label]} at {rng.integers(100)}", "choices": choices, "label": label}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder of files."""
    folder = tmp_path_factory.mktemp("home")
    write_rows(folder / "train.jsonl", stories(300, 0))
    write_rows(folder / "dev.jsonl", stories(60, 1))
    return folder


@pytest.fixture(scope="module")
def trained(home):
    """A run on stories: its stderr and its result."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        err = run(*SMALL, "--data=train.jsonl", "--eval-data=dev.jsonl", "--out=whole")
    return err, json.loads((home / "whole" / "result.json").read_text())


# Scores


def fields():
    rng = np.random.default_rng(0)
    lengths = np.array([[8, 5, 3], [4, 8, 0], [2, 6, 7], [8, 8, 1]])
    valid = np.arange(8) < lengths[:, :, None]
    tokens = rng.integers(5, 50, (4, 3, 8)) * valid
    return np.int32(tokens), valid, np.int32((np.arange(8) > 3) * valid)


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["first", "mean"])
def test_scores_are_those_of_every_continuation_alone(fill, strict, pool):
    model = dataclasses.replace(MODEL, head=tfm.Head(pool=pool))
    params = fill(tfm.classifier_specs(model))
    tokens, valid, types = fields()
    logits = np.asarray(tfm.score_choices(params, model, tokens, valid, types))
    assert (logits.shape, logits.dtype) == ((4, 3), np.float32)
    for b, n in itertools.product(range(4), range(3)):
        size = int(valid[b, n].sum())
        row = [jnp.asarray(field[b, n : n + 1, :size]) for field in (tokens, types)]
        alone = tfm.classify(params, model, row[0], types=row[1])[0, 0] if size else -1e9
        np.testing.assert_allclose(logits[b, n], alone, rtol=1e-4, atol=1e-4)
    assert np.asarray(jax.nn.softmax(logits))[1, 2] == 0, "an absent continuation is never chosen"
    with pytest.raises(ValueError, match="classes=2 must be 1"):
        tfm.score_choices(params, dataclasses.replace(model, classes=2), tokens)


def in_rows(tokens, valid, types):
    """Fields [B,n,T] -> those of a batch in which every continuation has a row, by token and by text."""
    by_token = {"tokens": tokens, "types": types, "segments": valid, "positions": np.arange(8) * valid}
    rows = {"rows": np.arange(len(tokens), dtype=np.int32), "present": np.int32(valid.any(-1))}
    return {name: np.int32(field).reshape(-1, 8) for name, field in by_token.items()}, rows


@pytest.mark.slow
@pytest.mark.parametrize("mesh_name", MESHES)
def test_eight_devices_are_one(fill, mesh_name):
    """The loss and its gradient, with dropout and an absent continuation."""
    model = dataclasses.replace(MODEL, dropout=0.1)
    specs = tfm.classifier_specs(model)
    params, key = fill(specs), jax.random.key(3)
    tokens, valid, types = fields()
    batch, rows = in_rows(tokens, valid, types)
    rows |= {"labels": np.int32([0, 1, 2, 0]), "weights": np.ones(4, np.float32)}

    @jax.jit
    def gradient(params, batch):
        return jax.value_and_grad(lambda params: CHOICE.loss(params, model, batch, key)["loss"])(params)

    expected = gradient(params, batch | rows)
    mesh = tfm.make_mesh(*MESHES[mesh_name])
    with jax.set_mesh(mesh):
        sharded = jax.device_put(params, tfm.shardings(specs, mesh))
        on_mesh = {
            name: jax.device_put(field, NamedSharding(mesh, tfm.partition(axes, field.shape, mesh)))
            for name, field in (batch | rows).items()
            for axes in ["BT" if name in batch else "Bn"[: field.ndim]]
        }
        actual = gradient(sharded, on_mesh)
    assert_near(actual, expected, 2e-4)


# The loss


@pytest.mark.parametrize(
    ("smoothing", "focal"),
    [
        pytest.param(0.0, 0.0, marks=pytest.mark.slow),
        pytest.param(0.3, 0.0, marks=pytest.mark.slow),
        pytest.param(0.0, 2.0, marks=pytest.mark.slow),
        (0.3, 2.0),
    ],
)
def test_loss(fill, strict, smoothing, focal):
    """Against loops in float64; absent continuations get no probability and no part of the smoothing."""
    params = fill(tfm.classifier_specs(MODEL))
    tokens, valid, types = fields()
    labels, weights = np.int32([0, 1, 2, 0]), np.float32([1, 1, 1, 0])
    options = {"smoothing": np.full(4, smoothing, np.float32), "focal": np.full(4, focal, np.float32)}
    by_token, rows = in_rows(tokens, valid, types)
    batch = by_token | rows | {"labels": labels, "weights": weights}
    logits = np.float64(jax.jit(tfm.score_choices, static_argnums=1)(params, MODEL, tokens, valid, types))
    expected, right = 0.0, 0
    for b in range(3):
        present = [n for n in range(3) if valid[b, n].any()]
        total = sum(np.exp(logits[b, n]) for n in present)
        logprobs = {n: logits[b, n] - np.log(total) for n in present}
        target = {n: smoothing / len(present) + (1 - smoothing) * (n == labels[b]) for n in present}
        loss = -sum(target[n] * logprobs[n] for n in present)
        expected += loss * (1 - np.exp(logprobs[labels[b]])) ** focal
        right += max(present, key=logprobs.get) == labels[b]
    set_options = {name: field for name, field in options.items() if field[0]}

    @jax.jit
    @functools.partial(jax.grad, has_aux=True)
    def gradient_of(params):
        sums = CHOICE.loss(params, MODEL, batch | set_options, None)
        return sums["loss"], sums

    gradient, sums = gradient_of(params)
    np.testing.assert_allclose(sums["loss"], expected, rtol=1e-3)
    assert (float(sums["weight"]), float(sums["right"])) == (3.0, right)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_metrics():
    scores = np.log(np.array([[0.7, 0.3, 1e-9], [0.2, 0.5, 0.3], [0.1, 0.8, 0.1], [0.4, 0.3, 0.3], [0.5, 0.5, 1e-9]]))
    outcomes = {"scores": scores, "labels": np.array([0, 2, 1, 0, 0]), "weights": np.float32([1, 1, 1, 1, 0])}
    metrics = CHOICE.metrics(outcomes | {"loss": 2.0, "weight": 4.0, "right": 3.0, "padding": 1.0})
    assert {name: metrics[name] for name in ("loss", "accuracy", "padding")} == {
        "loss": 0.5,
        "accuracy": 0.75,
        "padding": 0.25,
    }
    expected = (abs(0.7 - 1) + abs(0.5 - 0) + abs(0.8 - 1) + abs(0.4 - 1)) / 4  # every row in a bin of its own
    assert metrics["ece"] == pytest.approx(expected)


# Batches


def test_batch():
    """Each continuation stands behind its text; places that a row does not have are padding."""
    tokenizer = tokenize.load(AnyRun().tokenizer, ["a cat sat on the mat", "it ran"] * 20, Log(quiet=True))
    contexts, choices = ["a cat", "the mat"], [["sat on the mat", "ran"], ["it", "sat", "a cat sat on the mat it ran"]]
    text = ChoiceTokens(
        in_memory(tokenizer, contexts), in_memory(tokenizer, [*itertools.chain(*choices)]), first_places(choices)
    )
    rows = Choices(text, np.int32([1, 2]), 3, 8, tokenizer)
    rows.loss = LossFields(smoothing=0.1)
    batch = rows.batch(np.array([1, -1, 0]))
    ids = tokenizer.token_to_id
    for b, row in ((0, 1), (2, 0)):
        for n, words in enumerate(choices[row]):
            first, second = ["[CLS]", *contexts[row].split(), "[SEP]"], [*words.split(), "[SEP]"]
            size = len(first) + len(second)
            if size <= 8:
                expected = [ids(word) for word in (*first, *second)]
                assert batch["tokens"][b, n].tolist() == expected + [ids("[PAD]")] * (8 - size)
                assert batch["types"][b, n].tolist() == [0] * len(first) + [1] * len(second) + [0] * (8 - size)
            else:
                assert batch["tokens"][b, n, [0, 3, 7]].tolist() == [ids("[CLS]"), ids("[SEP]"), ids("[SEP]")]
                size = 8
            assert batch["valid"][b, n].tolist() == [1] * size + [0] * (8 - size)
    assert not batch["valid"][1].any()
    assert not batch["valid"][2, 2].any()
    assert batch["labels"][[0, 2]].tolist() == [2, 1]
    assert batch["weights"].tolist() == [1, 0, 1]
    assert (batch["smoothing"] == np.float32(0.1)).all()
    assert rows.cut == pytest.approx(2 / 5)


def test_baselines():
    """Ties count in part: of two equally long continuations each is a half."""
    tokens = [[1, 2], [3, 4], [1, 2, 9], [7], [7, 8], [5, 6]]  # two texts, then two and two continuations
    ids, starts = np.concatenate(tokens), np.cumsum([0, *map(len, tokens)])
    contexts = TokenizedTexts(ids[: starts[2]], starts[:3])
    choices = TokenizedTexts(ids[starts[2] :], starts[2:] - starts[2])
    rows = type("Rows", (), {"text": ChoiceTokens(contexts, choices, np.array([0, 2, 4])), "labels": np.array([0, 1])})
    corpus = type("Corpus", (), {"valid": rows})
    assert CHOICE.baselines(corpus) == {"majority": 0.5, "longest": 0.75, "overlap": 0.75, "n": 2}


# Forms of files


def read(row, labelled=True, field="text", label="label"):
    reader = MultipleChoice(field, label, labelled)
    checked = reader.checked(row, "rows.jsonl, line 1")
    return next(iter(reader.seen)), checked


@pytest.mark.parametrize(
    ("row", "form", "context", "choices", "label"),
    [
        ({"question": "why?", "choices": ["a", "b"], "label": 1}, "lists", "why?", ["a", "b"], 1),
        ({"premise": "it fell", "choices": ["a", "b", "c"], "label": "c"}, "lists", "it fell", ["a", "b", "c"], 2),
        (
            {"context": "it fell", "question": "why?", "choices": ["a", "b"], "label": "b"},
            "lists",
            "it fell",
            ["why? a", "why? b"],
            1,
        ),
        (
            {"premise": "it fell.", "choice1": "it broke", "choice2": "it flew", "question": "effect", "label": 0},
            "COPA",
            "it fell. What happened as a result?",
            ["it broke", "it flew"],
            0,
        ),
        (
            {"premise": "it fell.", "choice1": "a", "choice2": "b", "question": "cause", "label": "choice2", "idx": 4},
            "COPA",
            "it fell. What was the cause of this?",
            ["a", "b"],
            1,
        ),
        (
            {"sent1": "it fell.", "sent2": "Then it", "ending0": "a", "ending1": "b", "ending2": "c", "label": "2"},
            "SWAG",
            "it fell.",
            ["Then it a", "Then it b", "Then it c"],
            2,
        ),
        (
            {"article": "it fell.", "question": "It was _ .", "options": ["big", "red"], "answer": "B"},
            "RACE",
            "it fell.",
            ["It was big .", "It was red ."],
            1,
        ),
        (
            {"article": "it fell.", "question": "Why?", "options": ["a", "b"], "answer": "A"},
            "RACE",
            "it fell.",
            ["Why? a", "Why? b"],
            0,
        ),
    ],
)
def test_forms(row, form, context, choices, label):
    assert read(row) == (form, {"context": context, "choices": choices, "label": label})
    unlabelled = {name: value for name, value in row.items() if name not in ("label", "answer")}
    assert read(unlabelled, labelled=False) == (form, {"context": context, "choices": choices})


def test_columns_of_a_table(tmp_path):
    """By name, by place in a table without a header, and quoted in a .csv."""
    from train.data.sources import sources
    from train.settings.text import Data

    (tmp_path / "named.tsv").write_text("text\tgood\tbad\tgold\nit fell\tit broke\tit flew\tgood\n")
    (tmp_path / "bare.csv").write_text('it fell,"it broke, alas",it flew,1\n')
    rows = {}
    for name, options in (
        ("named.tsv", {"field": "text,good,bad", "label": "gold"}),
        ("bare.csv", {"header": False}),
    ):
        data = Data(source=str(tmp_path / name), **options)
        rows[name] = sources.read(data.source, data, MultipleChoice.of(data), None)
    assert rows["named.tsv"] == [{"context": "it fell", "choices": ["it broke", "it flew"], "label": 0}]
    assert rows["bare.csv"] == [{"context": "it fell", "choices": ["it broke, alas", "it flew"], "label": 1}]


CHOICES = {"premise": "it fell", "choices": ["a", "b"]}


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (CHOICES, "has a row without 'label'; name the column of the label with --data.label=NAME"),
        (CHOICES | {"label": 2}, "has the label 2, which names none of its 2 continuations; write its place, 0 to 1"),
        (CHOICES | {"label": -1}, "has the label -1, which names none of its 2 continuations"),
        (CHOICES | {"label": "c"}, "has the label 'c', which names none"),
        (CHOICES | {"label": 1.0}, "has the label 1.0; it must be the place of a continuation, from 0, or its text"),
        (CHOICES | {"label": True}, "has the label True; it must be"),
        ({"premise": "x", "choices": ["1", "2"], "label": "1"}, "the place of a continuation and the text of another"),
        (CHOICES | {"choices": ["a"], "label": 0}, "has a row with 1 continuations; there must be two or more"),
        (CHOICES | {"choices": ["a", " "], "label": 0}, "has a row whose continuation 1 is empty; fill it in"),
        (CHOICES | {"premise": "", "label": 0}, "has a row whose text is empty"),
        (CHOICES | {"choices": "a|b", "label": 0}, "has a row whose 'choices' is no list of texts"),
        (CHOICES | {"premise": 5, "label": 0}, "has a row whose 'premise' is no text"),
        (
            {"premise": "x", "choice1": "a", "choice2": "b", "question": "why", "label": 0},
            "has the question 'why'; in COPA it is cause or effect",
        ),
        ({"sentence": "x", "label": 0}, "has rows of no known form (they have sentence, label); name the text and"),
    ],
)
def test_bad_rows(row, sentence):
    with pytest.raises(UserError) as error:
        read(row)
    assert str(error.value).startswith("rows.jsonl, line 1 has")
    assert sentence in str(error.value)


def test_ambiguous_labels_may_be_numbers():
    assert read({"premise": "x", "choices": ["1", "2"], "label": 1})[1]["label"] == 1
    assert read({"premise": "x", "choices": ["0", "1"], "label": "1"})[1]["label"] == 1
    assert read({"premise": "x", "choices": ["B", "A"], "label": "A"})[1]["label"] == 1, "the text, not the letter"


# Whole runs


@pytest.mark.slow
def test_whole_run(trained, home):
    err, result = trained
    assert "read as lists (360 rows)" in err
    assert result["eval_accuracy"] > 0.75 > 0.6 > result["eval_majority"]
    names = {"eval_loss", "eval_longest", "eval_overlap", "eval_ece", "eval_temperature", "eval_ece_scaled", "eval_n"}
    assert names <= result.keys()
    assert (home / "whole/plots/reliability.png").exists()
    config = json.loads((home / "whole/run.json").read_text())["config"]
    assert (config["task"]["choices"], config["model"]["classes"]) == (3, 1)


@pytest.mark.slow
def test_evaluate(trained, home):
    code, out, _ = call(evaluate.main, "--run=whole")
    assert code == 0
    assert json.loads(out)["accuracy"] == pytest.approx(trained[1]["eval_accuracy"])
    right = 0
    write_rows(home / "four.jsonl", [row | {"choices": [*row["choices"], "so go"]} for row in stories(60, 1)])
    code, out, _ = call(evaluate.main, "--run=whole", "--data=four.jsonl")
    assert (code, json.loads(out)["n"]) == (0, 60), "as many continuations as the rows have"
    code, out, _ = call(predict.main, "--run=whole", "--file=dev.jsonl")
    for line, row in zip(out.splitlines(), stories(60, 1), strict=True):
        place, text, probability = line.split("\t")
        assert row["choices"][int(place)] == text
        assert 1 / 3 <= float(probability) <= 1
        right += int(place) == row["label"]
    assert right / 60 == pytest.approx(trained[1]["eval_accuracy"])


@pytest.mark.slow
def test_predict_a_text(trained, tmp_path):
    code, out, _ = call(
        predict.main,
        "--run=whole",
        "--text=I am dark at 7",
        "--choices=so bring a coat| so bring a lamp|so bring a pizza",
    )
    place, text, _ = out.rstrip("\n").split("\t")
    assert (code, place, text) == (0, "1", "so bring a lamp")
    flags = ("--text=I am dark at 7", "--choices=so bring a coat|so bring a lamp", f"--to={tmp_path / 'out.jsonl'}")
    assert call(predict.main, "--run=whole", *flags)[0] == 0
    (row,) = read_lines(tmp_path / "out.jsonl")
    assert (row["index"], row["choice"]) == (1, "so bring a lamp")
    assert (row["context"], len(row["choices"])) == ("I am dark at 7", 2)
    assert sum(row["probabilities"]) == pytest.approx(1)


@pytest.mark.slow
def test_a_hugging_face_folder_there_and_back(trained, tmp_path):
    """An exported folder predicts the same, and is a model to start from."""
    run(*SMALL, "--data=train.jsonl", "--model.head.pool=first", "--steps=20", f"--out={tmp_path / 'a'}")
    assert call(export.main, f"--run={tmp_path / 'a'}", f"--to={tmp_path / 'hf'}")[0] == 0
    fields = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert (fields["model_type"], fields["architectures"]) == ("bert", ["BertForMultipleChoice"])
    lines = [call(predict.main, f"--run={tmp_path / name}", "--file=dev.jsonl")[1] for name in ("a", "hf")]
    assert lines[0] == lines[1]
    err = run(
        "--task=choice",
        *SMALL[8:],
        f"--init={tmp_path / 'hf'}",
        "--data=train.jsonl",
        "--steps=1",
        f"--out={tmp_path / 'b'}",
    )
    assert "starts fresh" not in err


@pytest.mark.slow
def test_builtin_continuations(tmp_path):
    run(*SMALL, "--steps=1", f"--out={tmp_path / 'a'}", "--batch.length=32", "--tokenizer.vocab=1500")
    result = json.loads((tmp_path / "a" / "result.json").read_text())
    assert (result["eval_n"], result["eval_majority"]) == (1000, 0.25)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--data=text.txt", "text.txt is not a .jsonl, .tsv, .csv file, nor one of these with .gz"),
        ("--data=train.jsonl --data.field=premise", "--data.field=premise: train.jsonl, line 1 has no continuations"),
        ("--data=train.jsonl --data.field=text,choices", "has no column 'text'"),
        ("--data=train.jsonl --data.label=gold", "has a row without 'gold'; name the column of the label"),
        ("--data=train.jsonl --task.choices=2", "--task.choices=2 is less than the 3 of the data; leave the flag out"),
        ("--task.choices=1", "--task.choices=1 must be at least 2"),
        ("--task.smoothing=1", "--task.smoothing=1.0 must be at least 0 and less than 1; 0.1 is usual"),
        ("--task.focal=-1", "--task.focal=-1.0 must not be negative; the paper has 2"),
        (
            "--task.class-weights=balanced",
            "--task.class_weights belongs to task=classify or image, not to choice; leave it out",
        ),
    ],
)
def test_bad_input(home, flags, sentence):
    (home / "text.txt").write_text("a text\n")
    before = sorted(path.name for path in Path().iterdir())
    code, out, err = call(main, *SMALL[:1], *SMALL[7:9], *flags.split(), "--out=bad")
    assert (code, out) == (2, ""), err
    assert err.splitlines()[-1].startswith("error: ")
    assert sentence in err.splitlines()[-1]
    assert sorted(path.name for path in Path().iterdir()) == before, "nothing is left behind"


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--text=a", "--choices='' must name two continuations or more, with | between"),
        ("--text=a --choices=b", "--choices='b' must name two continuations or more"),
        ("--file=dev.jsonl --choices=a|b", "--choices belongs to --text; the rows of --file have their own"),
        ("--text=a --pair=b", "--pair is no flag of --task=choice"),
    ],
)
@pytest.mark.slow
def test_bad_predictions(trained, flags, sentence):
    code, out, err = call(predict.main, "--run=whole", *flags.split())
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith(f"error: {sentence}")

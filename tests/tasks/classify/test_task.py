"""Classification: the loss, whole runs on small tables, and predictions."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import call, read_lines, run, text_batch, write_text

import tfm
from train import UserError, evaluate, export, predict
from train.data.tokens import in_memory
from train.main import main
from train.runs.run_folder import open_folder
from train.settings.predict import PredictOptions
from train.settings.schema import Data
from train.tasks.classify.predict import inputs
from train.tasks.classify.rows import Examples
from train.tasks.classify.task import CLASSIFY, prediction
from train.text import tokenize

pytestmark = pytest.mark.usefixtures("in_home")

SMALL = (
    "--task=classify --model.layers=1 --model.width=32 --model.heads=2 --model.ffn=64 --model.scan=true "
    "--tokenizer.vocab=300 --batch.size=8 --batch.length=16 --steps=60 --optim.rate=5e-3 --model.dropout=0 "
    "--model.init-std=0.1 --log.every=20 --eval.every=60 "
    "--checkpoint.every=60"
).split()
MODEL = tfm.Config(layers=1, heads=2, width=16, vocab=50, length=16, pad_vocab_to=8, classes=3)

GOOD, BAD, NOUNS = ("good", "fine", "great"), ("bad", "poor", "awful"), ("film", "meal", "book", "song")


def reviews(count, seed):
    """Texts and labels; a word decides the label."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        label = rng.integers(2)
        yield f"a {rng.choice((BAD, GOOD)[label])} {rng.choice(NOUNS)} of {rng.integers(100)}", ("bad", "good")[label]


def table(path, rows, header="sentence\tlabel"):
    path.write_text("\n".join([header, *("\t".join(map(str, row)) for row in rows)]) + "\n")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder of tables."""
    folder = tmp_path_factory.mktemp("home")
    table(folder / "train.tsv", reviews(300, 0))
    table(folder / "dev.tsv", reviews(60, 1))
    table(
        folder / "tags.tsv",
        ((text, label if n % 3 else f"{label},third") for n, (text, label) in enumerate(reviews(200, 2))),
    )
    table(folder / "values.tsv", ((text, 3.5 if label == "good" else 0.5) for text, label in reviews(200, 3)))
    pairs = list(zip(reviews(300, 4), reviews(300, 5), strict=True))
    table(
        folder / "pairs.tsv", ((a[0], b[0], "same" if a[1] == b[1] else "other") for a, b in pairs), "one\ttwo\tlabel"
    )
    write_text(folder / "text.txt")
    return folder


REVIEWS = ("--data=train.tsv", "--eval-data=dev.tsv", "--data.field=sentence")


@pytest.fixture(scope="module")
def trained(home):
    """A run on reviews: its stderr and its result."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        err = run(*SMALL, *REVIEWS, "--out=whole")
    return err, json.loads((home / "whole" / "result.json").read_text())


# The loss

classify, encoder = (jax.jit(function, static_argnums=1) for function in (tfm.classify, tfm.encoder))


def batch(labels):
    rng = np.random.default_rng(0)
    valid = np.int32(np.arange(8) < np.array([[8], [5], [3]]))
    return {
        "tokens": np.int32(rng.integers(5, 50, (3, 8)) * valid),
        "types": np.int32(np.arange(8) > 3) * valid,
        "segments": valid,
        "positions": np.arange(8, dtype=np.int32) * valid,
        "rows": np.arange(3, dtype=np.int32),
        "labels": labels,
        "weights": np.float32([1, 1, 0]),
    }


@pytest.mark.parametrize("pool", ["first", pytest.param("mean", marks=pytest.mark.slow)])
def test_logits(fill, strict, pool):
    """Pooled, tanh, linear, against numpy; padding does not matter."""
    model = dataclasses.replace(MODEL, head=tfm.Head(pool=pool))
    params = fill(tfm.classifier_specs(model))
    fields = batch(np.int32([0, 1, 2]))
    valid = fields["segments"] > 0
    logits = classify(params, model, fields["tokens"], valid, fields["types"])
    for b in range(3):
        size = valid[b].sum()
        hidden = np.asarray(
            encoder(params.encoder, model, fields["tokens"][b : b + 1, :size], types=fields["types"][b : b + 1, :size])
        )
        text = hidden[0, 0] if pool == "first" else hidden[0].mean(0)
        inner = np.tanh(text @ np.asarray(params.pooler.kernel) + np.asarray(params.pooler.bias))
        wanted = inner @ np.asarray(params.output.kernel) + np.asarray(params.output.bias)
        np.testing.assert_allclose(logits[b], wanted, rtol=1e-4, atol=1e-4)
    assert logits.shape == (3, 3)
    assert logits.dtype == jnp.float32


@pytest.mark.parametrize("kind", ["single", pytest.param("multi", marks=pytest.mark.slow), "regression"])
def test_losses(fill, strict, kind):
    labels = {
        "single": np.int32([2, 0, 1]),
        "multi": np.float32([[1, 0, 1], [0, 0, 0], [1, 1, 1]]),
        "regression": np.float32([0.5, 2, 9]),
    }[kind]
    params = jax.tree.map(lambda x: 0.3 * x, fill(tfm.classifier_specs(MODEL)))
    fields = batch(labels)
    sums = jax.jit(CLASSIFY.loss, static_argnums=1)(params, MODEL, fields, None)
    logits = np.float64(classify(params, MODEL, fields["tokens"], fields["segments"] > 0, fields["types"]))[:2]
    if kind == "single":
        losses = [np.log(np.exp(row).sum()) - row[label] for row, label in zip(logits, labels, strict=False)]
        right = sum(row.argmax() == label for row, label in zip(logits, labels, strict=False))
    elif kind == "multi":
        yes = 1 / (1 + np.exp(-logits))
        losses = -(labels[:2] * np.log(yes) + (1 - labels[:2]) * np.log(1 - yes)).mean(1)
        right = ((yes > 0.5) == (labels[:2] > 0)).all(1).sum()
    else:
        losses, right = (logits[:, 0] - labels[:2]) ** 2, 0
    assert float(sums["loss"]) == pytest.approx(sum(losses), rel=1e-4)
    assert float(sums["weight"]) == 2
    assert ("right" in sums) == (kind != "regression"), "a number is not right or wrong"
    assert float(sums.get("right", 0)) == right
    assert sums["scores"].shape == (3, 3)


def test_examples_are_texts_between_special_tokens():
    tokenizer = tokenize.train(tokenize.schema.Tokenizer(vocab=300), [text for text, _ in reviews(50, 0)])
    specials = tokenize.special_tokens(tokenizer)
    texts = [
        in_memory(tokenizer, ["a good film of", "bad"]),
        in_memory(tokenizer, ["fine", "a song of of of of of of of"]),
    ]
    rows = Examples(texts, np.int32([1, 0]), 8, tokenizer)
    fields = rows.batch(np.array([1, 0, -1]))
    word = tokenizer.token_to_id
    cut = [specials.cls, word("bad"), specials.sep, word("a"), word("song"), word("of"), word("of"), specials.sep]
    assert fields["tokens"][0].tolist() == cut
    assert fields["types"][0].tolist() == [0, 0, 0, 1, 1, 1, 1, 1]
    assert fields["labels"][:2].tolist() == [0, 1]
    assert fields["weights"].tolist() == [1, 1, 0]
    assert not fields["valid"][2].any()


# Runs


@pytest.mark.slow
def test_a_run_learns_and_says_what_it_predicts(trained, home):
    err, result = trained
    assert result["eval_accuracy"] > 0.9, "a word tells the class"
    assert {
        "eval_loss",
        "eval_accuracy",
        "eval_f1",
        "eval_f1_macro",
        "eval_matthews",
        "eval_majority",
        "eval_n",
    } <= result.keys()
    assert (result["task"], result["eval_n"]) == ("classify", 60)
    labels = [line.split("\t")[1] for line in (home / "dev.tsv").read_text().splitlines()[1:]]
    assert result["eval_majority"] == max(labels.count(label) for label in set(labels)) / 60
    assert json.loads((home / "whole" / "run.json").read_text())["data"]["classes"] == ["bad", "good"]
    assert json.loads((home / "whole" / "run.json").read_text())["config"]["model"]["classes"] == 2
    assert (home / "whole" / "plots" / "confusion.png").read_bytes().startswith(b"\x89PNG")
    for text in ("classes", "bad, good", "memory", "train.predict --run=whole", "eval_matthews"):
        assert text in err
    last = [line for line in read_lines(home / "whole" / "metrics.jsonl") if line["split"] == "eval"][-1]
    assert {
        f"eval_{name}": value for name, value in last.items() if name not in ("step", "split")
    }.items() <= result.items()


@pytest.mark.slow
def test_resumed_equals_whole(trained, tmp_path):
    run(*SMALL, *REVIEWS, f"--out={tmp_path / 'a'}", "--stop-at=17")
    run("--resume", f"--out={tmp_path / 'a'}")
    result = json.loads((tmp_path / "a" / "result.json").read_text())
    assert result | {"seconds": 0} == trained[1] | {"seconds": 0}


@pytest.mark.slow
def test_evaluate(trained):
    code, out, _ = call(evaluate.main, "--run=whole")
    assert code == 0
    assert {f"eval_{name}": value for name, value in json.loads(out).items()} == pytest.approx(
        {name: value for name, value in trained[1].items() if name.startswith("eval_")}, rel=1e-6
    )
    code, out, _ = call(evaluate.main, "--run=whole", "--data=train.tsv")
    assert json.loads(out)["n"] == 300


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "flags", "metrics"),
    [
        pytest.param(
            "tags.tsv",
            ("--task.kind=multi",),
            {"eval_accuracy", "eval_f1", "eval_f1_macro", "eval_majority"},
            marks=pytest.mark.slow,
        ),
        ("values.tsv", ("--task.kind=regression",), {"eval_pearson", "eval_spearman", "eval_mean_loss"}),
        ("pairs.tsv", ("--data.field=one,two",), {"eval_accuracy", "eval_f1", "eval_matthews"}),
    ],
)
def test_other_kinds(data, flags, metrics, tmp_path):
    run(*SMALL, f"--data={data}", "--data.field=sentence", *flags, f"--out={tmp_path / 'a'}")
    result = json.loads((tmp_path / "a" / "result.json").read_text())
    assert metrics <= result.keys()
    lines = [line["loss"] for line in read_lines(tmp_path / "a" / "metrics.jsonl") if line["split"] == "train"]
    assert lines[-1] < lines[0] or data == "pairs.tsv", "whether two texts agree takes more steps"
    if data == "values.tsv":
        assert result["eval_pearson"] > 0.8
        assert result["eval_loss"] < result["eval_mean_loss"]
    text = (
        ("--text=a good film of 3", "--pair=a bad film of 3") if data == "pairs.tsv" else ("--text=a good film of 3",)
    )
    code, out, _ = call(predict.main, f"--run={tmp_path / 'a'}", *text)
    assert code == 0
    assert len(out.splitlines()) == 1


@pytest.mark.slow
def test_builtin_opinions(tmp_path):
    run(*SMALL, "--steps=1", f"--out={tmp_path / 'a'}", "--batch.length=32")
    assert json.loads((tmp_path / "a" / "run.json").read_text())["data"]["classes"] == [
        "negative",
        "neutral",
        "positive",
    ]


@pytest.mark.slow
def test_average_patience_and_wsd(tmp_path):
    """The average is evaluated and saved; patience ends the run with the best weights, a resumption ends at once."""
    flags = (
        "--optim.ema=0.8",
        "--eval.patience=2",
        "--eval.best=accuracy",
        "--optim.schedule=wsd",
        "--steps=400",
        "--checkpoint.every=400",
    )
    err = run(*SMALL, *REVIEWS, *flags, f"--out={tmp_path / 'a'}")
    assert "no better accuracy in 2 evaluations: ended with the weights of step" in err
    result = json.loads((tmp_path / "a" / "result.json").read_text())
    evaluations = [line for line in read_lines(tmp_path / "a" / "metrics.jsonl") if line["split"] == "eval"]
    assert result["steps"] == evaluations[-1]["step"] < 400
    best = max(evaluations, key=lambda line: line["accuracy"])
    assert (result["eval_accuracy"], result["eval_loss"]) == (best["accuracy"], best["loss"])
    assert best is evaluations[-3]
    _, out, _ = call(evaluate.main, f"--run={tmp_path / 'a'}")
    assert json.loads(out)["loss"] == pytest.approx(best["loss"], rel=1e-6)
    (tmp_path / "a" / "result.json").unlink()
    run("--resume", f"--out={tmp_path / 'a'}")
    assert json.loads((tmp_path / "a" / "result.json").read_text()) | {"seconds": 0} == result | {"seconds": 0}
    run("--resume", f"--out={tmp_path / 'a'}", "--eval.patience=none", f"--stop-at={result['steps'] + 1}")


# From one task to another


@pytest.mark.slow
def test_init_from_a_language_model(tmp_path, home):
    shape = [flag for flag in SMALL if not flag.startswith(("--task", "--steps"))]
    run(
        "--task=mlm",
        "--data=text.txt",
        *shape,
        "--steps=4",
        f"--out={tmp_path / 'lm'}",
        "--task.nsp=true",
        "--optim.ema=0.9",
    )
    flags = (
        "--task=classify",
        f"--init={tmp_path / 'lm'}",
        *REVIEWS,
        "--batch.size=8",
        "--batch.length=16",
        "--optim.rate=0",
        "--steps=1",
    )
    err = run(*flags, f"--out={tmp_path / 'a'}", "--checkpoint.every=1")
    assert "what it lacks starts fresh: output" in err
    from orbax.checkpoint import StandardCheckpointer

    pretrained, finetuned = (
        StandardCheckpointer().restore((tmp_path / name / "checkpoints" / at / "params").absolute())
        for name, at in (("lm", "4"), ("a", "1"))
    )
    shared = [name for name in pretrained if name.startswith(("encoder.", "pooler."))]
    assert len(shared) == len(finetuned) - 2, "all but the output"
    for name in shared:
        np.testing.assert_array_equal(pretrained[name], finetuned[name])
    config = json.loads((tmp_path / "a" / "run.json").read_text())["config"]
    assert (config["model"]["layers"], config["model"]["width"], config["model"]["classes"]) == (1, 32, 2)
    assert (tmp_path / "a" / "tokenizer.json").read_text() == (tmp_path / "lm" / "tokenizer.json").read_text()


@pytest.mark.slow
def test_init_from_a_classifier_with_other_classes(trained, tmp_path):
    err = run(
        "--task=classify",
        "--init=whole",
        *SMALL[7:],
        "--data=pairs.tsv",
        "--data.field=one,two",
        "--steps=1",
        f"--out={tmp_path / 'a'}",
    )
    assert "what it lacks starts fresh: output; its head is of other classes: bad, good" in err
    write = [("a good film", "x"), ("a bad film", "y"), ("a fine film", "z")] * 20
    table(tmp_path / "three.tsv", write)
    flags = (
        f"--data={tmp_path / 'three.tsv'}",
        "--data.field=sentence",
        "--steps=1",
        f"--eval-data={tmp_path / 'three.tsv'}",
    )
    err = run("--task=classify", "--init=whole", *SMALL[7:], *flags, f"--out={tmp_path / 'b'}")
    assert "what it lacks starts fresh: output" in err


# Predictions


@pytest.mark.slow
def test_predict_a_text(trained):
    code, out, _ = call(predict.main, "--run=whole", "--text=a great book of 7")
    label, probability = out.rstrip("\n").split("\t")
    assert (code, label) == (0, "good")
    assert 0.5 < float(probability) <= 1


@pytest.mark.slow
def test_predict_files(trained, home, tmp_path):
    """Every line has its answer, in order, whatever the format; what is printed is what is written."""
    texts = [text for text, _ in reviews(60, 1)]
    (tmp_path / "in.txt").write_text("\n".join([*texts[:3], "", *texts[3:]]) + "\n")
    code, out, _ = call(predict.main, "--run=whole", f"--file={tmp_path / 'in.txt'}")
    lines = out.splitlines()
    assert (code, len(lines)) == (0, 61)
    assert call(
        predict.main, "--run=whole", f"--file={tmp_path / 'in.txt'}", f"--to={tmp_path / 'out.tsv'}", "--batch=7"
    )[:2] == (0, "")
    assert (tmp_path / "out.tsv").read_text() == out
    code, out, _ = call(predict.main, "--run=whole", "--file=dev.tsv")
    assert out.splitlines() == lines[:3] + lines[4:]
    truths = [label for _, label in reviews(60, 1)]
    right = sum(line.split("\t")[0] == truth for line, truth in zip(out.splitlines(), truths, strict=True))
    assert right / 60 == pytest.approx(trained[1]["eval_accuracy"])
    assert call(predict.main, "--run=whole", "--file=dev.tsv", f"--to={tmp_path / 'out.jsonl'}")[0] == 0
    for row, text, line in zip(read_lines(tmp_path / "out.jsonl"), texts, out.splitlines(), strict=True):
        assert (row["sentence"], row["label"]) == (text, line.split("\t")[0])
        assert sum(row["probabilities"].values()) == pytest.approx(1)
        assert f"{row['probabilities'][row['label']]:.4f}" == line.split("\t")[1]
    assert {path.name for path in tmp_path.iterdir()} == {"in.txt", "out.tsv", "out.jsonl"}


@pytest.mark.parametrize(
    ("kind", "logits", "label", "probability"),
    [
        ("single", [0.0, np.log(3)], "b", "0.7500"),
        ("multi", [np.log(3), np.log(4)], "a,b", "0.7500,0.8000"),
        ("multi", [-1.0, -2.0], "", ""),
        ("regression", [1.23456], "1.2346", ""),
    ],
)
def test_guess(kind, logits, label, probability):
    predicted = prediction(kind, [] if kind == "regression" else ["a", "b"], np.float32(logits))
    assert predicted[:2] == (label, probability)


# Bad input


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            "--data=train.tsv",
            "train.tsv, line 2 has no text column 'text' (it has sentence, label); name it with --data.field=NAME",
        ),
        (
            "--data=train.tsv --data.field=sentence --data.label=class",
            "train.tsv, line 2 has no column 'class' (it has sentence, label)",
        ),
        ("--data=text.txt", "text.txt has text alone, no columns; give a .tsv, .csv or .jsonl file"),
        ("--data=one.tsv --data.field=sentence", "every row is labelled 'good'; there must be two classes or more"),
        (
            "--data=train.tsv --eval-data=three.tsv --data.field=sentence",
            "the label 'third' never occurs in the training data (it has bad, good)",
        ),
        (
            "--data=train.tsv --data.field=sentence --task.kind=regression",
            "is not a number; correct it, or choose another --task.kind",
        ),
        ("--task.kind=other", "--task.kind=other is unknown; known are single, multi, regression"),
        ("--task.rate=0.2", "--task.rate belongs to task=mlm or denoise or rtd, not to classify; leave it out"),
        pytest.param(
            "--init=whole --tokenizer.kind=bpe",
            "--init=whole brings its own tokenizer; leave --tokenizer.kind out",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "--init=whole --model.width=64 --data=train.tsv --data.field=sentence",
            "--init=whole is of another architecture",
            marks=pytest.mark.slow,
        ),
        ("--eval.best=blue --data=train.tsv --data.field=sentence", "--eval.best=blue is unknown; known are"),
        ("--eval.patience=-1", "--eval.patience=-1 must be at least 1, or none"),
        ("--optim.ema=1", "--optim.ema=1.0 must be more than 0 and less than 1; for no average say none"),
        (
            "--tokenizer.dropout=0.1 --data=train.tsv --data.field=sentence",
            "--tokenizer.dropout=0.1 leaves out merges, which a WordPiece tokenizer has not; add --token",
        ),
        ("--data=few.tsv --data.field=sentence", "fills 4 rows"),
    ],
)
def test_bad_input(request, home, flags, sentence):
    if "--init=whole" in flags:
        request.getfixturevalue("trained")
    table(home / "one.tsv", [(text, "good") for text, _ in reviews(50, 0)])
    table(home / "few.tsv", reviews(5, 0))
    table(home / "three.tsv", [("a good film", "third")])
    before = sorted(path.name for path in Path().iterdir())
    code, out, err = call(main, *SMALL[:1], *SMALL[7:9], *flags.split(), "--out=bad")
    assert (code, out) == (2, ""), err
    last = err.splitlines()[-1]
    assert last.startswith("error: ")
    assert sentence in last
    assert sorted(path.name for path in Path().iterdir()) == before, "nothing is left behind"


@pytest.mark.parametrize(
    ("facts", "options", "texts"),
    [
        ({}, {"text": "a", "pair": "b"}, [{"text": "a", "pair": "b"}]),
        ({}, {"text": "a"}, [{"text": "a"}]),
        ({}, {"file": "in.txt"}, [{"text": "a", "pair": "b"}, {"text": "c", "pair": "d"}]),
        ({"hash": "0"}, {"text": "a"}, [{"text": "a"}]),
        ({"hash": "0"}, {"text": "a", "pair": "b"}, None),
    ],
)
def test_a_folder_of_transformers_takes_texts_or_pairs(facts, options, texts, tmp_path, monkeypatch):
    """It does not say which of them it was trained on; a run does."""
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text("a\tb\nc\td\n")
    folder = SimpleNamespace(config=SimpleNamespace(data=Data()), facts=facts)
    if texts is None:
        with pytest.raises(UserError, match="text 1 has 2 parts; this run classifies one text"):
            inputs(PredictOptions(run="r", **options), folder)
    else:
        assert inputs(PredictOptions(run="r", **options), folder) == texts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--text=a", "--run=DIR must name the run folder of a model that predicts"),
        ("--run=whole", "--text=TEXT or --file=IN must say what to predict for, one of the two"),
        ("--run=nowhere --text=a", "nowhere is not a run folder: it has no run.json"),
        ("--run=whole --file=nowhere.txt", "nowhere.txt does not exist; give the path of a file"),
        (
            "--run=whole --file=pairs.tsv",
            "pairs.tsv, line 2 has no text column 'sentence' (it has one, two, label); name it",
        ),
        ("--run=whole --text=a --pair=b", "text 1 has 2 parts; this run classifies one text, without a tab"),
        (
            "--run=whole --text=a --to=nowhere/out.tsv",
            "--to=nowhere/out.tsv cannot be written: No such file or directory",
        ),
        ("--run=whole --text=a --batch=0", "--batch=0 must be at least 1"),
    ],
)
def test_bad_predictions(trained, flags, sentence):
    code, out, err = call(predict.main, *flags.split())
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith(f"error: {sentence}")


# Imbalanced and noisy labels


@pytest.mark.slow
def test_weights_of_classes_find_the_rare_one(tmp_path):
    """One text in ten is bad; of those that say "poor", one in three is.

    So the rare class is the likelier one of no text, and of "poor" ones when both classes weigh the same.
    """
    rng = np.random.default_rng(0)
    bad = np.arange(600) % 10 == 0
    poor = rng.random(600) < np.where(bad, 0.9, 0.2)
    words, labels = np.where(poor, "poor", "plain"), np.where(bad, "b", "a")
    rows = [(f"a {word} {rng.choice(NOUNS)}", label) for word, label in zip(words, labels, strict=True)]
    table(tmp_path / "rare.tsv", rows)
    flags = (f"--data={tmp_path / 'rare.tsv'}", "--data.field=sentence", "--data.folds=4", "--data.fold=1")
    results, longer = {}, [flag.replace("--steps=60", "--steps=150") for flag in SMALL]
    for weights in ("none", "balanced"):
        run(*longer, *flags, f"--task.class-weights={weights}", f"--out={tmp_path / weights}")
        results[weights] = json.loads((tmp_path / weights / "result.json").read_text())
    assert results["none"]["eval_n"] == results["balanced"]["eval_n"] == 140  # equal texts share a fold
    assert results["none"]["eval_f1_macro"] < 0.55 < 0.6 < results["balanced"]["eval_f1_macro"]
    assert {"eval_ece", "eval_temperature", "eval_ece_scaled"} <= results["none"].keys()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["single", "multi"])
def test_smoothing_and_focal_loss_train(kind, tmp_path):
    """They belong to training: the loss of evaluation is the plain one."""
    data = "train.tsv" if kind == "single" else "tags.tsv"
    flags = (f"--task.kind={kind}", "--task.smoothing=0.1", "--task.focal=2", f"--data={data}", "--data.field=sentence")
    run(*SMALL, *flags, f"--out={tmp_path / 'a'}")
    result = json.loads((tmp_path / "a" / "result.json").read_text())
    assert result["eval_accuracy"] > 0.6
    assert (tmp_path / "a" / "plots" / "reliability.png").exists() == (kind == "single")


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--task.class-weights=1,2,3", "--task.class-weights=1,2,3 has 3 weights for 2 classes (bad, good)"),
        ("--task.class-weights=heavy", "class-weights=heavy must be none, balanced, or a number for each class"),
        ("--task.kind=multi --task.class-weights=balanced", "class-weights=balanced are of kind=single"),
        ("--task.kind=regression --task.focal=2", "focal=2.0 is for classes, not for kind=regression; leave it out"),
        ("--task.smoothing=-0.1", "smoothing=-0.1 must be at least 0 and less than 1; 0.1 is usual"),
        ("--data.folds=1", "folds=1 must be at least 2, or none"),
        ("--data.folds=400", "--data.folds=400 needs as many different rows"),
        ("--data.folds=4 --eval-data=dev.tsv", "--data.folds=4 holds out rows of --data, and --eval-data=dev.tsv"),
    ],
)
def test_bad_losses_and_folds(flags, sentence):
    code, out, err = call(main, *SMALL[:9], "--data=train.tsv", "--data.field=sentence", *flags.split(), "--out=bad")
    assert (code, out) == (2, ""), err
    assert sentence in err.splitlines()[-1]
    assert not Path("bad").exists()


# Pairs as two texts


@pytest.mark.slow
def test_pairs_in_both_orders(home):
    """Logits are the sum of those of both orders, so an exchanged pair has the same ones."""
    flags = ("--data=pairs.tsv", "--data.field=one,two", "--batch.length=40", "--steps=20", "--eval.every=20")
    causal = ("--task.generative=0.5", "--model.head.causal=true", "--model.head.pool=last")
    run(*SMALL, *flags, *causal, "--task.pairs=both_ways", "--out=both")
    train = [line for line in read_lines(home / "both" / "metrics.jsonl") if line["split"] == "train"]
    assert train[-1]["loss"] == pytest.approx(train[-1]["loss_task"] + train[-1]["loss_generative"])
    folder = open_folder("both")
    params, model = folder.load(tfm.make_mesh(devices=jax.devices()[:1]), print), folder.config.model
    texts = [in_memory(folder.processor, [text]) for text in ("a good film of 7", "an awful song")]
    logits = {}
    for pairs in ("both_ways", "joined"):
        for order in (1, -1):
            examples = Examples(texts[::order], np.zeros(1, np.int32), 40, folder.processor, pairs)
            logits[pairs, order] = np.asarray(CLASSIFY.loss(params, model, text_batch(examples, [0]), None)["scores"])
    np.testing.assert_allclose(logits["both_ways", 1], logits["both_ways", -1], atol=1e-5)
    np.testing.assert_allclose(logits["both_ways", 1], logits["joined", 1] + logits["joined", -1], atol=1e-5)
    assert abs(logits["joined", 1] - logits["joined", -1]).max() > 1e-4, "the orders differ"
    code, _, err = call(export.main, "--run=both", f"--to={home / 'folder'}")
    assert code == 2
    assert "--task.pairs=both_ways reads a pair as two texts" in err


@pytest.mark.slow
def test_texts_of_a_pair_apart(home):
    """Classes read u, v, |u - v| and u v of the mean states of both texts, each by itself."""
    flags = ("--data=pairs.tsv", "--data.field=one,two", "--steps=20", "--eval.every=20", "--model.head.pool=mean")
    run(*SMALL, *flags, "--task.pairs=apart", "--model.head.dense=false", "--out=apart")
    folder = open_folder("apart")
    params, model = folder.load(tfm.make_mesh(devices=jax.devices()[:1]), print), folder.config.model
    texts = [in_memory(folder.processor, [text]) for text in ("a good film of 7", "an awful song")]
    examples = Examples(texts, np.zeros(1, np.int32), 16, folder.processor, "apart")
    scores = CLASSIFY.loss(params, model, text_batch(examples, [0]), None)["scores"]
    specials = tokenize.special_tokens(folder.processor)
    u, v = (
        np.asarray(encoder(params.encoder, model, np.int32([[specials.cls, *text[0], specials.sep]])))[0].mean(0)
        for text in texts
    )
    features = np.concatenate([u, v, abs(u - v), u * v])
    np.testing.assert_allclose(scores[0], features @ params.output.kernel + params.output.bias, atol=1e-4)
    code, out, err = call(predict.main, "--run=apart", "--text=a good film of 7", "--pair=an awful song")
    assert (code, out.split()[0] in ("same", "other")) == (0, True), err


def test_two_texts_need_pairs(home):
    code, _, err = call(main, *SMALL, *REVIEWS, "--task.pairs=apart", "--out=single")
    assert code == 2
    assert "--task.pairs=apart reads pairs; name two columns, such as --data.field=first,second" in err


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({}, "single"),
        ({"id2label": {"0": "a"}}, "regression"),
        ({"num_labels": 1}, "regression"),
        ({"id2label": {"0": "a"}, "problem_type": "multi_label_classification"}, "multi"),
        ({"num_labels": 3, "problem_type": "multi_label_classification"}, "multi"),
        ({"num_labels": 3, "problem_type": "regression"}, "problem_type=regression and 3 classes"),
        ({"num_labels": 1, "problem_type": "single_label_classification"}, "single_label_classification and 1 classes"),
    ],
)
def test_the_kind_of_a_folder(fields, kind):
    """Of a regression of three numbers the first was predicted, and of one class a certainty of 1."""
    folder = SimpleNamespace(path="folder", fields=fields)
    if "classes" not in kind:
        assert CLASSIFY.hf_run_values("classify", folder) == {"task.kind": kind}
        return
    with pytest.raises(UserError, match=kind):
        CLASSIFY.hf_run_values("classify", folder)
    CLASSIFY.hf_run_values("model", folder)  # its head is not read

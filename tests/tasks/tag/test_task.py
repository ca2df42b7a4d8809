"""Tags of words: rows and windows, the loss, whole runs on small files, and predictions."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import call, read_lines, run, text_batch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

import tfm
from train import evaluate, export, predict
from train.main import main
from train.screens.console import Log
from train.settings.schema import Tokenizer as Tokenization
from train.tasks.tag import news
from train.tasks.tag.metric import Entity
from train.tasks.tag.predict import Query, tagged
from train.tasks.tag.rows import Lexicon, Pieces, Sentences, split
from train.tasks.tag.task import TAG
from train.text import tokenize
from train.text.special import SpecialTokens
from train.text.words import basic_words

pytestmark = pytest.mark.usefixtures("in_home")

SMALL = (
    "--task=tag --model.layers=1 --model.width=32 --model.heads=2 --model.ffn=64 --model.scan=true "
    "--tokenizer.vocab=300 --batch.size=8 --batch.length=16 --steps=60 --optim.rate=1e-2 --model.init-std=0.1 "
    "--log.every=20 --eval.every=20 --checkpoint.every=20"
).split()
SPECIALS = SpecialTokens(pad=0, unk=1, cls=2, sep=3, mask=4)
QUIET = Log(quiet=True)

NAMES = {"PER": ("Ada Byron", "Paris", "Grace Hopper", "Rome"), "LOC": ("Oslo", "New York", "Rome", "Paris")}


def sentences(count, seed):
    """Sentences in which verbs say what the names are."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        words, tags = [], []
        for kind, before in (("PER", "yesterday"), ("LOC", "went to")):
            name = str(rng.choice(NAMES[kind])).split()
            words += [*before.split(), *name]
            tags += ["O"] * len(before.split()) + [f"B-{kind}", *[f"I-{kind}"] * (len(name) - 1)]
        repeats = rng.integers(0, 9)
        yield words + ["again", "and"] * repeats, tags + ["O"] * 2 * repeats


def write(path, rows):
    path.write_text("\n\n".join("\n".join(map("\t".join, zip(*row, strict=True))) for row in rows) + "\n")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder of files."""
    folder = tmp_path_factory.mktemp("home")
    write(folder / "train.conll", sentences(200, 0))
    write(folder / "dev.conll", sentences(40, 1))
    nouns = [(words, ["X" if label == "O" else "NAME" for label in tags]) for words, tags in sentences(100, 2)]
    (folder / "pos.jsonl").write_text("".join(json.dumps({"words": w, "pos": t}) + "\n" for w, t in nouns))
    return folder


NEWS = ("--data=train.conll", "--eval-data=dev.conll")


@pytest.fixture(scope="module")
def trained(home):
    """A run on the sentences: its stderr and its result."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        err = run(*SMALL, *NEWS, "--out=whole")
    return err, json.loads((home / "whole" / "result.json").read_text())


# Rows


def letters():
    """A tokenizer whose pieces are letters."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef", *(f"##{letter}" for letter in "abcdef")]
    tokenizer = Tokenizer(models.WordPiece({name: n for n, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def test_pieces():
    """The label of a word is on its first piece; words without characters are unknown, and counted."""
    pieces = split(letters(), [["abc", "\x00", "d"], [], ["\x01", "xyz"]], QUIET, "text")
    assert [ids.tolist() for ids in pieces.ids] == [[5, 12, 13, 1, 8], [], [1, 1]]
    assert [firsts.tolist() for firsts in pieces.firsts] == [[0, 3, 4], [], [0, 1]]
    assert pieces.unreadable == 2


def test_bytes_are_read_with_the_space_before_a_word():
    tokenizer = Tokenizer(models.BPE({"a": 0, "\u0120": 1, "\u0120a": 2}, [("\u0120", "a")]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    assert split(tokenizer, [["a", "a"]], QUIET, "text").ids[0].tolist() == [2, 2]


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "word", "char"])
def test_every_kind_of_tokenizer_keeps_words_apart(kind):
    """Every word has a first piece of its own, whatever it is made of."""
    texts = ["Ada Byron wrote to Charles Babbage ."] * 50 + [
        f"the quick brown fox jumps over {n} dogs" for n in range(99)
    ]
    tokenizer = tokenize.train(Tokenization(kind=kind, vocab=300), texts)
    sentences = [["Ada", "New York", "", "\x00", "fox's", "\u4e2d\u6587", "."], ["dogs"] * 4]
    pieces = split(tokenizer, sentences, QUIET, "text")
    for words, ids, firsts in zip(sentences, pieces.ids, pieces.firsts, strict=True):
        assert len(firsts) == len(words)
        assert firsts[0] == 0
        assert (np.diff([*firsts, len(ids)]) > 0).all()
    assert len({tuple(part) for part in np.split(pieces.ids[1], pieces.firsts[1][1:])}) == 1


def rows_of(lengths, length, stride=None):
    """Sentences of words of one piece each, whose labels are their places."""
    words = [[str(n) for n in range(count)] for count in lengths]
    ids = [np.arange(count) + 10 for count in lengths]
    places = [np.arange(count) for count in lengths]
    return Sentences(words, places, Pieces(ids, places, 0), SPECIALS, length, stride)


def test_a_row():
    pieces = split(letters(), [["ab", "c"]], QUIET, "text")
    batch = Sentences([["ab", "c"]], [np.array([1, 2])], pieces, SPECIALS, 8).batch(np.array([0, -1]))
    assert batch["tokens"].tolist() == [[2, 5, 12, 7, 3, 0, 0, 0], [0] * 8]
    assert batch["valid"].tolist() == [[1, 1, 1, 1, 1, 0, 0, 0], [0] * 8]
    assert batch["labels"].tolist() == [[0, 1, 0, 2, 0, 0, 0, 0], [0] * 8]
    assert batch["weights"].tolist() == [[0, 1, 0, 1, 0, 0, 0, 0], [0] * 8]


@pytest.mark.parametrize("stride", [None, 1, 3, 6])
def test_every_word_counts_once_and_windows_are_joined(stride):
    """In the window with the most words on the shorter side of it; values of windows become those of sentences."""
    lengths = [3, 20, 6, 7, 0, 11]
    rows = rows_of(lengths, 8, stride)
    batch = rows.batch(np.arange(len(rows)))
    assert batch["weights"].sum() == sum(lengths)
    for sentence, joined in zip(rows.labels, rows.join(batch["tokens"] - 10), strict=True):
        np.testing.assert_array_equal(joined, sentence)
    starts = [0]
    while starts[-1] + 6 < 20:
        starts.append(starts[-1] + (stride or 3))
    windows = [range(start, min(start + 6, 20)) for start in starts]
    context = [[min(n - w[0], w[-1] - n) if n in w else -1 for w in windows] for n in range(20)]
    for row in range(len(rows)):
        if rows.windows.texts[row] != 1:
            continue
        for word in rows.places(row)[0]:
            own = windows.index(range(rows.windows.starts[row], rows.windows.ends[row]))
            assert context[word][own] == max(context[word])
    assert rows.cut_sentences == 3


def test_joined_sentences_of_some_rows():
    """An evaluation of a part of the rows knows the sentences all of whose windows are in it."""
    rows = rows_of([3, 20, 6], 8, 6)
    tokens = rows.batch(np.arange(len(rows)))["tokens"] - 10
    assert [len(values) for values in rows.join(tokens[:3])] == [3]
    assert [len(values) for values in rows.join(tokens[:5])] == [3, 20]
    assert [len(values) for values in rows.join(np.pad(tokens, ((0, 3), (0, 0))))] == [3, 20, 6]


def test_lexicon():
    words, labels = [["a", "b", "a"], ["a", "c"]], [np.array([1, 0, 2]), np.array([2, 0])]
    lexicon = Lexicon.of(words, labels, [[Entity("X", 0, 2)], []])
    assert lexicon.guess(["a", "b", "z"]) == [2, 0, 0]
    spans = [[Entity("Y", 0, 2), Entity("X", 2, 3)]]
    assert lexicon.only(words, spans, seen=True) == [[Entity("Y", 0, 2)]]
    assert lexicon.only(words, spans, seen=False) == [[Entity("X", 2, 3)]]


# The loss


def test_loss(fill, strict):
    """The mean over words that count, against numpy; what stands at other places does not matter."""
    model = tfm.Config(layers=1, heads=2, width=16, vocab=50, length=8, pad_vocab_to=8, classes=3)
    params = fill(tfm.tagger_specs(model))
    rows = rows_of([6, 3], 8)
    batch = text_batch(rows, [0, 1, -1]) | {"labels": np.int32(np.arange(24).reshape(3, 8) % 3)}
    loss, classify_tokens = (jax.jit(function, static_argnums=1) for function in (TAG.loss, tfm.classify_tokens))
    sums = loss(params, model, batch, None)
    logits = np.asarray(classify_tokens(params, model, batch["tokens"], batch["segments"] > 0), np.float64)
    losses = np.log(np.exp(logits).sum(-1)) - np.take_along_axis(logits, batch["labels"][..., None], -1)[..., 0]
    counts = batch["weights"] > 0
    assert (sums["weight"], counts.sum()) == (9, 9)
    assert float(sums["loss"]) == pytest.approx(losses[counts].sum(), rel=1e-4)
    right = (logits.argmax(-1) == batch["labels"])[counts].mean()
    assert TAG.metrics({name: np.asarray(value) for name, value in sums.items()})["accuracy"] == pytest.approx(right)
    changed = batch | {"labels": np.where(counts, batch["labels"], 2)}
    assert loss(params, model, changed, None)["loss"] == sums["loss"]
    assert sums["guesses"].dtype == jnp.int32


# Built-in data


def test_builtin_news():
    """The same on every machine, IOB2, and a quarter of the names is made of words that training sentences lack."""
    train, valid = news.generate(train=3000, valid=400)
    assert news.generate(train=10, valid=400) == (train[:10], valid)
    words = {word for row in train for word in row["tokens"]}
    assert len({tuple(row["tokens"]) for row in train + valid}) == 3400
    names = []
    for row in valid:
        for word, label, before in zip(row["tokens"], row["tags"], ["O", *row["tags"]], strict=False):
            assert label[0] != "I" or before[2:] == label[2:]
            names += [[]] if label[0] == "B" else []
            if label != "O":
                names[-1].append(word)
    new = [name for name in names if not words.intersection(set(name) - {"Port", "County", "Lake", "University", "of"})]
    assert 0.12 < len(new) / len(names) < 0.3


# Whole runs


@pytest.mark.slow
def test_training(trained):
    err, result = trained
    assert "tags: IOB2, entities of 2 types: LOC, PER" in err
    assert "sentences of the training text are longer than a row of 16: they are cut into windows that overlap" in err
    assert result["eval_f1"] > 0.95 > result["eval_baseline_f1"] > 0.3
    assert result["eval_f1_seen"] == result["eval_f1"], "there are no new names"
    assert {"eval_precision_PER", "eval_recall_LOC", "eval_f1_LOC"} <= result.keys()
    assert result["eval_n"] == 40
    assert (Path("whole") / "plots" / "entities.png").exists()
    lines = [line for line in read_lines(Path("whole/metrics.jsonl")) if line["split"] == "eval"]
    assert lines[-1]["f1"] == result["eval_f1"]
    assert "f1_PER" not in lines[-1]


@pytest.mark.slow
def test_evaluate(trained):
    code, out, _ = call(evaluate.main, "--run=whole")
    assert code == 0
    assert {f"eval_{name}": value for name, value in json.loads(out).items()} == pytest.approx(
        {name: value for name, value in trained[1].items() if name.startswith("eval_")}, rel=1e-6
    )


@pytest.mark.slow
def test_evaluate_on_other_text(trained, tmp_path, home):
    """New names are new to the training text, which is read again, or not where it is gone."""
    rows = [("yesterday Ada Byron went to Mars".split(), ["O", "B-PER", "I-PER", "O", "O", "B-LOC"])] * 3
    write(tmp_path / "new.conll", rows)
    code, out, _ = call(evaluate.main, "--run=whole", f"--data={tmp_path / 'new.conll'}")
    metrics = json.loads(out)
    assert (code, metrics["f1_seen"], metrics["n"]) == (0, 1.0, 3)
    assert metrics["baseline_f1"] < 1
    (home / "train.conll").rename(home / "moved.conll")
    code, out, err = call(evaluate.main, "--run=whole", f"--data={tmp_path / 'new.conll'}")
    (home / "moved.conll").rename(home / "train.conll")
    assert code == 0
    assert "which entities are new is not known: no file matches 'train.conll'" in err
    assert metrics.keys() - json.loads(out).keys() == {"f1_seen", "f1_unseen", "baseline_f1", "baseline_accuracy"}


@pytest.mark.slow
def test_resume(trained, tmp_path):
    run(*SMALL, *NEWS, f"--out={tmp_path / 'a'}", "--stop-at=17")
    run("--resume", f"--out={tmp_path / 'a'}")
    assert json.loads((tmp_path / "a" / "result.json").read_text()) | {"seconds": 0} == trained[1] | {"seconds": 0}


@pytest.mark.slow
def test_parts_of_speech(tmp_path):
    """Labels that mark no entities are measured by accuracy, and columns have names of their own."""
    err = run(*SMALL, "--data=pos.jsonl", "--data.field=words", "--data.label=pos", f"--out={tmp_path / 'a'}")
    result = json.loads((tmp_path / "a" / "result.json").read_text())
    assert "tags: 2 labels that mark no entities; they are measured by accuracy" in err
    assert "eval_f1" not in result
    assert result["eval_accuracy"] > 0.9
    assert (tmp_path / "a" / "plots" / "confusion.png").exists()
    _, out, _ = call(predict.main, f"--run={tmp_path / 'a'}", "--text=Ada went")
    assert [line.split("\t")[1:4] for line in out.splitlines()] == [["Ada", "0", "3"], ["went", "4", "8"]]


# Predictions


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Ada's  dog, ok?", "Ada ' s dog , ok ?"),
        (" \t", ""),
        ("a\u4e2d\u6587b", "a \u4e2d \u6587 b"),
        ("x\u00a0y\u2014z $5_6", "x y \u2014 z $ 5 _ 6"),
    ],
)
def test_words_of_a_text(text, words):
    """Split where BERT's basic tokenizer splits; every word stands at its place."""
    assert [word.text for word in basic_words(text)] == words.split()
    assert all(text[word.start : word.end] == word.text for word in basic_words(text))
    bert = letters()
    normal = bert.normalizer.normalize_str(text)
    assert [part for part, _ in bert.pre_tokenizer.pre_tokenize_str(normal)] == words.lower().split()


def test_entities_have_places_and_probabilities():
    names = ["O", "B-LOC", "I-LOC"]
    logits = np.log(np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.3, 0.2, 0.5], [0.9, 0.05, 0.05]], np.float32))
    text = "In  New\tYork!"
    prediction = tagged(Query.of({"text": text}), names, logits)
    entity = {"type": "LOC", "text": "New\tYork", "start": 4, "end": 12, "probability": pytest.approx(0.6)}
    assert prediction.row == {"text": text, "entities": [entity]}
    assert prediction.line == "LOC\tNew York\t4\t12\t0.6000"
    words = ["In", "New", "York", "!"]
    row = tagged(Query.of({"tokens": words}), names, logits).row
    assert (row["entities"][0]["start"], row["entities"][0]["text"]) == (3, "New York")
    assert row["tags"] == ["O", "B-LOC", "I-LOC", "O"]
    lines = {"tokens": words, "lines": [f"{word} x" for word in words], "before": ["-DOCSTART- x"]}
    block = tagged(Query.of(lines, in_file=True), names, logits).line
    assert block == "-DOCSTART- x O\n\nIn x O\nNew x B-LOC\nYork x I-LOC\n! x O\n"


@pytest.mark.slow
def test_predict_a_text(trained):
    code, out, _ = call(predict.main, "--run=whole", "--text=yesterday Grace Hopper went to Rome")
    lines = [line.split("\t") for line in out.splitlines()]
    assert (code, [line[:4] for line in lines]) == (
        0,
        [["PER", "Grace Hopper", "10", "22"], ["LOC", "Rome", "31", "35"]],
    )
    assert all(0.5 < float(line[4]) <= 1 for line in lines)


@pytest.mark.slow
def test_predict_files(trained, tmp_path):
    """A CoNLL file comes back with a column more; other files give the same entities, a blank line after each text."""
    code, out, _ = call(predict.main, "--run=whole", "--file=dev.conll", f"--to={tmp_path / 'out.conll'}")
    assert (code, out) == (0, "")
    lines, gold = (tmp_path / "out.conll").read_text().splitlines(), Path("dev.conll").read_text().splitlines()
    assert [line.rpartition("\t")[0] if line else "" for line in lines] == [*gold, ""]
    rows = list(sentences(40, 1))
    (tmp_path / "in.txt").write_text("\n".join([" ".join(rows[0][0]), "", *(" ".join(words) for words, _ in rows[1:])]))
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"tokens": words}) + "\n" for words, _ in rows))
    printed = {}
    for name in ("in.txt", "in.jsonl"):
        call(predict.main, "--run=whole", f"--file={tmp_path / name}", f"--to={tmp_path / 'out.jsonl'}", "--batch=7")
        printed[name] = read_lines(tmp_path / "out.jsonl")
    texts = [row for row in printed["in.txt"] if row["text"]]
    assert [[e["start"] for e in row["entities"]] for row in texts] == [
        [e["start"] for e in row["entities"]] for row in printed["in.jsonl"]
    ]
    tags = [line.rpartition("\t")[2] for line in lines if line]
    assert [label for row in printed["in.jsonl"] for label in row["tags"]] == tags
    right = np.mean([label == line.rpartition("\t")[2] for label, line in zip(tags, filter(None, gold), strict=True)])
    assert right == pytest.approx(trained[1]["eval_accuracy"])
    code, out, _ = call(predict.main, "--run=whole", f"--file={tmp_path / 'in.txt'}")
    assert out.split("\n\n")[0].count("\n") == len(texts[0]["entities"]) - 1


@pytest.mark.slow
def test_predict_words_without_characters(trained, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"tokens": ["\\u200b", ""]}\n{"tokens": []}\n{"text": ""}\n')
    code, _, err = call(
        predict.main, "--run=whole", f"--file={tmp_path / 'in.jsonl'}", f"--to={tmp_path / 'out.jsonl'}"
    )
    assert code == 0, err
    assert "2 words of the texts have no characters that the tokenizer reads" in err
    assert [len(row.get("tags", [])) for row in read_lines(tmp_path / "out.jsonl")] == [2, 0, 0]


# Bad input


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--data=new.conll --eval-data=dev.conll", "dev.conll, line 2 has the tag 'B-PER', which never occurs in the"),
        ("--data=ragged.conll", "ragged.conll, line 3 has 1 columns where the first line has 2; repair it"),
        ("--data=empty.conll", "empty.conll holds no text; check the file, or choose another"),
        ("--data=train.conll --data.field=7", "train.conll has no column '7'; its first line has 2 columns"),
        ("--data=pos.jsonl", "pos.jsonl, line 1 has no list in its column 'tokens' (it has words, pos)"),
        ("--task.stride=15 --data=train.conll", "--task.stride=15 must be at most 14, the room in batch.length=16"),
        (
            "--data=pos.jsonl --data.field=words --data.label=pos --eval.best=f1",
            "--eval.best=f1 is not measured with these options and data; choose loss or accuracy",
        ),
        ("--task.stride=0", "--task.stride=0 must be at least 1"),
        ("--tokenizer.dropout=0.1", "--tokenizer.dropout=0.1 splits whole texts, not words; leave it out"),
    ],
)
def test_bad_input(home, flags, sentence):
    write(home / "new.conll", [(["a", "b"], ["O", "B-X"])] * 30)
    (home / "ragged.conll").write_text("a\tO\nb\tB-X\nc\n")
    (home / "empty.conll").write_text("\n")
    before = sorted(path.name for path in Path().iterdir())
    code, out, err = call(main, *SMALL, *flags.split(), "--out=bad")
    assert (code, out) == (2, ""), err
    last = err.splitlines()[-1]
    assert last.startswith("error: ")
    assert sentence in last
    assert sorted(path.name for path in Path().iterdir()) == before, "nothing is left behind"


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--text=a --pair=b", "--pair is no flag of --task=tag, for which whole was trained; leave it out"),
        ("--file=pos.jsonl", "pos.jsonl, line 1 has no list in its column 'tokens'"),
        ("--file=nowhere.conll", "nowhere.conll does not exist; give the path of a file"),
    ],
)
@pytest.mark.slow
def test_bad_predictions(trained, flags, sentence):
    code, out, err = call(predict.main, "--run=whole", *flags.split())
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith(f"error: {sentence}")


# Folders of transformers


@pytest.mark.parity
def test_a_model_of_transformers_predicts_as_it_is(tmp_path):
    """Labels, probabilities and names of classes, against transformers on the first piece of every word."""
    import torch
    import transformers

    tokenizer, names = letters(), ["O", "B-X", "I-X", "B-Y"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: n for n, name in enumerate(names)}}
    config = transformers.BertConfig(
        vocab_size=17, max_position_embeddings=40, initializer_range=0.5, **shape, **labels
    )
    torch.manual_seed(0)
    model = transformers.BertForTokenClassification(config).eval()
    model.save_pretrained(tmp_path / "hf")
    saved = Tokenizer.from_str(tokenizer.to_str())
    saved.enable_truncation(8)
    saved.enable_padding(length=8)
    saved.save(str(tmp_path / "hf" / "tokenizer.json"))
    rng = np.random.default_rng(0)
    rows = [["".join(rng.choice(list("abcdef"), rng.integers(1, 4))) for _ in range(count)] for count in (1, 5, 12)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"tokens": words}) + "\n" for words in rows))
    flags = (f"--run={tmp_path / 'hf'}", f"--file={tmp_path / 'in.jsonl'}", f"--to={tmp_path / 'out.jsonl'}")
    code, _, err = call(predict.main, *flags)
    assert code == 0, err
    for words, row in zip(rows, read_lines(tmp_path / "out.jsonl"), strict=True):
        encoding = tokenizer.encode(words, is_pretokenized=True)
        firsts = [encoding.word_ids.index(n) for n in range(len(words))]
        with torch.no_grad():
            probabilities = model(torch.tensor([encoding.ids])).logits[0, firsts].softmax(-1).max(-1)
        assert row["tags"] == [names[label] for label in probabilities.indices]
        for entity in row["entities"]:
            first, count = " ".join(words)[: entity["start"]].count(" "), entity["text"].count(" ") + 1
            mean = float(probabilities.values[first : first + count].mean())
            assert entity["probability"] == pytest.approx(mean, rel=1e-4)
    _, out, _ = call(evaluate.main, f"--run={tmp_path / 'hf'}", f"--data={tmp_path / 'out.jsonl'}")
    metrics = json.loads(out)
    assert (metrics["accuracy"], metrics["n"]) == (1.0, 3)
    assert "baseline_f1" not in metrics, "nobody knows what it was trained on"
    flags = ("--data=train.conll", f"--init={tmp_path / 'hf'}", "--batch.length=16", "--steps=1", "--eval.final=false")
    assert "what it lacks starts fresh: output" in run("--task=tag", *flags, f"--out={tmp_path / 'tuned'}")


@pytest.mark.parity
@pytest.mark.slow
def test_export(trained, tmp_path):
    """transformers reads the folder: labels by name, and the same probabilities."""
    import torch
    import transformers

    code, _, err = call(export.main, "--run=whole", f"--to={tmp_path / 'hf'}")
    assert code == 0, err
    model = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "hf").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert model.config.id2label == dict(enumerate(["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]))
    words = "yesterday Grace Hopper went to Rome".split()
    encoding = tokenizer(words, is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        probabilities = model(**encoding).logits[0].softmax(-1)
    firsts = [encoding.word_ids().index(n) for n in range(len(words))]
    (tmp_path / "in.jsonl").write_text(json.dumps({"tokens": words}) + "\n")
    for folder in ("whole", tmp_path / "hf"):
        _, out, _ = call(predict.main, f"--run={folder}", f"--file={tmp_path / 'in.jsonl'}")
        lines = [line.split("\t") for line in out.strip().split("\n")]
        assert [line[:2] for line in lines] == [["PER", "Grace Hopper"], ["LOC", "Rome"]]
        expected = probabilities[firsts].max(-1).values
        assert float(lines[1][4]) == pytest.approx(float(expected[5]), abs=1e-3)

"""Answers to questions: rows and windows, the search for answers, whole runs on small files, and predictions."""

import json
import unicodedata
from pathlib import Path

import jax
import numpy as np
import pytest
from small import call, read_lines, run, text_batch

import tfm
from train import evaluate, predict
from train.main import main
from train.metrics import squad
from train.screens.console import Log
from train.settings import schema
from train.tasks.span.options import Span
from train.tasks.span.predict import search
from train.tasks.span.rows import Passages
from train.tasks.span.source import Answer, Question
from train.tasks.span.task import SPAN
from train.text import tokenize

pytestmark = pytest.mark.usefixtures("in_home")

SMALL = (
    "--task=span --model.layers=1 --model.width=32 --model.heads=2 --model.ffn=64 --model.scan=true "
    "--tokenizer.vocab=300 --batch.size=16 --batch.length=24 --task.max-question=6 --task.stride=6 --steps=60 "
    "--optim.rate=1e-2 --model.dropout=0 --model.init-std=0.1 --log.every=20 --eval.every=30 --checkpoint.every=30"
).split()

KINDS = {
    "Which color": ("red", "dark green", "blue"),
    "Which animal": ("cat", "big dog", "horse"),
}
FILL = "it was then and there that we saw so much of him or her by day".split()


def question(rng, name, answerable=True):
    """A question that names a kind of things, about a passage with one thing of each kind: a word says which it is."""
    words = [str(word) for word in rng.choice(FILL, rng.integers(6, 20))]
    asked = str(rng.choice(list(KINDS)))
    for kind, options in KINDS.items():
        if kind != asked or answerable:
            words.insert(rng.integers(len(words) + 1), str(rng.choice(options)))
    context = " ".join(words)
    answers = [
        {"text": option, "answer_start": context.index(option)}
        for option in KINDS[asked]
        if option in context and answerable
    ]
    return {"id": name, "context": context, "question": f"{asked}?", "answers": answers}


def squad_file(path, count, seed, unanswerable=0.0, **changes):
    rng = np.random.default_rng(seed)
    rows = [question(rng, f"{seed}-{n}", rng.random() >= unanswerable) | changes for n in range(count)]
    paragraphs = [{"context": row.pop("context"), "qas": [row]} for row in rows]
    Path(path).write_text(json.dumps({"data": [{"title": "x", "paragraphs": paragraphs}]}))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder of questions."""
    folder = tmp_path_factory.mktemp("home")
    squad_file(folder / "train.json", 400, 0, 0.25)
    squad_file(folder / "dev.json", 60, 1, 0.25)
    squad_file(folder / "v1.json", 100, 2)
    return folder


@pytest.fixture(scope="module")
def trained(home):
    """A run on questions of which some have no answer: its stderr and its result."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        err = run(*SMALL, "--data=train.json", "--eval-data=dev.json", "--out=whole")
    return err, json.loads((home / "whole" / "result.json").read_text())


# Rows

TEXTS = (
    "Zu\u0308rich, \u00c9vora und S\u00e3o Paulo: 3,5 Mio. \U0001f469\u200d\U0001f469\u200d\U0001f466 na\u00efve!",
    "\u6771\u4eac is in \u65e5\u672c\u3002  two  spaces\tand\na line\u202fbreak \u0130stanbul stra\u00dfe.",
    "plain words, and a state-of-the-art U.S. question?",
)


def tokenizer_of(kind, **options):
    texts = [*TEXTS, *(unicodedata.normalize("NFC", text) for text in TEXTS), "a b c d"]
    return tokenize.train(schema.Tokenizer(kind=kind, vocab=400, **options), texts * 5)


def passages(questions, tokenizer, length=24, **options):
    options = {"max_question": 6, "stride": 4} | options
    return Passages(questions, length, Span(**options), tokenizer, Log(quiet=True), "passages")


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "word", "char"])
def test_answers_are_parts_of_the_text_itself(kind):
    """Every word as an answer: its tokens lead back to its characters, accents, emoji and double spaces included."""
    tokenizer = tokenizer_of(kind)
    for text in TEXTS:
        starts = [n for n in range(len(text)) if not text[n].isspace() and (n == 0 or text[n - 1].isspace())]
        words = [text[start:].split()[0] for start in starts]
        for first in range(len(words)):
            answer = text[
                starts[first] : starts[min(first + 1, len(words) - 1)] + len(words[min(first + 1, len(words) - 1)])
            ]
            rows = passages([Question("a", "?", text, (Answer(answer, starts[first]),))], tokenizer, 400)
            first_token, last_token = rows.answers[0]
            passage = rows.passages[0]
            assert text[passage.starts[first_token] : passage.ends[last_token]] == answer


def test_rows_are_windows_between_special_tokens():
    """Each token of a passage is in a row; a row has the answer if it has all of it, else points to [CLS]."""
    tokenizer = tokenizer_of("word")
    specials = tokenize.special_tokens(tokenizer)
    context = " ".join("a b c d words plain question and".split() * 4)
    start = context.index("words", 60)
    asked = Question("a", "b b b b b b b b", context, (Answer("words plain", start), Answer("a", 0)))
    short = Question("b", "c", "a b c", ())
    rows = passages([asked, short], tokenizer, length=18, stride=5, max_question=6)
    fields = rows.batch(np.array([*range(len(rows)), -1]))
    ids = [tokenizer.token_to_id(word) for word in context.split()]
    answer = context[:start].count(" ")
    size, seen = 18 - 3 - 6, set()
    for row, begin in enumerate(range(0, len(ids) - size + 5, 5)):
        end = min(begin + size, len(ids))
        expected = [specials.cls, *[tokenizer.token_to_id("b")] * 6, specials.sep, *ids[begin:end], specials.sep]
        padding = 18 - len(expected)
        assert fields["tokens"][row].tolist() == expected + [specials.pad] * padding
        assert fields["valid"][row].tolist() == [1] * len(expected) + [0] * padding
        assert fields["types"][row].tolist() == [0] * 8 + [1] * (end - begin + 1) + [0] * padding
        assert fields["candidates"][row].tolist() == [1] + [0] * 7 + [1] * (end - begin) + [0] * (padding + 1)
        places = (answer - begin + 8, answer - begin + 9) if begin <= answer and answer + 1 < end else (0, 0)
        assert (fields["starts"][row], fields["ends"][row]) == places
        seen |= {*range(begin, end)}
    assert seen == {*range(len(ids))}
    assert fields["starts"][: len(rows)].any()
    assert not fields["starts"][: len(rows)].all()
    assert fields["weights"].tolist() == [1] * len(rows) + [0]
    assert fields["tokens"][-2].tolist()[:7] == [specials.cls, ids[2], specials.sep, *ids[:3], specials.sep]
    assert rows.golds == {"a": ["words plain", "a"], "b": []}
    assert rows.tokens == fields["valid"].sum()


@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_short_rows_have_room_for_both(kind):
    """A long question is cut to less than half a row; the passage is read in small windows."""
    rows = passages([Question("a", "b " * 30, "a b c d " * 4, ())], tokenizer_of(kind), length=8, max_question=64)
    fields = rows.batch(np.arange(len(rows)))
    assert (fields["valid"].sum(1)[:-1] == 8).all()
    assert (fields["candidates"].sum(1) >= 2).all(), "[CLS] and a token of the passage"


def test_a_tokenizer_from_elsewhere_cuts_nothing():
    """Its file may ask for truncation and padding, which would lose the end of a passage."""
    tokenizer = tokenizer_of("word")
    asked = [Question("a", "b", "a b c d " * 20, ())]
    expected = passages(asked, tokenizer).batch(np.arange(3))
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=64)
    fields = passages(asked, tokenizer).batch(np.arange(3))
    for name, array in expected.items():
        np.testing.assert_array_equal(fields[name], array)
    assert tokenizer.truncation is not None, "it is left as it is"


def test_an_answer_without_a_token_is_not_trained_on():
    tokenizer = tokenizer_of("word")
    lost = Question("a", "b", "a \x00 b", (Answer("\x00", 2),))
    assert passages([lost], tokenizer).batch(np.array([0]))["weights"].tolist() == [0]


# The loss

MODEL = tfm.Config(layers=1, heads=2, width=16, vocab=450, length=24, pad_vocab_to=8, classes=2)


def fields_of(rows):
    tokenizer = tokenizer_of("word")
    questions = [
        Question("a", "plain words?", "a b c d words plain question and", (Answer("words plain", 8),)),
        Question("b", "c", "a b c", ()),
    ]
    return text_batch(passages(questions, tokenizer), rows)


def test_loss(fill, strict):
    """Against numpy: a softmax over the tokens of the window and [CLS] alone."""
    params = jax.tree.map(lambda x: 0.3 * x, fill(tfm.tagger_specs(MODEL)))
    fields = fields_of([0, 1, -1])
    sums = jax.jit(SPAN.loss, static_argnums=1)(params, MODEL, fields, None)
    logits = jax.jit(tfm.classify_tokens, static_argnums=1)(
        params, MODEL, fields["tokens"], fields["segments"] > 0, fields["types"]
    )
    logits = np.float64(logits)
    total, right = 0.0, 0
    for row in range(2):
        places = np.flatnonzero(fields["candidates"][row])
        guesses = []
        for output, name in enumerate(("starts", "ends")):
            scores = logits[row, places, output]
            target = list(places).index(fields[name][row])
            total += (np.log(np.exp(scores).sum()) - scores[target]) / 2
            guesses.append(scores.argmax() == target)
        right += all(guesses)
    assert float(sums["loss"]) == pytest.approx(total, rel=1e-5)
    assert (float(sums["weight"]), float(sums["right"])) == (2, right)
    assert sums["start_logits"].shape == sums["end_logits"].shape == (3, 24)


# The search


def bert_answers(rows, starts, ends, options, abstains):
    """BERT's rules for one question, in loops: a list of (text, start logit, end logit), and the null's lead."""
    passage, context = rows.passages[0], rows.questions[0].context
    windows = list(zip(rows.windows.starts.tolist(), rows.windows.ends.tolist(), strict=True))
    first_place = len(rows.texts[0]) + 2

    def has_most_context(token, window):
        scores = [
            min(token - start, end - 1 - token) + 0.01 * (end - start) if start <= token < end else -1
            for start, end in windows
        ]
        return scores.index(max(scores)) == window

    spans, nulls = [], []
    for window, (begin, end) in enumerate(windows):
        nulls.append((starts[window][0], ends[window][0]))
        inside = range(first_place, first_place + end - begin)
        best = [sorted(inside, key=lambda n: -logits[window][n])[: options.n_best] for logits in (starts, ends)]
        for start in best[0]:
            for last in best[1]:
                token = begin + start - first_place
                if last >= start and last - start < options.max_answer and has_most_context(token, window):
                    text = context[passage.starts[token] : passage.ends[begin + last - first_place]]
                    spans.append((text, starts[window][start], ends[window][last]))
    null = min(nulls, key=sum)
    if abstains:
        spans.append(("", *null))
    kept = []
    for text, start, end in sorted(spans, key=lambda answer: -(answer[1] + answer[2])):
        if len(kept) < options.n_best and text not in [answer[0] for answer in kept]:
            kept.append((text, start, end))
    if abstains and "" not in [answer[0] for answer in kept]:
        kept.append(("", *null))
    best = next((answer for answer in kept if answer[0]), None)
    return kept, sum(null) - best[1] - best[2] if best else float("inf")


@pytest.mark.parametrize("abstains", [False, True])
@pytest.mark.parametrize("n_best", [2, 3, 20])
def test_search(n_best, abstains):
    """On random logits, many of them equal, against BERT's loops."""
    tokenizer = tokenizer_of("word")
    rng = np.random.default_rng(n_best)
    for size in (3, 17, 60):
        context = " ".join(rng.choice("a b c d words plain".split(), size))
        rows = passages([Question("a", "c d", context, ())], tokenizer, 16, n_best=n_best, max_answer=4)
        options = Span(n_best=n_best, max_answer=4, null_threshold=0.5)
        for _ in range(20):
            logits = np.round(rng.normal(0, 2, (2, len(rows), 16)), 1)
            by_row = [dict(enumerate(values)) for values in logits]
            expected, lead = bert_answers(rows, *logits.tolist(), options, abstains)
            ((_, answers),) = search(rows, *by_row, options, abstains)
            assert [answer.text for answer in answers.best] == [text for text, _, _ in expected]
            np.testing.assert_allclose([answer.score for answer in answers.best], [a + b for _, a, b in expected])
            exponentials = np.exp([a + b for _, a, b in expected])
            np.testing.assert_allclose([a.probability for a in answers.best], exponentials / exponentials.sum())
            assert all(context[a.start : a.end] == a.text for a in answers.best)
            if abstains:
                assert answers.no_answer == pytest.approx(lead)
                assert (answers.chosen.text == "") == (answers.no_answer > 0.5)
            else:
                assert answers.chosen.text == (expected[0][0] if expected else "")


def test_a_question_is_answered_when_all_of_its_rows_are_there():
    tokenizer = tokenizer_of("word")
    rows = passages([Question("a", "c", "a b " * 20, ()), Question("b", "c", "a b", ())], tokenizer)
    assert rows.windows.texts.tolist()[-2:] == [0, 1]
    logits = {row: np.zeros(24) for row in range(1, len(rows))}
    assert [name for name, _ in search(rows, logits, logits, Span(), False)] == [1]


# Runs


@pytest.mark.slow
def test_a_run_learns_and_says_what_it_answers(trained, home):
    err, result = trained
    assert result["eval_exact_match"] > 0.8, "a word tells what is asked for"
    assert result["eval_f1"] >= result["eval_exact_match"]
    counts = {"eval_n": 60, "eval_no_answer": result["eval_no_answer"]}
    assert counts.items() <= result.items()
    assert {"eval_accuracy", "eval_HasAns_f1", "eval_NoAns_exact_match", "eval_best_f1_thresh"} <= result.keys()
    assert result["eval_best_exact"] >= result["eval_exact_match"]
    facts = json.loads((home / "whole" / "run.json").read_text())["data"]
    assert (facts["unanswerable"], facts["questions"]) == (True, 400)
    assert (home / "whole" / "plots" / "answers.png").read_bytes().startswith(b"\x89PNG")
    for text in ("train.predict --run=whole --question", "eval_exact_match", "Which animal? "):
        assert text in err
    last = [line for line in read_lines(home / "whole" / "metrics.jsonl") if line["split"] == "eval"][-1]
    assert {
        f"eval_{name}": value for name, value in last.items() if name not in ("step", "split")
    }.items() <= result.items()


@pytest.mark.slow
def test_resumed_equals_whole(trained, tmp_path):
    run(*SMALL, "--data=train.json", "--eval-data=dev.json", f"--out={tmp_path / 'a'}", "--stop-at=37")
    run("--resume", f"--out={tmp_path / 'a'}")
    result = json.loads((tmp_path / "a" / "result.json").read_text())
    assert result | {"seconds": 0} == trained[1] | {"seconds": 0}


@pytest.mark.slow
def test_built_in_questions(tmp_path):
    run(*SMALL, "--steps=1", "--batch.length=80", f"--out={tmp_path / 'a'}")
    assert json.loads((tmp_path / "a" / "run.json").read_text())["data"]["unanswerable"]


@pytest.mark.slow
def test_evaluate_writes_the_official_files(trained, home, tmp_path):
    """The metrics are those of the run, and those of the written answers."""
    files = (f"--to={tmp_path / 'answers.json'}", f"--nbest={tmp_path / 'nbest.json'}")
    code, out, err = call(evaluate.main, "--run=whole", "--data=dev.json", *files)
    assert code == 0, err
    metrics = json.loads(out)
    assert {f"eval_{name}": value for name, value in metrics.items()} == pytest.approx(
        {name: value for name, value in trained[1].items() if name.startswith("eval_")}, rel=1e-5
    )
    answers = json.loads((tmp_path / "answers.json").read_text())
    paragraphs = json.loads((home / "dev.json").read_text())["data"][0]["paragraphs"]
    golds = {p["qas"][0]["id"]: [answer["text"] for answer in p["qas"][0]["answers"]] for p in paragraphs}
    assert answers.keys() == golds.keys()
    expected = squad.evaluate_v2(golds, answers)
    assert {name: metrics[name] for name in expected} == pytest.approx(expected)
    best = json.loads((tmp_path / "nbest.json").read_text())
    for name, members in best.items():
        assert sum(member["probability"] for member in members) == pytest.approx(1)
        assert answers[name] in [member["text"] for member in members]
        assert {"start_logit", "end_logit", "start", "end"} <= members[0].keys()
    assert {path.name for path in tmp_path.iterdir()} == {"answers.json", "nbest.json"}


@pytest.mark.slow
def test_threshold_of_evaluation(trained):
    """With a threshold below all scores there is never an answer, above all of them always one."""
    metrics = [
        json.loads(call(evaluate.main, "--run=whole", "--data=dev.json", f"--null-threshold={value}")[1])
        for value in (-1e6, 1e6)
    ]
    assert metrics[0]["NoAns_exact_match"] == 1
    assert metrics[0]["HasAns_exact_match"] == 0
    assert metrics[1]["NoAns_exact_match"] == 0
    assert metrics[0]["best_f1"] == metrics[1]["best_f1"]


# Predictions


def ask(*flags):
    code, out, err = call(predict.main, "--run=whole", *flags)
    assert code == 0, err
    return out.split("\n")[:-1]


@pytest.mark.slow
def test_predict_a_question(trained):
    context = "it was there that we saw the big dog and so much bread by day"
    (line,) = ask(f"--text={context}", "--question=Which animal?")
    answer, probability, start, end = line.split("\t")
    assert answer == "big dog" == context[int(start) : int(end)]
    assert 0.3 < float(probability) <= 1
    (line,) = ask("--text=it was then and there that we saw bread and red", "--question=Which animal?")
    answer, probability, *places = line.split("\t")
    assert (answer, places) == ("", ["", ""])
    assert 0.3 < float(probability) <= 1


@pytest.mark.slow
def test_predict_a_file(trained, home, tmp_path):
    """The answers are those of the evaluation, from either format, in any size of batch."""
    call(evaluate.main, "--run=whole", "--data=dev.json", f"--to={tmp_path / 'answers.json'}")
    answers = json.loads((tmp_path / "answers.json").read_text())
    lines = ask("--file=dev.json", "--batch=7")
    assert [line.split("\t")[0] for line in lines] == list(answers.values())
    rows = [
        {"question": p["qas"][0]["question"], "context": p["context"]}
        for p in json.loads((home / "dev.json").read_text())["data"][0]["paragraphs"]
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert ask(f"--file={tmp_path / 'in.jsonl'}", f"--to={tmp_path / 'out.jsonl'}") == []
    for index, (row, asked, line) in enumerate(zip(read_lines(tmp_path / "out.jsonl"), rows, lines, strict=True), 1):
        assert (row["id"], row["question"]) == (str(index), asked["question"])
        assert row["answer"] == line.split("\t")[0]
        assert row["probability"] == pytest.approx(float(line.split("\t")[1]), abs=1e-3)
        if row["answer"]:
            assert asked["context"][row["start"] : row["end"]] == row["answer"]
        else:
            assert (row["start"], row["end"]) == (None, None)
            assert row["no_answer"] == row["probability"]


# Hugging Face folders


@pytest.fixture(scope="module")
def hf_folder(tmp_path_factory):
    """A question answering model as transformers saves it, with a tokenizer that cuts texts, and its tokenizer."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("hf")
    rng = np.random.default_rng(0)
    tokenizer = tokenize.train(
        schema.Tokenizer(vocab=300), [question(rng, "x")[name] for _ in range(300) for name in ("context", "question")]
    )
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=300, max_position_embeddings=32, initializer_range=0.6, **shape)
    model = transformers.BertForQuestionAnswering(config).eval()
    model.save_pretrained(folder)
    names = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    tokenizer.enable_truncation(20)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text("{}")
    return folder, model, fast


def transformers_answer(model, tokenizer, asked, length, step):
    """The n best answers by the offsets in characters of transformers' windows: the texts, and whether "" wins."""
    import torch

    size = length - 3 - len(tokenizer(asked["question"], add_special_tokens=False)["input_ids"])
    windows = tokenizer(
        asked["question"],
        asked["context"],
        max_length=length,
        truncation="only_second",
        stride=max(size - step, 0),
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        padding="max_length",
        return_token_type_ids=True,
    )
    fields = {name: torch.tensor(windows[name]) for name in ("input_ids", "token_type_ids", "attention_mask")}
    with torch.no_grad():
        outputs = model(**fields)
    starts, ends = outputs.start_logits.numpy(), outputs.end_logits.numpy()
    spans = {}
    for window, offsets in enumerate(windows["offset_mapping"]):
        inside = [n for n, part in enumerate(windows.sequence_ids(window)) if part == 1]
        for first in inside:
            for last in inside:
                if 0 <= last - first < 30:
                    text = asked["context"][offsets[first][0] : offsets[last][1]]
                    score = starts[window, first] + ends[window, last]
                    spans[text] = max(score, spans.get(text, -np.inf))
    return spans, min(starts[:, 0] + ends[:, 0])


@pytest.mark.parity
def test_a_folder_fine_tuned_elsewhere_answers_as_it_is(hf_folder, tmp_path):
    """Against the model of transformers, read through its tokenizer's windows, of which a passage here has one."""
    folder, model, tokenizer = hf_folder
    rng = np.random.default_rng(5)
    rows = [question(rng, str(n)) for n in range(40)]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)))
    code, _, err = call(
        predict.main, f"--run={folder}", f"--file={tmp_path / 'in.jsonl'}", f"--to={tmp_path}/out.jsonl"
    )
    assert code == 0, err
    for asked, row in zip(rows, read_lines(tmp_path / "out.jsonl"), strict=True):
        spans, _ = transformers_answer(model, tokenizer, asked, 32, 29)
        assert row["answer"] == max(spans, key=spans.__getitem__)
        for answer in row["n_best"]:
            assert answer["start_logit"] + answer["end_logit"] == pytest.approx(spans[answer["text"]], abs=1e-4)


@pytest.mark.parity
def test_null_scores_of_a_folder_over_windows(hf_folder, tmp_path):
    """The same with several windows: no answer has the smallest score of them all."""
    folder, model, tokenizer = hf_folder
    rng = np.random.default_rng(6)
    rows = [question(rng, str(n)) for n in range(40)]
    rows = [row | {"context": f"{row['context']} " * 5, "answers": []} for row in rows]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)))
    flags = (f"--data={tmp_path}/in.jsonl", f"--nbest={tmp_path}/nbest.json", "--stride=11")
    code, _, err = call(evaluate.main, f"--run={folder}", *flags)
    assert code == 0, err
    best = json.loads((tmp_path / "nbest.json").read_text())
    for asked in rows:
        spans, null = transformers_answer(model, tokenizer, asked, 32, 11)
        for answer in best[asked["id"]]:
            score = answer["start_logit"] + answer["end_logit"]
            if answer["text"]:
                assert score <= spans[answer["text"]] + 1e-4
            else:
                assert score == pytest.approx(null, abs=1e-4)


# Bad input


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--data=nowhere.json", "no file matches 'nowhere.json'"),
        (
            "--data=wrong.json",
            "of question 'x' does not stand at answer_start=3 of its context (100 questions have such",
        ),
        ("--data=same.json", "same.json: the id 'x' occurs more than once; give"),
        ("--data=train.json --task.version=v1", "has no answer, as --task.version=v1 demands; leave the flag out"),
        (
            "--data=train.json --tokenizer.dropout=0.1 --tokenizer.kind=bpe",
            "--tokenizer.dropout=0.1 is not for task=span",
        ),
        ("--data=train.json --task.version=v3", "--task.version=v3 is unknown; did you mean v2?"),
        ("--data=train.json --task.stride=0", "--task.stride=0 must be at least 1"),
    ],
)
def test_bad_input(home, flags, sentence):
    answers = [{"text": "a", "answer_start": 3}]
    asked = [{"id": f"x{n}" if n else "x", "question": "?", "answers": answers} for n in range(100)]
    right = {"context": "a", "qas": [{"id": "y", "question": "?", "answers": [{"text": "a", "answer_start": 0}]}]}
    wrong = {"data": [{"paragraphs": [{"context": "a b c d", "qas": asked}, right]}]}
    (home / "wrong.json").write_text(json.dumps(wrong))
    squad_file(home / "same.json", 20, 3, id="x")
    before = sorted(path.name for path in Path().iterdir())
    code, out, err = call(main, *SMALL, *flags.split(), "--out=bad")
    assert (code, out) == (2, ""), err
    last = err.splitlines()[-1]
    assert last.startswith("error: ")
    assert sentence in last
    assert sorted(path.name for path in Path().iterdir()) == before, "nothing is left behind"


@pytest.mark.parametrize(
    ("command", "flags", "sentence"),
    [
        (predict, "--text=a", "--text=PASSAGE needs a question about it: --question=QUESTION"),
        (predict, "--file=dev.json --question=a", "--question belongs to --text=PASSAGE; --file=dev.json has its own"),
        (predict, "--file=empty.jsonl", "empty.jsonl holds no question; check the file"),
        (predict, "--text=a --question=b --pair=c", "--pair is no flag of --task=span"),
        (evaluate, "--against=x", "--against is no flag of --task=span, for which whole was trained; leave it out"),
        (evaluate, "--beams=2", "--beams belongs to --task=translate, and --run=whole was trained for span"),
        (evaluate, "--to=nowhere/a.json", "--to=nowhere/a.json cannot be written: No such file or directory"),
        (evaluate, "--nbest=nowhere/a.json", "--nbest=nowhere/a.json cannot be written: No such file"),
        (evaluate, "--max-answer=0", "--task.max-answer=0 must be at least 1"),
    ],
)
@pytest.mark.slow
def test_bad_questions(trained, home, command, flags, sentence):
    (home / "empty.jsonl").write_text("\n")
    code, out, err = call(command.main, "--run=whole", *flags.split())
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith(f"error: {sentence}")

"""Texts of generators: their grammar by a parser of our own, what counts of them, and what runs read."""

import itertools
import random
import statistics

import numpy as np
import pytest
from small import call

from train import UserError
from train.data.sources import files, generated
from train.data.synthetic import in_context, listops, memory, referents
from train.data.tokens import TokenizedTexts
from train.lab import inspect
from train.tasks.lm.rows import PackedRows, count_behind, count_between, marked_windows

LABELLED, PLAIN = files.Columns(("words",), ("class",)), files.Columns(("text",))


def parse(words):
    """The value of an expression, its depth, and the arguments of all its operators; removes its words."""
    word = words.pop(0)
    if not word.startswith("["):
        return int(word), 1, []
    values, depths, counts = [], [], []
    while words[0] != "]":
        value, depth, inner = parse(words)
        values.append(value)
        depths.append(depth)
        counts += inner
    words.pop(0)
    rules = {"[MIN": min, "[MAX": max, "[MED": statistics.median, "[SM": lambda values: sum(values) % 10}
    return int(rules[word](values)), 1 + max(depths), [*counts, len(values)]


@pytest.mark.parametrize(("low", "high"), [(4, 12), (30, 60), (100, 200)])
def test_listops_have_the_value_of_their_expression(low, high):
    rng = random.Random(1)
    rows = [listops.draw(low, high, rng) for _ in range(40)]
    operators = {word for row in rows for word in row["text"].split() if word.startswith("[")}
    assert operators == {"[MIN", "[MAX", "[MED", "[SM"}
    for row in rows:
        words = row["text"].split()
        assert low <= len(words) <= high
        value, depth, counts = parse(words)
        assert words == []
        assert str(value) == row["label"]
        assert depth <= 10
        assert 2 <= min(counts) <= max(counts) <= 10


def test_listops_draw_digits_three_times_of_four():
    """Of the arguments of the outermost operator, where length rejects next to nothing."""
    rng = random.Random(0)
    words: list[str] = []
    for _ in range(4000):
        listops._expression(words, 9, 10**6, rng)
    digits = 4000 - sum(word.startswith("[") for word in words)
    assert digits / 4000 == pytest.approx(0.75, abs=0.03)


def test_copies_and_recalls():
    rng = random.Random(2)
    for _ in range(50):
        start, *letters = memory.draw_copy(3, 9, rng)["text"].split()
        middle = letters.index("=")
        assert start == "copy"
        assert letters[:middle] == letters[middle + 1 :]
        assert 3 <= middle <= 9
        pairs, questions = memory.draw_recall(2, 40, rng)["text"].removeprefix("recall ").split(" ? ")
        keys, values = pairs.split()[::2], pairs.split()[1::2]
        table = dict(zip(keys, values, strict=True))
        assert len(table) == len(keys)
        answers = [tuple(text.split(" = ")) for text in questions.removesuffix(" ;").split(" ; ")]
        assert len(dict(answers)) == len(answers) == min(8, len(keys))
        assert all(table[key] == value for key, value in answers)


def rules_that_fit(examples):
    """The names of all rules by which questions have these answers."""
    numbers = all(word.isdigit() for question, answer in examples for word in (*question.split(), answer))
    if not numbers:
        table = dict(examples)
        consistent = all(table[question] == answer for question, answer in examples)
        british, american = ({pair[side] for pair in in_context.SPELLINGS} for side in (0, 1))
        letters = {"".join(sorted(word)) for word in british}
        misspelled = all("".join(sorted(question)) in letters - {question} for question, _ in examples)
        kinds = {"british": british, "american": american}
        fits = {name for name, words in kinds.items() if misspelled and set(table.values()) <= words}
        invented = set(table.values()) <= set(in_context.INVENTED)
        return fits | ({"language"} if invented and consistent and len(table) <= 4 else set())
    if all(" " in question for question, _ in examples):
        pairs = [(*map(int, question.split()), int(answer)) for question, answer in examples]
        rules = {"sum": lambda a, b: a + b, "difference": lambda a, b: abs(a - b), "product": lambda a, b: a * b}
        rules["larger"] = max
        return {name for name, rule in rules.items() if all(rule(a, b) == c for a, b, c in pairs)}
    points = [(int(question), int(answer)) for question, answer in examples]
    slope, offset = np.polyfit(*zip(*points, strict=True), 1)
    return {"line"} if np.allclose([slope * x + offset for x, _ in points], [y for _, y in points]) else set()


def test_examples_of_a_text_have_a_rule():
    rng, seen = random.Random(3), set()
    for _ in range(200):
        text = in_context.draw(8, 10, rng)["text"]
        examples = [tuple(example.split(" = ")) for example in text.removesuffix(" ;").split(" ; ")]
        assert 8 <= len(examples) <= 10
        rules = rules_that_fit(examples)
        assert rules, text
        seen |= rules
    assert seen == {"sum", "difference", "product", "larger", "line", "british", "american", "language"}


def test_the_pronoun_means_who_the_last_word_is_about():
    """By the words alone: who stands before an active verb or behind a passive one fails."""
    rng, seen = random.Random(4), set()
    words_of = {verb: (fails, suffers) for verb, _, fails, suffers in (*referents.VERBS, referents.CROSSING)}
    verb_of = {participle: verb for verb, participle, _, _ in (*referents.VERBS, referents.CROSSING)}
    for _ in range(300):
        row = referents.draw(0, 4, rng)
        clause, reason = row["text"].split(" because it was too ")
        words = clause.split()
        nouns = [word for word in words if word in (*referents.NOUNS, *referents.CROSSED)]
        is_active = "didn't" in words
        verb = words[words.index("didn't") + 1] if is_active else verb_of[words[words.index("wasn't") + 1]]
        fails, suffers = nouns if is_active else nouns[::-1]
        expected = fails if reason in words_of[verb][0] else suffers
        assert (reason in words_of[verb][0]) != (reason in words_of[verb][1])
        assert row["choices"][row["label"]] == f"the {expected}"
        assert {choice.removeprefix("the ") for choice in row["choices"]} == {*nouns}
        seen.add((is_active, expected == nouns[0], row["label"]))
    assert len(seen) == 8, "neither voice nor place decides"


def test_rows_are_different_and_the_same_each_time(monkeypatch):
    monkeypatch.setattr(generated, "_VALID", 20)
    monkeypatch.setattr(generated, "_TRAIN", 60)
    train, valid = generated.rows_of("listops:6-9", LABELLED)
    assert (len(train), len(valid)) == (60, 20)
    assert len({row["words"] for row in (*train, *valid)}) == 80
    assert set(train[0]) == {"words", "class"}
    assert generated.rows_of("listops:6-9", LABELLED) == (train, valid)
    assert generated.rows_of("texts.txt", PLAIN) is None


@pytest.mark.parametrize(
    ("source", "columns", "says"),
    [
        (
            "listops:1-5",
            LABELLED,
            "listops:N or listops:N-M, of 4 to 100,000 symbols; try listops:5-20",
        ),
        ("copy:20-10", PLAIN, "must be copy, copy:N or copy:N-M"),
        ("copy:", PLAIN, "must be copy"),
        ("recall:700", PLAIN, "of 1 to 676 pairs"),
        ("copy:1", PLAIN, "has only 26 different texts"),
        ("copy", LABELLED, "--data=copy is for --task=lm or mlm"),
        ("listops", PLAIN, "--data=listops is for --task=classify"),
        ("referents", LABELLED, "--data=referents is for --task=choice"),
    ],
)
def test_bad_sources(source, columns, says, monkeypatch):
    monkeypatch.setattr(generated, "_VALID", 100)
    with pytest.raises(UserError, match=says):
        generated.rows_of(source, columns)


def counted_by_loop(ids, starts, begin, end):
    """What counts, token by token."""
    counts, inside = [], False
    for place, token in enumerate(ids):
        if place in starts or token in end:
            inside = False
        counts.append(inside)
        if token in begin and place not in starts:
            inside = True
    return counts


@pytest.mark.parametrize("end", [[], [4]])
def test_what_counts_stands_between_marks(end):
    rng = np.random.default_rng(0)
    ids = rng.integers(2, 9, 60)
    starts = np.array([0, 11, 12, 40, 59])
    ids[starts] = 1
    text = count_between(TokenizedTexts(ids, starts), [3, 7], end)
    assert text.counted.tolist() == counted_by_loop(ids.tolist(), set(starts.tolist()), {3, 7}, set(end))
    packed = PackedRows(text, 16, True, 0, 1.0)
    batch = packed.batch(np.arange(len(packed)), rng)
    assert batch["weights"].sum() == text.counted.sum()
    assert (batch["targets"][batch["weights"] > 0] > 1).all(), "no separator counts"
    windows = marked_windows(text, 16, 8, 0, 1.0, across=False)
    assert windows.batch(np.arange(len(windows)), rng)["weights"].sum() == text.counted.sum()


def test_the_answer_behind_so_many_others_counts_alone():
    rng = np.random.default_rng(1)
    ids = rng.integers(2, 9, 80)
    starts = np.array([0, 21, 40, 60, 79])
    ids[starts] = 1
    text = count_between(TokenizedTexts(ids, starts), [3], [4])
    for shots in range(2):
        expected = np.zeros(80, bool)
        for first, stop in itertools.pairwise(starts):
            runs = [
                [*places]
                for counts, places in itertools.groupby(range(first, stop), text.counted.__getitem__)
                if counts
            ]
            expected[[place for places in runs[shots : shots + 1] for place in places]] = True
        assert expected.any()
        np.testing.assert_array_equal(count_behind(text, shots).counted, expected)
    with pytest.raises(UserError, match="--shots=50 needs texts of 51 examples; the longest has"):
        count_behind(text, 50)


SMALL = "--batch.size=8 --model.width=32 --model.heads=2 --model.layers=1 --rows=2".split()


@pytest.mark.parametrize(
    ("data", "targets"),
    [
        ("copy:6", lambda words: words[words.index("=") + 1 :]),
        ("recall:3", lambda words: [after for word, after in itertools.pairwise(words) if word == "="]),
        ("in-context:3", lambda words: [after for word, after in itertools.pairwise(words) if word == "="]),
    ],
)
def test_the_score_is_of_the_answers_alone(data, targets, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(generated, "_VALID", 50)
    monkeypatch.setattr(generated, "_TRAIN", 200)
    code, out, err = call(inspect.main, "--task=lm", f"--data={data}", "--data.pack=false", *SMALL)
    assert code == 0, err
    lines = [line for line in out.splitlines() if line.startswith("tokens: ")]
    assert len(lines) == 2
    for line in lines:
        words = [word.strip("\u00b7") for word in line.removeprefix("tokens: ").partition(" and ")[0].split()]
        assert [word for word in words if word.endswith("*")] == [
            f"{word.strip('*')}*" for word in targets([word.strip("*") for word in words])
        ]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--task=lm --data=copy:40", "--data=copy:40 has texts of 83 tokens, and --batch.length=64 cuts them"),
        ("--task=lm --data=copy:6 --task.score-from=zebra", "'zebra', where scores begin or end, is no token"),
        ("--task=lm --data=copy:6 --task.score-to=a", "--task.score-to=a ends what task.score-from begins"),
        ("--task=classify --data=listops:40-50", "tokens, and --batch.length=32 cuts them; add --batch.length="),
        ("--task=span --data=copy:6", "--data=copy:6 is for --task=lm or mlm; choose that task, or other data"),
    ],
)
def test_bad_runs(flags, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(generated, "_VALID", 50)
    monkeypatch.setattr(generated, "_TRAIN", 200)
    code, out, err = call(inspect.main, *flags.split())
    assert (code, out) == (2, "")
    assert says in err.splitlines()[-1]

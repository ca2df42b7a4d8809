"""Exact match and F1 of answers, against evaluators written here from the rules of SQuAD."""

import random
import string

import pytest

from train.metrics import squad

WORDS = (
    "the a an The AN Theatre another a. the, -a- an' and state-of-the-art U.S. US u.s It's its 1,000 1000 . , ! '' one "
    "two caf\u00e9 CAF\u00c9 \u00dcber stra\u00dfe \u6771\u4eac \u2014 \u201cthe\u201d the\u2019s \u0130stanbul "
    "two \U0001f600 a\u00a0b \u3000"
).split(" ")


def words_of(text):
    """The words that count, character by character: no ASCII punctuation, no whole word that is an article."""
    kept = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    words, word = [], ""
    for letter in [*kept, " "]:
        if letter == "_" or letter.isalnum():
            word += letter
            continue
        words.append("" if word in ("a", "an", "the") else word)
        word = ""
        words.append(letter)
    return "".join(word or " " for word in words).split()


def overlap(prediction, gold):
    """Twice the common words over all words; each word can be matched once."""
    left, right = words_of(prediction), words_of(gold)
    total, common = len(left) + len(right), 0
    for word in left:
        if word in right:
            right.remove(word)
            common += 1
    return 2 * common / total if common else 0.0


def exact(prediction, gold):
    return float(words_of(prediction) == words_of(gold))


def text(rng, longest=6):
    return rng.choice(["", " "]) + " ".join(rng.choices(WORDS, k=rng.randint(0, longest)))


def nearly(rng, gold):
    """An answer that differs in a detail, or in everything."""
    words = gold.split(" ")
    return rng.choice(
        [
            gold,
            gold.upper(),
            f"the {gold}.",
            " ".join(words[1:]),
            " ".join([*words, words[-1]]),
            " ".join(sorted(words)),
            gold.replace(" ", "  "),
            gold.replace("the", "a"),
            "",
            text(rng),
        ]
    )


def questions(seed, answerable, count=1000):
    """Questions with their acceptable answers, predictions for most of them, and odds with many equal values."""
    rng = random.Random(seed)
    golds, predictions, odds = {}, {}, {}
    for n in range(count):
        texts = [text(rng, 9) for _ in range(rng.randint(1, 4))]
        golds[f"q{n}"] = texts if answerable or rng.random() < 0.6 else []
        if rng.random() < 0.9:
            predictions[f"q{n}"] = nearly(rng, rng.choice(texts)) if rng.random() < 0.8 else ""
        odds[f"q{n}"] = rng.choice([rng.gauss(0, 3), float(rng.randint(-2, 2))])
    names = list(odds)
    rng.shuffle(names)
    return golds, predictions, {name: odds[name] for name in names}


@pytest.mark.parametrize("seed", range(3))
def test_v1(seed):
    """A question without a prediction scores 0; two answers without words match, and share no word."""
    golds, predictions, _ = questions(seed, answerable=True)
    assert len(predictions) < 950
    right = shared = 0.0
    for name, texts in golds.items():
        if name in predictions:
            right += max(exact(predictions[name], gold) for gold in texts)
            shared += max(overlap(predictions[name], gold) for gold in texts)
    metrics = squad.evaluate_v1(golds, predictions)
    assert metrics == {"exact_match": pytest.approx(right / 1000), "f1": pytest.approx(shared / 1000)}
    assert all(0.3 < value < 0.7 for value in metrics.values()), "neither easy nor hopeless"


@pytest.mark.parametrize("threshold", [pytest.param(1.0, marks=pytest.mark.slow), 0.0, -1.5])
@pytest.mark.parametrize("seed", range(3))
def test_v2(seed, threshold):
    """Questions without a prediction are left out; each that is counted is scored here by a rule of its own."""
    golds, predictions, odds = questions(seed, answerable=False)
    scores = {"": [], "HasAns_": [], "NoAns_": []}
    for name, prediction in predictions.items():
        acceptable = [gold for gold in golds[name] if words_of(gold)] or [""]
        empty = [not words_of(prediction), not words_of(acceptable[0])]
        right = max(exact(prediction, gold) for gold in acceptable)
        shared = float(all(empty)) if any(empty) else max(overlap(prediction, gold) for gold in acceptable)
        if odds[name] > threshold:
            right = shared = float(golds[name] == [])
        for kind in ("", "HasAns_" if golds[name] else "NoAns_"):
            scores[kind].append((right, shared))
    metrics = squad.evaluate_v2(golds, predictions, odds, threshold)
    for kind, values in scores.items():
        expected = [sum(column) / len(values) for column in zip(*values, strict=True)]
        assert [metrics[f"{kind}exact_match"], metrics[f"{kind}f1"]] == pytest.approx(expected)
    best = squad.evaluate_v2(golds, predictions, odds)
    assert {name: metrics[name] for name in best if "best" in name} == {
        name: best[name] for name in best if "best" in name
    }, "the best thresholds are of the predictions without a threshold"


def score_at(golds, predictions, answered, score):
    """The sum of scores if the questions of `answered` keep their predictions and all others get no answer."""
    total = 0.0
    for name, texts in golds.items():
        if texts:
            total += score(name) if name in answered else 0.0
        else:
            total += 0.0 if name in answered and predictions[name] else 1.0
    return total


@pytest.mark.parametrize("seed", range(3))
def test_best_thresholds(seed):
    """Every number of surest answers is tried; the first of the best is taken, 0 if no answer at all is best."""
    golds, predictions, odds = questions(seed, answerable=False, count=200)
    raw = dict(zip(("best_exact", "best_f1"), squad.raw_scores(golds, predictions), strict=True))
    ranking = [name for name in sorted(odds, key=lambda name: odds[name]) if name in predictions]
    metrics = squad.evaluate_v2(golds, predictions, odds)
    for name, scores in raw.items():
        totals = [
            score_at(golds, predictions, set(ranking[:count]), scores.__getitem__) for count in range(len(ranking) + 1)
        ]
        best = max(range(len(totals)), key=lambda count: round(totals[count], 6))
        assert metrics[name] == pytest.approx(totals[best] / len(predictions))
        assert metrics[f"{name}_thresh"] == (odds[ranking[best - 1]] if best else 0.0)


@pytest.mark.parametrize(
    ("prediction", "gold", "right", "shared", "shared_v2"),
    [
        ("The Cat.", "cat", 1, 1, 1),
        ("an apple a day", "apple day", 1, 1, 1),
        ("theatre", "the atre", 0, 0, 0),
        ("state-of-the-art", "stateoftheart", 1, 1, 1),
        ("the-a", "thea", 1, 1, 1),
        ("two two", "two", 0, 2 / 3, 2 / 3),
        ("the", "", 1, 0, 1),
        ("", "cat", 0, 0, 0),
        ("\u2014", "", 0, 0, 0),
        ("caf\u00e9 the", "CAF\u00c9", 1, 1, 1),
    ],
)
def test_cases(prediction, gold, right, shared, shared_v2):
    assert squad.exact_match(prediction, gold) == right
    assert squad.f1(prediction, gold) == pytest.approx(shared)
    assert squad.f1_or_empty(prediction, gold) == pytest.approx(shared_v2)


def test_v2_without_odds_and_without_one_kind():
    golds = {"a": ["cat", "the"], "b": ["a"]}
    metrics = squad.evaluate_v2(golds, {"a": "", "b": "an", "c": "not asked"})
    assert metrics == {"exact_match": 0.5, "f1": 0.5, "HasAns_exact_match": 0.5, "HasAns_f1": 0.5}
    with pytest.raises(ValueError, match="has an answer"):
        squad.evaluate_v1({"a": []}, {})

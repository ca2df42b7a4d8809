"""Opinions: well-formed, balanced, split, and labelled as a reader of negation and contrast would label them."""

import functools
import os
import re
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from train.files import cache
from train.tasks.classify import opinions

TOPICS = [
    [line.split(": ")[1] for line in topic.splitlines()[1:-1]] for topic in opinions._TOPICS.strip().split("\n\n")
]
PRAISE, BLAME = (
    {word for topic in TOPICS for line in topic for word in line.split(" | ")[side].split(", ")} for side in (0, 1)
)


@functools.cache
def generated():
    return opinions.generate()


def train_rows():
    return generated()[0]


def valid_rows():
    return generated()[1]


def all_rows():
    return train_rows() + valid_rows()


def words(text):
    return re.findall(r"\w+", text.lower())


def test_rows():
    assert (len(train_rows()), len(valid_rows())) == (6000, 1000)
    assert all(set(row) == {"text", "label", "group"} for row in all_rows())
    assert len({row["text"].lower() for row in all_rows()}) == len(all_rows()), (
        "different within and between the two sides"
    )
    for rows in (
        train_rows(),
        valid_rows(),
        train_rows()[:100],
        [row for row in valid_rows() if row["group"] == "unseen"],
    ):
        counts = Counter(row["label"] for row in rows)
        assert set(counts) == set(opinions.LABELS)
        assert max(counts.values()) - min(counts.values()) <= 1


def test_starred_words_are_only_in_the_unseen_group():
    starred = {word.removeprefix("*") for word in PRAISE | BLAME if word.startswith("*")}
    assert not starred & (PRAISE | BLAME), "starred wherever they stand"
    assert {row["group"] for row in train_rows()} == {"seen"}
    assert sum(row["group"] == "unseen" for row in valid_rows()) == 250
    for row in all_rows():
        assert (row["group"] == "unseen") == bool(starred & set(words(row["text"]))), row
    assert starred <= {word for row in opinions.generate(0, 0, 4000)[1] for word in words(row["text"])}, (
        "each of them is asked for"
    )


def test_no_word_is_both_praise_and_blame():
    assert not PRAISE & BLAME


@pytest.mark.slow
def test_same_rows_in_every_process():
    program = (
        "from train.files import cache; from train.tasks.classify import opinions; "
        "print(cache.digest(*(map(str, rows) for rows in opinions.generate())))"
    )
    env = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "7"}
    result = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, check=True, text=True)
    assert result.stdout.strip() == cache.digest(map(str, train_rows()), map(str, valid_rows()))


def test_seed_and_sizes():
    assert opinions.generate(0, 60) == (train_rows()[:60], valid_rows())
    assert opinions.generate(1, 60, 20)[1] != valid_rows()[:20]
    assert opinions.generate(0, 0, 0) == ([], [])


def test_too_many_rows(monkeypatch):
    monkeypatch.setattr(opinions, "_NEUTRAL", {"fact": {"the {thing} was there on {day}": 0}})
    with pytest.raises(ValueError, match="no new neutral sentence found after"):
        opinions.generate(0, 3 * 7 * 8 * 4 + 3, 0)  # seven days, eight topics of four things


def test_every_template_is_used(monkeypatch):
    used, choose = set(), opinions._Sentence.choose

    def spy(self, templates):
        template, sign = choose(self, templates)
        used.add(template)
        return template, sign

    monkeypatch.setattr(opinions._Sentence, "choose", spy)
    opinions.generate(0, 2000, 0)
    kinds = [*opinions._OPINIONS.values(), *opinions._NEUTRAL.values(), opinions._CLAUSES]
    assert used == {template for kind in kinds for template in kind}


def test_english():
    for text in (row["text"] for row in all_rows()):
        assert re.fullmatch(r"[A-Z][A-Za-z ,;]+\.", text), text
        assert not re.search(r"  | [,;.]|[,;]\S|\b(\w+) \1\b", text), text
        assert 5 <= len(text.split()) <= 25, text
        assert not re.search(r"\b[Aa] ([aeiou]|hour|honest|heir)", text), text
        assert not re.search(r"\b[Aa]n ([^aeiou]|uni|use|usu|eu|one\b)", text), text
        assert not re.search(
            r"\b(seats|songs|beds|bathrooms|chapters|pictures|announcements|buttons|speakers)( \w+ this [\w ]+)? was\b",
            text,
        ), text
        assert not re.search(
            r"\b(acting|script|ending|food|bread|service|staff|crew|singer|motor|handle|screen) were\b", text
        ), text


def test_parts_stay_with_their_things():
    topics = [topic.splitlines() for topic in opinions._TOPICS.strip().split("\n\n")]
    homes = {}
    for head, _, *parts, _ in topics:
        for part in parts:
            homes.setdefault(part.split(": ")[0], set()).update(head.split("; ")[0].split(", "))
    assert len(homes) > 15
    everything = "|".join(sorted(set().union(*homes.values()), key=len, reverse=True))
    for part, nouns in homes.items():
        texts = [row["text"].lower() for row in all_rows() if f"the {part}" in row["text"].lower()]
        mentioned = [noun for text in texts for noun in re.findall(rf"\b(?:{everything})\b", text)]
        assert len(mentioned) > 50
        assert set(mentioned) <= nouns, part


@pytest.mark.slow
def test_many_sentences_of_few_words():
    train, _ = opinions.generate(2, 12_000, 0)
    assert len({row["text"] for row in train}) == 12_000
    assert 250 < len({word for row in train for word in words(row["text"])}) < 500


VERDICTS = {
    r"it is simply not true that (.*)": -1,
    r"do not believe anyone who says that (.*)": -1,
    r"nobody could deny that (.*)": 1,
    r"i had \w+(?: for)? (?:an?) (.*); it was nothing of the kind": -1,
    r"i had (?:hoped for|feared|expected) .* and got an? (.*) one": 1,
    r"(.*), and that is what i got": 1,
    r".* (?:told me|had read) that (.*), (?:and i agree|and it is true)": 1,
    r".* (?:told me|had read) that (.*), (?:but i disagree|but it is false)": -1,
    r".* asked me whether (.*), and the answer is yes": 1,
    r".* asked me whether (.*), and the answer is no": -1,
    r"(.*); s?he is right": 1,
    r"(.*); s?he is wrong": -1,
    r".*(?:\bwhether\b|some call .* others).*": 0,
    r"although .*, (.*)": 1,
    r".*, but (.*)": 1,
    r"(.*), even if .*": 1,
    r".*, and (.*)": 1,
    r"(.*)": 1,
}
FLIPS = (
    r"\bnot\b(?! have been)|\bhardly\b|\banything but\b|\bnobody\b|\bnothing\b|\bcannot\b"
    r"|\bi have (?!rarely)[a-z ]+ (?=better|worse)"
)
WORDS = {word.removeprefix("*"): sign for side, sign in ((PRAISE, 1), (BLAME, -1)) for word in side}
WORDS |= dict.fromkeys("loved liked enjoyed better treat delight success joy gladly happily".split(), 1)
WORDS |= dict.fromkeys("hated disliked worse disappointment failure chore mistake never".split(), -1)


def reader(text):
    """The label by the cues of a sentence: the first word of opinion in its main clause, inverted by negations."""
    text = text.lower().rstrip(".")
    pattern, sign = next((pattern, sign) for pattern, sign in VERDICTS.items() if re.fullmatch(pattern, text))
    clause = re.fullmatch(pattern, text).groups()[0] if sign else ""
    said = [WORDS[word] for word in words(clause) if word in WORDS]
    value = sign * said[0] * (-1) ** len(re.findall(FLIPS, clause)) if said else 0
    return ("negative", "neutral", "positive")[value + 1]


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("The bread was not stale at all.", "positive"),
        ("The singer was wooden, but the songs were moving.", "positive"),
        ("I loved the beds, even if nobody would call the staff friendly.", "positive"),
        ("My sister called this film dull; she is wrong.", "positive"),
        ("The motor could not have been worse.", "negative"),
        ("I had hoped for a lively show; it was nothing of the kind.", "negative"),
        ("I have stayed at better inns.", "negative"),
        ("It is simply not true that this phone was fast.", "negative"),
        ("My aunt asked me whether the soup was tasty.", "neutral"),
        ("The train left at nine on Sunday.", "neutral"),
    ],
)
def test_reader(text, label):
    assert reader(text) == label


def test_labels_are_those_of_the_reader():
    assert [row for row in all_rows() if reader(row["text"]) != row["label"]] == []


def test_single_words_do_not_settle_the_label():
    """Naive Bayes on words: 0.75 of the seen group, 0.66 of the unseen; praise or blame is a coin toss there."""
    vocabulary = {
        word: n for n, word in enumerate(sorted({word for row in train_rows() for word in words(row["text"])}))
    }

    def counts(rows):
        features = np.zeros((len(rows), len(vocabulary)))
        for n, row in enumerate(rows):
            features[n, [vocabulary[word] for word in words(row["text"]) if word in vocabulary]] = 1
        return features, np.array([opinions.LABELS.index(row["label"]) for row in rows])

    x, y = counts(train_rows())
    totals = np.stack([x[y == label].sum(0) + 1 for label in range(3)])
    scores = np.log(totals / totals.sum(1, keepdims=True))

    def accuracy(rows):
        x, y = counts(rows)
        return float(np.mean((x @ scores.T).argmax(1) == y))

    seen, unseen = ([row for row in valid_rows() if row["group"] == group] for group in ("seen", "unseen"))
    assert 0.65 < accuracy(seen) < 0.85
    assert 0.55 < accuracy(unseen) < 0.75
    assert accuracy([row for row in unseen if row["label"] != "neutral"]) < 0.62

"""Questions from files: SQuAD's own, .jsonl, rows of data sets, and one sentence for whatever is wrong with them."""

import json

import pytest

from train import UserError
from train.data.sources import files, sources
from train.settings.schema import Data
from train.tasks.span.source import Answer, Question, Squad, questions_of

CONTEXT = "Z\u00fcrich \U0001f600 lies on the Limmat. Bern lies on the Aare."


def qa(identity, question, *answers, **fields):
    """A question as SQuAD has it."""
    answers = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": identity, "question": question, "answers": answers, **fields}


V1 = {
    "version": "1.1",
    "data": [
        {
            "title": "Rivers",
            "paragraphs": [
                {
                    "context": CONTEXT,
                    "qas": [
                        qa("a", "Where is Z\u00fcrich?", ("on the Limmat", 14), ("the Limmat", 17)),
                        qa("b", "Where is Bern?", ("on the Aare", 39)),
                    ],
                },
                {"context": "Basel lies on the Rhine.", "qas": []},
            ],
        },
        {
            "title": "Hills",
            "paragraphs": [{"context": "Rome has seven.", "qas": [qa("c", "How many?", ("seven", 9))]}],
        },
    ],
}


@pytest.fixture
def read(tmp_path):
    """`read(name, content)`: the rows of a file with that content, an object or lines of objects."""

    def read(name, content, labelled=True):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        lines = content if isinstance(content, list) else [content]
        path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
        return files.read(path, Data(), Squad(labelled))

    return read


def test_squad_v1(read):
    rows = read("train.json", V1)
    assert [row["question"] for row in rows] == [
        Question("a", "Where is Z\u00fcrich?", CONTEXT, (Answer("on the Limmat", 14), Answer("the Limmat", 17))),
        Question("b", "Where is Bern?", CONTEXT, (Answer("on the Aare", 39),)),
        Question("c", "How many?", "Rome has seven.", (Answer("seven", 9),)),
    ]
    assert [row["group"] for row in rows] == ["Rivers", "Rivers", "Hills"], "an article is not split"
    assert questions_of(rows, "train.json") == [row["question"] for row in rows]


def test_questions_of_one_article_are_split_by_their_passages(read):
    article = {"title": "Rivers", "paragraphs": []}
    for n in range(30):
        context = f"River {n} is {n} km long."
        article["paragraphs"].append({"context": context, "qas": [qa(f"{n}{x}", "How long?") for x in "abc"]})
    rows = read("one.json", {"data": [article]})
    train, valid = sources.train_valid_split(rows, Squad())
    assert len(train) + len(valid) == 90
    assert valid
    assert {row["question"].context for row in train}.isdisjoint(row["question"].context for row in valid)


def test_squad_v2(read):
    question = qa("d", "Where is Chur?", is_impossible=True, plausible_answers=[{"text": "x", "answer_start": 0}])
    content = {"version": "v2.0", "data": [{"paragraphs": [{"context": CONTEXT, "qas": [question]}]}]}
    assert read("dev.json", content)[0]["question"] == Question("d", "Where is Chur?", CONTEXT)
    del question["answers"]
    assert read("dev.json", content)[0]["question"].answers == ()


def test_json_lines(read):
    answers = {"text": ["on the Limmat"], "answer_start": [14]}
    rows = read(
        "train.jsonl",
        [
            {"id": 7, "context": CONTEXT, "question": "Where is Z\u00fcrich?", "answers": answers},
            "",
            {"context": CONTEXT, "question": "Where is Chur?", "answers": {"text": [], "answer_start": []}},
            {"context": CONTEXT, "question": "Where is Bern?", "answers": [{"text": "Aare", "answer_start": 46}]},
            {"context": CONTEXT, "question": "Why?", "answers": []},
        ],
    )
    questions = questions_of(rows, "train.jsonl")
    assert [question.id for question in questions] == ["7", "2", "3", "4"], "its place, where it has no id"
    assert [question.golds for question in questions] == [["on the Limmat"], [], ["Aare"], []]


def test_questions_to_predict_for_need_no_answers(read):
    rows = read("in.jsonl", {"context": CONTEXT, "question": "Where is Z\u00fcrich?"}, labelled=False)
    assert rows[0]["question"] == Question("", "Where is Z\u00fcrich?", CONTEXT)
    rows = read("in.json", V1, labelled=False)
    assert not any(row["question"].answers for row in rows)


def test_repair():
    """An answer goes to the nearest place with its text, before or behind."""
    context = "one two one two one"
    rows = [
        {"question": Question(str(n), "?", context, (Answer(text, start),))}
        for n, (text, start) in enumerate([("one", 1), ("one", 6), ("one", 8), ("two", 99), ("one", 16), ("two", 0)])
    ]
    repaired = questions_of(rows, "x.json", repair=True)
    assert [question.answers[0].start for question in repaired] == [0, 8, 8, 12, 16, 4]
    with pytest.raises(UserError, match="'three' of question '1' does not stand at answer_start=0 of its context; cor"):
        questions_of([{"question": Question("1", "?", context, (Answer("three", 0),))}], "x.json", repair=True)


ROW = {"id": "a", "context": CONTEXT, "question": "Where?", "answers": {"text": ["Bern"], "answer_start": [29]}}


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.json", "{", "a.json is not JSON: Expecting property name"),
        ("a.json", [ROW], "a.json has no list 'data', as files of SQuAD have; give such a file, or .jsonl"),
        ("a.json", "[1]", "a.json has no list 'data'"),
        ("a.json", {"data": [{"title": "x"}]}, "a.json, article 1 has no list 'paragraphs'"),
        ("a.json", {"data": [{"paragraphs": [{}]}]}, "article 1, paragraph 1 has no list 'qas'"),
        ("a.json", {"data": [{"paragraphs": [{"qas": [1]}]}]}, "paragraph 1 has a question that is no object"),
        (
            "a.json",
            {"data": [{"paragraphs": [{"qas": [{"id": "x", "question": "?"}]}]}]},
            "paragraph 1, question 'x' has no text 'context'",
        ),
        ("a.jsonl", "[1]", "a.jsonl, line 1 is a list, not an object"),
        ("a.jsonl", ROW | {"context": " \n"}, "line 1, question 'a' has an empty context; fill it, or leave"),
        ("a.jsonl", ROW | {"question": ""}, "question 'a' has an empty question"),
        ("a.jsonl", ROW | {"question": 3}, "question 'a' has no text 'question' (it has id, context, question, ans"),
        ("a.jsonl", {"context": "a", "question": "b"}, 'line 1 has no answers; write "answers": [] if the passage'),
        ("a.jsonl", ROW | {"answers": {"text": ["a"]}}, "answers that are not as many texts as answer_starts"),
        ("a.jsonl", ROW | {"answers": {"text": ["a"], "answer_start": []}}, "not as many texts as answer_starts"),
        ("a.jsonl", ROW | {"answers": "Bern"}, "answers that are none; an answer is {"),
        ("a.jsonl", ROW | {"answers": [{"text": "", "answer_start": 0}]}, "answers that are none"),
        ("a.jsonl", ROW | {"answers": [{"text": "Bern", "answer_start": "29"}]}, "answers that are none"),
        ("a.jsonl", ROW | {"answers": [{"text": "Bern", "answer_start": -1}]}, "answers that are none"),
        ("a.jsonl", ROW | {"is_impossible": True}, "question 'a' has answers and says is_impossible"),
        ("a.jsonl", [ROW, ROW], "the id 'a' occurs more than once; give every question its own"),
        (
            "a.jsonl",
            [ROW | {"id": identity} for identity in "abab"],
            "the id 'a' occurs more than once, and so do 1 others",
        ),
        (
            "a.jsonl",
            ROW | {"answers": {"text": ["Bern"], "answer_start": [28]}},
            "a.jsonl: the answer 'Bern' of question 'a' does not stand at answer_start=28 of its context; correct it, "
            "or add --task.repair=true to take the nearest place",
        ),
        (
            "a.jsonl",
            [ROW | {"id": x, "answers": {"text": ["Bern"], "answer_start": [n]}} for n, x in enumerate("abc", 28)],
            "question 'a' does not stand at answer_start=28 of its context (2 questions have such answers)",
        ),
        ("a.tsv", "context\tquestion", "a.tsv is not a .json, .jsonl file, nor one of these with .gz"),
    ],
)
def test_bad_files(read, name, content, sentence, tmp_path):
    with pytest.raises(UserError) as error:
        questions_of(read(name, content), name)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_rows_of_a_data_set():
    """Rows as tensorflow_datasets has them: answers as columns."""
    row = ROW | {"title": "Rivers", "is_impossible": False, "plausible_answers": {"text": [], "answer_start": []}}
    checked = Squad().checked(row, "tfds:squad")
    assert checked == {"question": Question("a", "Where?", CONTEXT, (Answer("Bern", 29),)), "group": "Rivers"}

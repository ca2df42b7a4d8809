"""The files of SuperGLUE, written by hand as the official ones are, and what the readers make of them."""

import json

import pytest

from train import UserError
from train.lab.glue import sources, superglue_files
from train.lab.glue.suites import SUPERGLUE

TASKS = {task.name: task for task in SUPERGLUE}

PASSAGE = "Tracy Morgan was hurt\n@highlight\nMorgan met Tina Fey"

# One line of each training file.
LINES = {
    "BoolQ": {"question": "is it big", "passage": "It -- big.\nYes.", "idx": 3, "label": True},
    "CB": {"premise": "It was so.", "hypothesis": "so", "label": "neutral", "idx": 0},
    "COPA": {
        "premise": "My body cast a shadow.",
        "choice1": "The sun rose.",
        "choice2": "The grass was cut.",
        "question": "cause",
        "label": 0,
        "idx": 0,
    },
    "MultiRC": {
        "idx": 2,
        "version": 1.1,
        "passage": {
            "text": "He ran. She sat.",
            "questions": [
                {
                    "question": "Who ran?",
                    "answers": [{"text": "He", "idx": 5, "label": 1}, {"text": "She", "idx": 6, "label": 0}],
                    "idx": 7,
                },
                {"question": "Who sat?", "answers": [{"text": "She", "idx": 7, "label": 1}], "idx": 8},
            ],
        },
    },
    "ReCoRD": {
        "source": "Daily mail",
        "passage": {
            "text": PASSAGE,
            # The end is the last character; an entity occurs twice.
            "entities": [{"start": 0, "end": 11}, {"start": 33, "end": 38}, {"start": 44, "end": 51}],
        },
        "qas": [
            {
                "query": "A friend of @placeholder spoke",
                "answers": [
                    {"start": 0, "end": 11, "text": "Tracy Morgan"},
                    {"start": 33, "end": 38, "text": "Morgan"},
                ],
                "idx": 9,
            }
        ],
        "idx": 4,
    },
    "RTE": {"premise": "No weapons.", "hypothesis": "Weapons.", "label": "not_entailment", "idx": 0},
    "WiC": {
        "word": "place",
        "sentence1": "Do you want to come over to my place later?",
        "sentence2": "A political system with no place for the less prominent groups.",
        "idx": 0,
        "label": False,
        "start1": 31,
        "start2": 27,
        "end1": 36,
        "end2": 32,
        "version": 1.1,
    },
    "WSC": {
        "text": "Mark told Pete many lies, which Pete included in his book. He should be wary.",
        "target": {"span2_index": 11, "span1_index": 0, "span1_text": "Mark", "span2_text": "He"},
        "idx": 0,
        "label": False,
    },
}

COPA_TEXT = "My body cast a shadow. What was the cause of this?"
RECORD = {"text": "Tracy Morgan was hurt Morgan met Tina Fey", "idx": 9}
RECORD_GOLD = {"answers": ["Tracy Morgan", "Morgan"]}

TRAIN = {
    "BoolQ": [{"text": "is it big", "pair": "It -- big.\nYes.", "idx": 3, "label": "true"}],
    "CB": [{"text": "It was so.", "pair": "so", "idx": 0, "label": "neutral"}],
    "COPA": [
        {"text": COPA_TEXT, "pair": "The sun rose.", "idx": [0, 0], "label": "1"},
        {"text": COPA_TEXT, "pair": "The grass was cut.", "idx": [0, 1], "label": "0"},
    ],
    "MultiRC": [
        {"text": "He ran. She sat.", "pair": "Who ran? He", "idx": [2, 7, 5], "label": "1"},
        {"text": "He ran. She sat.", "pair": "Who ran? She", "idx": [2, 7, 6], "label": "0"},
        {"text": "He ran. She sat.", "pair": "Who sat? She", "idx": [2, 8, 7], "label": "1"},
    ],
    "ReCoRD": [
        RECORD | RECORD_GOLD | {"pair": f"A friend of {entity} spoke", "entity": entity, "label": label}
        for entity, label in (("Tracy Morgan", "1"), ("Morgan", "1"), ("Tina Fey", "0"))
    ],
    "RTE": [{"text": "No weapons.", "pair": "Weapons.", "idx": 0, "label": "not_entailment"}],
    "WiC": [
        {
            "text": "Do you want to come over to my *place* later?",
            "pair": "A political system with no *place* for the less prominent groups.",
            "idx": 0,
            "label": "false",
        }
    ],
    "WSC": [
        {
            "text": "*Mark* told Pete many lies, which Pete included in his book. #He# should be wary.",
            "idx": 0,
            "label": "false",
        }
    ],
}


def hidden(value):
    """A row without what a test file hides; the answers of MultiRC are not hidden, those of ReCoRD are."""
    if isinstance(value, list):
        return [hidden(element) for element in value]
    if not isinstance(value, dict):
        return value
    secret = {"label", "answers"} if "query" in value else {"label"}
    return {key: hidden(element) for key, element in value.items() if key not in secret}


@pytest.fixture
def folder(tmp_path):
    for name, row in LINES.items():
        (tmp_path / name).mkdir()
        for file, line in (("train", row), ("val", row), ("test", hidden(row))):
            (tmp_path / name / f"{file}.jsonl").write_text(json.dumps(line) + "\n")
    return tmp_path


@pytest.mark.parametrize("name", LINES)
def test_files(folder, name):
    source, task = sources.open_source(str(folder), "superglue", print), TASKS[name]
    assert source.train(task) == TRAIN[name]
    assert source.dev(task, task.parts[0]) == TRAIN[name]
    bare = [{key: value for key, value in row.items() if key not in ("label", "answers")} for row in TRAIN[name]]
    assert source.test(task, task.parts[0]) == bare


def test_diagnostics(folder):
    """The model of RTE answers them; only some releases have their labels."""
    rows = {
        "AX-b": {"sentence1": "a", "sentence2": "b", "idx": 1, "label": "entailment", "logic": "Negation"},
        "AX-g": {"premise": "a", "hypothesis": "b", "idx": 1, "label": "not_entailment", "pair_id": 5},
    }
    source, task = sources.open_source(str(folder), "superglue", print), TASKS["RTE"]
    for part in task.parts[1:]:
        assert source.dev(task, part) == []
        path = folder / part.name / f"{part.name}.jsonl"
        path.parent.mkdir()
        path.write_text(json.dumps(rows[part.name]) + "\n")
        texts = {"text": "a", "pair": "b", "idx": 1}
        assert source.dev(task, part) == [texts | {"label": rows[part.name]["label"]}]
        assert source.test(task, part) == [texts]
        path.write_text(json.dumps(hidden(rows[part.name])) + "\n")
        assert source.dev(task, part) == []


def test_a_span_that_stands_elsewhere():
    """Some spans of WSC are off, or differ in case or punctuation; the pronoun may stand before the noun."""
    flat = {"text": 'When the sun set, the "old sun" it saw, it slept.', "idx": 0, "label": "True"}
    spans = {"span1_index": 4, "span1_text": "Old sun", "span2_index": 10, "span2_text": "it"}
    (row,) = superglue_files.convert([flat | spans], TASKS["WSC"], True, "here")
    assert row["text"] == 'When the sun set, the *"old sun"* it saw, #it# slept.'
    assert row["label"] == "true"
    unknown = {"span1_index": 2, "span1_text": "moon", "span2_index": 0, "span2_text": "When the"}
    (row,) = superglue_files.convert([flat | unknown], TASKS["WSC"], True, "here")
    assert row["text"] == '#When the# *sun* set, the "old sun" it saw, it slept.'


def test_a_passage_without_entities_counts():
    flat = {"passage": "a", "query": "@placeholder?", "entities": [], "answers": ["b"], "idx": {"query": 1}}
    (row,) = superglue_files.convert([flat], TASKS["ReCoRD"], True, "here")
    assert (row["entity"], row["label"], row["answers"]) == ("", "0", ["b"])


def test_tensorflow_data_sets(monkeypatch):
    """They are flat, and truth has a capital."""
    target = LINES["WSC"]["target"]
    stored = {
        "tfds:super_glue/boolq:train": [LINES["BoolQ"] | {"label": "True"}],
        "tfds:super_glue/copa:train": [LINES["COPA"] | {"label": "choice1"}],
        "tfds:super_glue/multirc:train": [
            {
                "paragraph": row["text"],
                "question": row["pair"].rpartition(" ")[0],
                "answer": row["pair"].rpartition(" ")[2],
                "idx": dict(zip(("paragraph", "question", "answer"), row["idx"], strict=True)),
                "label": {"0": "False", "1": "True"}[row["label"]],
            }
            for row in reversed(TRAIN["MultiRC"])
        ],
        "tfds:super_glue/record:train": [
            {
                "passage": PASSAGE,
                "query": "A friend of @placeholder spoke",
                "entities": ["Tracy Morgan", "Morgan", "Tina Fey"],
                "answers": ["Tracy Morgan", "Morgan"],
                "idx": {"passage": 4, "query": 9},
            }
        ],
        "tfds:super_glue/wsc.fixed:train": [{"text": LINES["WSC"]["text"], **target, "idx": 0, "label": "False"}],
        "tfds:super_glue/axb:test": [{"sentence1": "a", "sentence2": "b", "idx": 0, "label": None}],
    }
    monkeypatch.setattr("train.data.sources.tfds.read", stored.__getitem__)
    source = sources.open_source("tfds", "superglue", print)
    for name in ("BoolQ", "COPA", "MultiRC", "ReCoRD", "WSC"):
        assert source.train(TASKS[name]) == TRAIN[name], name
    assert source.dev(TASKS["RTE"], TASKS["RTE"].parts[1]) == [], "labels are hidden"


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("BoolQ", {"passage": None}, "has a field of another type than BoolQ has: passage is no text"),
        ("BoolQ", {"label": 2}, "has the label 2; BoolQ has false, true; repair it"),
        ("CB", {"premise": ...}, "has no .premise. .it has hypothesis, label, idx.; fetch it again"),
        ("COPA", {"question": "why"}, "asks for 'why', neither cause nor effect"),
        ("COPA", {"label": 2}, "has the label 2, neither 0 nor 1"),
        ("MultiRC", {"passage": "text"}, "is not built as MultiRC is"),
        ("MultiRC", {"passage": {}}, "has no 'questions'; fetch the file again"),
        ("ReCoRD", {"qas": [{"query": "a", "idx": 0}]}, "has a query without @placeholder"),
        ("WiC", {"end1": 99}, "has the word at 31-99 in a sentence of 43 characters"),
        (
            "WSC",
            {"target": LINES["WSC"]["target"] | {"span1_index": 99}},
            "has a span at word 99 in a text of 15 words",
        ),
        ("RTE", {"label": "neutral"}, "has the label 'neutral'; RTE has not_entailment, entailment"),
    ],
)
def test_bad_lines(tmp_path, name, change, sentence):
    row = {key: value for key, value in (LINES[name] | change).items() if value is not ...}
    (tmp_path / "train.jsonl").write_text("\n" + json.dumps(row))
    with pytest.raises(UserError, match=rf"train.jsonl, line 2 .*({sentence})"):
        superglue_files.read(tmp_path / "train.jsonl", TASKS[name], labelled=True)


@pytest.mark.parametrize(
    ("text", "sentence"), [("{", "line 1 is not JSON"), ("[1]", "line 1 "), ("\n", "holds no text")]
)
def test_bad_files(tmp_path, text, sentence):
    (tmp_path / "train.jsonl").write_text(text)
    for task in SUPERGLUE:
        with pytest.raises(UserError, match=sentence):
            superglue_files.read(tmp_path / "train.jsonl", task, labelled=True)

"""The files of GLUE, written by hand as the official ones are, and what the readers make of them."""

import pytest

from train import UserError
from train.lab.glue import glue_files, sources
from train.lab.glue.suites import GLUE, SUITES, choose

TASKS = {task.name: task for task in GLUE}

# Quotes are text, a line is cut, one text has a lone carriage return, one a line separator that is no line feed.
FILES = {
    "CoLA/train.tsv": "gj04\t1\t\tOur friends won't buy this analysis.\ngj04\t0\t*\t\"They drank the pub.\n",
    "CoLA/dev.tsv": "gj04\t1\t\tThe sailors rode the breeze.\n",
    "CoLA/test.tsv": "index\tsentence\n0\tBill whistled past the house.\n1\tThe car honked its way down.\n",
    "SST-2/train.tsv": "sentence\tlabel\nhide new secretions \t0\nthat loves its characters \t1\n",
    "SST-2/dev.tsv": "sentence\tlabel\nit 's charming . \t1\n",
    "SST-2/test.tsv": "index\tsentence\n0\tuneasy mishmash\n",
    "MRPC/train.tsv": '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t70\t71\tHe said "no.\tHe denied it.\r\n',
    "MRPC/dev.tsv": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n0\t80\t81\tA fell.\tB rose.\r\n",
    "MRPC/test.tsv": "\ufeffindex\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t90\t91\tOne.\tTwo.\n",
    "STS-B/train.tsv": (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
        "0\tmain-captions\tMSRvid\t2012test\t0001\tnone\tnone\tA plane.\tAn air plane.\t5.000\n"
    ),
    "STS-B/test.tsv": (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\n"
        "0\tmain-captions\tMSRvid\t2012test\t0024\tnone\tnone\tA girl.\tA boy.\n"
    ),
    "QQP/train.tsv": (
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
        '133273\t213221\t213222\tWhat is "one? \tWhat\u2028is one"?\t0\n'
        "402555\t536040\t536041\tA cut line\n"
        "360472\t364011\t490273\tHow\rold?\t\t1\n"
    ),
    "QQP/test.tsv": 'id\tquestion1\tquestion2\n7\tWould "x\tWill y?\n5\tIs it?\tWas it?\n',
    "MNLI/train.tsv": (
        "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t"
        "sentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label\n"
        "0\t31193\t31193n\tgov\t(\t(\t(R\t(R\tConceptually.\tProduct.\tneutral\tneutral\n"
    ),
    "MNLI/dev_matched.tsv": (
        "index\tsentence1\tsentence2\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label\n"
        "0\tThe new rights.\tEveryone.\tneutral\tentailment\tneutral\tneutral\tneutral\tneutral\n"
        "1\tNo.\tYes.\tneutral\tentailment\tneutral\tentailment\tcontradiction\t-\n"
    ),
    "MNLI/dev_mismatched.tsv": "index\tsentence1\tsentence2\tgold_label\n0\tYour part.\tA gift.\tcontradiction\n",
    "MNLI/test_matched.tsv": "index\tsentence1\tsentence2\n0\tHierbas.\tA name.\n",
    "MNLI/test_mismatched.tsv": "index\tsentence1\tsentence2\n0\tWhat.\tIt.\n",
    "diagnostic/diagnostic.tsv": "index\tsentence1\tsentence2\n0\tThe cat sat.\tThe cat did not sit.\n",
    "diagnostic/diagnostic-full.tsv": (
        "Lexical Semantics\tPredicate-Argument Structure\tLogic\tKnowledge\tDomain\tPremise\tHypothesis\tLabel\n"
        "\t\tNegation\t\tArtificial\tThe cat sat.\tThe cat did not sit.\tcontradiction\n"
    ),
    "QNLI/train.tsv": "index\tquestion\tsentence\tlabel\n0\tWhen?\tWin.\tnot_entailment\n",
    "RTE/train.tsv": "index\tsentence1\tsentence2\tlabel\n0\tNo weapons.\tWeapons.\tnot_entailment\n",
    "WNLI/train.tsv": "index\tsentence1\tsentence2\tlabel\n0\tI stuck a pin.\tThe pin is stuck.\t1\n",
}

TRAIN = {
    "CoLA": [
        {"text": "Our friends won't buy this analysis.", "label": "1", "idx": 0},
        {"text": '"They drank the pub.', "label": "0", "idx": 1},
    ],
    "SST-2": [
        {"text": "hide new secretions ", "label": "0", "idx": 0},
        {"text": "that loves its characters ", "label": "1", "idx": 1},
    ],
    "MRPC": [{"text": 'He said "no.', "pair": "He denied it.", "label": "1", "idx": 0}],
    "STS-B": [{"text": "A plane.", "pair": "An air plane.", "label": 5.0, "idx": 0}],
    "QQP": [
        {"text": 'What is "one? ', "pair": 'What\u2028is one"?', "label": "0", "idx": 0},
        {"text": "How\rold?", "pair": "", "label": "1", "idx": 1},
    ],
    "MNLI": [{"text": "Conceptually.", "pair": "Product.", "label": "neutral", "idx": 0}],
    "QNLI": [{"text": "When?", "pair": "Win.", "label": "not_entailment", "idx": 0}],
    "RTE": [{"text": "No weapons.", "pair": "Weapons.", "label": "not_entailment", "idx": 0}],
    "WNLI": [{"text": "I stuck a pin.", "pair": "The pin is stuck.", "label": "1", "idx": 0}],
}


def write_files(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(text.encode("utf-8"))


@pytest.fixture
def folder(tmp_path):
    write_files(tmp_path, FILES)
    return tmp_path


@pytest.mark.parametrize("name", TRAIN)
def test_training_sets(folder, name):
    lines = []
    assert sources.open_source(str(folder), "glue", lines.append).train(TASKS[name]) == TRAIN[name]
    cut = f"{folder}/QQP/train.tsv: left out 1 lines with missing or further columns"
    assert lines == ([cut] if name == "QQP" else [])


def test_validation_sets(folder):
    lines = []
    source = sources.open_source(str(folder), "glue", lines.append)
    matched, mismatched, diagnostic = TASKS["MNLI"].parts
    assert source.dev(TASKS["MNLI"], matched) == [
        {"text": "The new rights.", "pair": "Everyone.", "label": "neutral", "idx": 0}
    ]
    assert lines == [f"{folder}/MNLI/dev_matched.tsv: left out 1 rows without a label"]
    assert source.dev(TASKS["MNLI"], mismatched)[0]["label"] == "contradiction"
    row = {"text": "The cat sat.", "pair": "The cat did not sit.", "label": "contradiction", "idx": 0}
    assert source.dev(TASKS["MNLI"], diagnostic) == [row]
    (folder / "diagnostic" / "diagnostic-full.tsv").unlink()
    assert source.dev(TASKS["MNLI"], diagnostic) == [], "its labels are published apart"
    assert source.dev(TASKS["MRPC"], TASKS["MRPC"].parts[0])[0]["pair"] == "B rose."
    assert source.dev(TASKS["CoLA"], TASKS["CoLA"].parts[0])[0]["label"] == "1"


@pytest.mark.parametrize(
    ("task", "part", "rows"),
    [
        ("CoLA", 0, [("Bill whistled past the house.", None, 0), ("The car honked its way down.", None, 1)]),
        ("SST-2", 0, [("uneasy mishmash", None, 0)]),
        ("MRPC", 0, [("One.", "Two.", 0)]),
        ("STS-B", 0, [("A girl.", "A boy.", 0)]),
        ("QQP", 0, [('Would "x', "Will y?", 7), ("Is it?", "Was it?", 5)]),
        ("MNLI", 0, [("Hierbas.", "A name.", 0)]),
        ("MNLI", 1, [("What.", "It.", 0)]),
        ("MNLI", 2, [("The cat sat.", "The cat did not sit.", 0)]),
    ],
)
def test_test_sets(folder, task, part, rows):
    """Their index is that of the file: the server asks for it."""
    source = sources.open_source(str(folder), "glue", print)
    read = source.test(TASKS[task], TASKS[task].parts[part])
    assert [(row["text"], row.get("pair"), row["idx"]) for row in read] == rows
    assert all("label" not in row for row in read)


def test_mrpc_of_microsoft(tmp_path):
    """The pairs of dev_ids.tsv are for validation."""
    header = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
    train = header + '1\t10\t11\tA "b\tC\r\n0\t20\t21\tD\tE\r\n1\t30\t31\tF\tG\r\n'
    files = {"msr_paraphrase_train.txt": train, "msr_paraphrase_test.txt": header + "1\t40\t41\tH\tI\r\n"}
    write_files(tmp_path, {f"MRPC/{name}": text for name, text in files.items()})
    source, task = sources.open_source(str(tmp_path), "glue", print), TASKS["MRPC"]
    with pytest.raises(UserError, match="dev_ids.tsv does not exist; it says which pairs"):
        source.train(task)
    (tmp_path / "MRPC" / "dev_ids.tsv").write_text("20\t21\n")
    assert [row["text"] for row in source.train(task)] == ['A "b', "F"]
    assert source.dev(task, task.parts[0]) == [{"text": "D", "pair": "E", "label": "0", "idx": 0}]
    assert source.test(task, task.parts[0]) == [{"text": "H", "pair": "I", "idx": 0}]


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("SST-2/train.tsv", None, "SST-2/train.tsv does not exist"),
        ("SST-2/train.tsv", "sentence\tlabel\n", "holds 0 whole rows and 0 cut ones; fetch the file again"),
        ("SST-2/train.tsv", "text\tlabel\na\t0\n", r"line 2 has no column 'sentence' \(it has text, label\)"),
        ("SST-2/train.tsv", "sentence\tclass\na\t0\n", r"line 2 has no column 'label' \(it has sentence, class\)"),
        ("SST-2/train.tsv", "sentence\tlabel\na\t2\n", "line 2 has the label '2'; SST-2 has 0, 1; repair the line"),
        ("CoLA/train.tsv", "sentence\tlabel\na\t2\n", "holds 0 whole rows and 2 cut ones"),
        ("STS-B/train.tsv", "sentence1\tsentence2\tscore\na\tb\tx\n", "has the score 'x', which is not a number"),
        ("QQP/train.tsv", "id\tquestion1\tquestion2\tis_duplicate\n" + "cut\n" * 11, "0 whole rows and 11 cut ones"),
    ],
)
def test_bad_files(folder, name, text, sentence):
    (folder / name).write_text(text) if text is not None else (folder / name).unlink()
    with pytest.raises(UserError, match=sentence):
        glue_files.train_rows(folder, TASKS[name.partition("/")[0]], print)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("id\tquestion1\tquestion2\n1\ta\n", "line 2 has another number of columns than the first line"),
        ("question1\tquestion2\na\tb\n", "line 2 has no whole number in a column 'index'"),
        ("id\tquestion1\tquestion2\nx\ta\tb\n", "line 2 has no whole number in a column 'index'"),
    ],
)
def test_bad_test_files(folder, text, sentence):
    (folder / "QQP" / "test.tsv").write_text(text)
    with pytest.raises(UserError, match=sentence):
        glue_files.test_rows(folder, TASKS["QQP"], TASKS["QQP"].parts[0])


def test_tensorflow_data_sets(monkeypatch):
    """Their classes have other names, and their rows another order."""
    stored = {
        "tfds:glue/cola:train": [
            {"sentence": "b", "label": "acceptable", "idx": 1},
            {"sentence": "a", "label": "unacceptable", "idx": 0},
        ],
        "tfds:glue/stsb:validation": [{"sentence1": "a", "sentence2": "b", "label": 2.5, "idx": 0}],
        "tfds:glue/mnli:test_mismatched": [{"premise": "a", "hypothesis": "b", "label": None, "idx": 4}],
        "tfds:glue/wnli:validation": [{"sentence1": "a", "sentence2": "b", "label": "entailment", "idx": 0}],
        "tfds:glue/mrpc:train": [{"sentence1": "a", "sentence2": "b", "label": "same", "idx": 0}],
    }
    monkeypatch.setattr("train.data.sources.tfds.read", stored.__getitem__)
    source = sources.open_source("tfds", "glue", print)
    assert source.train(TASKS["CoLA"]) == [
        {"text": "a", "label": "0", "idx": 0},
        {"text": "b", "label": "1", "idx": 1},
    ]
    assert source.dev(TASKS["STS-B"], TASKS["STS-B"].parts[0]) == [{"text": "a", "pair": "b", "label": 2.5, "idx": 0}]
    assert source.test(TASKS["MNLI"], TASKS["MNLI"].parts[1]) == [{"text": "a", "pair": "b", "idx": 4}]
    assert source.dev(TASKS["MNLI"], TASKS["MNLI"].parts[2]) == [], "AX has no labels there"
    assert source.dev(TASKS["WNLI"], TASKS["WNLI"].parts[0])[0]["label"] == "1"
    with pytest.raises(UserError, match="has the label 'same'; MRPC has not_equivalent, equivalent there"):
        source.train(TASKS["MRPC"])


@pytest.mark.parametrize("suite", SUITES)
def test_tables_of_tasks(suite):
    """Names are unique, and classes of both sources are as many."""
    tasks = SUITES[suite]
    parts = [part.name for task in tasks for part in task.parts]
    assert len(set(parts)) == len(parts) == {"glue": 11, "superglue": 10}[suite]
    for task in tasks:
        assert len(task.tfds_labels) in (0, len(task.labels)), task.name
        assert task.parts[0].counts, task.name


def test_names_of_tasks():
    assert [task.name for task in choose("glue", "sst2, cola,MNLI")] == ["CoLA", "SST-2", "MNLI"]
    with pytest.raises(UserError, match="--tasks=AX: the model of MNLI answers it; say --tasks=MNLI"):
        choose("glue", "AX")
    with pytest.raises(UserError, match="--tasks=colla is unknown in glue; did you mean CoLA?"):
        choose("glue", "colla")

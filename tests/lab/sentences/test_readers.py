"""The files of SentEval's downloads, small ones of each layout, and bad ones."""

import pickle

import numpy as np
import pytest

from train import UserError
from train.lab.sentences import read_tasks

SICK = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
MRPC = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"


def sick(rows):
    return SICK + "".join(
        f"{n}\ta b c\td {n}\t{1 + n % 4}.5\t{('NEUTRAL', 'ENTAILMENT')[n % 2]}\n" for n in range(rows)
    )


def mrpc(rows):
    return MRPC + "".join(f'{n % 2}\t1\t2\tshe said " x {n}\the said y\n' for n in range(rows))


def stsb(rows):
    return "".join(f"main\tMSRvid\t2012\t{n:04}\t{n % 6 * 0.8:.3f}\ta man {n}\tthe man\n" for n in range(rows))


FILES = {
    "downstream/MR/rt-polarity.pos": "good film\nvery very good\n",
    "downstream/MR/rt-polarity.neg": "bad\n",
    "downstream/CR/custrev.pos": "caf\xe9 good\n",
    "downstream/CR/custrev.neg": "b\nc d\n",
    "subj.all": "1 it is\n0 a b c\n1 so\n",
    "downstream/SST/binary/sentiment-train": "a b c\t1\nd\t0\n",
    "downstream/SST/binary/sentiment-dev": "e\t1\n",
    "downstream/SST/binary/sentiment-test": "f\t0\ng h\t1\n",
    "downstream/SST/fine/sentiment-train": "4 a b\n0 c\n",
    "downstream/SST/fine/sentiment-dev": "3 d\n",
    "downstream/SST/fine/sentiment-test": "2 e\n",
    "downstream/TREC/train_5500.label": "DESC:manner How did it go ?\nENTY:cremat What films ?\n",
    "downstream/TREC/TREC_10.label": "NUM:dist How far ?\n",
    "downstream/MRPC/msr_paraphrase_train.txt": mrpc(4),
    "downstream/MRPC/msr_paraphrase_test.txt": mrpc(2),
    "downstream/SICK/SICK_train.txt": sick(4),
    "downstream/SICK/SICK_trial.txt": sick(2),
    "downstream/SICK/SICK_test_annotated.txt": sick(3),
    "downstream/STS/STSBenchmark/sts-train.csv": stsb(20),
    "downstream/STS/STSBenchmark/sts-dev.csv": stsb(3),
    **{
        f"downstream/STS/STS13-en-test/STS.input.{name}.txt": "a b\tc\nd\te f\n"
        for name in ("FNWN", "headlines", "OnWN")
    },
    **{f"downstream/STS/STS13-en-test/STS.gs.{name}.txt": "4.5\n\n" for name in ("FNWN", "headlines", "OnWN")},
    "downstream/SNLI/s1.train": "a b\nc\n",
    "downstream/SNLI/s2.train": "d e f\ng\n",
    "downstream/SNLI/labels.train": "neutral\ncontradiction\n",
    **{f"downstream/SNLI/s{n}.{part}": "a\n" for n in (1, 2) for part in ("dev", "test")},
    **{f"downstream/SNLI/labels.{part}": "entailment\n" for part in ("dev", "test")},
    "probing/past_present.txt": "tr\tPRES\tVBZ\tshe runs .\ntr\tPAST\tVBD\the ran\nva\tPAST\tx\tb c\nte\tPRES\tx\td\n",
    "captions/train.txt": "".join(f"caption {n}\n" for n in range(10)),
    "captions/dev.txt": "".join(f"dev {n}\n" for n in range(5)),
    "captions/test.txt": "".join(f"test {n}\n" for n in range(5)),
}


@pytest.fixture
def home(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(text.encode("latin-1" if "CR" in name else "utf-8"))
    for part, images in (("train", 2), ("dev", 1), ("test", 1)):
        np.save(tmp_path / f"captions/{part}.npy", np.arange(images * 3, dtype=np.float64).reshape(images, 3))
    return tmp_path


def parts(home, name):
    (loaded,) = read_tasks(str(home), name)
    return loaded.data


def test_all_tasks_that_are_there(home):
    names = [loaded.task.name for loaded in read_tasks(str(home))]
    assert names == "MR CR SUBJ SST2 SST5 TREC MRPC SICK-E SICK-R STS-B STS13 SNLI captions Tense".split()
    assert [loaded.task.name for loaded in read_tasks(str(home), "stsbenchmark,mr,SICKEntailment")] == [
        "MR",
        "SICK-E",
        "STS-B",
    ]


def test_rows_are_in_the_order_of_senteval(home):
    """By words, then by label; positive files are class 1, objective sentences too."""
    rows = parts(home, "MR").parts["all"]
    assert (rows.texts, rows.labels.tolist()) == (["bad", "good film", "very very good"], [0, 1, 1])
    rows = parts(home, "CR").parts["all"]
    assert (rows.texts, rows.labels.tolist()) == (["b", "c d", "caf\xe9 good"], [0, 0, 1])
    rows = parts(home, "SUBJ").parts["all"]
    assert (rows.texts, rows.labels.tolist()) == (["so", "it is", "a b c"], [1, 1, 0])


def test_splits(home):
    data = parts(home, "SST2")
    assert {name: (rows.texts, rows.labels.tolist()) for name, rows in data.parts.items()} == {
        "train": (["d", "a b c"], [0, 1]),
        "dev": (["e"], [1]),
        "test": (["f", "g h"], [0, 1]),
    }
    assert (data.classes, data.note) == (2, "")
    assert parts(home, "SST5").parts["train"].labels.tolist() == [0, 4]
    trec = parts(home, "TREC").parts
    assert (trec["train"].texts, trec["train"].labels.tolist()) == (["What films ?", "How did it go ?"], [2, 1])
    assert trec["test"].labels.tolist() == [5]
    tense = parts(home, "Tense")
    assert (tense.parts["train"].texts, tense.parts["train"].labels.tolist()) == (["he ran", "she runs ."], [0, 1])


def test_pairs(home):
    rows = parts(home, "MRPC").parts["train"]
    assert rows.texts[0] == 'she said " x 0', "quotes are text"
    assert (rows.pairs, rows.labels.tolist()) == (["he said y"] * 4, [0, 0, 1, 1])
    assert parts(home, "SICK-E").parts["test"].labels.tolist() == [1, 1, 2]
    assert parts(home, "SICK-R").parts["train"].labels.tolist() == [1.5, 2.5, 3.5, 4.5]
    sources = parts(home, "STS13").parts
    assert (sources["FNWN"].texts, sources["FNWN"].labels.tolist()) == (["a b"], [4.5])
    snli = parts(home, "SNLI").parts["train"]
    assert (snli.texts, snli.pairs, snli.labels.tolist()) == (["c", "a b"], ["g", "d e f"], [2, 1])


def test_without_a_test_file_dev_is_the_test_set(home):
    """A tenth of the training rows then stops the training, so that the test set is untouched."""
    data = parts(home, "STS-B")
    assert data.note == "no test file: measured on dev"
    assert {name: len(rows.texts) for name, rows in data.parts.items()} == {"train": 18, "dev": 2, "test": 3}
    assert not {*data.parts["train"].texts} & {*data.parts["dev"].texts}


def test_captions(home, tmp_path):
    data = parts(home, "captions").parts["train"]
    assert data.texts[5] == "caption 5"
    assert data.images.tolist() == [[0, 1, 2], [3, 4, 5]]
    (tmp_path / "COCO").mkdir()
    for part in ("train", "valid", "test"):
        content = {
            "features": [np.arange(3, dtype=np.float32)],
            "image_to_caption_ids": {0: [7, 8, 9, 10, 11, 12]},
            "captions": {n: {"cleaned_caption": f"{part} {n}"} for n in range(7, 13)},
        }
        (tmp_path / f"COCO/{part}.pkl").write_bytes(pickle.dumps(content, protocol=2))
    coco = parts(tmp_path / "COCO" / "..", "captions").parts
    assert coco["dev"].texts == [f"valid {n} ." for n in range(7, 12)]
    assert coco["test"].images.tolist() == [[0, 1, 2]]


def test_a_pickle_runs_nothing(home, tmp_path):
    (tmp_path / "COCO").mkdir()
    for part in ("train", "valid", "test"):
        (tmp_path / f"COCO/{part}.pkl").write_bytes(pickle.dumps(print))
    with pytest.raises(UserError, match="train.pkl is no pickle of features and captions .it asks for builtins.print."):
        parts(tmp_path, "captions")


def test_a_few_empty_sentences_are_dots(home):
    path = home / "downstream/MR/rt-polarity.neg"
    path.write_text("".join(f"bad {n}\n" for n in range(99)) + "\n")
    data = parts(home, "MR")
    assert data.note == "1 empty sentence, read as '.'"
    assert data.parts["all"].texts[0] == "."
    path.write_text("\n" * 5 + "bad\n" * 90)
    with pytest.raises(UserError, match="rt-polarity.pos has 5 empty sentences of 97 in the part 'all'"):
        parts(home, "MR")


BAD = {
    "STSB": (
        "downstream/STS/STSBenchmark/sts-dev.csv",
        "a\tb\tc\td\t5.5\te\tf\n",
        "sts-dev.csv, line 1 has the score '5.5'; it must be from 0 to 5",
    ),
    "SICK-R": (
        "downstream/SICK/SICK_trial.txt",
        SICK + "1\ta\tb\t0.5\tNEUTRAL\n",
        "SICK_trial.txt, line 2 has the score '0.5'; it must be from 1 to 5",
    ),
    "SICK-E": (
        "downstream/SICK/SICK_trial.txt",
        SICK + "1\ta\tb\t1.5\tMAYBE\n",
        "line 2 has the label 'MAYBE'; known are CONTRADICTION, NEUTRAL, ENTAILMENT",
    ),
    "SST5": (
        "downstream/SST/fine/sentiment-dev",
        "5 so good\n",
        "sentiment-dev, line 1 has the label '5'; it must be a number from 0 to 4",
    ),
    "SST2": (
        "downstream/SST/binary/sentiment-train",
        "a\t1\nb\t1\n",
        "sentiment-train has rows of 1 class; a classifier needs two or more",
    ),
    "MRPC": (
        "downstream/MRPC/msr_paraphrase_test.txt",
        MRPC + "1\t1\t2\ta\n",
        "msr_paraphrase_test.txt, line 2 has 4 columns, and 5 are needed; repair it",
    ),
    "TREC": ("downstream/TREC/TREC_10.label", "WHAT:x y z\n", "TREC_10.label, line 1 has the label 'WHAT'"),
    "STS13": ("downstream/STS/STS13-en-test/STS.gs.FNWN.txt", "1.0\n", "STS.input.FNWN.txt has 2 lines, and"),
    "SNLI": (
        "downstream/SNLI/labels.dev",
        "neutral\nneutral\n",
        "labels.dev must have as many lines; fetch them again",
    ),
    "Tense": (
        "probing/past_present.txt",
        "tr\tPAST\n",
        "past_present.txt, line 1 must have tr, va or te, a label and a sentence",
    ),
    "captions": ("captions/dev.txt", "a\n", "dev.txt has 1 captions for features [1, 3]; it must have 5 an image"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files(name, home):
    path, text, message = BAD[name]
    (home / path).write_text(text)
    with pytest.raises(UserError) as error:
        parts(home, name)
    assert message in str(error.value)


def test_missing_files_and_unknown_tasks(home, tmp_path):
    with pytest.raises(UserError, match="--tasks=MRR is unknown; did you mean MR?"):
        read_tasks(str(home), "MRR")
    with pytest.raises(UserError, match="has no files of MPQA .MPQA/mpqa.pos, MPQA/mpqa.neg or mpqa.all.; fetch them"):
        read_tasks(str(home), "MPQA")
    with pytest.raises(UserError, match="is not a folder; name the one that holds the files of the tasks"):
        read_tasks(f"{home},{tmp_path / 'nothing'}")
    (tmp_path / "new").mkdir()
    with pytest.raises(UserError, match="holds no task of SentEval"):
        read_tasks(str(tmp_path / "new"))

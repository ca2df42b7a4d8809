"""Probes of the data, on data with one fault each."""

import itertools
import shutil

import numpy as np
import pytest
from PIL import Image
from small import FLAGS, write_text

from train.lab.check import data
from train.lab.check.subject import Subject
from train.screens.console import Log
from train.tasks import resolve, table
from train.training.job import Job


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "text.txt")
    write_text(tmp_path / "eval.txt", seed=1, lines=60)
    return tmp_path


def subject_of(*argv):
    """The data of a run, without a model."""
    run, explicit = resolve.resolve([*FLAGS, *argv], None, None)
    task = table.task_of(run)
    corpus = task.load(run, Log(quiet=True))
    run = resolve.fill_from_data(run, explicit, corpus.sizes, "cpu")
    return Subject(Job(run, task, None), corpus, None, True, None)


def write_rows(path, rows):
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))


TEXT = ("--task=lm", "--data.split=line", "--tokenizer.kind=wordpiece", "--eval-data=eval.txt")


@pytest.mark.slow
def test_good_text_passes_every_probe():
    results = {probe.__name__: probe(subject_of(*TEXT)) for probe in data.PROBES}
    assert {name for name, result in results.items() if result.status == "fail"} == set()
    assert {name for name, result in results.items() if result.status == "not applicable"} == {
        "truncated_texts",
        "label_balance",
        "broken_pictures",
    }


def test_lines_of_the_training_text_in_the_validation_text(home):
    lines = [(home / name).read_text().splitlines() for name in ("text.txt", "eval.txt")]
    (home / "eval.txt").write_text("\n".join([*lines[1], *lines[0][:20]]) + "\n")
    result = data.duplicates(subject_of(*TEXT))
    assert result.status == "fail"
    assert result.measured == pytest.approx(20 / 80)


def test_texts_that_are_made_of_training_texts(home):
    lines = (home / "text.txt").read_text().splitlines()
    copies = "".join(f"then {first} {second}\n" for first, second in itertools.pairwise(lines[:40]))
    (home / "text.txt").write_text("".join(f"{first} {second}\n" for first, second in itertools.pairwise(lines)))
    (home / "eval.txt").write_text(copies)
    subject = subject_of(*TEXT)
    assert data.duplicates(subject).status == "pass"
    assert data.near_duplicates(subject).status == "fail"


def test_passages_are_runs_of_tokens():
    """Against sets of tuples."""
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, 2, size) for size in (0, 5, 13, 14, 200, 12, 40)]
    runs = [tuple(text[n : n + 13]) for text in texts for n in range(len(text) - 12)]
    hashes, owners = data._passages(texts)
    assert np.bincount(owners, minlength=len(texts)).tolist() == [max(0, len(text) - 12) for text in texts]
    assert len(set(zip(runs, hashes.tolist(), strict=True))) == len(set(runs)) == len(set(hashes.tolist()))


def test_words_that_the_tokenizer_does_not_know(home):
    (home / "eval.txt").write_text("\n".join(f"the zebra {n} ran" for n in range(50)))
    result = data.unknown_tokens(subject_of("--task=lm", "--tokenizer.kind=word", "--eval-data=eval.txt"))
    assert result.status == "fail"
    assert "0.000% of the training" in result.detail


def test_a_tokenizer_that_loses_the_way_back():
    subject = subject_of(*TEXT, "--tokenizer.kind=bpe")
    assert data.tokenizer_round_trip(subject).status == "pass"
    subject.corpus.processor.decoder = None  # marks of spaces are then characters of words
    assert data.tokenizer_round_trip(subject).status == "fail"


def test_labels_that_are_nearly_all_the_same(home):
    lines = (home / "text.txt").read_text().splitlines()
    write_rows(home / "rows.tsv", [(line, int(n % 100 == 0)) for n, line in enumerate(lines)])
    subject = subject_of("--task=classify", "--data=rows.tsv")
    assert data.label_balance(subject).status == "fail"
    write_rows(home / "rows.tsv", [(line, n % 2) for n, line in enumerate(lines)])
    result = data.label_balance(subject_of("--task=classify", "--data=rows.tsv"))
    assert result.status == "pass"
    assert result.measured == pytest.approx(0.5, abs=0.05)


def test_texts_that_lose_their_end(home):
    lines = (home / "text.txt").read_text().splitlines()
    write_rows(home / "rows.tsv", [(line, n % 2) for n, line in enumerate(lines)])
    assert data.truncated_texts(subject_of("--task=classify", "--data=rows.tsv")).status == "pass"
    result = data.truncated_texts(subject_of("--task=classify", "--data=rows.tsv", "--batch.length=8"))
    assert (result.status, result.measured) == ("fail", 1.0)


def test_pairs_with_an_empty_side(home):
    lines = (home / "text.txt").read_text().splitlines()
    write_rows(home / "rows.tsv", [(line, line if n % 10 else "") for n, line in enumerate(lines)])
    columns = ("--data=rows.tsv", "--data.field=text,label", "--batch.tokens=256")
    subject = subject_of("--task=translate", *columns)
    assert data.empty_texts(subject).status == "fail"


def test_rows_that_are_mostly_padding():
    assert data.padding_share(subject_of(*TEXT)).status == "pass"
    assert (
        data.padding_share(subject_of(*TEXT, "--data.pack=false", "--batch.length=128", "--model.length=128")).status
        == "fail"
    )


PICTURES = ("--task=image", "--data=pictures", "--eval-data=eval", "--model.input.size=16", "--model.input.patch=8")


def write_pictures(folder, seed):
    """Twenty pictures of noise, in two classes."""
    rng = np.random.default_rng(seed)
    for index in range(20):
        path = folder / "ab"[index % 2] / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (16, 16, 3), np.uint8)).save(path)


@pytest.fixture
def pictures(home):
    """The folder of training pictures; there are others to validate on."""
    write_pictures(home / "eval", 1)
    write_pictures(home / "pictures", 0)
    return home / "pictures"


@pytest.mark.slow
def test_good_pictures_pass_every_probe(pictures):
    results = {probe.__name__: probe(subject_of(*PICTURES)) for probe in data.PROBES}
    assert {name for name, result in results.items() if result.status == "pass"} == {
        "duplicates",
        "label_balance",
        "broken_pictures",
    }
    assert "fail" not in {result.status for result in results.values()}
    assert results["padding_share"].detail == "rows are pictures without texts"


def test_pictures_that_are_trained_on(pictures):
    (pictures / "a" / "0.png").rename(pictures.parent / "eval" / "a" / "0.png")
    shutil.copy(pictures.parent / "eval" / "a" / "0.png", pictures / "b" / "copy.png")
    result = data.duplicates(subject_of(*PICTURES))
    assert (result.status, result.measured) == ("fail", 1 / 20)


def test_pictures_without_content(pictures):
    Image.new("RGB", (16, 16), "white").save(pictures / "a" / "0.png")
    result = data.broken_pictures(subject_of(*PICTURES))
    assert (result.status, result.measured) == ("fail", 1 / 40)
    assert result.detail.endswith("such as pictures/a/0.png")


def test_pictures_that_break_after_they_were_read(pictures):
    subject = subject_of(*PICTURES)
    for name in ("a/2.png", "b/3.png"):
        (pictures / name).write_bytes((pictures / name).read_bytes()[:60])
    assert data.broken_pictures(subject).measured == 2 / 40


@pytest.mark.slow
def test_labels_of_pictures_that_are_all_the_same(pictures):
    for path in (pictures / "b").iterdir():
        path.rename(pictures / "a" / path.name)
    (pictures / "a" / "1.png").rename(pictures / "b" / "1.png")
    assert data.label_balance(subject_of(*PICTURES)).status == "pass"  # 95 % is the limit
    (pictures / "a" / "3.png").unlink()
    noise = np.random.default_rng(2).integers(0, 256, (9, 16, 16, 3), np.uint8)
    for index, pixels in enumerate(noise):
        Image.fromarray(pixels).save(pictures / "a" / f"more{index}.png")
    assert data.label_balance(subject_of(*PICTURES)).status == "fail"


@pytest.mark.parametrize(
    "flags",
    [
        "--task=mlm --data.split=line",
        "--task=mlm --task.nsp=true",
        "--task=lm --task.windows=true",
        "--task=tag --data=builtin",
        "--task=span --data=builtin",
        "--task=choice --data=builtin",
    ],
)
@pytest.mark.slow
def test_examples_are_all_tokens(flags):
    """The texts that the probes see have the tokens that the rows have."""
    rows = subject_of(*flags.split()).corpus.train[0]
    examples = [np.asarray(ids) for ids in rows.example_ids()]
    assert sum(map(len, examples)) > 0
    assert all(ids.ndim == 1 for ids in examples)
    if "span" not in flags and "choice" not in flags:
        assert abs(sum(map(len, examples)) - rows.tokens) <= 1

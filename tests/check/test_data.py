"""Probes of the data, on data with one fault each."""

import itertools

import numpy as np
import pytest
from small import FLAGS, write_text

from train import tasks
from train.check import data
from train.check.subject import Subject
from train.reporting.console import Log
from train.settings import resolve
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
    task = tasks.find(run.task.name)
    corpus = task.load(run, Log(quiet=True))
    run = resolve.fill_from_data(run, explicit, corpus.sizes, "cpu")
    return Subject(Job(run, task, None), corpus, None, True, None)


def write_rows(path, rows):
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))


TEXT = ("--task=lm", "--data.split=line", "--tokenizer.kind=wordpiece", "--eval-data=eval.txt")


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

"""A store of tokens has the rows that the same text has in memory, and says what is wrong with it."""

import numpy as np
import pytest
from data.store.documents import DOCUMENTS, write

from train import UserError, prepare
from train.screens.console import Log
from train.tasks import resolve, table

pytestmark = pytest.mark.usefixtures("cache")

FLAGS = ("--tokenizer.kind=bpe", "--tokenizer.vocab=300")


@pytest.fixture(scope="module")
def folder(cache, tmp_path_factory):
    """Two files, their stores, of one shard each, and a store of the first one in several shards."""
    folder = tmp_path_factory.mktemp("stores")
    write(folder / "train.jsonl", DOCUMENTS[:250])
    write(folder / "valid.jsonl", DOCUMENTS[250:])
    make(folder / "train", f"--data={folder}/train.jsonl", *FLAGS)
    path = f"--tokenizer.path={folder}/train/tokenizer.json"
    make(folder / "valid", f"--data={folder}/valid.jsonl", path)
    make(folder / "shards", f"--data={folder}/train.jsonl", path, "--shard=1000")
    return folder


def make(store, *argv):
    """Makes a store in this process."""
    assert prepare.main([f"--to={store}", "--length=32", "--hold-out=0", "--runner=here", *argv]) == 0


def corpus_of(*argv):
    run = resolve.resolve([*argv, "--batch.size=8", "--batch.length=32", "--steps=40"], None, None)[0]
    return table.task_of(run).load(run, Log(quiet=True))


def equal(first, second):
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


TASKS = {
    "mlm": ["--task=mlm"],
    "whole words": ["--task=mlm", "--task.whole-words=true"],
    "lm": ["--task=lm", "--model.length=32"],
    "windows": ["--task=lm", "--model.length=32", "--task.windows=true"],
    "stride": ["--task=lm", "--model.length=32", "--task.stride=5"],
    "bilm": ["--task=bilm"],
}


@pytest.mark.parametrize("name", TASKS)
def test_batches_are_those_of_the_text(folder, name):
    """Every batch, of several epochs, of training and of validation, bit for bit."""
    tokenizer = f"--tokenizer.path={folder}/train/tokenizer.json"
    text = corpus_of(*TASKS[name], f"--data={folder}/train.jsonl", f"--eval-data={folder}/valid.jsonl", tokenizer)
    store = corpus_of(*TASKS[name], f"--data={folder}/train", f"--eval-data={folder}/valid")
    assert [len(text.train[0]), text.valid.tokens, text.padding] == [
        len(store.train[0]),
        store.valid.tokens,
        store.padding,
    ]
    for n in (0, 1, 17, 1000):
        equal(text.batch(n), store.batch(n))
    for first, second in zip(text.valid_batches(), store.valid_batches(), strict=True):
        equal(first, second)
    assert [ids.tolist() for ids in text.train[0].example_ids()] == [
        ids.tolist() for ids in store.train[0].example_ids()
    ]
    assert text.facts()["train_tokens"] == store.facts()["train_tokens"]
    assert table.task_of(text.run).baselines(text) == table.task_of(store.run).baselines(store)
    assert store.overview()["tokens"].startswith(f"{text.train[0].tokens:,} to train on")


@pytest.mark.parametrize("name", TASKS)
def test_several_shards_have_every_token_once(folder, name):
    single, several = (
        corpus_of(*TASKS[name], f"--data={folder}/{store}", f"--eval-data={folder}/valid")
        for store in ("train", "shards")
    )
    assert len(several.train[0].text.shards) > 5
    joined = [
        np.concatenate([*corpus.train[0].example_ids()]) if name != "windows" else None for corpus in (single, several)
    ]
    if joined[0] is not None:
        np.testing.assert_array_equal(*joined)
    if "weights" in single.batch(0) and "task=lm" in TASKS[name][0]:
        totals = [
            corpus.train[0].batch(np.arange(len(corpus.train[0])), np.random.default_rng(0))["weights"].sum()
            for corpus in (single, several)
        ]
        assert totals[0] == totals[1], "a target for every token, and for every mark behind a document"


def test_a_mixture_of_stores(folder):
    """Rows of each source come as often as its share says; run.json keeps the integers."""
    stores = f"--data={folder}/train,{folder}/valid"
    corpus = corpus_of("--task=mlm", stores, f"--eval-data={folder}/valid", "--data.mixture=train:1,valid:3")
    assert corpus.facts()["mixture"] == [[0, {"train": 1 << 22, "valid": 3 << 22}]]
    sources, _ = corpus.rows(3)
    assert np.bincount(sources).tolist() == [2, 6]
    lengths = corpus.facts()["sources"]
    tokens = {
        name: corpus_of("--task=mlm", f"--data={folder}/{name}", f"--eval-data={folder}/valid") for name in lengths
    }
    assert corpus.overview()["sources"] == "; ".join(
        f"{name} {tokens[name].train[0].tokens:,} tokens, {count} rows, {count / lengths[name]:.2f} epochs"
        for name, count in {"train": 80, "valid": 240}.items()
    )
    assert corpus.source_metrics(0, {}) == {"epochs/train": 0, "epochs/valid": 0}
    epochs = {"epochs/train": 80 / lengths["train"], "epochs/valid": 240 / lengths["valid"]}
    assert corpus.source_metrics(40, {}) == epochs
    assert tokens["train"].source_metrics(40, {}) == {}
    whole_batch = corpus.batch(3)
    half = corpus.batch(3, lambda rows: np.arange(rows) < 4)
    kept = half["segments"].any(1)
    assert kept[:4].all()
    np.testing.assert_array_equal(half["tokens"][:4], whole_batch["tokens"][:4])


def test_what_a_store_cannot_do(folder):
    for words, sentence in {
        ("--task=mlm", "--task.nsp=true"): "is a store of tokens, and what was asked for needs the text",
        ("--task=skipthought",): "is a store of tokens, and what was asked for needs the text",
        ("--task=mlm", "--data.folds=3"): "--data.folds=3 divides a text, and a store is divided already",
        ("--task=mlm", "--batch.length=16"): "has no plan of rows of 16 tokens; make one with python -m train.prepare",
        ("--task=mlm", "--data.pack=false"): "--length=32 --pack=false",
        ("--task=mlm", "--tokenizer.kind=bpe", "--tokenizer.dropout=0.1"): "a store has one segmentation",
        ("--task=lm", "--model.length=32", "--task.score-from=cat"): "--task.score-from=cat looks through the text",
    }.items():
        argv = [f"--data={folder}/train", f"--eval-data={folder}/valid", "--batch.length=32", *words]
        run = resolve.resolve(argv, None, None)[0]
        with pytest.raises(UserError) as error:
            table.task_of(run).load(run, Log(quiet=True))
        assert sentence in str(error.value)
    with pytest.raises(UserError, match="holds out no text for validation; name some with --eval-data"):
        corpus_of("--task=mlm", f"--data={folder}/train")


@pytest.mark.parametrize("name", ["lm", "windows", "stride", "bilm"])
def test_validation_batches_are_of_one_source(folder, name):
    """Those of two stores are those of one, and then those of the second one."""
    corpora = {
        stores: corpus_of(*TASKS[name], f"--data={folder}/train", "--eval-data=" + stores.replace("/", f"{folder}/"))
        for stores in ("/train,/valid", "/train", "/valid")
    }
    both, first, second = corpora.values()
    assert sum(both.facts()["eval_sources"].values()) == len(both.valid) == len(first.valid) + len(second.valid)
    alone = [*first.valid_batches(), *second.valid_batches()]
    for batch in alone:
        batch.pop("bytes", None)  # those of a target are the mean of all sources
    for together, expected in zip(both.valid_batches(), alone, strict=True):
        equal({name: together[name] for name in expected}, expected)
    sources = [part.source for part in both.valid_parts()]
    assert sources == ["train"] * len([*first.valid_batches()]) + ["valid"] * len([*second.valid_batches()])
    assert first.valid_parts() == []
    limited = both.valid_parts(3)
    assert [part.source for part in limited].count("valid") == 1
    for part, batch in zip(limited, both.valid_batches(3), strict=True):
        equal({name: batch[name] for name in alone[part.batch]}, alone[part.batch])

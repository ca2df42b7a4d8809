"""Tables of tokens that start from vectors of words, trained or frozen."""

import jax
import numpy as np
import pytest
from small import FLAGS, call, run, write_text

import tfm
from train import UserError
from train.main import main
from train.runs.run_folder import open_folder
from train.runs.tuning import specs_of
from train.screens.console import Log
from train.settings import schema
from train.tasks import resolve, table
from train.text import tokenize
from train.training import initial_vectors

WORDS = ("cat", "dog", "the")


def write_vectors(path, size):
    """A vector for each word, and for one that no text has."""
    rng = np.random.default_rng(0)
    vectors = {word: rng.normal(size=size).round(3) for word in (*WORDS, "zebra")}
    lines = [f"{word} {' '.join(map(str, vector))}" for word, vector in vectors.items()]
    path.write_text("\n".join([f"{len(lines)} {size}", *lines]) + "\n")
    return vectors


def test_words_have_their_vectors_and_other_tokens_keep_theirs(tmp_path):
    vectors = write_vectors(tmp_path / "words.vec", 6)
    tokenizer = tokenize.train(schema.Tokenizer(vocab=300), ["The cat saw the dog and a catalogue."] * 30)
    size = tokenizer.get_vocab_size()
    drawn = np.full((size + 2, 6), 7, np.float32)
    filled = initial_vectors._filled(drawn.copy(), str(tmp_path / "words.vec"), tokenizer, Log(quiet=True))
    words = {token: tokenizer.id_to_token(token).lower() for token in range(size)}
    for token in range(size):
        expected = vectors.get(words[token], drawn[token])
        np.testing.assert_allclose(filled[token], expected, rtol=1e-6, err_msg=words[token])
    assert sum((row != 7).any() for row in filled) >= len(WORDS)
    np.testing.assert_array_equal(filled[size:], 7)


@pytest.mark.parametrize(
    ("size", "words", "sentence"),
    [
        (6, "the cat sat", "has vectors of 6 numbers, and tokens have 4; add --model.input.width=6"),
        (4, "nobody was here", "has a vector for no token; take a file of the language of the text"),
    ],
)
def test_files_that_do_not_fit(size, words, sentence, tmp_path):
    write_vectors(tmp_path / "words.vec", size)
    tokenizer = tokenize.train(schema.Tokenizer(vocab=300), [words] * 30)
    table_of_tokens = np.zeros((tokenizer.get_vocab_size(), 4), np.float32)
    with pytest.raises(UserError, match=sentence):
        initial_vectors._filled(table_of_tokens, str(tmp_path / "words.vec"), tokenizer, Log(quiet=True))


@pytest.mark.parametrize("task", ["classify", "translate"])
def test_tables_are_frozen(task):
    run_of = resolve.resolve([f"--task={task}", "--freeze-embeddings=true", "--model.vocab=300"], None, None)[0]
    specs = specs_of(table.task_of(run_of), run_of)
    frozen = [
        jax.tree_util.keystr(path) for path, spec in jax.tree_util.tree_leaves_with_path(specs) if not spec.trained
    ]
    assert frozen
    assert all(name.endswith(".embed.tokens") for name in frozen)


@pytest.mark.slow
def test_a_run_keeps_or_trains_its_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "text.txt")
    vectors = write_vectors(tmp_path / "words.vec", 32)
    tables = {}
    for name in ("true", "false"):
        err = run("--task=mlm", *FLAGS, "--init-embeddings=words.vec", f"--freeze-embeddings={name}", f"--out={name}")
        assert "tokens start from the vector of their word" in err
        folder = open_folder(name)
        params = folder.load(tfm.make_mesh(devices=jax.devices()[:1]), print)
        tables[name] = np.asarray(params.encoder.embed.tokens)[folder.processor.token_to_id("cat")]
    np.testing.assert_allclose(tables["true"], vectors["cat"], rtol=1e-6)
    assert abs(tables["false"] - vectors["cat"]).max() > 1e-4
    flags = ("--data=text.txt", "--init=true", "--init-embeddings=words.vec", "--out=again")
    code, _, err = call(main, "--task=mlm", *flags)
    assert code == 2
    assert "is for a new model, which --init or --teacher is not" in err

"""What train.predict says of plain text: blanks that are filled, perplexities, translations."""

import dataclasses
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params

import tfm
from train import UserError
from train.screens.console import Log
from train.settings import schema
from train.settings.predict import PredictOptions
from train.tasks.lm.options import Lm
from train.tasks.lm.task import LM
from train.tasks.mlm.options import Mlm
from train.tasks.mlm.predict import blank_rows
from train.tasks.mlm.task import MLM
from train.text import tokenize
from train.text.special import words_have_spaces

SENTENCES = ["the cat sat on the mat", "a dog ran over the old house", "birds flew under a tree"] * 20
LENGTH = 16
QUIET = Log(quiet=True)


def folder_of(kind, task, **data):
    """A folder of a run whose tokenizer has learned the sentences."""
    options = schema.Tokenizer(kind=kind, vocab=300)
    tokenizer = tokenize.train(options, SENTENCES)
    model = tfm.Config(layers=2, heads=2, width=16, ffn=32, vocab=tokenizer.get_vocab_size(), length=LENGTH)
    run = schema.Run(task=task, model=model, batch=schema.Batch(length=LENGTH), data=schema.Data(**data))
    return SimpleNamespace(path="run", config=run, processor=tokenizer, text_prefix=[], facts={})


def options(**values):
    return PredictOptions(**{"run": "run", "top_k": 3, "batch": 2, **values})


def filled(folder, params, **values):
    chosen = options(**values)
    return list(MLM.predictor.predict(params, folder, MLM.predictor.inputs(chosen, folder), QUIET, chosen.batch))


@pytest.fixture(scope="module")
def mlm():
    """A folder of a masked language model, and its parameters."""
    folder = folder_of("wordpiece", Mlm())
    return folder, random_params(tfm.masked_lm_specs(folder.config.model))


def test_blanks_are_filled_as_the_model_says(mlm):
    """Row by row, without padding, and in the order of the file."""
    folder, params = mlm
    text = "the [MASK] sat on a <mask>"
    (prediction,) = filled(folder, params, text=text)
    ids = folder.processor.encode("[CLS] the [MASK] sat on a [MASK] [SEP]", add_special_tokens=False).ids
    places = [n for n, token in enumerate(ids) if token == folder.processor.token_to_id("[MASK]")]
    masked_lm = jax.jit(tfm.masked_lm, static_argnums=1)
    logits = masked_lm(params, folder.config.model, jnp.asarray([ids]), jnp.asarray([places]))[0]
    for blank, row in zip(prediction.row["blanks"], np.asarray(jax.nn.softmax(logits)), strict=True):
        best = np.argsort(-row)[:3]
        assert [guess["token"] for guess in blank] == [folder.processor.id_to_token(int(token)) for token in best]
        assert [guess["probability"] for guess in blank] == pytest.approx(row[best].tolist(), rel=1e-4)
    first, second = prediction.line.split("\t")
    assert first.split()[::2] == [guess["token"] for guess in prediction.row["blanks"][0]]
    assert len(second.split()) == 6


def test_a_file_is_filled_in_its_order(mlm, tmp_path):
    folder, params = mlm
    texts = ["the cat sat on the [MASK] and the [MASK]", "", "a [MASK]", "[MASK] flew"]
    (tmp_path / "a.md").write_text("\n".join(texts) + "\n")
    data = dataclasses.replace(folder.config.data, format="text")
    textual = SimpleNamespace(**{**vars(folder), "config": dataclasses.replace(folder.config, data=data)})
    rows = filled(textual, params, file=str(tmp_path / "a.md"))
    assert [row.row["text"] for row in rows] == texts
    for text, row in zip(texts, rows, strict=True):
        lines = [single.line for single in filled(folder, params, text=text)] if text else [""]
        assert [row.line] == lines
    with pytest.raises(UserError, match=r"a.md is not a .txt, .* --data.format=text"):
        filled(folder, params, file=str(tmp_path / "a.md"))


def test_a_long_text_is_read_around_its_blank(mlm):
    folder, params = mlm
    text = "the cat sat on the old mat " * 9 + "[MASK] " + "a dog ran over the house " * 9
    (row,) = blank_rows(folder.processor, text, 0, LENGTH, False)
    ids = folder.processor.encode(text, add_special_tokens=False).ids
    place = ids.index(folder.processor.token_to_id("[MASK]"))
    assert len(row.tokens) == LENGTH
    assert row.tokens[row.place] == ids[place]
    assert row.tokens[row.place - 5 : row.place + 6].tolist() == ids[place - 5 : place + 6]
    (prediction,) = filled(folder, params, text=text)
    assert len(prediction.row["blanks"][0]) == 3


@pytest.mark.parametrize("kind", ["bpe", "char", "word"])
def test_a_blank_has_no_space_of_its_own_where_words_have_them(kind):
    folder = folder_of(kind, Mlm())
    joins = words_have_spaces(folder.processor, "[MASK]")
    (row,) = blank_rows(folder.processor, "cat [MASK] on", 0, LENGTH, joins)
    shown = [folder.processor.id_to_token(int(token)) for token in row.tokens[1:-1]]
    assert "".join(shown).replace("\u0120", " ") == {"bpe": "cat[MASK] on", "char": "cat [MASK] on"}.get(
        kind, "cat[MASK]on"
    )


def test_texts_without_blanks_are_refused(mlm, tmp_path):
    folder, params = mlm
    (tmp_path / "a.txt").write_text("a [MASK]\n\nthe cat\n")
    with pytest.raises(UserError, match=r"text 3 of .*a.txt has no blank to fill; write \[MASK\]"):
        MLM.predictor.inputs(options(file=str(tmp_path / "a.txt")), folder)
    with pytest.raises(UserError, match="--text has no blank"):
        MLM.predictor.inputs(options(text="the cat"), folder)
    drawn = MLM.predictor.attended(options(text="the cat", attention="cat.html"), folder).tokens
    assert [folder.processor.id_to_token(token) for token in drawn.tolist()] == ["[CLS]", "the", "cat", "[SEP]"]
    with pytest.raises(UserError, match="without the head that fills blanks"):
        filled(folder, params.encoder, text="a [MASK]")


@pytest.mark.parametrize("prefix", [[], [3]])
@pytest.mark.parametrize("stride", [None, 3])
def test_perplexity_is_that_of_the_tokens(prefix, stride):
    """A loop over tokens: each is predicted from those before it in its window."""
    folder = folder_of("wordpiece", Lm(stride=stride))
    folder.text_prefix = prefix
    params = random_params(tfm.causal_lm_specs(folder.config.model), 1)
    texts = ["the cat sat", "", " ".join(SENTENCES[:9]), "a dog"]
    predictions = list(LM.predictor.predict(params, folder, texts, QUIET, 3))
    stride = stride or LENGTH // 2
    causal_lm = jax.jit(tfm.causal_lm, static_argnums=1)
    for text, prediction in zip(texts, predictions, strict=True):
        tokens = [*prefix, *folder.processor.encode(text, add_special_tokens=False).ids]
        losses = []
        for place in range(1, len(tokens)):
            start = 0
            while place > start + LENGTH:  # the first window that has it
                start += stride
            row = np.zeros((1, LENGTH), np.int32)
            row[0, : place - start] = tokens[start:place]
            logits = np.asarray(causal_lm(params, folder.config.model, row)[0, place - start - 1], np.float64)
            losses.append(np.log(np.exp(logits).sum()) - logits[tokens[place]])
        assert prediction.row["tokens"] == len(losses)
        if not losses:
            assert (prediction.line, prediction.row["perplexity"]) == ("", None)
            continue
        assert prediction.row["perplexity"] == pytest.approx(math.exp(np.mean(losses)), rel=1e-4)
        assert prediction.row["bits_per_byte"] == pytest.approx(sum(losses) / math.log(2) / len(text), rel=1e-4)
        assert prediction.line == "{perplexity:.4f}\t{bits_per_byte:.4f}".format(**prediction.row)

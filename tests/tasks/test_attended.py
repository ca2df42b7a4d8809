"""train.predict --attention: the weights of a text as a page that needs no network, and as a picture."""

import base64
import json
import re
import shutil
import subprocess
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from random_params import random_params
from small import call, run

import tfm
from train import UserError, predict
from train.attention import maps, pictures
from train.attention.maps import AttentionMap
from train.screens.console import Log
from train.settings import schema
from train.tasks.classify.predict import attended
from train.tasks.lm.task import LM
from train.tasks.mlm.options import Mlm
from train.tasks.mlm.task import MLM
from train.text import tokenize

SENTENCES = ["the cat sat on the mat", "a dog ran over the old house", "birds flew under a tree"] * 20
QUIET = Log(quiet=True)


def folder_of(kind="wordpiece", **values):
    tokenizer = tokenize.train(schema.Tokenizer(kind=kind, vocab=300), SENTENCES)
    sizes = {"layers": 2, "heads": 2, "width": 16, "ffn": 32, "vocab": tokenizer.get_vocab_size(), "length": 16}
    config = schema.Run(task=Mlm(), model=tfm.override(tfm.Config(**sizes), values), batch=schema.Batch(length=16))
    return SimpleNamespace(path="run", config=config, processor=tokenizer, text_prefix=[], facts={})


def options(**values):
    return SimpleNamespace(**{"text": "", "pair": "", **values})


def data_of(page):
    """What a page shows: its maps, with weights as float [N,T,S]."""
    (text,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    data = json.loads(text)
    for shown in data["maps"]:
        for layer in shown["layers"]:
            codes = np.frombuffer(base64.b64decode(layer["weights"]), np.uint8)
            layer["weights"] = codes.reshape(layer["heads"], len(shown["queries"]), len(shown["keys"])) / 255
    return data


def test_a_page_holds_the_weights_of_the_first_layer():
    """They are the softmax of products of queries and keys, computed here in numpy; a blank is read as [MASK]."""
    folder = folder_of()
    model = folder.config.model
    params = random_params(tfm.masked_lm_specs(model))
    row = MLM.predictor.attended(options(text="the [MASK] sat on a mat"), folder)
    (shown,) = maps.attention_maps(params, folder, row, QUIET)
    assert shown.queries == shown.keys == ["[CLS]", "the", "[MASK]", "sat", "on", "a", "mat", "[SEP]"]
    x = np.asarray(tfm.embed(params.encoder.embed, model, row.tokens[None]))[0]
    layer = jax.tree.map(lambda leaf: np.asarray(leaf)[0], params.encoder.layers.period[0].mixer)
    q = np.einsum("td,dkgh->kgth", x, layer.query.kernel) + layer.query.bias[:, :, None]
    k = np.einsum("td,dkh->kth", x, layer.key.kernel) + layer.key.bias[:, None]
    scores = np.exp(np.einsum("kgth,ksh->kgts", q, k).reshape(2, 8, 8) / np.sqrt(8))
    data = data_of(pictures.page("<b>", [shown]))
    (from_page,) = data["maps"]
    assert data["title"] == "<b>"
    assert [layer["layer"] for layer in from_page["layers"]] == [1, 2]
    expected = scores / scores.sum(-1, keepdims=True)
    np.testing.assert_allclose(from_page["layers"][0]["weights"], expected, atol=0.5 / 255 + 1e-4)


def test_a_decoder_sees_no_later_token_and_a_pair_has_both_texts():
    folder = folder_of("bpe")
    row = LM.predictor.attended(options(text="the cat sat"), folder)
    (shown,) = maps.attention_maps(random_params(tfm.causal_lm_specs(folder.config.model)), folder, row, QUIET)
    assert shown.title == "decoder"
    assert all((np.triu(head, 1) == 0).all() for head in shown.layers[1])
    pair = attended(options(text="the cat", pair="a dog ran"), folder_of())
    assert pair.second == 4
    assert len(pair.tokens) == 8


def test_a_page_is_one_file_of_a_megabyte_at_most():
    words = ["word"] * 64
    large = AttentionMap(
        "encoder", words, words, dict.fromkeys(range(1, 13), np.full((12, 64, 64), 1 / 64, np.float32))
    )
    page = pictures.page("a </script> in the text", [large])
    assert len(page.encode()) <= 1_000_000
    assert page.count("</script>") == 2
    assert set(re.findall(r"https?://[^\s\"']+", page)) == {"http://www.w3.org/2000/svg"}, "the name of a format"
    assert not re.search(r"(?:src|href)=", page)


@pytest.mark.parametrize(
    ("to", "text", "said"),
    [
        ("a.pdf", "a text", "must end in .html or .png"),
        ("a.html", "", "name it with --text"),
        ("nowhere/a.html", "a text", "its folder is not there"),
    ],
)
def test_bad_input_is_a_sentence(to, text, said):
    with pytest.raises(UserError, match=re.escape(said)):
        pictures.check(to, text)


def test_a_model_without_weights_and_a_long_text_are_refused():
    folder = folder_of(mixer="fnet", position="none")
    params = random_params(tfm.masked_lm_specs(folder.config.model))
    row = MLM.predictor.attended(options(text="the [MASK] sat"), folder)
    with pytest.raises(UserError, match="mixer=fnet has none"):
        maps.attention_maps(params, folder, row, QUIET)
    folder = folder_of("bpe")
    row = LM.predictor.attended(options(text="the cat " * 20), folder)
    with pytest.raises(UserError, match="the model has 16 positions; shorten it"):
        maps.attention_maps(random_params(tfm.causal_lm_specs(folder.config.model)), folder, row, QUIET)


@pytest.mark.slow
def test_a_translation_shows_three_maps(tmp_path):
    """In a browser, where there is one: the words of a map, and lines from the chosen word alone."""
    sizes = ("--model.layers=2", "--model.width=16", "--model.heads=2", "--model.ffn=32")
    run("--task=translate", *sizes, "--steps=2", "--eval.batches=1", f"--out={tmp_path / 'run'}", "--eval.final=false")
    page, picture = tmp_path / "a.html", tmp_path / "a.png"
    words = (f"--run={tmp_path / 'run'}", "--text=the old teacher sees the dog")
    for to in (page, picture):
        code, _, err = call(predict.main, *words, f"--attention={to}")
        assert code == 0, err
    assert picture.read_bytes().startswith(b"\x89PNG")
    shown = data_of(page.read_text())["maps"]
    assert [name["title"] for name in shown] == ["decoder to encoder", "encoder", "decoder"]
    if browser := shutil.which("chromium"):
        dump = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", "--dump-dom"]
        page_text = subprocess.run(
            [*dump, f"{page.as_uri()}#1,1,0,2"], capture_output=True, text=True, check=True
        ).stdout
        lines = (shown[1]["layers"][1]["weights"][0, 2] >= 0.02).sum()
        assert page_text.count("<line ") == lines > 0

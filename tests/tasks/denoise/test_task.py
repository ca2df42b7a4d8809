"""Denoising as a task: sentinels of tokenizers, what a run learns, and what goes on from one."""

import json
from pathlib import Path

import numpy as np
import pytest
from small import FLAGS, call, run, write_pairs, write_text
from tokenizers import Tokenizer, models

from train import UserError
from train.evaluate import main as evaluate
from train.export import main as export
from train.main import main
from train.text import sentinels

DENOISE = ["--task=denoise", *FLAGS, "--model.heads=2"]


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "text.txt")


def test_sentinels_count_down_from_the_end_of_the_vocabulary():
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    sentinels.add(tokenizer, 3)
    assert sentinels.ids_of(tokenizer, 3) == [4, 3, 2]
    sentinels.add(tokenizer, 3)
    assert tokenizer.get_vocab_size() == 5, "a tokenizer that has them stays as it is"
    with pytest.raises(UserError, match="the tokenizer has 3 sentinels, <extra_id_0> and so on, and rows need 5"):
        sentinels.ids_of(tokenizer, 5)


def test_a_tokenizer_with_too_few_sentinels_is_refused(text):
    code, out, err = call(main, *DENOISE, "--tokenizer.sentinels=1", "--out=few")
    assert (code, out) == (2, "")
    assert "make a tokenizer with --tokenizer.sentinels=2" in err


@pytest.mark.slow
@pytest.mark.parametrize("noise", [[], ["--task.mixture=r:2,s:1,x:4"], ["--task.noise=infilling", "--task.rate=0.3"]])
def test_a_resumed_run_has_the_losses_of_one_that_was_not_interrupted(text, noise):
    run(*DENOISE, *noise, "--out=once")
    run(*DENOISE, *noise, "--stop-at=4", "--out=twice")
    run("--resume", "--out=twice")
    results = [json.loads(Path(name, "result.json").read_text())["eval_loss"] for name in ("once", "twice")]
    assert results[0] == results[1]
    code, out, err = call(evaluate, "--run=once")
    assert code == 0, err
    assert json.loads(out)["loss"] == pytest.approx(results[0], rel=1e-6)


@pytest.mark.slow
def test_a_short_run_learns(tmp_path, monkeypatch):
    """Words of equal frequencies: targets are guessed better than by these, at least where sentinels stand."""
    monkeypatch.chdir(tmp_path)
    write_pairs(tmp_path / "text.txt", 8)
    flags = [flag for flag in DENOISE if not flag.startswith(("--steps", "--eval.every", "--checkpoint.every"))]
    run(*flags, "--steps=600", "--optim.rate=1e-2", "--tokenizer.kind=word", "--task.span=1", "--out=run")
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["eval_loss"] < 0.7 * result["eval_unigram_loss"]


@pytest.mark.slow
def test_translation_goes_on_from_a_run(text):
    run(*DENOISE, "--out=denoise")
    pairs = "\n".join(f"the cat sat {n}\tthe dog ran {n}" for n in range(60))
    Path("pairs.tsv").write_text(f"en\tde\n{pairs}\n")
    err = run(
        *("--task=translate", "--init=denoise", "--data=pairs.tsv", "--steps=2", "--batch.tokens=128"),
        *("--batch.length=16", "--task.bleu=2", "--out=translate"),
    )
    assert "fresh" not in err
    saved = json.loads(Path("translate/run.json").read_text())
    assert saved["config"]["model"]["position"]["name"] == "t5"


@pytest.mark.slow
@pytest.mark.parity
def test_losses_are_those_of_transformers(text):
    """T5ForConditionalGeneration on a row of the run, from the exported folder."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    run(*DENOISE, "--out=denoise")
    code, _, err = call(export, "--run=denoise", "--to=folder")
    assert code == 0, err
    from train.runs.run_folder import open_folder
    from train.screens.console import Log

    folder = open_folder("denoise")
    batch = folder.task.load(folder.config, Log(quiet=True), folder).valid.batch(np.arange(4), np.random.default_rng(0))
    sums = folder.task.loss(folder.load(log=lambda line: None), folder.config.model, batch, None)
    model = transformers.T5ForConditionalGeneration.from_pretrained("folder").eval()
    tensors = {name: torch.from_numpy(field) for name, field in batch.items()}
    labels = torch.where(tensors["weights"] > 0, tensors["targets"], -100).long()
    with torch.no_grad():
        expected = model(
            input_ids=tensors["tokens"].long(), attention_mask=tensors["valid"].long(), labels=labels,
            decoder_input_ids=tensors["target"].long(),
        ).loss  # fmt: skip
    assert float(sums["loss"]) / float(sums["weight"]) == pytest.approx(float(expected), abs=1e-5)
    tokenizer = transformers.AutoTokenizer.from_pretrained("folder")
    assert tokenizer.convert_tokens_to_ids("<extra_id_0>") == len(tokenizer) - 1

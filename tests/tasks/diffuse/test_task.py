"""Masked diffusion as a task: its loss against plain numbers, its bound by enumeration, runs, and what they write."""

import itertools
import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params
from small import FLAGS, call, run, write_pairs, write_text

import tfm
from train.evaluate import main as evaluate
from train.export import main as export
from train.generate import main as generate
from train.tasks.diffuse.rows import masks
from train.tasks.diffuse.task import DIFFUSE, loss

BASE = "--task=diffuse --preset=diffusion-base --optim.ema=none --optim.warmup=0.15 --optim.rate=2.5e-3".split()
SMALL = [*BASE, *FLAGS, "--model.dropout=0"]
MODEL = tfm.Config(layers=1, heads=2, width=16, vocab=20, length=12, pad_vocab_to=4)


def example(rows=3, length=10):
    """The last row has padding."""
    rng = np.random.default_rng(0)
    targets = rng.integers(5, 20, (rows, length)).astype(np.int32)
    sizes = np.array([length] * (rows - 1) + [6])
    masked, weights = masks(rng.random(rows), rng.random((rows, length)), sizes, True)
    return {
        "tokens": np.where(masked, 4, targets).astype(np.int32),
        "valid": (np.arange(length) < sizes[:, None]).astype(np.int32),
        "targets": targets,
        "weights": (masked * weights[:, None]).astype(np.float32),
        "bytes": np.float32(3 * sizes),
    }


@pytest.mark.slow
def test_loss_and_gradients_are_those_of_plain_sums():
    params, batch = random_params(tfm.masked_lm_specs(MODEL)), example()

    def plain(params):
        total = 0.0
        for row in range(len(batch["tokens"])):
            size = int(batch["valid"][row].sum())
            tokens = batch["tokens"][row : row + 1, :size]
            hidden = np.flatnonzero(batch["weights"][row])
            where = jnp.asarray(hidden)[None]
            logits = tfm.masked_lm(params, MODEL, tokens, where)[0, :, :20]
            chosen = jax.nn.log_softmax(logits)[jnp.arange(len(hidden)), batch["targets"][row, hidden]]
            total -= size / len(hidden) * chosen.sum()
        return total

    value, wanted = jax.jit(jax.value_and_grad(plain))(params)
    total = lambda params: loss(params, MODEL, batch, None)["loss"]
    computed, grads = jax.jit(jax.value_and_grad(total))(params)
    assert float(computed) == pytest.approx(float(value), rel=1e-5)
    for (path, grad), expected in zip(jax.tree_util.tree_leaves_with_path(grads), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(grad, expected, atol=1e-5 * max(1, np.abs(expected).max()), err_msg=str(path))
    sums = loss(params, MODEL, batch, None)
    assert float(sums["weight"]) == 26
    assert float(sums["bytes"]) == 78


@pytest.mark.slow
def test_the_bound_of_a_model_is_its_mean_over_orders():
    """A model that reads 4 tokens of 3 kinds: all subsets of masks in one batch, against all 24 orders."""
    params = random_params(tfm.masked_lm_specs(MODEL))
    subsets = [set(s) for count in range(1, 5) for s in itertools.combinations(range(4), count)]
    text = np.array([5, 7, 6, 5], np.int32)
    masked = np.array([[place in subset for place in range(4)] for subset in subsets])
    tokens = np.where(masked, 4, text).astype(np.int32)
    batch = {
        "tokens": tokens,
        "valid": np.ones_like(tokens),
        "targets": np.tile(text, (len(subsets), 1)),
        "weights": np.float32([row * 4 / row.sum() / math.comb(4, row.sum()) / 4 for row in masked]),
        "bytes": np.ones(len(subsets), np.float32),
    }
    bound = float(loss(params, MODEL, batch, None)["loss"])
    where = np.tile(np.arange(4), (len(subsets), 1))
    logits = np.float64(tfm.masked_lm(params, MODEL, tokens, where))[..., :20]
    logprobs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    index = {frozenset(subset): n for n, subset in enumerate(subsets)}
    by_orders = 0.0
    for order in itertools.permutations(range(4)):
        for step, place in enumerate(order):
            by_orders -= logprobs[index[frozenset(order[step:])], place, text[place]] / 24
    assert bound == pytest.approx(by_orders, rel=1e-6)


def test_steps_uncover_all_in_parts():
    plan = tfm.Unmasking(steps=4).counts(10)
    assert [count for _, count in plan] == [2, 3, 3, 2]
    assert {end for end, _ in plan} == {10}
    plan = tfm.Unmasking(steps=100).counts(3)
    assert plan == [(3, 1)] * 3
    plan = tfm.Unmasking(steps=4, block=5).counts(10)
    assert [end for end, _ in plan] == [5, 5, 10, 10]
    assert sum(count for _, count in plan) == 10
    assert sum(count for _, count in tfm.Unmasking(steps=2, block=3).counts(10)) == 10, "a pass for each block"
    assert tfm.Unmasking().counts(0) == []


@pytest.mark.slow
def test_unmasking_by_hand():
    """Greedy, a token a step: each time the most probable token of all masked places is written."""
    params = random_params(tfm.masked_lm_specs(MODEL))
    tokens = np.array([[5, 4, 6, 4, 4, 7], [4, 8, 4, 9, 0, 0]], np.int32)
    masked, valid = tokens == 4, np.array([[1] * 6, [1, 1, 1, 1, 0, 0]], bool)
    excluded = (0, 1, 2, 3, 4)
    unmasking = tfm.Unmasking(steps=6, temperature=0.0)
    written = tfm.unmask(params, MODEL, tfm.Canvas(tokens, masked, valid), unmasking, excluded)
    for row, size in enumerate((6, 4)):
        state = tokens[row : row + 1, :size].copy()
        while (state == 4).any():
            logits = np.array(tfm.masked_lm(params, MODEL, state, np.arange(size)[None]))[0]
            logits[:, list(excluded)] = -np.inf
            logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
            logits[state[0] != 4] = -np.inf
            place, token = np.unravel_index(logits.argmax(), logits.shape)
            state[0, place] = token
        np.testing.assert_array_equal(written[row, :size], state[0])
    assert (written[~masked] == tokens[~masked]).all()


@pytest.mark.slow
@pytest.mark.parametrize("order", ["confidence", "random"])
def test_blocks_are_written_in_turn(order):
    params = random_params(tfm.masked_lm_specs(MODEL))
    tokens, masked = np.full((1, 8), 4, np.int32), np.ones((1, 8), bool)
    from tfm.catalogue.decoding import unmasking as module

    seen = []
    step = module._step

    def watched(*arguments):
        state = step(*arguments)
        seen.append(np.asarray(state.masked)[0])
        return state

    module._step, options = watched, tfm.Unmasking(steps=8, order=order, block=4, seed=3)
    try:
        written = tfm.unmask(params, MODEL, tfm.Canvas(tokens, masked, masked), options, (0, 4))
        again = tfm.unmask(params, MODEL, tfm.Canvas(tokens, masked, masked), options, (0, 4))
    finally:
        module._step = step
    assert not seen[3][:4].any()
    assert seen[3][4:].all()
    assert not seen[7].any()
    np.testing.assert_array_equal(written, again)
    assert not np.isin(written, [0, 4]).any()


def test_metrics():
    sums = {"loss": 8.0, "weight": 4.0, "masked": 2.0, "right": 1.0, "bytes": 16.0, "padding": 0.4}
    means = DIFFUSE.metrics(sums)
    assert means == pytest.approx(
        {
            "loss": 2.0, "bits_per_byte": 0.5 / math.log(2), "perplexity_bound": math.exp(2.0), "accuracy": 0.5,
            "masked": 0.5, "padding": 0.1,
        }
    )  # fmt: skip


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "text.txt")


@pytest.mark.slow
def test_a_resumed_run_has_the_losses_of_one_that_was_not_interrupted(text):
    run(*SMALL, "--out=once")
    run(*SMALL, "--stop-at=4", "--out=twice")
    run("--resume", "--out=twice")
    results = [json.loads(Path(name, "result.json").read_text())["eval_bits_per_byte"] for name in ("once", "twice")]
    assert results[0] == results[1]
    code, out, err = call(evaluate, "--run=once")
    assert code == 0, err
    assert json.loads(out)["bits_per_byte"] == pytest.approx(results[0], rel=1e-6)


@pytest.mark.slow
def test_a_run_from_an_encoder_writes(text):
    """From a masked language model, whose head is taken too; gaps are filled, words around them stay."""
    run("--task=mlm", *FLAGS, "--out=mlm")
    flags = [flag for flag in SMALL if not flag.startswith("--tokenizer")]
    err = run(*flags, "--init=mlm", "--out=diffuse")
    assert "fresh" not in err
    code, out, err = call(generate, "--run=diffuse", "--prompt=the cat [MASK*3] on the [MASK]", "--steps=2", "--n=2")
    assert code == 0, err
    assert len(out.splitlines()) == 2
    assert all(line.startswith("the cat") and " on the" in line for line in out.splitlines())
    code, again, _ = call(generate, "--run=diffuse", "--prompt=the cat [MASK*3] on the [MASK]", "--steps=2", "--n=2")
    assert again == out, "draws repeat"
    code, out, err = call(generate, "--run=diffuse", "--prompt=the cat", "--order=random", "--block=4", "--to=a.jsonl")
    assert code == 0, err
    assert json.loads(Path("a.jsonl").read_text())["prompt"] == "the cat"
    code, out, err = call(generate, "--run=diffuse", "--prompt=the", "--strategy=greedy", "--max-new-tokens=4")
    assert code == 0, err
    code, _, err = call(export, "--run=diffuse", "--to=folder")
    assert code == 0, err
    assert json.loads(Path("folder/config.json").read_text())["architectures"] == ["BertForMaskedLM"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--prompt=[MASK*40]", "the prompt has 33 tokens with its gaps, and rows of the training have 32; shorten it"),
        ("--prompt=a --strategy=beam", "--strategy=beam is not for --run=diffuse, which writes by unmasking"),
        ("--prompt=a --stop=b", "--stop is not for --run=diffuse, which writes by unmasking; leave it out"),
        ("--prompt=[MASK] --max-new-tokens=4", "adds tokens to a prompt without a gap; leave it out"),
        ("--prompt=a --steps=0", "steps=0 must be at least 1"),
    ],
)
def test_bad_input(flags, says, tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.getbasetemp() / "diffusion"
    folder.mkdir(exist_ok=True)
    monkeypatch.chdir(folder)
    if not Path("diffuse").exists():
        write_text(folder / "text.txt")
        run(*SMALL, "--steps=2", "--out=diffuse")
    code, out, err = call(generate, "--run=diffuse", *flags.split())
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


@pytest.mark.slow
def test_a_short_run_learns(tmp_path, monkeypatch):
    """Words in pairs, through windows of the default run: half of them cost nothing."""
    monkeypatch.chdir(tmp_path)
    write_pairs(tmp_path / "text.txt", 6)
    flags = [flag for flag in FLAGS if not flag.startswith(("--steps", "--eval.every", "--checkpoint.every"))]
    flags += ["--tokenizer.kind=word", "--batch.size=16", "--batch.length=16", "--steps=400", "--eval.every=400"]
    run("--task=diffuse", *flags, "--out=run")
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["eval_loss"] < 0.8 * result["eval_unigram_loss"]


@pytest.mark.slow
@pytest.mark.parity
def test_the_loss_is_that_of_transformers(text):
    """BertForMaskedLM, from the exported folder, and its cross-entropy times the weights."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    run(*SMALL, "--out=diffuse")
    code, _, err = call(export, "--run=diffuse", "--to=folder")
    assert code == 0, err
    from train.runs.run_folder import open_folder
    from train.screens.console import Log

    folder = open_folder("diffuse")
    batch = folder.task.load(folder.config, Log(quiet=True), folder).valid.batch(np.arange(4), np.random.default_rng(0))
    sums = folder.task.loss(folder.load(log=lambda line: None), folder.config.model, batch, None)
    model = transformers.BertForMaskedLM.from_pretrained("folder").eval()
    tensor = lambda values: torch.from_numpy(np.int64(values))
    with torch.no_grad():
        logits = model(input_ids=tensor(batch["tokens"]), attention_mask=tensor(batch["valid"])).logits
        losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), tensor(batch["targets"]), reduction="none")
    expected = float((losses * torch.from_numpy(batch["weights"])).sum())
    assert float(sums["loss"]) == pytest.approx(expected, rel=1e-5)

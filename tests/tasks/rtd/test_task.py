"""Replaced-token detection: its loss against plain numbers, its metrics, runs, and what other tasks take from them."""

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params
from small import FLAGS, call, run, write_pairs, write_text

import tfm
from train import UserError
from train.evaluate import main as evaluate
from train.export import main as export
from train.main import main
from train.metrics import scores
from train.predict import main as predict
from train.screens.console import Log
from train.tasks import resolve
from train.tasks.rtd.options import Rtd
from train.tasks.rtd.task import RTD, compute, loss, totals

BASE = "--task=rtd --preset=electra-small --model.input.width=none --model.dropout=0 --optim.warmup=0.15".split()
SMALL = [*BASE, *FLAGS, "--optim.rate=2e-3", "--task.generator-width=16", "--task.generator-layers=1"]
MODEL = tfm.Config(layers=2, heads=2, width=16, vocab=50, length=16, pad_vocab_to=8, classes=1)
SHAPES = {
    "narrow": tfm.GeneratorShape(layers=1, width=8, heads=1),
    "as wide": tfm.GeneratorShape(layers=1, width=16, heads=2),
}


def example(rows=4, length=12, seed=0):
    """Two pieces a row; the last row predicts a token less, and a place stands twice in the first."""
    rng = np.random.default_rng(seed)
    text = rng.integers(5, 50, (rows, length))
    where = np.array([[1, 4, 1]] + [[2, 5, 7]] * (rows - 1))
    weights = np.ones((rows, 3), np.float32)
    weights[-1, 2] = 0
    slots = np.full((rows, length), -1)
    for row in range(rows):
        for slot in (2, 1, 0):
            if weights[row, slot]:
                slots[row, where[row, slot]] = slot
    fields = {
        "tokens": np.where(slots >= 0, 4, text),
        "segments": np.tile([1] * 6 + [2] * 4 + [0] * 2, (rows, 1)),
        "positions": np.tile(np.arange(length), (rows, 1)),
        "where": where,
        "targets": np.take_along_axis(text, where, 1),
        "slots": slots,
        "seeds": rng.integers(0, 1000, rows),
    }
    fields = {name: np.int32(field) for name, field in fields.items()}
    return fields | {"weights": weights, "scale": np.full(rows, 50, np.float32)}


def specs_of(name="narrow", offset=False, **fields):
    return tfm.replaced_detector_specs(dataclasses.replace(MODEL, **fields), SHAPES[name], offset)


@pytest.mark.slow
def test_texts_of_a_row_do_not_see_one_another():
    """Other tokens in the second piece change neither samples nor logits of the first one."""
    params, batch = random_params(specs_of()), example()
    compute_all = jax.jit(compute, static_argnums=1)
    changed = {**batch, "tokens": np.where(batch["segments"] == 2, 7, batch["tokens"])}
    first, second = (compute_all(params, MODEL, {**totals(fields), **fields}, None) for fields in (batch, changed))
    is_first = batch["segments"] == 1
    for name in ("scores", "labels"):
        values = np.asarray(first[name]), np.asarray(second[name])
        np.testing.assert_allclose(values[0][is_first], values[1][is_first], atol=1e-6)
    assert np.abs(np.asarray(first["scores"]) - np.asarray(second["scores"])).max() > 1e-3


def expected_loss(params, batch, config, drawn):
    """The loss by sums over places, of the encoders' states alone."""
    small = tfm.generator_config(config, params.generator.shape)
    mask = tfm.segments(batch["segments"])
    tables = params.encoder.embed
    own = params.generator.encoder.embed
    embed = dataclasses.replace(own, tokens=tables.tokens, positions=tables.positions, types=tables.types)
    embed = embed if own.norm is not None else dataclasses.replace(embed, norm=tables.norm)
    stack = dataclasses.replace(params.generator.encoder, embed=embed)
    states = tfm.encoder(stack, small, batch["tokens"], mask, batch["positions"])
    if params.offset is not None:
        shift = lambda table, offset: jax.lax.stop_gradient(table) + offset
        tables = dataclasses.replace(
            tables,
            tokens=shift(tables.tokens, params.offset.tokens),
            positions=shift(tables.positions, params.offset.positions),
            types=shift(tables.types, params.offset.types),
        )
    head, of_generator = params.generator.head, 0.0
    for row, column in zip(*np.nonzero(batch["weights"]), strict=True):
        x = states[row, batch["where"][row, column]] @ head.dense.kernel + head.dense.bias
        x = jax.nn.gelu(x, approximate=False)
        x = (x - x.mean()) / jnp.sqrt(x.var() + config.norm_eps) * head.norm.scale + head.norm.bias
        logits = (params.encoder.embed.tokens @ x + head.bias)[: config.vocab]
        of_generator -= jax.nn.log_softmax(logits)[batch["targets"][row, column]]
    slots = batch["slots"]
    filled = np.take_along_axis(drawn, np.maximum(slots, 0), 1)
    true = np.take_along_axis(batch["targets"], np.maximum(slots, 0), 1)
    read = np.where(slots >= 0, filled, batch["tokens"])
    labels = (slots >= 0) & (filled != true)
    model = dataclasses.replace(params.encoder, embed=tables)
    states = tfm.encoder(model, config, read, mask, batch["positions"])
    x = jax.nn.gelu(states @ params.dense.kernel + params.dense.bias[None, None], approximate=False)
    p = jax.nn.sigmoid((x @ params.output.kernel)[..., 0] + params.output.bias[0])
    of_tokens = -jnp.where(labels, jnp.log(p), jnp.log(1 - p))[batch["segments"] > 0].mean()
    return of_generator / batch["weights"].sum() + 50 * of_tokens, labels


def drawn_by(params, batch, config):
    """The generator's samples [B,M], which `slots` shows in what the discriminator reads."""
    places = tfm.PredictedPlaces(*(batch[name] for name in ("where", "targets", "slots", "seeds")))
    mask = tfm.segments(batch["segments"])
    replacement = tfm.replace_tokens(params, config, batch["tokens"], places, mask, batch["positions"])
    return np.take_along_axis(np.asarray(replacement.tokens), batch["where"], 1)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "offset"), [("narrow", False), ("as wide", True), ("narrow", True)])
def test_loss_and_gradients_are_those_of_plain_sums(name, offset):
    params, batch = random_params(specs_of(name, offset)), example()
    drawn = drawn_by(params, batch, MODEL)
    plain = lambda params: expected_loss(params, batch, MODEL, drawn)
    (value, labels), wanted = jax.value_and_grad(plain, has_aux=True)(params)

    def mean(params):
        sums = loss(params, MODEL, batch, None)
        return sums["loss"] / sums["weight"], sums

    (computed, sums), grads = jax.value_and_grad(mean, has_aux=True)(params)
    assert float(computed) == pytest.approx(float(value), abs=1e-5)
    np.testing.assert_array_equal(sums["labels"], np.where(batch["segments"] > 0, labels, -1))
    assert 0 < labels.sum() < 12
    for (path, grad), expected in zip(jax.tree_util.tree_leaves_with_path(grads), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(grad, expected, atol=1e-5 * max(1, np.abs(expected).max()), err_msg=str(path))


@pytest.mark.slow
def test_the_discriminator_trains_the_offset_and_not_the_tables():
    """Exactly: without the generator's loss, the tables have no gradient."""
    params, batch = random_params(specs_of("as wide", offset=True)), example()

    def of_discriminator(params):
        return loss(params, MODEL, batch, None)["loss_discriminator"]

    grads = jax.grad(of_discriminator)(params)
    embed = grads.encoder.embed
    for table in jax.tree.leaves((embed.tokens, embed.positions, embed.types)):
        assert not np.asarray(table).any()
    assert all(np.asarray(table).any() for table in jax.tree.leaves(grads.offset))
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(grads.generator))
    assert np.asarray(embed.norm.scale).any(), "the discriminator's own norm is trained"


@pytest.mark.slow
def test_the_generator_learns_nothing_of_the_discriminator():
    params, batch = random_params(specs_of()), example()
    grads = jax.grad(lambda params: loss(params, MODEL, batch, None)["loss_discriminator"])(params)
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(grads.generator))
    assert np.asarray(grads.encoder.embed.tokens).any(), "the tables are both models'"


@pytest.mark.slow
def test_parts_of_a_batch_have_shares_of_its_loss():
    params, batch = random_params(specs_of()), example()
    of_all = totals(batch)
    halves = [{name: field[part] for name, field in batch.items()} | of_all for part in (slice(0, 2), slice(2, 4))]
    parts = [compute(params, MODEL, half, None) for half in halves]
    total = loss(params, MODEL, batch, None)
    for name in ("loss", "weight", "read", "replaced", "right"):
        np.testing.assert_allclose(sum(part[name] for part in parts), total[name], rtol=1e-5, err_msg=name)


@pytest.mark.slow
def test_samples_follow_the_generator():
    """Frequencies of 20,000 samples of a place: chi squared."""
    rng = np.random.default_rng(0)
    table = np.eye(48, 16, dtype=np.float32)
    config = dataclasses.replace(MODEL, vocab=48)
    params = random_params(tfm.replaced_detector_specs(config, SHAPES["as wide"]))
    generator = tfm.generator_of(params)
    embed = dataclasses.replace(generator.encoder.embed, tokens=jnp.asarray(table))
    bias = jnp.asarray(rng.normal(size=48).astype(np.float32))
    generator = tfm.MaskedLM(
        dataclasses.replace(generator.encoder, embed=embed), dataclasses.replace(generator.head, bias=bias)
    )
    from tfm.catalogue.models.replaced_tokens import sample_tokens

    features = jnp.zeros((4000, 5, 16))
    drawn = np.asarray(sample_tokens(generator, config, features, jnp.arange(4000)))
    p = np.exp(np.float64(bias)) / np.exp(np.float64(bias)).sum()
    counts = np.bincount(drawn.ravel(), minlength=48)
    statistic = ((counts - 20_000 * p) ** 2 / (20_000 * p)).sum()
    assert statistic < 47 + 5 * (2 * 47) ** 0.5
    again = np.asarray(sample_tokens(generator, config, features, jnp.arange(4000)))
    np.testing.assert_array_equal(drawn, again)


def test_auc_counts_pairs():
    rng = np.random.default_rng(0)
    values, positive = rng.integers(0, 6, 60) / 3, rng.random(60) < 0.3
    pairs = [(a > b) + (a == b) / 2 for a in values[positive] for b in values[~positive]]
    assert scores.auc(values, positive) == pytest.approx(np.mean(pairs), abs=1e-12)
    assert scores.auc(values, np.zeros(60, bool)) == 0.5


def test_metrics():
    sums = {
        "loss": 0.0, "weight": 4.0, "scale": 40.0, "loss_generator": 8.0, "loss_discriminator": 5.0,
        "right_generator": 1.0, "right": 8.0, "read": 10.0, "replaced": 3.0, "padding": 0.4,
    }  # fmt: skip
    means = RTD.metrics(sums)
    assert means == pytest.approx(
        {
            "loss": 2.0 + 10 * 0.5, "loss_generator": 2.0, "loss_discriminator": 0.5, "accuracy_generator": 0.25,
            "accuracy": 0.8, "majority": 0.7, "padding": 0.1,
        }
    )  # fmt: skip
    arrays = {"scores": np.float32([[1, 0, -1]]), "labels": np.float32([[1, 0, -1]])}
    assert RTD.metrics(sums | arrays)["auc"] == 1.0


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (
            "--task.generator-width=64 --model.width=32 --model.heads=2",
            "--task.generator-width=64 is wider than the discriminator, model.width=32; ELECTRA's generator has a "
            "quarter, 8",
        ),
        ("--task.rate=1", "rate=1.0 must be more than 0 and less than 1"),
        ("--task.embeddings=offset --tune=lora", "and tune=lora does not"),
        ("--model.input=characters --model.tie-embeddings=false", "does not read the texts of task=rtd"),
    ],
)
def test_bad_options(flags, says):
    with pytest.raises(UserError) as error:
        resolve.resolve(["--task=rtd", *flags.split()], None, None)
    assert says in str(error.value)


def test_shapes_of_generators():
    def shape(*flags):
        rtd_run = resolve.resolve(["--task=rtd", *flags], None, None)[0]
        return rtd_run.task.generator(rtd_run)

    assert shape("--preset=electra-small") == tfm.GeneratorShape(12, 64, 1)
    assert shape("--preset=electra-base") == tfm.GeneratorShape(12, 256, 4)
    assert shape("--preset=deberta-v3-small") == tfm.GeneratorShape(3, 768, 12)
    assert Rtd().weight == 50


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "text.txt")


@pytest.mark.slow
@pytest.mark.parametrize("flags", [[], ["--task.embeddings=offset", "--task.masking=windows"]])
def test_a_resumed_run_has_the_losses_of_one_that_was_not_interrupted(text, flags):
    run(*SMALL, *flags, "--out=once")
    run(*SMALL, *flags, "--stop-at=4", "--out=twice")
    run("--resume", "--out=twice")
    once, twice = (json.loads(Path(name, "result.json").read_text()) for name in ("once", "twice"))
    assert once["eval_loss"] == twice["eval_loss"]
    assert once["eval_auc"] == twice["eval_auc"]
    code, out, err = call(evaluate, "--run=once")
    assert code == 0, err
    assert json.loads(out)["auc"] == pytest.approx(once["eval_auc"], rel=1e-6)


@pytest.mark.slow
def test_a_generator_that_is_too_wide_is_refused_before_anything_is_written(text):
    code, out, err = call(main, *SMALL, "--task.generator-width=64", "--out=wide")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "wider than the discriminator" in err
    assert not Path("wide").exists()


@pytest.mark.slow
@pytest.mark.parametrize("flags", [[], ["--task.embeddings=offset"]])
def test_others_take_the_discriminator(text, flags):
    """Fine-tuning and export; with an offset, their sum."""
    err = run(*SMALL, *flags, "--optim.rate=0.01", "--out=rtd")
    assert "train.export --run=rtd" in err
    Path("labels.tsv").write_text("text\tlabel\n" + "".join(f"the cat sat {n}\t{n % 2}\n" for n in range(60)))
    err = run("--task=classify", "--init=rtd", "--data=labels.tsv", "--steps=2", "--batch.length=16", "--out=labels")
    assert "pooler" in err or "output" in err
    code, out, err = call(predict, "--run=rtd", "--text=the cat sat under the zebra")
    if code == 0:
        assert len(out.split()) == 10, "five words and their probabilities"
    code, _, err = call(export, "--run=rtd", "--to=folder")
    assert code == 0, err
    fields = json.loads(Path("folder/config.json").read_text())
    assert fields["architectures"] == ["BertModel" if flags else "ElectraForPreTraining"]
    from train.runs.run_folder import open_folder

    params = open_folder("rtd").load(log=lambda line: None)
    _, read = tfm.from_hf("folder")
    tokens = (
        params.encoder.embed.tokens if params.offset is None else params.encoder.embed.tokens + params.offset.tokens
    )
    np.testing.assert_allclose(read.encoder.embed.tokens[:50], tokens[:50], atol=1e-6)
    if flags:
        assert np.abs(params.offset.tokens).max() > 1e-4, "the offset has learned"
        return
    code, exported, err = call(predict, "--run=folder", "--text=the cat sat under the zebra")
    assert code == 0, err
    assert exported.split()[::2] == out.split()[::2]


@pytest.mark.slow
def test_a_short_run_learns(tmp_path, monkeypatch):
    """Words in pairs, through windows of the default run: a replaced one is seen by its partner; either may be it."""
    monkeypatch.chdir(tmp_path)
    write_pairs(tmp_path / "text.txt", 6)
    flags = [flag for flag in FLAGS if not flag.startswith(("--steps", "--eval.every", "--checkpoint.every"))]
    flags += ["--tokenizer.kind=word", "--batch.size=16", "--batch.length=16", "--steps=600", "--eval.every=600"]
    err = run("--task=rtd", *flags, "--out=run")
    assert "--init=run" in err
    assert "train.export" not in err, "no folder holds windows: train.export refuses, and nothing offers it"
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["eval_auc"] > 0.7


@pytest.mark.slow
@pytest.mark.parity
def test_losses_are_those_of_transformers(text):
    """ElectraForMaskedLM and ElectraForPreTraining with the parameters of a run, on rows of it; AUC by scikit-learn."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    metrics = pytest.importorskip("sklearn.metrics")
    run(*SMALL, "--model.input.width=24", "--data.pack=false", "--out=rtd")
    from train.runs.run_folder import open_folder

    folder = open_folder("rtd")
    params, model = folder.load(log=lambda line: None), folder.config.model
    batch = folder.task.load(folder.config, Log(quiet=True), folder).valid.batch(np.arange(4), np.random.default_rng(0))
    sums = folder.task.loss(params, model, batch, None)
    small = tfm.generator_config(model, params.generator.shape)
    small = dataclasses.replace(small, head=dataclasses.replace(small.head, pool_activation="gelu"))
    tfm.to_hf(small, tfm.generator_of(params), "generator", like={"architectures": ["ElectraForMaskedLM"]})
    code, _, err = call(export, "--run=rtd", "--to=discriminator")
    assert code == 0, err
    generator = transformers.ElectraForMaskedLM.from_pretrained("generator").eval()
    discriminator = transformers.ElectraForPreTraining.from_pretrained("discriminator").eval()
    drawn = drawn_by(params, batch, model)
    slots, is_token = batch["slots"], batch["segments"] > 0
    filled = np.take_along_axis(drawn, np.maximum(slots, 0), 1)
    true = np.take_along_axis(batch["targets"], np.maximum(slots, 0), 1)
    read = np.where(slots >= 0, filled, batch["tokens"])
    labels = ((slots >= 0) & (filled != true)).astype(np.int64)
    tensor = lambda values: torch.from_numpy(np.int64(values))
    with torch.no_grad():
        logits = generator(input_ids=tensor(batch["tokens"]), attention_mask=tensor(is_token)).logits
        rows, columns = np.nonzero(batch["weights"])
        of_generator = torch.nn.functional.cross_entropy(
            logits[rows, batch["where"][rows, columns]], tensor(batch["targets"][rows, columns])
        )
        replies = discriminator(input_ids=tensor(read), attention_mask=tensor(is_token), labels=tensor(labels))
    assert float(sums["loss_generator"] / sums["weight"]) == pytest.approx(float(of_generator), abs=1e-5)
    assert float(sums["loss_discriminator"] / sums["read"]) == pytest.approx(float(replies.loss), abs=1e-5)
    assert float(sums["loss"] / sums["weight"]) == pytest.approx(float(of_generator + 50 * replies.loss), abs=1e-4)
    expected = metrics.roc_auc_score(labels[is_token], replies.logits.numpy()[is_token])
    measured = RTD.metrics({name: np.asarray(value) for name, value in sums.items()})["auc"]
    assert measured == pytest.approx(expected, abs=1e-6)

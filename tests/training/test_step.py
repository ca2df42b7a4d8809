"""The training step: accumulation, shardings, and the same numbers on any mesh."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

import tfm
from tfm.config.heads import Head
from tfm.config.inputs import Tokens
from tfm.config.positions import Rotary, Sinusoidal
from tfm.config.residuals import PreNorm
from train.data import feed
from train.devices.mesh import bytes_per_device
from train.runs.state import State
from train.settings.schema import Optim, Run
from train.tasks import presets
from train.tasks.classify.options import Classify
from train.tasks.classify.task import CLASSIFY
from train.tasks.lm.options import Lm
from train.tasks.lm.task import LM
from train.tasks.mlm.task import MLM
from train.tasks.rtd.options import Rtd
from train.tasks.rtd.task import RTD
from train.tasks.span.options import Span
from train.tasks.span.task import SPAN
from train.tasks.table import AnyRun
from train.tasks.translate.options import Translate
from train.tasks.translate.task import TRANSLATE
from train.training import optimizer as optim
from train.training import step

MODEL = tfm.Config(layers=1, heads=8, width=16, ffn=16, vocab=60, length=16, pad_vocab_to=64, dropout=0.1)
SPECS = tfm.masked_lm_specs(MODEL)
BATCH_SPEC = MLM.batch_spec(AnyRun())


def batch(n, rows=8, length=16):
    """Batch n: two pieces and some padding in every row, unequally many predicted tokens."""
    rng = np.random.default_rng(n)
    weights = np.float32(np.arange(3) < rng.integers(0, 4, (rows, 1)))
    fields = {
        "tokens": rng.integers(5, 60, (rows, length)),
        "segments": np.tile(np.repeat([1, 2, 0], [7, 6, length - 13]), (rows, 1)),
        "positions": np.tile(np.arange(length), (rows, 1)),
        "where": rng.integers(0, 13, (rows, 3)),
        "targets": rng.integers(5, 60, (rows, 3)),
    }
    return {name: np.int32(field) for name, field in fields.items()} | {"weights": weights, "words": weights}


def one_device():
    return tfm.make_mesh(1, devices=jax.devices()[:1])


def train(mesh, steps, parts=1, dropout=True):
    """Losses and the last state of `steps` steps."""
    optimizer = optim.optimizer(Optim(warmup=1, rate=1e-3), 100, SPECS)
    state = step.new_state(SPECS, optimizer, 0, mesh)
    train_step = step.make_train_step(MLM.loss, MODEL, optimizer, 0, dropout)
    losses = []
    with jax.set_mesh(mesh):
        for n in range(steps):
            state, sums = train_step(state, feed.to_devices(batch(n), BATCH_SPEC, mesh, parts))
            losses.append(float(sums["loss"] / sums["weight"]))
    return np.array(losses), state


@pytest.fixture(scope="module")
def single():
    return train(one_device(), 20)


@pytest.mark.slow
def test_accumulation_equals_the_big_batch():
    weights = batch(0)["weights"].reshape(4, -1).sum(1)
    assert len(set(weights)) > 1, "or a mean of means would do"
    (big_loss,), big = train(one_device(), 1, dropout=False)
    (cut_loss,), cut = train(one_device(), 1, parts=4, dropout=False)
    assert cut_loss == pytest.approx(big_loss, abs=1e-6)
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(big.params), jax.tree.leaves(cut.params), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6, rtol=0, err_msg=str(path))
    assert np.abs(big.params.head.bias).max() > 1e-4, "nothing moved"


def assert_sharded_like_parameters(params, opt, mesh):
    """Every array of the optimizer that belongs to a parameter lives where the rules table puts the parameter."""
    wanted = [sharding.spec for sharding in jax.tree.leaves(tfm.shardings(SPECS, mesh))]
    assert sum(any(spec) for spec in wanted) > 5
    moments = [leaf for leaf in jax.tree.leaves(opt) if leaf.ndim]
    assert len(moments) == 2 * len(wanted)
    for leaf, spec in zip(jax.tree.leaves(params) + moments, wanted * 3, strict=True):
        assert leaf.sharding.spec == spec


@pytest.mark.slow
def test_state_and_gradients_are_sharded_like_parameters_over_fsdp():
    """By shape alone: on an Explicit mesh a sharding is part of the type."""
    mesh = tfm.make_mesh(1, fsdp=8)
    optimizer = optim.optimizer(Optim(), 100, SPECS)
    state = step.new_state(SPECS, optimizer, 0, mesh)
    assert_sharded_like_parameters(state.params, state.opt, mesh)
    with jax.set_mesh(mesh):
        fields = {name: jax.typeof(field) for name, field in feed.to_devices(batch(0), BATCH_SPEC, mesh).items()}
        after, _ = jax.eval_shape(step.make_train_step(MLM.loss, MODEL, optimizer, 0, dropout=True), state, fields)
        part = {name: jax.typeof(field[0]) for name, field in feed.to_devices(batch(0), BATCH_SPEC, mesh).items()}
        total = lambda params, batch: MLM.loss(params, MODEL, batch, None)["loss"]
        grads = jax.eval_shape(jax.grad(total), state.params, part)
    assert_sharded_like_parameters(after.params, after.opt, mesh)
    assert_sharded_like_parameters(grads, after.opt, mesh)


@pytest.mark.slow
def test_three_steps_on_eight_devices_equal_one_device(single):
    mesh = tfm.make_mesh(2, fsdp=2, tensor=2)
    losses, state = train(mesh, 3)
    np.testing.assert_allclose(losses, single[0][:3], atol=1e-5, rtol=0)
    assert_sharded_like_parameters(state.params, state.opt, mesh)
    for leaf, spec in zip(jax.tree.leaves(state.params), jax.tree.leaves(SPECS), strict=True):
        pieces = len({str(shard.index) for shard in leaf.addressable_shards})
        assert pieces == np.prod([mesh.shape[name] for name in leaf.sharding.spec if name], dtype=int), spec.axes


MESHES = {"data": (8,), "fsdp": (1, 8), "tensor": (1, 1, 8), "all": (2, 2, 2), "context": (2, 1, 1, 4)}


@pytest.mark.slow
@pytest.mark.parametrize("name", MESHES)
def test_twenty_steps_on_eight_devices_equal_one_device(name, single, capfd):
    losses, _ = train(tfm.make_mesh(*MESHES[name]), 20)
    np.testing.assert_allclose(losses, single[0], atol=1e-5, rtol=0)
    assert "rematerialization" not in capfd.readouterr().err  # of arrays, because XLA found no other way to move them


def lm_batch(n):
    """Rows of a text each, of unequal lengths."""
    rng = np.random.default_rng(n)
    tokens = rng.integers(5, 60, (8, 17)).astype(np.int32)
    weights = np.float32(np.arange(16) < rng.integers(1, 17, (8, 1)))
    return {"tokens": tokens[:, :-1], "targets": tokens[:, 1:], "weights": weights, "bytes": weights.sum(1)}


def pair_batch(n):
    """Two sources in 11 places, which four devices do not divide, and their targets in 8."""
    batch, rng = lm_batch(n), np.random.default_rng([n, 1])
    targets = {"target": batch["tokens"][:, :8], "targets": batch["targets"][:, :8], "weights": batch["weights"][:, :8]}
    places, lengths = np.arange(11), rng.integers(6, 12, (8, 1))
    segments = np.where(places < lengths, 1 + (places >= 4), 0)
    rows = {"segments": segments, "positions": np.tile(places % 4, (8, 1))}
    rows |= {"target_segments": np.tile(1 + (places[:8] >= 4), (8, 1)), "target_positions": rows["positions"][:, :8]}
    rows = {name: np.int32(values) for name, values in rows.items()}
    return {"tokens": batch["tokens"][:, :11], "smoothing": np.full(8, 0.1, np.float32)} | rows | targets


def span_batch(n):
    """Questions of 3 places and windows of 8, an answer of two tokens in every second row."""
    batch = pair_batch(n)
    places = np.arange(11)
    starts = np.where(np.arange(8) % 2, 5, 0)
    fields = {"types": places >= 5, "candidates": (places == 0) | (places >= 4), "positions": places}
    fields = {name: np.tile(values, (8, 1)) for name, values in fields.items()}
    fields |= {"segments": np.ones((8, 11)), "starts": starts, "ends": np.where(starts, 6, 0), "rows": np.arange(8)}
    fields = {name: np.int32(values) for name, values in fields.items()}
    return fields | {"tokens": batch["tokens"], "weights": np.ones(8, np.float32)}


def generative_batch(n):
    """Two texts a row, with a class and a factor of the loss of their next tokens each."""
    batch = {name: field for name, field in pair_batch(n).items() if name in ("tokens", "segments", "positions")}
    rng = np.random.default_rng([n, 3])
    fields = {"types": np.zeros((8, 11)), "rows": np.arange(16), "labels": rng.integers(0, 3, 16)}
    factors = {"weights": np.ones(16, np.float32), "generative": np.full(16, 0.5, np.float32)}
    return batch | {name: np.int32(values) for name, values in fields.items()} | factors


def replaced_batch(n):
    """Masks, the seeds of what replaces them, and which place of `where` a place is."""
    fields = {name: field for name, field in batch(n).items() if name != "words"}
    slots = np.full((8, 16), -1, np.int32)
    for slot in (2, 1, 0):
        np.put_along_axis(slots, np.where(fields["weights"] > 0, fields["where"], 15)[:, slot : slot + 1], slot, 1)
    slots[:, 15] = -1
    seeds = np.random.default_rng([n, 2]).integers(0, 1000, 8).astype(np.int32)
    return fields | {"slots": slots, "seeds": seeds, "scale": np.full(8, 50, np.float32)}


GENERATOR = tfm.GeneratorShape(layers=1, width=8, heads=8)

TASKS = {
    "rtd": (RTD, Rtd(), lambda model: tfm.replaced_detector_specs(model, GENERATOR), replaced_batch, {}),
    "rtd with an offset": (
        *(RTD, Rtd(), lambda model: tfm.replaced_detector_specs(model, GENERATOR, offset=True), replaced_batch, {}),
    ),
    "span": (SPAN, Span(), tfm.tagger_specs, span_batch, {"classes": 2}),
    "classify and next tokens": (
        *(CLASSIFY, Classify(generative=0.5), tfm.classifier_specs, generative_batch),
        {"classes": 3, "head": Head(causal=True, pool="last"), "residual": PreNorm()},
    ),
    "lm": (LM, Lm(), tfm.causal_lm_specs, lm_batch, {"position": Rotary(), "kv_heads": 2, "residual": PreNorm()}),
    "translate": (TRANSLATE, Translate(), tfm.seq2seq_specs, pair_batch, {"position": Sinusoidal()}),
}


@functools.cache
def losses_of(task, name, steps=20):
    """Losses of a task on a mesh, or on one device, without dropout."""
    module, options, specs_of, batch_of, fields = TASKS[task]
    model = dataclasses.replace(MODEL, dropout=0.0, input=Tokens(token_types=None, norm=False), **fields)
    mesh, specs = tfm.make_mesh(*MESHES[name]) if name else one_device(), specs_of(model)
    optimizer = optim.optimizer(Optim(warmup=1, rate=1e-3), 100, specs)
    state = step.new_state(specs, optimizer, 0, mesh)
    train_step = step.make_train_step(module.loss, model, optimizer, 0, dropout=False)
    batch_spec = module.batch_spec(Run(task=options, model=tfm.Config(head=model.head)))
    losses = []
    with jax.set_mesh(mesh):
        for n in range(steps):
            fields = feed.to_devices(batch_of(n), batch_spec, mesh)
            state, sums = train_step(state, fields)
            losses.append(float(sums["loss"] / sums["weight"]))
    assert [leaf.sharding.spec for leaf in jax.tree.leaves(state.params)] == [
        at.spec for at in jax.tree.leaves(tfm.shardings(specs, mesh))
    ]
    return np.array(losses)


@pytest.mark.slow
@pytest.mark.parametrize("name", MESHES)
@pytest.mark.parametrize("task", TASKS)
def test_twenty_steps_of_other_tasks(task, name, capfd):
    np.testing.assert_allclose(losses_of(task, name), losses_of(task, None), atol=1e-5, rtol=1e-6)
    assert "rematerialization" not in capfd.readouterr().err


@pytest.mark.parametrize("preset", ["bert-base", "gpt2"])
def test_fsdp_leaves_a_device_an_eighth_of_the_state(preset):
    """By shape alone: parameters and both moments; at most 2 % more, for biases that are whole everywhere."""
    model = presets.model(preset)
    specs = tfm.masked_lm_specs(model) if preset == "bert-base" else tfm.causal_lm_specs(model)
    optimizer, mesh = optim.optimizer(Optim(), 100, specs), tfm.make_mesh(1, fsdp=8)
    with jax.set_mesh(mesh):
        params = tfm.abstract(specs, mesh)
        state = jax.tree.leaves((params, jax.eval_shape(optimizer.init, params)))
    replicated = sum(leaf.size * leaf.dtype.itemsize for leaf in state)
    assert 1 / 8 <= bytes_per_device(state) / replicated <= 1.02 / 8


@pytest.mark.slow
def test_losses_differ_from_step_to_step_and_with_dropout(single):
    without, _ = train(one_device(), 2, dropout=False)
    assert abs(without[0] - single[0][0]) > 1e-4, "or dropout did nothing"
    assert len(set(single[0])) == 20


@pytest.mark.slow
def test_dropout_is_fresh_in_every_step_and_the_same_in_a_repeated_one():
    mesh, optimizer = one_device(), optim.optimizer(Optim(warmup=1, rate=1e-3), 100, SPECS)
    train_step = step.make_train_step(MLM.loss, MODEL, optimizer, 0, dropout=True)
    losses = []
    with jax.set_mesh(mesh):
        for done in (0, 7, 7):
            state = step.new_state(SPECS, optimizer, 0, mesh)
            _, sums = train_step(
                dataclasses.replace(state, step=state.step + done), feed.to_devices(batch(0), BATCH_SPEC, mesh)
            )
            losses.append(float(sums["loss"]))
    assert losses[0] != losses[1] == losses[2]


@pytest.mark.slow
def test_one_program_serves_runs_that_differ_in_numbers_alone():
    """Seed, rate, warm-up and count of steps are arguments: the text of the program has none of them."""
    mesh, programs = one_device(), set()
    for seed, rate, warmup, steps in [(0, 1e-3, 1, 100), (7, 3e-4, 10, 900)]:
        optimizer = optim.optimizer(Optim(warmup=warmup, rate=rate), steps, SPECS)
        train_step = step.make_train_step(MLM.loss, MODEL, optimizer, seed, dropout=True)
        with jax.set_mesh(mesh):
            state = step.abstract_state(step.fresh_program(SPECS, optimizer, mesh), optimizer, mesh)
            programs.add(train_step.lower(state, feed.to_devices(batch(0), BATCH_SPEC, mesh)).as_text())
    assert len(programs) == 1


@pytest.mark.slow
def test_evaluation_is_without_dropout_and_counts_one_part(single):
    mesh = one_device()
    state = single[1]
    eval_step = step.make_eval_step(MLM.loss, MODEL)
    with jax.set_mesh(mesh):
        sums = eval_step(state.params, feed.to_devices(batch(3), BATCH_SPEC, mesh))
    wanted = jax.jit(MLM.loss, static_argnums=1)(jax.device_get(state.params), MODEL, batch(3), None)
    for name, value in wanted.items():
        np.testing.assert_allclose(sums[name], value, rtol=1e-5)


def test_rows_are_spread_over_data_and_fsdp():
    mesh = tfm.make_mesh(2, fsdp=2, tensor=2)
    sent = feed.to_devices(batch(0), BATCH_SPEC, mesh, parts=2)
    assert sent["tokens"].shape == (2, 4, 16)
    assert sent["tokens"].sharding.shard_shape(sent["tokens"].shape) == (2, 1, 16)
    np.testing.assert_array_equal(sent["tokens"].__array__().reshape(8, 16), batch(0)["tokens"])


@pytest.mark.slow
def test_moving_average():
    """Against a loop over the parameters after each step; it starts quickly and ends at its decay."""
    optimizer = optim.optimizer(Optim(warmup=1, rate=1e-2), 100, SPECS)
    train_step = step.make_train_step(MLM.loss, MODEL, optimizer, 0, dropout=False, ema=0.5)
    mesh = one_device()
    state = step.new_state(SPECS, optimizer, 0, mesh, has_average=True)
    wanted = jax.tree.map(np.asarray, state.params)
    with jax.set_mesh(mesh):
        for n in range(12):
            state, _ = train_step(state, feed.to_devices(batch(n), BATCH_SPEC, mesh))
            keep = min(0.5, (1 + n) / (10 + n))
            wanted = jax.tree.map(
                lambda mean, param, keep=keep: keep * mean + (1 - keep) * np.asarray(param), wanted, state.params
            )
    assert state.eval_params is state.ema
    for mean, expected in zip(*map(jax.tree.leaves, (state.ema, wanted)), strict=True):
        np.testing.assert_allclose(mean, expected, atol=1e-5)
    tables = [np.asarray(tree.encoder.embed.tokens) for tree in (state.ema, state.params)]
    assert np.abs(tables[0] - tables[1]).max() > 1e-4, "an average is not the last value"


@pytest.mark.slow
def test_the_average_changes_nothing_of_the_training(single):
    optimizer = optim.optimizer(Optim(warmup=1, rate=1e-3), 100, SPECS)
    train_step = step.make_train_step(MLM.loss, MODEL, optimizer, 0, dropout=True, ema=0.9)
    state = step.new_state(SPECS, optimizer, 0, one_device(), has_average=True)
    with jax.set_mesh(one_device()):
        for n in range(3):
            state, sums = train_step(state, feed.to_devices(batch(n), BATCH_SPEC, one_device()))
            assert float(sums["loss"] / sums["weight"]) == pytest.approx(single[0][n], rel=1e-6)
    assert State(state.step, state.params, state.opt).eval_params is state.params


def test_options_that_this_compiler_does_not_know_are_left_out(monkeypatch):
    """A step still compiles where XLA has dropped one of them, and has none for a platform without any."""
    monkeypatch.setitem(step.OPTIONS, "dropped", {"no_such_option": "1", "xla_cpu_prefer_vector_width": "256"})
    assert step.compiler_options("dropped", "float32", 0, 1) == {"xla_cpu_prefer_vector_width": "256"}
    assert step.compiler_options("tpu", "bfloat16", 0, 1) == {}
    assert step.compiler_options("cpu", "float32", 0, step.HEAPS_FROM) in (step.OPTIONS["cpu"], {})


def test_heaps_only_where_no_array_is_much_larger_and_the_run_is_long():
    assert step.HEAPS in step.compiler_options("cpu", "float32", step.HEAP, step.HEAPS_FROM)
    assert step.HEAPS not in step.compiler_options("cpu", "float32", step.LARGEST + 1, step.HEAPS_FROM)
    assert step.HEAPS not in step.compiler_options("cpu", "float32", step.HEAP, step.HEAPS_FROM - 1)

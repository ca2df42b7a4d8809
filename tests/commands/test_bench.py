"""The bench command."""

import json
import time

import jax
import numpy as np
import pytest
from small import quick_compilation  # noqa: F401

import tfm
from train import bench
from train.costs import hlo, random_task, timing
from train.costs import job as costs
from train.costs import profile as profiles
from train.data import feed
from train.settings import schema
from train.training import step

TINY = "--layers=2 --heads=2 --width=16 --vocab=64 --batch=8 --length=12 --steps=2 --warmup=1".split()


@pytest.mark.slow
@pytest.mark.parametrize("model", ["bert", "gpt", "seq2seq"])
def test_one_line_with_the_keys_of_the_peer(model, capsys):
    assert bench.main([f"--model={model}", *TINY]) == 0
    result = json.loads(capsys.readouterr().out)
    keys = "peer model device dtype params ms_median ms_min tokens_per_s peak_bytes loss".split()
    assert set(keys) <= set(result)
    attention, feed_forward, norm = 4 * (16 * 16 + 16), (16 * 64 + 64) + (64 * 16 + 16), 2 * 16
    stack = 12 * 16 + 2 * (attention + feed_forward + 2 * norm) + norm
    assert result["params"] == 64 * 16 + (2 * stack + 2 * (attention + norm) if model == "seq2seq" else stack)
    assert result["tokens_per_s"] == pytest.approx(8 * 12 / result["ms_median"] * 1000, rel=0.01)
    assert result["loss"] == pytest.approx(4.16, abs=0.2), "random tokens: about log(64)"


@pytest.mark.slow
def test_reading_prompts_and_writing(capsys):
    assert bench.main(["--model=gpt", *TINY, "--length=24", "--generate=16"]) == 0
    result = json.loads(capsys.readouterr().out)
    for name in ("prefill", "decode", "decode_first", "decode_last", "read_again"):
        assert result[f"ms_{name}"] > 0
    assert result["prefill_tokens_per_s"] == pytest.approx(8 * 8e3 / result["ms_prefill"], rel=0.01)
    assert result["decode_tokens_per_s"] == pytest.approx(8e3 / result["ms_decode"], rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["bert-tiny", "transformer-mini"])
def test_a_preset_with_its_own_data(preset, capsys):
    """The second one has batches of several shapes."""
    argv = [
        f"--preset={preset}",
        "--steps=3",
        "--warmup=2",
        "--model.layers=1",
        "--model.width=16",
        "--model.heads=2",
        "--model.ffn=32",
    ]
    assert bench.main(argv) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["preset"] == preset
    assert sum(result[f"share_{part}"] for part in ("data", "host", "device")) == pytest.approx(1, abs=1e-3)
    assert result["data_over_step"] == pytest.approx(result["data_tokens_per_s"] / result["tokens_per_s"], rel=0.05)


def small_job(family="gpt", predict=1.0):
    """A plain model that compiles in a moment."""
    model = tfm.Config(layers=1, heads=2, width=16, vocab=64, length=12, **random_task.MODEL)
    run = schema.Run(model=model, batch=schema.Batch(size=8, length=12), optim=random_task.OPTIM, steps=1)
    return costs.Job(run, random_task.Plain(family, predict), tfm.make_mesh(devices=jax.devices()[:2]))


@pytest.mark.parametrize(("family", "predict"), [("bert", 0.25), ("seq2seq", 1.0)])
def test_batches_are_what_the_fields_say(family, predict):
    job = small_job(family, predict)
    one, other = map(job.task.batches(job.run), (0, 1))
    assert {name: (field.dtype.type, field.shape) for name, field in one.items()} == {
        name: (field.dtype, field.shape(8, 12)) for name, field in job.spec.items()
    }
    assert (one["tokens"] != other["tokens"]).any()
    if predict < 1:
        assert (one["where"] == np.arange(3)).all()


def test_seconds_are_counted_where_they_are_spent():
    job, batches = small_job(), small_job().task.batches(small_job().run)

    def slowly(n):
        time.sleep(0.05)
        return batches(n)

    timed, state = timing.time_steps(job, slowly, warmup=1, steps=3)
    assert all(each.data > 0.05 > each.host for each in timed.steps)
    assert timed.compile > 0.05, "compilation is not among the steps"
    assert int(state.step) == 4
    assert timed.loss == pytest.approx(np.log(64), abs=0.2), "random tokens"
    _, state = timing.time_loop(job, state, batches, steps=2)
    assert int(state.step) == 6
    assert timing.time_data(job, slowly, steps=2) > 0.05


def test_the_roof_is_above_what_a_step_reaches(monkeypatch):
    monkeypatch.setattr(timing, "_SIDE", 256)
    job = small_job()
    found = timing.share(job, job.model_flops(), seconds=1.0)
    assert found["roof_flops_per_s"] > 1e8
    assert 0 <= found["share_of_roof"] < 1e-3


def test_a_profile_names_the_operations_of_the_model(tmp_path):
    job = small_job()
    batch = job.task.batches(job.run)(0)
    with jax.set_mesh(job.mesh):
        state = step.new_state(job.specs, job.optimizer, 0, job.mesh)
        compiled = job.train_step.lower(state, feed.to_devices(batch, job.spec, job.mesh)).compile()
        jax.block_until_ready(compiled(state, feed.to_devices(batch, job.spec, job.mesh)))
    path = profiles.trace(tmp_path / "trace", lambda: timing.time_steps(job, lambda n: batch, 1, 1))
    found = profiles.operations(path, hlo.origins(compiled.as_text()))
    assert found == sorted(found, key=lambda each: -each.seconds)
    assert any("dot_general" in each.origin for each in found)
    rows = profiles.table(found, steps=2, most=3)
    assert list(rows) == [each.origin for each in found[:3]]
    assert all("%" in row and "ms" in row for row in rows.values())


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("jit(f)/jvp(BD,DF->BF)/dot_general", "BD,DF->BF/dot_general"),
        ("jit(f)/transpose(jvp(BD,DF->BF))/dot_general", "backward BD,DF->BF/dot_general"),
        ("jit(f)/jvp()/shard_map/while/body/closed_call/jit(_where)/select_n", "select_n"),
        ("jit(f)/(jvp()/shard_map/psum:transpose(jvp())/scatter-add)", "psum"),
        ("jit(f)/jvp(attention[einsum: few scores])/exp", "attention[einsum: few scores]/exp"),
    ],
)
def test_where_an_operation_comes_from(origin, expected):
    assert profiles.short(origin) == expected


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--generate=20"], "--generate=20 needs --model=gpt, and must be at least 10 and less than --length=64"),
        (
            ["--model=gpt", "--generate=64"],
            "--generate=64 needs --model=gpt, and must be at least 10 and less than --length=64",
        ),
        (["--model=gpt", "--generate=20", "--profile=x"], "--profile=x is for training steps; leave --generate out"),
        (["--preset=gpt2", "--layers=3"], "unknown flag --layers; did you mean"),
        (["--preset=gtp2"], "--preset=gtp2 is unknown"),
        (["--kernel=splash", "--batch=8"], "--kernel=splash cannot do this: splash needs a TPU"),
        (["--model=gtp"], "--model=gtp must be bert, gpt or seq2seq"),
        (["--heads=5"], "--heads=5 must divide width=128; try heads=4"),
        (["--predict=0"], "--predict=0.0 must be above 0 and at most 1"),
        (["--steps=0"], "batch, length, steps and warmup must be at least 1"),
    ],
)
def test_bad_input(argv, message, capsys):
    assert bench.main(argv) == 2
    assert message in capsys.readouterr().err

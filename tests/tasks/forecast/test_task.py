"""Forecasts: windows, the loss and MASE against loops, whole runs, sentences for bad input."""

import json

import jax
import numpy as np
import pytest
from random_params import random_params
from small import call, read_lines, run

import tfm
from train import evaluate, predict
from train.lab import inspect
from train.main import main
from train.series.processor import SeriesProcessor
from train.tasks import presets
from train.tasks.forecast.linear import linear_mase
from train.tasks.forecast.loss import pinball
from train.tasks.forecast.rows import ForecastRows, divide, scaled, seasonal
from train.tasks.forecast.task import FORECAST

PROCESSOR = SeriesProcessor(context=8, horizon=4, quantiles=(0.1, 0.5, 0.9), period=5)
SMALL = (
    "--task=forecast --model.layers=1 --model.width=32 --model.heads=2 --model.ffn=64 --model.input.image-width=24 "
    "--task.horizon=6 --task.period=12 --batch.size=8 --steps=60 --log.every=20 --eval.every=30 --checkpoint.every=60"
).split()


def rows_of(lengths=(40, 31), share=0.25):
    """Series, and windows to train on and to validate on."""
    rng = np.random.default_rng(0)
    series = {f"s{n}": rng.normal(size=length).cumsum() for n, length in enumerate(lengths)}
    cuts = divide(series, PROCESSOR, share, "x.csv")
    train = ForecastRows(series, PROCESSOR, {name: (0, cut, cut) for name, cut in cuts.items()}, 1, 3)
    valid = ForecastRows(series, PROCESSOR, {name: (cut, len(series[name]), cut) for name, cut in cuts.items()}, 4, 3)
    return series, cuts, train, valid


def test_training_windows_end_before_what_is_held_out():
    series, cuts, train, valid = rows_of()
    assert cuts == {"s0": 30, "s1": 23}
    assert max(start + 4 for name, start in train.windows if name == "s0") == 30
    assert min(start for _, start in train.windows) == 8
    assert [start for name, start in valid.windows if name == "s0"] == [30, 34]  # 38 would need two values more
    for name, start in valid.windows:
        assert cuts[name] <= start <= len(series[name]) - 4


def test_fields_are_those_of_a_loop():
    series, cuts, _, valid = rows_of()
    batch = valid.batch(np.array([1, -1, 2]), np.random.default_rng(0))
    for place, row in ((0, 1), (2, 2)):
        name, start = valid.windows[row]
        values = series[name]
        past = values[start - 8 : start]
        mean, deviation = past.mean(), past.std()
        np.testing.assert_allclose(batch["frames"][place, 0, :, 0] * deviation + mean, past, atol=1e-5)
        np.testing.assert_allclose(batch["targets"][place] * deviation + mean, values[start : start + 4], atol=1e-5)
        repeated = [values[start - 5 + step % 5] for step in range(4)]
        np.testing.assert_allclose(batch["seasonal"][place] * deviation + mean, repeated, atol=1e-5)
        errors = [abs(values[t] - values[t - 5]) for t in range(5, cuts[name])]
        assert batch["scales"][place] * deviation == pytest.approx(np.mean(errors), rel=1e-5)
    assert batch["weights"].sum(1).tolist() == [4, 0, 4]


def test_a_season_is_repeated_and_constant_windows_are_zero():
    assert seasonal(np.arange(10.0), 7, 3).tolist() == [7, 8, 9, 7, 8, 9, 7]
    window = scaled(np.full(8, 1e6))
    assert (window.values.tolist(), window.mean, window.deviation) == ([0] * 8, 1e6, 1)


def test_the_quantile_loss_is_that_of_a_loop():
    rng = np.random.default_rng(0)
    levels = np.array([0.1, 0.5, 0.8], np.float32)
    forecasts, targets = (rng.normal(size=shape).astype(np.float32) for shape in ((200, 4, 3), (200, 4)))
    losses = np.asarray(pinball(forecasts, targets, levels))
    for row, step in np.ndindex(200, 4):
        expected = 0.0
        for level, forecast in zip(levels, forecasts[row, step], strict=True):
            error = targets[row, step] - forecast
            expected += 2 / 3 * (level * error if error > 0 else (level - 1) * error)
        assert losses[row, step] == pytest.approx(expected, abs=1e-5)


@pytest.mark.slow
def test_the_metrics_are_those_of_a_loop():
    _, _, _, valid = rows_of((90, 80))
    model = presets.model("patchtst-micro", layers=1, width=16, heads=2, ffn=16, classes=12)
    model = tfm.override(model, {"input.image_width": 8, "input.patch": 4})
    params = random_params(tfm.classifier_specs(model))
    batch = valid.batch(np.array([0, 1, -1, 2]), np.random.default_rng(0))
    sums = jax.jit(FORECAST.loss, static_argnums=1)(params, model, batch, None)
    outputs = np.asarray(tfm.classify(params, model, batch["frames"])).reshape(4, 4, 3)
    mase, naive, covered, loss = [], [], [], 0.0
    for row in (0, 1, 3):
        predicted, truth = batch["seasonal"][row][:, None] + outputs[row], batch["targets"][row]
        mase.append(abs(predicted[:, 1] - truth).mean() / batch["scales"][row])
        naive.append(abs(batch["seasonal"][row] - truth).mean() / batch["scales"][row])
        covered.append(np.mean([min(values) <= y <= max(values) for values, y in zip(predicted, truth, strict=True)]))
        loss += float(np.asarray(pinball(predicted, truth, np.array([0.1, 0.5, 0.9], np.float32))).sum())
    means = FORECAST.metrics({name: np.asarray(value) for name, value in sums.items()})
    assert means["loss"] == pytest.approx(loss / 12, rel=1e-4)
    assert means["mase"] == pytest.approx(np.mean(mase), rel=1e-4)
    assert means["mase_seasonal"] == pytest.approx(np.mean(naive), rel=1e-4)
    assert means["covered"] == pytest.approx(np.mean(covered))


def test_the_linear_map_is_that_of_least_squares():
    _, _, train, valid = rows_of((120, 110))
    batch = train.batch(np.arange(len(train)), np.random.default_rng(0))
    windows = np.concatenate([batch["frames"][:, 0, :, 0], np.eye(8)])  # a ridge of 1 is a row for each weight
    weights = np.linalg.lstsq(windows, np.concatenate([batch["targets"], np.zeros((8, 4))]), rcond=None)[0]
    batch = valid.batch(np.arange(len(valid)), np.random.default_rng(0))
    errors = abs(batch["frames"][:, 0, :, 0] @ weights - batch["targets"]).mean(1) / batch["scales"]
    assert linear_mase(train, valid) == pytest.approx(errors.mean(), rel=1e-4)


def write_table(path, length=200, columns=3):
    """Waves of twelve values, beside a column of dates."""
    steps = np.arange(length)
    series = [np.round(5 + n + (n + 1) * np.sin(2 * np.pi * steps / 12 + n), 4) for n in range(columns)]
    lines = [",".join(["date", *(f"s{n}" for n in range(columns))])]
    lines += [",".join([f"day {step}", *(str(values[step]) for values in series)]) for step in steps]
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.slow
def test_a_run_on_a_table(home):
    """Trained, resumed, evaluated, asked, and looked at."""
    write_table(home / "waves.csv")
    flags = (*SMALL, "--data=waves.csv")
    err = run(*flags, "--stop-at=30", "--out=run")
    assert "6 values from 24, quantiles 0.1, 0.5, 0.9" in err
    run("--resume", "--out=run")
    result = json.loads((home / "run/result.json").read_text())
    assert {"eval_mase", "eval_mase_seasonal", "eval_mase_linear", "eval_covered", "eval_n"} <= result.keys()
    assert (home / "run/plots/forecasts.png").exists()
    write_table(home / "more.csv", 60, 1)
    code, out, err = call(evaluate.main, "--run=run", "--data=more.csv")
    assert code == 0, err
    assert json.loads(out)["n"] == 6
    code, out, err = call(predict.main, "--run=run", "--file=more.csv")
    assert code == 0, err
    lines = [line.split("\t") for line in out.splitlines()]
    assert [line[:2] for line in lines] == [["s0", str(step)] for step in range(1, 7)]
    expected = 5 + np.sin(2 * np.pi * np.arange(60, 66) / 12)
    np.testing.assert_allclose([float(line[3]) for line in lines], expected, atol=0.5)
    assert all(float(line[2]) <= float(line[3]) <= float(line[4]) for line in lines)
    assert call(predict.main, "--run=run", "--file=waves.csv", "--field=s1", "--to=out.jsonl")[0] == 0
    assert read_lines(home / "out.jsonl")[0]["quantiles"].keys() == {"0.1", "0.5", "0.9"}
    assert call(inspect.main, *flags, "--to=page.png")[0] == 0
    run(*flags, "--eval-data=more.csv", "--init=run", "--steps=2", "--out=on")
    write_table(home / "short.csv", 20, 1)
    code, _, err = call(predict.main, "--run=run", "--file=short.csv")
    assert (code, "short.csv: the series s0 has 20 values, and a forecast needs 24; leave" in err) == (2, True), err


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            "--data=short.csv",
            "short.csv: the series s0 has 30 values, of which 24 are for training, and a window needs",
        ),
        (
            "--data=waves.csv --eval-data=tiny.csv",
            "no series of tiny.csv has 30 values, a window and its forecast; name",
        ),
        ("--task.quantiles=0.1,0.9", "quantiles=0.1,0.9 must rise from above 0 to below 1, such as 0.1,0.5,0.9"),
        ("--task.quantiles=a", "quantiles=a must rise"),
        ("--task.valid=1", "valid=1.0 must be more than 0 and less than 1; 0.2 is usual"),
        ("--model.input.channels=3", "the model reads 1 rows and 3 channels; say --model.input.size=1"),
        ("--model.input.image-width=20", "image_width=20 must be a multiple of patch=8; try image_width=16"),
    ],
)
def test_bad_input(flags, sentence, home):
    for name, length in (("waves", 200), ("short", 30), ("tiny", 20)):
        write_table(home / f"{name}.csv", length, 1)
    code, out, err = call(main, *SMALL, *flags.split(), "--out=bad")
    assert (code, out) == (2, ""), err
    assert sentence in err.splitlines()[-1].replace("image-width", "image_width"), err
    assert not (home / "bad").exists()

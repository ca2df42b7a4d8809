"""Runs in phases: bit for bit the same when they stop at any border or inside a phase; what folders keep of phases."""

import contextlib
import json
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from small import FLAGS, call, read_lines, run, write_text

from train.evaluate import main as evaluate
from train.lab.replay import main as replay
from train.main import main
from train.plan import main as plan
from train.runs.run_folder import RunFolder, run_values

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_home")]

CLOCK = ("tokens_per_s", "ms_per_step")
RECIPE = """
[[phase]]
steps = 4
batch.length = 16
batch.size = [8, 16]
task.rate = 0.3
model.period.1.mixer.pattern.window = 4
model.position.base = 100.0
optim.rate = 1e-3
optim.schedule = "constant"
optim.warmup = 2

[[phase]]
tokens = 768
batch.length = 32
batch.size = 8
task.rate = 0.15
model.position.base = 400.0

[[phase]]
steps = 3
task.rate = 0.05
optim.schedule = "1-sqrt"
"""
MODEL = "--model.layers=2 --model.position=rotary --model.period=2 --model.period.1.mixer=softmax --model.dropout=0.1"
PHASES = [*FLAGS, *MODEL.split(), "--model.period.1.mixer.pattern=sliding", "--phases=recipe.toml"]
PHASES = [flag for flag in PHASES if flag not in ("--steps=6", "--log.every=2", "--model.layers=1")]
PHASES += ["--log.every=1", "--checkpoint.keep=20"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a text, a recipe, and the whole run of it."""
    folder = tmp_path_factory.mktemp("home")
    write_text(folder / "text.txt")
    (folder / "recipe.toml").write_text(RECIPE)
    with contextlib.chdir(folder):
        (folder / "stderr").write_text(run(*PHASES, "--out=whole"))
    return folder


def metrics(folder):
    lines = read_lines(Path(folder) / "metrics.jsonl")
    return [{name: value for name, value in line.items() if name not in CLOCK} for line in lines]


def arrays(folder, step):
    """The parameters and the optimizer's state of a checkpoint."""
    path = (Path(folder) / "checkpoints" / str(step)).absolute()
    checkpointer = ocp.Checkpointer(ocp.StandardCheckpointHandler())
    return [leaf for item in ("params", "opt") for leaf in jax.tree.leaves(checkpointer.restore(path / item))]


def test_a_run_that_stops_everywhere_equals_the_whole():
    """Inside every phase, between two sizes of batches, and at both borders."""
    run(*PHASES, "--out=parts", "--stop-at=1")
    for stop in (2, 4, 5, 7, 9):
        run("--resume", "--out=parts", f"--stop-at={stop}")
    run("--resume", "--out=parts")
    assert metrics("parts") == metrics("whole")
    for step in (2, 4, 10):
        for part, uninterrupted in zip(arrays("parts", step), arrays("whole", step), strict=True):
            np.testing.assert_array_equal(part, uninterrupted)
    results = [json.loads(Path(folder, "result.json").read_text()) | {"seconds": 0} for folder in ("parts", "whole")]
    assert results[0] == results[1]


def test_what_a_run_says_of_its_phases():
    lines = metrics("whole")
    assert [line["phase"] for line in lines if line["split"] == "train"] == [1] * 4 + [2] * 3 + [3] * 3
    assert [line["phase"] for line in lines if line["split"] == "eval"] == [1, 1, 2, 3, 3]
    rates = [line["rate"] for line in lines if line["split"] == "train"]
    expected = [0.5e-3, *[1e-3] * 6, *(1e-3 * (1 - np.sqrt(np.arange(3) / 3)))]
    np.testing.assert_allclose(rates, expected, rtol=1e-5)
    table = {line.split("  ")[0]: line for line in Path("stderr").read_text().splitlines()}
    assert "steps 1 to 4 of 8, 16 x 16, 768 tokens; rate 0.0005 to 0.001; " in table["phase 1"]
    assert "steps 8 to 10 of 8 x 32, 768 tokens; rate 0.001 to 0.000184; task.rate=0.05" in table["phase 3"]
    assert not {"batch", "rows", "sources"} & table.keys()
    assert "the step was compiled for 4 shapes of batches and 2 models" in table


def test_a_folder_has_the_model_of_its_phase():
    """A run that stops in its first phase is evaluated, and gone on from, with the windows and bases of that phase."""
    run(*PHASES, "--out=first", "--stop-at=3")
    for folder, base in (("first", 100.0), ("whole", 400.0)):
        assert RunFolder(folder).config.model.position.base == base
        assert run_values(folder)["model.position.base"] == base
        assert RunFolder(folder).config.model.layer_plan.layers[1].mixer.pattern.window == 4
    assert RunFolder("first").recorded_values["model.position.base"] == 10_000.0, "the flags stay"
    code, out, err = call(evaluate, "--run=whole")
    assert code == 0, err
    assert json.loads(out)["loss"] == pytest.approx(
        json.loads(Path("whole/result.json").read_text())["eval_loss"], rel=1e-6
    )


def test_going_on_from_the_stable_phase_of_a_folder():
    Path("decay.toml").write_text('[[phase]]\nsteps = 2\ntask.rate = 0.05\noptim.schedule = "1-sqrt"\noptim.warmup = 0')
    flags = [flag for flag in PHASES if not flag.startswith(("--model", "--phases", "--tokenizer"))]
    run(*PHASES, "--out=stable", "--stop-at=7")
    err = run(*flags, "--init=stable", "--phases=decay.toml", "--out=decay", "--optim.rate=1e-3")
    assert "phase 1     steps 1 to 2 of 8 x 32, 512 tokens; rate 0.001 to 0.000293" in err
    assert RunFolder("decay").config.model.position.base == 400.0
    first = metrics("decay")[0]["loss"]
    assert abs(first - metrics("stable")[-1]["loss"]) < 0.5


def test_a_step_of_any_phase_is_run_again():
    """`train.replay` finds the sums that the run had, whichever phase the step is of."""
    lines = {line["step"]: line for line in metrics("whole") if line["split"] == "train"}
    for step in (3, 9):
        code, out, err = call(replay, "--run=whole", f"--step={step}")
        assert code == 0, err
        norm = float(dict(word.split(" ") for word in out.splitlines()[0].split("  "))["grad_norm"])
        assert norm == pytest.approx(lines[step]["grad_norm"], rel=1e-3)


def test_the_plan_shows_all_phases():
    flags = [flag for flag in PHASES if not flag.startswith(("--data", "--log", "--eval", "--checkpoint"))]
    code, out, err = call(plan, "--topology=h100:2", "--task=mlm", *flags)
    assert code == 0, err
    report = json.loads(out)
    assert [(part["first"], part["stop"]) for part in report["phases"]] == [(0, 2), (2, 4), (4, 7), (7, 10)]
    assert [part["tokens_a_step"] for part in report["phases"]] == [128, 256, 256, 256]
    assert report["memory"]["all"] == max(part["memory"]["all"] for part in report["phases"])
    assert "phase 2, steps 5 to 7 on h100" in err


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("model.width = 64", "phase 2 changes the shape of parameters (encoder."),
        ("task.nsp = true", "phase 2 changes the shape of parameters (pooler."),
        ("batch.size = 4096", "--data=text.txt fills"),
    ],
)
def test_what_only_the_data_or_the_parameters_refuse(change, sentence):
    Path("bad.toml").write_text(f"[[phase]]\nsteps = 2\n[[phase]]\nsteps = 2\n{change}")
    flags = [flag for flag in PHASES if not flag.startswith("--phases")]
    code, out, err = call(main, *flags, "--phases=bad.toml", "--out=bad")
    assert (code, out) == (2, "")
    assert sentence in err
    assert "Traceback" not in err
    assert not Path("bad").exists()


def test_a_recipe_cannot_change_on_resume():
    Path("other.toml").write_text(RECIPE.replace("0.05", "0.1"))
    code, _, err = call(main, "--resume", "--out=whole", "--phases=other.toml")
    assert code == 2
    assert "--phases.2.changes=task.rate=0.1 optim.schedule=1-sqrt differs from" in err

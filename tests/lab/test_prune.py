"""Runs without the heads that they need least."""

import contextlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from small import FLAGS, call, write_text
from tasks.translate.test_task import SMALL, counting, write_sides

from train import evaluate, prune
from train.main import main

pytestmark = pytest.mark.usefixtures("in_home")
RUNS = {
    "mlm": ["--task=mlm", "--batch.length=16", "--model.heads=4"],
    "grouped": ["--task=lm", "--model.heads=4", "--model.kv-heads=2", "--model.position=rotary", "--optim.ema=0.9"],
    "alibi": ["--task=lm", "--model.heads=4", "--model.position=alibi", "--model.init-std=0.3"],
    "t5": ["--task=lm", "--model.heads=4", "--model.position=t5"],
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a text."""
    folder = tmp_path_factory.mktemp("home")
    with contextlib.chdir(folder):
        write_text(Path("text.txt"))
    return folder


def trained(name):
    """The run folder of that name, trained once."""
    if not Path(name).exists():
        flags = [flag for flag in FLAGS if not flag.startswith(("--model.heads", "--batch.length"))]
        code, _, err = call(main, *flags, "--batch.length=16", "--eval.final=false", *RUNS[name], f"--out={name}")
        assert code == 0, err
    return name


def pruned(run, *flags):
    code, out, err = call(prune.main, f"--run={run}", *flags)
    assert code == 0, err
    return json.loads(out)


@pytest.mark.slow
def test_a_pruned_run_is_a_smaller_run():
    """It evaluates as the command said, has fewer parameters, and trains on."""
    trained("mlm")
    facts = pruned("mlm", "--heads=0.5", "--batches=2")
    assert (facts["heads"], facts["heads_before"]) == (2, 4)
    assert facts["params_before"] - facts["params"] == 2 * (8 * 32 * 4 + 8 * 3)
    small = Path("mlm-heads0.5")
    names = {"checkpoints", "heads.json", "plots", "result.json", "run.json", "tokenizer.json"}
    assert {path.name for path in small.iterdir()} == names
    assert (small / "plots/heads.png").stat().st_size > 1000
    model = json.loads((small / "run.json").read_text())["config"]["model"]
    assert (model["heads"], model["head_size"]) == (2, 8)
    measured = json.loads(call(evaluate.main, f"--run={small}")[1])
    np.testing.assert_allclose(measured["loss"], facts["loss"], rtol=1e-5)
    curve = json.loads((small / "heads.json").read_text())["metrics"]
    assert curve["heads"] == [4, 3, 2, 1]
    np.testing.assert_allclose(curve["loss"][2], facts["loss"], rtol=1e-5)
    np.testing.assert_allclose(curve["loss"][0], facts["loss_before"], rtol=1e-5)
    flags = ["--task=mlm", "--data=text.txt", "--steps=2", "--batch.size=8", "--eval.final=false"]
    code, _, err = call(main, *flags, f"--init={small}", "--out=tuned")
    assert code == 0, err
    code, _, err = call(main, "--resume", f"--out={small}", "--steps=8")
    assert code == 0, err


@pytest.mark.slow
def test_a_resumed_run_is_pruned_as_any_other():
    """Its run.json says that it went on; the smaller run is a new one, with files of its own."""
    trained("grouped")
    shutil.copytree("grouped", "went-on")
    code, _, err = call(main, "--resume", "--out=went-on", "--steps=8", "--eval.final=false")
    assert code == 0, err
    assert json.loads(Path("went-on/run.json").read_text())["config"]["resume"]
    assert pruned("went-on", "--heads=0.5", "--batches=1", "--to=smaller")["heads"] == 2
    assert json.loads(Path("smaller/run.json").read_text())["config"]["resume"] is False
    assert Path("smaller/tokenizer.json").read_bytes() == Path("grouped/tokenizer.json").read_bytes()


@pytest.mark.slow
def test_the_curve_of_a_translator_shows_bleu():
    """Translations of the smaller model are those of the model whose gates are closed; train.evaluate agrees."""
    write_sides("train", counting(300, seed=0))
    flags = [flag for flag in SMALL if not flag.startswith(("--model.heads", "--task.bleu", "--eval.every"))]
    argv = [*flags, "--model.heads=4", "--task.bleu=1000", "--data=train.en,train.de", "--eval.every=60"]
    code, _, err = call(main, *argv, "--eval.final=false", "--out=translator")
    assert code == 0, err
    facts = pruned("translator", "--heads=0.5", "--batches=2")
    small = Path("translator-heads0.5")
    curve = json.loads((small / "heads.json").read_text())["metrics"]
    assert list(curve) == ["heads", "loss", "accuracy", "bleu"]
    assert len(curve["bleu"]) == 4
    assert facts["chrf_before"] > 0
    evaluated = json.loads(call(evaluate.main, f"--run={small}")[1])
    before = json.loads(call(evaluate.main, "--run=translator")[1])
    for name in ("bleu", "chrf"):
        assert (facts[name], facts[f"{name}_before"]) == pytest.approx((evaluated[name], before[name]))
    assert json.loads((small / "result.json").read_text())["bleu"] == facts["bleu"]
    assert (curve["bleu"][2], curve["bleu"][0]) == pytest.approx((facts["bleu"], facts["bleu_before"]))


@pytest.mark.slow
def test_groups_keep_as_many_heads_each():
    trained("grouped")
    facts = pruned("grouped", "--heads=0.5", "--by=learned", "--batches=3", "--to=ungrouped")
    assert (facts["heads"], facts["heads_before"]) == (2, 4)
    model = json.loads(Path("ungrouped/run.json").read_text())["config"]["model"]
    assert (model["heads"], model["kv_heads"], model["head_size"]) == (2, 2, 8)
    measured = json.loads(call(evaluate.main, "--run=ungrouped")[1])
    np.testing.assert_allclose(measured["loss"], facts["loss"], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("t5", "--run=t5 cannot be pruned: decoder.positions.0 has values for each head, which all layers share"),
        ("alibi", "--run=alibi cannot be pruned: alibi gives a head what depends on how many heads there are"),
    ],
)
def test_models_that_cannot_lose_heads(name, sentence):
    code, out, err = call(prune.main, f"--run={trained(name)}", "--batches=1", f"--to={name}-small")
    assert (code, out) == (2, "")
    assert sentence in err.splitlines()[-1]
    assert not list(Path().glob(f"{name}-small*"))


@pytest.mark.slow
def test_what_a_run_cannot_do():
    trained("mlm")
    for flags, sentence in {
        ("--heads=0.9",): "error: --heads=0.9 keeps all of the 4 heads of a layer of mlm; try --heads=0.5",
        ("--to=mlm",): "error: mlm already holds something; choose another folder with --to=DIR",
    }.items():
        assert call(prune.main, "--run=mlm", *flags)[::2] == (2, sentence + "\n")


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ((), "run=RUN must name the folder of a run"),
        (("--run=absent",), "absent is not a run folder"),
        (("--run=absent", "--heads=0"), "heads=0.0 must be more than 0 and less than 1; 0.5 keeps half of them"),
        (("--run=absent", "--heads=1"), "heads=1.0 must be more than 0 and less than 1"),
        (("--run=absent", "--heads=nan"), "heads=nan"),
        (("--run=absent", "--by=chance"), "by=chance is unknown"),
        (("--run=absent", "--batches=0"), "batches=0 must be at least 1"),
        (("--run=absent", "--head=0.5"), "unknown flag --head; did you mean heads?"),
    ],
)
def test_bad_input(flags, sentence):
    code, out, err = call(prune.main, *flags)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert sentence in err

"""The training steps of the notebooks, compiled by the compiler of a TPU for a single chip of Colab's kind. Needs the
extra `[tpu-plan]`."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from train.devices import topology
from train.plan import Planner, PlanOptions
from train.screens.console import Log
from train.tasks import resolve

ROOT = Path(__file__).parents[2]

# What the notebooks train, in the flags of train.main; the vocabularies and classes are about those of the data. 06 and
# 09 train without it.
COPIES = (
    "--task=lm --batch.length=32 --model.length=32 --batch.size=64 --model.layers=2 --model.width=64 --model.heads=2"
)
DEEP = "--task=lm --model.layers=6 --model.width=64 --model.heads=4 --model.vocab=32 --batch.length=48 --batch.size=16"
WORDS = "--batch.size=32 --model.vocab=70"
STEPS = {
    "01_quickstart": [
        "--task=mlm --model.vocab=8192",
        "--task=classify --model.vocab=8192 --model.classes=2 --batch.size=8 --batch.length=16",
    ],
    "02_gpt": ["--task=lm --preset=gpt-tiny --model.vocab=8192"],
    "03_translation": ["--task=translate --model.vocab=1000"],
    "04_finetune": [
        "--task=mlm --model.vocab=1000",
        "--task=tag --model.vocab=1000 --model.classes=9",
        "--task=span --model.vocab=1000 --batch.length=64",
        "--task=tag --model.vocab=1000 --model.classes=9 --tune=lora --tune.targets=all",
        "--task=tag --model.vocab=1000 --model.classes=9 --tune=head",
    ],
    "05_long": [
        f"{COPIES} --model.vocab=64 {mixer}"
        for mixer in (
            "--model.mixer=softmax",
            "--model.mixer.pattern=sliding --model.mixer.pattern.window=5",
            "--model.mixer=reformer",
            "--model.mixer=linear",
            "--model.mixer=performer",
            "--model.mixer=delta",
            "--model.mixer=gru",
            "--model.mixer=lstm",
            "--model.mixer=aft --model.mixer.reach=simple",
            "--model.mixer=aft",
            "--model.mixer=synthesizer",
        )
    ],
    "06_inside": [f"{DEEP} --model.residual={residual}" for residual in ("post", "pre", "rezero")],
    "07_vision": [
        "--task=image --model.layers=3 --model.width=64 --model.heads=4 --model.ffn=128 --model.input.patch=4 "
        "--batch.size=32 --model.classes=6",
        "--task=pixels --model.layers=3 --model.width=64 --model.heads=4 --model.ffn=256 --batch.size=16",
        "--task=contrast --preset=clip-tiny",
    ],
    "08_sentences": [
        f"--task=skipthought {WORDS} --batch.length=16 --model.width=64 --model.input.width=64",
        f"--task=bilm {WORDS} --batch.length=48 --model.width=64 --model.input.width=32 --model.mixer.size=64 "
        "--model.mixer.projection=32",
        f"--task=mlm {WORDS} --batch.length=48 --model.layers=4 --model.width=64 --model.heads=4 "
        "--model.position=rotary --model.residual=pre --model.dropout=0",
        "--task=contrast --model.layers=4 --model.width=64 --model.heads=4 --model.position=rotary --model.vocab=70 "
        "--model.residual=pre --model.dropout=0.1 --batch.size=64 --batch.length=16",
    ],
    "09_chapter": [
        "--task=tag --model.layers=2 --model.heads=4 --model.width=64 --model.ffn=128 --model.vocab=715 "
        "--model.classes=32 --batch.size=32 --batch.length=32",
    ],
    "10_pictures": [
        "--task=segment --model.layers=3 --model.classes=5",
        "--task=image --model.layers=3 --model.width=64 --model.input.patch=4 --batch.size=32 --model.classes=32",
        "--task=detect --preset=detect-micro --model.classes=4",
        "--task=restore --preset=colour-micro --model.layers=3",
        "--task=restore --preset=holes-micro --model.layers=3",
        "--task=answer-picture --preset=vilt-micro --model.vocab=70 --model.classes=14",
        "--task=contrast --preset=clip-tiny",
    ],
}
LEFT_OUT = ("--task.", "--model.init-std", "--batch.shapes")  # a step has the same shapes without
FLAG = re.compile(r"--(?:task|preset|model|batch|tune)(?:\.[\w-]+)*=[\w.-]+")


def code(name):
    """The source of a notebook's cells of code."""
    cells = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text())["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


def test_the_table_has_the_flags_of_the_notebooks():
    assert set(STEPS) == {path.stem for path in ROOT.glob("notebooks/*.ipynb")}
    for name, steps in STEPS.items():
        written = {flag for flag in FLAG.findall(code(name)) if not flag.startswith(LEFT_OUT)}
        assert written <= {flag for step in steps for flag in FLAG.findall(step)}, name


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("libtpu"), reason="needs libtpu")
@pytest.mark.parametrize(("name", "flags"), [(name, flags) for name, steps in STEPS.items() for flags in steps])
def test_a_step_compiles_for_a_chip(name, flags):
    planned = topology.parse("v5e:1x1")
    devices, exact = topology.devices(planned)
    run, explicit = resolve.resolve(resolve.infer_task(flags.split(), None), None, None)
    run = resolve.fill_from_data(run, explicit | {"model.scan"}, {}, planned.platform)
    report = Planner(planned, devices, exact, PlanOptions().long_run, Log(quiet=True)).examine(run)
    assert exact
    assert report["fits"], report.get("refused")
    assert report["memory"]["all"] < planned.spec.memory

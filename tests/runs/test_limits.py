"""A folder of somebody else may ask for any amount of memory: every command refuses it before it allocates."""

import math
import re
from pathlib import Path

import jax
import pytest
from random_params import random_params
from runs.test_hf_folder import tokenizer
from small import call

import tfm
from train import OutOfMemoryError
from train.devices import capacity
from train.evaluate import main as evaluate
from train.export import main as export
from train.generate import main as generate
from train.lab.embed import main as embed
from train.main import main as train
from train.predict import main as predict
from train.runs.run_folder import RunFolder, open_folder
from train.runs.saved import SavedCheckpoints

pytestmark = pytest.mark.usefixtures("in_home")

CONFIG = tfm.Config(layers=2, heads=2, width=16, ffn=32, vocab=103, length=16, dropout=0.0, classes=2)
GPT2 = {"residual": "pre", "input.token_types": None, "input.norm": False}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Folders of a language model and of a classifier."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "text.txt").write_text("w1 w2 w3 w4 w5 w6 w7 w8 w9\n" * 20)
    (folder / "rows.tsv").write_text("text\tlabel\n" + "".join(f"w{n} w{n + 1}\tLABEL_{n % 2}\n" for n in range(80)))
    for name, specs in {"lm": tfm.causal_lm_specs, "classify": tfm.classifier_specs}.items():
        config = tfm.override(CONFIG, GPT2 if name == "lm" else {"head.pool": "first"})
        tfm.to_hf(config, random_params(specs(config)), folder / name, tokenizer())
    return folder


COMMANDS = {
    "evaluate": (evaluate, "--run=classify", "--data=rows.tsv"),
    "predict": (predict, "--run=classify", "--text=w1 w2"),
    "generate": (generate, "--run=lm", "--prompt=w1 w2", "--to=out.txt"),
    "export": (export, "--run=lm", "--to=copy"),
    "embed": (embed, "--run=classify", "--file=text.txt", "--to=vectors.npy"),
    "train": (train, "--task=classify", "--data=rows.tsv", "--init=classify", "--out=run", "--batch.length=16"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_refuses_before_it_allocates(name, monkeypatch):
    """A device of 1 kB, and no weight is read."""
    command, *flags = COMMANDS[name]
    files = sorted(Path().rglob("*"))
    monkeypatch.setattr(capacity, "device_bytes", lambda devices=(): 1000 if devices else math.inf)
    monkeypatch.setattr(tfm, "from_hf", pytest.fail)
    code, out, err = call(command, *flags)
    sentence = err.splitlines()[-1]
    assert (code, out) == (2, "")
    assert sentence.startswith("error: ")
    assert re.search(r"describes a model of [\d,]+ parameters, which need .*, and there are ", sentence)
    assert sorted(Path().rglob("*")) == files


def test_a_run_folder_is_bound_as_well(monkeypatch):
    """Before a checkpoint is read."""
    monkeypatch.setattr(
        RunFolder, "specs", tfm.causal_lm_specs(tfm.override(CONFIG, GPT2 | {"ffn": 1 << 24, "layers": 1000}))
    )
    monkeypatch.setattr(SavedCheckpoints, "__init__", pytest.fail)
    with pytest.raises(
        OutOfMemoryError, match=r"^run describes a model of 5\d\d,\d{3},\d{3},\d{3} parameters, which need "
    ):
        RunFolder("run").load()


def test_the_bound_is_that_of_the_devices_of_the_mesh(monkeypatch):
    """Eight devices may hold what one cannot."""
    specs = tfm.causal_lm_specs(tfm.override(CONFIG, GPT2))
    size = sum(4 * math.prod(spec.shape) for spec in jax.tree.leaves(specs))
    monkeypatch.setattr(capacity, "device_bytes", lambda devices=(): len(devices) * size / 2)
    capacity.mesh_for_weights(specs, Path("run"), tfm.make_mesh(2, devices=jax.devices()[:2]))
    with pytest.raises(OutOfMemoryError):
        capacity.mesh_for_weights(specs, Path("run"), tfm.make_mesh(devices=jax.devices()[:1]))
    assert open_folder("lm").specs

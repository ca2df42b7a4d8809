"""A corpus needs no tokenizer: a run on grey pixels, with a processor of their own, resumes and is evaluated."""

import dataclasses
import json

import numpy as np
import pytest
from small import FLAGS, call

from train import UserError, evaluate, main
from train.data.corpus import Corpus
from train.data.processors import ProcessorKind
from train.runs import run_folder
from train.settings.schema import Run
from train.tasks.lm.options import Lm
from train.tasks.lm.task import LM


@dataclasses.dataclass(frozen=True)
class GreyLevels:
    """Grey values from 0 to 1 -> tokens: a processor of images."""

    count: int

    def __call__(self, images):
        return np.minimum(images * self.count, self.count - 1).astype(np.int32)


def read_levels(path):
    try:
        return GreyLevels(**json.loads(path.read_text()))
    except TypeError as error:
        raise ValueError(str(error)) from error


KIND = ProcessorKind(("levels.json",), lambda levels: (json.dumps(dataclasses.asdict(levels)),), read_levels)


class Images:
    """Images [N,P] in rows of P pixels; the target of each is the next."""

    buckets, independent_rows, padding = None, True, 0.0

    def __init__(self, pixels):
        self.pixels, self.tokens, self.num_targets = pixels, pixels.size, pixels.size

    def __len__(self):
        return len(self.pixels)

    def batch(self, rows, rng):
        pixels = np.where(rows[:, None] < 0, 0, self.pixels[rows])
        weights = np.repeat(np.float32(rows >= 0)[:, None], pixels.shape[1] - 1, axis=1)
        return {"tokens": pixels[:, :-1], "targets": pixels[:, 1:], "weights": weights, "bytes": weights.sum(1)}


def load(run, log, saved=None, valid_only=False):
    """Ramps from black to white, each from a start of its own."""
    levels = saved.processor if saved else GreyLevels(10)
    images = (np.linspace(0, 1, run.batch.length + 1) + np.linspace(0, 1, 64)[:, None]) % 1
    train, valid = (Images(levels(part)) for part in (images[:56], images[56:]))
    facts = {"hash": "ramps", "segmentation_hash": "", "levels": levels.count}
    return Corpus(run, levels, [train], valid, {"vocab": levels.count}, facts)


RAMPS = dataclasses.replace(LM, load=load, processor=KIND, report=lambda *_: None)
GREY = [*(flag for flag in FLAGS if not flag.startswith(("--data", "--tokenizer"))), "--task=lm", "--task.windows=true"]


@pytest.fixture
def images(monkeypatch, tmp_path):
    monkeypatch.setattr("train.tasks.lm.task.LM", RAMPS)
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_a_run_on_images(images, tmp_path):
    code, _, err = call(main.main, *GREY, "--out=grey")
    assert (code, "vocabulary" in err) == (0, True), err
    assert json.loads((tmp_path / "grey/levels.json").read_text()) == {"count": 10}
    assert not (tmp_path / "grey/tokenizer.json").exists()
    facts = json.loads((tmp_path / "grey/run.json").read_text())["data"]
    assert (facts["levels"], "tokenizer" in facts) == (10, False)
    assert run_folder.open_folder("grey").processor == GreyLevels(10)

    code, _, err = call(main.main, "--resume", "--out=grey", "--steps=8")
    assert code == 0, err
    code, out, err = call(evaluate.main, "--run=grey")
    assert code == 0, err
    result = json.loads((tmp_path / "grey/result.json").read_text())
    assert json.loads(out)["loss"] == pytest.approx(result["eval_loss"], abs=1e-4)


def test_a_processor_that_cannot_be_read(images, tmp_path):
    run_folder.create(tmp_path / "grey", Run(task=Lm()), GreyLevels(10), {})
    (tmp_path / "grey/levels.json").unlink()
    with pytest.raises(UserError, match=r"grey is not a run folder: it has no levels.json"):
        _ = run_folder.open_folder("grey").processor
    (tmp_path / "grey/levels.json").write_text("{")
    with pytest.raises(UserError, match=r"grey/levels.json is damaged, .*; restore it or start a new run"):
        _ = run_folder.open_folder("grey").processor

"""What is measured of each source of several stores."""

import json
from pathlib import Path

import numpy as np
import pytest
from data.store.documents import DOCUMENTS, write

from train import evaluate, main, prepare
from train.data import by_source

pytestmark = pytest.mark.usefixtures("cache")


@pytest.mark.parametrize("limit", [0, 1, 5, 100])
def test_every_row_is_in_one_batch_of_its_source(limit):
    sizes = {"a": 70, "b": 1, "c": 16}
    parts = by_source.batches(sizes, 8, limit)
    complete = by_source.batches(sizes, 8)
    rows = {name: np.concatenate([part.rows for part in complete if part.source == name]) for name in sizes}
    assert {name: kept[kept >= 0].tolist() for name, kept in rows.items()} == {
        "a": [*range(70)],
        "b": [70],
        "c": [*range(71, 87)],
    }
    assert {part.source for part in parts} == {*sizes}
    assert len(parts) <= max(limit or len(complete), 3)
    for part in parts:
        np.testing.assert_array_equal(part.rows, complete[part.batch].rows)


def test_metrics_of_sums():
    sums = {"loss": 6.0, "weight": 4.0, "loss/a": 5.0, "weight/a": 2.0, "loss/b": 1.0, "weight/b": 2.0}
    mean = dict(by_source.metrics(lambda own: {"loss": own["loss"] / own["weight"], "rest": 0.0}, sums))
    assert mean == {"loss/a": 2.5, "loss/b": 0.5}


@pytest.mark.slow
def test_losses_by_source(tmp_path, capsys):
    """Of two stores, each has the loss that it has alone, in training and in train.evaluate."""
    for name, documents in {"cats": DOCUMENTS[:200], "digits": [f"{n} {n} {n} {n}" for n in range(99)]}.items():
        write(tmp_path / f"{name}.jsonl", documents)
        path = [f"--tokenizer.path={tmp_path}/cats/tokenizer.json"] if name == "digits" else ["--tokenizer.vocab=300"]
        argv = [f"--data={tmp_path}/{name}.jsonl", f"--to={tmp_path}/{name}", "--hold-out=0.2", "--length=32"]
        assert prepare.main([*argv, "--runner=here", *path]) == 0
    stores, run = f"--data={tmp_path}/cats,{tmp_path}/digits", f"{tmp_path}/run"
    size = [
        "--batch.length=32",
        "--batch.size=8",
        "--model.length=32",
        "--steps=20",
        "--eval.every=10",
        "--log.every=10",
    ]
    assert main.main(["--task=lm", "--data.mixture=cats:1,digits:3", stores, f"--out={run}", *size]) == 0
    lines = [json.loads(line) for line in Path(run, "metrics.jsonl").read_text().splitlines()]
    trained, measured = ([line for line in lines if line["split"] == split] for split in ("train", "eval"))
    assert [line["epochs/digits"] > 2 * line["epochs/cats"] > 0 for line in trained] == [True, True]
    capsys.readouterr()
    measured_on = {}
    for names in ("cats,digits", "cats", "digits"):
        data = ",".join(f"{tmp_path}/{name}" for name in names.split(","))
        assert evaluate.main([f"--run={run}", f"--data={data}"]) == 0
        measured_on[names] = json.loads(capsys.readouterr().out)
    both = measured_on["cats,digits"]
    assert both["loss/digits"] < both["loss/cats"]
    for name in ("cats", "digits"):
        assert both[f"loss/{name}"] == pytest.approx(measured_on[name]["loss"], rel=1e-6)
    counts = [measured_on[name]["n"] for name in ("cats", "digits")]
    mean = np.average([both["loss/cats"], both["loss/digits"]], weights=counts)
    assert both["loss"] == pytest.approx(mean, rel=1e-6)
    assert both["n"] == sum(counts)
    result = json.loads(Path(run, "result.json").read_text())
    for name in ("loss", "loss/cats", "loss/digits"):
        assert result[f"eval_{name}"] == pytest.approx(measured[-1][name], rel=1e-6)

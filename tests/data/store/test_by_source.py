"""What is measured of each source of several stores."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from data.store.documents import DOCUMENTS, write

from train import evaluate, main, prepare
from train.data import by_source
from train.devices import mesh
from train.losses.loss import scalar_sums, source_sums
from train.losses.teaching import with_totals
from train.runs.tuning import specs_of
from train.screens.console import Log
from train.tasks import resolve, table
from train.training.job import Job, device_batch

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


def test_sums_of_rows_by_source():
    """Those of a loop over rows. A batch of one source alone has none."""
    rng = np.random.default_rng(0)
    sources, weights, tokens, pixels = rng.integers(0, 2, 8), *(rng.random(shape) for shape in ((8, 3), (8, 3), (8, 5)))
    sums = source_sums(by_source.field(sources, 3), weights, tokens, pixels)
    expected = {f"{name}/{source}": 0.0 for name in ("loss", "weight") for source in range(3)}
    for row, source in enumerate(sources):
        expected[f"loss/{source}"] += tokens[row].sum() + pixels[row].sum()
        expected[f"weight/{source}"] += weights[row].sum()
    assert sums == pytest.approx(expected)
    assert by_source.train_losses(["a", "b", "c"], sums) == pytest.approx(
        {f"loss/{name}": expected[f"loss/{index}"] / expected[f"weight/{index}"] for index, name in enumerate("ab")}
    )
    assert source_sums(by_source.field(sources, 1), weights, tokens) == {}


# The flags of tasks that read stores; in each, `loss` is a sum over rows.
TASKS = {
    "mlm": [],
    "lm": ["--model.length=32"],
    "bilm": [],
    "rtd": [],
    "denoise": [],
    "diffuse": [],
}


@pytest.fixture(scope="module")
def stores(cache, tmp_path_factory):
    """The flag of two stores, with sentinels for denoising."""
    folder = tmp_path_factory.mktemp("stores")
    for name, documents in {"cats": DOCUMENTS[:200], "digits": [f"{n} {n} {n} {n}" for n in range(200)]}.items():
        write(folder / f"{name}.jsonl", documents)
        path = [f"--tokenizer.path={folder}/cats/tokenizer.json"]
        path = path if name == "digits" else ["--tokenizer.vocab=300", "--tokenizer.sentinels=16"]
        argv = [f"--data={folder}/{name}.jsonl", f"--to={folder}/{name}", "--hold-out=0.2", "--length=32"]
        assert prepare.main([*argv, "--runner=here", *path]) == 0
    return f"--data={folder}/cats,{folder}/digits"


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_training_losses_by_source(stores, name):
    """Those of a batch whose rows of other sources are empty; on eight devices, in two parts."""
    size = ["--batch.length=32", "--batch.size=16", "--batch.accumulate=2", "--model.dropout=0", "--mesh.context=2"]
    argv = [f"--task={name}", stores, "--data.mixture=cats:1,digits:3", *TASKS[name], *size]
    run, explicit = resolve.resolve(argv, None, None)
    corpus = table.task_of(run).load(run, Log(quiet=True))
    run = resolve.fill_from_data(run, explicit, corpus.sizes, "cpu")
    job = Job(run, table.task_of(run), mesh.mesh_for(run, specs_of(table.task_of(run), run)))
    with jax.set_mesh(job.mesh):
        state = job.new_state()
        params = jax.device_get(state.params)
        sums = jax.device_get(job.train_step(state, device_batch(job, corpus, 3))[1])
    batch = corpus.batch(3)
    sources = batch.pop("sources").argmax(1)
    assert np.bincount(sources).tolist() == [4, 12]
    complete = with_totals(job.task.loss, {field: values[None] for field, values in batch.items()})
    totals = {field: values[0] for field, values in complete.items()}
    for source in range(2):
        own = {
            field: (values.T * (sources == source)).T.astype(values.dtype)
            if field not in ("tokens", "scale")
            else values
            for field, values in batch.items()
        }
        expected = scalar_sums(jax.jit(job.task.loss, static_argnums=1)(params, job.model, totals | own, None))
        assert sums[f"loss/{source}"] == pytest.approx(float(expected["loss"]), rel=1e-5)
        assert sums[f"weight/{source}"] == pytest.approx(float(expected["weight"]), rel=1e-6)
    assert sums["loss"] == pytest.approx(sums["loss/0"] + sums["loss/1"], rel=1e-5)


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
    for line in trained:
        assert min(line["loss/cats"], line["loss/digits"]) < line["loss"] < max(line["loss/cats"], line["loss/digits"])
    assert Path(run, "plots", "sources.png").exists()
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

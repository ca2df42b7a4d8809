"""The command: its rows, cells, budgets and tables; its runs are acted here, but for those that are slow."""

import json
from pathlib import Path

import pytest
from small import call, read_lines, write_text

from train import DivergedError, OutOfMemoryError, UserError
from train.lab.compare import budget, command
from train.lab.compare.budget import Costs
from train.runs.run_folder import RunFolder

VARY = "--vary=model.position=learned,rotary,none"


class Actor:
    """Acts train.main: the loss depends on the position, the rate and the seed."""

    def __init__(self):
        self.trained, self.stops_at, self.failing = [], None, {}

    def train(self, words):
        flags = dict(word.removeprefix("--").partition("=")[::2] for word in words)
        if len(self.trained) == self.stops_at:
            raise KeyboardInterrupt
        self.trained.append(flags)
        position, seed = flags.get("model.position", "learned"), int(flags["seed"])
        if position in self.failing:
            raise self.failing[position]
        folder = Path(flags["out"])
        (folder / "checkpoints").mkdir(parents=True)
        loss = {"learned": 2.0, "rotary": 1.5, "none": 3.0}[position] + seed / 100
        loss += abs(float(flags.get("optim.rate", 1e-3)) - 1e-3) * 100 + (seed == 1 and position == "none") * -2
        (folder / "result.json").write_text(json.dumps({"seconds": 1.5, "eval_loss": loss, "eval_accuracy": 0.5}))
        (folder / "run.json").write_text("{}")


def costs(row, words, reference, kind):
    """Acts what is counted: rotary costs twice the operations, and half of the time."""
    steps = next((int(word.partition("=")[2]) for word in reversed(words) if word.startswith("--steps=")), 100)
    factor = 2 if "rotary" in row.name else 1
    return Costs(words, reference, 1000, 64.0, 1e6 * factor, 1 / factor if kind == "seconds" else None, steps)


@pytest.fixture
def actor(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    actor = Actor()
    monkeypatch.setattr(command, "train", actor.train)
    monkeypatch.setattr(budget, "_costs", costs)
    monkeypatch.setattr("train.lab.compare.cells.forget_programs", lambda: None)
    monkeypatch.setattr(RunFolder, "facts", {"hash": "a", "tokenizer": "b"})
    return actor


def results(folder="out"):
    return json.loads((Path(folder) / "results.json").read_text())


@pytest.mark.slow
def test_a_grid_is_run_by_seeds_and_compared_with_its_first_row(actor):
    code, out, err = call(command.main, VARY, "--seeds=3", "--task=lm", "--out=out", "--metric=loss,accuracy")
    assert code == 0, err
    assert [(run["model.position"], run["seed"], run["steps"]) for run in actor.trained[:4]] == [
        ("learned", "0", "100"),
        ("rotary", "0", "100"),
        ("none", "0", "100"),
        ("learned", "1", "100"),
    ]
    rows = {row["name"]: row["metrics"]["eval_loss"] for row in results()["rows"]}
    assert rows["model.position=learned"]["mean"] == pytest.approx(2.01)
    assert rows["model.position=learned"]["std"] == pytest.approx(0.01)
    assert rows["model.position=learned"]["difference"] is None
    assert rows["model.position=rotary"]["difference"]["agree"] == 3
    assert rows["model.position=rotary"]["difference"]["mean"] == pytest.approx(-0.5)
    assert rows["model.position=none"]["difference"]["agree"] == 2, "one seed says the opposite"
    assert out == (Path("out") / "table.md").read_text()
    assert "| -0.5000 [-0.5000, -0.5000] | 3 of 3 " in out
    assert (Path("out") / "plots" / "compare.png").stat().st_size > 5000
    assert results()["rows"][1]["tokens"] == 6400


@pytest.mark.slow
def test_an_interrupted_comparison_goes_on_to_the_same_table(actor):
    flags = [VARY, "--seeds=2", "--task=lm"]
    _, expected, _ = call(command.main, *flags, "--out=whole")
    actor.trained, actor.stops_at = [], 3
    code, out, _ = call(command.main, *flags, "--out=out")
    assert (code, out) == (130, "")
    actor.stops_at = None
    code, out, err = call(command.main, *flags, "--out=out")
    assert (code, out) == (0, expected), err
    assert len(actor.trained) == 6, "finished cells are kept"
    code, out, _ = call(command.main, *flags, "--seeds=3", "--out=out")
    assert (code, len(actor.trained)) == (0, 9), "more seeds add to the same cells"


def test_failures_are_rows(actor):
    actor.failing = {"none": DivergedError("not finite"), "rotary": OutOfMemoryError("too much")}
    code, out, err = call(command.main, VARY, "--seeds=2", "--task=lm", "--out=out")
    assert code == 0, err
    assert "| not finite " in out
    assert "- model.position=rotary: 2 of 2 runs failed: out of memory" in out
    count = len(actor.trained)
    assert call(command.main, VARY, "--seeds=2", "--task=lm", "--out=out")[1] == out
    assert len(actor.trained) == count, "a failure is a result"
    actor.failing = {"rotary": UserError("the disk is full")}
    assert call(command.main, VARY, "--task=lm", "--out=new")[0] == 2, "what is no result of a run ends the command"


def test_rates_are_searched_with_a_seed_of_their_own(actor):
    flags = [VARY, "--seeds=2", "--task=lm", "--out=out", "--tune=optim.rate=1e-4,1e-3,1e-2"]
    code, out, err = call(command.main, *flags)
    assert code == 0, err
    trials = [run for run in actor.trained if run["seed"] == "1000"]
    assert len(trials) == 9
    assert len(actor.trained) == 15
    assert {run["optim.rate"] for run in actor.trained if run["seed"] != "1000"} == {"1e-3"}
    assert out.count("(chosen)") == 3
    assert "- model.position=none, optim.rate=1e-4: loss 13.0900" in out
    assert not any("try further" in note for note in results()["notes"])


@pytest.mark.parametrize(("kind", "steps"), [("steps", 80), ("flops", 40), ("seconds", 160)])
def test_a_budget_of_the_first_row(actor, kind, steps):
    code, _, err = call(command.main, VARY, "--seeds=1", "--task=lm", "--steps=80", f"--budget={kind}", "--out=out")
    assert code == 0, err
    assert [int(run["steps"]) for run in actor.trained] == [80, steps, 80]
    notes = "\n".join(results()["notes"])
    assert ("rotary reads" in notes) == (kind != "steps")


def test_named_runs(actor):
    runs = ["--run=plain: --model.width=64", "--run=no positions: --model.width=64 --model.position='none'"]
    code, out, err = call(command.main, *runs, "--seeds=1", "--task=lm", "--out=out", "--keep=none")
    assert code == 0, err
    assert (Path("out") / "no-positions" / "seed-0" / "result.json").exists()
    assert not list(Path("out").glob("*/*/checkpoints"))
    assert "| no positions " in out


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (VARY, "--out=DIR must name the folder of the runs"),
        ("--out=out", "there is one row, and nothing to compare it with"),
        ("--out=out --vary=model.position=rotary", "there is one row"),
        ("--out=out --vary=model.position", "--vary=model.position must be FIELD=A,B"),
        ("--out=out --vary=seed=1,2", "--seed is decided for every run by this command; say how many with --seeds=N"),
        (f"--out=out {VARY} --resume", "--resume is decided for every run by this command"),
        (f"--out=out {VARY} --vary=model.position=t5,none", "--vary=model.position=... stands twice"),
        ("--out=out --vary=model.position=none,none", "names a value twice"),
        (f"--out=out {VARY} --tune=model.position=t5,none", "--model.position is both compared and tuned"),
        (f"--out=out {VARY} --run=a:--steps=1", "--vary makes a grid, and --run a list; leave one of them out"),
        ("--out=out --run=a:--steps=1 --run=a:--steps=2", "several rows are named a"),
        ("--out=out --run=--steps=1 --run=a:--steps=2", "must be 'NAME: flags'"),
        (
            "--out=out --vary=model.position=learned,rotry",
            "row model.position=rotry: --model.position=rotry is unknown",
        ),
        (f"--out=out {VARY} --metric=f1", "--metric=f1 is unknown"),
        (f"--out=out {VARY} --seeds=0", "--seeds=0 must be at least 1"),
        (f"--out=out {VARY} --budget=hours", "--budget=hours is unknown; known are steps, flops, seconds"),
        (f"--out=text.txt {VARY}", "--out=text.txt already holds something else"),
        (f"--out=out {VARY} --vary", "--vary needs a value"),
    ],
)
def test_bad_input(actor, flags, says):
    Path("text.txt").write_text("text")
    code, out, err = call(command.main, *flags.split(), "--task=lm")
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1
    assert sorted(Path().iterdir()) == [Path("text.txt")]


def test_what_the_runs_in_a_folder_share_stays(actor):
    call(command.main, VARY, "--seeds=1", "--task=lm", "--out=out")
    code, _, err = call(command.main, VARY, "--seeds=1", "--task=lm", "--out=out", "--batch.size=4")
    assert code == 2
    assert "differs from --task=lm of the runs in out" in err
    runs = ["--vary=model.width=64,128", "--seeds=1", "--task=lm", "--out=out"]
    assert call(command.main, *runs)[0] == 0, "rows may be added"
    (Path("out") / "model.width=64" / "seed-0.json").write_text('{"words": ["--task=mlm"], "status": "done"}')
    code, _, err = call(command.main, *runs)
    assert code == 2
    assert "was trained with other flags" in err


SMALL = (
    "--task=lm --data=text.txt --model.layers=1 --model.width=32 --model.heads=2 --tokenizer.vocab=400 --batch.size=8 "
    "--batch.length=32 --model.length=32 --log.every=2 --steps=4 --seeds=2"
).split()


@pytest.mark.slow
def test_trained_runs_are_paired_and_their_operations_counted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_text(Path("text.txt"))
    flags = [*SMALL, "--vary=model.width=32,64", "--budget=flops", "--out=out", "--metric=loss,accuracy"]
    code, out, err = call(command.main, *flags)
    assert code == 0, err
    narrow, wide = results()["rows"]
    assert narrow["steps"] == 4
    assert wide["steps"] in (1, 2)
    assert wide["flops"] == pytest.approx(narrow["flops"], rel=0.5)
    assert wide["params"] > 2 * narrow["params"]
    lines = read_lines(Path("out/model.width=32/seed-0/metrics.jsonl"))
    assert lines[-1]["step"] == 4
    assert call(command.main, *flags)[1] == out


@pytest.mark.slow
def test_a_run_that_is_not_finite_and_one_that_no_memory_holds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_text(Path("text.txt"))
    runs = ["--run=plain:", "--run=hot: --optim.rate=1e6 --optim.clip=none", "--run=huge: --model.width=1000000"]
    code, out, err = call(command.main, *SMALL, *runs, "--out=out")
    assert code == 0, err
    assert "2 of 2 runs failed: out of memory" in out
    assert results()["rows"][0]["metrics"]["eval_loss"]["n"] == 2

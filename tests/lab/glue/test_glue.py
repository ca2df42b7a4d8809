"""The command: what it runs, repeats, refuses and prints; its runs are acted here, but for one that is slow."""

import json
from pathlib import Path

import numpy as np
import pytest
from small import call, read_lines, write_text

from train.lab.glue import command, submission
from train.lab.glue.suites import GLUE, SUPERGLUE
from train.lab.glue.table import draw

TASKS = {task.name: task for task in GLUE}

COLA = "\n".join(f"a\t{n % 3 > 0:d}\t\ttext {n}" for n in range(32)) + "\n"
MNLI_HEADER = "index\tsentence1\tsentence2"


def mnli(count, labelled):
    labels = TASKS["MNLI"].labels
    lines = [f"{n}\tpremise {n}\thypothesis {n}" + f"\t{labels[n % 3]}" * labelled for n in range(count)]
    return "\n".join([MNLI_HEADER + "\tgold_label" * labelled, *lines]) + "\n"


FILES = {
    "CoLA/train.tsv": COLA,
    "CoLA/dev.tsv": COLA,
    "CoLA/test.tsv": "index\tsentence\n" + "".join(f"{n}\ttext {n}\n" for n in range(4)),
    "MNLI/train.tsv": mnli(30, True),
    "MNLI/dev_matched.tsv": mnli(12, True),
    "MNLI/dev_mismatched.tsv": mnli(9, True),
    "MNLI/test_matched.tsv": mnli(3, False),
    "MNLI/test_mismatched.tsv": mnli(3, False),
    "diagnostic/diagnostic.tsv": mnli(2, False),
}


class Actor:
    """Acts train.main and train.predict: a run of seed s misses every (s + 2)nd label."""

    def __init__(self):
        self.trained, self.predicted, self.fails_at = [], [], None

    def train(self, words):
        flags = dict(word.removeprefix("--").partition("=")[::2] for word in words)
        if len(self.trained) == self.fails_at:
            raise KeyboardInterrupt
        self.trained.append(flags)
        folder = Path(flags["out"])
        (folder / "checkpoints").mkdir(parents=True)
        (folder / "run.json").write_text("{}")
        (folder / "result.json").write_text(json.dumps({"seconds": 1.5}))

    def draw(self, results, path):
        self.drawn = results, path

    def predict(self, words):
        flags = dict(word.removeprefix("--").partition("=")[::2] for word in words)
        self.predicted.append(flags["file"])
        seed = int(flags["run"].rpartition("-")[2])
        labels = ("0", "1") if "CoLA" in flags["run"] else TASKS["MNLI"].labels
        rate = float(flags["run"].partition("rate-")[2].partition("-batch")[0])
        with open(flags["to"], "w") as file:
            for index, row in enumerate(read_lines(Path(flags["file"]))):
                label = row.get("label", labels[0])
                if index % (seed + 2) == 0 or rate > 4e-5:
                    label = labels[labels.index(label) - 1]
                file.write(json.dumps({"label": label, "probabilities": {label: 1.0}}) + "\n")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder with two tasks of GLUE."""
    for name, text in FILES.items():
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def actor(home, monkeypatch):
    actor = Actor()
    monkeypatch.setattr(command, "train", actor.train)
    monkeypatch.setattr(command, "predict", actor.predict)
    monkeypatch.setattr(command.runner, "forget_programs", lambda: None)
    monkeypatch.setattr(command.table, "draw", actor.draw)
    return actor


BASIC = ("--data=data", "--preset=bert-tiny", "--out=out", "--batch=16")


def results():
    return json.loads(Path("out/results.json").read_text())


def results_of_suite():
    """What is drawn: the results without the settings."""
    return {name: results()[name] for name in ("suite", "tasks", "absent", "not_chosen", "average")}


def test_table_and_results(actor):
    """Means over parts, deviations over seeds, and no average without all tasks."""
    code, out, _ = call(command.main, *BASIC, "--seeds=2", "--rate=2e-5")
    assert code == 0
    accuracies = np.array([[6 / 12, 4 / 9], [8 / 12, 6 / 9]])
    mnli_scores = accuracies.mean(1)
    result = results()["tasks"]["MNLI"]
    assert result["score"] == {"mean": pytest.approx(mnli_scores.mean()), "std": pytest.approx(mnli_scores.std(ddof=1))}
    assert result["metrics"]["MNLI-mm"]["accuracy"]["mean"] == pytest.approx(accuracies[:, 1].mean())
    assert [run["seed"] for run in result["runs"]] == [0, 1]
    assert (result["train"], result["dev"], result["majority"]) == (30, {"MNLI-m": 12, "MNLI-mm": 9}, 1 / 3)
    assert results()["average"] is None
    assert results()["absent"] == ["SST-2", "MRPC", "STS-B", "QQP", "QNLI", "RTE", "WNLI"]
    rows = {line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]] for line in out.splitlines()}
    assert rows["MNLI"][:2] == [f"{100 * mnli_scores.mean():.1f} ± {100 * mnli_scores.std(ddof=1):.1f}", "33.3"]
    assert rows["MNLI"][5] == "rate 2e-05, batch 16, epochs 3, 2 seeds"
    assert rows["SST-2"] == ["-", "-", "absent", "-", "-", "-"]
    assert rows["GLUE average"][2] == "none without all tasks; 7 missing"
    assert actor.drawn == (results_of_suite(), Path("out/plots/scores.png"))
    draw(*actor.drawn)
    assert Path("out/plots/scores.png").read_bytes().startswith(b"\x89PNG")


def test_average(actor, monkeypatch):
    """The mean over tasks; its deviation is that of the averages of the seeds."""
    monkeypatch.setitem(command.suites.SUITES, "glue", (TASKS["CoLA"], TASKS["MNLI"]))
    call(command.main, *BASIC, "--seeds=3")
    tasks = results()["tasks"]
    averages = [np.mean([tasks[name]["runs"][seed]["score"] for name in tasks]) for seed in range(3)]
    assert results()["average"]["mean"] == pytest.approx(np.mean(averages))
    assert results()["average"]["std"] == pytest.approx(np.std(averages, ddof=1))


def test_what_train_main_is_told(actor):
    call(command.main, *BASIC, "--tasks=MNLI", "--epochs=4", "--batch=10", "--model.dropout=0", "--tune=head")
    (words,) = actor.trained
    assert words["data"] == "out/MNLI/data/train.jsonl"
    assert words["eval-data"] == "out/MNLI/data/dev-MNLI-m.jsonl"
    assert (words["steps"], words["eval.every"], words["batch.size"], words["batch.length"]) == ("12", "3", "10", "128")
    assert (words["data.field"], words["task.kind"], words["seed"]) == ("text,pair", "single", "0")
    assert (words["model.dropout"], words["tune"]) == ("0", "head")
    assert float(words["optim.rate"]) == 1e-3, "that of the preset"
    assert read_lines(Path(words["data"]))[1] == {
        "text": "premise 1",
        "pair": "hypothesis 1",
        "label": "neutral",
        "idx": 1,
    }


def test_rows_are_as_long_as_the_model_reads(actor):
    call(command.main, *BASIC, "--tasks=CoLA", "--model.length=40", "--steps=1")
    assert actor.trained[0]["batch.length"] == "40"


def test_grid(actor):
    """Every setting with one seed; the best with the others; equal ones: the first."""
    code, out, _ = call(command.main, *BASIC[:3], "--tasks=CoLA", "--grid=paper", "--seeds=3")
    assert code == 0
    tried = [(float(w["optim.rate"]), int(w["batch.size"])) for w in actor.trained]
    assert len(tried) == 18 + 2
    assert set(tried) == {(rate, size) for rate in (5e-5, 3e-5, 2e-5) for size in (16, 32)}
    assert tried[18:] == [(3e-5, 16)] * 2, "higher rates miss all labels"
    assert results()["tasks"]["CoLA"]["setting"] == "rate 3e-05, batch 16, epochs 2"
    assert len(results()["tasks"]["CoLA"]["tried"]) == 18
    assert "not chosen" in out


def test_finished_runs_are_not_repeated(actor):
    """After an interruption the same command goes on; further tasks and seeds join."""
    actor.fails_at = 1
    assert call(command.main, *BASIC, "--seeds=2")[0] == 130
    assert not Path("out/results.json").exists()
    actor.fails_at = None
    assert call(command.main, *BASIC, "--seeds=2")[0] == 0
    assert len(actor.trained) == 4
    assert call(command.main, *BASIC, "--seeds=3", "--tasks=CoLA")[0] == 0
    assert len(actor.trained) == 5
    assert len(results()["tasks"]["CoLA"]["runs"]) == 3


def test_an_interrupted_run_is_resumed(actor):
    folder = Path("out/CoLA/rate-0.001-batch-16-epochs-3-seed-0")
    call(command.main, *BASIC, "--tasks=CoLA")
    (folder / "scores.json").unlink()
    call(command.main, *BASIC, "--tasks=CoLA")
    assert len(actor.trained) == 1, "it was trained, and only measured again"
    (folder / "scores.json").unlink()
    (folder / "result.json").unlink()
    (folder / "checkpoints").rmdir()
    assert call(command.main, *BASIC, "--tasks=CoLA")[0] == 0
    assert actor.trained[1] == {"resume": "", "out": str(folder)}


@pytest.mark.parametrize(
    ("flag", "sentence"),
    [
        ("--rate=3e-5", "--rate=3e-05 differs from none of the runs in out; leave it as it was, or name a new folder"),
        ("--epochs=2", "--epochs=2.0 differs from 3.0 of the runs in out"),
        ("--tune=head", "--preset=bert-tiny --tune=head differs from --preset=bert-tiny of the runs in out"),
    ],
)
def test_changed_settings_are_refused(actor, flag, sentence):
    call(command.main, *BASIC)
    code, out, err = call(command.main, *BASIC, flag)
    assert (code, out) == (2, "")
    assert sentence in err
    assert len(actor.trained) == 2


def test_changed_data_are_refused(actor, home):
    call(command.main, *BASIC)
    (home / "data" / "CoLA" / "dev.tsv").write_text(COLA.replace("text 3", "other"))
    code, _, err = call(command.main, *BASIC)
    assert code == 2
    assert "the files of CoLA have changed since out/CoLA/rate-0.001-batch-16-epochs-3-seed-0; restore them" in err


def test_checkpoints_of_the_best_run_stay(actor):
    call(command.main, *BASIC, "--seeds=3", "--tasks=CoLA", "--keep=best")
    paths = sorted(path.parent.name for path in Path("out/CoLA").glob("*/checkpoints"))
    best = max(results()["tasks"]["CoLA"]["runs"], key=lambda run: run["score"])
    assert paths == [Path(best["folder"]).name]


# Submissions


def test_submission_of_glue(actor):
    code, _, err = call(command.main, *BASIC, "--submission=sub", "--rate=2e-5")
    assert code == 0
    missing = "SST-2.tsv, MRPC.tsv, STS-B.tsv, QQP.tsv, QNLI.tsv, RTE.tsv, WNLI.tsv"
    assert f"sub lacks {missing}, which the server wants" in err
    names = ["AX.tsv", "CoLA.tsv", "MNLI-m.tsv", "MNLI-mm.tsv"]
    assert sorted(path.name for path in Path("sub").iterdir()) == names
    assert Path("sub/CoLA.tsv").read_text() == "index\tprediction\n0\t1\n1\t0\n2\t1\n3\t0\n"
    lines = "0\tcontradiction\n1\tentailment\n"
    assert Path("sub/AX.tsv").read_text() == "index\tprediction\n" + lines


def test_a_diagnostic_set_may_be_missing(actor, home):
    (home / "data" / "diagnostic" / "diagnostic.tsv").unlink()
    assert call(command.main, *BASIC, "--submission=sub", "--tasks=MNLI")[0] == 0
    assert sorted(path.name for path in Path("sub").iterdir()) == ["MNLI-m.tsv", "MNLI-mm.tsv"]


def test_values_of_a_submission(tmp_path):
    path = submission.write(tmp_path, "glue", TASKS["STS-B"], TASKS["STS-B"].parts[0], {0: 5.31, 1: -0.2, 2: 2.34567})
    assert path.read_text() == "index\tprediction\n0\t5.000\n1\t0.000\n2\t2.346\n"


@pytest.mark.parametrize(
    ("name", "part", "answers", "rows"),
    [
        ("BoolQ", 0, {0: "true", 1: "false"}, [{"idx": 0, "label": "true"}, {"idx": 1, "label": "false"}]),
        ("CB", 0, {0: "neutral"}, [{"idx": 0, "label": "neutral"}]),
        ("COPA", 0, {5: 1}, [{"idx": 5, "label": 1}]),
        ("ReCoRD", 0, {9: "Zoë"}, [{"idx": 9, "label": "Zoë"}]),
        ("RTE", 1, {0: "not_entailment"}, [{"idx": 0, "label": "not_entailment"}]),
        ("WSC", 0, {0: "true"}, [{"idx": 0, "label": "True"}]),
        (
            "MultiRC",
            0,
            {(0, 0, 0): 1, (0, 0, 1): 0, (0, 1, 2): 1, (3, 2, 3): 0},
            [
                {
                    "idx": 0,
                    "passage": {
                        "questions": [
                            {"idx": 0, "answers": [{"idx": 0, "label": 1}, {"idx": 1, "label": 0}]},
                            {"idx": 1, "answers": [{"idx": 2, "label": 1}]},
                        ]
                    },
                },
                {"idx": 3, "passage": {"questions": [{"idx": 2, "answers": [{"idx": 3, "label": 0}]}]}},
            ],
        ),
    ],
)
def test_submission_of_superglue(tmp_path, name, part, answers, rows):
    task = next(task for task in SUPERGLUE if task.name == name)
    path = submission.write(tmp_path, "superglue", task, task.parts[part], answers)
    assert path.name == f"{'AX-b' if part else name}.jsonl"
    assert read_lines(path) == rows


# Bad input


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--preset=bert-tiny", "--data=FOLDER must name the folder of the tasks, or tfds"),
        ("--data=nowhere --preset=bert-tiny", "--data=nowhere is not a folder; name the one that holds the folders"),
        ("--data=. --preset=bert-tiny", "--data=. holds no task of glue; it has a folder for each: CoLA, SST-2, "),
        ("--data=data", "say what to fine-tune with --init=FOLDER, or --preset=NAME for fresh weights"),
        ("--data=data --init=nowhere", "nowhere is not a run folder: it has no run.json"),
        ("--data=data --preset=bert-tinny", "--preset=bert-tinny is unknown; did you mean bert-tiny?"),
        ("--data=data --preset=bert-tiny --tasks=SST", "--tasks=SST is unknown in glue; did you mean"),
        ("--data=data --preset=bert-tiny --tasks=RTE", "--data=data has no folder RTE; fetch it, or leave RTE out"),
        ("--data=data --preset=bert-tiny --suite=clue", "--suite=clue is unknown; did you mean glue?"),
        ("--data=data --preset=bert-tiny --seeds=0", "--seeds=0 must be at least 1"),
        ("--data=data --preset=bert-tiny --rate=0", "--rate=0.0 must be more than 0"),
        ("--data=data --preset=bert-tiny --grid=paper --rate=1", "--rate=1.0 is varied by --grid=paper; leave one out"),
        ("--data=data --preset=bert-tiny --seed=2", "unknown flag --seed; did you mean seeds?"),
        ("--data=data --preset=bert-tiny --model.witdh=2", "unknown flag --model.witdh; did you mean"),
        (
            "--data=data --preset=bert-tiny --optim.rate=2",
            "--optim.rate=2 is decided for every task by this command; use --rate",
        ),
        (
            "--data=data --preset=bert-tiny --batch=8 --out=data",
            "--out=data already holds something else; choose another folder",
        ),
        (
            "--data=data --preset=bert-tiny --submission=data/CoLA/dev.tsv",
            "--submission=data/CoLA/dev.tsv cannot be made: data/CoLA/dev.tsv is a file; choose another folder",
        ),
        ("--data=data --preset=bert-tiny --batch=33", "CoLA has 32 training rows, too few for a batch of 33; choose a"),
        ("word", "'word' is not a flag; write --name=value"),
    ],
)
def test_bad_flags(actor, home, flags, sentence):
    code, out, err = call(command.main, *flags.split())
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith(f"error: {sentence}"), err
    assert actor.trained == []
    assert [path.name for path in home.iterdir()] == ["data"], "nothing is left behind"


def test_missing_test_set_is_said_before_anything_is_trained(actor, home):
    (home / "data" / "MNLI" / "test_mismatched.tsv").unlink()
    code, _, err = call(command.main, *BASIC, "--submission=sub")
    assert code == 2
    assert "data/MNLI/test_mismatched.tsv does not exist" in err
    assert actor.trained == []
    assert not Path("out").exists()


def test_bad_files_are_said_before_anything_is_trained(actor, home):
    (home / "data" / "MNLI" / "dev_mismatched.tsv").write_text("index\tsentence1\n0\ta\n")
    code, _, err = call(command.main, *BASIC)
    assert code == 2
    assert "dev_mismatched.tsv, line 2 has no column 'sentence2' (it has index, sentence1); fetch the file again" in err
    assert actor.trained == []
    assert not Path("out").exists()


def test_an_index_that_occurs_twice(actor, home):
    (home / "data" / "CoLA" / "test.tsv").write_text("index\tsentence\n3\ta\n3\tb\n")
    code, _, err = call(command.main, *BASIC, "--submission=sub", "--tasks=CoLA")
    assert code == 2
    assert "the test set of CoLA has the index 3 2 times; fetch its files again" in err


def test_help(capsys):
    assert command.main(["--help"]) == 0
    text = capsys.readouterr().out
    for flag in ("--data", "--suite", "--tasks", "--grid", "--seeds", "--submission"):
        assert flag in text
    assert len(text.splitlines()) < 45


# A whole run


@pytest.mark.slow
def test_two_tasks_from_a_pre_trained_model(home):
    """The official metric of an accuracy task is what train.main says of it; a second call repeats nothing."""
    from train.main import main

    write_text(home / "text.txt")
    shape = "--model.layers=1 --model.width=32 --model.heads=2 --model.ffn=64 --tokenizer.vocab=400"
    words = f"--task=mlm --data=text.txt {shape} --batch.size=8 --batch.length=32 --steps=20 --out=base"
    assert call(main, *words.split())[0] == 0
    flags = "--data=data --init=base --steps=20 --batch=8 --out=out --submission=sub".split()
    code, out, err = call(command.main, *flags)
    assert code == 0, err
    folder = next(Path("out/MNLI").glob("rate*"))
    trained = json.loads((folder / "result.json").read_text())
    scores = json.loads((folder / "scores.json").read_text())
    assert scores["metrics"]["MNLI-m"]["accuracy"] == pytest.approx(trained["eval_accuracy"])
    folder = next(Path("out/CoLA").glob("rate*"))
    trained = json.loads((folder / "result.json").read_text())
    assert json.loads((folder / "scores.json").read_text())["metrics"]["CoLA"]["matthews"] == pytest.approx(
        trained["eval_matthews"]
    )
    assert len(Path("sub/MNLI-mm.tsv").read_text().splitlines()) == 4
    again = call(command.main, *flags)
    assert (again[0], again[1]) == (0, out)
    assert again[2].count("is finished") == 2
    assert "parameters" not in again[2], "nothing is trained"

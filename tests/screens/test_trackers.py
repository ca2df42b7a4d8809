"""Trackers get what metrics.jsonl gets: fakes with the functions of their clients, and clients that are installed."""

import importlib.machinery
import importlib.util
import json
import sqlite3
import sys
import types
from types import SimpleNamespace

import pytest

from train import UserError
from train.screens import trackers
from train.settings.log import TRACKERS, Logging

CONFIG = {"task": "mlm", "steps": 6, "model.layers": 2, "init": "", "stop_at": None}


def module(name, **functions):
    fake = types.ModuleType(name)
    fake.__spec__ = importlib.machinery.ModuleSpec(name, None)
    vars(fake).update(functions)
    return fake


class Client:
    """A fake of a client: every call is kept."""

    def __init__(self, name):
        self.calls = []
        self.module = module(name, **getattr(self, name)())

    def keep(self, name, result=None):
        def call(*args, **kwargs):
            self.calls.append((name, args, kwargs))
            return result

        return call

    def named(self, name):
        return [(args, kwargs) for called, args, kwargs in self.calls if called == name]

    def wandb(self):
        run = SimpleNamespace(**{name: self.keep(name) for name in ("log", "finish", "define_metric")})
        return {"init": self.keep("init", run)}

    def trackio(self):
        return {"init": self.keep("init", SimpleNamespace(log=self.keep("log"))), "finish": self.keep("finish")}

    def mlflow(self):
        client = SimpleNamespace(
            create_run=self.keep("create_run", SimpleNamespace(info=SimpleNamespace(run_id="run 7"))),
            set_terminated=self.keep("finish"),
        )
        return {
            "set_experiment": self.keep("init", SimpleNamespace(experiment_id="3")),
            "MlflowClient": lambda: client,
            "log_params": self.keep("log_params"),
            "log_metrics": self.keep("log"),
        }


@pytest.fixture
def client(request, monkeypatch):
    fake = Client(request.param)
    monkeypatch.setitem(sys.modules, request.param, fake.module)
    return fake


def track(folder, name, *lines, first_step=1, report=None):
    subject = trackers.TrackedRun(folder, CONFIG, first_step)
    with trackers.open_trackers([name], subject, report or pytest.fail) as send:
        for metrics, step in lines:
            send(metrics, step)


LINES = (({"train/loss": 2.5, "train/rate": 1e-3}, 2), ({"eval/loss": 2.0}, 2), ({"train/loss": 1.5}, 4))
FAKES = [name for name in TRACKERS if name != "tensorboard"]
every_fake = pytest.mark.parametrize("client", FAKES, indirect=True)


@every_fake
def test_a_client_gets_every_metric_with_its_step(client, tmp_path):
    track(tmp_path, client.module.__name__, *LINES)
    sent = []
    for (metrics,), options in client.named("log"):
        values = dict(metrics)
        step = values.pop("step", options.get("step"))
        sent.append((values, step))
    assert sent == [(dict(metrics), step) for metrics, step in LINES]
    assert len(client.named("finish")) == 1
    if client.module.__name__ == "mlflow":
        assert client.named("log_params") == [
            (({name: str(value) for name, value in CONFIG.items()},), {"run_id": "run 7"})
        ]
    else:
        (((), options),) = client.named("init")
        assert (options["project"], options["config"], options["resume"]) == ("tfm", CONFIG, "allow")


@every_fake
def test_a_run_that_goes_on_keeps_its_name(client, tmp_path):
    name = client.module.__name__
    track(tmp_path, name, *LINES)
    first = (tmp_path / trackers.NAMES).read_text()
    track(tmp_path, name, *LINES, first_step=5)
    assert (tmp_path / trackers.NAMES).read_text() == first
    assert len(client.named("create_run")) == (1 if name == "mlflow" else 0)
    if name != "mlflow":
        track(tmp_path, name, *LINES)
        assert json.loads((tmp_path / trackers.NAMES).read_text()) != json.loads(first), "a new run has a new name"


@every_fake
def test_a_server_that_fails_does_not_end_the_run(client, tmp_path):
    name, said = client.module.__name__, []

    def fail(*args, **kwargs):
        raise ConnectionError("no route to host\nand more")

    if name == "mlflow":
        client.module.log_metrics = fail
    else:
        client.module.init = fail
    track(tmp_path, name, *LINES, report=said.append)
    assert said == [f"--log.to={name} gets no more metrics: no route to host"]


def test_what_stdout_says_is_a_result(monkeypatch, tmp_path, capsys):
    fake = Client("trackio")
    fake.module.init = lambda **options: print("welcome")
    monkeypatch.setitem(sys.modules, "trackio", fake.module)
    track(tmp_path, "trackio", report=lambda message: None)
    assert capsys.readouterr().out == ""


def test_names_are_checked_before_a_run(monkeypatch):
    with pytest.raises(ValueError, match="to=wandbb is unknown; did you mean wandb?"):
        Logging(to="tensorboard,wandbb")
    assert Logging(to="mlflow,tensorboard,mlflow").trackers == ("mlflow", "tensorboard")
    assert Logging(to=None).trackers == ()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r'--log.to=trackio needs its client; pip install -e "\.\[trackio\]"'):
        trackers.check(["tensorboard", "trackio"])


@pytest.mark.slow
def test_wandb_offline(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    track(tmp_path, "wandb", *LINES)
    wandb.teardown()  # its service has written all
    (log,) = tmp_path.rglob("run-*.wandb")
    assert b"train/loss" in log.read_bytes()


@pytest.mark.slow
def test_mlflow_in_a_file(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    track(tmp_path, "mlflow", *LINES)
    (run_id,) = json.loads((tmp_path / trackers.NAMES).read_text()).values()
    run = mlflow.MlflowClient()
    assert [(point.step, point.value) for point in run.get_metric_history(run_id, "train/loss")] == [(2, 2.5), (4, 1.5)]
    assert run.get_run(run_id).data.params["model.layers"] == "2"
    assert run.get_run(run_id).info.status == "FINISHED"


@pytest.mark.slow
def test_trackio_in_a_file(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))  # read at import
    pytest.importorskip("trackio")
    track(tmp_path, "trackio", *LINES)
    (database,) = tmp_path.rglob("tfm*.db")
    rows = sqlite3.connect(database).execute("select step, metrics from metrics order by id").fetchall()
    assert [(step, json.loads(metrics)) for step, metrics in rows] == [(step, metrics) for metrics, step in LINES]

"""Where metrics go beside metrics.jsonl: TensorBoard, Weights & Biases, MLflow, trackio, all behind `open_trackers`.

Their clients are extras of the same names. Each obeys its own variables: WANDB_MODE=offline, MLFLOW_TRACKING_URI,
TRACKIO_DIR. A run that goes on writes to where it wrote before: trackers.json in its folder keeps the names.
"""

import importlib
import importlib.util
import json
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from train import UserError
from train.files.strict_json import json_text
from train.screens.events import Events

Result = TypeVar("Result")

PROJECT = "tfm"
NAMES = "trackers.json"

# Parameters in a request, at most.
_MLFLOW_BATCH = 100


class Tracker(Protocol):
    """A place for metrics."""

    def add(self, metrics: Mapping[str, float], step: int):
        """Metrics of a step, by names such as train/loss."""

    def close(self):
        """Nothing more comes."""


class TrackedRun(NamedTuple):
    """What is tracked: a run's folder, its configuration by dotted names, the first step that comes."""

    folder: Path
    config: Mapping[str, object]
    first_step: int


class ClientTracker(NamedTuple):
    """A tracker that a client's functions make: `send` takes metrics and their step."""

    send: Callable[[Mapping[str, float], int], object]
    finish: Callable[[], object]

    def add(self, metrics: Mapping[str, float], step: int):
        """Metrics of a step."""
        self.send(metrics, step)

    def close(self):
        """Nothing more comes."""
        self.finish()


def check(names: Sequence[str]):
    """Raises UserError for a tracker whose client is not installed."""
    for name in names:
        spec = None if name == "tensorboard" else importlib.util.find_spec(name)
        is_installed = spec is not None and spec.origin is not None  # a folder of that name has no origin
        if name != "tensorboard" and not is_installed:
            raise UserError(f'--log.to={name} needs its client; pip install -e ".[{name}]"')


@contextmanager
def open_trackers(
    names: Sequence[str], subject: TrackedRun, report: Callable[[str], None]
) -> Iterator[Callable[[Mapping[str, float], int], None]]:
    """A function that sends the metrics of a step to all these trackers.

    TensorBoard's files are part of the run, and their errors are raised. Another tracker that fails is reported and
    left out: training does not end with a server.
    """
    trackers: dict[str, Tracker] = {}

    def attempt(name: str, action: Callable[[], Result]) -> Result | None:
        if name == "tensorboard":
            return action()
        try:
            with redirect_stdout(sys.stderr):  # stdout is for results
                return action()
        except Exception as error:
            trackers.pop(name, None)
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            report(f"--log.to={name} gets no more metrics: {reason}")
            return None

    def send(metrics: Mapping[str, float], step: int):
        for name, tracker in list(trackers.items()):
            attempt(name, partial(tracker.add, metrics, step))

    try:
        for name in names:
            tracker = attempt(name, partial(_OPENERS[name], subject))
            if tracker is not None:
                trackers[name] = tracker
        yield send
    finally:
        for name, tracker in list(trackers.items()):
            attempt(name, tracker.close)


def _tensorboard(subject: TrackedRun) -> Tracker:
    return Events(subject.folder / "tensorboard", subject.first_step)


def _wandb(subject: TrackedRun) -> Tracker:
    client = importlib.import_module("wandb")
    run = client.init(
        project=PROJECT,
        name=subject.folder.name,
        id=_name(subject, "wandb"),
        config=dict(subject.config),
        dir=str(subject.folder),
        resume="allow",
    )
    run.define_metric("*", step_metric="step")  # wandb's own step cannot go back, as that of a resumed run may
    return ClientTracker(lambda metrics, step: run.log({**metrics, "step": step}), run.finish)


def _trackio(subject: TrackedRun) -> Tracker:
    client = importlib.import_module("trackio")
    name, config = _name(subject, "trackio"), dict(subject.config)
    run = client.init(project=PROJECT, name=name, config=config, resume="allow")
    # its own finish, which forgets the run: another would come at the end of the program, and write to stdout
    return ClientTracker(lambda metrics, step: run.log(dict(metrics), step=step), client.finish)


def _mlflow(subject: TrackedRun) -> Tracker:
    client = importlib.import_module("mlflow")

    def create() -> str:
        experiment = client.set_experiment(PROJECT)
        run = client.MlflowClient().create_run(experiment.experiment_id, run_name=subject.folder.name)
        parameters = [(name, str(value)) for name, value in subject.config.items()]
        for start in range(0, len(parameters), _MLFLOW_BATCH):
            client.log_params(dict(parameters[start : start + _MLFLOW_BATCH]), run_id=run.info.run_id)
        return run.info.run_id

    run_id = _name(subject, "mlflow", create)
    return ClientTracker(
        lambda metrics, step: client.log_metrics(dict(metrics), step=step, run_id=run_id),
        lambda: client.MlflowClient().set_terminated(run_id),
    )


_OPENERS: Mapping[str, Callable[[TrackedRun], Tracker]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
    "trackio": _trackio,
}


def _name(subject: TrackedRun, tracker: str, create: Callable[[], str] | None = None) -> str:
    """The name under which a tracker has this run, made at its first start: that of the folder and a random ending."""
    path = subject.folder / NAMES
    names = json.loads(path.read_text()) if path.exists() and subject.first_step > 1 else {}
    if tracker not in names:
        names[tracker] = create() if create else f"{subject.folder.name}-{uuid.uuid4().hex[:8]}"
        path.write_text(json_text(names) + "\n")
    return names[tracker]

"""Steps of a plain model against those of a peer in another process, in turns: what the machine does meanwhile slows
both."""

import dataclasses
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import jax
import numpy as np

import tfm
from tfm.options.json_text import Json
from tfm.params import PyTree
from train import UserError
from train.lab.timing.options import BenchOptions
from train.lab.timing.peers import folder_batches
from train.lab.timing.peers.work import FolderShape, MixerShape, PlainShape
from train.lab.timing.timing import Batches, HostBatch, prepared
from train.lab.timing.turns import Interval, Steps, ratio, take_turns, turn_steps
from train.training.job import Job


def check(name: str, task: str | None = None, needs_folder: bool = False):
    """Raises UserError where a package of the peer is not installed, and for steps of a task without such a peer.

    task: of a preset whose steps are timed, or None
    needs_folder: whether the peer reads a folder of transformers
    """
    packages = ("torch", *(("transformers",) if task or needs_folder else ()))
    for package in (*packages, *((name,) if name == "ctranslate2" else ())):
        if find_spec(package) is None:
            raise UserError(
                f"--against={name} needs {package}, which is not installed; pip install it, or leave it out"
            )
    if task not in (None, *folder_batches.TASKS):
        tasks = " or ".join(f"--task={trained}" for trained in folder_batches.TASKS)
        raise UserError(f"--against={name} goes with a preset of {tasks}, and this is --task={task}; leave it out")


class Peer:
    """The process of a peer that does the same work: steps of a plain model (`plain_work`) or of that of a folder
    (`folder_work`), or texts (`writing`)."""

    def __init__(self, name: str, work: Mapping[str, object], module: str = "train.lab.timing.peers.torch_peer"):
        """Raises UserError where it cannot run the model."""
        device = "cuda" if jax.default_backend() == "gpu" else "cpu"
        words = json.dumps({**work, "device": device, "compile": name == "torch-compile"})
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.facts = self._answer()
        self.answer: dict[str, Json] = {}

    def seconds(self, steps: int) -> list[float]:
        """The seconds of each of some steps."""
        return cast(list[float], self._run(steps))

    def passes(self, count: int) -> list[list[float]]:
        """Of each of some passes over texts: its seconds, before them those of the first token of a continuation."""
        return cast(list[list[float]], self._run(count))

    @property
    def tokens(self) -> Sequence[object]:
        """The tokens or labels of every text in the last pass."""
        return cast(list[object], self.answer["tokens"])

    def _run(self, count: int) -> Json:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        self.answer = self._answer()
        return self.answer["seconds"]

    def _answer(self) -> dict[str, Json]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            _, errors = self.process.communicate()
            last = errors.strip().splitlines()[-1:] or ["it ended without a word"]
            raise UserError(f"--against={self.name} cannot run this model: {last[0]}; choose another peer or shape")
        return json.loads(line)

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


def compare(
    job: Job, batches: Batches, peer: Peer, warmup: int, steps: int, different: int = 1
) -> dict[str, list[float]]:
    """Both sides in turns, who begins alternates -> by turn the median seconds of a step, of `tfm` and of the `peer`.

    Steps are fresh ones; the first `warmup` compile, and are not timed. Where `different` batches follow each other,
    what is measured are passes over all of them, each as the mean of its steps.
    """

    def passes(side: Callable[[int], list[float]]) -> Callable[[int], list[float]]:
        return side if different == 1 else lambda count: [statistics.fmean(side(different)) for _ in range(count)]

    sides = {"tfm": passes(Steps(job, batches).seconds), "peer": passes(peer.seconds)}
    return take_turns(sides, -(-warmup // different), -(-turn_steps(steps) // different))


def plain_work(options: BenchOptions, job: Job) -> PlainShape:
    """The plain model of the options of `train.bench`."""
    return {
        "model": options.model,
        "layers": options.layers,
        "heads": options.heads,
        "width": options.width,
        "vocab": options.vocab,
        "batch": options.batch,
        "length": options.length,
        "dtype": options.dtype,
        "ffn": options.ffn or 4 * options.width,
        "dropout": options.dropout,
        "mixer": cast(MixerShape, dataclasses.asdict(job.run.model.mixer)),
    }


def measure_folder(
    options: BenchOptions,
    kind: str,
    job: Job,
    params: PyTree,
    batches: Sequence[HostBatch],
    interval: Interval,
) -> dict[str, object]:
    """`measure` beside the class of transformers that reads this model, on the same examples, and examples a second.
    Both sides have them on the device before. `kind` is one of `folder_batches.MODELS`.

    Raises UserError where transformers has no such class.
    """
    peer_batches = folder_batches.MODELS[kind].batches(batches, options.group)
    with tempfile.TemporaryDirectory() as folder:
        work = folder_work(kind, job, params, peer_batches, Path(folder))
        result = measure(options, work, job, prepared(job, batches), interval, len(batches))
    examples = 1e3 * statistics.fmean(len(batch["labels"]) for batch in peer_batches)
    return result | {
        "own_examples_per_s": round(examples / cast(float, result["own_ms_median"]), 1),
        "peer_examples_per_s": round(examples / cast(float, result["peer_ms_median"]), 1),
    }


def folder_work(kind: str, job: Job, params: PyTree, peer_batches: Sequence[HostBatch], folder: Path) -> FolderShape:
    """A model of some kind and the batches of its peer, written to the folder. Raises UserError where transformers has
    no such class."""
    try:
        tfm.to_hf(job.run.model, params, folder)
    except ValueError as error:
        raise UserError(f"--against needs a model that transformers has: {error}") from error
    fields = {f"{n}.{name}": values for n, batch in enumerate(peer_batches) for name, values in batch.items()}
    np.savez(folder / "batches.npz", **fields)  # type: ignore[arg-type]  # no field is called allow_pickle
    return {
        "folder": str(folder),
        "auto_class": folder_batches.MODELS[kind].auto_class,
        "dtype": job.run.model.dtype,
    }


def measure(
    options: BenchOptions,
    work: Mapping[str, object],
    job: Job,
    batches: Batches,
    interval: Interval,
    different: int = 1,
) -> dict[str, object]:
    """The ratio peer / tfm of `train.bench`, the geometric mean of turns, with its interval of 95 %."""
    with Peer(options.against, work) as peer:
        turns = compare(job, batches, peer, options.warmup, options.steps, different)
    milliseconds = {name: round(1e3 * statistics.median(seconds), 3) for name, seconds in turns.items()}
    return {
        "against": options.against,
        "torch": peer.facts["torch"],
        "peer_params": peer.facts["params"],
        "peer_ms_median": milliseconds["peer"],
        "own_ms_median": milliseconds["tfm"],
        **ratio(turns["peer"], turns["tfm"], interval),
    }

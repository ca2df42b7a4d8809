"""Steps of a plain model against those of a peer in another process, in turns: what the machine does meanwhile slows
both."""

import dataclasses
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import jax

import tfm
from tfm.options.json_text import Json
from tfm.params import PyTree
from train import UserError
from train.lab.timing.options import BenchOptions
from train.lab.timing.peers.work import MixerShape, PictureShape, PlainShape
from train.lab.timing.timing import Batches
from train.lab.timing.turns import Interval, Steps, ratio, take_turns, turn_steps
from train.training.job import Job


def check(name: str, task: str | None = None, writes: bool = False):
    """Raises UserError where a package of the peer is not installed, and for steps of a task without such a peer.

    task: of a preset whose steps are timed, or None
    writes: whether texts are written
    """
    packages = ("torch", *(("transformers",) if task or writes else ()))
    for package in (*packages, *((name,) if name == "ctranslate2" else ())):
        if find_spec(package) is None:
            raise UserError(
                f"--against={name} needs {package}, which is not installed; pip install it, or leave it out"
            )
    if task not in (None, "image"):
        raise UserError(f"--against={name} goes with a preset of --task=image, and this is --task={task}; leave it out")


class Peer:
    """The process of a peer that does the same work: steps of a plain model (`plain_work`) or of one of pictures
    (`picture_work`), or texts (`writing`)."""

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


def compare(job: Job, batches: Batches, peer: Peer, warmup: int, steps: int) -> dict[str, list[float]]:
    """Both sides in turns, who begins alternates -> by turn the median seconds of a step, of `tfm` and of the `peer`.

    Steps are fresh ones; the first `warmup` compile, and are not timed.
    """
    sides = {"tfm": Steps(job, batches).seconds, "peer": peer.seconds}
    return take_turns(sides, warmup, turn_steps(steps))


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
        "mixer": cast(MixerShape, dataclasses.asdict(job.run.model.mixer)),
    }


def picture_work(job: Job, params: PyTree, folder: Path) -> PictureShape:
    """The classifier of pictures, written to the folder for transformers. Raises UserError where it has no such
    class."""
    try:
        tfm.to_hf(job.run.model, params, folder)
    except ValueError as error:
        raise UserError(f"--against needs a model that transformers has: {error}") from error
    return {"folder": str(folder), "batch": job.run.batch.size, "dtype": job.run.model.dtype}


def measure(
    options: BenchOptions,
    work: Mapping[str, object],
    job: Job,
    batches: Batches,
    interval: Interval,
) -> dict[str, object]:
    """The ratio peer / tfm of `train.bench`, the geometric mean of turns, with its interval of 95 %."""
    with Peer(options.against, work) as peer:
        turns = compare(job, batches, peer, options.warmup, options.steps)
    milliseconds = {name: round(1e3 * statistics.median(seconds), 3) for name, seconds in turns.items()}
    return {
        "against": options.against,
        "torch": peer.facts["torch"],
        "peer_params": peer.facts["params"],
        "peer_ms_median": milliseconds["peer"],
        "own_ms_median": milliseconds["tfm"],
        **ratio(turns["peer"], turns["tfm"], interval),
    }

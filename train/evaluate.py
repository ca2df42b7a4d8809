"""Metrics of a run on its validation text or on any other: `python -m train.evaluate --run=DIR [--data=SOURCE]`."""

import dataclasses
import json
import math
import sys
from typing import Any

from train import UserError, config, exit_code, flags
from train import run as folders

USAGE = """usage: python -m train.evaluate --run=DIR [--data=SOURCE] [--stride=N]

Prints one JSON object of metrics. Without --data, the run's own validation text is used."""


@dataclasses.dataclass(frozen=True)
class Options:
    """What to evaluate.

    run: the run folder
    data: text to evaluate on, all of it; empty for the run's own validation text
    stride: of a language model: rows begin so many tokens apart, so that long documents are judged with more context; 0 as in training
    """

    run: str = ""
    data: str = ""
    stride: int = 0


def main(argv=None) -> int:
    """The command; returns its exit code."""
    return exit_code(evaluate, argv)


def evaluate(argv):
    """Loads a run and measures it."""
    options = flags.options(Options, USAGE, argv)
    if options is None:
        return
    if not options.run:
        raise UserError("say which run to evaluate with --run=DIR")
    saved = folders.read(options.run)
    if options.data:
        saved["data.eval"] = options.data
    if options.stride:
        if saved["task.name"] != "lm":
            raise UserError(f"--stride belongs to language models, and --run={options.run} was trained for {saved['task.name']}")
        saved["task.stride"] = options.stride
    run = flags.build(config.Run, saved)

    import jax

    import tfm
    from train import handover, step, tasks
    from train.log import Log

    log, task = Log(), tasks.find(run.task.name)
    corpus = task.load(run, log, folders.read_saved(options.run), held_only=True)
    devices = jax.devices()
    mesh = tfm.make_mesh(devices=devices[: math.gcd(run.batch.size, len(devices))])
    params = handover.load(options.run, mesh, log.say).params
    eval_step = step.make_eval_step(lambda params, batch, key: task.loss(params, run.model, batch, key))
    with jax.set_mesh(mesh):
        print(json.dumps(task.metrics(measure(eval_step, params, corpus, mesh)) | task.baselines(corpus)))


def measure(eval_step, params, corpus, mesh, most: int = 0) -> dict[str, Any]:
    """What a task's metrics are made of, over the held-out batches, `most` of them, or all: sums, and arrays of all rows."""
    import numpy as np

    from train.data import feed

    found: dict[str, list] = {}
    for batch in corpus.held_batches(most):
        for name, value in eval_step(params, feed.put(batch, mesh)).items():
            found.setdefault(name, []).append(np.asarray(value))
    return {name: np.concatenate(values) if values[0].ndim else float(np.sum(values, dtype=np.float64)) for name, values in found.items()}


if __name__ == "__main__":
    sys.exit(main())

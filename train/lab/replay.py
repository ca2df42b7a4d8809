"""A training step run again with checks on, layer by layer: `python -m train.replay --run=DIR [--step=N]`."""

import dataclasses
from pathlib import Path

from train import UserError, exit_code
from train.runs.run_folder import CONFIG, RunFolder
from train.settings import flags
from train.settings.schema import Mesh
from train.tasks.table import AnyRun

USAGE = """usage: python -m train.replay --run=DIR [--step=N]

Runs one training step of a run again, on one device, and prints a table: for each layer, the size of what it computes,
and the norms of its parameters and of their gradients. It names the first value that is not finite, forward or
backward, with the rows of the text where it is so. Without --step, it takes the last step that was not finite:
DIR/blackbox holds its batch and the state before it. For other steps, it reads the data and the checkpoints."""


@dataclasses.dataclass(frozen=True)
class ReplayOptions:
    """What to run again.

    run: the run folder
    step: the step, from 1; by default the last one that was not finite
    """

    run: str = ""
    step: int | None = None

    def __post_init__(self):
        if not self.run:
            raise ValueError("run=DIR must name the run folder")
        if self.step is not None and self.step < 1:
            raise ValueError(f"step={self.step} must be at least 1")


def main(argv=None) -> int:
    """The command; returns its exit code."""
    return exit_code(run_step, argv)


def run_step(argv):
    """Loads a run, and runs its step again."""
    options = flags.options(ReplayOptions, USAGE, argv)
    if options is None:
        return
    folder = RunFolder(options.run)
    if not (folder.path / CONFIG).is_file():
        raise UserError(f"--run={options.run} is not a run folder: it has no {CONFIG}; name one that train.main made")
    run = flags.build(AnyRun, folder.recorded_values | {"resume": True})
    run = dataclasses.replace(run, mesh=Mesh(data=1))

    import jax

    import tfm
    from train.runs.takeover import of_resumed
    from train.screens.console import Log
    from train.tasks import phases, table
    from train.training.diverged import blackbox, replay
    from train.training.job import Job
    from train.training.phases import open_phases

    box, log = blackbox.newest(folder.path), Log()
    step = _step(options, folder.path, run.steps, box and box.step)
    job = Job(run, table.task_of(run), tfm.make_mesh(devices=jax.devices()[:1]))
    if box and box.step == step and box.is_whole:
        state, batch = box.read(job, log.info)
        settings = phases.step_range_of(run, step - 1).run
        job = job if settings is run else dataclasses.replace(job, run=settings, task=table.task_of(settings))
        log.info(f"the batch of step {step}, and the state before it, are those in {box.path}")
    else:
        corpus = job.task.load(run, log, of_resumed(folder.path))
        folder.check_data(corpus.facts())
        steps = open_phases(job, corpus, log)
        phase = steps.of_state(step)
        state, batch = replay.state_before(steps, folder.path, step), blackbox.batch_of(phase.corpus, step)
        job = phase.job
    result = replay.run_again(job, batch, state)
    for line in _table(result):
        print(line)
    print(f"step {step}: {result.summary}")


def _step(options: ReplayOptions, folder: Path, steps: int, newest: int | None) -> int:
    """The step to run again. Raises UserError if there is none."""
    step = options.step or newest
    if step is None:
        raise UserError(f"{folder} has no step that was not finite; name the step to run again with --step=N")
    if step > steps:
        raise UserError(f"--step={step} is more than the {steps} steps of {folder}; name one of these")
    return step


def _table(result) -> list[str]:
    """The sums of the step, and a line for each scope and for each part of the parameters."""
    width = max(map(len, (*result.sizes, *result.param_norms)))
    lines = ["  ".join(f"{name} {value:.5g}" for name, value in result.sums.items()), ""]
    lines.append(f"{'forward':<{width}} {'size':>10}")
    lines += [f"{scope:<{width}} {size:>10.4g}" for scope, size in result.sizes.items() if scope]
    lines += ["", f"{'parameters':<{width}} {'norm':>10} {'gradient':>10}"]
    for name, norm in result.param_norms.items():
        lines.append(f"{name:<{width}} {norm:>10.4g} {result.grad_norms[name]:>10.4g}")
    return [*lines, ""]

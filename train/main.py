"""Training, read from top to bottom: `python -m train.main --task=mlm`. `--help` lists every flag."""

from train import interruption

if __name__ == "__main__":
    interruption.install()

import sys
import time

from train import exit_code
from train.tasks import resolve


def main(argv=None) -> int:
    """The command; returns its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    asks_for_help = any(word == "-h" or word.startswith("--help") for word in argv)
    return exit_code(show_help if asks_for_help else train, argv)


def train(argv):
    """One run: configuration, data, mesh and state, run folder, loop, end."""
    began = time.perf_counter()
    from train.devices import distributed
    from train.runs import run_folder

    run, explicit = resolve.resolve(argv, run_folder.resumed_values, run_folder.run_values)

    # ---------------------------------------------------------------- run folder, which is this run's alone, and data
    from train.planning.estimate import estimate_phases, explain_oom
    from train.training import startup
    from train.training.hooks import open_hooks
    from train.training.phases import open_phases

    with startup.claimed_folder(run, distributed.initialize(run.distributed)) as folder:
        run, corpus, log = startup.load_data(run, explicit, folder)

        # ------------------------------------------------------------ mesh and state
        phases = open_phases(job := startup.job_on_mesh(run, log), corpus, log, folder)
        with explain_oom(job):
            state, step, progress = startup.first_state(job, corpus, folder, log)
        costs = estimate_phases(phases)
        # from here on, files are left behind
        facts = startup.facts(job, corpus, state.teacher)
        run_folder.create(distributed.output_dir(folder), run, corpus.processor, facts)
        startup.announce(job, corpus, step, costs.rows, log)

        # ------------------------------------------------------------ loop
        with explain_oom(job), open_hooks(phases, progress, state, folder, costs.peak_seconds) as hooks:
            while step < run.steps and not hooks.should_stop(step):
                phase = phases.at_step(step)
                state, sums = phase.train_step(state, phase.batch(step))
                step += 1
                hooks.after_step(step, state, sums)
            hooks.save_last(step, state)

        # ------------------------------------------------------------ end
        finished = (step == run.steps or progress.stopping.should_stop) and not interruption.received()
        if finished:
            log.table("result", phases.finish(step, state, folder, time.perf_counter() - began))
        log.info(_next_commands(job, step, folder, finished))


def _next_commands(job, step: int, folder, finished: bool) -> str:
    """What is saved where, and the commands that make sense after the run; train.export if it can write the model."""
    from train.runs.hf_match import is_held

    resume = f"python -m train.main --resume --out={folder}"
    if not finished:
        return f"stopped at step {step}, saved in {folder}; go on with\n  {resume}"
    names = ", ".join(sorted(path.name for path in folder.glob("[!.]*")))
    can_export = any(map(_exports, job.task.next_commands)) and is_held(folder, job.specs)
    offered = [command for command in job.task.next_commands if can_export or not _exports(command)]
    commands = [f"python -m train.{command.format(folder=folder)}" for command in offered]
    if not job.run.phases:
        commands.append(f"{resume} --steps={2 * job.run.steps}")
    return "\n  ".join([f"saved in {folder}: {names}; next:", *commands])


def _exports(command: str) -> bool:
    """Whether a command after a run writes a folder of transformers."""
    return command.startswith("export ")


def show_help(argv):
    """Prints the flags, with the values that the other flags lead to."""
    print(resolve.help_text(argv))


if __name__ == "__main__":
    sys.exit(main())

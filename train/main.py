"""Training, read from top to bottom: `python -m train.main --task=mlm`. `--help` lists every flag."""

import sys
import time
from pathlib import Path

from train import exit_code
from train.settings import resolve


def main(argv=None) -> int:
    """The command; returns its exit code."""
    return exit_code(train, argv)


def train(argv):
    """One run: configuration, data, mesh, state, loop, end."""
    began = time.perf_counter()
    if text := resolve.help_text(argv):
        print(text)
        return

    from train.devices import distributed
    from train.runs import folder as folders

    # ---------------------------------------------------------------- configuration
    run, explicit = resolve.resolve(argv, folders.resumed_values, folders.run_values)
    count = distributed.initialize(run.distributed)

    # ---------------------------------------------------------------- data
    import jax

    from train import tasks
    from train.devices import mesh as devices
    from train.reporting.console import Log
    from train.training import loop

    devices.use_cores(run, count)
    folder = Path(distributed.broadcast_from_main(lambda: str(folders.choose_folder(run))))
    log, task = Log(quiet=not distributed.is_main()), tasks.find(run.task.name)
    known = folder if run.resume else run.init
    corpus = task.load(run, log, folders.read_saved(known, facts=run.resume) if known else None)
    if run.resume:
        folders.RunFolder(folder).check_data(corpus.facts())
    loop.check_alike(corpus)
    run = resolve.fill_from_data(run, explicit, corpus.sizes, jax.default_backend())

    # ---------------------------------------------------------------- mesh and state
    mesh = devices.mesh_for(run, task.specs(run), report=log.info)
    training = loop.Training(run, task, corpus, mesh, log)
    training.start_from(folder)

    # ---------------------------------------------------------------- run folder: from here on, something is left behind
    folders.create(distributed.output_dir(folder), run, corpus.processor, training.facts())
    training.announce()

    # ---------------------------------------------------------------- loop
    finished = training.fit(folder)

    # ---------------------------------------------------------------- end
    resume = f"python -m train.main --resume --out={folder}"
    if not finished:
        log.info(f"stopped at step {training.step}, saved in {folder}; go on with\n  {resume}")
        return
    result = training.finish(folder, seconds=time.perf_counter() - began)
    log.table("result", {name: value for name, value in result.items() if name not in loop.FACTS})
    log.info(f"saved in {folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}; next:")
    for hint in task.NEXT_COMMANDS:
        log.info(f"  python -m train.{hint.format(folder=folder)}")
    log.info(f"  {resume} --steps={2 * run.steps}")


if __name__ == "__main__":
    sys.exit(main())

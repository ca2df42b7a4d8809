"""A run without the heads that it needs least: `python -m train.prune --run=RUN --heads=0.5 [--to=DIR]`.

    python -m train.prune --run=runs/classify-bert-mini-1 --heads=0.5 --to=runs/small
    python -m train.evaluate --run=runs/small
    python -m train.main --task=classify --init=runs/small --out=runs/tuned

Every layer keeps as many heads, those with the best scores in it: layers are stacked and share their shapes. The new
run folder is one like any other. Its arrays are cut, and no mask is left. plots/heads.png shows the metrics against the
number of heads.
"""

import dataclasses
from pathlib import Path

from train import UserError, exit_code
from train.files.strict_json import json_text
from train.lab.prune.options import PruneOptions
from train.runs.hf_folder import HfFolder
from train.runs.run_folder import RunFolder, open_folder
from train.settings import flags, schema
from train.settings.tuning import All
from train.tasks.table import AnyRun

USAGE = """usage: python -m train.prune --run=RUN --heads=SHARE [--to=DIR] [--by=gradient|learned]

Makes a smaller run folder with the heads that matter, and prints one JSON object of what it cost."""


def main(argv=None) -> int:
    """The command; returns its exit code."""
    return exit_code(prune, argv)


def prune(argv):
    """Loads a model, scores its heads, measures it with fewer and fewer of them, and writes the smaller one."""
    options = flags.options(PruneOptions, USAGE, argv)
    if options is None:
        return
    folder = open_folder(options.run)
    run = _configure(folder, options)
    count, target = _count(options, run), _target(options)

    import jax

    import tfm
    from train.lab.prune import curve, pruned_folder, smaller
    from train.screens.console import Log
    from train.tasks import table
    from train.training.job import Job

    log, task = Log(), table.task_of(run)
    corpus = task.load(run, log, folder)
    job = Job(run, task, tfm.make_mesh(devices=jax.devices()[:1]))
    params = smaller.load_params(options, folder, job, log)
    with jax.set_mesh(job.mesh):
        scores = smaller.score_heads(options, job, params, corpus)
        results = curve.measure_pruned(job, params, corpus, scores, log)
        small_job, small = smaller.cut(options, job, params, results[count])
        metrics = curve.measure(small_job, small, corpus)
        smaller.check_same(options, run.model, metrics, results[count].metrics)
        written = curve.measure_written(small_job, small, corpus, log)
        before = next(iter(results.values())).metrics | curve.measure_written(job, params, corpus, log)
        eval_metrics = {f"eval_{name}": value for name, value in metrics.items()} | written
        report = pruned_folder.PruneReport(eval_metrics, results[count], results, scores)
        saved = smaller.saved_job(small_job, folder, target)
        pruned_folder.write(target, saved, small, corpus, smaller.steps_done(folder), report)
    log.info(f"saved in {target}: {', '.join(sorted(path.name for path in target.iterdir()))}")
    print(json_text(smaller.summary(job, small_job, metrics | written, before)))


def _configure(folder: RunFolder | HfFolder, options: PruneOptions) -> schema.Run:
    """The saved run as a new one on one device, each batch in one part; its low-rank updates are merged."""
    changes = {"data.source": options.data, "data.eval": ""} if options.data else {}
    run = flags.build(AnyRun, {**folder.values, **changes})
    return dataclasses.replace(
        run,
        model=folder.config.model,
        batch=dataclasses.replace(run.batch, accumulate=1),
        mesh=schema.Mesh(data=1),
        tune=All(),
        init="",
        resume=False,
        adapter=None,
    )


def _target(options: PruneOptions) -> Path:
    """The folder to make. Raises UserError if it holds something."""
    target = Path(options.to or f"{Path(options.run)}-heads{options.heads:g}")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(f"{target} already holds something; choose another folder with --to=DIR")
    return target


def _count(options: PruneOptions, run: schema.Run) -> int:
    """The heads that a layer, or a group of its query heads, keeps. Raises UserError where none would go, and for two
    towers."""
    if run.model.images is not None:
        raise UserError(
            f"--run={options.run} cannot be pruned: its two towers have heads of their own; name another run"
        )
    sizes = run.model.sizes
    total = sizes["K"] if sizes["G"] == 1 else sizes["G"]
    count = max(1, round(options.heads * total))
    if count == total:
        where = "a layer" if sizes["G"] == 1 else "a group that shares its keys"
        remedy = f"try --heads={max(1, total // 2) / total:g}" if total > 1 else "there is none to spare"
        raise UserError(
            f"--heads={options.heads:g} keeps all of the {total} heads of {where} of {options.run}; {remedy}"
        )
    return count

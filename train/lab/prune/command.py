"""A run without the heads that it needs least: `python -m train.prune --run=RUN --heads=0.5 [--to=DIR]`.

    python -m train.prune --run=runs/classify-bert-mini-1 --heads=0.5 --to=runs/small
    python -m train.evaluate --run=runs/small
    python -m train.main --task=classify --init=runs/small --out=runs/tuned

Every layer keeps as many heads, those with the best scores in it: layers are stacked and share their shapes. The new
run folder is one like any other. Its arrays are cut, and no mask is left. plots/heads.png shows the metrics against the
number of heads.
"""

import dataclasses
import math
from pathlib import Path
from typing import Any, Literal

from tfm.options.choices import check_fields, check_maximum, check_minimum
from train import UserError, exit_code
from train.files.strict_json import json_text
from train.runs.run_folder import CHECKPOINTS, open_folder
from train.settings import flags, schema
from train.settings.tuning import All

USAGE = """usage: python -m train.prune --run=RUN --heads=SHARE [--to=DIR] [--by=gradient|learned]

Makes a smaller run folder with the heads that matter, and prints one JSON object of what it cost."""

# Training batches that are read, by how heads are scored.
BATCHES = {"gradient": 16, "learned": 200}


@dataclasses.dataclass(frozen=True)
class PruneOptions:
    """What to prune, and how far.

    run: the run folder, or a Hugging Face folder
    heads: the share of the heads of every layer that stays
    to: the run folder to make, a new or an empty one; by default RUN-headsSHARE
    by: gradient | learned: how much the loss changes with a head, or gates that are trained to close
    batches: training batches that are read; by default 16, or 200 for learned gates
    penalty: of learned gates: what an open gate costs, in the unit of the loss
    data: text to score heads on and to measure with; empty for the run's own
    average: the newest checkpoints whose mean is pruned
    """

    run: str = ""
    heads: float = 0.5
    to: str = ""
    by: Literal["gradient", "learned"] = "gradient"
    batches: int | None = None
    penalty: float = 0.05
    data: str = ""
    average: int = 1

    def __post_init__(self):
        if not self.run:
            raise ValueError("run=RUN must name the folder of a run")
        check_fields(self)
        check_minimum(self, batches=1, penalty=0, average=1)
        check_maximum(self, "no text is as long", batches=1 << 32)
        if not 0 < self.heads < 1:
            raise ValueError(f"heads={self.heads} must be more than 0 and less than 1; 0.5 keeps half of them")


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
    from train.lab.prune import curve, pruned_folder
    from train.screens.console import Log
    from train.tasks import table
    from train.training.job import Job

    log, task = Log(), table.task_of(run)
    corpus = task.load(run, log, folder)
    job = Job(run, task, tfm.make_mesh(devices=jax.devices()[:1]))
    params = _parameters(options, folder, job, log)
    with jax.set_mesh(job.mesh):
        scores = _scores(options, job, params, corpus)
        results = curve.measure_pruned(job, params, corpus, scores, log)
        small_job, small = _cut(options, job, params, results[count])
        metrics = curve.measure(small_job, small, corpus)
        _check_same(options, run.model, metrics, results[count].metrics)
        written = curve.measure_written(small_job, small, corpus, log)
        before = next(iter(results.values())).metrics | curve.measure_written(job, params, corpus, log)
        report = {
            "metrics": {f"eval_{name}": value for name, value in metrics.items()} | written,
            "chosen": results[count],
            "results": results,
            "scores": scores,
        }
        pruned_folder.write(target, _saved(small_job, folder, target), small, corpus, _steps_done(folder), report)
    log.info(f"saved in {target}: {', '.join(sorted(path.name for path in target.iterdir()))}")
    print(json_text(_summary(job, small_job, metrics | written, before)))


def _parameters(options: PruneOptions, folder: Any, job: Any, log: Any) -> Any:
    """The parameters to prune, updates merged. Raises UserError for a model without a head of its task."""
    from tfm.low_rank import merge_low_rank

    params = merge_low_rank(folder.load(job.mesh, log.info, options.average))
    if not isinstance(params, type(job.specs)):
        raise UserError(
            f"--run={options.run} holds a model without a head that could be measured; fine-tune it first with --init"
        )
    return params


def _configure(folder: Any, options: PruneOptions) -> schema.Run:
    """The saved run as a new one on one device, each batch in one part; its low-rank updates are merged."""
    changes = {"data.source": options.data, "data.eval": ""} if options.data else {}
    run = flags.build(schema.Run, {**folder.values, **changes})
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


def _scores(options: PruneOptions, job: Any, params: Any, corpus: Any) -> dict[str, Any]:
    """The scores of the heads, on training batches."""
    from train.lab.prune.scores import by_gradient, by_learned_gates

    count = options.batches or BATCHES[options.by]
    batches = ({name: field[0] for name, field in job.device_batch(corpus, n).items()} for n in range(count))
    if options.by == "gradient":
        scores = by_gradient(job.task.loss, job.model, params, batches)
    else:
        scores = by_learned_gates(job.task.loss, job.model, params, batches, options.penalty, job.run.seed)
    if not scores:
        raise UserError(f"--run={options.run} cannot be pruned: mixer={job.model.mixer.name} has no heads")
    return scores


def _cut(options: PruneOptions, job: Any, params: Any, pruned: Any) -> tuple[Any, Any]:
    """The job of the smaller model, and its parameters. Raises UserError where heads cannot be cut."""
    import jax

    import tfm
    from tfm.catalogue.studies.pruning import cut_axis, cut_config, cut_heads

    letter, _ = cut_axis(job.model)
    try:
        small = cut_heads(params, job.specs, pruned.places, letter)
        model = cut_config(job.run.model, letter, pruned.kept)
    except ValueError as error:
        raise UserError(f"--run={options.run} cannot be pruned: {error}") from error
    small_job = dataclasses.replace(job, run=dataclasses.replace(job.run, model=model))
    sizes, expected = ([leaf.shape for leaf in jax.tree.leaves(tree)] for tree in (small, small_job.specs))
    if sizes != expected:
        raise UserError(
            f"--run={options.run} cannot be pruned: mixer={model.mixer.name} or position={model.position.name} has "
            "arrays whose sizes depend on the heads, and which do not say where these are"
        )
    return small_job, jax.device_put(small, tfm.shardings(small_job.specs, job.mesh))


def _check_same(options: PruneOptions, model: Any, metrics: dict[str, float], gated: dict[str, float]):
    """Raises UserError if the smaller model is not the one whose heads gates have closed."""
    tolerance = 2e-5 if model.dtype == "float32" else 2e-2
    if not math.isclose(metrics["loss"], gated["loss"], rel_tol=tolerance, abs_tol=1e-6):
        raise UserError(
            f"--run={options.run} cannot be pruned: what position={model.position.name} or mixer={model.mixer.name} "
            "gives a head depends on how many there are"
        )


def _saved(job: Any, folder: Any, target: Path) -> Any:
    """The job as its run.json has it: batches and mesh are those of the old run."""
    run = dataclasses.replace(job.run, batch=folder.config.batch, mesh=folder.config.mesh, out=str(target))
    return dataclasses.replace(job, run=run)


def _summary(job: Any, small_job: Any, metrics: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Heads, parameters and metrics of the smaller model, and those of the model before."""
    import tfm

    def sizes(job: Any) -> dict[str, int]:
        return {"heads": job.model.heads, "params": tfm.count_params(job.specs)}

    before = sizes(job) | {name: before[name] for name in job.task.goals if name in before}
    return sizes(small_job) | metrics | {f"{name}_before": value for name, value in before.items()}


def _steps_done(folder: Any) -> int:
    """The steps of the newest checkpoint; 0 of a Hugging Face folder."""
    from train.runs.saved import SavedCheckpoints

    return max(SavedCheckpoints(folder.path / CHECKPOINTS).steps, default=0)

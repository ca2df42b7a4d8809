"""What the steps of a run are made of, phase by phase; a run without phases is one phase."""

import bisect
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import jax
import optax

from tfm.options.dotted import flatten
from train import UserError
from train.data import phased
from train.data.corpus import Corpus
from train.data.targets import check_targets
from train.devices import capacity
from train.runs.state import State
from train.runs.takeover import SavedData
from train.runs.tuning import specs_of
from train.screens.console import Log
from train.settings.schema import Run
from train.tasks import phases, table
from train.tasks.phases import StepRange
from train.text import control_tokens
from train.training.evaluation import Evaluator
from train.training.job import Job, batch_tokens, device_batch, planned_shapes, tokens_per_step, train_step_for
from train.training.rates import rates
from train.training.recompilation import Guard


@dataclasses.dataclass(frozen=True)
class PhaseJob:
    """Some steps of a run with the same settings.

    job: these settings on the mesh
    corpus: their batches
    train_step: the compiled step, which phases with the same model share
    evaluator: their model on the validation rows of the flags, which are those of all phases
    """

    steps: StepRange
    job: Job
    corpus: Corpus
    train_step: Guard
    evaluator: Evaluator

    def batch(self, step: int) -> dict[str, jax.Array]:
        """The batch of a step, from 0, on the devices."""
        return device_batch(self.job, self.corpus, step)


@dataclasses.dataclass(frozen=True)
class PhaseJobs:
    """All steps of a run, in order.

    job, corpus: those of the flags
    """

    job: Job
    corpus: Corpus
    log: Log
    parts: Sequence[PhaseJob]

    def at_step(self, step: int) -> PhaseJob:
        """What makes a step, from 0; behind the last step, what made that."""
        return self.parts[bisect.bisect([part.steps.first for part in self.parts], step) - 1]

    def of_state(self, step: int) -> PhaseJob:
        """What made the state after so many steps."""
        return self.at_step(max(0, step - 1))

    def finish(self, done: int, state: State, folder: Path, seconds: float) -> dict[str, object]:
        """The final metrics, by the model of the last phase (`Evaluator.finish`)."""
        return self.of_state(done).evaluator.finish(done, state, folder, seconds)

    @property
    def tokens(self) -> list[float]:
        """The tokens of a step of each part."""
        return [tokens_per_step(part.job, part.corpus) for part in self.parts]

    def mean(self, values: Sequence[float], first: int, stop: int) -> float:
        """The mean of values of each part over the steps from `first` on, before `stop`."""
        counts = [min(stop, part.steps.stop) - max(first, part.steps.first) for part in self.parts]
        overlaps = [(value, count) for value, count in zip(values, counts, strict=True) if count > 0]
        if len(overlaps) < 2:
            return overlaps[0][0] if overlaps else values[-1]
        return sum(value * count for value, count in overlaps) / sum(count for _, count in overlaps)

    def rows(self) -> dict[str, str]:
        """A row of the start-up table for each phase; none of a run without phases."""
        rate = rates(self.job.run)
        by_phase: dict[int, list[PhaseJob]] = {}
        for part in self.parts if self.job.run.phases else ():
            by_phase.setdefault(part.steps.phase, []).append(part)
        return {f"phase {phase}": self._row(parts, rate) for phase, parts in by_phase.items()}

    def _row(self, parts: Sequence[PhaseJob], rate: optax.Schedule) -> str:
        """The steps of a phase, its batches, its rates at both ends, and what it changes."""
        first, stop, batches = parts[0].steps.first, parts[-1].steps.stop, [part.job.run.batch for part in parts]
        sizes = ", ".join(str(part.corpus.layout or batch.size) for part, batch in zip(parts, batches, strict=True))
        tokens = self.mean(self.tokens, first, stop) * (stop - first)
        changes = self.job.run.phases[parts[0].steps.phase - 1].changes
        ends = f"rate {float(rate(first)):.3g} to {float(rate(stop - 1)):.3g}"
        batch = f"{sizes} x {parts[0].job.run.row_tokens}, {tokens:,.0f} tokens"
        return f"steps {first + 1:,} to {stop:,} of {batch}; {ends}" + (f"; {changes}" if changes else "")

    @property
    def num_programs(self) -> int:
        """How many steps have been compiled."""
        guards = {id(part.train_step): part.train_step for part in self.parts}
        return sum(len(guard.shapes) for guard in guards.values())

    @property
    def programs(self) -> str:
        """What these differ in."""
        models = len({part.job.model for part in self.parts})
        return "shapes of batches" if models == 1 else f"shapes of batches and {models} models"


def open_phases(job: Job, corpus: Corpus, log: Log, folder: Path | None = None) -> PhaseJobs:
    """The steps of a job and of its corpus, which are those of the flags.

    Raises UserError for phases that change the shape of a parameter, that memory cannot hold, or without rows.
    """
    parts = phases.step_ranges(job.run)
    jobs, corpora = [job], [corpus]
    if job.run.phases:
        jobs = [dataclasses.replace(job, run=part.run, task=table.task_of(part.run)) for part in parts]
        for part, of_phase in zip(parts, jobs, strict=True):
            _check_shapes(job, of_phase, part.phase)
        starts = [(part.run, part.first) for part in parts]
        corpora = phased.corpora(starts, corpus, lambda run: _read(run, corpus, log))
        jobs = [dataclasses.replace(of_phase, layout=rows.layout) for of_phase, rows in zip(jobs, corpora, strict=True)]
    guards, evaluators = _guards(jobs, corpora), _evaluators(jobs, Evaluator(job, corpus, log, folder))
    return PhaseJobs(job, corpus, log, [*map(PhaseJob, parts, jobs, corpora, guards, evaluators)])


def _guards(jobs: Sequence[Job], corpora: Sequence[Corpus]) -> list[Guard]:
    """The training step of each job, which no batch of its corpus compiles twice; equal models share one."""
    models = [(id(of_phase.task), of_phase.model) for of_phase in jobs]
    guards: dict[object, Guard] = {}
    for model in dict.fromkeys(models):
        equal = [index for index, of_phase in enumerate(models) if of_phase == model]
        shapes = [shape for index in equal for shape in planned_shapes(jobs[index], corpora[index])]
        distinct = [shape for index, shape in enumerate(shapes) if shape not in shapes[:index]]
        largest = max((jobs[index] for index in equal), key=batch_tokens)
        guards[model] = Guard(train_step_for(largest, len(distinct)), distinct)
    return [guards[model] for model in models]


def _evaluators(jobs: Sequence[Job], of_flags: Evaluator) -> list[Evaluator]:
    """The evaluators of the models of jobs; equal models share one."""
    evaluators = {of_flags.job.run.model: of_flags}
    for model in (of_phase.run.model for of_phase in jobs):
        if model not in evaluators:
            run = dataclasses.replace(of_flags.job.run, model=model)
            evaluators[model] = dataclasses.replace(of_flags, job=dataclasses.replace(of_flags.job, run=run))
    return [evaluators[of_phase.run.model] for of_phase in jobs]


def _read(run: Run, corpus: Corpus, log: Log) -> Corpus:
    """The rows of a phase, by the tokenizer of another corpus. Raises UserError where memory cannot hold a batch, and
    for rows without targets."""
    tokens = max(run.batch.tokens or 0, run.batch.unit * run.row_tokens)
    capacity.check_tokens(run.model, tokens, run.batch.accumulate, "batch.size or batch.length of a phase")
    facts = {name: value for name, value in corpus.facts().items() if name != "mixture"}
    task = table.task_of(run)
    with control_tokens.reading(run.data.control_tokens):
        rows = task.load(run, log, SavedData(corpus.processor, facts))
    check_targets(rows, task.batch_spec(run), run.eval.batches or 0)
    return rows


def _check_shapes(job: Job, of_phase: Job, phase: int):
    """Raises UserError where a phase has parameters of other shapes than the run."""
    trees = job.specs, specs_of(of_phase.task, of_phase.run)
    before, after = (
        {jax.tree_util.keystr(path, simple=True, separator="."): spec.shape for path, spec in leaves}
        for leaves in map(jax.tree_util.tree_leaves_with_path, trees)
    )
    changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    if not changed and len(set(map(jax.tree.structure, trees))) > 1:
        changed = ["kinds of layers or of positions"]
    if changed:
        old, new = flatten(job.run), flatten(of_phase.run)
        names = [name for name in new if name.startswith(("model.", "task.")) and new[name] != old.get(name)]
        raise UserError(
            f"--phases: phase {phase} changes the shape of parameters ({changed[0]}) by {', '.join(names)}; a phase "
            "may change what has no parameters, such as windows and rotary bases"
        )

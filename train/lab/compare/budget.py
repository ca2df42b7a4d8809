"""What rows cost, counted or timed before the first run, and how many steps the budget leaves to each."""

import dataclasses
import statistics
from collections.abc import Sequence
from pathlib import Path

import tfm
from tfm.options.json_text import read_object
from train import OutOfMemoryError, UserError
from train.lab.compare.table_rows import TableRow
from train.lab.suite import forget_programs
from train.lab.timing import timing
from train.planning.estimate import estimate, explain_oom
from train.runs import run_folder
from train.screens.console import Log
from train.training import startup
from train.training.job import device_batch, tokens_per_step

FILE = "plan.json"

# Batches over which the operations of batches of several shapes are averaged; steps before timed ones, and these.
_BATCHES, _WARMUP, _TIMED = 50, 3, 20


@dataclasses.dataclass(frozen=True)
class Costs:
    """What a run of a row costs.

    words: the words for train.main that were counted
    reference: those of the first row, where its cost is the budget of all
    params: parameters
    tokens, flops: of a step; flops are the model's, three times those of the forward pass
    seconds: of a step, where seconds are the budget; they are measured once
    steps: what the budget leaves
    failure: why the run cannot be, such as too little memory; "" where it can
    """

    words: list[str]
    reference: list[str]
    params: int = 0
    tokens: float = 0.0
    flops: float = 0.0
    seconds: float | None = None
    steps: int = 0
    failure: str = ""


def plan(rows: Sequence[TableRow], shared: Sequence[str], budget: str, out: Path, log: Log) -> dict[str, Costs]:
    """The costs of all rows, by name. What `out` knows of them from an earlier start stays as it is.

    Raises UserError for flags that train.main refuses.
    """
    saved = _read(out / FILE)
    reference = [] if budget == "steps" else [*shared, *rows[0].words]
    result: dict[str, Costs] = {}
    for row in rows:
        words = [*shared, *row.words]
        costs = saved.get(row.name)
        if not costs or (costs.words, costs.reference) != (words, reference):
            log.info(f"counting what {row.name} costs")
            costs = _within(budget, result.get(rows[0].name), _costs(row, words, reference, budget))
        result[row.name] = costs
        run_folder.write_json(out / FILE, saved_values(saved | result))
    return result


def saved_values(costs: dict[str, Costs]) -> dict[str, dict[str, object]]:
    """Costs as JSON has them."""
    return {name: dataclasses.asdict(value) for name, value in costs.items()}


def _costs(row: TableRow, words: list[str], reference: list[str], budget: str) -> Costs:
    """The costs of a row with the steps that its flags say."""
    log = Log(quiet=True)
    try:
        run, corpus = startup.prepare(words, log)
        job = startup.job_on_mesh(run, log)
        with explain_oom(job):
            estimate(job, device_batch(job, corpus, 0))
            several = bool(corpus.train[0].buckets)
            flops = timing.mean_flops(job, corpus.batch, _BATCHES if several else 1)
            seconds = None
            if budget == "seconds":
                warmup = _WARMUP + len(corpus.example_batches())
                timed, _ = timing.time_steps(job, corpus.batch, warmup, _TIMED)
                seconds = statistics.median(sum(step_time) for step_time in timed.steps)
        size = tfm.count_params(job.specs)
        return Costs(words, reference, size, tokens_per_step(job, corpus), flops, seconds, run.steps)
    except (OutOfMemoryError, MemoryError) as error:
        return Costs(words, reference, failure=str(error) or "out of memory")
    except UserError as error:
        raise UserError(f"row {row.name}: {error}") from error
    finally:
        forget_programs()


def _within(budget: str, first: Costs | None, costs: Costs) -> Costs:
    """The costs with as many steps as the cost of the first row allows."""
    if budget == "steps" or first is None or costs.failure:
        return costs
    if first.failure:
        raise UserError(f"the first row cannot run, so there is no budget of {budget}: {first.failure}")
    before, after = (first.flops, costs.flops) if budget == "flops" else (first.seconds or 1.0, costs.seconds or 1.0)
    return dataclasses.replace(costs, steps=max(1, round(first.steps * before / after)))


def _read(path: Path) -> dict[str, Costs]:
    """The plan of an earlier start; nothing if there is none. Raises UserError if it is damaged."""
    if not path.exists():
        return {}
    try:
        return {name: Costs(**values) for name, values in read_object(path).items()}
    except (ValueError, TypeError) as error:
        raise UserError(f"{path} is damaged ({error}); remove it, and it is made again") from error

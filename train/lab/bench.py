"""Times training steps and generation.

A plain model on random tokens, `python -m train.bench --model=gpt --layers=4 --width=128 --vocab=65 --batch=12
--length=64`; a preset with its own data, `--preset=bert-tiny`; or how fast a model writes, `--model=gpt --generate=56`.
"""

import dataclasses
import os
import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TypedDict

from train import UserError, exit_code
from train.files.strict_json import json_text
from train.lab.timing.options import BenchOptions
from train.settings import flags
from train.settings.schema import Run

USAGE = """usage: python -m train.bench --model=bert|gpt|seq2seq|t5 [--layers=N ...]
       python -m train.bench --model=vit|swin [--size=PIXELS --patch=PIXELS ...]
       python -m train.bench --mixer=A,B [--position=A,B]
       python -m train.bench --lengths=512,1024,2048 [--mixer=A,B] [--plot=FILE.png] [--batch=1 ...]
       python -m train.bench --preset=NAME [--task=NAME] [--data=SOURCE] [--section.field=value ...]
       python -m train.bench --model=gpt --generate=N [--weights=int8] [--run=FOLDER] [--batch=1 ...]
       python -m train.bench --run=FOLDER --data=FILE [--beams=5] [--batch=32] [--weights=int8]

Prints one JSON object. With --model, a step of a plain Transformer on random tokens or pictures: milliseconds (median
and least), tokens a second, seconds of compilation (TFM_CACHE= compiles what is kept), operations and the share of the
fastest possible, the loss reached. Several mixers or positions are timed in turns: one object for each; `ratio` is its
time over that of the first, with an interval of 95 %. With --lengths, one object for every length, and one with the
exponents by which time and bytes grow, of each mixer. With --preset, a step of that run of train.main, whose flags it
takes (see its --help), and the shares of making batches (data), sending them (host) and computing (device). With
--generate, the times of reading prompts and of writing; with --data, sentences a second of a beam search, or texts that
a classifier labels in a second. With --against=torch, a plain model of PyTorch does the same work in turns; T5,
pictures, writing, translation and presets of --task=image or classify have the model of transformers, labels its
pipeline, torch-compile its static cache, ctranslate2 the same weights. `ratio` is then peer / tfm in time, with an
interval of 95 %. Flags of its own, and their defaults:"""

# Flags of this command that go with --preset; all the rest are then those of train.main.
_PRESET_FLAGS = ("preset", "steps", "warmup", "against", "group", "profile")

# Batches that a preset and its peer take in turn, at most.
_DIFFERENT = 16


def main(argv=None) -> int:
    """The command; returns its exit code."""
    return exit_code(bench, argv)


def bench(argv):
    """Builds what is to be timed, times it, prints the result."""
    if flags.print_help(BenchOptions, USAGE, argv):
        return
    has_preset = any(argument.partition("=")[0] == "--preset" for argument in argv)
    own, rest = flags.split_argv(argv, _PRESET_FLAGS) if has_preset else (argv, [])
    options = flags.build(BenchOptions, flags.parse(own))
    if options.against:  # the peer needs memory of the same GPU
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

    import jax

    import tfm

    try:
        if options.lengths:
            _bench_lengths(options)
            return
        if len(options.variants) > 1:
            _bench_variants(options)
            return
        if options.preset:
            result = _bench_preset(options, rest)
        elif options.writes:
            result = _bench_texts(options)
        else:
            result = _bench_model(options)
    except tfm.KernelError as error:
        raise UserError(f"--{error}") from error
    except tfm.VariantError as error:
        raise UserError(f"--mixer or --position: {error}") from error
    print(json_text({"peer": "tfm", "jax": jax.__version__, **result}))


def _bench_model(options: BenchOptions) -> dict[str, object]:
    """The numbers of a plain model on random tokens, each step waited for."""
    from train.devices.mesh import use_cores
    from train.lab.compare.statistics import bootstrap_interval
    from train.lab.timing import random_task, timing
    from train.lab.timing.peers import against

    if options.against:
        against.check(options.against, needs_folder=options.folder_model is not None)
    run = random_task.plain_run(options)
    task = random_task.plain_task(options)
    use_cores(run)
    job = _job(run, task)
    batches = task.batches(run)
    if options.reads_pictures:
        batches = timing.prepared(job, [batches(0)])
    timed, state = timing.time_steps(job, batches, options.warmup, options.steps)
    seconds = statistics.median(sum(step_time) for step_time in timed.steps)
    facts = _facts(job)
    result: dict[str, object] = {"model": options.model, **facts, **timing.summary(timed)}
    result["tokens_per_s"] = round(options.batch * run.row_tokens / seconds)
    result |= timing.utilization(job, facts["flops"], seconds)
    if options.reads_pictures:
        result["pictures_per_s"] = round(options.batch / seconds, 1)
    if options.against and options.folder_model:
        result |= _against_folder(options, options.folder_model, job, state.params, task.batches(run), different=1)
    elif options.against:
        result |= against.measure(options, against.plain_work(options, job), job, batches, bootstrap_interval)
    _profile(options, job, state, batches(0))
    return result


def _against_folder(options: BenchOptions, kind: str, job, params, batches, different: int) -> dict[str, object]:
    """The ratio to the class of transformers that reads this model, on so many `different` batches or fewer."""
    from train.lab.compare.statistics import bootstrap_interval
    from train.lab.timing.peers import against
    from train.lab.timing.turns import turn_steps

    host_batches = [batches(step) for step in range(min(different, turn_steps(options.steps)))]
    return against.measure_folder(options, kind, job, params, host_batches, bootstrap_interval)


def _bench_variants(options: BenchOptions):
    """A line of JSON for every mixer and position, which are timed in turns."""
    from train.devices.mesh import use_cores
    from train.lab.compare.statistics import bootstrap_interval
    from train.lab.timing import random_task, turns

    task = random_task.plain_task(options)
    runs = [
        random_task.plain_run(dataclasses.replace(options, mixer=variant["mixer"], position=variant["position"]))
        for variant in options.variants
    ]
    use_cores(runs[0])
    jobs = [(_job(run, task), task.batches(run)) for run in runs]
    rows = turns.side_by_side(jobs, options.warmup, options.steps, bootstrap_interval)
    for variant, row in zip(options.variants, rows, strict=True):
        print(json_text(variant | row))


def _bench_lengths(options: BenchOptions):
    """A line of JSON for every mixer and length, and for the exponents of each mixer; and the picture."""
    from train.devices.mesh import use_cores
    from train.lab.timing import random_task, scaling
    from train.planning.counting import model_flops

    plot, lengths = Path(options.plot), scaling.parse_lengths(options.lengths)
    if plot.is_dir() or not plot.absolute().parent.is_dir():
        raise UserError(f"--plot={plot} cannot be written; name a file in a folder that is there")
    task = random_task.plain_task(options)

    def job_of(mixer: str, length: int):
        run = random_task.plain_run(dataclasses.replace(options, mixer=mixer, length=length))
        use_cores(run)
        return _job(run, task), task.batches(run)

    mixers = options.mixer.split(",")
    for mixer in mixers:
        random_task.plain_run(dataclasses.replace(options, mixer=mixer, length=lengths[-1]))
    for mixer in mixers:  # traced: one that cannot be is refused before any is timed
        model_flops(job_of(mixer, lengths[-1])[0])
    jobs = {mixer: {length: partial(job_of, mixer, length) for length in lengths} for mixer in mixers}
    results = scaling.measure_all(jobs, options.steps, lambda line: print(json_text(line), flush=True))
    scaling.draw(results, plot)


def _bench_preset(options: BenchOptions, argv: Sequence[str]) -> dict[str, object]:
    """The numbers of a run of the trainer with its own data: as it runs, and part by part."""
    from train.lab.timing import timing
    from train.lab.timing.peers import against
    from train.screens.console import Log
    from train.tasks import table
    from train.training import startup
    from train.training.job import tokens_per_step

    log = Log()
    run, corpus = startup.prepare([*argv, f"--preset={options.preset}"], log)
    if options.against:
        against.check(options.against, run.task.name)
    job = _job(run, table.task_of(run))
    shapes = corpus.example_batches()

    def batches(step: int):
        """A batch of every shape, then those of the corpus."""
        return shapes[step] if step < len(shapes) else corpus.batch(step)

    with log.waiting(f"timing {options.steps} steps of {run.task.name} {options.preset}"):
        timed, state = timing.time_steps(job, batches, max(options.warmup, len(shapes)), options.steps)
        step_seconds, state = timing.time_loop(job, state, corpus.batch, options.steps)
        data_seconds = timing.time_data(job, corpus.batch, options.steps)
        flops = timing.mean_flops(job, batches, options.steps)
    tokens = tokens_per_step(job, corpus)
    result: dict[str, object] = {"preset": options.preset, "task": run.task.name}
    result |= {
        **_facts(job),
        **timing.summary(timed),
        "ms_unwaited": round(1e3 * step_seconds, 3),
        "tokens_per_s": round(tokens / step_seconds),
        **timing.shares(timed),
        "data_tokens_per_s": round(tokens / data_seconds),
        "data_over_step": round(step_seconds / data_seconds, 2),
        **timing.utilization(job, flops, step_seconds),
    }
    if options.against:
        result |= _against_folder(options, run.task.name, job, state.params, corpus.batch, _DIFFERENT)
    _profile(options, job, state, corpus.batch(0))
    return result


def _job(run: Run, task):
    """The run on the devices of this machine."""
    from train.devices.mesh import mesh_for
    from train.runs.tuning import specs_of
    from train.screens.console import Log
    from train.training.job import Job

    return Job(run, task, mesh_for(run, specs_of(task, run), report=Log().info))


class JobFacts(TypedDict):
    """What is timed, and on which devices."""

    device: str
    devices: str
    dtype: str
    params: int
    flops: int


def _facts(job) -> JobFacts:
    """The facts of a job."""
    import tfm
    from train.planning.counting import model_flops

    devices = job.mesh.devices.ravel()
    return {
        "device": devices[0].platform,
        "devices": f"{len(devices)} x {devices[0].device_kind}",
        "dtype": job.run.model.dtype,
        "params": tfm.count_params(job.specs),
        "flops": model_flops(job),
    }


def _profile(options: BenchOptions, job, state, batch):
    """With --profile: records a few steps with this batch, and prints the operations that took most."""
    from train.lab.timing.profile import profile_steps

    if options.profile:
        profile_steps(options.profile, job, state, batch)


def _bench_texts(options: BenchOptions) -> dict[str, object]:
    """Milliseconds of the prefill and of each token, or texts that are translated or classified in a second; or the
    ratio to a peer."""
    from train.lab.compare.statistics import bootstrap_interval
    from train.lab.timing import passes

    return passes.measure(options, bootstrap_interval)

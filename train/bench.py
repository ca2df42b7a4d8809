"""Times training steps of a plain model, `python -m train.bench --model=gpt --layers=4 --width=128 --vocab=65 --batch=12 --length=64`, or
of a preset with its own data, `--preset=bert-tiny`; and how fast a model writes, `--model=gpt --generate=56`.
"""

import dataclasses
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from train import UserError, exit_code
from train.runs import folder as folders
from train.settings import flags, resolve
from train.settings.schema import Attention, Batch, Config, Run

USAGE = """usage: python -m train.bench --model=bert|gpt|seq2seq [--layers=N ...]
       python -m train.bench --preset=NAME [--task=NAME] [--data=SOURCE] [--section.field=value ...]

Prints one JSON object. With --model, a step of a plain Transformer on random tokens: milliseconds (median and least), tokens a second,
seconds of compilation, operations and the share of the fastest possible, the loss reached. With --preset, a step of that run of
train.main, whose flags it takes (see its --help), and the shares of making batches (data), handing them over (host) and computing
(device). With --generate, how long reading prompts and writing takes. Flags of its own, and what they are by default:"""

# The flags that belong to a preset, too; all others are then those of train.main.
_OF_BOTH = ("preset", "steps", "warmup", "profile")

# Steps that a profile records.
_RECORDED = 5


@dataclasses.dataclass(frozen=True)
class Options:
    """What to time.

    preset: instead of a plain model: a preset of train.main, with its real data
    model: bert | gpt | seq2seq: an encoder, the same with a causal mask, or both, of `layers` each
    layers: number of blocks
    heads: attention heads
    width: size of the residual stream
    ffn: size of the feed-forward layer; 0 means 4 * width
    vocab: number of tokens
    batch: rows
    length: tokens a row
    dtype: float32 | bfloat16
    kernel: auto | einsum | chunked | cudnn | splash: how attention is computed
    steps: timed steps
    warmup: steps before them
    scan: one compiled block for all layers
    predict: share of positions that meet the vocabulary; 1 is the same work as a plain cross entropy, 0.15 is masked language modelling
    generate: instead of training steps, tokens to add greedily to each of `batch` prompts, which are the rest of `length`
    profile: also record a few steps in this folder, and print the ten operations that took most
    """

    preset: str = ""
    model: str = "bert"
    layers: int = 4
    heads: int = 4
    width: int = 128
    ffn: int = 0
    vocab: int = 8192
    batch: int = 12
    length: int = 64
    dtype: str = "float32"
    kernel: str = "auto"
    steps: int = 60
    warmup: int = 10
    scan: bool = False
    predict: float = 1.0
    generate: int = 0
    profile: str = ""

    def __post_init__(self):
        if self.generate and not (self.model == "gpt" and 10 <= self.generate < self.length):
            raise ValueError(
                f"generate={self.generate} needs --model=gpt, and must be at least 10 and less than --length={self.length}"
            )
        if self.generate and self.profile:
            raise ValueError(f"profile={self.profile} is for training steps; leave --generate out")
        if self.model not in ("bert", "gpt", "seq2seq"):
            raise ValueError(f"model={self.model} must be bert, gpt or seq2seq")
        if min(self.batch, self.length, self.steps, self.warmup) < 1:
            raise ValueError("batch, length, steps and warmup must be at least 1")
        if not 0 < self.predict <= 1:
            raise ValueError(f"predict={self.predict} must be above 0 and at most 1")


def main(argv=None) -> int:
    """The command; returns its exit code."""
    return exit_code(bench, argv)


def bench(argv):
    """Builds what is to be timed, times it, prints the result."""
    known = flags.flags_of(Options, {})
    if {"--help", "-h"} & set(argv):
        print(flags.explain(USAGE, known, {}, {}))
        return
    own, others = argv, list[str]()
    if any(word.partition("=")[0] == "--preset" for word in argv):
        own, others = flags.divide(argv, _OF_BOTH)
    options = flags.build(Options, flags.parse(own, known, {}))

    import jax

    import tfm

    facts = {"peer": "tfm", "jax": jax.__version__}
    try:
        found = (
            _preset(options, others) if options.preset else _generate(options) if options.generate else _plain(options)
        )
    except tfm.KernelError as error:
        raise UserError(f"--{error}") from error
    print(json.dumps(facts | found))


def _plain(options: Options) -> dict[str, Any]:
    """The numbers of a plain model on random tokens, each step waited for."""
    from train.costs import random_task, timing
    from train.devices import mesh as devices

    run, task = _run(options), random_task.Plain(options.model, options.predict)
    devices.use_cores(run)
    job, batches = _job(run, task), task.batches(run)
    timed, state = timing.time_steps(job, batches, options.warmup, options.steps)
    typical = statistics.median(map(sum, timed.steps))
    found = {"model": options.model} | _facts(job) | _times(timed)
    found |= {"tokens_per_s": round(options.batch * options.length / typical)}
    found |= timing.share(job, job.model_flops(), typical)
    _profile(options, job, state, batches(0))
    return found


def _preset(options: Options, others: Sequence[str]) -> dict[str, Any]:
    """The numbers of a run of the trainer with its own data: as it runs, and part by part."""
    import jax

    from train import tasks
    from train.costs import timing
    from train.devices import mesh as devices
    from train.reporting.console import Log

    words = [*others, f"--preset={options.preset}"]
    run, decided = resolve.resolve(resolve.with_task(words, folders.read), folders.saved_values, folders.read)
    devices.use_cores(run)
    log, task = Log(), tasks.find(run.task.name)
    corpus = task.load(run, log, folders.read_saved(run.init) if run.init else None)
    job = _job(resolve.settle(run, decided, corpus.sizes, jax.default_backend()), task)

    every = corpus.of_every_shape()
    with log.waiting(f"timing {options.steps} steps of {run.task.name} {options.preset}"):
        first = max(options.warmup, len(every))
        batches = lambda n: every[n] if n < len(every) else corpus.batch(n)
        timed, state = timing.time_steps(job, batches, first, options.steps)
        seconds, state = timing.time_loop(job, state, corpus.batch, options.steps)
        supply = timing.time_data(job, corpus.batch, options.steps)
    data, host, device = (sum(part) for part in zip(*timed.steps, strict=True))
    shares = {
        f"share_{name}": round(part / (data + host + device), 4)
        for name, part in (("data", data), ("host", host), ("device", device))
    }
    found = (
        {"preset": options.preset, "task": run.task.name}
        | _facts(job)
        | _times(timed)
        | {"ms_unwaited": round(1e3 * seconds, 3)}
    )
    found |= {"tokens_per_s": round(corpus.tokens_a_step / seconds)} | shares
    found |= {"data_tokens_per_s": round(corpus.tokens_a_step / supply), "data_over_step": round(seconds / supply, 2)}
    found |= timing.share(job, timing.mean_flops(job, batches, options.steps), seconds)
    _profile(options, job, state, corpus.batch(0))
    return found


def _job(run: Run, task):
    """The run on the devices here."""
    from train.costs import job as costs
    from train.devices import mesh as devices
    from train.reporting.console import Log

    return costs.Job(run, task, devices.mesh_for(run, task.specs(run), say=Log().info))


def _facts(job) -> dict[str, Any]:
    """What is timed, and where."""
    import tfm

    devices = job.mesh.devices.ravel()
    kinds = {"device": devices[0].platform, "devices": f"{len(devices)} x {devices[0].device_kind}"}
    return kinds | {"dtype": job.run.model.dtype, "params": tfm.count_params(job.specs), "flops": job.model_flops()}


def _times(timed) -> dict[str, Any]:
    """Milliseconds of a step, seconds of compilation, the most memory that was in use, and the last loss."""
    import jax

    milliseconds = [1e3 * sum(each) for each in timed.steps]
    return {
        "ms_median": round(statistics.median(milliseconds), 3),
        "ms_min": round(min(milliseconds), 3),
        "compile_s": round(timed.compile, 2),
        "peak_bytes": (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use"),
        "loss": round(timed.loss, 4),
    }


def _profile(options: Options, job, state, batch):
    """Records a few steps with this batch, and prints what took most of them, if that is asked for."""
    if not options.profile:
        return
    import jax

    from train.costs import hlo, timing
    from train.costs import profile as profiles
    from train.data import feed
    from train.reporting.console import Log

    log = Log()
    with jax.set_mesh(job.mesh):
        arrays = feed.to_devices(batch, job.spec, job.mesh, job.run.batch.accumulate)
        program = job.train_step.lower(state, arrays).compile().as_text()
    path = profiles.trace(Path(options.profile), lambda: timing.time_loop(job, state, lambda n: batch, _RECORDED))
    found = profiles.operations(path, hlo.origins(program))
    log.table(f"of the time of all devices in {_RECORDED} steps", profiles.table(found, _RECORDED))
    log.info(f"recorded in {path}; for pictures: tensorboard --logdir={options.profile}, with its plugin xprof")


def _generate(options: Options) -> dict[str, Any]:
    """Milliseconds of reading the prompts, and of a token for each: with a cache, its first and last tenth, and reading all again."""
    import jax
    import numpy as np

    import tfm
    from train.costs import timing

    model, prompt = _run(options).model, options.length - options.generate
    specs = tfm.causal_lm_specs(model)
    params = tfm.init(specs, jax.random.key(0))
    prompts = np.random.default_rng(0).integers(options.vocab, size=(options.batch, prompt), dtype=np.int32)
    runs = [timing.time_writing(params, model, prompts, options.generate) for _ in range(options.warmup // 3 + 2)][1:]
    prefill, decode, again = (1e3 * np.median(seconds, axis=0) for seconds in zip(*runs, strict=True))
    tenth = options.generate // 10
    times = {
        "prefill": prefill,
        "decode": decode,
        "decode_first": decode[:tenth],
        "decode_last": decode[-tenth:],
        "read_again": again,
    }
    found = {
        "model": options.model,
        "device": jax.default_backend(),
        "dtype": options.dtype,
        "params": tfm.count_params(specs),
    }
    found |= {f"ms_{name}": round(float(each.mean()), 4) for name, each in times.items()}
    found |= {"prefill_tokens_per_s": round(options.batch * prompt * 1e3 / prefill.mean())}
    return found | {"decode_tokens_per_s": round(options.batch * 1e3 / decode.mean())}


def _run(options: Options) -> Run:
    """The shape of the peer's model, and its recipe."""
    from train.costs import random_task

    shape = {
        name: getattr(options, name)
        for name in ("layers", "heads", "width", "ffn", "vocab", "length", "scan", "dtype", "kernel")
    }
    try:
        model = Config(**shape | random_task.MODEL)
        return Run(
            model=model,
            batch=Batch(size=options.batch, length=options.length),
            optim=random_task.OPTIM,
            attention=Attention(options.kernel),
            steps=1,
        )
    except ValueError as error:
        raise UserError(f"--{error}") from error


if __name__ == "__main__":
    sys.exit(main())

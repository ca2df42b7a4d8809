"""What precedes the training loop: the corpus, the first state, the facts for run.json and the start-up tables."""

import contextlib
import dataclasses
import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import jax

import tfm
from tfm.params import PyTree
from train import UserError
from train.data.corpus import Corpus
from train.data.targets import check_targets
from train.devices import capacity, cpu, distributed, mesh, watchdog
from train.devices.specs import has_bfloat16
from train.files import programs
from train.runs import adapters, bucket_claim, claim, pretrained, run_folder, takeover
from train.runs.state import State
from train.runs.teacher import TeacherModel, fingerprint
from train.runs.tuning import specs_of
from train.screens import trackers
from train.screens.console import Log
from train.settings.schema import Run
from train.tasks import resolve, table
from train.tasks.record import HEAD_CLASSES
from train.text import control_tokens, tokenize
from train.training import initial_vectors, loss_scale, resumption, step
from train.training.early_stopping import EarlyStopping
from train.training.job import Job, device_batch, is_scaled
from train.training.metric_buffer import MetricBuffer
from train.training.progress import Progress

# Rows of the start-up table that are those of a phase, where there are phases.
_OF_PHASES = ("rows", "shapes", "sources")

# Orbax compresses: the least share of its bytes that a checkpoint of random weights takes. Moments at 0 take none.
_LEAST_OF_CHECKPOINT = 0.25


@contextlib.contextmanager
def claimed_folder(run: Run, processes: int) -> Iterator[Path]:
    """The folder of the run, which no other job can claim inside, nor that of its checkpoints; sets the number of CPU
    devices."""
    trackers.check(run.log.trackers)
    mesh.use_cores(run, processes)
    with (
        watchdog.watching(run.distributed),
        claim.claimed_folder(run) as folder,
        bucket_claim.claimed_bucket(run.checkpoint.folder, run.resume),
    ):
        yield folder


def _refuse_resume(folder: str):
    raise UserError("--resume goes on with a run, and nothing is trained here; leave it out")


def prepare(argv: Sequence[str], log: Log, read_resumed: resolve.ReadResumed = _refuse_resume) -> tuple[Run, Corpus]:
    """The run that train.main would begin with these flags, with what data and devices decide, and its corpus.

    No folder is made. Raises UserError for `--resume`, and for whatever train.main would refuse until then.
    """
    run, explicit = resolve.resolve(
        resolve.infer_task(argv, run_folder.run_values), read_resumed, run_folder.run_values
    )
    mesh.use_cores(run)
    check_memory(run, explicit)
    corpus = read_corpus(run, None, log)
    return resolve.fill_from_data(run, explicit, corpus.sizes, *_platform()), corpus


def load_data(run: Run, explicit: set[str], folder: Path) -> tuple[Run, Corpus, Log]:
    """The run with what data and devices decide, its corpus and its log.

    Raises UserError if no memory can hold the model, if the text has changed since the run in `folder` began, or
    differs between processes, and for data without targets.
    """
    check_memory(run, explicit)
    log = Log(quiet=not distributed.is_main())
    if "resume" in explicit and not run.resume:
        log.info(f"{folder} holds no run yet; it begins")
    corpus = _load_corpus(run, folder, log)
    run = resolve.fill_from_data(run, explicit, corpus.sizes, *_platform())
    check_targets(corpus, table.task_of(run).batch_spec(run), run.eval.batches or 0)
    return run, corpus, log


def _platform() -> tuple[str, bool]:
    """The platform of the devices, and whether they have bfloat16."""
    return jax.default_backend(), has_bfloat16(jax.devices()[0])


def check_memory(run: Run, explicit: Set[str]) -> None:
    """Raises OutOfMemoryError where the parameters of a run, or the tokens of its batch, are more than memory can hold.

    Without a vocabulary among the `explicit` names, the data decide it: the smallest one is counted.
    """
    vocab = run.model.vocab if "model.vocab" in explicit else 1 + run.model.head.input_only
    model = dataclasses.replace(run.model, vocab=vocab)
    capacity.check_parameters(specs_of(table.task_of(run), dataclasses.replace(run, model=model)))
    tokens = max(run.batch.tokens or 0, run.batch.unit * run.row_tokens)
    capacity.check_tokens(run.model, tokens, run.batch.accumulate, "--batch.size or --batch.length")


def _load_corpus(run: Run, folder: Path, log: Log) -> Corpus:
    """The corpus of the task. Raises UserError if it has changed, or differs between processes."""
    corpus = read_corpus(run, folder if run.resume else None, log)
    if run.resume:
        run_folder.RunFolder(folder).check_data(corpus.facts())
    if jax.process_count() > 1:
        log.info("the data are read; waiting for the other processes to read theirs")
    if not distributed.all_equal(json.dumps(corpus.facts(), sort_keys=True)):
        raise UserError(
            "the text is not the same in all processes; let them share one folder of data, and one cache with TFM_CACHE"
        )
    return corpus


def read_corpus(run: Run, resumed: Path | None, log: Log) -> Corpus:
    """The corpus of the task, with the processor of the run that `--resume`, `--init` or `--teacher` names. Raises
    UserError for bad data."""
    task, saved = table.task_of(run), None
    teacher = TeacherModel(run, task) if run.teacher.folder else None
    if resumed is not None:
        saved = takeover.of_resumed(resumed)
    elif run.init:
        saved = takeover.of_init(run)
    elif teacher is not None:
        saved = teacher.saved
    with control_tokens.reading(run.data.control_tokens):
        corpus = task.load(run, log, saved)
    if teacher is not None:
        teacher.check_corpus(corpus)
    return corpus


def job_on_mesh(run: Run, log: Log) -> Job:
    """The run on the mesh that it asks for; the log says how a mesh was chosen."""
    task = table.task_of(run)
    return Job(run, task, mesh.mesh_for(run, specs_of(task, run), report=log.info))


def first_state(job: Job, corpus: Corpus, folder: Path, log: Log) -> tuple[State, int, Progress]:
    """State on the mesh, steps done, and progress: fresh, of the run to resume, or with the weights of `--init`."""
    run = job.run
    distributed.broadcast_from_main(lambda: _check_space(job, folder))
    progress = Progress(MetricBuffer(), EarlyStopping(job.task.goals, run.eval, job.task.measured(corpus)))
    progress.stopping.say_unused(run.eval.every, run.steps, log.info)
    state = job.new_state()
    if run.resume:
        return resumption.resume(job, state, progress, folder, log.info)
    if run.init_embeddings and (run.init or run.teacher.copy):
        raise UserError(f"--init-embeddings={run.init_embeddings} is for a new model, which --init or --teacher is not")
    if run.teacher.copy:
        return _with_layers_of_teacher(job, state, log), 0, progress
    if run.tune.name != "all" and not run.init:
        raise UserError(f"--tune={run.tune.name} trains a part of a model that is there; name it with --init=FOLDER")
    if run.init:
        return _with_weights_of(run, state, job, corpus, log), 0, progress
    state = initial_vectors.with_vectors(_spelled(job, state, corpus), job, corpus.processor, log)
    return _calibrated(job, state, corpus), 0, progress


def _check_space(job: Job, folder: Path) -> str:
    """Raises UserError if a checkpoint would fill the disk, even if it is compressed; returns nothing to say."""
    if job.run.checkpoint.folder:
        return ""
    free = shutil.disk_usage(folder).free
    size = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(job.state))
    if free < _LEAST_OF_CHECKPOINT * size:
        raise UserError(
            f"the disk is full: {folder} has {free / 1e6:,.1f} MB left, and a checkpoint takes about "
            f"{size / 1e6:,.1f} MB; free some space, or choose another --out"
        )
    return ""


def _with_layers_of_teacher(job: Job, state: State, log: Log) -> State:
    """The state with weights of the teacher; its average starts at them."""
    assert job.teacher is not None, "the caller has looked"
    params, fresh = job.teacher.copy_into(state.params, state.teacher, job.model, job.mesh)
    fresh_part = f"; what it lacks starts fresh: {', '.join(fresh)}" if fresh else ""
    log.info(f"taken from {job.teacher.path}: {job.model.layers} of {job.teacher.model.layers} layers{fresh_part}")
    return dataclasses.replace(state, params=params, ema=None if state.ema is None else step.new_average(params))


def _spelled(job: Job, state: State, corpus: Corpus) -> State:
    """A fresh state whose embeddings know how the tokens are spelled, where they have a place for that (`spelled`)."""
    fresh: PyTree = state.params
    main = next(field.name for field in dataclasses.fields(fresh))
    encoder = getattr(fresh, main)
    if not hasattr(getattr(encoder, "embed", None), "spelled"):
        return state
    words, continues = tokenize.spellings(corpus.processor)
    tables = encoder.embed.spelled(words, continues)
    shardings = jax.tree.map(lambda leaf: leaf.sharding, encoder.embed)
    encoder = dataclasses.replace(encoder, embed=jax.device_put(tables, shardings))
    params = dataclasses.replace(fresh, **{main: encoder})
    return dataclasses.replace(state, params=params, ema=None if state.ema is None else step.new_average(params))


def _calibrated(job: Job, state: State, corpus: Corpus) -> State:
    """A fresh state whose residual scheme has seen the first batch, where it asks for one (`tfm.calibrate`)."""
    if not tfm.needs_calibration(job.model):
        return state
    batch = device_batch(job, corpus, 0)
    fields = [(batch[name][0], field) for name, field in job.batch_spec.items() if field.counts_tokens]
    # A row may have several texts.
    tokens = [array.reshape(-1, array.shape[-1]) if "T" in field.axes else array for array, field in fields]
    run = jax.jit(tfm.calibrate, static_argnums=1, out_shardings=tfm.shardings(job.specs, job.mesh))
    with jax.set_mesh(job.mesh):
        params = run(state.params, job.model, *tokens)
    average = None if state.ema is None else step.new_average(params)
    return dataclasses.replace(state, params=params, ema=average)


def _with_weights_of(run: Run, state: State, job: Job, corpus: Corpus, log: Log) -> State:
    """The state with the weights of `--init` and the updates of `--adapter`; its average starts at them.

    A head of classes is taken where these are the classes of the data, in their order.
    """
    facts = takeover.head_of_init(run)
    classes, of_head = corpus.facts().get("classes"), facts.get(HEAD_CLASSES)
    keeps_head = HEAD_CLASSES in facts and (not classes or classes == of_head)
    left = () if keeps_head else pretrained.heads_of_classes(job.specs)
    params, fresh = pretrained.load_parts(run.init, run.model, state.params, job.mesh, log.info, left)
    if fresh:
        reason = f"; its head is of other classes: {', '.join(of_head[:20])}" if left and of_head else ""
        log.info(f"taken from {run.init}: its weights; what it lacks starts fresh: {', '.join(fresh)}{reason}")
    if run.adapter:
        shardings = jax.tree.map(lambda leaf: leaf.sharding, params)
        params = jax.device_put(adapters.load(run.adapter, run.model, params), shardings)
    average = None if state.ema is None else step.new_average(params)
    return dataclasses.replace(state, params=params, ema=average)


def facts(job: Job, corpus: Corpus, teacher: PyTree = None) -> dict[str, Any]:
    """What run.json records besides the configuration; `teacher` are the parameters of the teacher."""
    taught = {} if teacher is None else {"teacher": {"folder": job.run.teacher.folder, "hash": fingerprint(teacher)}}
    return taught | {
        "data": corpus.facts(),
        "devices": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
        "processes": jax.process_count(),
        "mesh": {name: int(size) for name, size in job.mesh.shape.items()},
        "params": tfm.count_params(job.specs),
        "trained": tfm.count_params([spec for spec in jax.tree.leaves(job.specs) if spec.trained]),
    }


def announce(job: Job, corpus: Corpus, done: int, costs: Mapping[str, str], log: Log):
    """The start-up tables, `costs` among them; `done` steps were done before."""
    run = job.run
    about = facts(job, corpus)
    parameters = f"{about['params']:,}"
    if about["trained"] < about["params"]:
        parameters += f", of which {about['trained']:,} are trained ({about['trained'] / about['params']:.1%})"
    processes = f", in {about['processes']} processes" if about["processes"] > 1 else ""
    rows = {
        "parameters": parameters,
        **{name: row for name, row in corpus.overview().items() if not run.phases or name not in _OF_PHASES},
        "devices": f"{about['devices']}, {run.model.dtype}{processes}",
        **costs,
        "mesh": " x ".join(f"{name} {size}" for name, size in about["mesh"].items()),
        **({} if run.phases else {"batch": _batch(run, corpus)}),
        "steps": f"{run.steps:,}" + (f", from {done:,}" if done else ""),
    }
    if run.checkpoint.folder:
        rows["checkpoints"] = f"in {run.checkpoint.folder}"
    if is_scaled(run):
        rows["gradients"] = loss_scale.DESCRIPTION
    if not (done or run.init) and (advice := run.model.position.advice(run.model)):
        rows["positions"] = advice
    if kept := programs.summary():
        rows["programs"] = f"{kept}, so far"
    if cpu.keeps_awake(job.mesh.local_devices, run.cpu.keep_awake):
        rows["cores"] = "kept awake by waiting threads of the lowest priority; --cpu.keep-awake=false turns that off"
    log.table(f"{run.task.name} {run.preset}", rows)
    if job.mesh.size > job.mesh.shape["data"]:
        log.table("what is spread over which devices", mesh.sharding_table(job.specs, job.mesh))


def _batch(run: Run, corpus: Corpus) -> str:
    """Rows and tokens of a batch, or its texts."""
    if corpus.layout:
        size = str(corpus.layout)
    elif run.batch.tokens:
        size = f"at most {run.batch.tokens:,} tokens a side"
    else:
        size = f"{run.batch.size} x {run.row_tokens} tokens"
    return f"{size} in {run.batch.accumulate} parts" if run.batch.accumulate > 1 else size

"""Learning from a teacher: the loss against a loop, runs of every task, and one sentence for what does not fit."""

import dataclasses
import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from random_params import random_params
from small import FLAGS, call, read_lines, run, write_text

import tfm
from train import UserError
from train.data import feed
from train.images import drawings
from train.losses import teaching
from train.main import main
from train.runs import saved
from train.runs.state import State
from train.runs.teacher import TeacherModel, fingerprint
from train.settings.schema import Batch, Optim
from train.settings.teacher import Teacher
from train.tasks import resolve, table
from train.tasks.image.task import IMAGE
from train.tasks.mlm import task as mlm_task
from train.tasks.mlm.task import MLM
from train.tasks.table import AnyRun
from train.tasks.translate.task import TRANSLATE
from train.training import optimizer as optim
from train.training import step

SMALL = {"layers": 1, "width": 16, "heads": 2, "ffn": 8, "dropout": 0.0, "init_std": 0.3}
TEXTS = tfm.override(tfm.Config(), SMALL | {"vocab": 60, "length": 16, "pad_vocab_to": 64})
PICTURES = tfm.override(
    tfm.Config(),
    {**SMALL, "input": "patches", "input.size": 8, "input.patch": 4, "residual": "pre", "classes": 3, "init_std": 0.3},
)


def params_of(specs, seed):
    return random_params(specs, seed)


def pictures(distilled=False):
    return tfm.override(PICTURES, {"input.distilled": distilled, "head.distilled": distilled})


def picture_batch():
    rng = np.random.default_rng(0)
    return {
        "pixels": rng.normal(size=(4, 8, 8, 3)).astype(np.float32),
        "labels": np.int32([0, 2, 1, 1]),
        "weights": np.float32([1, 1, 0, 2]),
        "withheld": np.zeros(4, np.float32),
    }


def text_batch(rows=8):
    rng = np.random.default_rng(1)
    weights = np.float32(np.arange(3) < rng.integers(1, 4, (rows, 1)))
    fields = {
        "tokens": rng.integers(5, 60, (rows, 16)),
        "segments": np.tile(np.repeat([1, 2, 0], [7, 6, 3]), (rows, 1)),
        "positions": np.tile(np.arange(16), (rows, 1)),
        "where": rng.integers(0, 13, (rows, 3)),
        "targets": rng.integers(5, 60, (rows, 3)),
    }
    return {name: np.int32(field) for name, field in fields.items()} | {"weights": weights, "words": weights}


def jitted(function):
    """One program, with the configuration as its second argument."""
    return jax.jit(function, static_argnums=1)


def log_softmax(logits):
    logits = np.asarray(logits, np.float64)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "distilled"),
    [
        ("soft", False),
        ("hard", True),
        ("hard", False),
        ("soft", True),
    ],
)
def test_the_loss_is_that_of_a_loop(kind, distilled):
    """With a second output, labels teach the first one and the teacher the second (Touvron et al. 2021, section 4)."""
    model, batch = pictures(distilled), picture_batch()
    teacher_model = tfm.override(PICTURES, {"width": 8})
    params = params_of(tfm.classifier_specs(model), 0)
    teacher = params_of(tfm.classifier_specs(teacher_model), 1)
    loss = teaching.DistilledLoss(IMAGE.loss, Teacher("there", kind, 0.3, 3.0), teacher_model)
    sums = jitted(loss)(params, model, batch, None, teacher)
    of_labels = of_teacher = jitted(tfm.classify)(params, model, batch["pixels"])
    if distilled:
        of_labels, of_teacher = jitted(tfm.classify_distilled)(params, model, batch["pixels"])
    said = jitted(tfm.classify)(teacher, teacher_model, batch["pixels"])
    labels = taught = 0.0
    for row, weight in enumerate(batch["weights"]):
        labels -= weight * log_softmax(of_labels[row])[batch["labels"][row]]
        if kind == "hard":
            taught -= weight * log_softmax(of_teacher[row])[int(np.argmax(said[row]))]
        else:
            p, q = log_softmax(said[row] / 3), log_softmax(of_teacher[row] / 3)
            taught += weight * 9 * (np.exp(p) * (p - q)).sum()
    assert float(sums["loss_labels"]) == pytest.approx(labels, rel=1e-5)
    assert float(sums["loss_teacher"]) == pytest.approx(taught, rel=1e-4)
    assert float(sums["loss"]) == pytest.approx(0.7 * labels + 0.3 * taught, rel=1e-4)
    agrees = np.asarray(of_teacher).argmax(-1) == np.asarray(said).argmax(-1)
    assert float(sums["agreement"]) == (agrees * batch["weights"]).sum()
    if kind == "soft":
        plain, without = (jitted(function)(params, model, batch, None) for function in (IMAGE.loss, loss))
        assert float(without["loss"]) == float(plain["loss"]), "without a teacher, the loss of labels"


@pytest.mark.slow
def test_states_of_tokens_and_another_vocabulary():
    """Sanh et al. 2019: states of padding do not count; the teacher's table is longer, and filled up otherwise."""
    batch = text_batch()
    teacher_model = tfm.override(TEXTS, {"vocab": 61, "pad_vocab_to": 1, "ffn": 24})
    params = params_of(tfm.masked_lm_specs(TEXTS), 0)
    teacher = params_of(tfm.masked_lm_specs(teacher_model), 1)
    loss = teaching.DistilledLoss(MLM.loss, Teacher("there", weight=0.5, temperature=1.0, hidden=0.25), teacher_model)
    sums = jitted(loss)(params, TEXTS, batch, None, teacher)

    @jitted
    def said(params, model):
        mask = tfm.segments(jnp.asarray(batch["segments"]))
        hidden = tfm.encoder(params.encoder, model, batch["tokens"], mask, batch["positions"])
        return hidden, tfm.masked_lm(params, model, batch["tokens"], batch["where"], mask, batch["positions"])

    (states, logits), (teacher_states, teacher_logits) = said(params, TEXTS), said(teacher, teacher_model)
    p, q = log_softmax(teacher_logits[..., :60]), log_softmax(logits[..., :60])
    taught = (batch["weights"][..., None] * np.exp(p) * (p - q)).sum()
    assert float(sums["loss_teacher"]) == pytest.approx(taught, rel=1e-4)
    distances = []
    for row, place in np.argwhere(batch["segments"] > 0):
        s, t = np.float64(states[row, place]), np.float64(teacher_states[row, place])
        distances.append(1 - s @ t / np.linalg.norm(s) / np.linalg.norm(t))
    hidden = np.mean(distances) * batch["weights"].sum()
    assert float(sums["loss_hidden"]) == pytest.approx(hidden, rel=1e-4)
    expected = 0.5 * float(sums["loss_labels"]) + 0.5 * taught + 0.25 * hidden
    assert float(sums["loss"]) == pytest.approx(expected, rel=1e-4)
    scalars = {name: float(value) for name, value in sums.items() if value.ndim == 0}
    metrics = teaching.training_metrics(MLM.metrics, scalars)
    weight = batch["weights"].sum()
    assert metrics["loss"] == pytest.approx(expected / weight, rel=1e-4)
    assert metrics["perplexity"] == pytest.approx(np.exp(metrics["loss_labels"]), rel=1e-5), "that of the labels"


def rows_of(task):
    """A batch of a task, whose last row is empty, and the model that reads it."""
    rng = np.random.default_rng(2)
    lengths = rng.integers(8, 17, 4)
    valid = np.int32(np.arange(16) < lengths[:, None])
    tokens = np.int32(rng.integers(5, 60, (4, 16)) * valid)
    weights = np.float32([1, 1, 2, 0])
    own_row = {"segments": valid, "positions": np.tile(np.arange(16, dtype=np.int32), (4, 1)), "rows": np.arange(4)}
    text = own_row | {"tokens": tokens, "valid": valid, "types": valid * (np.arange(16) > 5), "weights": weights}
    if task == "span":
        return TEXTS, text | {
            "candidates": np.int32((np.arange(16) > 5) & (valid > 0) | (np.arange(16) == 0)),
            "starts": np.int32([6, 0, 7, 0]),
            "ends": np.int32([7, 0, 7, 0]),
        }
    if task == "choice":
        present = np.int32([[1, 1, 1], [1, 1, 0], [1, 1, 1], [1, 0, 0]])[:, :, None]
        rows = {name: np.stack([text[name]] * 3, 1) * present for name in ("valid", "types")}
        rows["tokens"] = np.int32(rng.integers(5, 60, (4, 3, 16)) * rows["valid"])
        by_row = {name: field.reshape(12, 16) for name, field in (rows | {"segments": rows["valid"]}).items()}
        by_row["positions"] = np.tile(own_row["positions"], (3, 1))
        batch = by_row | {"rows": np.arange(4), "present": present[..., 0], "weights": weights}
        return tfm.override(TEXTS, {"classes": 1}), batch | {"labels": np.int32([2, 0, 1, 0])}
    by_token = {"targets": np.int32(rng.integers(5, 60, (4, 16))), "weights": weights[:, None] * valid}
    if task == "pixels":
        return TEXTS, by_token | {"tokens": tokens, "withheld": np.zeros(4, np.float32)}
    places = np.tile(np.arange(16, dtype=np.int32), (4, 1))
    source = {"tokens": tokens, "segments": valid, "positions": places, "smoothing": np.zeros(4, np.float32)}
    target = {"target": np.int32(rng.integers(5, 60, (4, 16)) * valid), "target_segments": valid}
    return TEXTS, by_token | source | target | {"target_positions": places}


def specs_of(task, model):
    run = SimpleNamespace(task=table.TASKS[task].options(), model=model, batch=Batch(length=16))
    return table.load_task(task, model).specs(run)


def logits_of(task, params, model, batch):
    """What the library says, logits [B,n,C] of n decisions of a row, absent ones very low."""
    valid, types = (None if name not in batch else jnp.asarray(batch[name]) for name in ("valid", "types"))
    if task == "span":
        logits = jitted(tfm.classify_tokens)(params, model, batch["tokens"], valid > 0, types)
        return np.where(batch["candidates"][..., None], logits, -1e30).transpose(0, 2, 1)
    if task == "choice":
        tokens, valid, types = (jnp.reshape(field, (4, 3, 16)) for field in (batch["tokens"], valid, types))
        return np.asarray(jitted(tfm.score_choices)(params, model, tokens, valid > 0, types))[:, None]
    if task == "translate":
        return jitted(tfm.seq2seq)(params, model, batch["tokens"], batch["target"], batch["segments"] > 0)
    return jitted(tfm.causal_lm)(params, model, batch["tokens"])


@pytest.mark.parametrize(
    "task", [pytest.param(name, marks=pytest.mark.slow) for name in ("choice", "span", "translate", "pixels")]
)
def test_what_a_task_learns_from_a_teacher(task):
    """Its divergence is that of a loop over decisions, the mean of start and end of a span; and for a teacher that is
    the student, it is 0, with no gradient."""
    model, batch = rows_of(task)
    teacher_model = tfm.override(model, {"width": 8})
    params, teacher = params_of(specs_of(task, model), 0), params_of(specs_of(task, teacher_model), 1)
    loss = teaching.DistilledLoss(table.load_task(task, model).loss, Teacher("there", "soft", 0.5, 0.5), teacher_model)
    sums = jitted(loss)(params, model, batch, None, teacher)
    student_logits = logits_of(task, params, model, batch)
    teacher_logits = logits_of(task, teacher, teacher_model, batch)
    outputs = model.vocab if task in ("translate", "pixels") else None
    total = agreement = 0.0
    for row, decision in np.ndindex(student_logits.shape[:2]):
        q, p = (np.float64(logits[row, decision, :outputs]) for logits in (student_logits, teacher_logits))
        present = p > -1e8
        p, q = log_softmax(2 * p[present]), log_softmax(2 * q[present])
        is_token = batch["weights"].ndim == 2
        weight = batch["weights"][row, decision] if is_token else batch["weights"][row] / student_logits.shape[1]
        total += weight * 0.25 * (np.exp(p) * (p - q)).sum()
        agreement += weight * (p.argmax() == q.argmax())
    assert float(sums["loss_teacher"]) == pytest.approx(total, rel=1e-4)
    assert float(sums["agreement"]) == pytest.approx(agreement)
    assert total > 0.01

    itself = teaching.DistilledLoss(table.load_task(task, model).loss, Teacher("there", "soft", 1.0, 2.0), model)
    taught = lambda params, teacher: itself(params, model, batch, None, teacher)["loss"]
    value, gradient = jax.jit(jax.value_and_grad(taught))(params, params)
    assert float(value) == pytest.approx(0, abs=1e-5)
    assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(gradient)) < 1e-5
    slope = jax.jit(jax.grad(lambda params: table.load_task(task, model).loss(params, model, batch, None)["loss"]))(
        params
    )
    assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(slope)) > 0.1, "labels alone have one"


@pytest.mark.slow
def test_layers_of_a_translator_are_copied(monkeypatch):
    """Every second one of the encoder, and of the decoder."""
    shape = {"layers": 4, "encoder.layers": 2, "vocab": 60, "length": 16}
    teacher_model = tfm.override(tfm.Config(), SMALL | shape)
    student_model = tfm.override(teacher_model, {"layers": 2, "encoder.layers": 1})
    flags = ("--task=translate", "--batch.length=16", "--model.length=16")
    monkeypatch.setattr(
        "train.runs.teacher.open_folder",
        lambda path: Folder(dataclasses.replace(run_of(*flags), model=teacher_model)),
    )
    teacher = TeacherModel(run_of(*flags, "--teacher=there"), TRANSLATE)
    mesh = tfm.make_mesh(devices=jax.devices()[:1])
    with jax.set_mesh(mesh):
        source = tfm.init(tfm.seq2seq_specs(teacher_model), jax.random.key(0), mesh)
        fresh = tfm.init(tfm.seq2seq_specs(student_model), jax.random.key(1), mesh)
    taken, missing = teacher.copy_into(fresh, source, student_model, mesh)
    assert missing == []
    for name, layers in (("encoder", [0]), ("decoder", [0, 2])):
        (before,), (after,) = (getattr(tree, name).layers.period for tree in (source, taken))
        for old, new in zip(*map(jax.tree.leaves, (before, after)), strict=True):
            np.testing.assert_array_equal(new, old[np.array(layers)])


@pytest.mark.slow
@pytest.mark.parametrize("shape", [{"data": 2, "fsdp": 2, "tensor": 2}, {"data": 4, "context": 2}])
def test_steps_on_a_mesh_are_those_of_a_device(shape):
    """In two parts; the teacher stays as it is."""
    teacher_model = tfm.override(TEXTS, {"ffn": 24})
    specs, teacher_specs = tfm.masked_lm_specs(TEXTS), tfm.masked_lm_specs(teacher_model)
    loss = teaching.DistilledLoss(MLM.loss, Teacher("there", hidden=0.5), teacher_model)

    def train(mesh):
        optimizer = optim.optimizer(Optim(warmup=1, rate=1e-3), 100, specs)
        with jax.set_mesh(mesh):
            teacher = tfm.init(teacher_specs, jax.random.key(1), mesh)
        before = fingerprint(teacher)
        state = dataclasses.replace(step.new_state(specs, optimizer, 0, mesh), teacher=teacher)
        train_step = step.make_train_step(loss, TEXTS, optimizer, 0, False)
        losses = []
        with jax.set_mesh(mesh):
            for _ in range(3):
                fields = feed.to_devices(text_batch(), MLM.batch_spec(AnyRun()), mesh, 2)
                state, sums = train_step(state, fields)
                losses.append([float(sums[name]) for name in ("loss", "loss_teacher", "loss_hidden", "grad_norm")])
        assert fingerprint(state.teacher) == before
        return losses

    single = train(tfm.make_mesh(1, devices=jax.devices()[:1]))
    np.testing.assert_allclose(train(tfm.make_mesh(**shape)), single, rtol=1e-4)
    assert single[-1][1] < single[0][1]


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFM_CACHE", str(tmp_path / ".cache"))
    write_text(tmp_path / "text.txt")
    return tmp_path


def stored_leaves(run):
    """The names of what the newest checkpoint of a run holds, of parameters and of the optimizer."""
    newest = max((run / "checkpoints").iterdir(), key=lambda path: int(path.name) if path.name.isdigit() else -1)
    return [set(json.loads((newest / part / "_METADATA").read_text())["tree_metadata"]) for part in ("params", "opt")]


STUDENT = [flag for flag in FLAGS if not flag.startswith("--tokenizer")]


@pytest.mark.slow
def test_a_student_of_texts(home):
    """It starts from every second layer, goes on after an interruption, and notices another teacher."""
    run("--task=mlm", *FLAGS, "--model.layers=2", "--out=teacher")
    flags = ("--task=mlm", *STUDENT, "--teacher=teacher", "--teacher.copy=true", "--teacher.hidden=0.2")
    err = run(*flags, "--out=straight")
    assert "taken from teacher: 1 of 2 layers" in err
    assert "teacher 0 MB" in err, "the memory table counts it"
    run(*flags, "--out=cut", "--stop-at=4")
    run("--resume", "--out=cut")
    straight, cut = (read_lines(home / name / "metrics.jsonl") for name in ("straight", "cut"))
    assert [line["loss"] for line in cut] == [line["loss"] for line in straight]
    first = straight[0]
    assert first["loss"] == pytest.approx(
        0.5 * first["loss_labels"] + 0.5 * first["loss_teacher"] + 0.2 * first["loss_hidden"]
    )
    assert 0 <= first["agreement"] <= 1
    facts = json.loads((home / "cut/run.json").read_text())["teacher"]
    assert facts["folder"] == "teacher"
    assert len(facts["hash"]) == 16
    assert stored_leaves(home / "straight") == stored_leaves(home / "teacher"), "a checkpoint has no teacher"
    run("--resume", "--out=teacher", "--steps=8")
    code, _, err = call(main, "--resume", "--out=cut", "--steps=8")
    assert (code, "the weights of --teacher=teacher have changed since cut began; restore them" in err) == (2, True), (
        err
    )


@pytest.mark.slow
@pytest.mark.parametrize("task", ["lm", "classify", "tag", "span", "choice", "translate", "pixels"])
def test_every_task_has_a_teacher(home, monkeypatch, task):
    """The classes of the data and the tokenizer are those of the teacher; pairs of texts are classified too."""
    flags = [flag for flag in FLAGS if not flag.startswith("--data")]
    data = ["--data=text.txt"]
    if task == "classify":
        lines = [f"the cat number {n % 7}\tthe dog\t{'ab'[n % 2]}" for n in range(60)]
        (home / "pairs.tsv").write_text("\n".join(["x\ty\tlabel", *lines]) + "\n")
        data = ["--data=pairs.tsv", "--data.field=x,y"]
    if task == "tag":
        sentences = [f"Ada B-PER\nand O\nBob{n} B-PER\n" for n in range(60)]
        (home / "words.conll").write_text("\n".join(sentences))
        data = ["--data=words.conll"]
    if task in ("span", "choice"):
        data = ["--eval.batches=2", "--eval.final=false", "--batch.length=64", "--model.length=64"]
    if task == "translate":
        write_text(home / "other.txt", seed=1)
        data = ["--data=text.txt,other.txt", "--eval.batches=2", "--eval.final=false", "--task.bleu=0"]
    processor = "tokenizer.json"
    if task == "pixels":
        generate = drawings.generate
        monkeypatch.setattr(drawings, "generate", lambda: generate(train=40, valid=8, withheld=4))
        data, processor = ["--model.length=64", "--task.samples=0", "--task.colours=8"], "preprocessor_config.json"
        flags = [flag for flag in flags if not flag.startswith(("--tokenizer", "--batch.length"))]
    run(f"--task={task}", *flags, *data, "--model.layers=2", "--out=teacher")
    student = [flag for flag in flags if not flag.startswith("--tokenizer")]
    run(f"--task={task}", *student, *data, "--teacher=teacher", "--teacher.kind=hard", "--out=student")
    lines = read_lines(home / "student/metrics.jsonl")
    assert {"loss_labels", "loss_teacher", "agreement"} <= lines[0].keys()
    processors = [(home / name / processor).read_text() for name in ("teacher", "student")]
    assert processors[0] == processors[1]


VIT = (
    "--task=image --preset=vit-micro --model.width=32 --model.heads=2 --model.ffn=64 --model.input.patch=8 "
    "--model.input.size=32 --batch.size=32 --log.every=50 --eval.every=500 --checkpoint.every=500 --data.label=shape"
).split()


@pytest.mark.slow
def test_a_student_gets_nearer_to_its_teacher(home, monkeypatch):
    """Half the layers, few labels: with a teacher its probabilities are nearer to the teacher's than without."""
    generate = drawings.generate
    monkeypatch.setattr(drawings, "generate", lambda: generate(train=2000, valid=200, withheld=20))
    run(*VIT, "--model.layers=4", "--steps=300", "--out=teacher")
    student = (*VIT, "--model.layers=2", "--steps=150")
    run(*student, "--out=alone")
    taught = ("--teacher=teacher", "--teacher.weight=0.9", "--teacher.copy=true")
    run(*student, *taught, "--out=taught")
    distilled = ("--model.input.distilled=true", "--model.head.distilled=true")
    run(*student, "--steps=4", "--teacher=teacher", "--teacher.kind=hard", *distilled, "--out=deit")
    images = generate(train=2000, valid=200, withheld=20)[1]
    teacher = said(home / "teacher", images)
    distances = {
        name: float(np.mean(tfm.soft_losses(said(home / name, images), teacher))) for name in ("alone", "taught")
    }
    assert distances["taught"] < 0.8 * distances["alone"], distances
    assert np.isfinite(said(home / "deit", images)).all()


def said(path, images):
    """The logits of a run for drawings."""
    from train.runs.run_folder import open_folder

    folder = open_folder(path)
    params, model, processor = folder.load(), folder.config.model, folder.processor
    prepared = [processor.prepare(Image.fromarray(drawings.draw(drawing))) for drawing in images]
    pixels = processor.normalize(np.stack(prepared))
    return np.asarray(tfm.classify(params, model, pixels))


class Folder:
    """A folder of a teacher, as far as it is looked at before it is read."""

    def __init__(self, run):
        self.config = run


def run_of(*flags):
    return resolve.resolve(flags, None, lambda *_: {})[0]


def refusal(monkeypatch, teacher_flags, *flags):
    """The sentence for a run and its teacher."""
    monkeypatch.setattr("train.runs.teacher.open_folder", lambda path: Folder(run_of(*teacher_flags)))
    run = run_of(*flags, "--teacher=there")
    with pytest.raises(UserError) as error:
        TeacherModel(run, table.task_of(run))
    return str(error.value)


def test_teachers_that_cannot_teach(monkeypatch):
    sentence = refusal(monkeypatch, ["--task=contrast"], "--task=contrast")
    texts = "mlm, lm, classify, tag, span, choice, translate, denoise, diffuse, rank"
    tasks_with = f"{texts}, image, pixels, segment, answer-picture"
    assert sentence == f"--task=contrast has no teacher; those with one are {tasks_with}"
    sentence = refusal(monkeypatch, ["--task=lm"], "--task=mlm")
    assert "is a model of task=lm, and this run is of task=mlm; name a model of the same task" in sentence
    patches = ("--task=image", "--model.input.size=16", "--model.input.patch=4")
    sentence = refusal(monkeypatch, patches, "--task=image")
    assert "--teacher=there reads pictures of 16 x 16 x 3, and this model pictures of 32 x 32 x 3" in sentence
    short = ("--task=mlm", "--model.length=32", "--batch.length=32")
    assert "reads at most 32 tokens; say --batch.length=32" in refusal(
        monkeypatch, short, "--task=mlm", "--batch.length=64"
    )
    fnet = ("--task=mlm", "--model.mixer=fnet")
    assert "cannot keep texts of a row apart; add --data.pack=false" in refusal(monkeypatch, fnet, "--task=mlm")
    sentence = refusal(monkeypatch, ["--task=mlm"], "--task=mlm", "--teacher.hidden=1", "--model.width=64")
    assert "compares states, which differ in width or in place" in sentence
    sentence = refusal(monkeypatch, ["--task=mlm"], "--task=mlm", "--teacher.copy=true", "--init=x")
    assert "--teacher.copy=true takes weights, and so does --init=x; leave one of them out" in sentence


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--teacher.weight=0.3", "weight=0.3 asks for a teacher; add --teacher=FOLDER"),
        ("--teacher=x --teacher.weight=2", "weight=2.0 must be more than 0 and at most 1; DeiT has 0.5"),
        ("--teacher=x --teacher.temperature=0", "temperature=0.0 must be more than 0; 2 is usual"),
        ("--teacher=x --teacher.hidden=-1", "hidden=-1.0 must not be negative; 0 compares no states"),
        ("--teacher=x --tokenizer.vocab=99", "--teacher=x brings its own tokenizer; leave --tokenizer.vocab out"),
        (
            "--teacher=x --task=classify --task.kind=multi",
            "learns from labels alone; a teacher is for",
        ),
        ("--teacher=x --task=lm --task.windows=true --task.memory=8", "keeps the states of one model; leave --teacher"),
    ],
)
def test_options(flags, sentence):
    with pytest.raises(UserError) as error:
        run_of(*flags.split())
    assert sentence in str(error.value)


def test_a_checkpoint_has_no_teacher():
    """It is read from its folder again."""
    state = State(jnp.zeros(()), {"a": jnp.ones(3)}, {}, teacher={"b": jnp.ones(3)})
    assert "teacher" not in saved.training_only(state)


def test_ratios_divide_by_the_sums_of_all_parts():
    """Of pairs of sentences, and of states: every part has the same numbers."""
    batch = {"weights": np.ones((2, 3, 4)), "pairs": np.ones((2, 3)), "segments": np.arange(24).reshape(2, 3, 4) % 3}
    fields = teaching.with_totals(MLM.loss, batch)
    assert (fields["total_tokens"].tolist(), fields["total_pairs"].tolist()) == ([24, 24], [6, 6])
    assert teaching.with_totals(MLM.loss, {"weights": np.ones((2, 3))}).keys() == {"weights"}
    loss = teaching.DistilledLoss(MLM.loss, Teacher("there", hidden=0.5), TEXTS)
    fields = teaching.with_totals(loss, {name: batch[name] for name in ("weights", "segments")})
    assert (fields["total_weight"].tolist(), fields["total_states"].tolist()) == ([24, 24], [16, 16])
    image = teaching.DistilledLoss(IMAGE.loss, Teacher("there", hidden=0.5), TEXTS)
    assert teaching.with_totals(image, {"weights": np.ones((2, 3))})["total_states"].tolist() == [2, 2]
    assert teaching.with_totals(lambda: None, batch).keys() == batch.keys()


@pytest.mark.slow
def test_parts_of_uneven_rows_are_the_whole_batch():
    """The distance of states, and the loss of pairs, of two parts with more and with fewer states add up."""
    rng = np.random.default_rng(0)
    hidden = [jax.device_put(np.float32(rng.normal(size=(2, 2, 4, 3)))) for _ in range(2)]
    valid = np.arange(4) < np.array([[[4], [4]], [[1], [2]]])
    weights = np.float32(rng.random((2, 2)))
    loss = teaching.DistilledLoss(
        teaching.OutputLoss(lambda states, model, batch, key: said(states, batch), nothing_said),
        Teacher("there", hidden=1.0),
        TEXTS,
    )

    def said(states, batch):
        return teaching.ClassOutputs(states[batch["part"]], batch["valid"] > 0, jnp.zeros((2, 3)))

    parts = teaching.with_totals(loss, {"valid": valid, "weights": weights, "part": np.arange(2)})
    total = sum(
        float(loss(hidden[0], TEXTS, {name: field[n] for name, field in parts.items()}, None, hidden[1])["loss_hidden"])
        for n in range(2)
    )
    cosines = np.sum(np.asarray(hidden[0] * hidden[1]), -1) / np.prod(np.linalg.norm(np.stack(hidden), axis=-1), 0)
    assert total == pytest.approx((1 - cosines)[valid].mean() * weights.sum(), rel=1e-5)


def nothing_said(params, model, batch, outputs):
    return {"loss": jnp.float32(0), "weight": batch["weights"].sum()}


@pytest.mark.slow
def test_next_sentences_in_parts_are_those_of_the_whole_batch(monkeypatch):
    """Parts have other shares of the tokens than of the pairs."""
    monkeypatch.setattr(mlm_task.tfm, "next_sentence", lambda params, model, hidden: hidden)
    rng = np.random.default_rng(0)
    batch = {
        "weights": np.float32(rng.random((4, 5)) < [[0.9], [0.9], [0.2], [0.2]]),
        "pairs": np.float32([1, 0, 1, 1]),
        "next": rng.integers(0, 2, 4),
        "logits": np.float32(rng.normal(size=(4, 2))),
    }

    def losses(parts):
        fields = {name: field.reshape(parts, -1, *field.shape[1:]) for name, field in batch.items()}
        fields = teaching.with_totals(MLM.loss, fields)
        for n in range(parts):
            part = {name: field[n] for name, field in fields.items()}
            sums = {"loss": jnp.float32(0), "weight": part["weights"].sum()}
            yield float(mlm_task._next_loss(None, None, part, part["logits"], sums)["loss"])

    (undivided_loss,) = losses(1)
    assert sum(losses(2)) == pytest.approx(undivided_loss, rel=1e-5)
    assert undivided_loss > 0.1

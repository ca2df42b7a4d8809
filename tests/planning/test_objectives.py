"""What train.plan says of the objectives of pre-training, against arrays and against products counted by hand."""

import json

import jax
import pytest
from small import call

from train import plan
from train.devices import mesh
from train.planning import counting
from train.planning.memory import step_memory
from train.runs.tuning import specs_of
from train.tasks import phases, resolve, table
from train.training.job import Job

ROWS, LENGTH, WIDTH, FFN, VOCAB = 16, 32, 32, 64, 256

SIZES = (
    f"--model.layers=2 --model.width={WIDTH} --model.heads=2 --model.ffn={FFN} --model.vocab={VOCAB} "
    f"--batch.length={LENGTH} --batch.size={ROWS}"
).split()

RECIPE = """[[phase]]
steps = 2
task.rate = 0.3

[[phase]]
steps = 2
batch.length = 16
batch.size = [8, 32]
task.rate = 0.15
"""


def job_on_eight_devices(*flags):
    """The run of the flags, as devices of another machine would do it."""
    run, explicit = resolve.resolve([*SIZES, *flags], None, None)
    run = resolve.fill_from_data(run, explicit, {}, "gpu")
    task = table.task_of(run)
    return Job(run, task, mesh.mesh_for(run, specs_of(task, run), jax.devices()))


def blocks(width, ffn, places, pairs, keys=0, layers=2):
    """Operations of blocks over all rows, for so many pairs of a query and a key in all together; `keys`: those of
    cross-attention."""
    own = layers * places * (4 * width * width + 2 * width * ffn) + 2 * pairs * width
    cross = layers * (places * 2 * width * width + keys * 2 * width * width + 2 * places * keys * width) if keys else 0
    return 2 * ROWS * (own + cross)


def windowed_pairs(layers=2):
    """Those of the first layers of both presets, which see one and two neighbours on each side."""
    return sum(
        abs(query - key) <= reach for reach in (1, 2)[:layers] for query in range(LENGTH) for key in range(LENGTH)
    )


def product(places, *sizes):
    """Operations of a matrix product in every row."""
    inputs, outputs = sizes
    return 2 * ROWS * places * inputs * outputs


def replaced_tokens():
    """A generator of half the width and depth, with logits of the predicted places, once to draw and once for the loss;
    and a discriminator with an output everywhere."""
    half, predicted = WIDTH // 2, 7
    generator = product(LENGTH, WIDTH, half) + blocks(half, FFN // 2, LENGTH, windowed_pairs(1), layers=1)
    head = product(predicted, half, WIDTH) + 2 * product(predicted, WIDTH, VOCAB)
    body = blocks(WIDTH, FFN, LENGTH, windowed_pairs())
    return generator + head + body + product(LENGTH, WIDTH, WIDTH) + product(LENGTH, WIDTH, 1)


def diffusion():
    """An encoder, with a head and logits everywhere."""
    body = blocks(WIDTH, FFN, LENGTH, windowed_pairs())
    return body + product(LENGTH, WIDTH, WIDTH) + product(LENGTH, WIDTH, VOCAB)


def denoising():
    """An encoder, a decoder that reads it, and logits of the targets."""
    targets = 8
    decoder = blocks(WIDTH, FFN, targets, 2 * targets * targets, keys=LENGTH)
    return blocks(WIDTH, FFN, LENGTH, 2 * LENGTH * LENGTH) + decoder + product(targets, WIDTH, VOCAB)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flag", "forward"),
    [
        ("--task=rtd", replaced_tokens),
        ("--task=diffuse", diffusion),
        ("--task=denoise", denoising),
    ],
)
def test_objectives(flag, forward):
    """Bytes are those of a state that is made; operations are those of all products, three times."""
    job = job_on_eight_devices(flag)
    state, memory = job.new_state(), step_memory(job)
    assert memory["parameters"] == mesh.bytes_per_device(jax.tree.leaves(state.params))
    assert memory["optimizer"] == mesh.bytes_per_device(jax.tree.leaves(state.opt))
    assert counting.model_flops(job) == 3 * forward()


@pytest.mark.slow
def test_phases(tmp_path):
    """Each stretch of steps is planned with its own batches, and all of them with the same parameters."""
    (tmp_path / "recipe.toml").write_text(RECIPE)
    flags = [*SIZES, "--task=mlm", "--steps=4", f"--phases={tmp_path / 'recipe.toml'}"]
    code, out, err = call(plan.main, "--topology=h100:8", *flags)
    assert code == 0, err
    planned = json.loads(out)["phases"]
    run, _ = resolve.resolve(flags, None, None)
    parts = phases.step_ranges(run)
    assert [(part["first"], part["stop"]) for part in planned] == [(0, 2), (2, 3), (3, 4)]
    assert [part["tokens_a_step"] for part in planned] == [16 * 32, 8 * 16, 32 * 16]
    for part, report in zip(parts, planned, strict=True):
        flags_of_part = [f"--batch.length={part.run.batch.length}", f"--batch.size={part.run.batch.size}"]
        alone = job_on_eight_devices("--task=mlm", f"--task.rate={part.run.task.rate}", *flags_of_part)
        assert report["flops"] == counting.model_flops(alone)
        assert report["memory"]["parameters"] == step_memory(alone)["parameters"]

"""What a plan says of variants: memory and operations of long texts, and published operations of presets."""

import functools

import pytest
from small import run_of

from train.devices.topology import installed_cudnn, parse
from train.plan import Planner
from train.planning import counting
from train.planning.memory import forward_pass, step_memory
from train.tasks import resolve

LONG = "--model.length=4096 --batch.length=4096 --batch.size=64 --model.dropout=0".split()


def job_on(name, run):
    """The run on devices that are not here."""
    return Planner(parse(name), [], False, 0, None).job(run)


@functools.cache
def long_job(*flags):
    """A small language model of long texts, 2^32 scores a layer, on a GPU."""
    return job_on("h100:1", run_of(*LONG, *flags))


def costs(job):
    """Bytes of activations, and operations that a step performs and that the model needs."""
    with installed_cudnn():
        return step_memory(job)["activations"], counting.hardware_flops(job), counting.model_flops(job)


@functools.cache
def full_costs():
    return costs(long_job("--attention.kernel=einsum"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "kernel", "share"),
    [
        ("--model.mixer.pattern=local", "chunked: ", 0.5),
        ("--model.mixer.pattern=bigbird", "chunked: ", 0.6),  # nearly all blocks of a GPU's kernel hold random keys
        ("--model.mixer=compressed --model.mixer.factor=16", "", 0.5),
        ("--model.mixer=linear", "", 0.5),
        ("--model.mixer=sinkhorn", "", 0.5),
        ("--model.mixer=reformer", "", 0.5),
    ],
)
def test_long_texts_cost_far_less_than_full_attention(flags, kernel, share):
    """A pattern, fewer keys, kernels and clusters: they keep no scores of all pairs, and compute few of them."""
    job = long_job(*flags.split())
    memory, performed, needed = costs(job)
    full_memory, full_performed, full_needed = full_costs()
    assert memory < 0.2 * full_memory
    assert needed < 0.5 * full_needed
    assert performed < share * full_performed
    with installed_cudnn():
        kernels = counting.kernels_of(forward_pass(job))
    assert len(kernels) == bool(kernel)
    assert all(kernel in chosen for chosen in kernels)


@functools.cache
def preset_run(*flags):
    """A run of a preset, in bfloat16 as on an accelerator."""
    argv = [*flags, "--batch.size=8", "--model.dropout=0"]
    run, explicit = resolve.resolve(resolve.infer_task(argv, None), None, None)
    return resolve.fill_from_data(run, explicit, {}, "gpu")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "run", "kernel"),
    [
        (
            "h100:1",
            preset_run("--preset=vit-b", "--model.input.cls=false"),
            "cudnn: it is made for a gpu and knows this mask",
        ),
        ("h100:1", run_of(*LONG), "chunked: cudnn would read this mask as an array of 1,073,741,824 elements; 268,435"),
        ("t4:1", run_of(*LONG), "cudnn needs an NVIDIA GPU of compute capability 8.0 or more, and this is gpu 7.5"),
        ("v5e:1x1", run_of(*LONG), "splash: it is made for a tpu and knows this mask"),
        ("v5p:2x2x2", run_of(*LONG, "--mesh.data=8"), "splash: it is made for a tpu and knows this mask"),
    ],
)
def test_a_plan_has_the_kernel_of_its_devices(name, run, kernel):
    """Not that of the CPU on which it is made."""
    with installed_cudnn():
        chosen = counting.kernels_of(forward_pass(job_on(name, run)))
    assert len(chosen) == 1
    assert kernel in chosen[0]


# Billions of multiplications in a forward pass over one picture (Liu et al. 2021, table 1; for the others the
# formula of their layers), and over its text.
PUBLISHED = {
    "--preset=vit-b": 17.5,
    "--preset=swin-tiny": 4.5,
    "--preset=clip-vit-base-patch32": 4.4 + 2.9,
}


@pytest.mark.parametrize(
    "flags", [pytest.param(flags, marks=[] if flags == "--preset=vit-b" else [pytest.mark.slow]) for flags in PUBLISHED]
)
def test_operations_of_pictures_are_the_published_ones(flags):
    job = job_on("h100:1", preset_run(flags))
    assert counting.model_flops(job) / (3 * 2 * 1e9 * 8) == pytest.approx(PUBLISHED[flags], rel=0.1)

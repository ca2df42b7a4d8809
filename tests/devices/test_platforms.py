"""Whole training steps, lowered for accelerators that are not here."""

import jax
import pytest
from small import run_of

from train.devices.topology import installed_cudnn, parse
from train.plan import Planner
from train.tasks import resolve
from train.training.job import largest_batch

TEXT = "--model.length=128 --batch.length=128 --batch.size=8".split()


def traced(topology, run):
    """A step, traced for devices of a topology."""
    job = Planner(parse(topology), [], False, 0, None).job(run)
    mesh = job.mesh.abstract_mesh

    def on_mesh(leaf):
        if leaf.sharding is None:
            return leaf
        sharding = jax.sharding.NamedSharding(mesh, leaf.sharding.spec)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    state, batch = jax.tree.map(on_mesh, (job.state, dict(largest_batch(job))))
    with installed_cudnn(), jax.sharding.use_abstract_mesh(mesh):
        return job.train_step.trace(state, batch)


def preset_run(*flags):
    run, explicit = resolve.resolve(resolve.infer_task(list(flags), None), None, None)
    return resolve.fill_from_data(run, explicit, {}, "gpu")


TINY_BERT = ["--preset=bert-tiny", "--model.vocab=256", "--model.scan=true", *TEXT]


@pytest.mark.slow
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize(
    ("topology", "platform", "flags"),
    [
        ("h100:1", "cuda", ["--attention.kernel=einsum"]),
        ("v5e:1x1", "tpu", []),
        ("v5e:2x2", "tpu", ["--mesh.fsdp=2", "--mesh.tensor=2"]),
    ],
)
@pytest.mark.parametrize("family", ["gpt", "bert"])
def test_steps_lower(family, topology, platform, flags, dropout):
    """On a TPU attention is three kernels, one forward and two backward, as long as it drops no weights. That of cuDNN
    lowers for devices that are there alone."""
    flags = [*flags, f"--model.dropout={dropout}"]
    step = traced(topology, run_of(*TEXT, *flags) if family == "gpt" else preset_run(*TINY_BERT, *flags))
    program = step.lower(lowering_platforms=(platform,)).as_text()
    assert program.count("dot_general") > 20
    kernels = program.count("tpu_custom_call")
    assert (kernels >= 3) == (platform == "tpu" and not dropout)


@pytest.mark.slow
@pytest.mark.parametrize(("dropout", "fused"), [(0, True), (0.1, False)])
def test_a_step_takes_the_kernel_of_a_gpu(dropout, fused):
    """Nothing hides a patch of a picture, nothing is added to scores; 17 tokens are padded. It drops nothing."""
    step = traced("h100:1", preset_run("--preset=vit-micro", f"--model.dropout={dropout}"))
    assert ("dot_product_attention_bwd" in str(step.jaxpr)) == fused

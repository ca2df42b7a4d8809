"""The memory of a step on a device."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import job_of

import tfm
from tfm.config.residuals import PreNorm
from train.planning import memory
from train.runs.state import State
from train.training import step


@pytest.mark.slow
def test_bytes_of_the_state_are_those_of_a_state():
    """Against the arrays of a real state, as they lie on the first of eight devices."""
    job = job_of("--mesh.fsdp=2", "--mesh.tensor=4", "--optim.ema=0.9")
    state = step.new_state(job.specs, job.optimizer, 0, job.mesh, job.run.optim.has_average)
    on_first = lambda tree: sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(tree))
    sizes = memory.step_memory(job)
    assert sizes["parameters"] == on_first((state.params, state.ema))
    assert sizes["optimizer"] == on_first(state.opt)
    assert sizes["all"] == sum(size for name, size in sizes.items() if name != "all")


@pytest.mark.slow
def test_a_recomputed_block_is_not_kept():
    flags = [(f"--model.remat={remat}", "--model.layers=8") for remat in ("none", "block")]
    kept, recomputed = (memory.step_memory(job_of(*argv)) for argv in flags)
    assert recomputed["activations"] < kept["activations"] / 3
    assert recomputed["all"] < kept["all"]
    assert recomputed["temporaries"] > memory.UNFUSED * kept["activations"] / 8, "one of the 8 blocks is there"


def test_memory_on_one_device_and_on_four():
    """Parameters are cut over fsdp, the batch over both; moments are as large as two copies of the parameters."""
    x = np.zeros((8, 64), np.float32)

    def loss(params, batch):
        return jnp.square(jnp.tanh(tfm.einsum("BD,DF->BF", batch, params))).sum()

    for mesh in (tfm.make_mesh(devices=jax.devices()[:1]), tfm.make_mesh(data=2, fsdp=2, devices=jax.devices()[:4])):
        put = lambda array, axes, mesh=mesh: jax.device_put(
            array, jax.NamedSharding(mesh, tfm.partition(axes, array.shape, mesh))
        )
        weights = put(np.zeros((64, 128), np.float32), "DF")
        state = State(jnp.int32(0), weights, (weights, weights))
        with jax.set_mesh(mesh):
            sizes = memory.loss_memory(state, memory.residuals(state, loss, put(x, "BD")))
        share, size = 64 * 128 * 4 // mesh.shape["fsdp"], mesh.size
        assert (sizes["parameters"], sizes["gradients"], sizes["optimizer"]) == (share, share, 2 * share)
        assert sizes["activations"] >= 8 * 128 * 4 // size, "at least the output of tanh"
        assert sizes["activations"] <= (8 * 64 + 4 * 8 * 128) * 4 // size
        assert sizes["all"] == sum(sizes.values()) - sizes["all"]
        with jax.set_mesh(mesh):
            with_average = State(state.step, weights, (weights, weights), weights)
            averaged = memory.loss_memory(with_average, memory.residuals(with_average, loss, put(x, "BD")))
        assert averaged["parameters"] == 2 * share


@pytest.mark.slow
def test_activations_of_every_remat():
    """Bytes by hand: `dots` keeps the products with weights of each layer, but for the last, which nothing reads;
    `offload` keeps the inputs of the blocks on the host."""
    base = tfm.Config(
        layers=3,
        heads=4,
        kv_heads=2,
        width=32,
        ffn=80,
        vocab=100,
        length=16,
        residual=PreNorm(),
        activation="swiglu",
        norm="rms",
    )
    rows, length = 5, 16

    def activations(remat):
        config = dataclasses.replace(base, remat=remat)
        params = tfm.abstract(tfm.encoder_specs(config))
        loss = lambda params, tokens: tfm.encoder(params, config, tokens, key=jax.random.key(0)).sum()
        state = State(jnp.int32(0), params, ())
        program = memory.residuals(state, loss, jax.ShapeDtypeStruct((rows, length), jnp.int32))
        return memory.loss_memory(state, program)["activations"]

    everything, dots, block, offload = map(activations, ("none", "dots", "block", "offload"))
    of_a_token = 32 + 16 + 16 + 32 + 80 + 80  # queries, keys, values, output, gate, up
    assert dots - block == 3 * rows * length * of_a_token * 4
    assert block - offload == 3 * rows * length * 32 * 4
    assert everything > dots


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_inputs_of_blocks_go_to_the_host_and_back(platform):
    """In the program for an accelerator; the memory of a CPU is the host's."""
    config = tfm.Config(layers=2, heads=2, width=16, vocab=64, remat="offload")
    params, tokens = tfm.abstract(tfm.encoder_specs(config)), jax.ShapeDtypeStruct((2, 8), jnp.int32)
    gradient = jax.grad(lambda params, tokens: tfm.encoder(params, config, tokens).sum())
    program = jax.export.export(jax.jit(gradient), platforms=[platform])(params, tokens).mlir_module()
    assert (
        program.count('_xla_buffer_placement = "pinned_host"') == program.count('_xla_buffer_placement = "device"') == 1
    )


@pytest.mark.slow
def test_frozen_parameters_have_no_gradients_and_no_moments():
    """Against the trained leaves of a real state."""
    job = job_of("--task=classify", "--preset=bert-tiny", "--tune=lora", "--tune.rank=2")
    sizes, full = memory.step_memory(job), memory.step_memory(job_of("--task=classify", "--preset=bert-tiny"))
    trained = sum(4 * np.prod(spec.shape) for spec in jax.tree.leaves(job.specs) if spec.trained)
    per_device = job.mesh.size // job.mesh.shape["data"]
    assert sizes["gradients"] == trained // per_device
    assert sizes["optimizer"] == pytest.approx(2 * trained // per_device, abs=64)
    assert sizes["activations"] < full["activations"]

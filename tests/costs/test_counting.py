"""What a step costs."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import quick_compilation  # noqa: F401

import tfm
from train.costs import counting
from train.training import step


@pytest.mark.parametrize("scan", [True, False])
def test_flops_of_an_encoder(scan):
    """Two a multiplication: projections, feed-forward, scores and their use; embeddings multiply nothing."""
    config = tfm.Config(layers=3, heads=4, kv_heads=2, width=32, ffn=80, vocab=100, scan=scan, dropout=0.0)
    rows, length, size = 5, 16, 8
    per_token = 32 * 32 + 2 * 32 * 2 * size + 32 * 32 + 2 * 32 * 80
    scores_and_values = 2 * length * 4 * size
    wanted = 2 * 3 * rows * length * (per_token + scores_and_values)
    params = tfm.abstract(tfm.encoder_specs(config))
    tokens = jax.ShapeDtypeStruct((rows, length), jnp.int32)
    assert counting.flops(lambda params, tokens: tfm.encoder(params, config, tokens), params, tokens) == wanted


def test_flops_of_all_devices():
    """A product whose rows are spread over four devices is as much work as on one."""
    mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,), devices=jax.devices()[:4])
    spread = jax.shard_map(lambda x, w: x @ w, mesh=mesh, in_specs=(jax.P("data"), jax.P()), out_specs=jax.P("data"))
    x, w = jax.ShapeDtypeStruct((8, 16), jnp.float32), jax.ShapeDtypeStruct((16, 32), jnp.float32)
    assert counting.flops(spread, x, w) == 2 * 8 * 16 * 32


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
        state = step.State(jnp.int32(0), weights, (weights, weights))
        with jax.set_mesh(mesh):
            found = counting.memory(state, loss, put(x, "BD"))
        share, size = 64 * 128 * 4 // mesh.shape["fsdp"], mesh.size
        assert (found["parameters"], found["gradients"], found["optimizer"]) == (share, share, 2 * share)
        assert found["activations"] >= 8 * 128 * 4 // size, "at least the output of tanh"
        assert found["activations"] <= (8 * 64 + 4 * 8 * 128) * 4 // size
        assert found["all"] == sum(found.values()) - found["all"]
        with jax.set_mesh(mesh):
            averaged = counting.memory(step.State(state.step, weights, (weights, weights), weights), loss, put(x, "BD"))
        assert averaged["parameters"] == 2 * share


def test_activations_of_every_way_to_recompute():
    """Bytes by hand: `dots` keeps what each layer's products with weights give, but for the last, which nothing reads; on the host there is
    no less than the inputs of the blocks."""
    base = tfm.Config(
        layers=3,
        heads=4,
        kv_heads=2,
        width=32,
        ffn=80,
        vocab=100,
        length=16,
        order="pre",
        activation="swiglu",
        norm="rms",
    )
    rows, length = 5, 16

    def activations(remat):
        config = dataclasses.replace(base, remat=remat)
        params = tfm.abstract(tfm.encoder_specs(config))
        loss = lambda params, tokens: tfm.encoder(params, config, tokens, key=jax.random.key(0)).sum()
        state = step.State(jnp.int32(0), params, ())
        return counting.memory(state, loss, jax.ShapeDtypeStruct((rows, length), jnp.int32))["activations"]

    everything, dots, block, offload = map(activations, ("none", "dots", "block", "offload"))
    of_a_token = 32 + 16 + 16 + 32 + 80 + 80  # queries, keys, values, output, gate, up
    assert dots - block == 3 * rows * length * of_a_token * 4
    assert block - offload == 3 * rows * length * 32 * 4
    assert everything > dots


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

"""Ring attention equals plain attention, and no device has all keys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from small import read_lines, run

import tfm
from tfm.attention.attend import Heads
from tfm.attention.kernels.choice import KernelError, attention, choose_kernel

B, T, K, G, H = 2, 24, 2, 3, 8
VALID = np.arange(T)[None] < np.array([[17], [24]])
SEGMENTS = np.repeat(np.array([[1, 2, 3, 0], [1, 1, 2, 2]], np.int32), T // 4, axis=1)
MASKS = {
    "bidirectional": lambda: None,
    "causal": tfm.causal,
    "padded": lambda: tfm.padding(jnp.asarray(VALID)),
    "causal and padded": lambda: tfm.causal() & tfm.padding(jnp.asarray(VALID)),
    "causal texts": lambda: tfm.causal() & tfm.segments(jnp.asarray(SEGMENTS)),
}


def draws(dtype=jnp.float32):
    keys = jax.random.split(jax.random.key(0), 4)
    shapes = (B, T, K, G, H), (B, T, K, H), (B, T, K, H), (B, T, K, G, H)
    return [jax.random.normal(key, shape, dtype) for key, shape in zip(keys, shapes, strict=True)]


def value_and_grads(kernel, mask, q, k, v, weights):
    def total(q, k, v):
        y = attention(Heads(q, k, v, mask), kernel)
        return (y * weights).sum(), y

    return jax.jit(jax.value_and_grad(total, (0, 1, 2), has_aux=True))(q, k, v)


def on_mesh(mesh, arrays):
    specs = P("data", "context", "tensor"), P("data", "context", "tensor"), P("data", "context", "tensor")
    return [
        jax.device_put(x, jax.NamedSharding(mesh, P(*spec))) for x, spec in zip(arrays, [*specs, specs[0]], strict=True)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(1, 1, 1, 8), (2, 1, 2, 2), (1, 1, 2, 4)], ids=str)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "causal texts")) for name in MASKS]
)
def test_values_and_gradients_are_those_of_attend(name, sizes):
    *arrays, weights = draws()
    mask = MASKS[name]()
    if name != "bidirectional" and mask is not None:
        dense = np.broadcast_to(mask.dense(T), (B, T, T)).any(-1)  # what no loss reads
        weights = jnp.where(dense[:, :, None, None, None], weights, 0)
    (_, expected), expected_grads = value_and_grads("einsum", mask, *arrays, weights)
    mesh = tfm.make_mesh(*sizes)
    with jax.set_mesh(mesh):
        *sharded, sharded_weights = on_mesh(mesh, [*arrays, weights])
        (_, y), grads = value_and_grads("ring", mask, *sharded, sharded_weights)
    is_read = np.asarray(weights != 0)
    np.testing.assert_allclose(np.where(is_read, y, 0), np.where(is_read, expected, 0), atol=1e-5, rtol=0)
    for actual, gradient in zip(grads, expected_grads, strict=True):
        np.testing.assert_allclose(actual, gradient, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_keys_travel_and_are_not_gathered():
    mesh = tfm.make_mesh(1, 1, 1, 8)
    with jax.set_mesh(mesh):
        q, k, v, weights = on_mesh(mesh, draws())
        for kernel, travels in (("ring", True), ("einsum", False)):

            def total(q, k, v, kernel=kernel):
                return (attention(Heads(q, k, v, tfm.causal()), kernel) * weights).sum()

            program = jax.jit(jax.grad(total, (0, 1, 2))).lower(q, k, v).compile().as_text()
            assert ("collective-permute" in program) == travels
            assert ("all-gather" in program) != travels


def test_what_it_refuses():
    mesh = tfm.make_mesh(1, 1, 1, 8)
    with jax.set_mesh(mesh):
        q, k, v, _ = on_mesh(mesh, draws())
        with pytest.raises(KernelError, match=r"kernel=ring cannot do this: attention weights are dropped \(at 0.1\)"):
            choose_kernel(q, k, rate=0.1, kernel="ring")
    q, k, v, _ = draws()
    np.testing.assert_allclose(attention(Heads(q, k, v), "ring"), tfm.attend(q, k, v), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["lm", "mlm", "translate"])
def test_runs_have_the_losses_of_gathered_keys(task, tmp_path, monkeypatch):
    """Causal and not, of texts that share rows; and of decoders that read an encoder."""
    monkeypatch.chdir(tmp_path)
    size = (
        "--model.layers=1 --model.width=16 --model.heads=2 --model.ffn=16 --model.dropout=0 --batch.length=16".split()
    )
    steps = "--batch.size=8 --steps=5 --log.every=1 --eval.final=false --mesh.data=2 --mesh.context=4".split()
    if task == "translate":
        steps = [*steps, "--task.bleu=0"]
    losses = {}
    for kernel in ("einsum", "ring"):
        said = run(f"--task={task}", *size, *steps, f"--attention.kernel={kernel}", f"--out={kernel}")
        assert ("attention   ring: asked for" in said) == (kernel == "ring")
        lines = read_lines(tmp_path / kernel / "metrics.jsonl")
        losses[kernel] = [line["loss"] for line in lines if line["split"] == "train"]
    assert len(losses["ring"]) == 5
    np.testing.assert_allclose(losses["ring"], losses["einsum"], atol=1e-5, rtol=0)

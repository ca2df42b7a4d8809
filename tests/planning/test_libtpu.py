"""Steps that wait for a TPU, compiled by its compiler, with the time that a plan says for them, and what ring attention
overlaps there. Needs the extra `[tpu-plan]`; `-s` shows the times."""

import importlib.util
import re

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec

import tfm
from tfm.attention.attend import Heads
from tfm.attention.kernels.choice import attention
from train.devices import topology
from train.plan import Planner, PlanOptions
from train.planning import hlo
from train.screens.console import Log
from train.tasks import resolve

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not importlib.util.find_spec("libtpu"), reason="needs libtpu"),
]

TINY = "--model.layers=2 --model.scan=true --model.dropout=0 --model.vocab=512 --batch.size=8".split()
STEPS = {
    "a decoder": ("v5e:2x2", "--preset=gpt-tiny --batch.length=1024 --model.length=1024 --model.head-size=128"),
    "a window": ("v5p:2x2x1", "--preset=gpt-tiny --batch.length=1024 --model.length=1024 --model.mixer.pattern=local"),
    "texts that share rows": ("v6e:2x2", "--preset=bert-tiny --batch.length=512 --model.length=512 --mesh.tensor=2"),
}


@pytest.fixture(autouse=True)
def flags_of_a_tpu(monkeypatch):
    """jaxlib has read its flags before; libtpu ends the process for those of CPUs that it does not know."""
    jax.devices("cpu")
    monkeypatch.delenv("XLA_FLAGS", raising=False)


@pytest.mark.parametrize("name", STEPS)
def test_a_step_compiles_with_the_kernel_of_a_tpu(name):
    topology_name, flags = STEPS[name]
    planned = topology.parse(topology_name)
    devices, exact = topology.devices(planned)
    run, explicit = resolve.resolve(resolve.infer_task([*flags.split(), *TINY], None), None, None)
    run = resolve.fill_from_data(run, explicit | {"model.scan"}, {}, planned.platform)
    report = Planner(planned, devices, exact, PlanOptions().long_run, Log(quiet=True)).examine(run)
    assert exact
    assert report["fits"], report.get("refused")
    assert report["attention"] == ["splash: it is made for a tpu and knows this mask"]
    assert report["memory"]["all"] < planned.spec.memory
    print(f"\n{name} on {topology_name}: {1000 * report['seconds_a_step']:.3f} ms a step at best")


def products_between(program):
    """Of each collective-permute of a scheduled program, the products between its start and its end."""
    computations = hlo._read(program)[0]

    def called(line):
        names = (name for _, names in hlo._CALLED.findall(line) for name in re.findall(r"[\w.\-]+", names))
        return [name for name in names if name in computations]

    def multiplies(opcode, line):
        inner = (part for name in called(line) for part in computations[name])
        return opcode in ("convolution", "dot") or any(multiplies(code, text) for code, _, text in inner)

    counts = []
    for lines in computations.values():
        products, started = 0, {}
        for opcode, _, line in lines:
            products += multiplies(opcode, line)
            if opcode == "collective-permute-start":
                started[hlo._INSTRUCTION.match(line)[1]] = products
            if opcode == "collective-permute-done":
                counts.append(products - started[re.search(r"-done\(.*?%([\w.\-]+)\)", line)[1]])
    return counts


def test_blocks_of_a_ring_travel_while_products_are_computed():
    """Forward and backward, in the schedule of a v5e. On three of four devices keys and values arrive; on all of them
    gradients come home."""
    devices, exact = topology.devices(topology.parse("v5e:2x2"))
    mesh = tfm.make_mesh(data=1, context=4, devices=devices)

    def array(*shape):
        sharding = jax.NamedSharding(mesh, PartitionSpec("data", "context", "tensor"))
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding)

    def total(q, k, v, weights):
        return (attention(Heads(q, k, v, tfm.causal()), "ring") * weights).sum()

    keys, queries = array(1, 4096, 2, 128), array(1, 4096, 2, 2, 128)
    jax.config.update("jax_disable_most_optimizations", False)  # which orders instructions too
    try:
        with jax.set_mesh(mesh):
            program = jax.jit(jax.grad(total, (0, 1, 2))).lower(queries, keys, keys, queries).compile().as_text()
    finally:
        jax.config.update("jax_disable_most_optimizations", True)
    counts = products_between(program)
    print(f"\nproducts between start and end of {len(counts)} transfers: {counts}")
    assert exact
    assert "is_scheduled=true" in program
    assert "all-gather" not in program
    assert len(counts) >= 3 * 2 + 4 * 2
    assert min(counts) > 0

"""What makes a jitted step be compiled again is named; what was planned is not."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm
from train.data import feed
from train.data.fields import Field
from train.runs.state import State
from train.training.recompilation import Guard, RecompilationError

PLANNED = [{"tokens": (1, 8, 16), "where": (1, 8, 3)}, {"tokens": (1, 8, 32), "where": (1, 8, 3)}]


def batch(mesh, length=16, dtype=np.int32, **more):
    fields = {"tokens": np.zeros((8, length), dtype), "where": np.zeros((8, 3), np.int32), **more}
    axes = {"tokens": "BT", "where": "BM", "more": "B"}
    spec = {name: Field(axes[name], np.int32) for name in fields}
    return feed.to_devices(fields, spec, mesh)


@pytest.fixture
def mesh():
    return tfm.make_mesh(2, 4)


def home(mesh, *places):
    return jax.NamedSharding(mesh, jax.P(*places))


@pytest.fixture
def state(mesh):
    params = {"kernel": jax.device_put(jnp.zeros((8, 4)), home(mesh, "fsdp", None))}
    return State(jax.device_put(jnp.int32(0), home(mesh)), params, jax.tree.map(jnp.copy, params))


@pytest.fixture
def step():
    """A guarded step that gives the old state up, as the real one does."""
    return Guard(
        jax.jit(lambda state, batch: (jax.tree.map(lambda x: x * 1, state), batch["tokens"].sum()), donate_argnums=0),
        PLANNED,
    )


def test_planned_shapes_may_come_in_any_order(step, state, mesh):
    for length in (16, 32, 16, 32, 32):
        state, _ = step(state, batch(mesh, length))
    assert step.step._cache_size() == 2


WAS = "should be float32[8,4] sharded as P('fsdp', None) and is "
CHANGES = {
    "dtype": (lambda x, mesh: x.astype(jnp.bfloat16), WAS + "bfloat16[8,4] sharded as P('fsdp', None);"),
    "shape": (lambda x, mesh: jnp.concatenate([x, x]), WAS + "float32[16,4] sharded as"),
    "sharding": (
        lambda x, mesh: jax.device_put(x, home(mesh, None, "fsdp")),
        WAS + "float32[8,4] sharded as P(None, 'fsdp');",
    ),
    "absence": (lambda x, mesh: None, WAS + "absent;"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_leaf_of_the_state_is_named(step, state, mesh, change):
    change, message = CHANGES[change]
    state, _ = step(state, batch(mesh))
    with pytest.raises(RecompilationError, match=re.escape(f"compiled again: state.opt.kernel {message}")):
        step(dataclasses.replace(state, opt={"kernel": change(state.opt["kernel"], mesh)}), batch(mesh))


def test_a_weak_type_is_named(step, state, mesh):
    state, _ = step(state, batch(mesh))
    weak = jax.device_put(jnp.asarray(3), home(mesh))
    assert weak.weak_type
    with pytest.raises(
        RecompilationError, match=r"state\.step should be int32\[\] sharded .* and is weakly typed int32\[\] sharded"
    ):
        step(dataclasses.replace(state, step=weak), batch(mesh))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"length": 24}, r"batch\.tokens should be int32\[1,8,(16|32)\] .* and is int32\[1,8,24\]"),
        ({"dtype": np.int16}, r"batch\.tokens should be int32\[1,8,16\] .* and is int16\[1,8,16\]"),
        ({"more": np.zeros(8)}, r"batch\.more should be absent and is float32\[1,8\]"),
    ],
    ids=["shape", "dtype", "field"],
)
def test_a_batch_that_nobody_planned_is_named(step, state, mesh, wrong, message):
    state, _ = step(state, batch(mesh))
    with pytest.raises(RecompilationError, match=message):
        step(state, batch(mesh, **wrong))


def test_the_first_batch_must_be_planned_too(step, state, mesh):
    with pytest.raises(RecompilationError, match=r"batch\.tokens should be"):
        step(state, batch(mesh, 24))


def test_another_way_to_write_a_sharding_is_none(step, state, mesh):
    """Whatever jax makes of it."""
    state, _ = step(state, batch(mesh))
    opt = {"kernel": jax.device_put(state.opt["kernel"], home(mesh, ("fsdp",)))}
    step(dataclasses.replace(state, opt=opt), batch(mesh))

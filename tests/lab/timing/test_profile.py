"""The time of each operation."""

import jax
import pytest
from small import random_job

from train.data import feed
from train.lab.timing import profile, timing
from train.planning import hlo
from train.training import step


@pytest.mark.slow
def test_a_profile_names_the_operations_of_the_model(tmp_path):
    job = random_job()
    batch = job.task.batches(job.run)(0)
    with jax.set_mesh(job.mesh):
        state = step.new_state(job.specs, job.optimizer, 0, job.mesh)
        compiled = job.train_step.lower(state, feed.to_devices(batch, job.batch_spec, job.mesh)).compile()
        jax.block_until_ready(compiled(state, feed.to_devices(batch, job.batch_spec, job.mesh)))
    path = profile.trace(tmp_path / "trace", lambda: timing.time_steps(job, lambda n: batch, 1, 1))
    operations = profile.operations(path, hlo.origins(compiled.as_text()))
    assert operations == sorted(operations, key=lambda operation: -operation.seconds)
    assert any("dot_general" in operation.origin for operation in operations)
    table = profile.table(operations, steps=2, rows=3)
    assert list(table) == [operation.origin for operation in operations[:3]]
    assert all("%" in row and "ms" in row for row in table.values())


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("jit(f)/jvp(BD,DF->BF)/dot_general", "BD,DF->BF/dot_general"),
        ("jit(f)/transpose(jvp(BD,DF->BF))/dot_general", "backward BD,DF->BF/dot_general"),
        ("jit(f)/jvp()/shard_map/while/body/closed_call/jit(_where)/select_n", "select_n"),
        ("jit(f)/(jvp()/shard_map/psum:transpose(jvp())/scatter-add)", "psum"),
        ("jit(f)/jvp(attention[einsum: few scores])/exp", "attention[einsum: few scores]/exp"),
    ],
)
def test_where_an_operation_comes_from(origin, expected):
    assert profile.short_origin(origin) == expected

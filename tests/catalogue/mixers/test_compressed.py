"""Memory-compressed attention: the size of its state."""

import jax
import jax.numpy as jnp
import pytest
from variants import VARIANTS

import tfm
from tfm.catalogue.options.mixers.fewer_keys import Compressed

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("values", "rows"), [({"mixer.factor": 4}, 4), ({"mixer.memory": 3}, 3)])
def test_the_state_has_a_row_for_every_group(values, rows):
    """16 slots in groups of 4 tokens, and in 3 groups of at most 6."""
    config = tfm.override(VARIANTS["compressed"].config, values)
    params = tfm.abstract(tfm.causal_lm_specs(config)).decoder
    tokens, starts = jax.ShapeDtypeStruct((2, 3), jnp.int32), jax.ShapeDtypeStruct((2,), jnp.int32)
    cache = jax.eval_shape(lambda *inputs: tfm.prefill(inputs[0], config, *inputs[1:], 16)[1], params, tokens, starts)
    (state,) = cache.states.period
    assert state.keys.shape == (3, 2, rows, 2, 4)


def test_groups_grow_with_the_length_where_memory_is_fixed():
    sizes = [Compressed(memory=64).group_size(tfm.Config(length=length)) for length in (64, 100, 4096)]
    assert sizes == [1, 2, 64]

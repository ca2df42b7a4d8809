"""A text 7 places later: relative schemes do not notice, absolute ones do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contracts import TOKENS, model_of
from variants import VARIANTS

import tfm
from tfm.options.choices import alternatives, type_hints

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("strict")]

ABSOLUTE = {"axial", "learned", "sinusoidal", "tupe"}
ALL = alternatives(type_hints(tfm.Config)["position"])
# An image has no place for padding before it.
SCHEMES = {name: options for name, options in ALL.items() if not options.in_grid}
# Rows without padding have another length, which matters to scalings that depend on it.
ROWS = [
    name
    for name, row in VARIANTS.items()
    if name.startswith(tuple(SCHEMES)) and not row.config.prefix and row.ignores_padding
]


@pytest.mark.parametrize("name", ["shaw", *(pytest.param(name, marks=pytest.mark.slow) for name in ROWS)])
def test_a_shift_matters_to_absolute_positions_alone(name):
    """The text alone, and behind 7 tokens of padding; as an encoder and as a decoder, where a row can be both."""
    config, function, _, params = model_of(name)
    text = TOKENS[:1, :6]
    later = jnp.concatenate([jnp.full((1, 7), 3), text], axis=1)
    mask = tfm.padding(jnp.arange(13)[None] >= 7)
    functions = {function, tfm.decoder} if VARIANTS[name].decoder else {function}

    @jax.jit
    def states(params):
        return [(run(params, config, text), run(params, config, later, mask)[:, 7:]) for run in functions]

    for alone, shifted in states(params):
        if config.position.name in ABSOLUTE or getattr(config.position, "absolute", False):
            assert not np.allclose(shifted, alone, atol=1e-3)
        else:
            np.testing.assert_allclose(shifted, alone, rtol=1e-5, atol=1e-5)


def test_every_scheme_has_a_row():
    assert {VARIANTS[name].config.position.name for name in ROWS} == set(SCHEMES)

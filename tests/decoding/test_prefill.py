"""Reading long prompts: memory grows with the length, not with its square, and the states are those of one piece."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params

import tfm
from tfm.attention.kernels import blocks, choice

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("strict")]

BASE = tfm.Config(layers=1, heads=2, width=16, ffn=16, vocab=60, pad_vocab_to=64, length=64, dropout=0.0, init_std=0.3)
WINDOW = {"mixer.pattern": "sliding", "mixer.pattern.window": 64}
CASES = {
    "rotary": WINDOW | {"position": "rotary"},
    "local": {"mixer.pattern": "local", "mixer.pattern.block": 64, "position": "alibi"},
    "transformer_xl": WINDOW | {"position": "transformer_xl"},
    "shaw": {"position": "shaw"},
}


def temporary_bytes(config, length):
    """What reading a prompt needs beside its inputs and results; nothing is computed."""
    model = tfm.abstract(tfm.encoder_specs(config))
    tokens, starts = jax.ShapeDtypeStruct((1, length), jnp.int32), jax.ShapeDtypeStruct((1,), jnp.int32)
    read = jax.jit(tfm.prefill, static_argnums=(1, 4))
    return read.lower(model, config, tokens, starts, length).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("name", CASES)
def test_memory_of_a_prompt_grows_with_its_length(name):
    """Four times the length needs less than eight times the memory, and less than all scores of a head would."""
    config = tfm.override(BASE, CASES[name])
    short, long = temporary_bytes(config, 4096), temporary_bytes(config, 16384)
    assert long < 8 * short
    assert long < 4 * 16384**2


@pytest.mark.parametrize("position", ["transformer_xl", "shaw", "huang", "tupe"])
def test_blocks_of_queries_are_all_queries(monkeypatch, position):
    """Positions that bias scores by vectors of queries are computed a block of queries at a time; the last one has
    fewer."""
    monkeypatch.setattr(blocks, "BLOCK", 2 * 2 * 2 * 11 * 3)
    config = tfm.override(BASE, {"position": position} | ({"position.method": 3} if position == "huang" else {}))
    params = random_params(tfm.encoder_specs(config))
    tokens, starts = jnp.arange(22).reshape(2, 11), jnp.zeros(2, jnp.int32)
    expected = tfm.decoder(params, config, tokens)
    monkeypatch.setattr(choice, "LARGE_ONCE", 1)
    states, _ = tfm.prefill(params, config, tokens, starts, 12)
    np.testing.assert_allclose(states, expected, rtol=1e-4, atol=1e-5)

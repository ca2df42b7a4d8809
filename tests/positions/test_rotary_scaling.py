"""Scalings of rotary positions: the formulas pair by pair, the length that they depend on, and transformers."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params

import tfm
from tfm.catalogue.models.segments import SegmentContext
from tfm.catalogue.options.positions.scaling import Dynamic, LinearScaling, Llama3, LongRope, Yarn
from tfm.config.positions import Rotary

pytestmark = pytest.mark.usefixtures("strict")

CONFIG = tfm.override(
    tfm.Config(layers=2, heads=2, width=16, ffn=16, vocab=60, pad_vocab_to=1, init_std=0.5, dropout=0.0),
    {"position": "rotary", "position.base": 50.0},
)
TOKENS = jnp.array([[5, 59, 0, 7, 7, 31, 8, 9, 1, 2, 3, 4]])


def radians(scaling, size=16, base=500.0, length=1):
    """Radians a position of each pair."""
    return np.asarray(tfm.rotary_angles(Rotary(base=base, scaling=scaling), size, jnp.array([[1]]), length))[0, 0]


def test_all_wavelengths_grow_by_the_factor():
    """Positions are then interpolated (Chen et al. 2023, eq. 4)."""
    np.testing.assert_allclose(4 * radians(LinearScaling(factor=4.0)), radians(None), rtol=1e-6)


def test_long_wavelengths_grow_and_short_ones_do_not():
    """Those of middle length grow in part, linearly in the frequency (Grattafiori et al. 2024, section 3.4.2)."""
    actual = radians(Llama3(factor=8.0, original_length=120, low_freq_factor=0.6, high_freq_factor=4.0))
    regimes = []
    for n in range(8):
        frequency = 500.0 ** (-2 * n / 16)
        wavelength = 2 * math.pi / frequency
        if wavelength <= 30:
            expected, regime = frequency, "short"
        elif wavelength >= 200:
            expected, regime = frequency / 8, "long"
        else:
            kept = (1 / wavelength - 1 / 200) / (1 / 30 - 1 / 200)
            expected, regime = kept * frequency + (1 - kept) * frequency / 8, "middle"
        assert actual[n] == pytest.approx(expected, rel=1e-5)
        regimes.append(regime)
    assert set(regimes) == {"short", "middle", "long"}


@pytest.mark.parametrize("factor", [1.0, 3.0])
@pytest.mark.parametrize("length", [1, 64, 65, 1000])
def test_the_base_grows_with_the_length(length, factor):
    """With a factor of 1, the longest wavelength grows as the text does, and the shortest one not at all."""
    actual = radians(Dynamic(factor=factor, original_length=64), length=length)
    growth = factor * max(length, 64) / 64 - (factor - 1)
    expected = [(500.0 * growth ** (16 / 14)) ** (-2 * n / 16) for n in range(8)]
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    unscaled = radians(None)
    assert actual[0] == unscaled[0]
    if factor == 1:
        assert unscaled[-1] / actual[-1] == pytest.approx(max(length, 64) / 64, rel=1e-5)


@pytest.mark.parametrize("truncate", [True, False])
def test_wavelengths_grow_by_how_often_they_fit_into_a_text(truncate):
    """By the index of a pair, in a ramp between the pairs that turn `beta_fast` and `beta_slow` times."""
    scaling = Yarn(factor=4.0, original_length=256, beta_fast=8.0, beta_slow=0.5, truncate=truncate)
    actual = radians(scaling, size=32)
    turns = [256 / (2 * math.pi) * 500.0 ** (-2 * n / 32) for n in range(16)]
    # turns fall by the same factor from pair to pair, so a pair between two has a fractional index
    index = {beta: math.log(turns[0] / beta) / math.log(turns[0] / turns[1]) for beta in (8.0, 0.5)}
    first, last = (math.floor(index[8.0]), math.ceil(index[0.5])) if truncate else (index[8.0], index[0.5])
    for n in range(16):
        frequency = 500.0 ** (-2 * n / 32)
        grown = min(max((n - first) / (last - first), 0), 1)
        assert actual[n] == pytest.approx((1 - grown) * frequency + grown * frequency / 4, rel=1e-5)
    assert 0 < first < last < 15


def test_each_pair_has_its_factor_and_another_one_in_long_texts():
    scaling = LongRope(original_length=64, short_factors="1,1.5,2,3", long_factors="2,4,8,16.5")
    short, long = (radians(scaling, size=8, length=length) for length in (64, 65))
    np.testing.assert_allclose(short, radians(None, size=8) / [1, 1.5, 2, 3], rtol=1e-6)
    np.testing.assert_allclose(long, radians(None, size=8) / [2, 4, 8, 16.5], rtol=1e-6)


def test_equal_factors_are_equal_options():
    """However they are written, so that a folder that says them otherwise is not another model."""
    scaling = LongRope(short_factors="1.0,1e0", long_factors="2.0, 3.50")
    assert (scaling.short_factors, scaling.long_factors) == ("1", "2,3.5")
    assert scaling == LongRope(short_factors="1", long_factors="2,3.5")
    with pytest.raises(ValueError, match="long_factors=.* are 2 factors for 4 pairs of head_size=8; give 4 or 1"):
        tfm.override(CONFIG, {"position.scaling": "longrope", "position.scaling.long_factors": "2,3.5"})


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        (None, 1),
        (Dynamic(), 1),
        (Yarn(factor=1.0), 1),
        (Yarn(factor=16.0), 0.1 * math.log(16) + 1),
        (Yarn(attention_factor=0.7), 0.7),
        (LongRope(factor=32.0, original_length=4096), math.sqrt(1 + 5 / 12)),
        (LongRope(attention_factor=1.19), 1.19),
    ],
)
def test_rotated_queries_and_keys_are_scaled(scaling, expected):
    """And what is not rotated is not."""
    options = Rotary(base=50.0, fraction=0.5, scaling=scaling)
    config = tfm.override(CONFIG, {"position.fraction": 0.5})
    context = tfm.AttentionContext(jnp.arange(5)[None])
    position = tfm.position_of(options)
    call = tfm.LayerCall(options, config, None, position.prepare(tfm.LayerCall(options, config), context), None)
    q, k = (jax.random.normal(jax.random.key(n), shape) for n, shape in enumerate([(1, 5, 2, 1, 8), (1, 5, 2, 8)]))
    for x, y in zip((q, k), position.score(call, q, k, None), strict=False):
        squares = [np.square(part).reshape(*part.shape[:-1], 2, -1).sum(-1) for part in (x, y)]
        np.testing.assert_allclose(squares[1][..., 0], expected**2 * squares[0][..., 0], rtol=1e-5)
        np.testing.assert_allclose(squares[1][..., 1], squares[0][..., 1], rtol=1e-6)


def of_length(name, original):
    values = {"position.scaling": name, "position.scaling.original_length": original}
    config = tfm.override(CONFIG, values)
    return config, random_params(tfm.causal_lm_specs(config)).decoder


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dynamic", pytest.param("longrope", marks=pytest.mark.slow)])
@pytest.mark.parametrize("original", [6, pytest.param(12, marks=pytest.mark.slow)])
def test_a_cache_has_the_wavelengths_of_its_slots(name, original):
    """All tokens of a generation stand at angles of the longest text, as in a pass over a row of as many tokens."""
    config, model = of_length(name, original)

    @jax.jit
    def cached(tokens):
        states, cache = tfm.prefill(model, config, tokens[:, :4], jnp.zeros(1, jnp.int32), 12, allocated=4)
        parts = [states]
        for part in (tokens[:, 4:9], tokens[:, 9:10], tokens[:, 10:]):
            states, cache = tfm.extend(model, config, part, tfm.allocate_slots(config, cache, 12))
            parts.append(states)
        return jnp.concatenate(parts, axis=1)

    np.testing.assert_allclose(cached(TOKENS), tfm.decoder(model, config, TOKENS), rtol=1e-4, atol=1e-5)
    unscaled = tfm.decoder(model, tfm.override(config, {"position.scaling": None}), TOKENS)
    assert np.allclose(cached(TOKENS), unscaled, atol=1e-2) == (name == "dynamic" and original == 12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dynamic", pytest.param("longrope", marks=pytest.mark.slow)])
def test_up_to_the_original_length_padding_does_not_matter(name):
    """A longer row has other wavelengths only where it is longer than the texts of training."""
    config, model = of_length(name, 8)
    states = {length: tfm.decoder(model, config, TOKENS[:, :length])[:, :5] for length in (5, 8, 12)}
    np.testing.assert_allclose(states[8], states[5], rtol=1e-4, atol=1e-5)
    assert not np.allclose(states[12], states[5], atol=1e-2)


def test_segments_with_a_memory_are_as_long_as_both():
    config, _ = of_length("dynamic", 4)
    context = SegmentContext(6 + jnp.arange(3)[None], past=6)
    _, keys = tfm.position_of(config.position).prepare(tfm.LayerCall(config.position, config), context)
    np.testing.assert_allclose(keys, tfm.rotary_angles(config.position, 8, jnp.arange(9)[None]), rtol=1e-6)


def test_rows_and_columns_have_no_length():
    values = {"input": "patches", "input.size": 8, "input.patch": 2, "position.axes": 2}
    assert tfm.override(CONFIG, values, {"position.scaling": "linear"})
    with pytest.raises(ValueError, match=r"position.scaling=dynamic depends on the length .* try .*scaling=linear"):
        tfm.override(CONFIG, values, {"position.scaling": "dynamic"})
    with pytest.raises(ValueError, match="position.scaling=dynamic needs two pairs"):
        tfm.override(CONFIG, {"heads": 8, "position.scaling": "dynamic"})


ROPES = {
    "linear": ({"rope_type": "linear", "factor": 3.0}, LinearScaling(factor=3.0)),
    "dynamic": ({"rope_type": "dynamic", "factor": 2.5}, Dynamic(factor=2.5, original_length=64)),
    "yarn": (
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
        Yarn(factor=4.0, original_length=16),
    ),
    "yarn_range": (
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 4.0}
        | {"beta_slow": 0.3, "truncate": False, "mscale": 0.9, "mscale_all_dim": 0.4},
        None,
    ),
    "longrope": (
        {"rope_type": "longrope", "original_max_position_embeddings": 16}
        | {"short_factor": [1.0, 1.02, 1.1, 1.5], "long_factor": [1, 1.25, 3.5, 6.0]},
        LongRope(factor=4.0, original_length=16, short_factors="1,1.02,1.1,1.5", long_factors="1,1.25,3.5,6"),
    ),
    "longrope_factor": (
        {"rope_type": "longrope", "original_max_position_embeddings": 16, "factor": 8.0, "attention_factor": 1.3}
        | {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4},
        None,
    ),
    "llama3": (
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        Llama3(factor=8.0, original_length=64),
    ),
}
FIELDS = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1, "max_position_embeddings": 64}


def read(rope):
    """The configuration of a folder of Llama."""
    from tfm.hf import FAMILIES

    family = FAMILIES["llama"]
    fields = FIELDS | {"model_type": "llama", "rope_parameters": {"rope_theta": 500.0} | rope}
    return family.config(fields, family.heads["LlamaForCausalLM"])


@pytest.mark.parametrize("name", [name for name, (_, scaling) in ROPES.items() if scaling])
def test_rope_parameters_are_options(name):
    assert read(ROPES[name][0]).position == Rotary(base=500.0, scaling=ROPES[name][1])


@pytest.mark.parametrize("name", ROPES)
def test_options_are_written_as_they_were_read(name):
    from tfm.hf.families.rope import rope_parameters

    config = read(ROPES[name][0])
    assert read(rope_parameters(config.position, 8)).position == config.position


@pytest.mark.parametrize(
    ("rope", "sentence"),
    [
        ({"rope_type": "yarn", "factor": 0.5}, "factor=0.5 must be at least 1"),
        ({"rope_type": "dynamic"}, "rope_parameters lacks factor; add it"),
        ({"rope_type": "longrope", "short_factor": [1.0]}, "rope_parameters lacks long_factor; add it"),
        (ROPES["longrope"][0] | {"long_factor": [1.0, 2.0]}, "long_factors=.* are 2 factors for 4 pairs"),
    ],
)
def test_bad_rope_parameters(rope, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        read(rope)
    assert str(caught.value).startswith("config.json")


@pytest.mark.parity
@pytest.mark.parametrize("length", [1, 16, 17, 64, 65, 200])
@pytest.mark.parametrize("name", ROPES)
def test_frequencies_are_those_of_transformers(name, length):
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope, _ = ROPES[name]
    hf_config = LlamaConfig(**FIELDS, rope_parameters={"rope_theta": 500.0} | rope)
    expected, scale = ROPE_INIT_FUNCTIONS[rope["rope_type"]](hf_config, None, seq_len=length)
    options = read(rope).position
    actual = tfm.rotary_angles(options, 8, jnp.array([[1]]), length)[0, 0]
    np.testing.assert_allclose(actual, expected.numpy(), rtol=2e-6)
    assert options.attention_scaling == pytest.approx(scale, rel=1e-7)

"""Work and memory grow with the length of the text, and not with its square: counted in the program of a layer."""

import math

import jax
import jax.numpy as jnp
import pytest

import tfm

pytestmark = pytest.mark.slow

LENGTHS = 2048, 16384

# Options, and whether the layer is a decoder's.
ENCODERS = {
    "compressed": {"mixer.memory": 256},
    "linformer": {},
    "nystrom": {},
    "linear": {},
    "performer": {},
    "aft": {"mixer.reach": "simple"},
    "xca": {},
    "fnet": {},
}
DECODERS = {
    "compressed": {"mixer.memory": 256},
    "linear": {},
    "performer": {},
    "delta": {},
}
PLAIN = ["compressed", "linformer", "nystrom", "linear", "performer"]
ROWS = [
    pytest.param(name, values, causal, marks=[] if name in PLAIN and not causal else [pytest.mark.slow])
    for rows, causal in ((ENCODERS, False), (DECODERS, True))
    for name, values in rows.items()
]


def costs(jaxpr):
    """Operations of a program, and the size of its largest array."""
    work, largest = 0, 0
    for equation in jaxpr.eqns:
        leaves = [
            leaf for value in equation.params.values() for leaf in (value if isinstance(value, tuple) else [value])
        ]
        inner = [getattr(leaf, "jaxpr", leaf) for leaf in leaves]
        parts = [costs(leaf) for leaf in inner if hasattr(leaf, "eqns")]
        times = equation.params["length"] if equation.primitive.name == "scan" else 1
        size = sum(math.prod(variable.aval.shape) for variable in equation.outvars)
        if equation.primitive.name == "dot_general":
            (axes, _), _ = equation.params["dimension_numbers"]
            size *= 2 * math.prod(equation.invars[0].aval.shape[axis] for axis in axes)
        work += times * sum(part[0] for part in parts) if parts else size
        sizes = [math.prod(variable.aval.shape) for variable in equation.outvars]
        largest = max(largest, *sizes, *(part[1] for part in parts), 0)
    return work, largest


def layer_costs(mixer, values, causal, length):
    """Those of a mixer of width 128 on one text, forwards and backwards."""
    values = {"mixer": mixer} | values
    config = tfm.override(tfm.Config(width=128, heads=2, length=length, kernel="einsum", dropout=0.0), values)
    record = tfm.mixer_of(config.mixer)
    params = tfm.abstract(record.specs(config.mixer, config))

    def loss(params, x):
        context = tfm.AttentionContext(jnp.arange(length)[None], causal=causal)
        call = tfm.LayerCall(
            config.mixer, config, params, record.prepare(tfm.LayerCall(config.mixer, config), context), None
        )
        return jnp.square(record.forward(call, x, lambda q, k, projections: (q, k, None), None)[0]).sum()

    x = jax.ShapeDtypeStruct((1, length, 128), jnp.float32)
    return costs(jax.make_jaxpr(jax.value_and_grad(loss, (0, 1)))(params, x).jaxpr)


def exponents(mixer, values, causal):
    """How work and the largest array grow with the length."""
    short, long = (layer_costs(mixer, values, causal, length) for length in LENGTHS)
    return [math.log(b / a) / math.log(LENGTHS[1] / LENGTHS[0]) for a, b in zip(short, long, strict=True)]


@pytest.mark.parametrize(("mixer", "values", "causal"), ROWS, ids=lambda value: str(value))
def test_linear_mixers_are_linear(mixer, values, causal):
    work, largest = exponents(mixer, values, causal)
    assert work < 1.15
    assert largest < 1.15


def test_running_sums_of_a_decoder_take_the_logarithm_of_the_length_too():
    """The attention-free mixer adds up a text as a tree."""
    work, largest = exponents("aft", {"mixer.reach": "local"}, True)
    assert work < 1.35
    assert largest < 1.15


def test_softmax_is_not():
    work, largest = exponents("softmax", {}, False)
    assert work > 1.7
    assert largest > 1.7

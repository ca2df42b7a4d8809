"""Long short-term memory (Hochreiter & Schmidhuber 1997; forget gates: Gers et al. 2000).

i, f, o = sigmoid(W x + b + U h)    c = f c + i tanh(W x + b + U h)    h = o tanh(c), or P (o tanh(c)) with a
projection P (Sak et al. 2014)
"""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from tfm.catalogue.mixers.padding import SegmentedContext
from tfm.catalogue.mixers.recurrent import Recurrent, RecurrentState, last_state, prepare, read, recurrent_specs
from tfm.catalogue.options.mixers.recurrent import Lstm
from tfm.config.model import Config
from tfm.interfaces import LayerCall, Mixer, MixerOutput, Score
from tfm.params import ArraySpec

# The bias that a forget gate starts from, so that cells remember at first (Jozefowicz et al. 2015, section 5).
FORGET_BIAS = 1.0


def specs(options: Lstm, config: Config) -> Recurrent:
    """The gates i, f and o, and the candidate."""
    layer = recurrent_specs(options, config, gates=4)
    bias: ArraySpec = layer.input.bias
    if bias is None:
        return layer

    def init(key, shape, sharding):
        is_forget = jnp.expand_dims(jnp.arange(4) == 1, (*range(len(shape) - 2), -1))
        return jnp.where(is_forget, FORGET_BIAS, bias.init(key, shape, sharding))

    return replace(layer, input=replace(layer.input, bias=replace(bias, init=init)))


def step(
    clip: float | None, gates: Array, products: Array, state: RecurrentState, projection: Array | None = None
) -> RecurrentState:
    """What gates read of a token and of the state, both [n,B,4,r], and the state -> the next state.

    `clip` is the largest size of cells and of projected states.
    """
    sums = gates + products
    scale, forget, output = jnp.moveaxis(jax.nn.sigmoid(sums[..., :3, :]), -2, 0)
    cell = _clipped(forget * state.cell + scale * jnp.tanh(sums[..., 3, :]), clip)
    hidden = output * jnp.tanh(cell)
    if projection is None:
        return RecurrentState(hidden, cell)
    hidden = hidden.astype(projection.dtype)
    hidden = jnp.einsum("nBr,nrs->nBs", hidden, projection, preferred_element_type=jnp.float32)
    return RecurrentState(_clipped(hidden, clip), cell)


def _clipped(x: Array, clip: float | None) -> Array:
    return x if clip is None else jnp.clip(x, -clip, clip)


def forward(
    call: LayerCall[Lstm, Recurrent, SegmentedContext], x: Array, score: Score, state: RecurrentState | None
) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]."""
    return read(call, x, state, partial(step, call.options.clip), has_cell=True)


MIXER = Mixer(specs, prepare, forward, last_state)

"""Gated recurrent units (Cho et al. 2014, eq. 5 to 8), whose reset gate scales what the candidate reads of the state.

r, z = sigmoid(W x + b + U h)    n = tanh(W x + b + r (U h))    h = z h + (1 - z) n
"""

import jax
import jax.numpy as jnp
from jax import Array

from tfm.catalogue.mixers.padding import SegmentedContext
from tfm.catalogue.mixers.recurrent import Recurrent, RecurrentState, last_state, prepare, read, recurrent_specs
from tfm.catalogue.options.mixers.recurrent import Gru
from tfm.config.model import Config
from tfm.interfaces import LayerCall, Mixer, MixerOutput, Score


def specs(options: Gru, config: Config) -> Recurrent:
    """The gates r, z and n."""
    return recurrent_specs(options, config, gates=3)


def step(gates: Array, products: Array, state: RecurrentState, projection: Array | None = None) -> RecurrentState:
    """What gates read of a token and of the state, both [n,B,3,r], and the state -> the next state."""
    reset, update = jnp.moveaxis(jax.nn.sigmoid(gates[..., :2, :] + products[..., :2, :]), -2, 0)
    candidate = jnp.tanh(gates[..., 2, :] + reset * products[..., 2, :])
    return RecurrentState(candidate + update * (state.hidden - candidate))


def forward(
    call: LayerCall[Gru, Recurrent, SegmentedContext], x: Array, score: Score, state: RecurrentState | None
) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]."""
    return read(call, x, state, step, has_cell=False)


MIXER = Mixer(specs, prepare, forward, last_state)

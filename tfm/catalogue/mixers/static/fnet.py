"""FNet (Lee-Thorp et al. 2021, eq. 3): tokens are mixed by a Fourier transform, which has no parameters.

A transform mixes all places of a row, and so those of padding too. They are zeros, unless an option says otherwise:
what stands at them is then never seen, but how many there are is.
"""

import jax.numpy as jnp
from jax import Array

from tfm.catalogue.mixers.padding import refuse_decoders, valid_tokens
from tfm.catalogue.options.mixers.static import FNet
from tfm.interfaces import AttentionContext, LayerCall, Mixer, MixerOutput, Score, no_parameters, refuse_scores
from tfm.sharding import replicate_length


def prepare(call: LayerCall[FNet, None, None], context: AttentionContext) -> Array | None:
    """bool [B or 1,T], which places hold tokens; None: all. Raises ValueError for causality and other masks."""
    refuse_decoders(call.options, context)
    valid = valid_tokens(call.options, context)
    return None if call.options.reads_padding else valid


def forward(
    call: LayerCall[FNet, None, Array | None], x: Array, score: Score, state: None
) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]; computed in float32."""
    refuse_scores(call)
    x, dtype = replicate_length(x), x.dtype
    if call.prepared is not None:
        x = jnp.where(call.prepared[:, :, None], x, 0)
    return jnp.fft.fft2(x.astype(jnp.float32), axes=(1, 2)).real.astype(dtype), MixerOutput()


MIXER = Mixer(no_parameters, prepare, forward)

"""Admin: norm(w * x + f(x)), w a trained vector for each sublayer that starts at the standard deviation of the stream
(Liu et al. 2020, section 4.2).

A pass over a batch with all w at 1 measures what each sublayer adds; then w of sublayer i of the stack starts at

    sqrt(1 + sum of Var[f_j] over the sublayers j < i)

where 1 is the variance of the embeddings, as in the authors' code.
"""

from dataclasses import replace

import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.catalogue.options.residuals import Admin
from tfm.catalogue.residuals.profile import Profile
from tfm.config.model import Config
from tfm.interfaces import Block, LayerCall, Residual
from tfm.norms import norm
from tfm.ops import broadcast_param
from tfm.params import scale_spec
from tfm.residuals import SUBLAYERS, Norms, Outputs, Sublayers, branch, norms_specs


@struct.dataclass
class ScaledNorms:
    """The norm of each sublayer, and by the name of a sublayer the scale [D] of the stream that it adds to."""

    norms: Norms
    scales: dict[str, Array]


def specs(options: Admin, config: Config, names: tuple[str, ...]) -> ScaledNorms:
    """Scales are 1 until `tfm.calibrate` sets them."""
    return ScaledNorms(norms_specs(options, config, names), {name: scale_spec(config, "D") for name in names})


def chain(call: LayerCall[Admin, ScaledNorms, None], x: Array, sublayers: Sublayers) -> tuple[Array, Outputs]:
    """x [B,T,D] -> [B,T,D]."""
    outputs = {}
    for name, sublayer in sublayers.items():
        y, outputs[name] = branch(sublayer, call.config, x, x)
        x = norm(call.config, getattr(call.params.norms, name), broadcast_param(call.params.scales[name], x) * x + y)
    return x, outputs


def calibrate(options: Admin, config: Config, blocks: list[Block], profile: Profile) -> list[Block]:
    """The blocks with the scales that the variances on a batch ask for, in float32."""
    variance, calibrated = jnp.ones((), jnp.float32), []
    for block, branches in zip(blocks, profile.branches, strict=True):
        scales = {}
        for name in (name for name in SUBLAYERS if name in branches):
            scale, y = block.residual.scales[name], branches[name]
            scales[name] = jnp.ones_like(scale) * jnp.sqrt(variance).astype(scale.dtype)
            variance = variance + y.astype(jnp.float32).var()
        calibrated.append(replace(block, residual=replace(block.residual, scales=scales)))
    return calibrated


RESIDUAL = Residual(specs, chain, final_norm=False)

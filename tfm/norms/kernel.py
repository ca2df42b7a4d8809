"""Norms of rows in one pass over memory, forward and backward, for NVIDIA GPUs; written in Pallas, compiled by Triton.

XLA makes three passes forward (mean, variance, result), and backward one for the gradient of x, one for those of scale
and bias, and one that adds the gradient of the residual stream (M60).
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jax.sharding import PartitionSpec

from tfm.axes import platform
from tfm.sharding import spec_of

# Rows and warps of a program, and programs of a backward pass, each of which sums gradients of scale and bias.
ROWS, WARPS, PROGRAMS = 4, 4, 528


class Rule(NamedTuple):
    """How rows are normalized.

    eps: added to the variance
    centered: whether the mean is subtracted
    forked: whether x is returned too
    interpret: whether jax computes the kernels, without a GPU
    """

    eps: float
    centered: bool
    forked: bool
    interpret: bool


class ScaleAndBias(NamedTuple):
    """float32 [D] each; None for a norm without a bias."""

    scale: Array
    bias: Array | None


def normalized(
    x: Array, scale: Array, bias: Array | None, eps: float, centered: bool, forked: bool = False
) -> Array | tuple[Array, Array]:
    """x [...,D], scale and bias float32 [D] -> its norm in the dtype of x, computed in float32.

    `forked` returns x before it, for the sum that x goes on to: the gradients of both are added in one pass.
    """
    rule, params, spec = Rule(eps, centered, forked, platform() != "gpu"), ScaleAndBias(scale, bias), spec_of(x)
    if not any(spec):
        return _normalized(rule, x, params)
    of_x, mesh = PartitionSpec(*spec), jax.typeof(x).sharding.mesh
    specs = of_x, jax.tree.map(lambda _: PartitionSpec(), params)
    out_specs = (of_x, of_x) if forked else of_x
    run = partial(_normalized, rule)
    return jax.shard_map(run, mesh=mesh, in_specs=specs, out_specs=out_specs, check_vma=False)(x, params)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _normalized(rule: Rule, x: Array, params: ScaleAndBias) -> Array | tuple[Array, Array]:
    return _forward(rule, x, params)[0]


def _forward(rule: Rule, x: Array, params: ScaleAndBias):
    """The results; and x, its statistics and the parameters for the backward pass."""
    rows, width = x.size // x.shape[-1], x.shape[-1]
    of_rows, of_params = _spec(ROWS, width), _spec(None, width)
    of_stats = pl.BlockSpec((ROWS,), lambda program: program)
    stats = jax.ShapeDtypeStruct((rows,), jnp.float32)
    y, mean, factor = pl.pallas_call(
        partial(_forward_kernel, rule, (rows, width)),
        grid=(pl.cdiv(rows, ROWS),),
        in_specs=[of_rows, *[of_params for part in params if part is not None]],
        out_specs=[of_rows, of_stats, of_stats],
        out_shape=[jax.ShapeDtypeStruct((rows, width), x.dtype), stats, stats],
        compiler_params=plgpu.CompilerParams(num_warps=WARPS),
        interpret=rule.interpret,
        name="norm",
    )(x.reshape(rows, width), *[part for part in params if part is not None])
    y = y.reshape(x.shape)
    return (x, y) if rule.forked else y, (x, mean, factor, params)


def _backward(rule: Rule, residuals, slopes: Array | tuple[Array, Array]):
    """The gradients of x and of the parameters."""
    x, mean, factor, params = residuals
    streams = (x, *(reversed(slopes) if rule.forked else (slopes,)))
    rows, width = x.size // x.shape[-1], x.shape[-1]
    programs = min(PROGRAMS, pl.cdiv(rows, ROWS))
    of_rows, of_stats = _spec(rows, width, all_rows=True), pl.BlockSpec((rows,), lambda program: 0)
    of_sums = pl.BlockSpec((None, pl.next_power_of_2(width)), lambda program: (program, 0))
    sums = jax.ShapeDtypeStruct((programs, width), jnp.float32)
    dx, of_scale, of_bias = pl.pallas_call(
        partial(_backward_kernel, rule, (rows, width), programs),
        grid=(programs,),
        in_specs=[of_stats, of_stats, _spec(None, width), *[of_rows] * len(streams)],
        out_specs=[of_rows, of_sums, of_sums],
        out_shape=[jax.ShapeDtypeStruct((rows, width), x.dtype), sums, sums],
        compiler_params=plgpu.CompilerParams(num_warps=WARPS),
        interpret=rule.interpret,
        name="norm_gradient",
    )(mean, factor, params.scale, *(part.reshape(rows, width) for part in streams))
    of_bias = None if params.bias is None else of_bias.sum(0)
    return dx.reshape(x.shape), ScaleAndBias(of_scale.sum(0), of_bias)


_normalized.defvjp(_forward, _backward)


def _spec(rows: int | None, width: int, all_rows: bool = False) -> pl.BlockSpec:
    """How a program sees rows [N,D], all of them or its own, or a vector [D]; widths are powers of two."""
    size = pl.next_power_of_2(width)
    if rows is None:
        return pl.BlockSpec((size,), lambda program: 0)
    return pl.BlockSpec((rows, size), lambda program: (0 if all_rows else program, 0))


def _loaded(ref, mask: Array) -> Array:
    """The numbers of a reference, zeros where the mask is false."""
    return jnp.where(mask, plgpu.load(ref, mask=mask), 0)


def _forward_kernel(rule: Rule, shape: tuple[int, int], x_ref, scale_ref, *refs):
    """The norms [C,D] of the rows of a program, their means and their factors [C]."""
    *bias_ref, y_ref, mean_ref, factor_ref = refs
    is_row = pl.program_id(0) * ROWS + jnp.arange(ROWS) < shape[0]
    is_column = jnp.arange(x_ref.shape[1]) < shape[1]
    mask = is_row[:, None] & is_column[None]
    x = _loaded(x_ref, mask).astype(jnp.float32)
    mean = x.sum(1) / shape[1] if rule.centered else jnp.zeros(ROWS)
    centered = jnp.where(mask, x - mean[:, None], 0.0)
    factor = jax.lax.rsqrt((centered * centered).sum(1) / shape[1] + rule.eps)
    y = centered * factor[:, None] * _loaded(scale_ref, is_column)[None]
    if bias_ref:
        y = y + _loaded(bias_ref[0], is_column)[None]
    plgpu.store(y_ref, y.astype(y_ref.dtype), mask=mask)
    plgpu.store(mean_ref, mean, mask=is_row)
    plgpu.store(factor_ref, factor, mask=is_row)


def _backward_kernel(rule: Rule, shape: tuple[int, int], programs: int, mean_ref, factor_ref, scale_ref, x_ref, *refs):
    """The gradients of every `programs`-th group of rows, and this program's part of those of scale and bias."""
    *slope_refs, dx_ref, of_scale_ref, of_bias_ref = refs
    rows, width = shape
    is_column, program = jnp.arange(x_ref.shape[1]) < width, pl.program_id(0)
    scale = _loaded(scale_ref, is_column)[None]

    def visit(step, sums):
        start = (program + step * programs) * ROWS
        is_row = start + jnp.arange(ROWS) < rows
        mask, place = is_row[:, None] & is_column[None], pl.ds(start, ROWS)
        x, slope, *stream = (_loaded(ref.at[place, :], mask).astype(jnp.float32) for ref in (x_ref, *slope_refs))
        mean, factor = (_loaded(ref.at[place], is_row)[:, None] for ref in (mean_ref, factor_ref))
        y, scaled = jnp.where(mask, (x - mean) * factor, 0.0), slope * scale
        rest = scaled - y * ((scaled * y).sum(1) / width)[:, None]
        if rule.centered:
            rest = rest - (scaled.sum(1) / width)[:, None]
        plgpu.store(dx_ref.at[place, :], sum(stream, factor * rest).astype(dx_ref.dtype), mask=mask)
        return sums[0] + slope * y, sums[1] + slope

    zeros = jnp.zeros((ROWS, x_ref.shape[1]), jnp.float32)
    steps = pl.cdiv(pl.cdiv(rows, ROWS), programs)
    of_scale, of_bias = jax.lax.fori_loop(0, steps, visit, (zeros, zeros))
    plgpu.store(of_scale_ref, of_scale.sum(0), mask=is_column)
    plgpu.store(of_bias_ref, of_bias.sum(0), mask=is_column)

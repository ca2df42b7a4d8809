"""Kernels on a mesh: each device computes its own rows of the batch and its own heads."""

from collections.abc import Callable
from functools import partial, wraps

import jax
from jax import Array
from jax.sharding import PartitionSpec, reshard

from tfm.attention.attend import check_attention
from tfm.attention.bias import ScoreBias
from tfm.attention.kernels.dropout import WeightDropout
from tfm.masks.mask import Mask
from tfm.sharding import spec_of


def on_shards(kernel: Callable[..., Array]) -> Callable[..., Array]:
    """A kernel that runs under `shard_map` where q is sharded along its batch or its heads. It raises ValueError for
    shapes that do not fit."""

    @wraps(kernel)
    def sharded(
        q: Array,
        k: Array,
        v: Array,
        mask: Mask | None = None,
        bias: ScoreBias | None = None,
        dropout: WeightDropout | None = None,
        **options,
    ) -> Array:
        check_attention(q, k, v, mask)
        spec = spec_of(q)
        drawn = () if dropout is None else (dropout,)
        if not any(spec):
            return kernel(q, k, v, mask, bias, *drawn, **options)
        of_keys = PartitionSpec(spec[0], None, spec[2], None)

        def of_mask(leaf: Array) -> PartitionSpec:
            return PartitionSpec(spec[0] if leaf.ndim and leaf.shape[0] == len(q) else None)

        def of_bias(leaf: Array, has_rows: bool) -> PartitionSpec:
            return PartitionSpec(spec[0] if has_rows and leaf.shape[0] == len(q) else None)

        bias_specs = None if bias is None else jax.tree.map(of_bias, bias, bias.has_rows())
        of_arrays = jax.tree.map(of_mask, mask), bias_specs
        specs = PartitionSpec(*spec), of_keys, of_keys, *of_arrays, *(part.partition(spec) for part in drawn)
        operands = jax.tree.map(reshard, (q, k, v, mask, bias, *drawn), specs)
        mesh = jax.typeof(q).sharding.mesh
        run = jax.shard_map(partial(kernel, **options), mesh=mesh, in_specs=specs, out_specs=specs[0], check_vma=False)
        return run(*operands)

    return sharded

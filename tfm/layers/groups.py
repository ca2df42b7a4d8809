"""Groups of layers and the loop over them: scanned, or unrolled over the same leaves."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jax import checkpoint_policies as policies

from tfm.config.model import Config, Kind
from tfm.interfaces import AttentionContext, BlockOutput
from tfm.layers.block import BLOCK_INPUT, transformer_block

# What the backward pass reads of each block, by `config.remat`, from the fastest to the smallest; the rest is computed
# again. Products without a batch axis are those with weights: attention scores are not kept, nor are activations and
# dropout masks. The inputs of blocks are always needed; they may wait in the host's memory (Chen et al. 2016,
# section 4; Rajbhandari et al. 2020, section 6.1). XLA for CPU undoes recomputation where layers are not scanned.
REMAT: dict[str, Callable[..., Callable]] = {
    "none": lambda function, prevent_cse: function,
    "dots": partial(jax.checkpoint, policy=policies.dots_with_no_batch_dims_saveable),
    "block": jax.checkpoint,
    "offload": partial(
        jax.checkpoint,
        policy=policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[],
            names_which_can_be_offloaded=[BLOCK_INPUT],
            offload_src="device",
            offload_dst="pinned_host",
        ),
    ),
}


class Group(NamedTuple):
    """Layers of some kinds in order, all of them `times` times.

    kinds: of the layers of one repetition
    times: repetitions, one row of all leaves for each; None: one, and leaves have no rows
    first: the index of the first layer in the model
    rows: parameters, decode states, keys and values of a memory, and noise, each by kind (`transformer_block`)
    shared: parameters that all repetitions share, by kind, in a single row; None stands in `rows` for them then
    """

    kinds: tuple[Kind, ...]
    times: int | None
    first: int
    rows: tuple[Any, ...]
    shared: tuple[Any, ...] | None = None


def run_group(group: Group, config: Config, x: Any, context: AttentionContext) -> tuple[Any, tuple[BlockOutput, ...]]:
    """x [B,T,D] through all layers of a group -> [B,T,D], and by kind the outputs of its layers, a row for each.

    x may be all streams of a residual scheme.
    """
    if not group.kinds:
        return x, ()
    blocks: dict[Kind, Callable[..., tuple[Any, BlockOutput]]] = {}
    for kind in group.kinds:
        block = partial(transformer_block, kind=kind, config=config, context=context)
        blocks[kind] = REMAT[config.remat](block, prevent_cse=not config.scan)
    shared = None if group.shared is None else [unstack(tree, 1)[0] for tree in group.shared]
    size = len(group.kinds)

    def repetition(x: Any, rows: tuple[Any, ...], first: int = group.first, step: int = size):
        outputs, (params, *inputs) = [], rows
        layers = zip(group.kinds, shared or params, *inputs, strict=True)
        for index, (kind, layer, state, keys_values, noise) in enumerate(layers):
            with layer_scope(first + index, step):
                x, output = blocks[kind](layer, x=x, state=state, keys_values=keys_values, noise=noise)
            outputs.append(output)
        return x, tuple(outputs)

    if group.times is None:
        x, outputs = repetition(x, group.rows, step=0)
        return x, jax.tree.map(lambda leaf: leaf[None], outputs)
    if config.scan:
        return jax.lax.scan(repetition, x, group.rows, group.times)
    results = []
    for index, rows in enumerate(unstack(group.rows, group.times)):
        x, outputs = repetition(x, rows, group.first + index * size, 0)
        results.append(outputs)
    return x, jax.tree.map(lambda *leaves: jnp.stack(leaves), *results)


def layer_scope(index: int, size: int = 0) -> Any:
    """The scope of a layer; within a scan, of the layers index, index + size, index + 2 size, ..."""
    return jax.named_scope(f"layers {index}::{size}" if size else f"layer {index}")


@struct.dataclass
class Rows:
    """The rows of a stacked leaf, each an array: a loop around layers then reads them where they are."""

    rows: tuple[Array, ...]


def unstack(tree: Any, rows: int) -> list[Any]:
    """A tree whose leaves have rows -> a tree a row. Its gradient is one concatenation; that of indexing adds padded
    copies."""
    leaves, structure = jax.tree.flatten(tree, is_leaf=is_rows)
    columns = [leaf.rows if is_rows(leaf) else jnp.unstack(leaf) for leaf in leaves]
    return list(map(partial(jax.tree.unflatten, structure), zip(*columns, strict=True) if columns else [()] * rows))


def is_rows(leaf: Any) -> bool:
    """Whether the rows of a leaf are arrays of their own."""
    return isinstance(leaf, Rows)

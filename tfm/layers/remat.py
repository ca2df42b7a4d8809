"""Rematerialization: what of a block the backward pass reads, and what it computes again."""

from collections.abc import Callable
from functools import partial

import jax
from jax import checkpoint_policies as policies

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
            names_which_can_be_offloaded=["block input"],
            offload_src="device",
            offload_dst="pinned_host",
        ),
    ),
}

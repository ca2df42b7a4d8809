"""The options of beam search, and what they say of scores."""

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from tfm.decoding.constraints import Constraints
from tfm.decoding.sampling import check_min


@struct.dataclass
class Beam:
    """Options of beam search. `check` raises ValueError for a value outside its range.

    width: continuations followed per prompt
    groups: parts of the beam that avoid each other's tokens (diverse beam search: Vijayakumar et al. 2018)
    diversity: cost of a token, in nats, for each earlier group that chose it at the same step
    length_penalty: alpha; a log-probability is divided by ((offset + length) / (offset + 1)) ** alpha (Wu et al. 2016,
        eq. 14)
    coverage: beta of the same equation, the cost of source tokens that got little attention; None measures none
    early_stopping: True ends a prompt's search at `width` ended continuations; "likely" also requires that no followed
        one would score higher if it ended now; False requires that none can ever be among those asked for
    offset: of the length penalty; 0 divides by length ** alpha, as transformers does
    constraints: applied to log-probabilities before the search
    """

    width: int = struct.field(pytree_node=False, default=4)
    groups: int = struct.field(pytree_node=False, default=1)
    diversity: float | Array = 0.0
    length_penalty: float | Array = 0.0
    coverage: float | Array | None = None
    early_stopping: bool | str = struct.field(pytree_node=False, default=False)
    offset: float | Array = 5.0
    constraints: Constraints | None = None

    def check(self):
        """Raises ValueError for values outside their range."""
        check_min("width", self.width, 1)
        check_min("groups", self.groups, 1)
        if self.width % self.groups:
            raise ValueError(f"groups={self.groups} must divide width={self.width}")
        for name, cost in (("diversity", self.diversity), ("coverage", self.coverage)):
            check_min(name, cost, 0)
            if cost is not None and not np.isfinite(cost):
                raise ValueError(f"{name}={cost} must be finite")
        if self.early_stopping not in (True, False, "likely"):
            raise ValueError(f"early_stopping={self.early_stopping} must be True, False or 'likely'")
        if self.constraints is not None:
            self.constraints.check()

    def length_divisor(self, length: Array) -> Array:
        """((offset + length) / (offset + 1)) ** alpha, float32, which a log-probability is divided by."""
        offset = jnp.asarray(self.offset, jnp.float32)
        ratio = (offset + jnp.asarray(length, jnp.float32)) / (offset + 1)
        return ratio ** jnp.asarray(self.length_penalty, jnp.float32)

    def coverage_cost(self, coverage: Array, valid: Array) -> Array:
        """Attention [B,W,S] that source tokens, valid [B,S], have got -> what a text pays for those with less than 1,
        in nats: [B,W]."""
        attention = jnp.where(valid[:, None], jnp.clip(coverage, 1e-9, 1), 1)
        return -jnp.asarray(self.coverage, jnp.float32) * jnp.log(attention).sum(-1)

    def is_done(self, logprobs: Array, finished: Array, length: Array, returned: Array, max_new_tokens: Array) -> Array:
        """Whether rows need not go on: logprobs [B,G,W] of followed texts of one length, finished scores [B,G,W], the
        best first, and how many continuations are asked for -> bool [B]."""
        worst = finished.min((1, 2))
        if self.early_stopping is True:
            return worst > -jnp.inf
        if self.early_stopping == "likely":
            best_length = length
        else:
            best_length = jnp.where(jnp.asarray(self.length_penalty) > 0, max_new_tokens, length + 1)
            if self.groups == 1:  # others may have duplicates, which are not returned
                worst = jnp.take(finished[:, 0], returned - 1, axis=1, mode="clip")
        return logprobs.max((1, 2)) / self.length_divisor(best_length) <= worst

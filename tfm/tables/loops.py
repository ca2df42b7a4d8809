"""Residual schemes with a loop of their own around their blocks, by the tag of their options."""

from collections.abc import Callable
from typing import Any

from tfm.catalogue.residuals import reversible_loop

# (groups, config, x [B,T,D], context, parameters of positions) -> x [B,T,D] or [B,T,o] (`output_axis`), and the outputs
# of all groups.
LOOPS: dict[str, Callable[..., Any]] = {"reversible": reversible_loop.run}

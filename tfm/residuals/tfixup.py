"""T-Fixup: x + f(x) without norms; branches and embeddings start smaller in deeper models (Huang et al. 2020,
section 3.2).

Linear maps start as Xavier's, and embeddings from N(0, 1/D). Then, with N layers, these are scaled:

    embeddings, and values, outputs and feed-forward layers of a decoder with cross-attention   (9 N)^(-1/4)
    values, outputs and feed-forward layers of an encoder, or of a decoder alone                0.67 N^(-1/4)
"""

from dataclasses import replace
from typing import Any

from tfm.config.model import Config
from tfm.config.residuals import TFixup
from tfm.inputs.tokens import Embed
from tfm.params import normal, xavier
from tfm.residuals import Residual, sums, xavier_branches
from tfm.variants import no_parameters


def rescale(specs: Any, options: TFixup, config: Config) -> Any:
    """The specs of a block."""
    scale = 0.67 * config.layers**-0.25 if specs.cross is None else (9 * config.layers) ** -0.25
    return xavier_branches(specs, scale)


def rescale_embed(specs: Embed, options: TFixup, config: Config) -> Embed:
    """The specs of the embeddings."""
    scale = (9 * config.layers) ** -0.25
    tables = {name: getattr(specs, name) for name in ("tokens", "positions", "types")}
    changes: dict[str, Any] = {
        name: normal(table, scale * table.shape[-1] ** -0.5) for name, table in tables.items() if table is not None
    }
    if specs.projection is not None:
        spec: Any = specs.projection.kernel
        kernel: Any = xavier(spec)
        changes["projection"] = replace(specs.projection, kernel=kernel)
    return replace(specs, **changes)


RESIDUAL = Residual(no_parameters, sums, final_norm=False, rescale=rescale, rescale_embed=rescale_embed)

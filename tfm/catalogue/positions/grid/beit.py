"""A trained bias for each offset of rows and columns of patches, and head, with three more of [CLS] (BEiT: Bao et al.
2021, whose code has it; the offsets are those of Liu et al. 2021, eq. 4)."""

from jax import Array

from tfm.attention.bias import ScoreBias
from tfm.attention.project import Attention
from tfm.catalogue.options.positions.grid import Beit
from tfm.catalogue.positions.grid import GridBias, offsets
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, Position
from tfm.params import ArraySpec, weight_spec
from tfm.positions import absolute


def specs(options: Beit, config: Config) -> ArraySpec | None:
    """The table [O,K,G] of one layer, where it has its own."""
    return _table_spec(config) if options.by_layer else None


def shared_specs(options: Beit, config: Config) -> ArraySpec | None:
    """The table [O,K,G] of all layers, where they share one."""
    return _table_spec(config) if options.shared else None


def prepare(call: LayerCall[Beit, Array | None, None], context: AttentionContext) -> Array | None:
    """That table."""
    return call.params


def score(
    call: LayerCall[Beit, Array | None, Array | None], q: Array, k: Array, projections: Attention
) -> tuple[Array, Array, ScoreBias | None]:
    """Queries and keys as they are, and the bias of both tables."""
    tables = [table for table in (call.params, call.prepared) if table is not None]
    if not tables:
        return q, k, None
    rows, columns = call.config.input.grid or (1, 1)
    return q, k, GridBias(sum(tables[1:], tables[0]), rows, columns, call.config.input.prefix)


def _table_spec(config: Config) -> ArraySpec:
    rows, columns = config.input.grid or (1, 1)
    return weight_spec(config, "OKG", O=offsets(rows, columns, config.input.prefix))


POSITION = Position(absolute.absolute_specs, absolute.embed_absolute, shared_specs, specs, prepare, score)

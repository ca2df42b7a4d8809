"""Windows of a grid of patches (Swin: Liu et al. 2021, section 3.2)."""

from jax import Array

from tfm.attention.project import SoftmaxCall, merge_heads, project, with_positions
from tfm.catalogue.grid import check_whole
from tfm.catalogue.options.patterns import Windows
from tfm.catalogue.patterns.grid_windows import grid_windows
from tfm.catalogue.patterns.window_partition import WindowPartition
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, MixerOutput, Score
from tfm.masks.mask import Mask
from tfm.patterns import Pattern


def mask(options: Windows, config: Config, is_causal: bool) -> Mask:
    """The windows, without the zeros at the end of a grid that they do not divide."""
    windows = partition(options, config)
    return grid_windows(windows.rows, windows.columns, windows.size, windows.shift)


def partition(options: Windows, config: Config) -> WindowPartition:
    """The windows as rows of a batch."""
    assert config.grid is not None, "the options see to it that there is a grid"
    return WindowPartition(*config.grid, options.side(config), options.offset(config))


def prepare(call: LayerCall[Windows, None, None], context: AttentionContext) -> Mask | None:
    """The mask in windows. Raises VariantError for another mask, a decoder, and tokens that fill no grid."""
    check_whole(call, context)
    return partition(call.options, call.config).mask(context.positions)


def forward(call: SoftmaxCall, x: Array, score: Score) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D], by attention within each window."""
    options = call.options.pattern
    assert isinstance(options, Windows)
    windows = partition(options, call.config)
    y, output = call.prepared.path(call, with_positions(call, *project(call, windows.split(x)), score))
    if output.weights is not None:
        output = MixerOutput(weights=windows.dense(output.weights))
    return windows.merge(merge_heads(call.params, y)), output


PATTERN = Pattern(mask, prepare=prepare, forward=forward)

"""Stages of a model behind its first layers: patches of a grid are merged, and wider layers follow."""

from dataclasses import replace
from typing import Literal

from tfm.catalogue.options.inputs import Merging, check_squares
from tfm.config.mixers import Mixer
from tfm.options.choices import MAX_LAYERS, MAX_LENGTH, MAX_WIDTH, check_fields, check_maximum, check_minimum, frozen
from tfm.options.model import M


@frozen
class Stage:
    """A stage that reads the grid of the stage before it, squares of which become one patch each.

    Raises ValueError for values outside their range.

    layers: number of blocks
    width: size of the residual stream; none: twice that of the stage before
    heads: query heads; none: twice as many as the stage before has
    ffn: size of the feed-forward layer; none: it grows as the width does
    mixer: how tokens learn of each other; none: as in the stage before. Kinds of layers with a mixer of their own keep
        it
    kernel: side of the square of patches that become one; more than stride: squares overlap
    stride: rows, and columns, from a square to the next
    norm: merged | first | last: normalize merged patches, patches before that, or what merged patches are mapped to
    bias: add a bias in that map
    norm_before: the stage before ends with a norm, as the last stage does
    positions: add vectors of positions to merged patches too, where position has some
    cls: a trained vector, [CLS], stands before merged patches, of the last stage
    """

    layers: int = 2
    width: int | None = None
    heads: int | None = None
    ffn: int | None = None
    mixer: Mixer | None = None
    kernel: int = 2
    stride: int = 2
    norm: Literal["merged", "first", "last"] = "merged"
    bias: bool = False
    norm_before: bool = False
    positions: bool = False
    cls: bool = False

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, layers=1, width=1, heads=1, ffn=1)
        check_maximum(self, "no model is as large", layers=MAX_LAYERS, width=MAX_WIDTH, heads=MAX_WIDTH, ffn=MAX_LENGTH)
        check_squares(self.kernel, self.stride)

    def config(self, before: M) -> M:
        """The configuration of this stage behind another one.

        Key/value heads, and all that has no field here grow as width and heads do, or stay. Raises ValueError for a
        stage before it without a grid.
        """
        grid = before.grid
        if grid is None:
            raise ValueError(
                f"a stage merges patches of a grid, and input={before.input.name} has none, or a vector beside it; "
                "take input=patches, without input.cls, and stages.cls in the last stage alone"
            )
        width, heads = self.width or 2 * before.width, self.heads or 2 * before.heads
        return replace(
            before,
            layers=self.layers,
            width=width,
            heads=heads,
            kv_heads=None if before.kv_heads is None else max(1, before.kv_heads * heads // before.heads),
            ffn=self.ffn or (None if before.ffn is None else before.ffn * width // before.width),
            mixer=self.mixer or before.mixer,
            input=Merging(
                rows=grid[0],
                columns=grid[1],
                width=before.width,
                kernel=self.kernel,
                stride=self.stride,
                norm=self.norm,
                bias=self.bias,
                positions=self.positions,
                cls=self.cls,
            ),
            stages=(),
        )

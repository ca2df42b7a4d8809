"""Stages of a model behind its first layers: patches of a grid are merged, and wider layers follow."""

from dataclasses import replace
from typing import Literal

from tfm.catalogue.options.inputs import Merging
from tfm.options.choices import MAX_LAYERS, MAX_WIDTH, check_fields, check_maximum, check_minimum, frozen
from tfm.options.model import M


@frozen
class Stage:
    """A stage that reads the grid of the stage before it, two rows and two columns of which become one.

    Raises ValueError for values outside their range.

    layers: number of blocks
    width: size of the residual stream; none: twice that of the stage before
    heads: query heads; none: twice as many as the stage before has
    kernel: side of the square of patches that become one; more than 2: squares overlap
    norm: merged | first | last: normalize merged patches, patches before that, or what merged patches are mapped to
    bias: add a bias in that map
    """

    layers: int = 2
    width: int | None = None
    heads: int | None = None
    kernel: int = 2
    norm: Literal["merged", "first", "last"] = "merged"
    bias: bool = False

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, layers=1, width=1, heads=1, kernel=2)
        check_maximum(self, "no model is as large", layers=MAX_LAYERS, width=MAX_WIDTH, heads=MAX_WIDTH, kernel=64)

    def config(self, before: M) -> M:
        """The configuration of this stage behind another one.

        The feed-forward layer, key/value heads, and all that has no field here grow as width and heads do, or stay.
        Raises ValueError for a stage before it without a grid.
        """
        grid = before.grid
        if grid is None:
            raise ValueError(
                f"a stage merges patches of a grid, and input={before.input.name} has none, or a vector beside it; "
                "take input=patches, without input.cls"
            )
        width, heads = self.width or 2 * before.width, self.heads or 2 * before.heads
        return replace(
            before,
            layers=self.layers,
            width=width,
            heads=heads,
            kv_heads=None if before.kv_heads is None else max(1, before.kv_heads * heads // before.heads),
            ffn=None if before.ffn is None else before.ffn * width // before.width,
            input=Merging(
                rows=grid[0],
                columns=grid[1],
                width=before.width,
                kernel=self.kernel,
                norm=self.norm,
                bias=self.bias,
            ),
            stages=(),
        )

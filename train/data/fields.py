"""The fields of a batch, declared once by a task: axes in letters, and dtypes."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Field(NamedTuple):
    """One field of a batch.

    axes: a letter of `tfm.AXES` for every axis, B first; lower-case letters are axes of its own, whole on every device
    dtype: numpy's type of its numbers
    sizes: the size of every letter but B and T
    counts_tokens: its places are the tokens of the batch, for estimates of speed and memory
    rows: the rows of an example, where each of its texts may need one
    row_tokens: the tokens that the model makes of a row, where they are not its places: the patches of a picture
    weighs: it says how much a target or a row counts in the loss; 0 is not at all. A task's first such field is that
        of its targets; more fields of these axes are those of more targets
    order: of weights of targets that follow one another: the field of the tokens that they are written into, and 1
        where the model writes them from left to right, -1 where from right to left
    predicts: of targets that are classes: the letter of the axis whose size is the count of classes
    """

    axes: str
    dtype: type
    sizes: Mapping[str, int] = MappingProxyType({})
    counts_tokens: bool = False
    weighs: bool = False
    order: tuple[str, int] | None = None
    predicts: str = ""
    row_tokens: int | None = None
    rows: int = 1

    def shape(self, rows: int, length: int) -> tuple[int, ...]:
        """The shape in a batch of `rows` rows, or examples, of `length` places."""
        sizes = {"B": rows * self.rows, "T": length, **self.sizes}
        return tuple(sizes[letter] for letter in self.axes)

    def tokens(self, places: float) -> float:
        """The tokens in `places` places of this field."""
        return places if self.row_tokens is None else places * self.row_tokens / math.prod(self.sizes.values())


BatchSpec = Mapping[str, Field]

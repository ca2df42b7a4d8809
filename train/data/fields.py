"""The fields of a batch, declared once by a task: axes in letters, and dtypes."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Field(NamedTuple):
    """One field of a batch.

    axes: a letter of `tfm.AXES` for every axis, B first; lower-case letters are axes of its own, whole on every device
    dtype: numpy's type of its numbers
    sizes: the size of every letter but B and T
    counts_tokens: its places are the tokens of the batch, for estimates of speed and memory
    weighs: it says how much a target or a row counts in the loss; 0 is not at all. A task's first such field is that
        of its targets
    predicts: of targets that are classes: the letter of the axis whose size is the count of classes
    """

    axes: str
    dtype: type
    sizes: Mapping[str, int] = MappingProxyType({})
    counts_tokens: bool = False
    weighs: bool = False
    predicts: str = ""

    def shape(self, rows: int, length: int) -> tuple[int, ...]:
        """The shape in a batch of `rows` rows of `length` places."""
        sizes = {"B": rows, "T": length, **self.sizes}
        return tuple(sizes[letter] for letter in self.axes)


BatchSpec = Mapping[str, Field]

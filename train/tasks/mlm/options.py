"""The options of masked language modelling."""

from typing import ClassVar, Literal

from tfm.options.choices import check_fields, frozen, tag
from train.settings.task_options import TaskOptions


@frozen
class Mlm(TaskOptions):
    """Masked language modelling (Devlin et al. 2018).

    rate: fraction of tokens to predict; of them 80 % are masked, 10 % replaced, 10 % kept
    whole_words: hide words, not pieces of them
    nsp: also predict whether two sentences follow each other; every row is such a pair
    """

    needs_both_sides: ClassVar[bool] = True

    name: Literal["mlm"] = tag("mlm")
    rate: float = 0.15
    whole_words: bool = False
    nsp: bool = False

    def __post_init__(self):
        check_fields(self)
        if not 0 < self.rate < 1:
            raise ValueError(f"rate={self.rate} must be between 0 and 1; BERT uses 0.15")

"""The options of masked diffusion."""

from typing import ClassVar, Literal

from tfm.options.choices import check_fields, check_maximum, check_minimum, frozen, tag
from train.settings.task_options import TaskOptions


@frozen
class Diffuse(TaskOptions):
    """Masked diffusion: text of which any share is masked (MDLM: Sahoo et al. 2024; LLaDA: Nie et al. 2025).

    times: counts | spread | random: masked tokens of a row: as many as a number between 1 and all of them says, or each
        with a probability t; numbers and t are evenly spread over the rows of a batch, or with random they are not
    draws: masks of a validation row, whose mean is the bound
    """

    inputs: ClassVar[tuple[str, ...]] = ("tokens",)
    needs_both_sides: ClassVar[bool] = True

    name: Literal["diffuse"] = tag("diffuse")
    times: Literal["counts", "spread", "random"] = "counts"
    draws: int = 1

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, draws=1)
        check_maximum(self, "an evaluation would not end", draws=10_000)

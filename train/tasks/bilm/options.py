"""The options of language modelling in both directions."""

from typing import Literal

from tfm.catalogue.options.reading import check_halves
from tfm.options.choices import check_fields, check_maximum, check_minimum, frozen, tag
from train.settings.schema import Run
from train.settings.task_options import TaskOptions, check_model


@frozen
class Bilm(TaskOptions):
    """Language modelling in both directions at once (ELMo: Peters et al. 2018).

    sampled: in training, tokens that a target is compared with, drawn for every batch; none: all
    """

    name: Literal["bilm"] = tag("bilm")
    sampled: int | None = None

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, sampled=1)
        check_maximum(self, "no vocabulary is as large", sampled=1 << 24)

    def check_task(self, run: Run) -> None:
        check_model(check_halves, run.model)

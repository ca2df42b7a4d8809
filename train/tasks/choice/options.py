"""The options of multiple choice."""

from typing import ClassVar, Literal

from tfm.options.choices import check_fields, check_maximum, check_minimum, check_rates, frozen, tag
from train.settings.schema import Run
from train.settings.task_options import TaskOptions, check_focal, check_generative


@frozen
class Choice(TaskOptions):
    """One of several continuations of a text (Zellers et al. 2018; Devlin et al. 2018, section 4.4).

    choices: continuations of a row at most, as the data have; rows with fewer are padded
    smoothing: probability that is divided among the continuations of a row in training (Szegedy et al. 2016)
    focal: exponent by which rows that are right count less in training (Lin et al. 2017, gamma); 0: not
    generative: factor of the loss of the next tokens, which training adds; 0.5 in Radford et al. 2018; 0: none
    """

    has_buckets: ClassVar[bool] = True

    name: Literal["choice"] = tag("choice")
    choices: int = 4
    smoothing: float = 0.0
    focal: float = 0.0
    generative: float = 0.0

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, choices=2)
        check_maximum(self, "a row is a text for each of them", choices=1000)
        check_rates(self, "smoothing", usual="0.1 is usual")
        check_focal(self.focal)

    def check_task(self, run: Run) -> None:
        check_generative(self.generative, run.model)

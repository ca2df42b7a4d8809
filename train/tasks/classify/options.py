"""The options of classification of texts."""

from typing import ClassVar, Literal

from tfm.options.choices import check_fields, check_rates, frozen, tag
from train.settings.schema import Run
from train.settings.task_options import TaskOptions, check_focal, check_generative, parsed_weights


@frozen
class Classify(TaskOptions):
    """Classes or a number for a sentence or a pair of sentences (Devlin et al. 2018, section 4.1).

    kind: single | multi | regression: one class a text, any number of them, or a number
    class_weights: none | balanced (the inverse of their frequency) | w1,w2,...: weights of the classes in training
    smoothing: probability that is divided among all classes in training (Szegedy et al. 2016)
    focal: exponent by which texts that are classified well count less in training (Lin et al. 2017, gamma); 0: not
    pairs: joined | both_ways | apart: both texts of a pair stand in a row; in both orders, whose logits are added
        (Radford et al. 2018, section 3.3); or by themselves, and classes read u, v, |u - v| and u v of their vectors
        (Conneau et al. 2017, section 3.1)
    generative: factor of the loss of the next tokens, which training adds; 0.5 in Radford et al. 2018; 0: none
    """

    has_buckets: ClassVar[bool] = True

    name: Literal["classify"] = tag("classify")
    kind: Literal["single", "multi", "regression"] = "single"
    class_weights: str = "none"
    smoothing: float = 0.0
    focal: float = 0.0
    pairs: Literal["joined", "both_ways", "apart"] = "joined"
    generative: float = 0.0

    def __post_init__(self):
        check_fields(self)
        check_rates(self, "smoothing", usual="0.1 is usual")
        check_focal(self.focal)
        weights = parsed_weights(self.class_weights)
        if weights is not None and self.kind != "single":
            raise ValueError(f"class_weights={self.class_weights} are of kind=single; leave one of them out")
        for name in ("smoothing", "focal"):
            if getattr(self, name) and self.kind == "regression":
                raise ValueError(f"{name}={getattr(self, name)} is for classes, not for kind=regression; leave it out")

    def check_task(self, run: Run) -> None:
        check_generative(self.generative, run.model)
        if run.teacher.folder and self.kind != "single":
            raise ValueError(f"task.kind={self.kind} learns from labels alone; a teacher is for task.kind=single")

"""The forerunners of BERT: options of Skip-Thought and of bidirectional language models."""

from dataclasses import dataclass
from typing import Any, Literal

from tfm.catalogue.options.reading import check_halves, conditioned
from tfm.options.choices import check_fields, check_maximum, check_minimum, tag
from train.settings.task_options import TaskOptions, check_model


@dataclass(frozen=True)
class SkipThought(TaskOptions):
    """Vectors of sentences that predict the sentences before and after (Skip-Thought: Kiros et al. 2015).

    shuffled: in evaluation, decoders also read the vector of a random sentence, the baseline of a vector that says
        nothing
    """

    name: Literal["skipthought"] = tag("skipthought")
    shuffled: bool = True

    def check(self, run: Any) -> None:
        for kind in run.model.kinds:
            conditioned(kind.mixer)  # raises ValueError for layers that read no vector
        if not run.model.tie_embeddings:
            raise ValueError(
                "model.tie_embeddings=false gives outputs a table of their own, and task=skipthought shares that of "
                "tokens; leave it out"
            )


@dataclass(frozen=True)
class Bilm(TaskOptions):
    """Language modelling in both directions at once (ELMo: Peters et al. 2018).

    sampled: in training, a target is compared with so many tokens, drawn for every batch; none: with all
    """

    name: Literal["bilm"] = tag("bilm")
    sampled: int | None = None

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, sampled=1)
        check_maximum(self, "no vocabulary is as large", sampled=1 << 24)

    def check(self, run: Any) -> None:
        check_model(check_halves, run.model)

"""The options of Skip-Thought."""

from typing import Literal

from tfm.catalogue.options.reading import conditioned
from tfm.options.choices import frozen, tag
from train.settings.schema import Run
from train.settings.task_options import TaskOptions


@frozen
class SkipThought(TaskOptions):
    """Vectors of sentences that predict the sentences before and after (Skip-Thought: Kiros et al. 2015).

    shuffled: in evaluation, decoders also read the vector of a random sentence, the baseline of a vector that says
        nothing
    """

    name: Literal["skipthought"] = tag("skipthought")
    shuffled: bool = True

    def check_task(self, run: Run) -> None:
        for kind in run.model.kinds:
            conditioned(kind.mixer)  # raises ValueError for layers that read no vector
        if not run.model.tie_embeddings:
            raise ValueError(
                "model.tie_embeddings=false gives outputs a table of their own, and task=skipthought shares that of "
                "tokens; leave it out"
            )

"""The options of late interaction."""

from typing import Literal

from tfm.options.choices import check_fields, check_maximum, check_minimum, frozen, tag
from train.settings.schema import Run
from train.settings.task_options import TaskOptions


@frozen
class Late(TaskOptions):
    """A vector of each token; a passage is scored by the sum, over the tokens of a query, of the largest cosine with a
    token of it (Khattab & Zaharia 2020): late interaction.

    --data.field names a query, the passage that answers it, and passages that do not, of which any may be blank. All
    passages of a batch are wrong but the right one. --batch.accumulate=N encodes a batch in N parts.

    size: numbers of a vector
    query_length: tokens of a query, to which shorter ones are filled up with [MASK], which score; 0: none are
    cut_queries: whether longer ones are cut at that length
    skip_punctuation: whether the punctuation of passages has no vectors
    temperature: of the softmax over scores
    query_prompt: a text before all queries
    passage_prompt: a text before all passages
    """

    name: Literal["late"] = tag("late")
    size: int = 128
    query_length: int = 32
    cut_queries: bool = False
    skip_punctuation: bool = True
    temperature: float = 1.0
    query_prompt: str = ""
    passage_prompt: str = ""

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, size=1, query_length=0)
        check_maximum(self, "no encoder is as wide", size=1 << 16)
        check_maximum(self, "all passages would be equally near", temperature=1000)
        if self.cut_queries and self.query_length < 3:
            raise ValueError(f"cut_queries=true leaves no token of a query_length={self.query_length}; raise it")
        if not self.temperature >= 0.001:
            raise ValueError(f"temperature={self.temperature} must be at least 0.001; 1 is usual")

    def check_task(self, run: Run) -> None:
        if run.batch.size < 2:
            raise ValueError(f"batch.size={run.batch.size} leaves no other passage to tell apart; raise it")
        if "," not in run.data.field:
            raise ValueError(
                f"data.field={run.data.field} must name a query and a passage, such as --data.field=query,passage"
            )
        if self.query_length > run.batch.length:
            raise ValueError(
                f"task.query_length={self.query_length} must be at most batch.length={run.batch.length}; lower it"
            )
        if run.model.head.causal:
            raise ValueError("model.head.causal=true reads from left to right, and no token of a query sees all of it")

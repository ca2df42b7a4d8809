"""The options of ranking by a model that reads a query and a passage together."""

from typing import ClassVar, Literal

from tfm.options.choices import check_fields, check_maximum, check_minimum, frozen, tag
from train.settings.schema import Run
from train.settings.task_options import TaskOptions


@frozen
class Rank(TaskOptions):
    """A score for a query with a passage, which are read together (Nogueira & Cho 2019): a cross-encoder.

    --data.field names a query and a passage, whose grade is in --data.label; or a query, a passage that answers it, and
    passages that do not, of which any may be blank.

    kind: bce | softmax | listnet | lambda: the cross-entropy of every grade, from 0 to 1, by itself; of the softmax of
        scores and the shares of grades, or the softmax of grades (Cao et al. 2007); or a bound of nDCG (Wang et al.
        2018)
    graded: whether --data.label has a grade for each passage, as a list or with blanks between; none: of a pair alone
    scale: what grades are divided by; those of STS need 5
    drawn: passages drawn from other rows, which stand beside those of a row and count as wrong
    activation: sigmoid | identity: of the scores that commands print
    """

    has_buckets: ClassVar[bool] = True

    # How both texts stand in a row, as `train.tasks.classify.options` says.
    pairs: ClassVar[str] = "joined"

    name: Literal["rank"] = tag("rank")
    kind: Literal["bce", "softmax", "listnet", "lambda"] = "bce"
    graded: bool | None = None
    scale: float = 1.0
    drawn: int = 0
    activation: Literal["sigmoid", "identity"] = "sigmoid"

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, drawn=0)
        check_maximum(self, "a row is a text for each of them", drawn=1000)
        check_maximum(self, "no grade is as large", scale=1e9)
        if not self.scale > 0:
            raise ValueError(f"scale={self.scale} must be more than 0, the best grade that a passage can have")

    def check_task(self, run: Run) -> None:
        columns = run.data.field.split(",")
        if len(columns) < 2:
            raise ValueError(
                f"data.field={run.data.field} must name a query and a passage, such as --data.field=query,passage"
            )
        candidates = self.candidates(run.data.field)
        if candidates < 2 and self.kind != "bce":
            raise ValueError(
                f"task.kind={self.kind} compares the passages of a row, and data.field={run.data.field} has one; name "
                "more, or say --task.drawn=4"
            )
        if candidates < 2 and not self.is_graded(run.data.field):
            raise ValueError(
                f"task.graded=false leaves one right passage a row in data.field={run.data.field}; name wrong ones, or "
                "say --task.drawn=4"
            )
        if candidates < 2 and run.teacher.folder:
            raise ValueError(
                f"data.field={run.data.field} has a passage a row, and a teacher ranks several; name more, or leave "
                "--teacher out"
            )

    def candidates(self, field: str) -> int:
        """The passages of a row, at most."""
        return field.count(",") + self.drawn

    def is_graded(self, field: str) -> bool:
        """Whether rows have grades of their own."""
        return self.candidates(field) < 2 if self.graded is None else self.graded

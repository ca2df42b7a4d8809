"""The options of contrastive training."""

from typing import ClassVar, Literal

from tfm.options.choices import check_fields, check_maximum, check_minimum, frozen, tag
from train.settings.images import Augment, Pixels
from train.settings.schema import Run
from train.settings.task_options import TaskOptions

# The kinds in which a pair has a score, in which a teacher scores all candidates, and those with a temperature.
PAIR_SCORES, TAUGHT, TEMPERED = ("scores", "cosent"), ("margin", "kl"), ("pairs", "cosent", "kl")


@frozen
class Contrast(TaskOptions):
    """Vectors of texts: near for texts that belong together, far for all others of a batch (Gao et al. 2021).

    With --model.images a row is a picture and its caption, with a vector each (Radford et al. 2021): --data.field names
    the column of pictures, and --data.label that of captions. Else --data.field names one column (a text meets itself
    under another dropout), two (texts that belong together), or more (a third text that does not belong to the first,
    and so on). --batch.accumulate=N encodes a batch in N parts.

    kind: pairs | scores | cosent | margin | kl: in-batch negatives; the cosine of two texts is to be their score
        (--data.label), or to have the order of scores (Su 2022); or differences of cosines are to be those of a
        teacher's scores of all candidates (Hofstätter et al. 2020), or their softmax that of these
    temperature: of the softmax over cosines
    scale: what scores are divided by, so that they are at most 1, as cosines are; those of STS need 5
    both_ways: whether right candidates also look for their queries in the batch
    sizes: such as 128,64,32: the first numbers of a vector are to be a vector, too (Kusupati et al. 2022)
    quantize: none | int8 | binary: vectors are compared as an index would keep them, in steps of 1/127 of their largest
        number or by signs alone, and gradients pass (Bengio et al. 2013)
    query_prompt: a text before all of the first column
    passage_prompt: a text before all of the other columns
    candidates: validation texts among which the right one is looked for; none: all of them
    pixels: how a picture becomes pixels
    augment: random changes of training pictures
    """

    reads_captions: ClassVar[bool] = True

    name: Literal["contrast"] = tag("contrast")
    kind: Literal["pairs", "scores", "cosent", "margin", "kl"] = "pairs"
    temperature: float = 0.05
    scale: float = 1.0
    both_ways: bool = False
    sizes: str = ""
    quantize: Literal["none", "int8", "binary"] = "none"
    query_prompt: str = ""
    passage_prompt: str = ""
    candidates: int | None = None
    pixels: Pixels = Pixels()
    augment: Augment = Augment()

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, candidates=2)
        check_maximum(self, "all texts would be equally near", temperature=1000)
        check_maximum(self, "no score is as large", scale=1e9)
        if not self.temperature >= 0.001:
            raise ValueError(f"temperature={self.temperature} must be at least 0.001; 0.05 is usual")
        if not self.scale > 0:
            raise ValueError(f"scale={self.scale} must be more than 0, the best score that two texts can have")
        if self.scale != 1 and self.kind in ("pairs", "cosent"):
            raise ValueError(f"scale={self.scale} is of kind=scores; leave it out")
        if self.both_ways and self.kind != "pairs":
            raise ValueError(f"both_ways=true is of kind=pairs, and this is kind={self.kind}; leave it out")
        if self.sizes and not self.first_numbers:
            raise ValueError(f"sizes={self.sizes} must be whole numbers with commas between, such as 128,64,32")

    @property
    def first_numbers(self) -> tuple[int, ...]:
        """The sizes as numbers; none where they are not that."""
        words = [word.strip() for word in self.sizes.split(",")]
        is_valid = all(word.isdecimal() and 0 < int(word) < 1 << 30 for word in words)
        return tuple(map(int, words)) if is_valid else ()

    @property
    def prompts(self) -> dict[str, str]:
        """Prompts by the names that sentence-transformers has for them; none where neither is set."""
        prompts = {"query": self.query_prompt, "document": self.passage_prompt}
        return prompts if any(prompts.values()) else {}

    def check_task(self, run: Run) -> None:
        if run.batch.size < 2 and self.kind == "pairs":
            raise ValueError(f"batch.size={run.batch.size} leaves no other text to tell apart; raise it")
        if run.model.images is None:
            self._check_texts(run)
        else:
            self._check_captions(run)

    def _check_texts(self, run: Run):
        """Raises ValueError for a run that texts alone cannot have."""
        if self.pixels != Pixels() or self.augment != Augment():
            raise ValueError(
                "task.pixels and task.augment are for models of pictures and captions; say --preset=clip-tiny, or "
                "leave them out"
            )
        columns = run.data.field.split(",")
        if self.kind in PAIR_SCORES and len(columns) != 2:
            raise ValueError(f"data.field={run.data.field} must name two columns with task.kind={self.kind}")
        if self.kind in TAUGHT and len(columns) < 3:
            raise ValueError(
                f"data.field={run.data.field} must name a query and two candidates or more with task.kind={self.kind}"
            )
        if self.both_ways and len(columns) < 2:
            raise ValueError(f"data.field={run.data.field} must name two columns with task.both-ways=true")
        if max(self.first_numbers, default=0) > run.model.width:
            raise ValueError(f"task.sizes={self.sizes} must be at most model.width={run.model.width}")
        if len(columns) == 1 and not run.has_dropout:
            raise ValueError(
                f"data.field={run.data.field} is one column, whose texts meet themselves under another dropout: add "
                "--model.dropout=0.1, or name two columns"
            )

    def _check_captions(self, run: Run):
        """Raises ValueError for a run that pictures with captions cannot have."""
        if "," in run.data.field:
            image, caption = run.data.field.split(",", 1)
            raise ValueError(
                f"data.field={run.data.field} must name the column of pictures alone; say --data.field={image} "
                f"--data.label={caption}"
            )
        for name in ("kind", "both_ways", "sizes", "quantize", "query_prompt", "passage_prompt"):
            value = getattr(self, name)
            if value != getattr(type(self), name):
                raise ValueError(f"task.{name}={value} is for texts alone; leave it out with model.images")
        if self.temperature != type(self).temperature:
            raise ValueError(
                f"task.temperature={self.temperature} is for texts alone; with model.images it is a parameter, which "
                "is trained"
            )
        images = run.model.images
        if images is not None and images.reads_padding and run.batch.length != run.model.length:
            raise ValueError(
                f"batch.length={run.batch.length} must be model.length={run.model.length}: "
                "model.images.reads_padding=true reads captions with their padding"
            )
        if self.augment.mixes:
            raise ValueError("task.augment.mixup and cutmix mix classes, and captions do not mix; leave them out")

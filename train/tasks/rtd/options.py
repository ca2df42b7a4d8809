"""The options of replaced-token detection."""

from typing import ClassVar, Literal

from tfm.catalogue.options.generator import GeneratorShape
from tfm.config.model import MAX_SIZES
from tfm.options.choices import check_fields, check_maximum, check_minimum, frozen, tag
from tfm.options.errors import nearest_divisor
from train.settings.schema import Run
from train.settings.task_options import TaskOptions


@frozen
class Rtd(TaskOptions):
    """Replaced-token detection: a generator fills masks, the model says which tokens it replaced (Clark et al. 2020).

    rate: share of tokens that are masked
    masking: electra | windows: any tokens, 85 % masked and 15 % kept; or a token of every 1 / rate in a row, all masked
        (DeBERTa-v3)
    weight: of the discriminator's loss; that of the generator has 1
    embeddings: shared | offset: both train the tables; or the generator does, and the model an offset of them
        (DeBERTa-v3: He et al. 2023, section 3.2)
    generator_width: width of the generator; none: a quarter of that of the model
    generator_layers: its layers; none: as many as the model
    """

    inputs: ClassVar[tuple[str, ...]] = ("tokens",)
    needs_both_sides: ClassVar[bool] = True

    name: Literal["rtd"] = tag("rtd")
    rate: float = 0.15
    masking: Literal["electra", "windows"] = "electra"
    weight: float = 50.0
    embeddings: Literal["shared", "offset"] = "shared"
    generator_width: int | None = None
    generator_layers: int | None = None

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, generator_width=1, generator_layers=1, weight=0)
        check_maximum(self, "the generator would not learn", weight=1e6)
        check_maximum(self, "no model is as large", generator_layers=MAX_SIZES["layers"])
        if not 0 < self.rate < 1:
            raise ValueError(f"rate={self.rate} must be more than 0 and less than 1; ELECTRA has 0.15")

    def check_task(self, run: Run) -> None:
        width, model = self.generator_width, run.model
        if width is not None and width > model.width:
            raise ValueError(
                f"task.generator_width={width} is wider than the discriminator, model.width={model.width}; ELECTRA's "
                f"generator has a quarter, {max(1, model.width // 4)}"
            )
        if self.embeddings == "offset" and run.tune.name != "all":
            raise ValueError(
                f"task.embeddings=offset trains tables of embeddings, and tune={run.tune.name} does not; leave "
                "one of them out"
            )

    def generator(self, run: Run) -> GeneratorShape:
        """The shape of the generator of a run: heads of 64 features, or those of a model as wide."""
        width = self.generator_width or max(1, run.model.width // 4)
        heads = run.model.heads if width == run.model.width else nearest_divisor(max(1, width // 64), width)
        return GeneratorShape(self.generator_layers or run.model.layers, width, heads)

"""What the options of all tasks have."""

from collections.abc import Callable
from typing import Any, ClassVar

from tfm.catalogue.options.inputs import PictureOptions
from tfm.config.model import Config
from tfm.options.choices import Options, alternatives, type_hints

# What models read pictures as, the usual input first.
PICTURE_INPUTS = tuple(
    name for name, cls in alternatives(type_hints(Config)["input"]).items() if issubclass(cls, PictureOptions)
)


class TaskOptions(Options):
    """The options of one task; `check_run` judges the whole run."""

    # Whether batches may have a size in tokens, --batch.tokens at most.
    has_buckets: ClassVar[bool] = False

    # Tokens of the rows before whose states every layer sees; None where a row is a text of its own.
    memory: ClassVar[int | None] = None

    # Whether the model is a decoder, whose tokens see those before them alone.
    is_causal: ClassVar[bool] = False

    # Whether a token is predicted from those before and behind it, which a causal model cannot do.
    needs_both_sides: ClassVar[bool] = False

    # Whether rows are pictures, not texts.
    reads_pictures: ClassVar[bool] = False

    # Whether they are pictures with captions, where the model has a tower for each.
    reads_captions: ClassVar[bool] = False

    # What the model may read them as (--model.input), the usual one first.
    inputs: ClassVar[tuple[str, ...]] = ("tokens", "characters")

    # What the encoder of its translation model may read in place of texts (--model.encoder.input).
    sources: ClassVar[tuple[str, ...]] = ()

    @property
    def vocab(self) -> int | None:
        """Tokens of the model, where the options say and no tokenizer does."""
        return None

    def check_run(self, run: Any) -> None:
        """Raises ValueError for a run that this task cannot have."""
        if run.model.input.name not in self.inputs:
            rows = "pictures" if self.reads_pictures else "texts"
            raise ValueError(
                f"model.input={run.model.input.name} does not read the {rows} of task={self.name}; say "
                f"--model.input={self.inputs[0]}"
            )
        source = run.model.encoder.input
        if source is not None and source.name not in self.sources:
            raise ValueError(
                f"model.encoder.input={source.name} is not for task={self.name}; "
                f"{f'say {self.sources[0]}' if self.sources else 'leave it out'}"
            )
        if run.model.images is not None and not self.reads_captions:
            raise ValueError(
                f"model.images={run.model.images.name} reads pictures beside texts, and task={self.name} does not; say "
                "--task=contrast, or leave it out"
            )
        if self.needs_both_sides and run.model.head.causal:
            origin = f"init={run.init} is a model that" if run.init else "model.head.causal=true"
            raise ValueError(
                f"{origin} reads from left to right, and task={self.name} predicts tokens from both sides; start from "
                "an encoder"
            )
        self.check_task(run)

    def check_task(self, run: Any) -> None:
        """Raises ValueError for what this task alone refuses."""


def check_model(check: Callable[[Any], None], model: Any) -> None:
    """Raises ValueError where a check of models does, with the name that flags of the model have."""
    try:
        check(model)
    except ValueError as error:
        raise ValueError(f"model.{error}") from error


def parsed_weights(text: str) -> str | list[float] | None:
    """`none`, `balanced` or `w1,w2,...` -> None, "balanced" or the weights. Raises ValueError for anything else."""
    if text in ("none", "balanced"):
        return None if text == "none" else text
    try:
        weights = [float(word) for word in text.split(",")]
    except ValueError:
        weights = []
    if not weights or min(weights) < 0 or not 0 < sum(weights) < 1e6:
        raise ValueError(f"class_weights={text} must be none, balanced, or a number for each class, such as 1,2.5")
    return weights


def check_generative(factor: float, model: Config) -> None:
    """Raises ValueError for a loss of next tokens that a classifier cannot have beside its classes."""
    if not factor:
        return
    if not 0 < factor <= 1000:
        raise ValueError(f"task.generative={factor} must be more than 0 and at most 1000; the paper has 0.5")
    if "V" not in model.sizes:
        raise ValueError(
            f"task.generative={factor} predicts tokens, and model.input={model.input.name} has none; leave it out"
        )
    if not model.head.causal:
        raise ValueError(
            f"task.generative={factor} needs a model that reads from left to right; add --model.head.causal=true "
            "--model.head.pool=last"
        )
    if model.head.features != "last" or model.head.layer is not None or model.embed_axis != "D":
        raise ValueError(
            f"task.generative={factor} reads the last layer by a table of its width; leave out model.head.features, "
            "model.head.layer and model.input.width"
        )


def check_focal(focal: float) -> None:
    """Raises ValueError for an exponent that no focal loss has."""
    if focal < 0:
        raise ValueError(f"focal={focal} must not be negative; the paper has 2")
    if not focal <= 1000:
        raise ValueError(f"focal={focal} must be at most 1000: the loss of every row would vanish")


def check_cells(cells: int, model: Config) -> None:
    """Raises ValueError for parts of a patch that are less than a pixel, and for a model that reads left to right."""
    grid = model.stage_configs[-1 if model.head.decoder_width is None else 0].input.grid
    assert grid is not None, "a model of patches"
    side = getattr(model.input, "pixels", grid)[0] // grid[0]
    if cells > side:
        raise ValueError(f"task.cells={cells} must be at most {side}, the side of a patch in pixels")
    if model.head.causal:
        raise ValueError("model.head.causal=true reads from left to right, and pictures have no order; leave it out")

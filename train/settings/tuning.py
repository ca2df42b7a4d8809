"""What of a model is trained: the catalogue of --tune."""

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tfm.options.choices import Options, check_fields, check_maximum, check_minimum, check_rates, frozen, tag


class TuneOptions(Options):
    """What of a model is trained; heads always are."""

    # What trains beside heads: "embeddings", "layers", "biases"; low-rank updates where there are any.
    trains: ClassVar[tuple[str, ...]] = ()
    dropout: float = 0.0

    @property
    def top_layers(self) -> int | None:
        """How many layers train, counted from the head; None for all."""
        return None


@frozen
class All(TuneOptions):
    """Every parameter, or those of the top layers.

    top: layers that train, counted from the head; embeddings and lower layers stay as they are; none: everything trains
    """

    name: Literal["all"] = tag("all")
    top: int | None = None

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, top=1)

    @property
    def top_layers(self) -> int | None:
        """How many layers train, counted from the head; None for all."""
        return self.top

    @property
    def trains(self) -> tuple[str, ...]:  # type: ignore[override]
        """What trains beside heads."""
        return ("layers",) if self.top else ("embeddings", "layers")


@frozen
class HeadOnly(TuneOptions):
    """The head alone; the encoder stays as it is."""

    name: Literal["head"] = tag("head")


@frozen
class Biases(TuneOptions):
    """The biases and the head (Ben Zaken et al. 2021)."""

    trains: ClassVar[tuple[str, ...]] = ("biases",)

    name: Literal["bias"] = tag("bias")


@frozen
class Lora(TuneOptions):
    """Low-rank updates of the kernels of layers, and the head (Hu et al. 2021).

    rank: of the updates
    alpha: updates are scaled by alpha / rank
    targets: the kernels, joined by commas: query, key, value, output, up, down, gate | all of these; the table
        of tokens is called tokens, and no part of all
    dropout: of what the updates read
    stabilized: scale by alpha / sqrt(rank) (Kalajdzievski 2023)
    """

    name: Literal["lora"] = tag("lora")
    rank: int = 8
    alpha: float = 16.0
    targets: str = "query,value"
    dropout: float = 0.0
    stabilized: bool = False

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, rank=1)
        check_maximum(self, "no model is as large", rank=1 << 20, alpha=1e6)
        if not self.alpha > 0:
            raise ValueError(f"alpha={self.alpha} must be more than 0; twice the rank is usual")
        check_rates(self, "dropout")
        if not all(self.targets.split(",")):
            raise ValueError(f"targets={self.targets!r} must be names of kernels, joined by commas, or all")

    @property
    def scale(self) -> float:
        """What updates are multiplied by."""
        return self.alpha / (self.rank**0.5 if self.stabilized else self.rank)


# A run has the options of its own choice.
if TYPE_CHECKING:
    Tune = Any
else:
    Tune = All | HeadOnly | Biases | Lora

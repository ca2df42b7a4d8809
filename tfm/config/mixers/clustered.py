"""The catalogue of mixers that learn or draw which tokens attend to each other."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tfm.config.choices import MAX_LENGTH, Options, check_fields, check_maximum, check_minimum, check_rates, tag


@dataclass(frozen=True)
class Reformer(Options):
    """Attention among tokens with the same hash, in time linear in the length (Kitaev et al. 2020).

    buckets: values of a hash
    rounds: hashes of a token; it sees the tokens that share at least one
    chunk: a token sees the tokens of its bucket in its own chunk of so many, and in the one before
    """

    name: Literal["reformer"] = tag("reformer")
    buckets: int = 32
    rounds: int = 2
    chunk: int = 64

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, buckets=2, rounds=1, chunk=1)
        check_maximum(self, "no model is as large", buckets=1 << 20, rounds=1 << 10, chunk=MAX_LENGTH)
        if self.buckets % 2:
            raise ValueError(f"buckets={self.buckets} must be even; try buckets={self.buckets + 1}")


@dataclass(frozen=True)
class Routing(Options):
    """Attention among tokens of the same cluster, in time linear in the length (Roy et al. 2021).

    clusters: centroids of a head
    chunk: a token sees the tokens of its cluster in its own chunk of so many, and in the one before
    momentum: of the moving averages that centroids are
    """

    name: Literal["routing"] = tag("routing")
    clusters: int = 16
    chunk: int = 64
    momentum: float = 0.999

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, clusters=1, chunk=1)
        check_maximum(self, "no model is as large", clusters=1 << 20, chunk=MAX_LENGTH)
        check_rates(self, "momentum", usual="0.999 is usual")


@dataclass(frozen=True)
class Sinkhorn(Options):
    """A block of tokens attends to itself and to a mixture of blocks that the model learns to choose (Tay et al. 2020).

    block: tokens of a block
    iterations: normalizations of the rows and columns of the mixtures
    temperature: lower ones give mixtures of fewer blocks
    """

    name: Literal["sinkhorn"] = tag("sinkhorn")
    reads_packed: ClassVar[bool] = False
    block: int = 64
    iterations: int = 8
    temperature: float = 0.75

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, block=1, iterations=0, temperature=1e-3)
        check_maximum(self, "no model is as large", block=MAX_LENGTH, iterations=1 << 10, temperature=1e3)

    def max_length(self, config: Any) -> int | None:  # noqa: D102
        return config.length

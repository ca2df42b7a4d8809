"""Mixers that learn or draw which tokens attend to each other."""

from typing import ClassVar, Literal

from tfm.options.choices import (
    MAX_LENGTH,
    Options,
    check_fields,
    check_maximum,
    check_minimum,
    check_rates,
    frozen,
    tag,
)
from tfm.options.model import ModelConfig


@frozen
class Reformer(Options):
    """Attention among tokens with the same hash, in time linear in the length (Kitaev et al. 2020).

    Folders of transformers set the last four options.

    buckets: values of a hash
    rounds: hashes of a token; it sees the tokens that share at least one
    chunk: tokens of a chunk; a token sees those of its bucket in its own chunk and in the one before
    across: chunks are cut out of all buckets together, as in the paper; what a token sees then depends on later tokens
        and on the length of the row, and one that is generated sees what there is until then
    factor: values of a second hash, with which the first one makes buckets * factor buckets; none: there is one hash
    seed: of the random matrices of all layers, which are then those of torch; none: each layer draws and stores its own
    bias: add biases in attention where the model has biases
    """

    name: Literal["reformer"] = tag("reformer")
    buckets: int = 32
    rounds: int = 2
    chunk: int = 64
    across: bool = False
    factor: int | None = None
    seed: int | None = None
    bias: bool = True

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, buckets=2, rounds=1, chunk=1, factor=2, seed=0)
        check_maximum(self, "no model is as large", buckets=1 << 20, rounds=1 << 10, chunk=MAX_LENGTH, factor=1 << 20)
        check_maximum(self, "torch has no larger seeds of this kind", seed=(1 << 32) - 1)
        for name, size in {"buckets": self.buckets, "factor": self.factor or 2}.items():
            if size % 2:
                raise ValueError(f"{name}={size} must be even; try {name}={size + 1}")

    @property
    def reads_packed(self) -> bool:  # type: ignore[override]
        """Chunks that are cut out of all buckets hold tokens of several texts."""
        return not self.across

    @property
    def sizes(self) -> tuple[int, ...]:
        """The values of each hash."""
        return (self.buckets,) if self.factor is None else (self.buckets, self.factor)


@frozen
class Routing(Options):
    """Attention among tokens of the same cluster, in time linear in the length (Roy et al. 2021).

    clusters: centroids of a head
    chunk: tokens of a chunk; a token sees those of its cluster in its own chunk and in the one before
    momentum: of the moving averages that centroids are
    window: number of nearest tokens that each centroid takes instead, as in the paper; for encoders, with one text a
        row
    """

    name: Literal["routing"] = tag("routing")
    clusters: int = 16
    chunk: int = 64
    momentum: float = 0.999
    window: int | None = None

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, clusters=1, chunk=1, window=1)
        check_maximum(self, "no model is as large", clusters=1 << 20, chunk=MAX_LENGTH, window=MAX_LENGTH)
        check_rates(self, "momentum", usual="0.999 is usual")

    @property
    def reads_packed(self) -> bool:  # type: ignore[override]
        """The nearest tokens are those of a row."""
        return self.window is None


@frozen
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

    def max_length(self, config: ModelConfig) -> int | None:
        return config.length

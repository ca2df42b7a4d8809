"""Residual connections beside `post` and `pre`."""

from dataclasses import replace
from typing import ClassVar, Literal, Self

from tfm.options.choices import Options, check_fields, check_maximum, check_minimum, frozen, tag
from tfm.options.model import ModelConfig
from tfm.options.slots import check_grid, check_layer_scale, check_odd


@frozen
class ResPostNorm(Options):
    """What a sublayer adds is normalized: x + norm(f(x)) (Swin V2: Liu et al. 2022)."""

    name: Literal["res_post"] = tag("res_post")


@frozen
class MixerOnly(Options):
    """Blocks are mixers, without norms and feed-forward layers: f(x), as recurrent networks are stacked.

    skip: x + f(x) (ELMo: Peters et al. 2018, section 3.4)
    """

    name: Literal["mixer_only"] = tag("mixer_only")
    skip: bool = False


@frozen
class Conditional(Options):
    """A depth-wise convolution over the grid of patches is added, which tells where they stand, then as `pre`: before
    each sublayer (Chu et al. 2021; DaViT: Ding et al. 2022).

    kernel: side of the square of patches that a patch reads
    """

    name: Literal["conditional"] = tag("conditional")
    kernel: int = 3

    def __post_init__(self):
        _check_kernel(self)

    def check(self, config: ModelConfig) -> None:
        check_grid(config, "residual", self)


@frozen
class PatchInteraction(Options):
    """As `pre`, and behind the mixer two depth-wise convolutions over the grid of patches, with an activation between
    (XCiT: El-Nouby et al. 2021, section 3.3).

    kernel: side of the square of patches that a patch reads
    layer_scale: where a trained vector starts that scales each branch; none: no vector
    """

    name: Literal["patch_interaction"] = tag("patch_interaction")
    kernel: int = 3
    layer_scale: float | None = None

    def __post_init__(self):
        check_layer_scale(self)
        _check_kernel(self)

    def check(self, config: ModelConfig) -> None:
        check_grid(config, "residual", self)


def _check_kernel(options: Conditional | PatchInteraction) -> None:
    """Raises ValueError for the side of a square that has no middle, or is too large."""
    check_fields(options)
    check_minimum(options, kernel=1)
    check_maximum(options, "every place costs time", kernel=63)
    check_odd(options, "kernel")


@frozen
class Parallel(Options):
    """All sublayers read the same: x + mixer(norm(x)) + feed_forward(norm(x)) (Wang & Komatsuzaki 2021).

    layer_scale: where a trained vector starts that scales each branch; none: no vector (CaiT: Touvron et al. 2021,
        eq. 7)
    """

    name: Literal["parallel"] = tag("parallel")
    layer_scale: float | None = None

    def __post_init__(self):
        check_layer_scale(self)


@frozen
class ReZero(Options):
    """Every block adds a trained multiple of its sublayers, at first 0, and normalizes nothing (Bachlechner et al.
    2021)."""

    name: Literal["rezero"] = tag("rezero")


@frozen
class NoResidual(Options):
    """No sum: norm(f(x)), for comparison alone, as in Dong et al. 2021. It does not train deep models."""

    name: Literal["none"] = tag("none")


@frozen
class TFixup(Options):
    """Sums without norms: values, outputs, feed-forward layers and embeddings start smaller in deeper models, which
    then train without warm-up (Huang et al. 2020)."""

    name: Literal["tfixup"] = tag("tfixup")

    def check(self, config: ModelConfig) -> None:
        if config.input.norm:
            raise ValueError(
                "input.norm=true undoes the scale that residual=tfixup gives to embeddings; try input.norm=false"
            )


@frozen
class DTFixup(Options):
    """Sums without norms: values, outputs and feed-forward layers start smaller where embeddings are larger, as a batch
    has them (Xu et al. 2021)."""

    name: Literal["dtfixup"] = tag("dtfixup")

    def check(self, config: ModelConfig) -> None:
        _check_not_shared(self, config)


@frozen
class Admin(Options):
    """The sum is normalized, the stream in it scaled by a trained vector for each sublayer, which starts from the
    variances of the sublayers before it on a batch (Liu et al. 2020)."""

    name: Literal["admin"] = tag("admin")

    def check(self, config: ModelConfig) -> None:
        _check_not_shared(self, config)


@frozen
class DeepNorm(Options):
    """The sum is normalized, the stream in it scaled by alpha; values, outputs and feed-forward layers start beta times
    as large (Wang et al. 2022).

    alpha: none: as the paper has it for this depth
    beta: none: as the paper has it for this depth
    """

    name: Literal["deepnorm"] = tag("deepnorm")
    alpha: float | None = None
    beta: float | None = None

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, alpha=0, beta=0)
        check_maximum(self, "no model is as deep", alpha=1000, beta=1000)

    def in_encoder(self, config: ModelConfig) -> Self:
        depth = (config.encoder.layers or config.layers) ** 4 * config.layers
        return replace(
            self,
            alpha=0.81 * depth ** (1 / 16) if self.alpha is None else self.alpha,
            beta=0.87 * depth ** (-1 / 16) if self.beta is None else self.beta,
        )


@frozen
class Reversible(Options):
    """Two streams: a sublayer reads one and adds to the other. The backward pass computes what layers have read from
    what they have returned, and stores nothing of them (Gomez et al. 2017; Kitaev et al. 2020, section 3).

    merge: mean | concatenated: what follows the last layer; concatenated streams are twice as wide, for the last norm
        and for heads
    """

    name: Literal["reversible"] = tag("reversible")
    recomputes: ClassVar[bool] = True  # the backward pass computes again what layers have read
    merge: Literal["mean", "concatenated"] = "mean"

    @property
    def streams(self) -> int:
        """Streams that follow the last layer beside one another: two where both are kept."""
        return 2 if self.merge == "concatenated" else 1

    def in_encoder(self, config: ModelConfig) -> Self:
        return replace(self, merge="mean")

    def check(self, config: ModelConfig) -> None:
        if self.streams > 1 and (config.stages or config.head.features != "last" or config.head.layer is not None):
            raise ValueError(
                "residual.merge=concatenated makes the last states wider than all others, so stages, head.features and "
                "head.layer cannot follow; try residual.merge=mean"
            )
        if config.residual != self or any(kind.residual != self for kind in config.kinds):
            raise ValueError("residual=reversible has two streams, which all layers need; give it to the whole model")


def _check_not_shared(options: Options, config: ModelConfig) -> None:
    """Raises ValueError where layers share the block that a batch sets for each of them."""
    if config.share_layers:
        raise ValueError(
            f"share_layers=true has one block for all layers, and residual={options.name} sets each by a batch; "
            "try residual=deepnorm"
        )

"""The optimizer and its schedule, as options."""

from typing import Literal

from tfm.options.choices import check_fields, check_maximum, check_minimum, check_rates, frozen
from train.settings.limits import MAX_STEPS, STEPS


@frozen
class Optim:
    """The optimizer.

    name: adamw | stable_adamw | schedule_free | adafactor | lion | muon | normuon | soap | sgd: two moments, two, one
        and weights, a factored one, one, one for matrices and two for the rest, the same and one of each neuron, two
        and two eigenbases of matrices, or a momentum
    rate: peak learning rate
    warmup: steps of linear warm-up, or their share of all steps where less than 1
    schedule: linear | cosine | 1-sqrt | noam (inverse root) | constant | wsd (stable, then decay): after the warm-up
    cooldown: steps at the end in which wsd decays, or their share of all steps where less than 1
    cooldown_shape: linear | cosine | 1-sqrt: how wsd decays
    final: share of the peak that is left at the end of a decay
    moment_dtype: float32 | bfloat16 | int8: what moments are stored in
    decay: weight decay of matrices
    cautious_decay: elements decay only where the update does not make them larger
    clip: largest global norm of the gradient; none: no limit
    beta1: decay of the first moment; of sgd, its momentum
    nesterov: sgd looks a step ahead
    beta2: decay of the second moment
    eps: added to the root of the second moment
    ema: decay of a moving average of the weights, which is evaluated and used later; none: no average
    layer_decay: rate of a layer over that of the layer above it; none: all learn alike
    base_width: width of the model for which rate and init_std were chosen: they suit this one too (muP: Yang et al.
        2022); none: that of this model
    base_layers: layers of that model (CompleteP: Dey et al. 2025)
    """

    name: Literal["adamw", "stable_adamw", "schedule_free", "adafactor", "lion", "muon", "normuon", "soap", "sgd"] = (
        "adamw"
    )
    rate: float = 1e-3
    warmup: float = 0.1
    schedule: Literal["linear", "cosine", "1-sqrt", "noam", "constant", "wsd"] = "linear"
    cooldown: float = 0.2
    cooldown_shape: Literal["linear", "cosine", "1-sqrt"] = "linear"
    final: float = 0.0
    moment_dtype: Literal["float32", "bfloat16", "int8"] = "float32"
    decay: float = 0.01
    cautious_decay: bool = False
    clip: float | None = 1.0
    beta1: float = 0.9
    nesterov: bool = False
    beta2: float = 0.999
    eps: float = 1e-6
    ema: float | None = None
    layer_decay: float | None = None
    base_width: int | None = None
    base_layers: int | None = None

    def __post_init__(self):
        check_fields(self)
        for name in ("rate", "warmup", "cooldown", "decay", "eps"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} must not be negative")
        check_maximum(self, STEPS, warmup=MAX_STEPS, cooldown=MAX_STEPS)
        check_maximum(self, "an update would be larger than any weight", rate=1e6, decay=1e6, eps=1e6)
        check_rates(self, "beta1", "beta2")
        if not 0 <= self.final <= 1:
            raise ValueError(f"final={self.final} must be at least 0 and at most 1, the peak itself")
        if self.nesterov and self.name != "sgd":
            raise ValueError(f"nesterov=true is an option of name=sgd, not of name={self.name}; leave it out")
        if self.clip is not None and self.clip <= 0:
            raise ValueError(f"clip={self.clip} must be more than 0; for no limit say none")
        if self.layer_decay is not None and not 0 < self.layer_decay <= 1:
            raise ValueError(f"layer_decay={self.layer_decay} must be more than 0 and at most 1; 0.8 is usual")
        if (self.base_width or self.base_layers) and self.name in ("muon", "normuon", "soap", "sgd"):
            raise ValueError(
                "base_width and base_layers are for updates that do not grow with the gradient, element by element, "
                f"and not for name={self.name}; say name=adamw"
            )
        check_minimum(self, base_width=1, base_layers=1)
        if self.name == "schedule_free":
            self._check_schedule_free()
        keeps = {"schedule_free": "weights", "soap": "bases"}.get(self.name)
        if keeps and self.moment_dtype != "float32":
            raise ValueError(
                f"moment_dtype={self.moment_dtype} would round the {keeps} that name={self.name} keeps; leave it out"
            )
        if self.ema is not None and not 0 < self.ema < 1:
            raise ValueError(f"ema={self.ema} must be more than 0 and less than 1; for no average say none")

    def _check_schedule_free(self):
        """Raises ValueError for what its average takes the place of."""
        if self.schedule != "constant":
            raise ValueError(
                f"schedule={self.schedule} is not for name=schedule_free, which averages in place of a decay; "
                "say schedule=constant"
            )
        if self.ema is not None:
            raise ValueError(f"ema={self.ema} is a second average beside that of name=schedule_free; leave it out")
        if not self.beta1:
            raise ValueError("beta1=0.0 must be more than 0 for name=schedule_free; 0.9 is usual")

    @property
    def has_average(self) -> bool:
        """Whether an average of the weights is evaluated and used later."""
        return self.ema is not None or self.name == "schedule_free"

"""What a model must be to read texts in segments, in both directions apart, or beside a vector of another text."""

from tfm.catalogue.options.mixers.recurrent import Gru, Lstm, RecurrentOptions
from tfm.catalogue.options.residuals import MixerOnly
from tfm.options.choices import Options
from tfm.options.model import ModelConfig, Variant

# What to choose for a model that reads a text in segments with a memory.
SEGMENTED = {
    "mixer": "softmax",
    "mixer.pattern": "full or sliding",
    "position": "transformer_xl, rotary, shaw, t5, alibi or none",
}


def check_segments(config: ModelConfig) -> None:
    """Raises ValueError for a model that cannot read a text in segments, each with a memory of the one before."""
    slots: list[tuple[str, Variant]] = []
    for kind in config.kinds:
        pattern = getattr(kind.mixer, "pattern", None)
        slots += [("mixer", kind.mixer) if pattern is None else ("mixer.pattern", pattern), ("position", kind.position)]
    for slot, options in (*slots, ("position", config.position)):
        if not getattr(options, "reads_segments", False):
            name, remedy = f"{slot}={options.name}", f"try {slot}={SEGMENTED[slot]}"
            raise ValueError(f"{name} reads a text as one piece, not in segments with a memory; {remedy}")


def check_halves(config: ModelConfig) -> None:
    """Raises ValueError unless the stream has a half for each direction of reading, as wide as embeddings."""
    for kind in config.kinds:
        if not (isinstance(kind.mixer, RecurrentOptions) and kind.mixer.separate):
            fault, remedy = (
                f"mixer={kind.mixer.name}",
                "mixer=lstm with mixer.bidirectional=true and mixer.separate=true",
            )
        elif not isinstance(kind.residual, MixerOnly):
            fault, remedy = f"residual={kind.residual.name}", "residual=mixer_only"
        else:
            continue
        raise ValueError(f"{fault} lets both directions of reading meet; try {remedy}")
    if 2 * config.sizes["U"] != config.width:
        raise ValueError(f"input.width={config.sizes['U']} must be half of width={config.width}, that of a direction")


def conditioned(options: Options) -> Gru | Lstm:
    """The options of a decoder whose layers also read a vector of another text. Raises ValueError without such."""
    if not isinstance(options, Gru | Lstm):
        raise ValueError(f"mixer={options.name} reads no vector of another text; try mixer=gru or mixer=lstm")
    return options.conditioned()

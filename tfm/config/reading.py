"""What a model must be to read texts in segments, or in both directions apart."""

from tfm.config.model import Config, Kind

# What to choose for a model that reads a text in segments with a memory.
SEGMENTED = {
    "mixer": "softmax",
    "mixer.pattern": "full or sliding",
    "position": "transformer_xl, rotary, shaw, t5, alibi or none",
}

# What to choose for a model with a half of the stream for each direction of reading.
HALVES = {"mixer": "lstm with mixer.bidirectional=true and mixer.separate=true", "residual": "mixer_only"}


def check_segments(config: Config) -> None:
    """Raises ValueError for a model that cannot read a text in segments, each with a memory of the one before."""
    for kind in (*config.kinds, Kind(config.kinds[0].mixer, config.position, config.residual)):
        pattern = getattr(kind.mixer, "pattern", None)
        for slot, options in {"mixer.pattern": pattern, "mixer": kind.mixer, "position": kind.position}.items():
            if options is not None and not options.reads_segments:
                name, remedy = f"{slot}={options.name}", f"try {slot}={SEGMENTED[slot]}"
                raise ValueError(f"{name} reads a text as one piece, not in segments with a memory; {remedy}")


def check_halves(config: Config) -> None:
    """Raises ValueError unless the stream has a half for each direction of reading, as wide as embeddings."""
    for kind in config.kinds:
        for slot, remedy in HALVES.items():
            options = getattr(kind, slot)
            if not options.keeps_halves:
                raise ValueError(f"{slot}={options.name} lets both directions of reading meet; try {slot}={remedy}")
    if 2 * config.sizes["U"] != config.width:
        raise ValueError(f"input.width={config.sizes['U']} must be half of width={config.width}, that of a direction")

"""Settings of models that read long texts: flags of patterns of attention and of rows, for presets."""

from train.settings.recipes.fields import Preset


def alternation(window: int) -> Preset:
    """Layers that see all tokens before them take turns with layers that see the nearest ones (Brown et al. 2020,
    section 2.1)."""
    local = {"mixer": "softmax", "mixer.pattern": "sliding", "mixer.pattern.window": window}
    return {"model.period": 2, **{f"model.period.1.{name}": value for name, value in local.items()}}


# Windows that grow from layer to layer (Beltagy et al. 2020, section 4.1).
GROWING_WINDOWS = {"model.period": 4} | {
    f"model.period.{layer}.{name}": value
    for layer, window in enumerate((8, 16, 32, 64))
    for name, value in {"mixer": "softmax", "mixer.pattern": "sliding", "mixer.pattern.window": window}.items()
}


def pattern(name: str, **options) -> Preset:
    """Dotted names of a pattern of attention and its options."""
    return {"model.mixer.pattern": name} | {f"model.mixer.pattern.{key}": value for key, value in options.items()}


# A window and the first token, and rows of 4,096 tokens (Beltagy et al. 2020, table 7); blocks (Zaheer et al. 2020,
# table 8).
_LONG_ROWS = {"model.length": 4096, "batch.length": 4096, "batch.size": 8}
LONGFORMER = pattern("global", window=512, tokens=1) | _LONG_ROWS
BIGBIRD = pattern("bigbird", block=64, window=3, global_blocks=2, random=3) | _LONG_ROWS
# What the smallest models may have in place of full attention.
PERFORMER = {"model.mixer": "performer", "model.mixer.redraw": 1000}
LINEAR = {"model.mixer": "linear"}
# Attention among tokens with the same hash, on rows that are long enough for it; as many tokens a batch as without.
REFORMER = {"model.mixer": "reformer", "model.mixer.buckets": 8, "model.mixer.chunk": 32}

# The smallest encoders, on rows of 256 tokens where that is needed, and on rows of 32.
_ENCODERS = {
    "longformer-tiny": pattern("global", window=16, tokens=1),
    "performer-tiny": PERFORMER,
    "linear-tiny": LINEAR,
}
LONG_ROWS = _ENCODERS | {"reformer-tiny": REFORMER | {"batch.size": 4, "batch.length": 256}}
SHORT_ROWS = _ENCODERS | {"reformer-tiny": REFORMER | {"model.mixer.chunk": 8}}

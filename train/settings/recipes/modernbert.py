"""ModernBERT (Warner et al. 2024): its model in several sizes, and its recipe in phases."""

from train.settings.recipes.fields import Preset, model_fields, phases, steps

# Validation masks 15 % of tokens whatever training masks, so that losses of recipes compare.
_TRAINING = {
    "optim.name": "stable_adamw",
    "optim.beta2": 0.98,
    "optim.schedule": "constant",
    "optim.warmup": 0,
    "task.rate": 0.15,
}


def modernbert(layers: int, width: int, heads: int, ffn: int, window: int, **fields: object) -> Preset:
    """A ModernBERT of some shape: the first layer and every third one see all tokens, the others a window."""
    local = {
        "mixer": "softmax",
        "mixer.pattern": "sliding",
        "mixer.pattern.window": window,
        "position": "rotary",
        "position.base": 10_000.0,
    }
    model = {
        "input.token_types": None,
        "position": "rotary",
        "position.base": 160_000.0,
        "residual": "pre",
        "norm": "layer_no_bias",
        "norm_eps": 1e-5,
        "activation": "geglu",
        "bias": False,
        "dropout": 0.0,
        "head.pool_activation": "gelu",
        "head.pool_norm": True,
        "head.bias": False,
        "prefix": 1,
        "prefix.0.residual": "pre",
        "prefix.0.residual.mixer_norm": False,
        "period": 3,
        **{f"period.{index}.{name}": value for index in (0, 1) for name, value in local.items()},
    }
    sizes = {"layers": layers, "width": width, "heads": heads, "ffn": ffn}
    return _TRAINING | model_fields(**model, **sizes, **fields)


# Texts grow to 8,192 tokens, in batches of as many tokens as before, and the rate falls at the end. Global layers have
# their last rotary base throughout. Decay is that of the paper over its peak rate, for the rate multiplies it.
_LONG = {"batch.length": 8192}
_DECAY = {"optim.schedule": "1-sqrt"}
_PUBLISHED = {"model.length": 8192, "batch.length": 1024, "tokenizer.kind": "bpe", "tokenizer.vocab": 50_280}
_EVERY = {"eval.every": 4000, "checkpoint.every": 4000}

_BASE = phases(
    {"tokens": 50 * 10**9, "batch.size": "768,1536,2304,3072,3840,4608", "task.rate": 0.3, "optim.warmup": 3421},
    {"tokens": 1669 * 10**9},
    {"tokens": 250 * 10**9, **_LONG, "batch.size": 576, "optim.rate": 3e-4},
    {"tokens": 50 * 10**9, **_DECAY},
)
_LARGE = phases(
    {"tokens": 10 * 10**9, "batch.size": "448,1344,2240,3136,4032,4928", "task.rate": 0.3, "optim.warmup": 1598},
    {"tokens": 890 * 10**9},
    {"tokens": 800 * 10**9, "optim.rate": 5e-5},
    {"tokens": 250 * 10**9, **_LONG, "batch.size": 616},
    {"tokens": 50 * 10**9, **_DECAY},
)

# Batches grow, then texts, and the rate falls last.
_TINY = phases(
    {"steps": 900, "batch.size": "16,32", "task.rate": 0.3, "optim.warmup": 150},
    {"steps": 300, "batch.length": 64, "batch.size": 16},
    {"steps": 300, **_DECAY},
)

MODERNBERTS: dict[str, Preset] = {
    "modernbert-tiny": modernbert(4, 128, 2, 256, window=16, init_std=0.05, scan=False)
    | {"batch.size": 32, "batch.length": 32, "optim.rate": 3e-3, **steps(1500, every=500)}
    | _TINY,
    "modernbert-base": modernbert(22, 768, 12, 1152, window=128)
    | _PUBLISHED
    | {"optim.rate": 8e-4, "optim.decay": 0.0125, **_EVERY}
    | _BASE,
    "modernbert-large": modernbert(28, 1024, 16, 2624, window=128)
    | _PUBLISHED
    | {"optim.rate": 5e-4, "optim.decay": 0.02, **_EVERY}
    | _LARGE,
}

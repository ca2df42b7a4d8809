"""Small encoders that read characters: what learns how words are spelled in two minutes on two cores."""

from train.settings.recipes.fields import Preset, model_fields

# The training of all of them. Muon, for it needs the fewest steps.
CHARACTERS: Preset = {
    "model.init_std": 0.05,
    "model.dropout": 0.0,
    "model.scan": False,
    "model.kernel": "einsum",
    "tokenizer.kind": "char",
    "tokenizer.vocab": 1000,
    "batch.size": 32,
    "batch.length": 32,
    "optim.name": "muon",
    "optim.rate": 5e-3,
    "optim.beta2": 0.98,
    "optim.warmup": 0.05,
}


def windowed(window: int) -> Preset:
    """Three layers of width 128: two see the nearest characters, the third one all of them.

    Where a layer sees all from the start, no layer looks at neighbours for hundreds of steps (M85).
    """
    layers = {
        f"period.{index}.{name}": value
        for index, width in enumerate((2, window))
        for name, value in (
            ("mixer", "softmax"),
            ("mixer.pattern", "sliding"),
            ("mixer.pattern.window", width),
        )
    }
    shape = {"layers": 3, "width": 128, "heads": 4, "residual": "pre", "norm": "layer", "activation": "gelu"}
    return model_fields(**shape, position="t5", period=3, **layers)

"""T5: an encoder and a decoder that know the buckets of distances alone."""

from train.settings.recipes.fields import Preset

# Pre-norm layers without biases, and logits of scaled states (Raffel et al. 2020, section 2.1).
_T5 = {
    "model.input": "tokens",
    "model.input.token_types": None,
    "model.input.norm": False,
    "model.position": "t5",
    "model.residual": "pre",
    "model.norm": "rms",
    "model.norm_eps": 1e-6,
    "model.bias": False,
    "model.activation": "relu",
    "model.head.scale_logits": True,
}


def t5(layers: int, width: int, heads: int) -> Preset:
    """A T5 of some shape, with as many layers of the encoder as of the decoder."""
    return _T5 | {"model.layers": layers, "model.width": width, "model.heads": heads}

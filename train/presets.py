"""Presets: sets of flags under a name. The first preset of a task is its default."""

_BERT = {"model.norm": "layer", "model.order": "post", "model.activation": "gelu", "model.position": "learned"}


def _bert(layers: int, width: int, heads: int, **flags) -> dict:
    shape = {"model.layers": layers, "model.width": width, "model.heads": heads, "model.ffn": 4 * width}
    return _BERT | shape | flags


# Shapes: Devlin et al. 2018 (base, large), Turc et al. 2019 (tiny, mini, small).
PRESETS = {
    "mlm": {
        "bert-tiny": _bert(2, 128, 2),
        "bert-mini": _bert(4, 256, 4),
        "bert-small": _bert(4, 512, 8),
        "bert-base": _bert(12, 768, 12),
        "bert-large": _bert(24, 1024, 16),
    },
}

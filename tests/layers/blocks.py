"""One block alone, and the pass that it is part of."""

import tfm


def context_of(x, mask=None, **options):
    """The pass over x [B,T,D], whose tokens stand at 0..T-1."""
    return tfm.AttentionContext(tfm.default_positions(x[..., 0]), mask, **options)


def run_block(layer, config, x, context=None, key=None, kind=None):
    """x [B,T,D] -> [B,T,D] and the `BlockOutput` of a block.

    context: by default, all tokens see each other
    kind: by default, the first kind of layer of the model
    """
    kind = kind or config.kinds[0]
    context = tfm.prepare_layers(context or context_of(x), config)
    return tfm.transformer_block(layer, kind, config, x, context, noise=None if key is None else (key, None))

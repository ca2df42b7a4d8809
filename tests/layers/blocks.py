"""One block alone, and the pass that it is part of."""

import tfm


def context_of(x, mask=None, **options):
    """The pass over x [B,T,D], whose tokens stand at 0..T-1."""
    return tfm.AttentionContext(tfm.default_positions(x[..., 0]), mask, **options)


def run_block(layer, config, x, context=None, key=None, kind=None, shared=None):
    """x [B,T,D] -> [B,T,D] and the `BlockOutput` of a block.

    context: by default, all tokens see each other
    kind: by default, the first kind of layer of the model
    shared: what layers with the same position options share
    """
    kind = kind or config.kinds[0]
    context = context or context_of(x)
    mixer = tfm.mixer_of(kind.mixer).prepare(tfm.LayerCall(kind.mixer, config), context)
    position = tfm.position_of(kind.position).prepare(tfm.LayerCall(kind.position, config, shared), context)
    return tfm.transformer_block(layer, kind, config, x, tfm.BlockInput(context, mixer, position), key)

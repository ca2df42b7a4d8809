"""Encoders and decoders: embeddings, and a stack of blocks."""

from dataclasses import replace

import jax
from flax import struct
from jax import Array

from tfm.config.model import Config
from tfm.inputs import default_positions
from tfm.interfaces import AttentionContext, Memory
from tfm.layers.stack import Layers, by_layer, drop_path_rates, stack, stack_specs
from tfm.masks.mask import Mask
from tfm.norms import Norm
from tfm.ops import split
from tfm.params import PyTree
from tfm.tables.inputs import embed, embed_specs
from tfm.tables.residuals import RESIDUALS


@struct.dataclass
class Encoder:
    """Embeddings, blocks, what the positions of the blocks share, and the last norm. With causality it is a decoder.

    stages: what follows on coarser grids, each stage an encoder that reads the states of the one before
    """

    embed: PyTree
    layers: Layers
    positions: tuple[PyTree, ...]
    norm: Norm | None
    stages: tuple["Encoder", ...] = ()

    @property
    def all_stages(self) -> dict[str, "Encoder"]:
        """Each stage by its path in this tree, the first one, which is this tree itself, by none."""
        return {"": self} | {f".stages[{index}]": stage for index, stage in enumerate(self.stages)}


def encoder_specs(config: Config, cross: bool = False) -> Encoder:
    """The spec tree of an encoder, or of a decoder; with `cross` its blocks attend to a memory too."""
    stages: list[Encoder] = []
    for stage in config.stage_configs:
        embeddings = RESIDUALS[stage.residual.name].revise(stage.residual, stage, embed_specs(stage))
        stages.append(Encoder(embed=embeddings, **stack_specs(stage, cross)))
    for index, options in enumerate(config.stages):  # the last norm is that of the last stage
        stages[index] = stages[index] if options.norm_before else replace(stages[index], norm=None)
    return replace(stages[0], stages=tuple(stages[1:]))


def encoder(
    model: Encoder,
    config: Config,
    inputs: PyTree,
    mask: Mask | None = None,
    positions: Array | None = None,
    types: Array | None = None,
    key: Array | None = None,
) -> Array:
    """What `config.input` reads -> hidden states [B,T,D] in `config.dtype` (Devlin et al. 2018, section 3; Dosovitskiy
    et al. 2021, section 3.1).

    inputs: tokens int32 [B,T], or pixels float [B,H,W,C] of images, or `MaskedPixels`, or
        `PicturedTokens`
    positions: [B,T], 0..T-1 by default; consecutive within a text where biases of scores count distances, since those
        are of places in the row
    types: [B,T] of tokens, 0 by default
    key: turns dropout on

    Raises ValueError for more tokens than `config.max_length` where positions are not given, and for images of another
    size than `config.input` says.
    """
    return stage_states(model, config, inputs, mask, positions, types, key)[-1]


def stage_states(
    model: Encoder,
    config: Config,
    inputs: PyTree,
    mask: Mask | None = None,
    positions: Array | None = None,
    types: Array | None = None,
    key: Array | None = None,
) -> list[Array]:
    """Arguments and errors of `encoder` -> the states [B,T,D] behind each of its stages, by the norm of those that end
    with one."""
    first, *stages = config.stage_configs
    drop_path = [None] * (1 + len(stages)) if key is None else drop_path_rates(config)
    embed_key, stack_key = split(key, 2)
    x = embed(model.embed, first, inputs, positions, types, embed_key)
    context = pass_context(x, mask, positions, causal=False)
    states = [stack(model, first, x, context, key=stack_key, drop_path=drop_path[0])[0]]
    for index, (params, stage) in enumerate(zip(model.stages, stages, strict=True), 1):
        embed_key, stack_key = split(None if key is None else jax.random.fold_in(key, index), 2)
        with jax.named_scope(f"stage {index + 1}"):
            x = embed(params.embed, stage, states[-1], key=embed_key)
            context = pass_context(x, None, None, causal=False)
            states.append(stack(params, stage, x, context, key=stack_key, drop_path=drop_path[index])[0])
    return states


def decoder(
    model: Encoder,
    config: Config,
    tokens: Array,
    mask: Mask | None = None,
    positions: Array | None = None,
    key: Array | None = None,
    memory: Memory | None = None,
) -> Array:
    """tokens [B,T] -> hidden states [B,T,D]; a token sees itself and the tokens before it, where `mask` allows it.

    Radford et al. 2018, section 3.1; with a memory, Vaswani et al. 2017, section 3.1. Raises ValueError as `encoder`
    does.
    """
    embed_key, stack_key = split(key, 2)
    x = embed(model.embed, config, tokens, positions, key=embed_key)
    context = pass_context(x, mask, positions, causal=True)
    return stack(model, config, x, context, memory=memory, key=stack_key)[0]


def hidden_states(
    model: Encoder,
    config: Config,
    tokens: Array,
    mask: Mask | None = None,
    positions: Array | None = None,
    types: Array | None = None,
    causal: bool = False,
) -> list[Array]:
    """tokens [B,T] -> L + 1 arrays [B,T,D]: what each layer reads, embeddings first, and the last states.

    causal: a token sees those before it alone, as in `decoder`. Raises ValueError as `encoder` does, and for a model
    with stages, whose states have several widths.
    """
    if config.stages:
        raise ValueError(f"hidden_states reads one stage, and the model has {1 + len(config.stages)}; call encoder")
    x = embed(model.embed, config, tokens, positions, types)
    context = replace(pass_context(x, mask, positions, causal), record_inputs=True)
    hidden, outputs = stack(model, config, x, context)
    return [*(layer.inputs for layer in by_layer(config, outputs)), hidden]


def pass_context(x: Array, mask: Mask | None, positions: Array | None, causal: bool) -> AttentionContext:
    """The pass over embeddings x [B,T,D], whose positions count from 0 where none are passed."""
    if positions is None:
        return AttentionContext(default_positions(x), mask, causal=causal, restarts=False)
    return AttentionContext(positions, mask, causal=causal)

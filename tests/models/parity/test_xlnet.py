"""A memory as transformers' XLNet has it: from left to right, with positions of Transformer-XL (Yang et al. 2019)."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm

pytestmark = pytest.mark.parity

SIZE, WIDTH, HEADS, FFN, VOCAB = 6, 16, 4, 24, 40


def torch_model():
    """A random XLNet that reads from left to right, whose layers share their global queries."""
    import torch
    from transformers import XLNetConfig, XLNetModel

    torch.manual_seed(0)
    sizes = {"vocab_size": VOCAB, "d_model": WIDTH, "n_layer": 2, "n_head": HEADS, "d_inner": FFN, "mem_len": SIZE}
    model = XLNetModel(XLNetConfig(**sizes, attn_type="uni", ff_activation="gelu", initializer_range=0.3)).eval()
    for layer in model.layer[1:]:
        for name in ("r_w_bias", "r_r_bias"):
            setattr(layer.rel_attn, name, getattr(model.layer[0].rel_attn, name))
    return model


def parameters(model, specs):
    """Its parameters by our names; attention has no biases there."""
    params = jax.tree.map(lambda spec: np.zeros(spec.shape, np.float32), specs)
    (block,) = params.layers.period
    for index, layer in enumerate(model.layer):
        attention, ffn = layer.rel_attn, layer.ff
        tensors = {
            id(block.mixer.query.kernel): attention.q,
            id(block.mixer.key.kernel): attention.k,
            id(block.mixer.value.kernel): attention.v,
            id(block.mixer.output.kernel): attention.o.permute(1, 2, 0),
            id(block.position.kernel): attention.r,
            id(block.residual.mixer.scale): attention.layer_norm.weight,
            id(block.residual.mixer.bias): attention.layer_norm.bias,
            id(block.residual.feed_forward.scale): ffn.layer_norm.weight,
            id(block.residual.feed_forward.bias): ffn.layer_norm.bias,
            id(block.feed_forward.up.kernel): ffn.layer_1.weight.T,
            id(block.feed_forward.up.bias): ffn.layer_1.bias,
            id(block.feed_forward.down.kernel): ffn.layer_2.weight.T,
            id(block.feed_forward.down.bias): ffn.layer_2.bias,
        }
        for leaf in jax.tree.leaves(block):
            if id(leaf) in tensors:
                leaf[index] = tensors[id(leaf)].detach().numpy().reshape(leaf.shape[1:])
    (queries,) = params.positions
    queries.content[:] = model.layer[0].rel_attn.r_w_bias.detach().numpy().reshape(queries.content.shape)
    queries.distance[:] = model.layer[0].rel_attn.r_r_bias.detach().numpy().reshape(queries.distance.shape)
    table = model.word_embedding.weight.detach().numpy()
    return dataclasses.replace(params, embed=dataclasses.replace(params.embed, tokens=table))


def test_segments_with_a_memory_are_those_of_xlnet():
    import torch

    reference = torch_model()
    config = tfm.override(
        tfm.Config(layers=2, width=WIDTH, heads=HEADS, ffn=FFN, vocab=VOCAB, pad_vocab_to=1, dropout=0.0),
        {"position": "transformer_xl", "input.token_types": None, "input.norm": False},
    )
    params = jax.tree.map(jnp.asarray, parameters(reference, tfm.encoder_specs(config)))
    tokens = np.random.default_rng(0).integers(0, VOCAB, (2, 15))
    memory, mems = tfm.segment_memory(config, 2, SIZE), None
    for start in range(0, 15, 5):
        segment = tokens[:, start : start + 5]
        states, memory = tfm.read_segment(params, config, jnp.asarray(segment, jnp.int32), memory)
        with torch.no_grad():
            output = reference(torch.tensor(segment), mems=mems, use_mems=True)
        mems = output.mems
        np.testing.assert_allclose(states, output.last_hidden_state, rtol=1e-4, atol=1e-4)
    kept = np.stack([state.numpy().swapaxes(0, 1) for state in mems[:2]])
    np.testing.assert_allclose(memory.states.period[0], kept, rtol=1e-4, atol=1e-4)

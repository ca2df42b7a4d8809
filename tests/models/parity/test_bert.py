"""BERT here and in transformers: the same random weights give the same logits, hidden states and loss."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm
from tfm.residuals import Norms

pytestmark = pytest.mark.parity


@pytest.fixture(scope="module")
def torch_bert():
    """A random transformers BERT of odd sizes, in which no bias is 0 and no scale is 1."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=103,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=3,
        intermediate_size=40,
        max_position_embeddings=19,
    )
    config._attn_implementation = "eager"
    model = transformers.BertForMaskedLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def weights_of(model):
    """The weights of a model of transformers, by name."""
    return {name: value.detach().numpy() for name, value in model.named_parameters()}


def norm(weights, name):
    return tfm.Norm(weights[f"{name}.weight"], weights[f"{name}.bias"])


def linear(weights, name, inputs, outputs):
    """torch keeps [out, in], we keep [in, out] with heads as axes."""
    return tfm.Linear(weights[f"{name}.weight"].T.reshape(*inputs, *outputs), weights[f"{name}.bias"].reshape(outputs))


def block(weights, config, layer):
    """A layer of BERT."""
    name, heads = f"bert.encoder.layer.{layer}", (config.sizes["K"], config.sizes["H"])
    width, ffn, query_heads = (config.width,), (config.ffn,), (heads[0], 1, heads[1])
    return tfm.Block(
        mixer=tfm.Attention(
            query=linear(weights, f"{name}.attention.self.query", width, query_heads),
            key=linear(weights, f"{name}.attention.self.key", width, heads),
            value=linear(weights, f"{name}.attention.self.value", width, heads),
            output=linear(weights, f"{name}.attention.output.dense", query_heads, width),
        ),
        position=None,
        feed_forward=tfm.FeedForward(
            linear(weights, f"{name}.intermediate.dense", width, ffn),
            None,
            linear(weights, f"{name}.output.dense", ffn, width),
        ),
        residual=Norms(
            mixer=norm(weights, f"{name}.attention.output.LayerNorm"),
            feed_forward=norm(weights, f"{name}.output.LayerNorm"),
        ),
    )


def converted(model) -> tuple[tfm.Config, object]:
    """A BERT of transformers as ours."""
    c = model.config
    config = tfm.Config(
        layers=c.num_hidden_layers, heads=c.num_attention_heads, width=c.hidden_size, ffn=c.intermediate_size,
        vocab=c.vocab_size, length=c.max_position_embeddings, pad_vocab_to=1, norm_eps=c.layer_norm_eps, dropout=0.0,
    )  # fmt: skip
    weights = weights_of(model)
    tables = [weights[f"bert.embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")]
    blocks = [block(weights, config, layer) for layer in range(config.layers)]
    layers = tfm.Layers((), (jax.tree.map(lambda *leaves: np.stack(leaves), *blocks),), ())
    head = tfm.MlmHead(
        dense=linear(weights, "cls.predictions.transform.dense", (config.width,), (config.width,)),
        norm=norm(weights, "cls.predictions.transform.LayerNorm"),
        table=None,
        bias=weights["cls.predictions.bias"],
    )
    embed = tfm.Embed(*tables, norm(weights, "bert.embeddings.LayerNorm"))
    encoder = tfm.Encoder(embed, layers, positions=(None,), norm=None)
    return config, jax.tree.map(jnp.asarray, tfm.MaskedLM(encoder, head))


@pytest.mark.parametrize("scan", [True, False])
def test_bert_agrees_with_transformers(torch_bert, scan):
    """Logits and loss to 1e-4 with padding and token types, and the shapes of every parameter."""
    import torch

    config, params = converted(torch_bert)
    config = dataclasses.replace(config, scan=scan)
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(lambda spec: spec.shape, tfm.masked_lm_specs(config))
    rng = np.random.default_rng(1)
    tokens, types = rng.integers(0, config.vocab, (2, 17)), rng.integers(0, 2, (2, 17))
    valid = np.arange(17) < np.array([[17], [11]])
    labels = np.where(valid & (rng.random((2, 17)) < 0.3), tokens, -100)
    with torch.no_grad():
        expected = torch_bert(
            torch.tensor(tokens),
            attention_mask=torch.tensor(valid.astype(int)),
            token_type_ids=torch.tensor(types),
            labels=torch.tensor(labels),
            output_hidden_states=True,
        )
    hidden = tfm.encoder(
        params.encoder, config, jnp.asarray(tokens), tfm.padding(jnp.asarray(valid)), types=jnp.asarray(types)
    )
    logits = tfm.mlm_logits(params.head, config, hidden, params.encoder.embed.tokens)
    losses = tfm.cross_entropy(logits, jnp.asarray(tokens))
    np.testing.assert_allclose(np.asarray(hidden)[valid], expected.hidden_states[-1].numpy()[valid], atol=1e-4)
    np.testing.assert_allclose(np.asarray(logits)[valid], expected.logits.numpy()[valid], atol=1e-4)
    np.testing.assert_allclose(np.asarray(losses)[labels >= 0].mean(), expected.loss.item(), atol=1e-4)

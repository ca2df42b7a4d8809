"""BERT here and in transformers: the same random weights give the same logits, hidden states and loss."""

import dataclasses

import numpy as np
import pytest

import tfm

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


def converted(model) -> tuple[tfm.Config, object]:
    """The weights of a transformers BERT as ours: torch keeps [out, in], we keep [in, out] with heads as axes."""
    c = model.config
    config = tfm.Config(
        layers=c.num_hidden_layers, heads=c.num_attention_heads, width=c.hidden_size, ffn=c.intermediate_size, vocab=c.vocab_size,
        length=c.max_position_embeddings, vocab_multiple=1, norm_eps=c.layer_norm_eps, dropout=0.0,
    )  # fmt: skip
    weights = {name: value.detach().numpy() for name, value in model.named_parameters()}
    sizes = config.sizes

    def linear(name, inputs, outputs):
        shapes = [tuple(sizes[letter] for letter in letters) for letters in (inputs + outputs, outputs)]
        return tfm.Linear(weights[f"{name}.weight"].T.reshape(shapes[0]), weights[f"{name}.bias"].reshape(shapes[1]))

    def norm(name):
        return tfm.Norm(weights[f"{name}.weight"], weights[f"{name}.bias"])

    def block(n):
        at = f"bert.encoder.layer.{n}"
        return tfm.Block(
            attn=tfm.Attention(
                query=linear(f"{at}.attention.self.query", "D", "KGH"),
                key=linear(f"{at}.attention.self.key", "D", "KH"),
                value=linear(f"{at}.attention.self.value", "D", "KH"),
                output=linear(f"{at}.attention.output.dense", "KGH", "D"),
            ),
            attn_norm=norm(f"{at}.attention.output.LayerNorm"),
            ffn=tfm.FeedForward(
                linear(f"{at}.intermediate.dense", "D", "F"), None, linear(f"{at}.output.dense", "F", "D")
            ),
            ffn_norm=norm(f"{at}.output.LayerNorm"),
        )

    import jax

    tables = [weights[f"bert.embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")]
    blocks = jax.tree.map(lambda *leaves: np.stack(leaves), *map(block, range(config.layers)))
    head = tfm.MlmHead(
        dense=linear("cls.predictions.transform.dense", "D", "E"),
        norm=norm("cls.predictions.transform.LayerNorm"),
        table=None,
        bias=weights["cls.predictions.bias"],
    )
    encoder = tfm.Encoder(tfm.Embed(*tables, norm("bert.embeddings.LayerNorm")), blocks, None)
    return config, jax.tree.map(jax.numpy.asarray, tfm.MaskedLM(encoder, head))


@pytest.mark.parametrize("scan", [True, False])
def test_bert_agrees_with_transformers(torch_bert, scan):
    """Logits and loss to 1e-4 with padding and token types, and the shapes of every parameter."""
    import jax
    import jax.numpy as jnp
    import torch

    config, params = converted(torch_bert)
    config = dataclasses.replace(config, scan=scan)
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(lambda spec: spec.shape, tfm.masked_lm_specs(config))
    rng = np.random.default_rng(1)
    tokens, types = rng.integers(0, config.vocab, (2, 17)), rng.integers(0, 2, (2, 17))
    valid = np.arange(17) < np.array([[17], [11]])
    labels = np.where(valid & (rng.random((2, 17)) < 0.3), tokens, -100)
    with torch.no_grad():
        found = torch_bert(
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
    np.testing.assert_allclose(np.asarray(hidden)[valid], found.hidden_states[-1].numpy()[valid], atol=1e-4)
    np.testing.assert_allclose(np.asarray(logits)[valid], found.logits.numpy()[valid], atol=1e-4)
    np.testing.assert_allclose(np.asarray(losses)[labels >= 0].mean(), found.loss.item(), atol=1e-4)

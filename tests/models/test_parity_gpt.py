"""GPT-2 and Llama here and in transformers: the same random weights give the same logits, greedy texts and beams."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm

pytestmark = pytest.mark.parity

PROMPTS = [[5, 17, 80, 3], [9, 60, 2, 41, 7, 33, 12]]


def shaken(model):
    """The model with every parameter moved, so that no bias is 0 and no scale is 1."""
    import torch

    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


def stacked(block, layers):
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *map(block, range(layers)))


def gpt2():
    """A small GPT-2 and its weights as ours: it keeps kernels [in, out], and query, key and value in one."""
    transformers = pytest.importorskip("transformers")
    theirs = shaken(
        transformers.GPT2LMHeadModel(
            transformers.GPT2Config(vocab_size=103, n_positions=40, n_embd=24, n_layer=2, n_head=3)
        )
    )
    config = tfm.Config(
        layers=2, heads=3, width=24, vocab=103, vocab_multiple=1, length=40, token_types=0, embed_norm=False, order="pre",
        activation="gelu_tanh", norm_eps=1e-5, dropout=0.0,
    )  # fmt: skip
    weights = {name.removeprefix("transformer."): value.detach().numpy() for name, value in theirs.named_parameters()}
    norm = lambda name: tfm.Norm(weights[f"{name}.weight"], weights[f"{name}.bias"])
    linear = lambda name, inputs, outputs: tfm.Linear(
        weights[f"{name}.weight"].reshape(*inputs, *outputs), weights[f"{name}.bias"].reshape(outputs)
    )

    def block(n):
        joined, offset = (
            weights[f"h.{n}.attn.c_attn.weight"].reshape(24, 3, 24),
            weights[f"h.{n}.attn.c_attn.bias"].reshape(3, 24),
        )
        query, key, value = (tfm.Linear(joined[:, i].reshape(24, 3, 8), offset[i].reshape(3, 8)) for i in range(3))
        query = tfm.Linear(query.kernel[:, :, None], query.bias[:, None])
        attn = tfm.Attention(query, key, value, linear(f"h.{n}.attn.c_proj", (3, 1, 8), (24,)))
        ffn = tfm.FeedForward(linear(f"h.{n}.mlp.c_fc", (24,), (96,)), None, linear(f"h.{n}.mlp.c_proj", (96,), (24,)))
        return tfm.Block(attn, norm(f"h.{n}.ln_1"), ffn, norm(f"h.{n}.ln_2"))

    embed = tfm.Embed(weights["wte.weight"], weights["wpe.weight"], None, None)
    return (
        theirs,
        config,
        jax.tree.map(jnp.asarray, tfm.CausalLM(tfm.Encoder(embed, stacked(block, 2), norm("ln_f")), None)),
    )


def llama():
    """A small Llama with grouped heads: it keeps kernels [out, in]."""
    transformers = pytest.importorskip("transformers")
    theirs = shaken(
        transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                vocab_size=103,
                hidden_size=24,
                intermediate_size=40,
                num_hidden_layers=2,
                num_attention_heads=6,
                num_key_value_heads=2,
                max_position_embeddings=40,
                rms_norm_eps=1e-6,
                tie_word_embeddings=False,
                bos_token_id=0,
                eos_token_id=1,
            )
        )
    )
    config = tfm.Config(
        layers=2, heads=6, kv_heads=2, width=24, ffn=40, vocab=103, vocab_multiple=1, length=40, token_types=0, embed_norm=False,
        order="pre", norm="rms", norm_eps=1e-6, activation="swiglu", position="rotary", bias=False, tied=False, dropout=0.0,
    )  # fmt: skip
    weights = {name.removeprefix("model."): value.detach().numpy() for name, value in theirs.named_parameters()}
    linear = lambda name, *shape: tfm.Linear(weights[f"{name}.weight"].T.reshape(shape), None)
    norm = lambda name: tfm.Norm(weights[f"{name}.weight"], None)

    def block(n):
        at = f"layers.{n}.self_attn"
        attn = tfm.Attention(
            linear(f"{at}.q_proj", 24, 2, 3, 4),
            linear(f"{at}.k_proj", 24, 2, 4),
            linear(f"{at}.v_proj", 24, 2, 4),
            linear(f"{at}.o_proj", 2, 3, 4, 24),
        )
        up, gate = linear(f"layers.{n}.mlp.up_proj", 24, 40), linear(f"layers.{n}.mlp.gate_proj", 24, 40)
        ffn = tfm.FeedForward(up, gate, linear(f"layers.{n}.mlp.down_proj", 40, 24))
        return tfm.Block(attn, norm(f"layers.{n}.input_layernorm"), ffn, norm(f"layers.{n}.post_attention_layernorm"))

    embed = tfm.Embed(weights["embed_tokens.weight"], None, None, None)
    model = tfm.CausalLM(tfm.Encoder(embed, stacked(block, 2), norm("norm")), weights["lm_head.weight"])
    return theirs, config, jax.tree.map(jnp.asarray, model)


@pytest.fixture(scope="module", params=[gpt2, llama], ids=["gpt2", "llama"])
def models(request):
    """A model of transformers, and ours with its weights."""
    return request.param()


def test_logits(models):
    import torch

    theirs, config, params = models
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(lambda spec: spec.shape, tfm.causal_lm_specs(config))
    tokens = np.random.default_rng(1).integers(0, 103, (2, 33))
    with torch.no_grad():
        expected = theirs(torch.tensor(tokens)).logits.numpy()
    np.testing.assert_allclose(tfm.causal_lm(params, config, jnp.asarray(tokens)), expected, atol=1e-4)


def continued(theirs, prompt, **options):
    """What transformers adds to a prompt."""
    import torch

    tokens = torch.tensor([prompt])
    found = theirs.generate(
        tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=16, do_sample=False, pad_token_id=0, **options
    )
    return [row[len(prompt) :].tolist() for row in found]


def test_greedy(models):
    theirs, config, params = models
    assert tfm.generate(params, config, PROMPTS, 16).tokens == [
        continued(theirs, prompt, eos_token_id=None)[0] for prompt in PROMPTS
    ]


def test_greedy_with_a_repetition_penalty(models):
    theirs, config, params = models
    expected = [continued(theirs, prompt, eos_token_id=None, repetition_penalty=1.3)[0] for prompt in PROMPTS]
    assert tfm.generate(params, config, PROMPTS, 16, tfm.Greedy(1.3)).tokens == expected


def test_beams(models):
    theirs, config, params = models
    found = tfm.beam_search(params, config, PROMPTS, 16, tfm.Beam(4), num_return_sequences=3)
    for prompt, hypotheses in zip(PROMPTS, found, strict=True):
        expected = continued(theirs, prompt, eos_token_id=None, num_beams=4, num_return_sequences=3, length_penalty=0.0)
        assert [each.tokens for each in hypotheses] == expected

"""GPT-2 and Llama here and in transformers: the same random weights give the same logits, greedy texts and beams."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm
from tfm.config.inputs import Tokens
from tfm.config.positions import Rotary
from tfm.config.residuals import PreNorm
from tfm.residuals import Norms

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


def decoder(embed, block, layers, norm):
    """A decoder of equal layers, as arrays of jax."""
    blocks = jax.tree.map(lambda *leaves: np.stack(leaves), *map(block, range(layers)))
    return jax.tree.map(jnp.asarray, tfm.Encoder(embed, tfm.Layers((), (blocks,), ()), (None,), norm))


def gpt2():
    """A small GPT-2 and its weights as ours: it keeps kernels [in, out], and query, key and value in one."""
    transformers = pytest.importorskip("transformers")
    hf_config = transformers.GPT2Config(vocab_size=103, n_positions=40, n_embd=24, n_layer=2, n_head=3)
    model = shaken(transformers.GPT2LMHeadModel(hf_config))
    config = tfm.Config(
        layers=2, heads=3, width=24, vocab=103, pad_vocab_to=1, length=40, input=Tokens(token_types=None, norm=False),
        residual=PreNorm(), activation="gelu_tanh", norm_eps=1e-5, dropout=0.0,
    )  # fmt: skip
    weights = {name.removeprefix("transformer."): value.detach().numpy() for name, value in model.named_parameters()}

    def norm(name):
        return tfm.Norm(weights[f"{name}.weight"], weights[f"{name}.bias"])

    def linear(name, inputs, outputs):
        kernel, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
        return tfm.Linear(kernel.reshape(*inputs, *outputs), bias.reshape(outputs))

    def block(layer):
        kernels = weights[f"h.{layer}.attn.c_attn.weight"].reshape(24, 3, 24)
        biases = weights[f"h.{layer}.attn.c_attn.bias"].reshape(3, 24)
        query, key, value = (
            tfm.Linear(kernels[:, part].reshape(24, 3, 8), biases[part].reshape(3, 8)) for part in range(3)
        )
        query = tfm.Linear(query.kernel[:, :, None], query.bias[:, None])
        up = linear(f"h.{layer}.mlp.c_fc", (24,), (96,))
        return tfm.Block(
            mixer=tfm.Attention(query, key, value, linear(f"h.{layer}.attn.c_proj", (3, 1, 8), (24,))),
            position=None,
            feed_forward=tfm.FeedForward(up, None, linear(f"h.{layer}.mlp.c_proj", (96,), (24,))),
            residual=Norms(mixer=norm(f"h.{layer}.ln_1"), feed_forward=norm(f"h.{layer}.ln_2")),
        )

    embed = tfm.Embed(weights["wte.weight"], weights["wpe.weight"], None, None)
    return model, config, tfm.CausalLM(decoder(embed, block, 2, norm("ln_f")), None)


def llama():
    """A small Llama with grouped heads: it keeps kernels [out, in]."""
    transformers = pytest.importorskip("transformers")
    hf_config = transformers.LlamaConfig(
        vocab_size=103, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=2, max_position_embeddings=40, rms_norm_eps=1e-6, tie_word_embeddings=False,
        bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    model = shaken(transformers.LlamaForCausalLM(hf_config))
    config = tfm.Config(
        layers=2, heads=6, kv_heads=2, width=24, ffn=40, vocab=103, pad_vocab_to=1, length=40,
        input=Tokens(token_types=None, norm=False), residual=PreNorm(), norm="rms", norm_eps=1e-6, activation="swiglu",
        position=Rotary(), bias=False, tie_embeddings=False, dropout=0.0,
    )  # fmt: skip
    weights = {name.removeprefix("model."): value.detach().numpy() for name, value in model.named_parameters()}

    def norm(name):
        return tfm.Norm(weights[f"{name}.weight"], None)

    def linear(name, *shape):
        return tfm.Linear(weights[f"{name}.weight"].T.reshape(shape), None)

    def block(layer):
        attention, mlp = f"layers.{layer}.self_attn", f"layers.{layer}.mlp"
        return tfm.Block(
            mixer=tfm.Attention(
                linear(f"{attention}.q_proj", 24, 2, 3, 4),
                linear(f"{attention}.k_proj", 24, 2, 4),
                linear(f"{attention}.v_proj", 24, 2, 4),
                linear(f"{attention}.o_proj", 2, 3, 4, 24),
            ),
            position=None,
            feed_forward=tfm.FeedForward(
                up=linear(f"{mlp}.up_proj", 24, 40),
                gate=linear(f"{mlp}.gate_proj", 24, 40),
                down=linear(f"{mlp}.down_proj", 40, 24),
            ),
            residual=Norms(
                mixer=norm(f"layers.{layer}.input_layernorm"),
                feed_forward=norm(f"layers.{layer}.post_attention_layernorm"),
            ),
        )

    embed = tfm.Embed(weights["embed_tokens.weight"], None, None, None)
    table = jnp.asarray(weights["lm_head.weight"])
    return model, config, tfm.CausalLM(decoder(embed, block, 2, norm("norm")), table)


@pytest.fixture(scope="module", params=[gpt2, llama], ids=["gpt2", "llama"])
def models(request):
    """A model of transformers, and ours with its weights."""
    return request.param()


def test_logits(models):
    import torch

    model, config, params = models
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(lambda spec: spec.shape, tfm.causal_lm_specs(config))
    tokens = np.random.default_rng(1).integers(0, 103, (2, 33))
    with torch.no_grad():
        expected = model(torch.tensor(tokens)).logits.numpy()
    np.testing.assert_allclose(tfm.causal_lm(params, config, jnp.asarray(tokens)), expected, atol=1e-4)


def continued(model, prompt, **options):
    """What transformers adds to a prompt."""
    import torch

    tokens = torch.tensor([prompt])
    texts = model.generate(
        tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=16, do_sample=False, pad_token_id=0, **options
    )
    return [row[len(prompt) :].tolist() for row in texts]


def test_greedy(models):
    model, config, params = models
    assert tfm.generate(params, config, PROMPTS, 16).tokens == [
        continued(model, prompt, eos_token_id=None)[0] for prompt in PROMPTS
    ]


def test_greedy_with_a_repetition_penalty(models):
    model, config, params = models
    expected = [continued(model, prompt, eos_token_id=None, repetition_penalty=1.3)[0] for prompt in PROMPTS]
    assert tfm.generate(params, config, PROMPTS, 16, tfm.Greedy(1.3)).tokens == expected


def test_beams(models):
    model, config, params = models
    rows = tfm.beam_search(params, config, PROMPTS, 16, tfm.Beam(4), num_return_sequences=3)
    for prompt, hypotheses in zip(PROMPTS, rows, strict=True):
        expected = continued(model, prompt, eos_token_id=None, num_beams=4, num_return_sequences=3, length_penalty=0.0)
        assert [hypothesis.tokens for hypothesis in hypotheses] == expected

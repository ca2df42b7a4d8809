"""Deep thin models without warm-up: which residual schemes train them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from variants import VARIANTS

import tfm

LAYERS, STEPS, SEEDS, VOCAB, RATE = 24, 150, 3, 16, 1e-3
CHANCE = np.log(VOCAB)


def config_of(scheme):
    """24 layers of width 32 that read 16 tokens. Weights start at the root of 1 / width, as Xavier's nearly do: with
    those of BERT, at 0.02, sublayers add so little that post-norm trains too."""
    config = tfm.Config(layers=LAYERS, heads=2, width=32, ffn=64, vocab=VOCAB, pad_vocab_to=1, length=16, dropout=0.0)
    values = {"residual": scheme, "input.norm": False, "tie_embeddings": False, "init_std": 0.18}
    return tfm.override(config, values)


@functools.partial(jax.jit, static_argnums=0)
def losses(config, seed):
    """The loss of every step in which a decoder learns to repeat the token before; Adam at a constant rate."""
    specs, optimizer = tfm.causal_lm_specs(config), optax.adam(RATE)

    def batch(step):
        key = jax.random.fold_in(jax.random.key(seed), step)
        return jax.random.randint(key, (32, 16), 0, VOCAB)

    def loss(params, tokens):
        logits = tfm.causal_lm(params, config, tokens)[:, 1:]
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, :-1]).mean()

    def update(state, step):
        params, moments = state
        value, gradient = jax.value_and_grad(loss)(params, batch(step))
        updates, moments = optimizer.update(gradient, moments)
        return (optax.apply_updates(params, updates), moments), value

    params = tfm.calibrate(tfm.init(specs, jax.random.key(seed)), config, batch(STEPS))
    return jax.lax.scan(update, (params, optimizer.init(params)), jnp.arange(STEPS))[1]


def last_loss(scheme, seed):
    """The mean loss of the last ten steps."""
    return float(losses(config_of(scheme), seed)[-10:].mean())


@pytest.mark.exhaustive
@pytest.mark.parametrize("scheme", [name for name, row in VARIANTS.items() if row.trains_deep])
def test_deep_models_train_without_warmup(scheme):
    assert max(last_loss(scheme, seed) for seed in range(SEEDS)) < 0.5 * CHANCE


@pytest.mark.exhaustive
def test_post_norm_does_not():
    assert min(last_loss("post", seed) for seed in range(SEEDS)) > 0.9 * CHANCE

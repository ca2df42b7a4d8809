"""Claims of which `docs/claims.py` trains small models, several runs in one program."""

import dataclasses
import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

import tfm
from tfm.models.encoder import pass_context

Values = dict[str, Sequence[float]]

WORDS, LENGTH, ROWS, TAIL = 32, 48, 16, 20  # of the copies: vocabulary, tokens, rows of a batch, steps of the mean loss
LONGEST = 20  # tokens after which a row begins again, at most, where that differs from row to row


def small(layers: int = 2, heads: int = 4, width: int = 32, **values: Any) -> tfm.Config:
    """A small decoder."""
    sizes = {"layers": layers, "heads": heads, "width": width, "ffn": 4 * width, "vocab": WORDS, "length": 128}
    config = tfm.Config(dropout=0.0, init_std=0.1, pad_vocab_to=1, **sizes)
    shown = {"residual": "pre", **values}
    return tfm.override(config, {"input.norm": shown["residual"] == "post", "input.token_types": None, **shown})


def copies(key: Array, period: int = 12, length: int = LENGTH) -> Array:
    """int32 [16,length]: random tokens, again and again, so that all but the first can be known; 0: after 8 to
    `LONGEST` tokens, in each row another count."""
    if not period:
        periods = periods_of(key)
        tokens = jax.random.randint(key, (ROWS, LONGEST), 0, WORDS)
        return jnp.take_along_axis(tokens, jnp.arange(length)[None] % periods[:, None], axis=1)
    tokens = jax.random.randint(key, (ROWS, period), 0, WORDS)
    return jnp.tile(tokens, (1, -(-length // period)))[:, :length]


def periods_of(key: Array) -> Array:
    """int32 [16]: after how many tokens each row begins again."""
    return jax.random.randint(jax.random.fold_in(key, 1), (ROWS,), 8, LONGEST + 1)


def copy_loss(model: tfm.CausalLM, config: tfm.Config, tokens: Array, known: int) -> Array:
    """The mean loss of the tokens behind the first `known`, in nats."""
    losses = tfm.cross_entropy(tfm.causal_lm(model, config, tokens[:, :-1]), targets=tokens[:, 1:])
    return losses[:, known - 1 :].mean()


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def trained(
    config: tfm.Config,
    optimizer: optax.GradientTransformation,
    steps: int,
    period: int,
    rates: Array,
    warmups: Array,
    seeds: Array,
) -> tuple[Any, Array]:
    """Models and losses [runs, steps] of runs in turn: a rate, steps of warm-up and a seed of each, [runs]."""

    def run(rate: Array, warmup: Array, seed: Array) -> tuple[Any, Array]:
        model = tfm.init(tfm.causal_lm_specs(config), jax.random.key(seed))

        def step(carry: Any, n: Array) -> tuple[Any, Array]:
            model, state = carry
            tokens = copies(jax.random.fold_in(jax.random.key(1000 + seed), n), period)
            loss, gradient = jax.value_and_grad(copy_loss)(model, config, tokens, period or LONGEST)
            updates, state = optimizer.update(gradient, state, model)
            now = rate * jnp.minimum(1.0, (n + 1) / warmup)
            return (jax.tree.map(lambda leaf, update: leaf - now * update, model, updates), state), loss

        (model, _), losses = jax.lax.scan(step, (model, optimizer.init(model)), jnp.arange(steps))
        return model, losses

    return jax.lax.map(lambda settings: run(*settings), (rates, warmups, seeds))


ADAM = optax.chain(optax.clip_by_global_norm(1.0), optax.scale_by_adam())
SGD = optax.chain(optax.clip_by_global_norm(1.0), optax.trace(0.9))


def final_losses(config: tfm.Config, seeds: int, rates: Sequence[float], warmup: int = 1, **options: Any) -> np.ndarray:
    """Mean losses of the last steps [rates, seeds]; a run that diverges has infinity."""
    grid = list(itertools.product(rates, range(seeds)))
    arrays = jnp.array([rate for rate, _ in grid]), jnp.full(len(grid), warmup), jnp.array([seed for _, seed in grid])
    settings = options.get("optimizer", ADAM), options.get("steps", 400), options.get("period", 12)
    losses = np.asarray(trained(config, *settings, *arrays)[1])[:, -TAIL:].mean(1)
    return np.nan_to_num(losses, nan=np.inf).reshape(len(rates), seeds)


def warmup(seeds: int) -> Values:
    """Post-norm needs warm-up, pre-norm does not: 6 layers, rate 5e-3, copies of 12."""
    rows = {}
    for residual, steps in (("post", 1), ("post", 100), ("pre", 1)):
        config = small(6, width=64, residual=residual)
        name = f"{residual}, {'no warm-up' if steps == 1 else '100 steps'}"
        rows[name] = final_losses(config, seeds, [5e-3], steps)[0]
    return rows


def adam(seeds: int) -> Values:
    """SGD with momentum is worse than Adam at the best rate of a wide grid of each."""
    grids = {"adam": (ADAM, 10.0 ** np.arange(-4, -1, 0.5)), "sgd": (SGD, 10.0 ** np.arange(-2, 1.5, 0.5))}
    rows = {}
    for name, (optimizer, rates) in grids.items():
        losses = final_losses(small(), seeds, rates, optimizer=optimizer, steps=300)
        best = losses.mean(1).argmin()
        rows[f"{name}, best rate {rates[best]:.2g} of {rates[0]:.2g} to {rates[-1]:.2g}"] = losses[best]
    return rows


def residual(seeds: int) -> Values:
    """Deep stacks need residual connections."""
    return {
        f"{scheme}, 6 layers": final_losses(small(6, residual=scheme), seeds, [2e-3])[0] for scheme in ("none", "pre")
    }


def heads(seeds: int) -> Values:
    """Several heads of size D / H learn more surely than one."""
    return {f"{count} heads": final_losses(small(heads=count), seeds, [2e-3])[0] for count in (1, 4)}


def starts(seeds: int) -> Values:
    """Several heads are less hurt by a bad start than one: weights five times as large."""
    return {f"{count} heads": final_losses(small(heads=count, init_std=0.5), seeds, [2e-3])[0] for count in (1, 4)}


def recurrence(seeds: int) -> Values:
    """A recurrent network forgets what lies far back, attention does not."""
    mixers = {"softmax": {}, "gru": {"mixer": "gru", "position": "none"}}
    return {
        f"{name}, copies of {period}": final_losses(small(**values), seeds, [3e-3], period=period)[0]
        for period in (3, 20)
        for name, values in mixers.items()
    }


def positions(seeds: int) -> Values:
    """Relative positions go on beyond the length of training, absolute ones do not: losses at 48 and at 96 tokens."""
    rows = {}
    for name in ("learned", "rotary", "alibi"):
        config = small(position=name)
        arrays = jnp.full(seeds, 3e-3), jnp.ones(seeds), jnp.arange(seeds)
        models, losses = trained(config, ADAM, 400, 12, *arrays)
        rows[f"{name}, 48 tokens"] = losses[:, -TAIL:].mean(1)
        longer = copies(jax.random.key(5), 12, 96)
        test = jax.jit(jax.vmap(copy_loss, (0, None, None, None)), static_argnums=(1, 3))
        rows[f"{name}, tokens 48 to 96"] = test(models, config, longer, LENGTH)
    return rows


def induction(seeds: int) -> Values:
    """Two layers make induction heads, which look behind earlier tokens like this one; one layer cannot. The score of a
    head is its mean weight on the tokens that followed there (Olsson et al. 2022); the best head counts."""
    rows = {}
    for layers in (1, 2):
        config = small(layers, position="alibi")
        arrays = jnp.full(seeds, 3e-3), jnp.full(seeds, 50), jnp.arange(seeds)
        models, losses = trained(config, ADAM, 800, 0, *arrays)
        rows[f"{layers} layers, loss"] = losses[:, -TAIL:].mean(1)
        rows[f"{layers} layers, score of the best head"] = jax.jit(jax.vmap(partial(_prefix_score, config)))(models)
    return rows


def _prefix_score(config: tfm.Config, model: tfm.CausalLM) -> Array:
    """The largest score of a head on new rows."""
    key = jax.random.key(7)
    tokens, periods = copies(key, 0), periods_of(key)[:, None]
    x = tfm.embed(model.decoder.embed, config, tokens)
    context = dataclasses.replace(pass_context(x, None, None, causal=True), record=True)
    outputs = tfm.by_layer(config, tfm.stack(model.decoder, config, x, context)[1])
    queries, keys = jnp.arange(LONGEST, LENGTH)[:, None], jnp.arange(LENGTH)[None]
    followed = ((queries + 1 - keys) % periods[:, :, None] == 0) & (keys <= queries)
    scores = []
    for output in outputs:
        of_heads = output.weights.reshape(ROWS, -1, LENGTH, LENGTH)[:, :, LONGEST:]
        scores.append((of_heads * followed[:, None]).sum(-1).mean((0, 2)).max())
    return jnp.stack(scores).max()


TRAINED = {
    function.__name__: function
    for function in (warmup, adam, residual, heads, starts, recurrence, positions, induction)
}

"""Claims on what is learned of texts that are drawn from a chain, of small batches and of repetitions."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from claims_trained import ADAM, LENGTH, ROWS, TAIL, WORDS, Values, copies, copy_loss, small
from jax import Array

import tfm
from tfm.models.encoder import pass_context

EVERY = 7  # of a masked language model, every seventh token is masked: 14 %
COPIES, TEXTS, PROMPT = (1, 8, 64, 512), 4, 12  # of memorization: repetitions, texts of each, tokens that are shown


def fit(specs: Any, loss: Callable[[Any, Array], Array], steps: int, rate: float, seed: Array) -> tuple[Any, Array]:
    """A model of specs after steps of `descend`, and all losses."""
    return descend(tfm.init(specs, jax.random.key(seed)), tfm.trained_mask(specs), loss, (steps, rate), seed)


def descend(
    model: Any, is_trained: Any, loss: Callable[[Any, Array], Array], schedule: tuple[int, float], seed: Array
) -> tuple[Any, Array]:
    """A model after steps of Adam with a rate that falls to 0, and all losses; running state takes its changes."""
    steps, rate = schedule

    def step(carry: Any, n: Array) -> tuple[Any, Array]:
        model, state = carry
        value, gradient = jax.value_and_grad(loss)(model, jax.random.fold_in(jax.random.key(1000 + seed), n))
        slopes = jax.tree.map(lambda trains, leaf: leaf if trains else 0 * leaf, is_trained, gradient)
        updates, state = ADAM.update(slopes, state, model)
        now = rate * jnp.minimum((n + 1) / 50, 1 - n / steps)
        change = lambda trains, update, leaf: -now * update if trains else leaf
        return (jax.tree.map(jnp.add, model, jax.tree.map(change, is_trained, updates, gradient)), state), value

    (model, _), losses = jax.lax.scan(step, (model, ADAM.init(model)), jnp.arange(steps))
    return model, losses


def batches(seeds: int) -> Values:
    """Batch normalization needs large batches, layer normalization does not: losses of new copies of 12, after 1,000
    steps of batches of two rows; evaluation has the running statistics."""
    rows = {}
    for norm in ("layer", "batch"):
        config = small(norm=norm)

        def loss(model: Any, key: Array, config: tfm.Config = config) -> Array:
            return copy_loss(model, config, copies(key)[:2], 12)

        def of_seed(seed: Array, config: tfm.Config = config, loss: Any = loss) -> Array:
            model, _ = fit(tfm.causal_lm_specs(config), loss, 1000, 3e-3, seed)
            return copy_loss(model, config, copies(jax.random.key(7)), 12)

        rows[f"{norm}, batches of 2 rows"] = jax.jit(partial(jax.lax.map, of_seed))(jnp.arange(seeds))
    return rows


def chain(seed: Array) -> Array:
    """float32 [32,32]: probabilities of the token after each, of which a few are likely."""
    return jax.nn.softmax(2 * jax.random.normal(jax.random.key(500 + seed), (WORDS, WORDS)), axis=-1)


def draw(key: Array, probabilities: Array) -> Array:
    """int32 [16,48]: texts of a chain."""
    first = jax.random.randint(key, (ROWS,), 0, WORDS)
    follow = lambda token, key: (jax.random.categorical(key, jnp.log(probabilities[token])),) * 2
    return jnp.concatenate([first[:, None], jax.lax.scan(follow, first, jax.random.split(key, LENGTH - 1))[1].T], 1)


def lm_excess(model: tfm.CausalLM, key: Array, seed: Array) -> Array:
    """The loss of a language model over that of who knows the chain."""
    probabilities = chain(seed)
    tokens = draw(key, probabilities)
    losses = tfm.cross_entropy(tfm.causal_lm(model, small(), tokens[:, :-1]), targets=tokens[:, 1:])
    return (losses + jnp.log(probabilities[tokens[:, :-1], tokens[:, 1:]])).mean()


def mlm_excess(model: tfm.MaskedLM, key: Array, seed: Array) -> Array:
    """The loss of a masked language model over that of who knows the chain; neighbours of a mask are seen."""
    probabilities = chain(seed)
    tokens = draw(key, probabilities)
    places = jax.random.randint(key, (ROWS, 1), 1, EVERY - 1) + EVERY * jnp.arange(LENGTH // EVERY)[None]
    targets, before, after = (jnp.take_along_axis(tokens, places + step, 1) for step in (0, -1, 1))
    joint = probabilities[before] * jnp.moveaxis(probabilities[:, after], 0, -1)
    hidden = tokens.at[jnp.arange(ROWS)[:, None], places].set(WORDS)
    logits = tfm.masked_lm(model, small(vocab=WORDS + 1), hidden, places)
    return (tfm.cross_entropy(logits, targets=targets) - tfm.cross_entropy(jnp.log(joint), targets=targets)).mean()


def objectives(seeds: int) -> Values:
    """A masked language model learns from few of its tokens: the share of what a chain has to teach that is not learned
    after as many tokens."""
    rows = {}
    for name, excess, specs in (
        ("lm", lm_excess, tfm.causal_lm_specs(small())),
        ("mlm", mlm_excess, tfm.masked_lm_specs(small(vocab=WORDS + 1))),
    ):

        def of_seed(seed: Array, excess: Any = excess, specs: Any = specs) -> Array:
            losses = fit(specs, lambda model, key: excess(model, key, seed), 400, 3e-3, seed)[1]
            return losses.reshape(4, -1)[:, -TAIL:].mean(1) / losses[0]

        shares = jax.jit(jax.vmap(of_seed))(jnp.arange(seeds))
        rows |= {f"{name}, {LENGTH * ROWS * 100 * (n + 1):,} tokens": shares[:, n] for n in (0, 1, 3)}
    return rows


def memorization(seeds: int) -> Values:
    """Models learn texts by heart that they read often (Carlini et al. 2022): the share of random texts of 48 tokens
    among random ones, of which a model writes all that follows the first 12."""
    kept = TEXTS * sum(COPIES)
    steps = 2 * kept // ROWS

    def of_seed(seed: Array) -> Array:
        config = small(width=64)
        texts = jax.random.randint(jax.random.key(300 + seed), (len(COPIES), TEXTS, LENGTH), 0, WORDS)
        repeated = jnp.concatenate([jnp.tile(texts[n], (count, 1)) for n, count in enumerate(COPIES)])
        fresh = jax.random.randint(jax.random.key(400 + seed), (steps * ROWS - kept, LENGTH), 0, WORDS)
        stream = jax.random.permutation(jax.random.key(seed), jnp.concatenate([repeated, fresh])).reshape(
            steps, ROWS, LENGTH
        )

        def step(carry: Any, tokens: Array) -> tuple[Any, None]:
            model, state = carry
            gradient = jax.grad(copy_loss)(model, config, tokens, 1)
            updates, state = ADAM.update(gradient, state, model)
            return (jax.tree.map(lambda leaf, update: leaf - 3e-3 * update, model, updates), state), None

        model = tfm.init(tfm.causal_lm_specs(config), jax.random.key(seed))
        (model, _), _ = jax.lax.scan(step, (model, ADAM.init(model)), stream)
        logits = tfm.causal_lm(model, config, texts.reshape(-1, LENGTH)[:, :-1])
        right = logits.argmax(-1).reshape(len(COPIES), TEXTS, -1) == texts[:, :, 1:]
        return jnp.stack([right[:, :, PROMPT - 1 :].all(-1).mean(1), right[:, :, PROMPT - 1 :].mean((1, 2))])

    shares = jax.jit(jax.vmap(of_seed))(jnp.arange(seeds))
    return {
        f"read {count} times, {name}": shares[:, index, n]
        for index, name in enumerate(("whole texts", "single tokens"))
        for n, count in enumerate(COPIES)
    }


def trained_rank(seeds: int) -> Values:
    """Training makes weights of attention lower in rank: the share of the first quarter of their singular values,
    at the start and after 300 steps, a mean over rows, layers and heads."""

    def share(config: tfm.Config, model: tfm.CausalLM) -> Array:
        x = tfm.embed(model.decoder.embed, config, copies(jax.random.key(7)))
        context = pass_context(x, None, None, causal=True).replace(record=True)
        outputs = tfm.by_layer(config, tfm.stack(model.decoder, config, x, context)[1])
        values = jnp.linalg.svd(jnp.stack([output.weights for output in outputs]), compute_uv=False)
        return (values[..., : LENGTH // 4].sum(-1) / values.sum(-1)).mean()

    config = small()

    def of_seed(seed: Array) -> Array:
        specs = tfm.causal_lm_specs(config)
        model, _ = fit(specs, lambda model, key: copy_loss(model, config, copies(key), 12), 300, 3e-3, seed)
        return jnp.stack([share(config, tfm.init(specs, jax.random.key(seed))), share(config, model)])

    shares = jax.jit(jax.vmap(of_seed))(jnp.arange(seeds))
    return {"at the start": shares[:, 0], "after 300 steps on copies of 12": shares[:, 1]}


LEARNED = {function.__name__: function for function in (batches, objectives, memorization, trained_rank)}

"""A claim on how the loss falls with parameters, data and operations."""

import itertools
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from claims_trained import ADAM, Values, small
from jax import Array
from scipy.optimize import least_squares

import tfm
from train.data.sources import builtin

# Characters of a row, rows of a batch, rows to test on; widths of models; a run has parts of so many steps.
ROW, BATCH, TESTED, RATE = 64, 16, 256, 3e-3
WIDTHS, PARTS, STEPS = (8, 16, 32, 64), 4, 100


def characters() -> np.ndarray:
    """uint8 [characters]: the built-in text, of which all but ASCII is a question mark."""
    return np.frombuffer("\n".join(builtin.documents()).encode("ascii", "replace"), np.uint8)


def language_losses(width: int, seeds: Array) -> Array:
    """Losses of characters of the last tenth, [seeds,4]: a model of two layers, after more and more batches of the
    rest."""
    config = small(width=width, vocab=128, length=ROW, init_std=width**-0.5)
    text = jnp.asarray(characters())
    border = len(text) - len(text) // 10
    tests = jnp.asarray(np.random.default_rng(0).integers(border, len(text) - ROW - 1, TESTED))

    def loss(model: tfm.CausalLM, text: Array, starts: Array) -> Array:
        rows = text[starts[:, None] + jnp.arange(ROW + 1)].astype(jnp.int32)
        return tfm.cross_entropy(tfm.causal_lm(model, config, rows[:, :-1]), targets=rows[:, 1:]).mean()

    def of_seed(text: Array, seed: Array) -> Array:
        def step(carry: Any, n: Array) -> tuple[Any, None]:
            model, state = carry
            key = jax.random.fold_in(jax.random.key(1000 + seed), n)
            gradient = jax.grad(loss)(model, text, jax.random.randint(key, (BATCH,), 0, border - ROW - 1))
            updates, state = ADAM.update(gradient, state, model)
            now = RATE * jnp.minimum((n + 1) / 50, 1)
            return (jax.tree.map(lambda leaf, update: leaf - now * update, model, updates), state), None

        def part(carry: Any, steps: Array) -> tuple[Any, Array]:
            carry, _ = jax.lax.scan(step, carry, steps)
            return carry, loss(carry[0], text, tests)

        model = tfm.init(tfm.causal_lm_specs(config), jax.random.key(seed))
        return jax.lax.scan(part, (model, ADAM.init(model)), jnp.arange(PARTS * STEPS).reshape(PARTS, STEPS))[1]

    return jax.jit(lambda text: jax.lax.map(partial(of_seed, text), seeds))(text)


def predicted(law: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Losses [points] of sizes [points,2]."""
    floor, a, of_parameters, b, of_data = law
    return floor + of_parameters * sizes[:, 0] ** -a + of_data * sizes[:, 1] ** -b


def fitted(sizes: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """E, a, A, b, B of losses = E + A / N^a + B / D^b, by least squares of logarithms; sizes [points,2] are N and D in
    units of their geometric means (Hoffmann et al. 2022, equation 10)."""
    error = lambda law: np.log(predicted(law, sizes) / losses)
    starts = [(floor, power, 0.3, power, 0.3) for floor in (0.1, 0.5, 0.8) for power in (0.2, 0.5)]
    starts = [np.array(start) * (losses.min(), 1, losses.min(), 1, losses.min()) for start in starts]
    return min((least_squares(error, start, bounds=(1e-6, 10)) for start in starts), key=lambda fit: fit.cost).x


def law(seeds: int) -> Values:
    """The loss falls with powers of parameters N and characters D (Kaplan et al. 2020; Hoffmann et al. 2022): a law is
    fitted to 16 sizes for each seed, and one to those without the largest model foretells its loss. Parameters are
    those without embeddings, operations are 6 N D."""
    losses = np.concatenate([language_losses(width, jnp.arange(seeds)) for width in WIDTHS], 1)
    points = itertools.product(WIDTHS, range(1, PARTS + 1))
    sizes = np.array([(24 * width**2, part * STEPS * BATCH * ROW) for width, part in points], float)
    units = sizes / np.exp(np.log(sizes).mean(0))
    laws = [fitted(units, of_seed) for of_seed in losses]
    is_smaller = sizes[:, 0] < sizes[-1, 0]
    foretold = [predicted(fitted(units[is_smaller], of_seed[is_smaller]), units[-1:])[0] for of_seed in losses]
    rows = {f"{int(sizes[n, 0]):,} parameters, {int(sizes[n, 1]):,} characters": losses[:, n] for n in (0, 3, 12, 15)}
    return rows | {
        "power of the parameters": [a for _, a, _, _, _ in laws],
        "power of the characters": [b for _, _, _, b, _ in laws],
        "power of the operations, at the best size": [a * b / (a + b) for _, a, _, b, _ in laws],
        "loss that no size goes below": [floor for floor, *_ in laws],
        "error of the law, root of the mean square": [
            float(np.sqrt(np.mean((predicted(law, units) / of_seed - 1) ** 2)))
            for law, of_seed in zip(laws, losses, strict=True)
        ],
        "the largest model, longest run: foretold over measured": foretold / losses[:, -1],
    }


LAW = {function.__name__: function for function in (law,)}

"""Claims of books and papers, with small models: `python docs/claims.py NAME [SEEDS]` prints what was measured.

docs/claims.md says what each of them claims, and whether it agrees.
"""

import argparse
import itertools
from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
import numpy as np
from claims_law import LAW
from claims_learned import LEARNED
from claims_scaled import SCALED
from claims_timed import TIMED
from claims_trained import LENGTH, ROWS, TRAINED, WORDS, Values, copy_loss, small
from jax import Array

import tfm
from train.lab.compare.statistics import bootstrap_interval


def first_gradients(seeds: int) -> Values:
    """At the start the gradient of the last feed-forward layer falls with depth in pre-norm, not in post-norm."""

    def size(residual: str, layers: int, seed: int) -> float:
        config = small(layers, width=64, residual=residual)
        model = tfm.init(tfm.causal_lm_specs(config), jax.random.key(seed))
        tokens = jax.random.randint(jax.random.key(seed), (ROWS, LENGTH), 0, WORDS)
        gradient = jax.jit(jax.grad(copy_loss), static_argnums=(1, 3))(model, config, tokens, 1)
        return float(jnp.linalg.norm(gradient.decoder.layers.period[0].feed_forward.down.kernel[-1]))

    return {
        f"{residual}, 12 layers over 2": [size(residual, 12, seed) / size(residual, 2, seed) for seed in range(seeds)]
        for residual in ("post", "pre")
    }


def collapse(seeds: int) -> Values:
    """Without residual connections all tokens become alike, doubly fast in depth: |X - mean| / |X| after 6 layers."""

    def spread(residual: str, seed: int) -> float:
        config = small(6, width=64, residual=residual, position="none")
        model = tfm.init(tfm.causal_lm_specs(config), jax.random.key(seed)).decoder
        tokens = jax.random.randint(jax.random.key(seed), (1, LENGTH), 0, WORDS)
        x = jax.jit(tfm.hidden_states, static_argnums=1)(model, config, tokens)[-1][0]
        return float(jnp.linalg.norm(x - x.mean(0)) / jnp.linalg.norm(x))

    return {name: [spread(name, seed) for seed in range(seeds)] for name in ("none", "post", "pre")}


def masks(seeds: int) -> Values:
    """A decoder needs its mask in writing too: the change of earlier states when tokens are added."""

    def change(read: Callable[..., Array], seed: int) -> float:
        config = small(init_std=0.5)
        model = tfm.init(tfm.causal_lm_specs(config), jax.random.key(seed)).decoder
        tokens = jax.random.randint(jax.random.key(seed), (1, 16), 0, WORDS)
        states = jax.jit(read, static_argnums=1)
        return float(jnp.abs(states(model, config, tokens)[:, :8] - states(model, config, tokens[:, :8])).max())

    readers = {"with the mask": tfm.decoder, "without": tfm.encoder}
    return {name: [change(read, seed) for seed in range(seeds)] for name, read in readers.items()}


def scores(seeds: int) -> Values:
    """Scores of large heads leave the softmax no derivative, unless they are divided by the root of the size."""

    def gradients(size: int, scale: float, seed: int) -> tuple[float, float]:
        """Norms of the gradient by the inputs of the softmax: of all queries, and of the median one; q and k are
        normal."""
        q, k, v, target = jax.random.normal(jax.random.key(seed), (4, 64, size))
        loss = lambda inputs: jnp.square(jax.nn.softmax(inputs, axis=-1) @ v - target).mean()
        norms = jnp.linalg.norm(jax.grad(loss)(scale * q @ k.T), axis=-1)
        return float(jnp.linalg.norm(norms)), float(jnp.median(norms))

    return {
        f"{name}, size {size}: unscaled over scaled": [
            gradients(size, 1.0, seed)[place] / gradients(size, size**-0.5, seed)[place] for seed in range(seeds)
        ]
        for place, name in enumerate(("all queries", "median query"))
        for size in (16, 256, 4096)
    }


def rank(seeds: int) -> Values:
    """Weights of attention are nearly of low rank: the share of the first quarter of their singular values."""

    def share(weights: Array) -> float:
        values = np.linalg.svd(np.asarray(weights), compute_uv=False)
        return float(values[: len(values) // 4].sum() / values.sum())

    def weights(seed: int, states: bool) -> Array:
        key = jax.random.key(seed)
        if not states:
            return jax.nn.softmax(jax.random.normal(key, (128, 128)), axis=-1)
        q, k = jax.random.normal(key, (2, 1, 128, 1, 1, 16))
        return tfm.attention_weights(q, k[:, :, :, 0])[0, 0, 0]

    return {
        "heads of size 16, random q and k": [share(weights(seed, True)) for seed in range(seeds)],
        "no heads: softmax of a normal matrix": [share(weights(seed, False)) for seed in range(seeds)],
    }


def offsets(seeds: int) -> Values:
    """With sinusoids, a step of k places is a linear map, the same everywhere: the residual of least squares."""

    def residual_of(positions: np.ndarray, k: int) -> float:
        before, after = positions[:-k], positions[k:]
        map_of_step = np.linalg.lstsq(before, after, rcond=None)[0]
        return float(np.abs(before @ map_of_step - after).max())

    waves = np.asarray(tfm.sinusoidal(jnp.arange(256), 64), np.float64)
    normal = lambda seed: np.random.default_rng(seed).normal(size=(256, 64))
    steps = [1 + 7 * seed for seed in range(seeds)]
    return {
        "sinusoids": [residual_of(waves, k) for k in steps],
        "normal vectors": [residual_of(normal(k), k) for k in steps],
    }


def order(seeds: int) -> Values:
    """Attention without positions does not know the order of words: the change of shuffled outputs, beside order."""

    def change(seed: int, places: float, mask: tfm.Mask | None) -> float:
        x, order = jax.random.normal(jax.random.key(seed), (16, 32)), np.random.default_rng(seed).permutation(16)
        wave = places * tfm.sinusoidal(jnp.arange(16), 32)
        read = lambda x: tfm.attend(*[(x + wave)[None, :, None]] * 3, mask)[0, :, 0]
        return float(jnp.abs(read(x)[order] - read(x[order])).max())

    rows = {"without positions": (0.0, None), "with sinusoids": (1.0, None), "a decoder, none": (0.0, tfm.causal())}
    return {name: [change(seed, *options) for seed in range(seeds)] for name, options in rows.items()}


def retrieval(seeds: int) -> Values:
    """An update of a modern Hopfield network is attention, and finds a stored pattern in one step: the distance."""

    def distance(seed: int, beta: float) -> float:
        patterns, noise = jax.random.normal(jax.random.key(seed), (2, 32, 64))
        state = patterns[0] + 0.3 * noise[0]
        keys = patterns[None, :, None]
        update = tfm.attend(beta * 8 * state[None, None, None], keys, keys)[0, 0, 0]
        return float(jnp.linalg.norm(update - patterns[0]) / jnp.linalg.norm(patterns[0]))

    return {f"beta {beta}": [distance(seed, beta) for seed in range(seeds)] for beta in (0.01, 0.125, 1.0)}


def kernels(seeds: int) -> Values:
    """Positive random features approach the exponential as there are more of them: the error of attention."""

    def error(seed: int, features: int) -> float:
        key, draw = jax.random.split(jax.random.key(seed))
        q, k, v = 0.5 * jax.random.normal(key, (3, 64, 16))
        directions = jax.random.normal(draw, (features, 16))
        positive = lambda x: jnp.exp(x @ directions.T - jnp.square(x).sum(-1, keepdims=True) / 2)
        weights = positive(q / 2) @ positive(k / 2).T  # the root of 16 is 4: 2 for each side
        exact = tfm.attend(*[x[None, :, None] for x in (q, k, v)])[0, :, 0]
        return float(jnp.linalg.norm(weights / weights.sum(1, keepdims=True) @ v - exact) / jnp.linalg.norm(exact))

    return {f"{features} features": [error(seed, features) for seed in range(seeds)] for features in (16, 256, 4096)}


def quadratic(seeds: int) -> Values:
    """Attention costs four times as much for twice the tokens, a linear kernel twice: counted operations."""
    from train.planning import counting

    def by_sums(q: Array, k: Array, v: Array) -> Array:
        return q @ (k.T @ v) / (q @ k.sum(0))[:, None]

    def ratio(function: Callable[..., Array], shape: Callable[[int], tuple[int, ...]], n: int) -> float:
        count = lambda n: counting.flops(function, *[jax.ShapeDtypeStruct(shape(n), jnp.float32)] * 3)
        return count(2 * n) / count(n)

    lengths = [256 * 2**seed for seed in range(seeds)]
    return {
        "softmax": [ratio(tfm.attend, lambda n: (1, n, 1, 64), n) for n in lengths],
        "linear kernel": [ratio(by_sums, lambda n: (n, 64), n) for n in lengths],
    }


def variance(seeds: int) -> Values:
    """Products of normal queries and keys have the variance of their size; scaled scores have variance 1."""

    def spread(size: int, seed: int) -> float:
        q, k = jax.random.normal(jax.random.key(seed), (2, 1, 128, 1, 1, size))
        return float(tfm.attention_scores(q, k[:, :, :, 0]).var())

    return {f"scaled, size {size}": [spread(size, seed) for seed in range(seeds)] for size in (16, 256, 4096)}


def biases(seeds: int) -> Values:
    """A bias of keys changes no output, one of queries does: the largest change."""

    def change(seed: int, to_queries: bool) -> float:
        q, k, v = jax.random.normal(jax.random.key(seed), (3, 1, 32, 1, 16))
        bias = jax.random.normal(jax.random.key(1000 + seed), (16,))
        moved = tfm.attend(q + bias, k, v) if to_queries else tfm.attend(q, k + bias, v)
        return float(jnp.abs(moved - tfm.attend(q, k, v)).max())

    return {
        name: [change(seed, to_queries) for seed in range(seeds)]
        for name, to_queries in (("keys", False), ("queries", True))
    }


def normalization(seeds: int) -> Values:
    """Layer norm takes mean and deviation of a token, not of a text or a batch: the change by another token."""

    def of_tokens(x: Array) -> Array:
        return tfm.layer_norm(tfm.Norm(jnp.ones(16), jnp.zeros(16)), x, 1e-6)

    def of_text(x: Array) -> Array:
        return (x - x.mean()) / x.std()

    def change(norm: Callable[[Array], Array], seed: int) -> float:
        x = jax.random.normal(jax.random.key(seed), (8, 16))
        return float(jnp.abs(norm(x)[1:] - norm(x.at[0].mul(10.0))[1:]).max())

    rows = {"of a token, as here": of_tokens, "of all tokens of a text": of_text}
    return {name: [change(norm, seed) for seed in range(seeds)] for name, norm in rows.items()}


def branches(seeds: int) -> Values:
    """In a pre-norm stack a block adds less and less beside the stream: |change| / |stream| at the start."""

    def shares(seed: int) -> list[float]:
        config = small(12, width=64)
        model = tfm.init(tfm.causal_lm_specs(config), jax.random.key(seed)).decoder
        tokens = jax.random.randint(jax.random.key(seed), (1, LENGTH), 0, WORDS)
        states = jax.jit(tfm.hidden_states, static_argnums=1)(model, config, tokens)[:12]
        size = jnp.linalg.norm
        return [float(size(after - before) / size(before)) for before, after in itertools.pairwise(states)]

    by_seed = [shares(seed) for seed in range(seeds)]
    return {f"block {block}": [row[block - 1] for row in by_seed] for block in (1, 4, 11)}


CLAIMS = (
    TRAINED
    | LEARNED
    | SCALED
    | LAW
    | TIMED
    | {
        function.__name__: function
        for function in (
            *(first_gradients, collapse, masks, scores, rank, offsets, order, retrieval, kernels, quadratic),
            *(variance, biases, normalization, branches),
        )
    }
)


def rows_of(claim: str, seeds: int) -> Iterable[str]:
    """Rows of what was measured: the mean over seeds, and its interval of 95 %."""
    for label, values in CLAIMS[claim](seeds).items():
        low, high = bootstrap_interval(values)
        yield f"{label:44} {float(np.mean(values)):.3g} ({low:.3g} to {high:.3g})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Prints the rows of a claim of docs/claims.md.")
    parser.add_argument("claim", choices=CLAIMS)
    parser.add_argument("seeds", type=int, nargs="?", choices=range(1, 101), metavar="SEEDS", default=3)
    options = parser.parse_args()
    print(*rows_of(options.claim, options.seeds), sep="\n")

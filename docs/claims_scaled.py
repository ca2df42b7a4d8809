"""A claim on examples in a text, and on the size of models that read them."""

import random
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from claims_learned import fit
from claims_trained import Values, small
from jax import Array

import tfm
from train.data.synthetic import in_context

# How many examples a text has, those before the answer that counts, rows to train and to test on, widths of models.
EXAMPLES, SHOTS, TEXTS, NEW_TEXTS = 9, (0, 1, 2, 4, 8), 20_000, 1_000
EXAMPLE_WIDTHS = (8, 64)
EXAMPLE_WORDS = (*in_context.NOUNS, *in_context.INVENTED, *map(str, range(50)))


def example_texts(count: int, seed: int) -> np.ndarray:
    """int32 [count,18]: questions and answers in turn, of words of an invented language or of a line y = s x + o. A
    token is a word or a number."""
    rng = random.Random(seed)
    ids = {word: index for index, word in enumerate(EXAMPLE_WORDS)}
    texts = []
    for _ in range(count):
        example = rng.choice((in_context.translation, in_context.regression))(rng)
        texts.append([ids[word] for _ in range(EXAMPLES) for word in example(rng)])
    return np.array(texts, np.int32)


def example_accuracies(width: int, seeds: Array) -> Array:
    """The share of right answers in new texts, [seeds, 9], by the examples before them."""
    train, test = jnp.asarray(example_texts(TEXTS, 0)), jnp.asarray(example_texts(NEW_TEXTS, 1))
    config = small(width=width, heads=2, vocab=len(EXAMPLE_WORDS), position="alibi", init_std=width**-0.5)

    def loss(model: tfm.CausalLM, key: Array) -> Array:
        rows = train[jax.random.randint(key, (64,), 0, TEXTS)]
        logits = tfm.causal_lm(model, config, rows[:, :-1])
        return tfm.cross_entropy(logits[:, ::2], targets=rows[:, 1::2]).mean()

    def of_seed(seed: Array) -> Array:
        model, _ = fit(tfm.causal_lm_specs(config), loss, 800, 4e-3, seed)
        guesses = tfm.causal_lm(model, config, test[:, :-1])[:, ::2].argmax(-1)
        return (guesses == test[:, 1::2]).mean(0)

    return jax.jit(partial(jax.lax.map, of_seed))(seeds)


def examples(seeds: int) -> Values:
    """Answers are better after more examples of a rule in the text, and those of larger models gain more (Brown et al.
    2020, figure 1.2): accuracy of the answer after so many examples in new texts."""
    of_widths = {width: example_accuracies(width, jnp.arange(seeds)) for width in EXAMPLE_WIDTHS}
    return {f"width {width}, {shots} examples": of_widths[width][:, shots] for width in of_widths for shots in SHOTS}


SCALED = {function.__name__: function for function in (examples,)}

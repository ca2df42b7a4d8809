import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm

pytestmark = pytest.mark.usefixtures("strict")

VOCAB, SLOTS = 5, 9
STOP = np.array([False, False, True, False, True])
RNG = np.random.default_rng(0)
TOKENS = RNG.integers(0, VOCAB, (4, SLOTS))
PROMPT = RNG.integers(0, VOCAB, (2, 6))
SCORES = RNG.normal(size=(4, VOCAB)).astype(np.float32)


def completes_ngram(text, token, size):
    """Whether a list contains the n-gram that it would end with if a token were appended."""
    ngrams = {tuple(text[start : start + size]) for start in range(len(text) - size + 1)}
    ngram = tuple([*text, token][-size:])
    return len(ngram) == size and ngram in ngrams


def by_loop(prompts, length, **options):
    """Constrained SCORES, token by token; prompts [4,P] as lists."""
    scores = SCORES.copy()
    for row, prompt in enumerate(prompts):
        text = [*prompt, *TOKENS[row, :length].tolist()]
        for token in range(VOCAB):
            repeats = "no_repeat_ngram" in options and completes_ngram(text, token, options["no_repeat_ngram"])
            too_short = STOP[token] and length < options.get("min_length", 0)
            if repeats or too_short or token in options.get("bad_tokens", ()):
                scores[row, token] = -np.inf
            for place, name in ((0, "forced_bos"), (options.get("max_length", 0) - 1, "forced_eos")):
                if name in options and length == place:
                    scores[row, token] = 0 if token == options[name] else -np.inf
    return scores


OPTIONS = {
    "forced_bos": dict(forced_bos=3),
    "forced_eos": dict(forced_eos=2, max_length=7),
    "min_length": dict(min_length=4),
    "bad_tokens": dict(bad_tokens=[0, 3]),
    "unigrams": dict(no_repeat_ngram=1),
    "bigrams": dict(no_repeat_ngram=2),
    "trigrams": dict(no_repeat_ngram=3),
    "longer than any text": dict(no_repeat_ngram=20),
    "all": dict(forced_bos=4, forced_eos=2, max_length=7, min_length=4, bad_tokens=[1], no_repeat_ngram=2),
}


@pytest.mark.parametrize("has_prompt", [False, True], ids=["", "prompt"])
@pytest.mark.parametrize("name", OPTIONS)
def test_constraints_are_a_loop_over_tokens(name, has_prompt):
    """At every length of a text; four rows share two prompts, as continuations of a beam do."""
    options = dict(OPTIONS[name])
    prompts = np.repeat(PROMPT, 2, axis=0).tolist() if has_prompt else [[]] * 4
    arrays = {"prompt": jnp.asarray(PROMPT, jnp.int32)} if has_prompt else {}
    if "bad_tokens" in options:
        arrays["bad_tokens"] = jnp.zeros(VOCAB, bool).at[jnp.asarray(options["bad_tokens"])].set(True)
    constraints = tfm.Constraints(**{**options, **arrays})
    constraints.check()
    constrain = jax.jit(tfm.Constraints.__call__)
    texts = jnp.asarray(TOKENS, jnp.int32)
    changed = 0
    for length in range(SLOTS):
        scores = constrain(constraints, jnp.asarray(SCORES), texts, jnp.int32(length), jnp.asarray(STOP))
        np.testing.assert_array_equal(scores, by_loop(prompts, length, **options))
        changed += int((np.asarray(scores) != SCORES).sum())
    assert (changed > 0) == (name != "longer than any text")


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        (tfm.Constraints(forced_eos=2), "forced_eos=2 needs max_length; set it to the number of new tokens"),
        (tfm.Constraints(no_repeat_ngram=0), "no_repeat_ngram=0 must be at least 1; None allows all repetitions"),
    ],
)
def test_constraints_out_of_range(constraints, message):
    """Every strategy checks them."""
    for strategy in (tfm.Greedy(), tfm.Sample(), tfm.Beam()):
        with pytest.raises(ValueError, match=f"^{message}"):
            strategy.replace(constraints=constraints).check()

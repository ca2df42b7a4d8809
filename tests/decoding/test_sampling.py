import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm
from tfm.attention.attend import MASK_VALUE
from tfm.decoding.sampling import choose_token, filter_logits, penalize_repeats

pytestmark = pytest.mark.usefixtures("strict")

ROWS, VOCAB = 4000, 9
LOGITS = np.array([1.5, -0.5, 0.0, 2.0, 1.0, -2.0, 0.5, 1.5, -1.0], np.float32)


def softmax(logits):
    powers = np.exp(np.asarray(logits, np.float64) - np.max(logits))
    return powers / powers.sum()


def draws_of(strategy, rows=ROWS, step=0, logits=LOGITS):
    """A token for every row; rows have the same logits and seeds of their own."""
    tokens = jax.jit(choose_token)(
        strategy.replace(seed=jnp.arange(rows)), jnp.broadcast_to(jnp.asarray(logits), (rows, len(logits))), None, step
    )
    assert tokens.dtype == jnp.int32
    return np.asarray(tokens)


def assert_drawn_from(tokens, probabilities):
    """Pearson's chi-square test at 1e-5; tokens without probability do not occur."""
    counts = np.bincount(tokens, minlength=len(probabilities))
    likely = probabilities > 0
    np.testing.assert_array_equal(counts[~likely], 0)
    expected = probabilities[likely] * len(tokens)
    assert expected.min() > 5
    freedom = likely.sum() - 1
    limit = freedom * (1 - 2 / (9 * freedom) + 4.27 * math.sqrt(2 / (9 * freedom))) ** 3  # Wilson and Hilferty 1931
    assert ((counts[likely] - expected) ** 2 / expected).sum() < limit


def renormalized(probabilities, allowed):
    return np.where(allowed, probabilities, 0) / probabilities[allowed].sum()


def nucleus(probabilities, top_p):
    """bool [V]: the smallest set of most probable tokens with this total; of equals the first comes first."""
    allowed, total = np.zeros(len(probabilities), bool), 0.0
    for token in np.argsort(-probabilities, kind="stable"):
        if total >= top_p:
            break
        allowed[token], total = True, total + probabilities[token]
    return allowed


def typical(probabilities, total):
    """bool [V]: the tokens whose information is nearest to the entropy, up to this total."""
    information = -np.log(probabilities)
    distance = abs(information - (probabilities * information).sum())
    nearest = np.argsort(distance)
    count = (np.cumsum(probabilities[nearest]) < total).sum() + 1
    return np.isin(np.arange(len(probabilities)), nearest[:count])


P, WARM = softmax(LOGITS), softmax(LOGITS / 1.7)
FOUR = renormalized(P, np.isin(np.arange(VOCAB), [3, 0, 7, 4]))
DRAWS = {
    "plain": (tfm.Sample(), P),
    "cold": (tfm.Sample(temperature=0.8), softmax(LOGITS / 0.8)),
    "warm": (tfm.Sample(temperature=1.7), WARM),
    "top_k": (tfm.Sample(top_k=4), FOUR),
    "top_k_of_all": (tfm.Sample(top_k=100), P),
    "top_p": (tfm.Sample(top_p=0.6), renormalized(P, nucleus(P, 0.6))),  # three tokens
    "min_p": (tfm.Sample(min_p=0.2), renormalized(P, P / P.max() >= 0.2)),
    "warm_top_p": (
        tfm.Sample(temperature=1.7, top_p=0.6),
        renormalized(WARM, nucleus(WARM, 0.6)),
    ),  # four: the other order would give three
    "top_k_top_p": (
        tfm.Sample(top_k=4, top_p=0.6),
        renormalized(FOUR, nucleus(FOUR, 0.6)),
    ),  # two: the other order would give three
    "typical_p": (tfm.Sample(typical_p=0.5), renormalized(P, typical(P, 0.5))),
    "epsilon_cutoff": (tfm.Sample(epsilon_cutoff=0.1), renormalized(P, P >= 0.1)),
    "eta_cutoff": (tfm.Sample(eta_cutoff=0.2), renormalized(P, 0.2**0.5 * np.exp((P * np.log(P)).sum()) <= P)),
    "top_p_min_p": (tfm.Sample(top_p=0.75, min_p=0.2), FOUR),  # the other order would give three
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_follow_the_distribution(name):
    strategy, probabilities = DRAWS[name]
    assert_drawn_from(draws_of(strategy), probabilities)


def test_a_draw_depends_on_its_seed_and_its_step():
    strategy = tfm.Sample(top_p=0.9)
    again, later = draws_of(strategy, 200), draws_of(strategy, 200, step=1)
    np.testing.assert_array_equal(draws_of(strategy, 200), again)
    assert (later != again).mean() > 0.5
    same = choose_token(strategy.replace(seed=7), jnp.broadcast_to(jnp.asarray(LOGITS), (5, VOCAB)), None, 0)
    np.testing.assert_array_equal(same, np.full(5, again[7]))


def test_masked_tokens_are_never_drawn():
    logits = np.array([0.0, MASK_VALUE, 1.0, MASK_VALUE], np.float32)
    for strategy in (tfm.Sample(temperature=50.0), tfm.Sample(top_k=4), tfm.Sample(top_p=1.0), tfm.Sample(min_p=1e-6)):
        assert set(draws_of(strategy, 500, logits=logits)) == {0, 2}


def kept_tokens(strategy, logits):
    """Which tokens [B,V] remain of logits in any order."""
    order = np.argsort(-logits, axis=-1, kind="stable")
    ranked = np.asarray(filter_logits(strategy, jnp.asarray(np.take_along_axis(logits, order, axis=-1))))
    allowed = np.zeros(logits.shape, bool)
    np.put_along_axis(allowed, order, np.isfinite(ranked), axis=-1)
    np.testing.assert_array_equal(ranked[np.isfinite(ranked)], np.sort(logits, axis=-1)[:, ::-1][np.isfinite(ranked)])
    return allowed


@pytest.mark.parametrize("top_p", [1e-6, 0.1, 0.37, 0.5, 0.77, 0.95])
def test_top_p_keeps_the_smallest_set_that_suffices(top_p):
    logits = np.random.default_rng(0).normal(size=(50, 30)).astype(np.float32) * 2
    expected = [nucleus(softmax(row), top_p) for row in logits]
    np.testing.assert_array_equal(kept_tokens(tfm.Sample(top_p=top_p), logits), expected)


def test_top_p_among_equals():
    """A sum that is reached exactly suffices; of equals the first stay."""
    even = np.zeros((1, 4), np.float32)
    assert kept_tokens(tfm.Sample(top_p=0.5), even).tolist() == [[True, True, False, False]]
    assert kept_tokens(tfm.Sample(top_p=0.51), even).tolist() == [[True, True, True, False]]
    uneven = np.log(np.array([[0.125, 0.5, 0.125, 0.25]], np.float32))
    assert kept_tokens(tfm.Sample(top_p=0.8), uneven).tolist() == [[True, True, False, True]]


def test_top_k_keeps_ties_of_the_last_one():
    """As transformers does; and what is masked stays out."""
    logits = np.array([[1, 3, 2, 2, -np.inf, 2], [5, 4, 3, 2, 1, 0]], np.float32)
    assert kept_tokens(tfm.Sample(top_k=2), logits).tolist() == [
        [False, True, True, True, False, True],
        [True, True, False, False, False, False],
    ]
    assert kept_tokens(tfm.Sample(top_k=9), logits).sum() == 11


def test_top_p_1_excludes_nothing():
    """Also where the sum of probabilities, in float32, passes 1 before the last token."""
    logits = np.random.default_rng(0).normal(size=(20, 3000)).astype(np.float32) * 3
    assert kept_tokens(tfm.Sample(top_p=1.0), logits).all()
    best = kept_tokens(tfm.Sample(min_p=1.0), logits)
    assert best.sum() == 20
    np.testing.assert_array_equal(best.argmax(1), logits.argmax(1))


def test_options_per_row():
    """A row is treated as if its options were those of all rows."""
    logits = np.random.default_rng(1).normal(size=(3, 40)).astype(np.float32) * 2
    options = dict(top_k=jnp.array([3, 40, 20]), top_p=jnp.array([1.0, 0.6, 0.9]), min_p=jnp.array([0.01, 0.001, 0.05]))
    together = kept_tokens(tfm.Sample(**options), logits)
    alone = [
        kept_tokens(tfm.Sample(**{name: values[row] for name, values in options.items()}), logits[row : row + 1])[0]
        for row in range(3)
    ]
    np.testing.assert_array_equal(together, alone)
    assert len(set(together.sum(1))) == 3
    temperatures = jnp.repeat(jnp.array([0.8, 3.0]), ROWS)
    tokens = draws_of(tfm.Sample(temperature=temperatures), 2 * ROWS)
    assert_drawn_from(tokens[:ROWS], softmax(LOGITS / 0.8))
    assert_drawn_from(tokens[ROWS:], softmax(LOGITS / 3))


def test_greedy_takes_the_first_of_the_most_probable():
    logits = jnp.array([[0.0, 3.0, 3.0, 1.0], [-5.0, -9.0, -5.5, -4.0]])
    token = choose_token(tfm.Greedy(), logits, None, jnp.int32(0))
    assert (token.tolist(), token.dtype) == ([1, 3], jnp.int32)


def test_repetition_penalty_divides_logits_of_seen_tokens():
    """Logits of seen tokens are divided if positive, else multiplied (Keskar et al. 2019, section 4.1)."""
    logits = jnp.array([[2.0, -2.0, 1.0, -1.0, 0.0], [4.0, 3.0, -3.0, MASK_VALUE, 1.0]])
    seen = jnp.array([[True, True, False, False, True], [True, False, True, True, False]])
    expected = np.array([[1.0, -4.0, 1.0, -1.0, 0.0], [2.0, 3.0, -6.0, MASK_VALUE, 1.0]], np.float32)
    np.testing.assert_allclose(penalize_repeats(logits, seen, 2.0), expected)
    np.testing.assert_allclose(penalize_repeats(logits, seen, jnp.array([1.0, 2.0])), [logits[0], expected[1]])
    assert choose_token(tfm.Greedy(2.0), logits, seen, 0).tolist() == [0, 1]
    assert choose_token(tfm.Greedy(jnp.array([3.0, 1.0])), logits, seen, 0).tolist() == [2, 0]
    assert choose_token(tfm.Greedy(), logits, seen, 0).tolist() == [0, 0]


def test_repetition_penalty_comes_before_temperature():
    seen = jnp.broadcast_to(jnp.arange(VOCAB)[None] < 4, (ROWS, VOCAB))
    strategy = tfm.Sample(repetition_penalty=2.0, temperature=0.7, seed=jnp.arange(ROWS))
    tokens = choose_token(strategy, jnp.broadcast_to(jnp.asarray(LOGITS), (ROWS, VOCAB)), seen, 0)
    penalized = np.where(np.arange(VOCAB) < 4, np.where(LOGITS > 0, LOGITS / 2, LOGITS * 2), LOGITS)
    assert_drawn_from(np.asarray(tokens), softmax(penalized / 0.7))


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (tfm.Greedy(0.9), "repetition_penalty=0.9 must be at least 1"),
        (tfm.Sample(repetition_penalty=0.5), "repetition_penalty=0.5 must be at least 1"),
        (tfm.Sample(top_k=0), "top_k=0 must be at least 1"),
        (tfm.Sample(temperature=0.0), "temperature=0.0 must be above 0; use Greedy for the most probable token"),
        (tfm.Sample(temperature=np.array([1.0, -1.0])), r"temperature=\[ 1. -1.\] must be above 0"),
        (tfm.Sample(top_p=0.0), "top_p=0.0 must be above 0 and at most 1"),
        (tfm.Sample(top_p=1.1), "top_p=1.1 must be above 0 and at most 1"),
        (tfm.Sample(top_p=math.nan), "top_p=nan must be above 0 and at most 1"),
        (tfm.Sample(min_p=np.array([0.5, 2.0])), r"min_p=\[0.5 2. \] must be above 0 and at most 1"),
    ],
)
def test_options_out_of_range(strategy, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        strategy.check()


def test_options_in_range():
    tfm.Greedy().check()
    tfm.Greedy(1.0).check()
    tfm.Sample(1.2, 0.1, 1, 1.0, 1.0, 3).check()
    tfm.Sample(temperature=jnp.array([0.5, 2.0]), top_k=np.array([1, 5])).check()

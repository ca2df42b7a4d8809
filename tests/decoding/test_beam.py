import dataclasses
import itertools
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params

import tfm
from tfm.decoding import beam
from tfm.decoding.generate import left_padded

pytestmark = pytest.mark.usefixtures("strict")

CONFIG = tfm.override(
    tfm.Config(layers=2, heads=2, width=16, ffn=24, vocab=7, pad_vocab_to=8, length=32, dropout=0.0, init_std=0.5),
    {"input.token_types": None, "position": "rotary"},
)
TINY = tfm.override(CONFIG, {"vocab": 4, "pad_vocab_to": 1, "position": "learned", "residual": "pre"})
PROMPTS = [[5, 0, 3, 6], [3], [1, 2, 3, 4, 5]]
STOP = [2, 5]


@cache
def model_of(config):
    return random_params(tfm.causal_lm_specs(config), 4)


@cache
def jitted_lm(config):
    return jax.jit(lambda model, tokens: jax.nn.log_softmax(tfm.causal_lm(model, config, tokens)))


@cache
def after(text):
    """Log-probabilities [V] of the token after a text, for CONFIG; later tokens have no influence."""
    padded = jnp.asarray([[*text, *[0] * (16 - len(text))]])
    return np.asarray(jitted_lm(CONFIG)(model_of(CONFIG), padded))[0, len(text) - 1, : CONFIG.vocab].astype(np.float64)


def penalty(length, alpha):
    return ((5 + length) / 6) ** alpha


def by_loop(prompt, max_new_tokens, strategy, stop):
    """Beam search with lists -> (text, score) of all continuations found, the best first.

    Only its most probable stop token ends a continuation, and only if that candidate is among the first `width`.
    """
    width = strategy.width // strategy.groups
    followed = [[(0.0, ())] for _ in range(strategy.groups)]
    ended = [[] for _ in range(strategy.groups)]
    for length in range(1, max_new_tokens + 1):
        counts = np.zeros(CONFIG.vocab)
        for group in range(strategy.groups):
            candidates = []
            for total, text in followed[group]:
                logprobs = after((*prompt, *text))
                best_stop = max(stop, key=lambda token: logprobs[token])
                for token in range(CONFIG.vocab):
                    if token not in stop or token == best_stop:
                        value = total + logprobs[token]
                        candidates.append((value - strategy.diversity * counts[token], value, (*text, token)))
            candidates.sort(reverse=True)
            finished = [
                (value / penalty(length, strategy.length_penalty), text)
                for _, value, text in candidates[:width]
                if text[-1] in stop
            ]
            ended[group] = sorted(ended[group] + finished, reverse=True)[:width]
            followed[group] = [(value, text) for _, value, text in candidates if text[-1] not in stop][:width]
            for _, text in followed[group]:
                counts[text[-1]] += 1
        if strategy.early_stopping and all(len(group) == width for group in ended):
            followed = [[] for _ in followed]
            break
    for continuations, group in zip(followed, ended, strict=True):
        group += [(value / penalty(max_new_tokens, strategy.length_penalty), text) for value, text in continuations]
        group.sort(reverse=True)
        del group[width:]
    return sorted({text: score for group in ended for score, text in group}.items(), key=lambda item: -item[1])


def assert_hypotheses(hypotheses, expected):
    assert [tuple(hypothesis.tokens) for hypothesis in hypotheses] == [text for text, _ in expected]
    scores = [hypothesis.score for hypothesis in hypotheses]
    np.testing.assert_allclose(scores, [score for _, score in expected], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.0, 0.7, -1.0])
def test_a_beam_that_holds_everything_is_exhaustive_search(alpha):
    """All 40 texts of at most three of four tokens, one of which ends a text, in order."""
    prompts, model = [[1, 0, 2], [2]], model_of(TINY)
    results = tfm.beam_search(
        model, TINY, prompts, 3, tfm.Beam(40, length_penalty=alpha), stop=[3], num_return_sequences=40
    )
    for row, prompt in enumerate(prompts):
        texts = np.array(list(itertools.product(range(4), repeat=3)))
        read = np.concatenate([np.broadcast_to(prompt, (64, len(prompt))), texts], axis=1)
        logprobs = np.asarray(jitted_lm(TINY)(model, jnp.asarray(read)))[:, len(prompt) - 1 : -1]
        token_logprobs = np.take_along_axis(logprobs, texts[:, :, None], axis=-1)[..., 0]
        scores = {}
        for text, values in zip(texts.tolist(), token_logprobs, strict=True):
            length = text.index(3) + 1 if 3 in text else 3
            scores[tuple(text[:length])] = values[:length].sum() / penalty(length, alpha)
        assert len(scores) == 40
        assert_hypotheses(results[row], sorted(scores.items(), key=lambda item: -item[1]))
        for hypothesis in results[row]:
            assert hypothesis.logprob == pytest.approx(
                hypothesis.score * penalty(len(hypothesis.tokens), alpha), rel=1e-5
            )


STRATEGIES = {
    "plain": tfm.Beam(3),
    "long": tfm.Beam(3, length_penalty=2.0),
    "early": tfm.Beam(3, length_penalty=2.0, early_stopping=True),
    "groups": tfm.Beam(4, groups=2, diversity=0.5),
    "early_groups": tfm.Beam(4, groups=2, diversity=0.5, length_penalty=2.0, early_stopping=True),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in ("plain", "long") else [pytest.mark.slow]) for name in STRATEGIES]
)
def test_a_beam_is_a_loop_with_lists(name):
    """For prompts of different lengths in one batch, with two stop tokens."""
    strategy = STRATEGIES[name]
    results = tfm.beam_search(model_of(CONFIG), CONFIG, PROMPTS, 7, strategy, STOP, num_return_sequences=strategy.width)
    for row, prompt in enumerate(PROMPTS):
        assert_hypotheses(results[row], by_loop(tuple(prompt), 7, strategy, STOP))
    lengths = {len(hypothesis.tokens) for row in results for hypothesis in row}
    assert len(lengths) > 1
    best = tfm.beam_search(model_of(CONFIG), CONFIG, PROMPTS, 7, strategy, STOP)
    assert [row[0].tokens for row in best] == [row[0].tokens for row in results]


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"mixer.pattern": "sliding", "mixer.pattern.window": 20}, marks=pytest.mark.slow),
    ],
    ids=["full", "window"],
)
def test_slots_that_double_change_nothing(fields):
    """Texts of up to 40 tokens: slots for 16, 32 and 64 of them, against slots for all from the first step on."""
    config, strategy = tfm.override(CONFIG, {"length": 64} | fields), tfm.Beam(3, length_penalty=2.0)
    rows = tfm.beam_search(model_of(config), config, PROMPTS, 40, strategy, [2], num_return_sequences=3)
    limits = beam.Limits(jnp.array([2]), jnp.int32(40), jnp.int32(3))
    _, finished = beam.search(config, 64, 64, model_of(config), left_padded(PROMPTS), strategy, limits)
    lengths = np.asarray(finished.lengths)
    assert (lengths > 32).any()
    for row, hypotheses in enumerate(rows):
        texts = [np.asarray(finished.tokens)[row, place, : lengths[row, place]].tolist() for place in range(3)]
        assert [hypothesis.tokens for hypothesis in hypotheses] == texts


@pytest.mark.slow
def test_early_stopping_accepts_a_lower_score():
    """It ends at `width` ended texts; without it the search goes on for texts that the length penalty prefers."""
    longer, early = (
        tfm.beam_search(model_of(CONFIG), CONFIG, PROMPTS, 7, STRATEGIES[name], STOP) for name in ("long", "early")
    )
    assert all(long[0].score >= short[0].score - 1e-5 for long, short in zip(longer, early, strict=True))
    assert sum(len(row[0].tokens) for row in longer) > sum(len(row[0].tokens) for row in early)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["early", "groups"])
def test_rows_do_not_disturb_each_other(name):
    """Also where the search of a row ends before that of the rest."""
    strategy = STRATEGIES[name]
    together = tfm.beam_search(model_of(CONFIG), CONFIG, PROMPTS, 7, strategy, STOP, num_return_sequences=3)
    for row, prompt in enumerate(PROMPTS):
        alone = tfm.beam_search(model_of(CONFIG), CONFIG, [prompt], 7, strategy, STOP, num_return_sequences=3)[0]
        assert [hypothesis.tokens for hypothesis in together[row]] == [hypothesis.tokens for hypothesis in alone]
        np.testing.assert_allclose(
            [hypothesis.score for hypothesis in together[row]],
            [hypothesis.score for hypothesis in alone],
            rtol=1e-4,
            atol=1e-4,
        )


@pytest.mark.slow
def test_a_beam_of_one_is_greedy():
    for stop in ([], STOP):
        tokens, logprobs = tfm.generate(model_of(CONFIG), CONFIG, PROMPTS, 7, stop=stop)
        results = tfm.beam_search(model_of(CONFIG), CONFIG, PROMPTS, 7, tfm.Beam(1), stop)
        assert [row[0].tokens for row in results] == tokens
        np.testing.assert_allclose([row[0].logprob for row in results], [sum(row) for row in logprobs], rtol=1e-4)


@pytest.mark.slow
def test_groups_avoid_each_others_tokens():
    """With one continuation per group and a prohibitive cost, they differ at every step."""
    results = tfm.beam_search(
        model_of(CONFIG), CONFIG, PROMPTS, 7, tfm.Beam(3, groups=3, diversity=1000.0), num_return_sequences=3
    )
    for row in results:
        assert len(row) == 3
        assert all(len(set(column)) == 3 for column in zip(*(hypothesis.tokens for hypothesis in row), strict=True))


@pytest.mark.slow
def test_duplicates_of_two_groups_are_returned_once():
    twice = tfm.beam_search(model_of(CONFIG), CONFIG, PROMPTS, 7, tfm.Beam(6, groups=2), STOP, num_return_sequences=6)
    once = tfm.beam_search(model_of(CONFIG), CONFIG, PROMPTS, 7, tfm.Beam(3), STOP, num_return_sequences=3)
    for grouped, plain in zip(twice, once, strict=True):
        assert [hypothesis.tokens for hypothesis in grouped] == [hypothesis.tokens for hypothesis in plain]


@pytest.mark.slow
def test_padding_of_the_vocabulary_is_never_chosen():
    """Though the beam is wider than the vocabulary."""
    results = tfm.beam_search(model_of(CONFIG), CONFIG, PROMPTS, 1, tfm.Beam(16), num_return_sequences=16)
    for row, prompt in enumerate(PROMPTS):
        order = np.argsort(-after(tuple(prompt)), kind="stable")
        assert [hypothesis.tokens for hypothesis in results[row]] == [[token] for token in order.tolist()]


def test_nothing_is_compiled_again():
    tfm.beam_search(model_of(CONFIG), CONFIG, PROMPTS, 7, tfm.Beam(3, length_penalty=0.5), STOP)
    size = beam.search._cache_size()
    tfm.beam_search(
        model_of(CONFIG),
        CONFIG,
        [[4], [5], [0] * 16],
        16,
        tfm.Beam(3, length_penalty=0.6),
        [1, 4],
        num_return_sequences=2,
    )
    assert beam.search._cache_size() == size


MESHES = {"all": (2, 2, 2), "data": (8, 1, 1), "tensor": (1, 1, 8)}


@pytest.mark.slow
@pytest.mark.parametrize("name", MESHES)
def test_eight_devices_as_one(name):
    config = dataclasses.replace(CONFIG, heads=4)
    strategy = tfm.Beam(4, groups=2, diversity=0.5, length_penalty=1.0)
    prompts = [[n % 7, n // 2, 5][: 1 + n % 3] for n in range(8)]
    expected = tfm.beam_search(model_of(config), config, prompts, 7, strategy, STOP, num_return_sequences=2)
    mesh = tfm.make_mesh(*MESHES[name])
    model = jax.device_put(model_of(config), tfm.shardings(tfm.causal_lm_specs(config), mesh))
    results = tfm.beam_search(model, config, prompts, 7, strategy, STOP, num_return_sequences=2)
    for hypotheses, single_device in zip(results, expected, strict=True):
        assert_hypotheses(hypotheses, [(tuple(h.tokens), h.score) for h in single_device])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strategy": tfm.Beam(0)}, "width=0 must be at least 1"),
        ({"strategy": tfm.Beam(4, groups=3)}, "groups=3 must divide width=4"),
        ({"strategy": tfm.Beam(4, groups=0)}, "groups=0 must be at least 1"),
        ({"strategy": tfm.Beam(4, diversity=-1.0)}, "diversity=-1.0 must be at least 0"),
        ({"num_return_sequences": 5}, "num_return_sequences=5 must be at least 1 and at most width=4"),
        ({"num_return_sequences": 0}, "num_return_sequences=0 must be at least 1 and at most width=4"),
        ({"prompts": [[4]]}, "prompts have token 4, which is not in the vocabulary of 4"),
        ({"max_new_tokens": 33}, "a prompt of 1 tokens and max_new_tokens=33 exceed the 32 positions of the model"),
    ],
)
def test_what_cannot_be_searched(changes, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        tfm.beam_search(model_of(TINY), TINY, **{"prompts": [[1]], "max_new_tokens": 4, **changes})


@pytest.mark.slow
def test_a_prompt_whose_values_are_not_finite_has_no_continuation():
    """Position 5 is not a number; a text that ends before it does not meet it."""
    model = model_of(TINY)
    table = model.decoder.embed.positions.at[5].set(jnp.nan)
    embed = dataclasses.replace(model.decoder.embed, positions=table)
    broken = dataclasses.replace(model, decoder=dataclasses.replace(model.decoder, embed=embed))
    short = [tfm.beam_search(params, TINY, [[1, 2]], 3, tfm.Beam(width=2)) for params in (model, broken)]
    assert short[0] == short[1] != [[]]
    assert tfm.beam_search(broken, TINY, [[1, 2], [1]], 5, tfm.Beam(width=2)) == [[], short_of(model)]


def short_of(model):
    """The best continuation of the shorter prompt, which does not reach that position."""
    return tfm.beam_search(model, TINY, [[1, 2], [1]], 5, tfm.Beam(width=2))[1]

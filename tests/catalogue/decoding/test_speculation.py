"""Speculative decoding: the text of greedy decoding, and samples of the model's distribution."""

import dataclasses
import functools
import math
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from random_params import random_params

import tfm
from tfm.catalogue.decoding.drafts import from_ngram
from tfm.decoding.sampling import choose_token, distribution

pytestmark = pytest.mark.usefixtures("strict")

CONFIG = tfm.override(
    tfm.Config(
        layers=2, heads=4, kv_heads=2, width=16, ffn=24, vocab=11, pad_vocab_to=8, length=48, dropout=0.0, init_std=0.5
    ),
    {"input.token_types": None},
)
SMALL = dataclasses.replace(CONFIG, layers=1, pad_vocab_to=16)
PROMPTS = [[5, 10, 0, 7], [3], [1, 2, 3, 4, 5, 1, 2, 3]]


def model_of(config, seed=5):
    return random_params(tfm.causal_lm_specs(config), seed)


@functools.cache
def model():
    return model_of(CONFIG)


DRAFTS = {
    "ngram": tfm.NGram,
    "another model": lambda: tfm.DraftModel(model_of(SMALL, 1), SMALL),
    "the model itself": lambda: tfm.DraftModel(model(), CONFIG),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAFTS)
def test_greedy_texts_are_the_same(name):
    text = tfm.Speculation(model(), CONFIG, PROMPTS, 24, DRAFTS[name](), stop=[9])
    while not text.done:
        text.advance(7)
    expected = tfm.generate(model(), CONFIG, PROMPTS, 24, stop=[9])
    assert text.tokens == expected.tokens
    for actual, logprobs in zip(text.logprobs, expected.logprobs, strict=True):
        np.testing.assert_allclose(actual, logprobs, rtol=1e-4, atol=1e-4)
    if name == "the model itself":
        assert text.tokens_per_pass > 3.5, "four proposals are right, and a fifth token follows them"


@pytest.mark.slow
def test_a_repetition_penalty_counts_proposals_too():
    strategy = tfm.Greedy(repetition_penalty=1.7)
    for draft in DRAFTS.values():
        text = tfm.Speculation(model(), CONFIG, PROMPTS, 20, draft(), strategy)
        text.advance(20)
        assert text.tokens == tfm.generate(model(), CONFIG, PROMPTS, 20, strategy).tokens


@pytest.mark.slow
def test_an_ngram_is_the_last_place_with_most_equal_tokens():
    def proposed(text, size, first=0):
        padded = jnp.asarray([0] * first + text + [1, 2, 3], jnp.int32)
        proposal = from_ngram(tfm.NGram(size), padded, jnp.int32(first), jnp.int32(first + len(text)), (3, 11))
        count = int(proposal.probabilities.sum())
        np.testing.assert_array_equal(proposal.probabilities[:count].argmax(-1), proposal.tokens[:count])
        return proposal.tokens[:count].tolist()

    assert proposed([1, 2, 3, 4, 9, 2, 8, 1, 2], 3) == [3, 4, 9]
    assert proposed([1, 2, 3, 4, 9, 2, 8, 1, 2], 1) == [8, 1, 2]
    assert proposed([1, 2, 3, 1, 2, 4, 1, 2], 2) == [4, 1, 2]
    assert proposed([7, 7], 3) == [7]
    assert proposed([1, 2, 3], 3) == []
    assert proposed([0, 5, 4, 0], 3, first=4) == [5, 4, 0]


@pytest.mark.slow
def test_the_distribution_is_that_of_the_draws():
    logits = jax.device_put(np.float32(np.random.default_rng(0).normal(size=(1, 9))))
    strategy = tfm.Sample(temperature=0.8, top_k=6, top_p=0.9)
    probabilities = np.asarray(distribution(strategy, logits, None), np.float64)[0]
    assert probabilities.sum() == pytest.approx(1, abs=1e-6)
    draws = choose_token(dataclasses.replace(strategy, seed=jnp.arange(4000)), jnp.repeat(logits, 4000, 0), None, 0)
    counts = np.bincount(draws, minlength=9)
    assert not counts[probabilities == 0].any()
    kept = probabilities > 0
    assert 1 < kept.sum() < 9
    expected = 4000 * probabilities[kept] / probabilities.sum()
    assert scipy.stats.chisquare(counts[kept], expected).pvalue > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ngram", "another model"])
def test_samples_have_the_distribution_of_the_model(name):
    """Of all texts of three tokens, against the product of the model's probabilities; chi-square."""
    prompt, count = [1, 2, 3, 1, 2], 1500
    strategy = tfm.Sample(temperature=0.7, top_k=3, seed=jnp.arange(count))
    text = tfm.Speculation(model(), CONFIG, [prompt] * count, 3, DRAFTS[name](), strategy)
    text.advance(3)
    texts = {(): 1.0}
    for _ in range(3):
        longer = {}
        for tokens, probability in texts.items():
            logits = tfm.causal_lm(model(), CONFIG, jnp.asarray([[*prompt, *tokens]]))[:, -1, : CONFIG.vocab]
            scores = np.asarray(logits, np.float64)[0] / 0.7
            best = np.argsort(-scores)[:3]
            shares = np.exp(scores[best] - scores[best].max())
            longer |= {(*tokens, int(t)): probability * s / shares.sum() for t, s in zip(best, shares, strict=True)}
        texts = longer
    counts = Counter(map(tuple, text.tokens))
    assert set(counts) <= set(texts)
    likely = [tokens for tokens, probability in texts.items() if probability * count >= 5]
    observed = [counts[tokens] for tokens in likely] + [count - sum(counts[tokens] for tokens in likely)]
    expected = [count * texts[tokens] for tokens in likely] + [count * (1 - sum(texts[tokens] for tokens in likely))]
    observed, expected = (np.array(values)[np.array(expected) > 1] for values in (observed, expected))
    assert scipy.stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-3


def test_what_cannot_be_drafted_is_refused():
    with pytest.raises(ValueError, match="looks 4 tokens ahead"):
        tfm.Speculation(model(), CONFIG, [[1]], 45, tfm.NGram())
    with pytest.raises(ValueError, match="share a tokenizer"):
        tfm.Speculation(model(), CONFIG, [[1]], 4, tfm.DraftModel(model(), dataclasses.replace(CONFIG, vocab=12)))
    linear = tfm.override(CONFIG, {"mixer": "linear"})
    with pytest.raises(ValueError, match="forget the tokens"):
        tfm.Speculation(model_of(linear), linear, [[1]], 4, tfm.NGram()).advance(1)


MESHES = {
    "data": dict(data=8), "fsdp": dict(fsdp=8), "tensor 2": dict(tensor=2), "tensor 8": dict(tensor=8),
    "context": dict(context=2, data=4), "all": dict(data=2, fsdp=2, tensor=2),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", MESHES)
def test_meshes_as_one_device(name):
    """The mesh divides the padded vocabulary, and not its 11 tokens; a draft model is on the mesh or on one device."""
    options = MESHES[name]
    mesh = tfm.make_mesh(**options, devices=jax.devices()[: math.prod(options.values())])
    sharded = jax.device_put(model(), tfm.shardings(tfm.causal_lm_specs(CONFIG), mesh))
    small = DRAFTS["another model"]()
    on_mesh = jax.device_put(small.model, tfm.shardings(tfm.causal_lm_specs(SMALL), mesh))
    drafts = tfm.NGram(), small, dataclasses.replace(small, model=on_mesh)
    for strategy in (tfm.Greedy(repetition_penalty=1.2), tfm.Sample(temperature=1.3, top_p=0.9, seed=3)):
        for draft in drafts:
            texts = []
            for writer, proposer in ((model(), tfm.NGram() if draft is drafts[0] else small), (sharded, draft)):
                texts.append(tfm.Speculation(writer, CONFIG, PROMPTS, 12, proposer, strategy, stop=[9]))
                texts[-1].advance(12)
            assert texts[0].tokens == texts[1].tokens
            for actual, expected in zip(texts[1].logprobs, texts[0].logprobs, strict=True):
                np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-4)

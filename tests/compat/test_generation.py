"""`generate` of the old Flax classes, against full passes."""

import itertools
import json

import jax
import numpy as np
import pytest
from compat.models import opened, saved
from hf_models import inputs

import tfm.compat


def greedy(model, tokens, steps):
    """The most probable next token, again and again, from full passes."""
    for _ in range(steps):
        tokens = np.concatenate([tokens, np.asarray(model(tokens).logits[:, -1:].argmax(-1))], axis=1)
    return tokens


@pytest.mark.slow
def test_generate(tmp_path):
    model, tokens = opened(tmp_path, "gpt2"), inputs()["tokens"][:, :6]
    expected = greedy(model, tokens, 8)
    out = model.generate(tokens, max_length=14, eos_token_id=None)
    assert out.sequences.tolist() == expected.tolist()
    assert model.generate(tokens, max_new_tokens=3).sequences.tolist() == expected[:, :9].tolist()
    assert model.generate(tokens, num_beams=1).sequences.shape == (2, 20)
    end = int(expected[0, 8])
    first = expected[0].tolist().index(end, 6)
    stopped = model.generate(tokens, max_length=14, eos_token_id=end, pad_token_id=99).sequences[0].tolist()
    assert stopped == [*expected[0, : first + 1].tolist(), *[99] * (13 - first)]
    left = np.concatenate([np.zeros((2, 3), int), tokens], axis=1)
    padded = model.generate(left, attention_mask=(np.arange(9) >= 3)[None].repeat(2, 0), max_length=17)
    assert padded.sequences[:, 3:].tolist() == expected.tolist()
    assert jax.jit(lambda tokens, params: model.generate(tokens, params=params, max_length=14).sequences)(
        tokens, model.params
    ).tolist() == (expected.tolist())
    assert (
        model.generate(tokens, max_length=14, suppress_tokens=[int(expected[0, 6])]).sequences[0, 6] != expected[0, 6]
    )


@pytest.mark.slow
def test_sampling(tmp_path):
    model, tokens = opened(tmp_path, "gpt2"), np.repeat(inputs()["tokens"][:1, :6], 3, axis=0)
    first, again, different = (
        model.generate(tokens, do_sample=True, max_length=16, temperature=3.0, prng_key=jax.random.PRNGKey(n))
        for n in (0, 0, 1)
    )
    assert first.sequences.tolist() == again.sequences.tolist() != different.sequences.tolist()
    assert len(set(map(tuple, first.sequences.tolist()))) == 3
    assert (
        model.generate(tokens, do_sample=True, top_k=1).sequences.tolist() == model.generate(tokens).sequences.tolist()
    )


def filtered(logits, top_k=0, top_p=1.0, temperature=1.0):
    """Logits [V] of one row, -inf for tokens that may not be drawn."""
    logits = logits / np.float32(temperature)
    result, total = np.full_like(logits, -np.inf), 0.0
    best = np.argsort(-logits)[: top_k or len(logits)]
    weights = np.exp(logits[best] - logits[best[0]])
    for token, weight in zip(best, weights / weights.sum(), strict=True):
        if total < top_p:
            result[token] = logits[token]
        total += weight
    return result


@pytest.mark.slow
def test_draws_are_those_of_the_old_classes(tmp_path):
    """Each step splits the key of the one before, and draws for all rows at once; here from full passes."""
    model, prompts = opened(tmp_path, "gpt2", eos_token_id=None), inputs()["tokens"][:, :6]
    for options in ({"top_k": 0}, {"top_k": 7, "temperature": 1.7}, {"top_k": 0, "top_p": 0.6}):
        tokens, key = prompts, jax.random.PRNGKey(3)
        for _ in range(6):
            draw, key = jax.random.split(key)
            logits = np.stack([filtered(row, **options) for row in np.asarray(model(tokens).logits[:, -1])])
            tokens = np.concatenate([tokens, jax.random.categorical(draw, logits, axis=-1)[:, None]], axis=1)
        drawn = model.generate(prompts, do_sample=True, max_length=12, prng_key=jax.random.PRNGKey(3), **options)
        assert drawn.sequences.tolist() == tokens.tolist()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "beams"), [("t5", 1), ("bart", 3)])
def test_rules(name, beams, tmp_path):
    model, tokens = opened(tmp_path, name), inputs(padded=False)["tokens"]

    def generate(**arguments):
        usual = {"max_length": 15, "num_beams": beams, "eos_token_id": 40, "pad_token_id": 1}
        return np.asarray(model.generate(tokens, **usual, **arguments).sequences)

    sequences = generate(forced_bos_token_id=77, forced_eos_token_id=40, min_length=9)
    assert (sequences[:, 0] == model.config.decoder_start_token_id).all()
    assert (sequences[:, 1] == 77).all()
    assert not (sequences[:, :9] == 40).any()
    assert all(40 in row for row in sequences.tolist())
    sequences = generate(no_repeat_ngram_size=2, min_length=15, bad_words_ids=[[n] for n in range(50)])
    assert (sequences[:, 1:] >= 50).all()
    for row in sequences.tolist():
        pairs = list(itertools.pairwise(row))
        assert len(set(pairs)) == len(pairs)


@pytest.mark.slow
def test_beams_have_scores_and_settings_have_sources(tmp_path):
    saved(tmp_path, "bart", num_beams=3, max_length=9)
    (tmp_path / "generation_config.json").write_text(json.dumps({"max_length": 11, "repetition_penalty": 1.2}))
    model = tfm.compat.FlaxAutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    tokens = inputs()["tokens"]
    with pytest.warns(UserWarning, match=r"repetition_penalty=1\.2, which is not supported and is ignored"):
        out = model.generate(tokens, num_return_sequences=2)
    assert out.sequences.shape == (4, 11)
    assert (out.scores[::2] >= out.scores[1::2]).all()
    model.save_pretrained(tmp_path / "again")
    assert json.loads((tmp_path / "again/generation_config.json").read_text())["max_length"] == 11


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"banana": 1}, "generate has no argument banana"),
        ({"repetition_penalty": 2.0}, "repetition_penalty=2.0 is not supported"),
        ({"max_length": 3, "max_new_tokens": 3}, "both given"),
        ({"max_length": 6}, "leaves no room after a prompt of 6 tokens"),
        ({"max_length": 41}, "more than the 40 positions"),
        ({"num_beams": 2, "do_sample": True}, "not supported together"),
        ({"num_return_sequences": 2}, "at most num_beams=1"),
        ({"num_beams": 2, "early_stopping": "soon"}, "early_stopping=soon must be True, False or 'never'"),
        ({"bad_words_ids": [[1, 2]]}, "a phrase of several tokens"),
        ({"do_sample": True, "top_p": 2.0}, "top_p=2.0 must be above 0"),
    ],
)
def test_what_cannot_be_generated(asked, message, tmp_path):
    model = opened(tmp_path, "gpt2")
    with pytest.raises(ValueError, match=message):
        model.generate(inputs()["tokens"][:, :6], **asked)

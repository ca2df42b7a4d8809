import dataclasses
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params

import tfm
from tfm.decoding import generate

pytestmark = pytest.mark.usefixtures("strict")

LEARNED = tfm.override(
    tfm.Config(
        layers=2, heads=4, kv_heads=2, width=16, ffn=24, vocab=23, pad_vocab_to=8, length=32, dropout=0.0, init_std=0.5
    ),
    {"input.token_types": None},
)
ROTARY = tfm.override(LEARNED, {"position": "rotary", "residual": "pre", "norm": "rms", "tie_embeddings": False})
SHORT = dataclasses.replace(LEARNED, length=8)
PROMPTS = [[5, 22, 0, 7], [3], [1, 2, 3, 4, 5, 6, 7, 8, 9]]
SAMPLE = tfm.Sample(temperature=jnp.array([1.5, 0.9, 2.0]), top_p=jnp.array([0.9, 1.0, 0.8]), seed=jnp.array([4, 0, 7]))


@cache
def model_of(config):
    return random_params(tfm.causal_lm_specs(config), 7)


@cache
def jitted_lm(config):
    return jax.jit(lambda model, tokens: tfm.causal_lm(model, config, tokens))


def logits_after(config, text):
    """Logits [T,V] of the token after every prefix of a text, in one pass; padding behind it has no influence."""
    padded = np.zeros((1, config.length), np.int32)
    padded[0, : len(text)] = text
    return np.asarray(jitted_lm(config)(model_of(config), jnp.asarray(padded)))[0, : len(text)]


def logprobs_after(config, text):
    return np.asarray(jax.nn.log_softmax(logits_after(config, text)))


def by_loop(config, prompt, max_new_tokens, penalty=1.0):
    """Greedy generation without a cache; the second half of a full text becomes its new context."""
    text, begin, values = list(prompt), 0, []
    for _ in range(max_new_tokens):
        if len(text) - begin >= config.length:
            begin = len(text) - max(1, config.length // 2)
        scores = logits_after(config, text[begin:])[-1].copy()
        for token in set(text[begin:]):
            scores[token] = scores[token] / penalty if scores[token] > 0 else scores[token] * penalty
        values.append(float(logprobs_after(config, text[begin:])[-1][scores.argmax()]))
        text.append(int(scores.argmax()))
    return text[len(prompt) :], values


def row_of(strategy, row):
    """The options of one row alone."""
    return jax.tree.map(lambda values: values[row : row + 1], strategy)


@pytest.mark.parametrize("config", [pytest.param(LEARNED, marks=pytest.mark.slow), ROTARY], ids=["learned", "rotary"])
def test_greedy_is_the_argmax_of_everything_read_again(config):
    """Prompts of three lengths; log-probabilities are those of a pass over the whole text."""
    tokens, logprobs = tfm.generate(model_of(config), config, PROMPTS, 12)
    for row, prompt in enumerate(PROMPTS):
        expected, values = by_loop(config, prompt, 12)
        assert tokens[row] == expected
        np.testing.assert_allclose(logprobs[row], values, rtol=1e-4, atol=1e-4)
    assert len({tuple(row) for row in tokens}) == 3
    assert len({token for row in tokens for token in row}) > 4, "a text that repeats one token tests little"


@pytest.mark.slow
def test_rows_do_not_disturb_each_other():
    """Drawn with options of their own; log-probabilities are the model's, without temperature and filters."""
    together = tfm.generate(model_of(ROTARY), ROTARY, PROMPTS, 12, SAMPLE)
    for row, prompt in enumerate(PROMPTS):
        alone = tfm.generate(model_of(ROTARY), ROTARY, [prompt], 12, row_of(SAMPLE, row))
        assert together.tokens[row] == alone.tokens[0]
        np.testing.assert_allclose(together.logprobs[row], alone.logprobs[0], rtol=1e-4, atol=1e-4)
        text = prompt + together.tokens[row]
        values = logprobs_after(ROTARY, text)[len(prompt) - 1 : -1][np.arange(12), together.tokens[row]]
        np.testing.assert_allclose(together.logprobs[row], values, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_text():
    def texts(*seeds):
        return tfm.generate(
            model_of(ROTARY), ROTARY, PROMPTS, 12, dataclasses.replace(SAMPLE, seed=jnp.array(seeds))
        ).tokens

    first, second = texts(4, 0, 7), texts(5, 0, 8)
    assert first == texts(4, 0, 7)
    assert [a == b for a, b in zip(first, second, strict=True)] == [False, True, False]


@pytest.mark.parametrize(
    "penalty", [pytest.param(1.7, marks=pytest.mark.slow), [1.0, 3.0, 1.5]], ids=["all rows", "per row"]
)
def test_repetition_penalty_sees_the_whole_text(penalty):
    """Prompts count, their padding (token 0) does not."""
    strategy = tfm.Greedy(jnp.array(penalty) if isinstance(penalty, list) else penalty)
    tokens = tfm.generate(model_of(ROTARY), ROTARY, PROMPTS, 12, strategy).tokens
    for row, prompt in enumerate(PROMPTS):
        assert tokens[row] == by_loop(ROTARY, prompt, 12, penalty=np.broadcast_to(penalty, 3)[row])[0]
    assert tokens != tfm.generate(model_of(ROTARY), ROTARY, PROMPTS, 12).tokens


def test_stop_tokens_end_a_row_and_only_that_row():
    full = tfm.generate(model_of(ROTARY), ROTARY, PROMPTS, 12, SAMPLE)
    stop = [full.tokens[0][4], full.tokens[2][6]]
    text = tfm.Generation(model_of(ROTARY), ROTARY, PROMPTS, 12, SAMPLE, stop)
    text.advance(12)
    lengths = [next((n + 1 for n, token in enumerate(row) if token in stop), 12) for row in full.tokens]
    assert text.tokens == [row[:length] for row, length in zip(full.tokens, lengths, strict=True)]
    assert text.stopped.tolist() == [row[-1] in stop for row in text.tokens]
    assert len(set(lengths)) > 1
    for logprobs, all_logprobs, length in zip(text.logprobs, full.logprobs, lengths, strict=True):
        np.testing.assert_allclose(logprobs, all_logprobs[:length], rtol=1e-6)


def test_no_token_follows_once_all_rows_have_stopped():
    first = [row[0] for row in tfm.generate(model_of(ROTARY), ROTARY, PROMPTS, 12).tokens]
    text = tfm.Generation(model_of(ROTARY), ROTARY, PROMPTS, 12, stop=first)
    text.advance(12)
    assert (text.done, text.num_generated, text.tokens) == (True, 1, [[token] for token in first])
    text.advance(5)
    assert (text.num_generated, text.tokens) == (1, [[token] for token in first])


@pytest.mark.parametrize("pieces", [[1] * 12, [5, 0, 2, 9]], ids=str)
def test_in_pieces_as_at_once(pieces):
    expected = tfm.generate(model_of(ROTARY), ROTARY, PROMPTS, 12, SAMPLE)
    text = tfm.Generation(model_of(ROTARY), ROTARY, PROMPTS, 12, SAMPLE)
    count = 0
    for piece in pieces:
        assert not text.done
        text.advance(piece)
        count = min(count + piece, 12)
        assert text.num_generated == count
        assert text.tokens == [row[:count] for row in expected.tokens]
    assert text.done
    assert text.logprobs == expected.logprobs


LONG_PROMPTS = [[3], [1, 2, 3, 4, 5, 6, 7], [9, 8, 7, 6], [5, 22, 0, 7, 7, 1, 2, 3, 9, 9, 4]]


@pytest.mark.slow
def test_a_full_text_goes_on_from_its_second_half():
    """Rows fill up at different times, one of them at once; every row is as if it were alone."""
    text = tfm.Generation(model_of(SHORT), SHORT, LONG_PROMPTS, 20, sliding_context=True)
    while not text.done:
        text.advance(3)
    for row, prompt in enumerate(LONG_PROMPTS):
        expected, values = by_loop(SHORT, prompt, 20)
        assert text.tokens[row] == expected
        np.testing.assert_allclose(text.logprobs[row], values, rtol=1e-4, atol=1e-4)
    assert tfm.generate(model_of(SHORT), SHORT, LONG_PROMPTS[1:2], 20, sliding_context=True).tokens[0] == text.tokens[1]


@pytest.mark.slow
def test_a_stopped_row_slides_no_more():
    full = tfm.generate(model_of(SHORT), SHORT, LONG_PROMPTS, 20, sliding_context=True).tokens
    stop = full[1][2:3]
    lengths = [next((n + 1 for n, token in enumerate(row) if token in stop), 20) for row in full]
    expected = [row[:length] for row, length in zip(full, lengths, strict=True)]
    assert min(lengths) <= 3 < max(lengths)
    assert tfm.generate(model_of(SHORT), SHORT, LONG_PROMPTS, 20, stop=stop, sliding_context=True).tokens == expected


@pytest.mark.slow
def test_sliding_draws_go_on_with_the_next_step():
    """A row's draws do not restart when it slides, and do not depend on when other rows slide."""
    strategy = tfm.Sample(seed=jnp.array([1, 2, 3, 4]), temperature=2.0)
    together = tfm.generate(model_of(SHORT), SHORT, LONG_PROMPTS, 20, strategy, sliding_context=True).tokens
    second = strategy.replace(seed=jnp.array([2]))
    alone = tfm.generate(model_of(SHORT), SHORT, LONG_PROMPTS[1:2], 20, second, sliding_context=True).tokens
    assert alone[0] == together[1]


@pytest.mark.slow
def test_a_model_of_one_position_slides_at_each_token():
    config = dataclasses.replace(LEARNED, length=1)
    tokens = tfm.generate(model_of(config), config, [[3, 4]], 3, sliding_context=True).tokens
    assert tokens[0] == by_loop(config, [3, 4], 3)[0]


@pytest.mark.slow
def test_nothing_is_compiled_again():
    """For other prompts, options, stop tokens and lengths within the same buckets."""
    model = model_of(ROTARY)
    tfm.generate(model, ROTARY, PROMPTS[:2], 12, tfm.Sample(temperature=0.5, top_k=3, seed=1))
    sizes = generate.start._cache_size(), generate.advance._cache_size()
    tfm.generate(model, ROTARY, [[1] * 16, [2, 3]], 9, tfm.Sample(temperature=2.0, top_k=7, seed=2), stop=[3, 4, 5])
    tfm.generate(model, ROTARY, [[7], [8]], 16, tfm.Sample(temperature=1.0, top_k=1, seed=3), stop=range(8))
    text = tfm.Generation(model, ROTARY, PROMPTS[:2], 7, tfm.Sample(temperature=1.1, top_k=2, seed=4))
    while not text.done:
        text.advance(2)
    assert (generate.start._cache_size(), generate.advance._cache_size()) == sizes
    tfm.generate(model, ROTARY, [[1] * 17, [2, 3]], 9, tfm.Sample(temperature=2.0, top_k=7, seed=2))
    assert generate.start._cache_size() == sizes[0] + 1


@pytest.mark.slow
def test_sliding_compiles_once():
    model, strategy = model_of(SHORT), tfm.Sample(min_p=0.1, seed=3)
    tfm.generate(model, SHORT, [[1, 2], [3]], 7, strategy, sliding_context=True)
    before = generate.start._cache_size(), generate.advance._cache_size()
    tfm.generate(model, SHORT, [[1, 2], [3]], 30, strategy, sliding_context=True)
    tfm.generate(model, SHORT, [[1] * 7, [3] * 20], 13, strategy, sliding_context=True)
    assert generate.start._cache_size() <= before[0] + 1
    assert generate.advance._cache_size() <= before[1] + 1


MESHES = {"all": (2, 2, 2), "data": (8, 1, 1), "tensor": (1, 1, 8), "context": (2, 1, 2, 2)}


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "all")) for name in MESHES])
@pytest.mark.parametrize("rows", [8, pytest.param(3, marks=pytest.mark.slow)])
def test_eight_devices_as_one(name, rows):
    """Also where the devices do not divide the rows."""
    prompts = [[n, 2 * n + 1, 5][: 1 + n % 3] for n in range(rows)]
    strategy = tfm.Sample(repetition_penalty=1.2, temperature=1.3, top_p=0.9, seed=jnp.arange(rows))
    expected = tfm.generate(model_of(ROTARY), ROTARY, prompts, 12, strategy)
    mesh = tfm.make_mesh(*MESHES[name])
    model = jax.device_put(model_of(ROTARY), tfm.shardings(tfm.causal_lm_specs(ROTARY), mesh))
    result = tfm.generate(model, ROTARY, prompts, 12, strategy)
    assert result.tokens == expected.tokens
    for logprobs, expected_logprobs in zip(result.logprobs, expected.logprobs, strict=True):
        np.testing.assert_allclose(logprobs, expected_logprobs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompts": []}, "prompts must hold at least one prompt, and every prompt at least one token"),
        ({"prompts": [[1], []]}, "prompts must hold at least one prompt, and every prompt at least one token"),
        ({"prompts": [[1, 23]]}, "prompts have token 23, which is not in the vocabulary of 23"),
        ({"prompts": [[-1]]}, "prompts have token -1, which is not in the vocabulary of 23"),
        ({"max_new_tokens": 0}, "max_new_tokens=0 must be at least 1"),
        (
            {"max_new_tokens": 32},
            "a prompt of 2 tokens and max_new_tokens=32 exceed the 32 positions of the model; lower max_new_tokens, "
            "shorten the prompt, or set sliding_context=True",
        ),
        ({"strategy": tfm.Greedy(0.5)}, "repetition_penalty=0.5 must be at least 1"),
        ({"strategy": tfm.Sample(top_p=2.0)}, "top_p=2.0 must be above 0 and at most 1"),
        (
            {"strategy": tfm.Greedy(constraints=tfm.Constraints(min_length=2)), "sliding_context": True},
            "constraints need the whole text, and sliding_context cuts it; leave out one of them",
        ),
        (
            {"strategy": tfm.Greedy(constraints=tfm.Constraints(forced_eos=2))},
            "forced_eos=2 needs max_length; set it to the number of new tokens",
        ),
        ({"prompts": [[1.5]]}, r"prompts have tokens \[1.5\], which must be integers"),
        ({"prompts": [[True]]}, r"prompts have tokens \[True\], which must be integers"),
        ({"stop": [-1]}, "stop has token -1, which is not in the vocabulary"),
        ({"strategy": tfm.Sample(seed=2**40)}, "seed=1099511627776 must be an integer from -2147483648 to 2147483647"),
    ],
)
def test_what_cannot_be_generated(changes, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        tfm.Generation(model_of(LEARNED), LEARNED, **{"prompts": [[1, 2]], "max_new_tokens": 4, **changes})


def test_only_learned_positions_end():
    assert tfm.Generation(model_of(LEARNED), LEARNED, [[1, 2]], 30).max_new_tokens == 30
    for config in (ROTARY, tfm.override(LEARNED, {"position": "sinusoidal"})):
        assert tfm.Generation(model_of(config), config, [[1, 2]], 1000).max_new_tokens == 1000


@pytest.mark.parametrize(("length", "expected"), [(1, 16), (16, 16), (17, 32), (32, 32), (33, 64), (1000, 1024)])
def test_buckets_are_powers_of_two(length, expected):
    assert tfm.bucket(length) == expected


def test_prompts_stand_at_the_end_of_their_rows():
    tokens, starts = generate.left_padded([[4, 5, 6], [7]])
    assert (tokens.shape, starts.tolist()) == ((2, 16), [13, 15])
    assert tokens.tolist() == [[0] * 13 + [4, 5, 6], [0] * 15 + [7]]


def test_a_beam_is_for_beam_search():
    with pytest.raises(ValueError, match=r"^strategy=Beam\(.*\) must be Greedy or Sample"):
        tfm.Generation(model_of(LEARNED), LEARNED, [[1, 2]], 4, tfm.Beam())
    with pytest.raises(ValueError, match=r"^strategy=Greedy\(.*\) must be Beam"):
        tfm.beam_search(model_of(LEARNED), LEARNED, [[1, 2]], 4, tfm.Greedy())


@pytest.mark.slow
def test_dropout_of_the_configuration_is_off():
    config = dataclasses.replace(LEARNED, dropout=0.5)
    assert tfm.generate(model_of(LEARNED), config, PROMPTS, 4) == tfm.generate(model_of(LEARNED), LEARNED, PROMPTS, 4)

"""Rows of a language model: every token is a target once, and is predicted from what stands before it."""

import itertools

import jax
import numpy as np
import pytest
from random_params import random_params

import tfm
from tfm.config import inputs, residuals
from train.data.tokens import TokenizedTexts
from train.tasks.lm.rows import PackedRows, marked_windows, tokenizer_windows
from train.tasks.lm.task import LM

MARK, PAD = 0, 1
RNG = np.random.default_rng(0)


def marked(lengths):
    """Tokens 2, 3, 4, ... through all documents, a mark before each and one after the last."""
    ids, starts, word = [], [], 2
    for length in lengths:
        starts.append(len(ids))
        ids += [MARK, *range(word, word + length)]
        word += length
    return TokenizedTexts(np.array([*ids, MARK], np.uint16), np.array([*starts, len(ids)]))


CASES = {
    "many": (np.random.default_rng(0).integers(0, 70, 60).tolist(), 16),
    "one long": ([500], 16),
    "exact": ([15, 31, 15], 16),
    "one over": ([16, 32], 16),
    "single tokens": ([1] * 20, 8),
    "empty ones": ([0, 0, 5, 0], 8),
}


def pairs(batch):
    """(row, place, token, target) of everything that counts."""
    return [
        (b, t, int(batch["tokens"][b, t]), int(batch["targets"][b, t]))
        for b, t in zip(*np.nonzero(batch["weights"]), strict=True)
    ]


def all_rows(rows):
    return rows.batch(np.arange(len(rows)), RNG)


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_packed_rows_hold_every_pair_of_neighbours_once(name, pack):
    lengths, length = CASES[name]
    text = marked(lengths)
    rows = PackedRows(text, length, pack, PAD, 2.5)
    batch = all_rows(rows)
    neighbours = sorted((token, target) for _, _, token, target in pairs(batch))
    assert neighbours == sorted(zip(text.ids[:-1].tolist(), text.ids[1:].tolist(), strict=True))
    np.testing.assert_array_equal(batch["weights"] > 0, batch["segments"] > 0)
    np.testing.assert_allclose(batch["bytes"], batch["weights"].sum(1) * 2.5)
    assert rows.padding == pytest.approx((batch["weights"] == 0).mean(), abs=1e-12)
    for b in range(len(rows)):
        for segment in range(1, batch["segments"][b].max() + 1):
            (places,) = np.nonzero(batch["segments"][b] == segment)
            np.testing.assert_array_equal(batch["positions"][b, places], np.arange(len(places)))
            np.testing.assert_array_equal(batch["tokens"][b, places[1:]], batch["targets"][b, places[:-1]])
            assert MARK not in batch["tokens"][b, places[1:]]  # one document


@pytest.mark.parametrize("across", [True, False])
@pytest.mark.parametrize("stride", [16, 5, 1])
@pytest.mark.parametrize("name", ["many", "one long", "exact", "empty ones"])
def test_windows_judge_every_pair_of_neighbours_once(name, stride, across):
    lengths, length = CASES[name]
    text, stride = marked(lengths), min(stride, length)
    batch = all_rows(marked_windows(text, length, stride, PAD, 1.0, across))
    neighbours = sorted((token, target) for _, _, token, target in pairs(batch))
    assert neighbours == sorted(zip(text.ids[:-1].tolist(), text.ids[1:].tolist(), strict=True))
    if across:  # a token that is judged sees at least length - stride before it, or all there are
        neighbours = zip(text.ids[:-1].tolist(), text.ids[1:].tolist(), strict=True)
        place = {pair: n for n, pair in enumerate(neighbours)}
        if len(place) == len(text.ids) - 1:
            assert all(t >= min(length - stride, place[token, target]) for _, t, token, target in pairs(batch))
    else:
        for b in range(len(batch["tokens"])):
            used = batch["tokens"][b] != PAD
            assert MARK not in batch["tokens"][b, 1:][used[1:]]


@pytest.mark.parametrize("prefix", [0, 1, 2])
@pytest.mark.parametrize("stride", [None, 16, 8, 5, 1])
@pytest.mark.parametrize("name", CASES)
def test_windows_of_a_folder_are_those_of_the_guide(name, stride, prefix):
    """A loop over windows of `length` tokens: the first of each is given, and none counts twice."""
    lengths, length = CASES[name]
    lengths, stride = [size + prefix for size in lengths], stride and min(stride, length)
    starts = np.cumsum([0, *lengths])
    ids = np.arange(starts[-1]) + 2
    counted = np.ones(len(ids), bool)
    for first, size in zip(starts, lengths, strict=False):
        counted[first : first + min(prefix, size)] = False
    rows = tokenizer_windows(TokenizedTexts(ids, starts, counted if prefix else None), length, stride, PAD, 2.5)
    expected = []
    for first, end in itertools.pairwise(starts):
        done = first
        for window in range(first, end, stride or length - 1):
            last = min(window + length, end)
            expected += [
                (window, target) for target in range(max(done, window + 1), last) if not prefix or counted[target]
            ]
            done = last
            if last == end:
                break
    batch = all_rows(rows)
    windows = [(int(batch["tokens"][b, 0]) - 2, target - 2) for b, _, _, target in pairs(batch)]
    assert sorted(windows) == sorted(expected)
    assert rows.num_targets == len(expected)
    assert all(target == token + 1 and t < length - 1 for _, t, token, target in pairs(batch))


def test_windows_of_training_begin_anywhere():
    text = marked([1000])
    rows = marked_windows(text, 16, 16, PAD, 1.0, across=True, jitter=True)
    tokens, again, of_seed_1 = (rows.batch(np.arange(5), np.random.default_rng(seed))["tokens"] for seed in (0, 0, 1))
    np.testing.assert_array_equal(tokens, again)
    assert (tokens != of_seed_1).any()
    for b in range(5):
        np.testing.assert_array_equal(np.diff(tokens[b].astype(int)), 1)
        assert 16 * b <= tokens[b, 0] - 1 < 16 * (b + 1)
    last = rows.batch(np.full(50, len(rows) - 1), np.random.default_rng(0))
    assert (last["weights"].sum(1) == rows.windows.of_rows(np.array([len(rows) - 1])).sizes).all()


def test_row_minus_one_is_empty():
    for rows in (PackedRows(marked([30]), 16, True, PAD, 1.0), marked_windows(marked([30]), 16, 16, PAD, 1.0, True)):
        batch = rows.batch(np.array([0, -1]), RNG)
        assert batch["weights"][1].sum() == batch["bytes"][1] == 0
        assert (batch["tokens"][1] == PAD).all()


CONFIG = tfm.Config(
    layers=2,
    heads=2,
    width=16,
    vocab=60,
    pad_vocab_to=64,
    length=16,
    residual=residuals.PreNorm(),
    input=inputs.Tokens(token_types=None),
    init_std=0.3,
    dropout=0.0,
)
PARAMS = random_params(tfm.causal_lm_specs(CONFIG))


def test_loss_is_the_mean_surprise_of_every_token_after_those_before_it():
    """Against each document read alone, token by token."""
    text = marked([7, 3, 12, 20])
    batch = all_rows(PackedRows(text, 16, True, PAD, 3.0))
    sums = jax.jit(LM.loss, static_argnums=1)(PARAMS, CONFIG, batch, None)
    read = jax.jit(tfm.causal_lm, static_argnums=1)
    total, count, right = 0.0, 0, 0
    for begin, end in zip(text.starts[:-1], text.starts[1:], strict=True):
        for piece in range(begin, end, 16):
            for last in range(piece, min(end, piece + 16)):
                tokens = np.zeros((1, 16), np.int32)  # what comes later is hidden, not only masked
                tokens[0, : last + 1 - piece] = text.ids[piece : last + 1]
                logits = np.asarray(read(PARAMS, CONFIG, tokens)[0, last - piece], np.float64)
                total -= logits[text.ids[last + 1]] - np.log(np.exp(logits).sum())
                right += logits.argmax() == text.ids[last + 1]
                count += 1
    metrics = LM.metrics({name: float(value) for name, value in sums.items()})
    assert metrics["loss"] == pytest.approx(total / count, rel=1e-4)
    assert metrics["accuracy"] == pytest.approx(right / count)
    assert metrics["perplexity"] == pytest.approx(np.exp(total / count), rel=1e-4)
    assert metrics["bits_per_byte"] == pytest.approx(total / np.log(2) / (3 * count), rel=1e-4)
    assert metrics["padding"] == pytest.approx((batch["weights"] == 0).mean(), abs=1e-6)


@pytest.mark.slow
def test_no_gradient_leaks_across_documents_or_from_what_comes_later():
    """The logit of a place depends on the embeddings of its own document up to itself, and on nothing else."""
    batch = all_rows(PackedRows(marked([5, 8, 20]), 16, True, PAD, 1.0))
    segments, positions = batch["segments"], batch["positions"]
    x = tfm.embed(PARAMS.decoder.embed, CONFIG, batch["tokens"], positions)
    weights = np.random.default_rng(0).normal(size=16).astype(np.float32)
    for b in range(len(segments)):
        mask = tfm.segments(segments[b : b + 1])
        context = tfm.AttentionContext(positions[b : b + 1], mask, causal=True)
        project = lambda x, context=context: tfm.stack(PARAMS.decoder, CONFIG, x, context)[0][0] @ weights
        jacobian = jax.jit(jax.jacrev(project))(x[b : b + 1])[:, 0]
        reached = np.abs(np.asarray(jacobian)).max(-1) > 0
        same = segments[b][:, None] == segments[b][None]
        np.testing.assert_array_equal(reached, same & np.tri(16, dtype=bool))

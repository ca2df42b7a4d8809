"""Masked language modelling: which tokens are hidden, in which batch, and what their loss is."""

import dataclasses
from collections import Counter
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tokenizers

import tfm
from train import UserError
from train.data import feed
from train.screens.console import Log
from train.settings.schema import Batch, Data
from train.settings.schema import Tokenizer as Options
from train.tasks.mlm.masking import Masker, _random_numbers, _smallest
from train.tasks.mlm.task import MLM, make_corpus
from train.tasks.table import AnyRun
from train.text import tokenize
from train.text.random_splits import random_splits
from train.text.special import SpecialTokens

PAD, UNK, CLS, SEP, MASK = SPECIALS = SpecialTokens(0, 1, 2, 3, 4)
VOCAB = 50
REGULAR = np.arange(5, VOCAB)
MODEL = tfm.Config(layers=1, heads=2, width=16, vocab=VOCAB, length=16, pad_vocab_to=8)

needs_draws = pytest.mark.skipif(
    not hasattr(tokenizers.models.Unigram, "nbest_size"), reason="tokenizers of less than 0.23 draw no splits"
)


def masked(rows=4000, length=64, rate=0.15, seed=0):
    rng = np.random.default_rng(seed)
    tokens = rng.integers(5, VOCAB, (rows, length)).astype(np.int32)
    tokens[:, 0], tokens[:, 20], tokens[:, 21], tokens[:, -9], tokens[:, -8:] = CLS, SEP, CLS, SEP, PAD
    return tokens, masker(rate).hide(rng, tokens)


def masker(rate=0.15, continues=None):
    return Masker(rate, SPECIALS, REGULAR, np.ones(VOCAB, bool), continues)


@pytest.mark.parametrize("length", [1, 5, 64, 65, 1000, 5000])
def test_places_are_drawn_in_the_order_of_random_numbers(length):
    """Those of a generator that starts alike, without the bits that become places. What is no candidate comes last."""
    candidates, count = np.random.default_rng(0).random((50, length)) < 0.7, -(-length // 3)
    drawn = _smallest(_random_numbers(np.random.default_rng(1), candidates), count)
    dtype, bits = (np.uint32 if length <= 4096 else np.uint64), (length - 1).bit_length()
    numbers = np.random.default_rng(1).integers(np.iinfo(dtype).max, size=(50, length), dtype=dtype, endpoint=True)
    numbers = np.where(candidates, numbers >> dtype(bits), 0)
    order = np.lexsort((np.broadcast_to(np.arange(length), numbers.shape), numbers, ~candidates))
    np.testing.assert_array_equal(drawn, order[:, :count])


@pytest.mark.parametrize("rate", [0.15, 0.4])
def test_share_of_tokens(rate):
    tokens, batch = masked(rate=rate)
    candidates = (tokens > MASK).sum(1)
    np.testing.assert_array_equal(batch["weights"].sum(1), np.rint(rate * candidates))
    assert batch["where"].shape == (4000, np.ceil(rate * 64))


def test_eighty_ten_ten():
    _, batch = masked()
    chosen = batch["weights"] > 0
    now = np.take_along_axis(batch["tokens"], batch["where"], 1)[chosen]
    then = batch["targets"][chosen]
    count, same_by_chance = len(now), 0.1 / len(REGULAR)
    for tokens, share in [
        ((now == MASK).sum(), 0.8),
        ((now == then).sum(), 0.1 + same_by_chance),
        (((now != MASK) & (now != then)).sum(), 0.1 - same_by_chance),
    ]:
        assert abs(tokens - share * count) < 5 * (count * share * (1 - share)) ** 0.5
    random = now[(now != MASK) & (now != then)]
    assert set(random) == set(REGULAR), "any regular token, and no special one"
    counts = np.bincount(random, minlength=VOCAB)[5:]
    share = 1 / len(REGULAR)
    assert np.abs(counts - share * len(random)).max() < 5 * (len(random) * share) ** 0.5


def test_special_tokens_are_never_chosen_and_all_others_alike():
    tokens, batch = masked()
    chosen = batch["weights"] > 0
    assert (batch["targets"][chosen] > MASK).all()
    np.testing.assert_array_equal(batch["targets"], np.take_along_axis(tokens, batch["where"], 1))
    touched = batch["tokens"] != tokens
    places = np.zeros_like(touched)
    np.put_along_axis(places, batch["where"], chosen, 1)
    assert not (touched & ~places).any(), "only chosen places change"
    assert (places.sum(1) == chosen.sum(1)).all(), "no place twice"
    rows, columns = len(tokens), (tokens[0] > MASK)
    share = batch["weights"].sum() / (rows * columns.sum())
    assert not places[:, ~columns].any()
    assert np.abs(places[:, columns].sum(0) - share * rows).max() < 5 * (rows * share * (1 - share)) ** 0.5


def test_rows_with_little_to_hide():
    tokens = np.array([[CLS, 7, SEP, PAD, PAD, PAD, PAD, PAD], [CLS, SEP, PAD, PAD, PAD, PAD, PAD, PAD]], np.int32)
    batch = masker().hide(np.random.default_rng(0), tokens)
    np.testing.assert_array_equal(batch["weights"], [[1, 0], [0, 0]])
    assert (batch["where"][0, 0], batch["targets"][0, 0]) == (1, 7)
    np.testing.assert_array_equal(batch["tokens"][1], tokens[1])


# Whole words


def words_of(tokens, continues):
    """The word of every place, by a loop: special tokens are words of their own, and nothing goes on after them."""
    words = np.zeros(tokens.shape, int)
    for row, ids in enumerate(tokens):
        for place, token in enumerate(ids):
            joins = place and token > MASK and ids[place - 1] > MASK and continues[token]
            words[row, place] = words[row, place - 1] + (not joins) if place else 0
    return words


def test_whole_words():
    continues = np.arange(VOCAB) % 3 == 0
    tokens, _ = masked(rows=600)
    batch = masker(continues=continues).hide(np.random.default_rng(1), tokens)
    words = words_of(tokens, continues)
    weights, where = batch["weights"] > 0, batch["where"]
    for row in range(600):
        chosen = set(where[row, weights[row]])
        of_chosen = {words[row, place] for place in chosen}
        assert chosen == {place for place in range(64) if words[row, place] in of_chosen}, "all of a word or nothing"
        assert 1 <= len(chosen) <= 8, "15 % of 53"
    assert weights.sum(1).mean() > 7
    shares = np.zeros(64)
    np.add.at(shares, where[weights], 1)
    inner = (tokens > MASK).all(0)
    assert shares[inner].min() > 0.6 * shares[inner].mean(), "every place has its chance"


def test_a_word_longer_than_all_that_may_be_hidden():
    tokens = np.array([[CLS, *[6] * 14, SEP]], np.int32)
    batch = masker(continues=np.ones(VOCAB, bool)).hide(np.random.default_rng(1), tokens)
    assert batch["weights"].sum() == 2, "some of it"


def test_whole_words_without_inner_pieces_are_single_tokens():
    tokens, plain = masked()
    rng = np.random.default_rng(0)
    rng.integers(5, VOCAB, tokens.shape)  # as `masked` draws before
    by_words = masker(continues=np.zeros(VOCAB, bool)).hide(rng, tokens)
    np.testing.assert_array_equal(by_words["weights"], plain["weights"])
    np.testing.assert_array_equal(
        np.where(by_words["weights"] > 0, by_words["where"], 0), np.where(plain["weights"] > 0, plain["where"], 0)
    )


@pytest.fixture(scope="module")
def texts():
    rng = np.random.default_rng(0)
    words = [f"{a}{b}" for a in ("ka", "lo", "mi", "nu") for b in ("ra", "so", "ti", "12")]
    return [" ".join(rng.choice(words, rng.integers(5, 40))) + "." for _ in range(100)]


@pytest.fixture(scope="module")
def corpus(texts):
    return corpus_of(texts)


def corpus_of(texts, seed=0, size=8, **fields):
    run = AnyRun(seed=seed, batch=Batch(size=size, length=32), **fields)
    tokenizer = tokenize.train(Options(vocab=300), texts)
    return make_corpus(run, tokenizer, texts[:81], texts[81:], Log())


def same(a, b):
    return all((a[name] == b[name]).all() for name in a)


def test_batches_depend_on_seed_and_number_alone(texts, corpus):
    wanted = {n: corpus.batch(n) for n in (0, 1, 2, 50)}
    again = corpus_of(texts)
    for n in (50, 2, 0, 1):
        assert same(again.batch(n), wanted[n])
    assert not same(wanted[0], wanted[1])
    assert not same(corpus_of(texts, seed=1).batch(0), wanted[0])


def test_a_share_of_a_batch_is_masked_as_in_the_whole(corpus):
    """And of the other rows nothing is read, but of the one that comes last in the text."""
    mine = np.arange(8) % 4 == 1
    for batch, part in (
        (corpus.batch(3), corpus.batch(3, lambda rows: mine)),
        *zip(corpus.valid_batches(), corpus.valid_batches(0, lambda rows: mine), strict=True),
    ):
        assert same(
            {name: field[mine] for name, field in batch.items()}, {name: field[mine] for name, field in part.items()}
        )
        assert (part["segments"].max(1) > 0).sum() <= mine.sum() + 1


def test_every_row_once_an_epoch_in_an_order_of_its_own(corpus):
    rows, size = len(corpus.train[0]), 8
    assert rows % size, "or the epochs would not share a batch"
    drawn = np.concatenate([corpus.rows(n)[1] for n in range(3 * rows // size + 1)])
    epochs = [drawn[start : start + rows] for start in (0, rows, 2 * rows)]
    for epoch in epochs:
        np.testing.assert_array_equal(np.sort(epoch), np.arange(rows))
    assert not (epochs[0] == epochs[1]).all()
    assert not (epochs[1] == epochs[2]).all()
    assert not (epochs[0] == np.arange(rows)).all()


def test_masks_are_fresh_in_every_epoch(texts):
    corpus = corpus_of(texts, size=1)
    rows = len(corpus.train[0])
    first = {int(corpus.rows(n)[1][0]): corpus.batch(n) for n in range(rows)}
    second = {int(corpus.rows(n)[1][0]): corpus.batch(n) for n in range(rows, 2 * rows)}
    differ = sum((np.sort(first[row]["where"]) != np.sort(second[row]["where"])).any() for row in range(rows))
    assert differ > 0.9 * rows
    assert all((first[row]["segments"] == second[row]["segments"]).all() for row in range(rows)), (
        "the rows are the same"
    )


def test_validation_masks_are_fixed(texts, corpus):
    batches, again = list(corpus.valid_batches()), list(corpus_of(texts).valid_batches())
    assert len(batches) == len(again) == -(-len(corpus.valid) // 8)
    assert all(same(a, b) for a, b in zip(batches, again, strict=True))
    assert [same(a, b) for a, b in zip(batches, corpus.valid_batches(max_batches=1), strict=False)] == [True]


def test_rows_that_fill_the_last_validation_batch_do_not_count(corpus):
    rows = len(corpus.valid)
    assert rows % 8, "or there is nothing to fill"
    *_, last = corpus.valid_batches()
    assert last["tokens"].shape == (8, 32)
    real = rows % 8
    assert last["weights"][:real].sum(1).all()
    assert not last["weights"][real:].any()
    assert not last["words"][real:].any()
    counted = sum(batch["weights"].sum() for batch in corpus.valid_batches())
    assert MLM.baselines(corpus)["n"] == counted


def test_majority_is_the_share_of_the_most_frequent_target(corpus):
    targets = np.concatenate([batch["targets"][batch["weights"] > 0] for batch in corpus.valid_batches()])
    assert MLM.baselines(corpus)["majority"] == pytest.approx(np.bincount(targets).max() / len(targets))


def test_word_weights_mark_the_alphabetic_targets(corpus):
    batch = corpus.batch(0)
    pieces = np.vectorize(lambda token: corpus.processor.id_to_token(int(token)).removeprefix("##").isalpha())(
        batch["targets"]
    )
    np.testing.assert_array_equal(batch["words"], batch["weights"] * pieces)
    assert 0 < batch["words"].sum() < batch["weights"].sum()


def test_too_small_a_corpus(texts):
    with pytest.raises(UserError, match=r"fills \d+ rows of 32 tokens, too few for --batch.size=800"):
        corpus_of(texts, size=800)
    with pytest.raises(UserError, match="the validation text has no tokens"):
        make_corpus(AnyRun(batch=Batch(length=32)), tokenize.train(Options(vocab=300), texts), texts, ["\u200b"], Log())


def test_padded_rows_hold_one_document_each(texts):
    corpus = corpus_of(texts, data=Data(pack=False))
    assert corpus.batch(0)["segments"].max() == 1
    assert corpus_of(texts).batch(0)["segments"].max() > 1


@pytest.mark.slow
def test_order_of_several_segmentations():
    """Segmentation s has its own rows: epoch e takes all of segmentation e mod 3, in an order of its own."""
    sizes = [5, 7, 4]
    segmentations, rows = feed.shuffled_rows(sizes, seed=3, batch_size=32)(0)
    epochs = np.split(np.arange(32), np.cumsum([5, 7, 4, 5, 7, 4])[:-1])
    for epoch, places in enumerate(epochs):
        assert (segmentations[places] == epoch % 3).all()
        np.testing.assert_array_equal(np.sort(rows[places]), np.arange(sizes[epoch % 3]))
    assert (rows[epochs[0]] != rows[epochs[3]]).any()
    alone = feed.shuffled_rows([5], seed=3, batch_size=48)(0)[1]
    np.testing.assert_array_equal(alone[:5], rows[:5])
    batches = feed.shuffled_rows(sizes, seed=3, batch_size=8)
    for n in (2, 0, 3):
        part = slice(8 * n, 8 * n + 8)
        np.testing.assert_equal(batches(n), (segmentations[part], rows[part]))


def test_bpe_dropout_reads_another_segmentation_each_epoch(texts):
    """The validation text is split as ever; the cache keeps the segmentations, so a second corpus has the same."""
    tokenizer = tokenize.train(Options(vocab=400, kind="bpe"), texts)
    run = AnyRun(batch=Batch(size=4, length=32), tokenizer=Options(kind="bpe", dropout=0.3, draws=2))
    corpus, again = (make_corpus(run, tokenizer, texts[:81], texts[81:], Log()) for _ in range(2))
    plain = make_corpus(AnyRun(batch=Batch(size=4, length=32)), tokenizer, texts[:81], texts[81:], Log())
    ids = [rows.text.ids.tolist() for rows in corpus.train]
    assert len(ids) == 2
    assert ids[0] != ids[1]
    assert min(map(len, ids)) > 1.05 * len(plain.train[0].text.ids), "fewer merges, more tokens"
    assert {tokenizer.decode(text) for text in ids} == {tokenizer.decode(plain.train[0].text.ids.tolist())}, (
        "the same text"
    )
    assert corpus.valid.text.ids.tolist() == plain.valid.text.ids.tolist()
    first = -(-len(corpus.train[0]) // 4)
    for n in (0, first - 1, first, 3 * first):
        assert same(corpus.batch(n), again.batch(n))
    assert set(corpus.rows(0)[0]) == {0}
    assert set(corpus.rows(first)[0]) == {1}
    assert corpus.facts()["segmentation_hash"] == again.facts()["segmentation_hash"]
    assert tokenizer.model.dropout is None, "what is saved does not drop"


@needs_draws
def test_splits_of_unigram_are_drawn_by_their_probability(texts):
    """Kudo 2018, section 3.4: P(split)^0.5, normalized over all splits of a word."""
    pieces = {"<unk>": 0.0, "a": -2.0, "b": -2.0, "ab": -1.5, "c": -2.5, "abc": -3.0, "bc": -3.0}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram(list(pieces.items()), unk_id=0))
    saved = tokenizer.to_str()
    with random_splits(tokenizer, 0.0, 0.5):
        counts = Counter(tuple(tokenizer.encode("abc").tokens) for _ in range(4000))
    splits = ("abc",), ("ab", "c"), ("a", "bc"), ("a", "b", "c")
    weights = np.exp([0.5 * sum(pieces[piece] for piece in split) for split in splits])
    np.testing.assert_allclose([counts[split] / 4000 for split in splits], weights / weights.sum(), atol=0.035)
    assert tokenizer.encode("abc").tokens == ["abc"], "the most probable one"
    assert tokenizer.to_str() == saved


@needs_draws
@pytest.mark.slow
def test_sampling_reads_another_segmentation_each_epoch(texts):
    tokenizer = tokenize.train(Options(kind="unigram", vocab=300), texts)
    run = AnyRun(batch=Batch(size=4, length=32), tokenizer=Options(kind="unigram", sampling=0.2, draws=2))
    corpus = make_corpus(run, tokenizer, texts[:81], texts[81:], Log())
    first, second = (rows.text for rows in corpus.train)
    assert [tokenizer.decode(list(ids)) for ids in first.split()] == [
        tokenizer.decode(list(ids)) for ids in second.split()
    ]
    assert not np.array_equal(first.ids, second.ids)
    assert corpus.facts()["segmentation_hash"]


def test_only_unigram_has_splits_to_draw(texts):
    run = AnyRun(batch=Batch(size=4, length=32), tokenizer=Options(sampling=0.2))
    with pytest.raises(UserError, match=r"--tokenizer.sampling=0.2 draws splits, and a WordPiece tokenizer"):
        make_corpus(run, tokenize.train(Options(vocab=300), texts), texts[:81], texts[81:], Log())
    with pytest.raises(ValueError, match=r"sampling=2.0 must be at least 0 and at most 1"):
        Options(sampling=2.0)
    with pytest.raises(ValueError, match=r"dropout=0.1 is for bpe, and sampling=0.2 for unigram"):
        Options(sampling=0.2, dropout=0.1)


def test_only_bpe_has_merges_to_drop(texts):
    run = AnyRun(batch=Batch(size=4, length=32), tokenizer=Options(dropout=0.1))
    with pytest.raises(
        UserError, match=r"--tokenizer.dropout=0.1 leaves out merges, which a WordPiece tokenizer has not"
    ):
        make_corpus(run, tokenize.train(Options(vocab=300), texts), texts[:81], texts[81:], Log())


loss = jax.jit(MLM.loss, static_argnums=1)


@partial(jax.jit, static_argnums=1)
def logits_of(params, model, batch):
    return tfm.masked_lm(
        params, model, batch["tokens"], batch["where"], tfm.segments(batch["segments"]), batch["positions"]
    )


def example(rows=3):
    """A batch of small packed rows with uneven weights."""
    rng = np.random.default_rng(1)
    segments = np.sort(rng.integers(0, 3, (rows, 12)), axis=1)[:, ::-1]
    weights = np.float32([[1, 1, 0], [1, 0, 0], [0, 0, 0]])[:rows]
    batch = {
        "tokens": rng.integers(5, VOCAB, (rows, 12)),
        "segments": segments,
        "positions": np.tile(np.arange(12), (rows, 1)),
        "where": rng.integers(0, 12, (rows, 3)),
        "targets": rng.integers(5, VOCAB, (rows, 3)),
    }
    return {name: np.int32(field) for name, field in batch.items()} | {
        "weights": weights,
        "words": weights * np.float32([1, 0, 1]),
    }


def test_loss_against_numpy(fill, strict):
    params, batch = fill(tfm.masked_lm_specs(MODEL)), example()
    sums = loss(params, MODEL, batch, None)
    logits = np.float64(logits_of(params, MODEL, batch))[..., :VOCAB]

    wanted = dict.fromkeys(("loss", "weight", "right", "words", "right_words", "padding"), 0.0)
    wanted["padding"] = (batch["segments"] == 0).mean() * 3  # times the predicted tokens, as the other sums
    for b in range(3):
        for m in range(3):
            probabilities = np.exp(logits[b, m]) / np.exp(logits[b, m]).sum()
            target, weight, word = (batch[name][b, m] for name in ("targets", "weights", "words"))
            right = float(logits[b, m].argmax() == target)
            wanted["loss"] -= weight * np.log(probabilities[target])
            wanted["weight"] += weight
            wanted["right"] += weight * right
            wanted["words"] += word
            wanted["right_words"] += word * right
    assert sums.keys() == wanted.keys()
    for name, value in sums.items():
        assert value.dtype == jnp.float32
        np.testing.assert_allclose(value, wanted[name], rtol=1e-5, err_msg=name)


def test_loss_counts_right_guesses(fill, strict):
    params, batch = fill(tfm.masked_lm_specs(MODEL)), example()
    guesses = logits_of(params, MODEL, batch).argmax(-1)
    sums = loss(params, MODEL, batch | {"targets": np.asarray(guesses)}, None)
    assert (sums["right"], sums["right_words"]) == (sums["weight"], sums["words"]) == (3, 2)


def test_loss_sees_nothing_of_other_pieces_nor_of_what_it_does_not_predict(fill, strict):
    params = fill(tfm.masked_lm_specs(MODEL))
    batch = example()
    batch["where"] = np.int32([[0, 1, 2]] * 3)
    batch["segments"] = np.int32([[1] * 6 + [2] * 4 + [0] * 2] * 3)
    changed = {name: field.copy() for name, field in batch.items()}
    changed["tokens"][:, 6:] = 7
    changed["targets"][batch["weights"] == 0] = 9
    np.testing.assert_array_equal(loss(params, MODEL, batch, None)["loss"], loss(params, MODEL, changed, None)["loss"])
    changed["tokens"][:, 5] = 6 + (batch["tokens"][:, 5] == 6)
    assert loss(params, MODEL, batch, None)["loss"] != loss(params, MODEL, changed, None)["loss"]


@pytest.mark.slow
def test_loss_of_pairs(fill, strict):
    """The mean over pairs is added to the mean over tokens; both stand beside it."""
    specs = tfm.masked_lm_specs(MODEL, next_sentence=True)
    params = jax.tree.map(lambda x: 0.3 * x, fill(specs))
    batch = example() | {
        "types": np.int32(np.tile(np.arange(12) > 5, (3, 1))),
        "next": np.int32([0, 1, 1]),
        "pairs": np.float32([1, 1, 0]),
        "segments": np.int32([[1] * 12] * 3),
    }
    sums = {name: float(value) for name, value in loss(params, MODEL, batch, None).items()}
    mask = tfm.segments(batch["segments"])
    hidden = tfm.encoder(params.encoder, MODEL, batch["tokens"], mask, batch["positions"], batch["types"])
    first = np.asarray(hidden)[:, 0]
    inner = np.tanh(first @ np.asarray(params.pooler.kernel) + np.asarray(params.pooler.bias))
    logits = inner @ np.asarray(params.next.kernel) + np.asarray(params.next.bias)
    losses = [np.log(np.exp(row).sum()) - row[label] for row, label in zip(logits, batch["next"], strict=True)]
    means = MLM.metrics(sums)
    assert means["loss_next"] == pytest.approx(np.mean(losses[:2]), rel=1e-4)
    assert means["accuracy_next"] == np.mean(
        [row.argmax() == label for row, label in zip(logits[:2], batch["next"], strict=False)]
    )
    assert means["loss"] == pytest.approx(means["loss_tokens"] + means["loss_next"], rel=1e-5)
    assert means["perplexity"] == pytest.approx(np.exp(min(means["loss_tokens"], 700)), rel=1e-4)
    swapped = loss(params, MODEL, batch | {"types": 1 - batch["types"]}, None)
    assert swapped["loss_next"] != sums["loss_next"], "token types are read"


def test_loss_in_bfloat16_under_strict_promotion(fill, strict):
    params = jax.tree.map(lambda x: 0.1 * x, fill(tfm.masked_lm_specs(MODEL)))
    wide = loss(params, MODEL, example(), None)["loss"]
    narrow = loss(params, dataclasses.replace(MODEL, dtype="bfloat16"), example(), jax.random.key(0))["loss"]
    assert narrow.dtype == jnp.float32
    np.testing.assert_allclose(narrow, wide, rtol=0.1)


def test_metrics():
    sums = {"loss": 8.0, "weight": 4.0, "right": 1.0, "words": 2.0, "right_words": 1.0, "padding": 0.2}
    means = MLM.metrics(sums)
    assert means == pytest.approx(
        {"loss": 2.0, "perplexity": np.exp(2.0), "accuracy": 0.25, "accuracy_words": 0.5, "padding": 0.05}
    )
    assert MLM.metrics(dict.fromkeys(sums, 0.0))["loss"] == 0

"""What is said of texts that are read together is what is said of each alone, in their order."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params

import tfm
from train.data import packing, reading
from train.data.text_rows import TextFields
from train.text.special import SpecialTokens

LENGTH = 64
CONFIG = tfm.Config(layers=1, heads=2, width=8, ffn=16, vocab=50, length=LENGTH, dropout=0.0)
SPECIALS = SpecialTokens(0, 1, 2, 3, 4)
SIZES = [40, 3, 16, 1, 64]


class NumberedTexts:
    """Texts whose tokens say where they stand; of examples of several texts where sizes are [N,n]."""

    text_fields = TextFields(("tokens", "valid", "states"))

    def __init__(self, sizes, seed=0):
        self.sizes, self.length, self.specials = np.array(sizes), LENGTH, SPECIALS
        ids = np.random.default_rng(seed).integers(1, 50, (*self.sizes.shape, LENGTH), dtype=np.int32)
        self.valid = (np.arange(LENGTH) < self.sizes[..., None]).astype(np.int32)
        self.tokens = ids * self.valid

    def batch(self, rows, rng=None):
        is_text = np.expand_dims(rows >= 0, tuple(range(1, self.tokens.ndim)))
        return {"tokens": self.tokens[rows] * is_text, "valid": self.valid[rows] * is_text}


@pytest.mark.parametrize(
    ("options", "shapes"),
    [
        ({}, {(2, 64)}),
        pytest.param({"mixer": "linformer"}, {(2, 8), (1, 16), (1, 48), (1, 64)}, marks=pytest.mark.slow),
        pytest.param({"mixer": "fnet", "mixer.reads_padding": True}, {(2, 64), (1, 64)}, marks=pytest.mark.slow),
    ],
)
def test_each_vector_is_that_of_the_text_alone(options, shapes):
    """They share rows; or have rows of similar lengths; or of all places, where a mixer reads padding."""
    config = tfm.override(CONFIG, options)
    params, texts = random_params(tfm.encoder_specs(config)), NumberedTexts(SIZES)
    read, counts = set(), []

    @jax.jit
    def vectors_of(batch):
        read.add(batch["tokens"].shape)
        positions = batch["positions"] if config.reads_packed else None
        states = tfm.encoder(params, config, batch["tokens"], packing.row_mask(config, batch["segments"]), positions)
        texts = tfm.segment_tokens(batch["segments"], len(batch["rows"]) // len(batch["segments"]))
        return {"vectors": tfm.pool(states, texts), "states": states}

    said = reading.read_texts(vectors_of, config, texts, [4, 3, 2, 1, 0], 2, counts.append)
    assert read == shapes
    assert sum(counts) == len(SIZES)
    alone = jax.jit(tfm.encoder, static_argnums=1)(params, config, texts.tokens, tfm.padding(texts.valid > 0))
    for text, vector, states in zip(range(4, -1, -1), said["vectors"], said["states"], strict=True):
        expected = np.asarray(alone)[text, : SIZES[text]]
        np.testing.assert_allclose(states[: SIZES[text]], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(vector, expected.mean(0), rtol=1e-4, atol=1e-5)


def sums_of(batch):
    """The sum of the tokens of every example, and the tokens themselves."""
    segments, tokens = batch["segments"], batch["tokens"]
    of_text = np.asarray(tfm.segment_tokens(jnp.asarray(segments), len(batch["rows"]) // len(segments)))
    return {"sums": (of_text * tokens[:, None]).sum(-1).ravel(), "states": tokens}


@pytest.mark.parametrize("batch", [1, 3, 500])
def test_no_text_is_lost(batch):
    sizes = np.minimum(LENGTH, np.random.default_rng(1).geometric(0.08, 700))
    texts, shapes = NumberedTexts(sizes), set()

    def outcomes_of(fields):
        shapes.add(fields["tokens"].shape)
        return sums_of(fields)

    said = reading.read_texts(outcomes_of, CONFIG, texts, range(700), batch, lambda count: None)
    np.testing.assert_array_equal(said["sums"], texts.tokens.sum(-1))
    np.testing.assert_array_equal(said["states"], texts.tokens)
    assert max(rows * length for rows, length in shapes) <= batch * LENGTH
    assert len(shapes) <= 2


def test_two_batches_are_computed_at_a_time(monkeypatch):
    """Either waits here until both have begun; what is said keeps its order, and an error comes out."""
    monkeypatch.setattr(reading, "_at_a_time", lambda: 2)
    texts, both = NumberedTexts([LENGTH] * 4), threading.Barrier(2, timeout=10)

    def outcomes_of(fields):
        both.wait()
        return sums_of(fields)

    said = reading.read_texts(outcomes_of, CONFIG, texts, range(4), 1, lambda count: None)
    np.testing.assert_array_equal(said["sums"], texts.tokens.sum(-1))
    with pytest.raises(ZeroDivisionError):
        reading.read_texts(lambda fields: 1 // 0, CONFIG, texts, range(4), 1, lambda count: None)


def test_rows_are_full():
    sizes = np.minimum(200, np.random.default_rng(0).geometric(0.04, 2000))
    model = tfm.Config(length=256)
    batches = list(reading._batches(sizes, model, 256, 16))
    assert sizes.sum() / sum(shape.rows * shape.length for _, shape in batches) > 0.95
    assert len({shape for _, shape in batches}) <= 6


def test_texts_of_an_example_are_neighbours():
    """An example of two texts is one that shares a row, or has two rows of its own."""
    texts = NumberedTexts([(3, 20), (2, 1), (30, 30), (5, 9)])

    def outcomes_of(fields):
        count = 2 * len(fields["rows"]) // len(fields["segments"])
        of_text = fields["segments"][:, None] == np.arange(1, count + 1)[:, None]
        return {"sums": (of_text * fields["tokens"][:, None]).sum(-1).reshape(-1, 2)}

    for model in (CONFIG, tfm.override(CONFIG, {"mixer": "linformer"})):
        said = reading.read_texts(outcomes_of, model, texts, range(4), 2, lambda count: None)
        np.testing.assert_array_equal(said["sums"], texts.tokens.sum(-1))


def test_blocks_are_all_texts_in_order():
    blocks = list(reading.blocks(reading.BATCHES * 4 + 3, 2))
    assert [row for block in blocks for row in block] == list(range(reading.BATCHES * 4 + 3))
    assert max(map(len, blocks)) == reading.BATCHES * 2

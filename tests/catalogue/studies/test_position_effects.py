"""What positions do in a model, as arrays."""

import numpy as np
import pytest
from random_params import random_params

import tfm
from train.tasks.presets import model as preset

pytestmark = pytest.mark.slow

CONFIG = tfm.Config(layers=2, heads=4, kv_heads=2, width=8, ffn=8, vocab=40, pad_vocab_to=8, length=16, init_std=0.3)


def arrays_of(values, causal=False, length=6):
    """Similarity and scores of a random model."""
    config = tfm.override(CONFIG, values)
    model = random_params(tfm.encoder_specs(config))
    return tfm.position_similarity(model, config, length), tfm.position_scores(model, config, length, causal), model


def test_positions_of_embeddings_are_compared_by_their_cosine():
    similarity, scores, model = arrays_of({})
    rows = np.asarray(model.embed.positions, np.float64)[:6]
    expected = [[a @ b / np.linalg.norm(a) / np.linalg.norm(b) for b in rows] for a in rows]
    np.testing.assert_allclose(similarity, expected, rtol=1e-5, atol=1e-6)
    assert scores is None


def test_a_bias_is_what_positions_add_to_scores():
    """That of ALiBi, less its mean over the pairs that are seen; the same in both layers."""
    similarity, scores, _ = arrays_of({"position": "alibi"}, causal=True)
    assert similarity is None
    seen = np.tril(np.ones((6, 6), bool))
    for head, rows in enumerate(scores):
        slope = 2.0 ** (-8 * (head % 4 + 1) / 4)
        bias = np.array([[-slope * abs(i - j) for j in range(6)] for i in range(6)])
        np.testing.assert_allclose(rows[seen], (bias - bias[seen].mean())[seen], rtol=1e-4, atol=1e-5)
        assert np.isnan(rows[~seen]).all()
    assert len(scores) == 8


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rotary", "shaw", "huang", "transformer_xl", "sinusoidal_relative", "t5"])
def test_relative_positions_add_the_same_along_diagonals(name):
    scores = arrays_of({"position": name})[1]
    assert np.abs(scores).max() > 1e-3
    np.testing.assert_allclose(scores[:, 1:, 1:], scores[:, :-1, :-1], rtol=1e-4, atol=1e-4)


def test_biases_of_windows_are_those_of_offsets():
    """Swin, windows of 4 x 4: pairs with the same offset of rows and columns have one value of 7 x 7 in every head."""
    config = preset("swin-mini", **{"input.size": 16, "layers": 2, "stages": 0, "init_std": 0.5})
    model = random_params(tfm.encoder_specs(config))
    rows, columns = np.divmod(np.arange(16), 4)
    offsets = 7 * (rows[:, None] - rows) + columns[:, None] - columns
    for head in tfm.position_scores(model, config, 16):
        assert head.mean() == pytest.approx(0, abs=1e-6)
        assert len({tuple(np.round(head[offsets == offset], 4)) for offset in np.unique(offsets)}) == 49
        for offset in np.unique(offsets):
            assert np.ptp(head[offsets == offset]) < 1e-5

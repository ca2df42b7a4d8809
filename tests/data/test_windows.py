"""Windows of long texts."""

import numpy as np
import pytest

from train.data.windows import best_windows, cut


def test_every_token_is_in_a_window():
    lengths = [0, 3, 8, 9, 40]
    windows = cut(lengths, 8, 5)
    for text, length in enumerate(lengths):
        mine = windows.texts == text
        starts, ends = windows.starts[mine], windows.ends[mine]
        assert starts[0] == 0
        assert ends[-1] == length
        assert set(np.concatenate([np.arange(a, b) for a, b in zip(starts, ends, strict=True)])) == set(range(length))
        assert (ends - starts <= 8).all()
    assert windows.texts.tolist() == [0, 1, 2, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4]


def test_sizes_of_each_text():
    windows = cut([10, 10], [10, 4], 128)
    assert list(zip(*(array.tolist() for array in windows), strict=True)) == [
        (0, 0, 10),
        (1, 0, 4),
        (1, 4, 8),
        (1, 8, 10),
    ]
    with pytest.raises(ValueError, match="no room for text 2"):
        cut([10, 10], [10, 0], 4)


def max_context(spans, position):
    """The rule token by token: the smaller side, and a hundredth of the window's length."""
    scores = [
        min(position - start, start + size - 1 - position) + 0.01 * size if start <= position < start + size else -1
        for start, size in spans
    ]
    return scores.index(max(scores))


@pytest.mark.parametrize("stride", [1, 3, 7])
def test_best_windows(stride):
    lengths = [5, 31, 0, 18]
    windows = cut(lengths, 8, stride)
    best = best_windows(windows, lengths)
    for text, length in enumerate(lengths):
        members = np.flatnonzero(windows.texts == text)
        spans = [(windows.starts[w], windows.ends[w] - windows.starts[w]) for w in members]
        expected = [members[max_context(spans, position)] for position in range(length)]
        np.testing.assert_array_equal(best[text], expected)

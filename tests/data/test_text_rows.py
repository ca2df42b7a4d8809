"""Texts dealt to batches, and rows: nothing is lost, and all batches and rows are nearly as full."""

import numpy as np
import pytest

from train.data import balance, feed, row_plan
from train.data.text_rows import Layout, Shape, TextFields, by_text, examples_of, separated
from train.tasks import resolve

SIZE, SHAPE = 8, Shape(2, 5, 80)


@pytest.fixture
def lengths():
    return np.random.default_rng(0).integers(3, 30, 100)


def test_every_text_is_dealt_once(lengths):
    members = balance.deal(lengths[:96], SIZE, np.random.default_rng(0))
    assert sorted(members.ravel()) == list(range(96))
    totals = lengths[members].sum(1)
    assert np.ptp(totals) <= 4 < np.ptp(lengths[:96].reshape(-1, SIZE).sum(1))


def test_every_text_has_a_seat(lengths):
    batches = lengths[:96].reshape(-1, SIZE)
    seats = balance.share(batches, SHAPE.rows, SHAPE.slots)
    for of_batch in seats.reshape(len(batches), -1):
        assert sorted(of_batch[of_batch >= 0]) == list(range(SIZE))
    rows = balance.tokens_of_rows(batches, seats)
    np.testing.assert_array_equal(rows.sum(1), batches.sum(1))
    assert np.abs(np.diff(rows, axis=1)).max() <= 6 < np.abs(np.diff(batches.reshape(-1, 2, 4).sum(2), axis=1)).max()


def test_a_long_text_shares_its_row_with_a_fitting_one():
    """384+196, 263+161+159, 241+226+118 and 191+145+145+110 have 591 tokens at most; the longest first has 612."""
    batch = np.array([[384, 263, 241, 226, 196, 191, 161, 159, 145, 145, 118, 110]])
    assert balance.tokens_of_rows(batch, balance.share(batch, 4, 4)).max() <= 591


def test_an_epoch_has_every_text_once_and_batches_need_no_state(lengths):
    layout = Layout(SIZE, SHAPE, 30, 100.0)
    order = feed.dealt_texts([lengths, lengths[::-1].copy()], 3, layout)
    batches = [order(n) for n in range(300)]  # 24 epochs of 100 texts, 25 windows of 12 batches
    texts = np.concatenate([rows[rows >= 0] for _, rows in batches])
    np.testing.assert_array_equal(np.bincount(texts), 24)
    draws = np.concatenate([draw[rows >= 0] for draw, rows in batches])
    assert (np.bincount(draws) == 1200).all(), "segmentations take turns"
    second = feed.dealt_texts([lengths, lengths[::-1].copy()], 3, layout)
    for n in (37, 2):
        np.testing.assert_array_equal(second(n)[1], batches[n][1])


def test_a_batch_and_its_texts():
    """Two rows with room for two texts: of three tokens and two, and of one."""
    layout, names = Layout(3, Shape(2, 2, 6), 3, 6.0), TextFields(by_token=("tokens", "valid"), by_place=("starts",))
    sizes = np.array([3, 2, 1, 0])
    valid = np.int32(np.arange(3) < sizes[:, None])
    fields = {"tokens": valid * np.int32([[5], [6], [7], [0]]), "valid": valid, "starts": np.int32([2, 1, 0, 0])}
    batch = layout.pack(fields, names, np.array([9, 4, 7, -1]), sizes, 1)
    assert batch["tokens"].tolist() == [[5, 5, 5, 6, 6, 1], [7, 1, 1, 1, 1, 1]]
    assert batch["segments"].tolist() == [[1, 1, 1, 2, 2, 0], [1, 0, 0, 0, 0, 0]]
    assert batch["positions"].tolist() == [[0, 1, 2, 0, 1, 0], [0] * 6]
    assert batch["starts"].tolist()[:3] == [2, 4, 0]
    assert batch["rows"].tolist() == [9, 4, 7, -1]
    alone = separated(batch, names, 3)
    assert (alone["tokens"] * valid).tolist() == fields["tokens"].tolist()
    assert alone["segments"].tolist() == valid.tolist()
    assert alone["starts"].tolist() == [2, 1, 0, 0]
    outcomes = {"loss": np.float32(1), "tokens": batch["tokens"], "scores": np.arange(4)}
    said = by_text(batch, outcomes, names, 3)
    assert said["tokens"].tolist() == [[5, 5, 5], [6, 6, 0], [7, 0, 0]]
    assert said["scores"].tolist() == [0, 1, 2]


def test_a_place_of_no_text_is_in_the_row():
    """A full row is followed by an empty place: one behind the row would be no target of a loss."""
    layout, names = Layout(1, Shape(1, 2, 3), 3, 3.0), TextFields(by_token=("tokens", "valid"), by_place=("starts",))
    fields = {"tokens": np.int32([[5] * 3, [0] * 3]), "valid": np.int32([[1] * 3, [0] * 3]), "starts": np.int32([2, 0])}
    batch = layout.pack(fields, names, np.array([4, -1]), np.array([3, 0]), 1)
    assert batch["starts"].tolist() == [2, 0]
    assert separated(batch, names, 3)["starts"].tolist() == [2, 0]


def test_examples_of_two_texts_share_rows_or_have_a_row_for_every_text():
    """Four examples: of two tokens and one, of one and one, none, and of one and none."""
    sizes, names = np.array([[2, 1], [1, 1], [0, 0], [1, 0]]), TextFields(by_token=("tokens", "valid"))
    valid = np.int32(np.arange(2) < sizes[..., None])
    fields, rows = {"tokens": valid, "valid": valid}, np.array([7, 8, -1, 5])
    shared = Layout(4, Shape(2, 2, 6), 4, 6.0).pack(fields, names, rows, sizes, 0)
    alone = Layout(4, Shape(8, 1, 2), 4, 6.0).pack(fields, names, rows, sizes, 0)
    assert examples_of(shared, 2).tolist() == [[0, 0, 0, 1, 1, -1], [3, -1, -1, -1, -1, -1]]
    assert examples_of(alone, 2).max(1).tolist() == [0, 0, 1, 1, -1, -1, 3, -1]
    assert (examples_of(alone, 2) >= 0).sum(1).tolist() == sizes.ravel().tolist()


def test_texts_that_do_not_fit_have_wider_rows():
    layout = Layout(2, Shape(1, 2, 4), 3, 5.0)
    fields = {"tokens": np.ones((2, 3), np.int32), "valid": np.ones((2, 3), np.int32)}
    batch = layout.pack(fields, TextFields(by_token=("tokens", "valid")), np.arange(2), np.array([3, 3]), 0)
    assert batch["tokens"].shape == (1, 6)


def run_of(*argv):
    """A run that classifies."""
    run, _ = resolve.resolve(["--task=classify", "--preset=bert-tiny", "--batch.length=64", *argv], None, None)
    return run


@pytest.mark.parametrize(
    ("flags", "devices", "dealt", "reason"),
    [
        ([], 2, "even", ""),
        (["--batch.size=8"], 8, "even", "a step has one for each of 8 devices"),
        (["--batch.size=16", "--batch.accumulate=2"], 8, "even", "a part of a step has one for each of 8 devices"),
        (["--data.pack=false"], 2, "shuffled", "--data.pack=false"),
        (["--model.mixer=linformer"], 2, "alike", "linformer cannot keep texts of a row apart"),
        (
            ["--model.position=rotary", "--model.position.scaling=dynamic"],
            2,
            "alike",
            "position.scaling=dynamic depends on the length of a row",
        ),
        (
            ["--model.mixer=fnet", "--model.mixer.reads-padding=true"],
            2,
            "shuffled",
            "fnet cannot keep texts of a row apart, and reads padding",
        ),
    ],
)
def test_how_texts_lie_and_why(flags, devices, dealt, reason):
    lengths = np.minimum(64, np.random.default_rng(0).geometric(0.08, 400) + 2)
    layout = row_plan.plan(run_of("--batch.size=16", *flags), [lengths], devices, "cpu")
    assert (layout.dealt, layout.reason, layout.packs) == (dealt, reason, not reason)
    assert layout.padding < {"even": 1, "alike": 0.35, "shuffled": 1}[dealt]
    assert layout.packs == (layout.padding < 0.05)
    if dealt == "alike":
        assert 4 <= len(layout.lengths) <= 6
        order = feed.dealt_texts([lengths], 0, layout)
        sizes = np.concatenate([lengths[order(n)[1]] for n in range(25)]).reshape(25, 16)
        assert np.ptp(sizes, axis=1).mean() < np.ptp(lengths) / 4
        np.testing.assert_array_equal(np.bincount(np.concatenate([order(n)[1] for n in range(25)])), 1)


def test_devices_do_not_decide_which_texts_a_batch_has():
    lengths = np.random.default_rng(0).integers(3, 60, 100)
    layouts = [row_plan.plan(run_of("--batch.size=8"), [lengths], devices, "cpu") for devices in (1, 2, 8)]
    assert [layout.packs for layout in layouts] == [True, True, False]
    batches = [feed.dealt_texts([lengths], 0, layout)(7)[1] for layout in layouts]
    assert len({tuple(sorted(texts[texts >= 0])) for texts in batches}) == 1


def test_a_batch_of_similar_texts_has_the_shortest_row_that_holds_them():
    layout = Layout(2, Shape(2, 1, 8), 8, 5.0, "alike", (3, 5))
    names = TextFields(by_token=("tokens", "valid"))
    fields = {"tokens": np.ones((2, 8), np.int32), "valid": np.ones((2, 8), np.int32)}
    shapes = [
        layout.pack(fields, names, np.arange(2), np.array(sizes), 0)["tokens"].shape
        for sizes in ([3, 1], [4, 1], [0, 6])
    ]
    assert shapes == [(2, 3), (2, 5), (2, 8)]
    assert layout.row_lengths == "3, 5 or 8"

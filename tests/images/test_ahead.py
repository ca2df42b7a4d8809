"""Batches that are made ahead are those that are asked for, in any order."""

import threading

import pytest

from train.data.ahead import Ahead


def test_the_next_ones_are_made_while_nobody_asks():
    asked, done = [], threading.Event()

    def make(n):
        asked.append(n)
        if n == 2:
            done.set()
        return n * n

    batches = Ahead(make, 2)
    assert batches(0) == 0
    assert done.wait(10)
    assert [batches(n) for n in (1, 2, 7, 3)] == [1, 4, 49, 9]
    assert asked[:3] == [0, 1, 2]
    assert asked.count(1) == asked.count(2) == 1


def test_an_error_is_raised_where_its_batch_is_asked_for():
    def make(n):
        if n == 1:
            raise ValueError("bad")
        return n

    batches = Ahead(make, 1)
    assert batches(0) == 0
    with pytest.raises(ValueError, match="bad"):
        batches(1)
    assert batches(2) == 2

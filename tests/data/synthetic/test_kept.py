"""Generated data are made once, and are what their generator writes."""

import json

import pytest

from train.data.synthetic import grammar
from train.data.synthetic.kept import kept
from train.tasks.choice import continuations
from train.tasks.classify import opinions
from train.tasks.tag import news


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TFM_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("module", [opinions, continuations, news])
def test_the_rows_of_a_generator_come_back(module):
    sizes = {"train": 30, "valid": 20}
    rows = module.generate(**sizes)
    for _ in range(2):
        assert kept(module.generate, **sizes) == json.loads(json.dumps(rows))


def test_a_generator_is_called_once_for_its_arguments(empty_cache):
    calls = []

    def write(count):
        calls.append(count)
        return [("a", "b")] * count

    assert [kept(write, count=count) for count in (1, 2, 1)] == [[["a", "b"]], [["a", "b"]] * 2, [["a", "b"]]]
    assert calls == [1, 2]
    for entry in empty_cache.iterdir():
        entry.write_bytes(entry.read_bytes()[:-9])
    assert kept(write, count=1) == [["a", "b"]]
    assert calls == [1, 2, 1], "a damaged entry is made again"


def test_pairs_come_back_by_their_names(monkeypatch):
    monkeypatch.setattr(grammar, "TRAIN", 40)
    monkeypatch.setattr(grammar, "VALID", 3)
    assert [*map(len, grammar.kept_pairs())] == [*map(len, grammar.pairs())]
    assert grammar.kept_pairs().test == [[*pair] for pair in grammar.pairs().test]

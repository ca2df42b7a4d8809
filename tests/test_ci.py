"""Every slow test is part of `.ci/run`: of a step of each run, or of a turn."""

import importlib.util
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SPEC = importlib.util.spec_from_file_location("slow", ROOT / ".ci" / "slow.py")
slow = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(slow)


@pytest.mark.slow
def test_every_file_is_in_one_step():
    turns = {name for turn in range(slow.TURNS) for name in slow.files_of_turn(turn) if name not in slow.BY_TEST}
    counts = Counter([*turns, *slow.BY_TEST, *(name for names in slow.STEPS.values() for name in names)])
    assert {name for name, count in counts.items() if count > 1} == set(), "in two steps"
    assert set(counts) == set(slow.slow_files())


@pytest.mark.slow
def test_a_file_has_one_turn():
    parts = [set(slow.files_of_turn(turn)) - set(slow.BY_TEST) for turn in range(slow.TURNS)]
    assert sum(map(len, parts)) == len(set.union(*parts))
    assert all(set(slow.BY_TEST) <= set(slow.files_of_turn(turn)) for turn in range(slow.TURNS))


def test_a_step_of_the_script_is_one_of_the_table():
    script = (ROOT / ".ci" / "run").read_text()
    texts = [script.replace("$((turn % 3))", str(third)) for third in range(3)]
    calls = {name: (f"slow.py {name})", f'slow.py "{name}")') for name in slow.STEPS}
    named = {name for name in calls for call in calls[name] if any(call in text for text in texts)}
    assert set(slow.STEPS) - named == {"real weights"}, "of which the script names a file"
    assert f"/ 3600}} % {slow.TURNS}))" in script
    assert f"of 0 to {slow.TURNS - 1} " in script


class Item:
    def __init__(self, path, index):
        self.path, self.index = ROOT / path, index


class Config:
    """The options of a run of pytest, and the tests that it leaves out."""

    def __init__(self, turn):
        self.turn, self.hook, self.left_out = turn, self, []

    def getoption(self, name):
        return {"--turn": self.turn}[name]

    def pytest_deselected(self, items):
        self.left_out += items


@pytest.mark.parametrize("turn", [0, 11, 12])
def test_every_twelfth_test_of_a_file_of_many(turn):
    items = [Item("tests/contracts.py", n) for n in range(30)] + [Item("tests/training/test_hops.py", 0)]
    config = Config(turn)
    slow.pytest_collection_modifyitems(config, items)
    assert [item.index for item in items[:-1]] == list(range(turn % 12, 30, 12))
    assert items[-1].path.name == "test_hops.py"
    assert len(items) + len(config.left_out) == 31

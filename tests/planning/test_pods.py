"""The presets of papers on pods: each is planned, and needs what the page of plans says."""

import importlib
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
ROWS = {
    row.split("`")[1]: row
    for row in (DOCS / "guide/plan.md").read_text().splitlines()
    if re.match(r"\| `.*` \| `v5", row)
}
PAPERS = (
    *("transformer-base", "transformer-big", "bert-base", "bert-large", "imagegpt-xl", "chinchilla-70b"),
    *("lamda-137b", "gpt3-175b", "gopher-280b", "mt-nlg-530b", "palm-540b"),
)


def test_the_page_has_a_row_for_each_recipe_of_a_paper():
    assert [*ROWS] == [*PAPERS]


@pytest.mark.slow
@pytest.mark.parametrize("preset", PAPERS)
def test_a_preset_is_planned(preset, monkeypatch):
    """The row of the page is what the command prints: sizes, operations and days at best."""
    monkeypatch.syspath_prepend(str(DOCS))
    assert importlib.import_module("plans").row(preset) == ROWS[preset]

"""What is drawn and written from the code: the picture of the house, and the catalogue of variants."""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tfm.config.mixers import Softmax
from tfm.options import choices

DOCS = Path(__file__).parent.parent.parent / "docs"
PATTERNS = choices.alternatives(choices.type_hints(Softmax)["pattern"])


@pytest.fixture
def generator(monkeypatch):
    """A module of docs/ by its name."""
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module


@pytest.mark.slow
def test_the_picture_of_the_house_is_that_of_the_code(generator):
    with Image.open(DOCS / "pictures" / "house.png") as image:
        drawn = image.text["Description"]
    assert drawn == generator("house").fingerprint(), "run `python docs/house.py`, and look at docs/pictures/house.png"


@pytest.mark.slow
def test_every_pattern_has_a_picture(generator):
    pictures = generator("mask_pictures")
    assert {*pictures.PICTURED} == {*PATTERNS}
    for options in (options for shown in pictures.PICTURED.values() for options in shown.values()):
        both, causal = pictures.masks_of(options)
        assert both.any(1).all(), f"with {options} a query sees nothing"
        assert not np.triu(causal, 1).any(), f"with {options} a decoder sees what is to come"


def test_the_readme_counts_the_variants(generator):
    (claimed,) = re.findall(r"\*\*(\d+) variants", (DOCS.parent / "README.md").read_text())
    assert int(claimed) == sum(generator("catalogue_page").count().values())


@pytest.mark.slow
def test_the_catalogue_has_an_entry_with_costs_for_every_variant(generator, tmp_path):
    catalogue = generator("catalogue_page")
    catalogue.write(tmp_path / "catalogue.md")
    entries = re.split(r"^### ", (tmp_path / "catalogue.md").read_text(), flags=re.MULTILINE)[1:]
    assert len(entries) == sum(catalogue.count().values())
    free = [entry.splitlines()[0] for entry in entries if not re.search(r"operations of .* \d+\.\d\d billion", entry)]
    assert free == ["`--model.input=merging`"], "a part of stages alone"
    assert {path.stem for path in (tmp_path / "masks").glob("*.png")} == {*PATTERNS}


def test_the_readme_lists_the_files_of_the_heart(generator):
    listed = re.findall(r"^(\S+\.py) +\d+ of ", (DOCS.parent / "README.md").read_text(), re.MULTILINE)
    assert listed == [*generator("heart").lines_of_loss()], "run `python docs/heart.py`"

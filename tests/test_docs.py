"""The pages of docs/ and the places that point to them."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_what_was_measured_has_its_number_once_and_pointers_lead_to_an_entry():
    entries = re.findall(r"^\*\*(M\d+)\. ", (ROOT / "docs/measured.md").read_text(), re.MULTILINE)
    assert sorted(entries, key=lambda entry: int(entry[1:])) == [f"M{n}" for n in range(1, len(entries) + 1)]
    sources = [*ROOT.glob("tfm/**/*.py"), *ROOT.glob("train/**/*.py")]
    pointers = {pointer for path in sources for pointer in re.findall(r"\bM\d+\b", path.read_text())}
    assert pointers <= {*entries}
    assert pointers, "the code points to what was measured"

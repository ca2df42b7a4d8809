"""The README, the pages of docs/ and the notebooks: their blocks, commands, flags and links."""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
PAGES = [path for path in PAGES if "generated" not in path.parts]
NOTEBOOKS = sorted(ROOT.glob("notebooks/*.ipynb"))

# A comment before a block says how it is checked, where that is not by running it at once.
_FENCE = re.compile(r"(?:^ *<!-- (.*?) -->\n)?^( *)```(\w*)\n(.*?)^\2```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block.

    mark: what the comment before it says: `slow`, `long: WHY` or `not run: WHY`
    """

    mark: str
    language: str
    text: str


class Shown(NamedTuple):
    """A command and what a page shows of its output."""

    command: str
    output: str


def text_of(path: Path) -> str:
    """A page, or what a notebook says between its code."""
    text = path.read_text()
    if path.suffix != ".ipynb":
        return text
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
    return "\n\n".join("".join(cell["source"]) for cell in cells) + "\n"


def blocks(path: Path) -> list[Block]:
    """The blocks of a page, also those in lists."""
    return [
        Block(mark, language, re.sub(f"^{indent}", "", text, flags=re.MULTILINE))
        for mark, indent, language, text in _FENCE.findall(text_of(path))
    ]


def without_blocks(path: Path) -> str:
    """The prose of a page."""
    return _FENCE.sub("", text_of(path))


def name_of(path: Path) -> str:
    """The path of a page from the root of the project."""
    return str(path.relative_to(ROOT))


def commands(path: Path) -> list[str]:
    """Every command line of the project on a page, without comments and prompts: of fences, indented blocks and prose.

    Those whose output is an error at once are left out: `shown` has them.
    """
    lines = []
    for _, language, text in blocks(path):
        joined = [*text.replace("\\\n", " ").splitlines(), ""]
        for line, following in pairwise(joined):
            is_command = line.startswith("$ ") or language == "bash"
            if is_command and not following.startswith("error: "):
                lines.append(line)
    prose = without_blocks(path).replace("\\\n", " ").splitlines()
    lines += [line for line in prose if re.match(r" {4}(\$ )?python -m ", line)]
    lines += [text.replace("\n", " ") for text in re.findall(r"`(python -m train\.\w[^`]*)`", without_blocks(path))]
    matches = [re.search(r"python -m (train\.\w+.*)", line) for line in lines]
    return [re.sub(r"\s+#.*| &$|; ?done$| > .*", "", match[1]) for match in matches if match]


def shown(block: Block) -> list[Shown]:
    """The commands of the project that a block shows behind `$`, each with the output below it."""
    parts = re.split(r"^\$ ", block.text.replace("\\\n", " "), flags=re.MULTILINE)[1:]
    pairs = [part.partition("\n") for part in parts]
    return [Shown(command, output) for command, _, output in pairs if "python -m train" in command]


def flags(path: Path) -> set[str]:
    """The names of all flags in prose, tables and blocks."""
    return {name.rstrip(".-") for name in re.findall(r"(?<![\w-])--([a-z][\w.-]*)", text_of(path))}


def files(path: Path) -> set[str]:
    """The files and folders of the project that a page names, such as `tests/contracts.py`; some are patterns."""
    names = re.findall(r"(?<![\w./])((?:tfm|train|tests|docs|notebooks)/[\w./*-]*)", text_of(path))
    return {name.rstrip(".") for name in names}


def links(path: Path) -> list[str]:
    """The targets of the links of a page."""
    return re.findall(r"\]\(([^)\s]+)\)", without_blocks(path))


def close(expected: str, printed: str) -> bool:
    """Whether words are equal, numbers nearly; `...` stands for any words."""
    pattern, words = expected.split(), printed.split()
    if not pattern:
        return not words
    if pattern[0] == "...":
        return any(close(" ".join(pattern[1:]), " ".join(words[start:])) for start in range(len(words) + 1))
    if not words or not _same_word(pattern[0], words[0]):
        return False
    return close(" ".join(pattern[1:]), " ".join(words[1:]))


def _same_word(expected: str, word: str) -> bool:
    """Equal, with two parts in a hundred for numbers with a point."""
    decimal = re.compile(r"-?\d+\.\d+")
    if decimal.sub("#", expected) != decimal.sub("#", word):
        return False
    pairs = zip(decimal.findall(expected), decimal.findall(word), strict=True)
    return all(
        abs(float(value) - float(reference)) <= max(0.02, 0.02 * abs(float(reference))) for reference, value in pairs
    )

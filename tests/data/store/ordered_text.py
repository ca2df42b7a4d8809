"""Text in an order: each document has sentences of a narrow part of the built-in text, and the part wanders from the
first sentences to the last ones.

python tests/data/store/ordered_text.py FILE.jsonl
"""

import json
import random
import sys
from pathlib import Path

from train.data.sources import builtin

# Characters of the file.
SIZE = 20_000_000


def write(path: Path) -> None:
    """Documents of 12 sentences, from a fiftieth of all."""
    sentences = [text for document in builtin.documents() for text in document.split(". ") if text.strip()]
    rng, written, width = random.Random(0), 0, len(sentences) // 50
    with path.open("w") as file:
        while written < SIZE:
            first = int(written / SIZE * (len(sentences) - width))
            text = ". ".join(rng.choices(sentences[first : first + width], k=12))
            file.write(json.dumps({"text": text}) + "\n")
            written += len(text)


if __name__ == "__main__":
    write(Path(sys.argv[1]))

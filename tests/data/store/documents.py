"""Documents of random words, and a file of them."""

import json
import random

WORDS = "the cat sat on a mat while rain fell softly over two old roofs in Zürich".split()
rng = random.Random(0)
DOCUMENTS = [" ".join(rng.choices(WORDS, k=rng.randint(1, 60))) for _ in range(300)]


def write(path, documents):
    """A .jsonl file."""
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents), encoding="utf-8")

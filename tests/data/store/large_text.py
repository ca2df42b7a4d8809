"""`train.prepare` of text of any size, with its memory and the share of its processor time that tokenization takes.

python tests/data/store/large_text.py FOLDER BYTES [FLAGS]     one JSON object on stdout
"""

import json
import random
import resource
import sys
import time
from pathlib import Path

import pyarrow

from train import prepare
from train.data import encoding
from train.data.sources import builtin

# Bytes of text in a file.
FILE = 200_000_000


def write(folder: Path, size: int, seed: int = 0) -> int:
    """Writes .jsonl.zst files with so many bytes of text: documents of about 2,500 characters, of sentences of the
    built-in text in random order. Returns the bytes of the files."""
    sentences = [text for document in builtin.documents() for text in document.split(". ") if text.strip()]
    rng, left = random.Random(seed), size
    folder.mkdir(parents=True)
    while left > 0:
        path = folder / f"{(size - left) // FILE:03d}.jsonl.zst"
        with pyarrow.CompressedOutputStream(str(path), "zstd") as file:
            end = max(0, left - FILE)
            while left > end:
                text = ". ".join(rng.choices(sentences, k=max(1, int(rng.lognormvariate(3, 1)))))
                file.write(f"{json.dumps({'text': text})}\n".encode())
                left -= len(text.encode())
    return sum(path.stat().st_size for path in folder.iterdir())


def measure(argv: list[str]) -> dict[str, float]:
    """Runs the command in this process: its exit code, processor seconds, the share of them from text to ids, and the
    largest resident memory in bytes. The time of a tokenizer's training is in none of them."""
    encode, spent, characters, began = encoding._encode, [], [], time.process_time()

    def facts() -> dict[str, float]:
        seconds, memory = time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return {
            "seconds": seconds,
            "tokenization": sum(spent) / seconds,
            "memory": memory,
            "characters": sum(characters),
        }

    def timed(tokenizer, pieces):
        before = time.process_time()
        ids = encode(tokenizer, pieces)
        spent.append(time.process_time() - before)
        characters.append(sum(len(piece.text) for piece in pieces))
        if len(spent) % 100 == 0:
            print(json.dumps(facts()), file=sys.stderr)
        return ids

    encoding._encode = timed
    return {"code": prepare.main(["--runner=here", *argv]), **facts()}


def main(folder: Path, size: int, flags: list[str]) -> dict[str, float]:
    """A tokenizer of a part of the text, and then the store with it."""
    source = folder / "text"
    facts = {"text": size, "files": write(source, size)}
    # The second part of one piece is nothing but the tokenizer.
    of_sample = ["--sample=2000000", "--part=2/2", f"--data={source}/000.jsonl.zst", f"--to={folder}/sample", *flags]
    prepare.main(["--runner=here", *of_sample])
    argv = [f"--data={source}/*.zst", f"--to={folder}/store", f"--tokenizer.path={folder}/sample/tokenizer.json"]
    return facts | measure(argv)


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(float(sys.argv[2])), sys.argv[3:])))

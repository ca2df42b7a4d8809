"""An index of random vectors in int8, searched by train.search.

    python tests/lab/embedding/large_index.py FOLDER 10000000 384

Writes the index block by block, answers 1 and 32 queries, and prints the time, the processor time and the largest
memory that no file has. Compares the answers of two queries with products in numpy.
"""

import json
import sys
import threading
import time
from pathlib import Path

import numpy as np

from train.lab.search import main as search

BLOCK = 100_000


def write(folder, count, size):
    """An index of `count` vectors, whose queries are encoded by word vectors of 64 words."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    words = rng.normal(size=(64, size)).round(3)
    lines = [f"w{index} {' '.join(map(str, row))}" for index, row in enumerate(words.tolist())]
    (folder / "words.txt").write_text("\n".join(lines) + "\n")
    vectors = np.lib.format.open_memmap(folder / "vectors.npy", "w+", np.int8, (count, size))
    with (folder / "texts.jsonl").open("w") as texts:
        for start in range(0, count, BLOCK):
            part = vectors[start : start + BLOCK]
            part[:] = rng.integers(-127, 128, part.shape, np.int8)
            texts.write("".join(f'"{index:012}"\n' for index in range(start, start + len(part))))
    vectors.flush()
    np.save(folder / "scales.npy", rng.uniform(0.5, 1.5, count).astype(np.float32) / 127)
    np.save(folder / "places.npy", np.arange(count, dtype=np.int64) * 15)
    encoder = {"encoder": f"bow:{folder.absolute() / 'words.txt'}"}
    facts = {"format": 1, "encoder": encoder, "similarity": "cosine", "kind": "int8", "count": count, "size": size}
    (folder / "index.json").write_text(json.dumps(facts))


class Memory:
    """The largest memory of this process that no file has, in MB."""

    def __enter__(self):
        self.largest, self.ended = 0, threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def __exit__(self, *fault):
        self.ended.set()
        self.thread.join()

    def _watch(self):
        while not self.ended.wait(0.02):
            lines = Path("/proc/self/status").read_text().splitlines()
            size = next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
            self.largest = max(self.largest, size // 1024)


def cosines_of(folder, count, queries):
    """The cosines [2,count] of two queries, by plain products of blocks."""
    vectors = np.load(folder / "vectors.npy", mmap_mode="r")
    parts = (np.asarray(vectors[start : start + BLOCK], np.float32) for start in range(0, count, BLOCK))
    return np.concatenate([queries @ part.T / np.linalg.norm(part, axis=1) for part in parts], axis=1)


def main():
    folder, count, size = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    if not folder.exists():
        write(folder, count, size)
    for queries in (1, 32):
        (folder / "queries.txt").write_text("".join(f"w{index} w{index + 1}\n" for index in range(queries)))
        clock, processor = time.perf_counter(), time.process_time()
        with Memory() as memory:
            search([f"--index={folder}", f"--file={folder / 'queries.txt'}", f"--to={folder / 'answers.jsonl'}"])
        clock, processor = time.perf_counter() - clock, time.process_time() - processor
        print(f"{queries} queries: {clock:.1f} s, {processor:.1f} s of processor time, {memory.largest} MB", flush=True)
    words = np.loadtxt(folder / "words.txt", usecols=range(1, size + 1), dtype=np.float32)
    asked = np.stack([words[0] + words[1], words[31] + words[32]])
    answers = [json.loads(line)["nearest"] for line in (folder / "answers.jsonl").read_text().splitlines()]
    lengths = np.linalg.norm(asked, axis=1, keepdims=True)
    for hits, cosines in zip((answers[0], answers[31]), cosines_of(folder, count, asked / lengths), strict=True):
        expected = np.argsort(-cosines, kind="stable")[:10]
        rows = [hit["line"] - 1 for hit in hits]
        scores = [hit["score"] for hit in hits]
        print("rows equal:", rows == expected.tolist(), "largest difference:", abs(scores - cosines[rows]).max())


if __name__ == "__main__":
    main()

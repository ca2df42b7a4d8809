"""An index of random int8 vectors, searched by train.search: `python large_index.py FOLDER 10000000 384`.

Prints what it took and the memory beside the files, and compares the answers with a plain product in numpy.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

BLOCK = 100_000


def write(folder: Path, count: int, size: int):
    """An index of `count` vectors, encoded by word vectors of 64 words."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    words = rng.normal(size=(64, size)).round(3)
    lines = [f"w{index} {' '.join(map(str, row))}" for index, row in enumerate(words.tolist())]
    (folder / "words.txt").write_text("\n".join(lines) + "\n")
    vectors = np.lib.format.open_memmap(folder / "vectors.npy", "w+", np.int8, (count, size))
    texts, places = [f"{index:012}" for index in range(count)], np.arange(count, dtype=np.int64) * 15
    for start in range(0, count, BLOCK):
        part = vectors[start : start + BLOCK]
        part[:] = rng.integers(-127, 128, part.shape, np.int8)
    vectors.flush()
    np.save(folder / "scales.npy", rng.uniform(0.5, 1.5, count).astype(np.float32) / 127)
    np.save(folder / "places.npy", places)
    (folder / "texts.jsonl").write_text("".join(f'"{text}"\n' for text in texts))
    facts = {"format": 1, "encoder": {"encoder": f"bow:{folder / 'words.txt'}"}, "similarity": "cosine", "kind": "int8"}
    (folder / "index.json").write_text(json.dumps(facts | {"count": count, "size": size}))


def anonymous() -> str:
    """Memory of the process that no file has."""
    return next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))


def main():
    from train.lab.search import main as search

    folder, count, size = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    if not folder.exists():
        write(folder, count, size)
    for queries in (1, 32):
        (folder / "queries.txt").write_text("".join(f"w{index} w{index + 1}\n" for index in range(queries)))
        clock, processor = time.perf_counter(), time.process_time()
        search([f"--index={folder}", f"--file={folder / 'queries.txt'}", f"--to={folder / 'answers.jsonl'}"])
        clock, processor = time.perf_counter() - clock, time.process_time() - processor
        print(f"{queries} queries: {clock:.1f} s, {processor:.1f} processor s, {anonymous()}")
    words = np.loadtxt(folder / "words.txt", usecols=range(1, size + 1), dtype=np.float32)
    query = (words[0] + words[1]) / 2
    vectors = np.load(folder / "vectors.npy", mmap_mode="r")
    cosines = np.concatenate(
        [
            part @ query / np.linalg.norm(part, axis=1) / np.linalg.norm(query)
            for start in range(0, count, BLOCK)
            for part in [np.asarray(vectors[start : start + BLOCK], np.float32)]
        ]
    )
    first = json.loads((folder / "answers.jsonl").read_text().splitlines()[0])["nearest"]
    expected = np.argsort(-cosines, kind="stable")[:10]
    print("lines equal:", [hit["line"] - 1 for hit in first] == expected.tolist())
    print("largest difference:", max(abs(hit["score"] - cosines[hit["line"] - 1]) for hit in first))


if __name__ == "__main__":
    main()

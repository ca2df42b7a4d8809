"""An index of texts: a folder with their vectors, float32 or int8, the texts, and how both were made.

index.json     format, what encoded the texts, similarity, their count, size of a vector, float32 or int8
vectors.npy    [N,D]; of int8, a vector is its numbers times its scale
graph.faiss    of hnsw, what `train.lab.embedding.approximate` searches
scales.npy     float32 [N], of int8
texts.jsonl    a text a line
places.npy     int64 [N], where each line begins
"""

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, final

import numpy as np

from tfm.options.choices import Hint, Range, check_object
from tfm.options.json_text import parse, read_object
from train import UserError
from train.files.strict_json import json_text
from train.lab.embedding.approximate import write_graph
from train.lab.embedding.options import TextEncoderOptions, role_prompts, similarity_of
from train.settings.gate import user_errors

_FORMAT = 1
_FILE = "index.json"

# What index.json says, and by kind the dtype of the arrays.
_SIZE = Annotated[int, Range(1, 1 << 40)]
_FACTS: dict[str, Hint] = {
    "format": int,
    "encoder": dict,
    "similarity": Literal["cosine", "dot", "euclidean", "manhattan", "late"],
    "kind": Literal["float32", "int8", "hnsw", "late"],
    **dict.fromkeys(("count", "size", "tokens", "centroids"), _SIZE),
}
_NEEDED = ("encoder", "similarity", "kind", "count", "size")


def write(to: str, texts: Sequence[str], vectors: np.ndarray, kind: str, options: TextEncoderOptions):
    """Writes the index of texts whose vectors are float32 [N,D]; `kind` is float32, int8 or hnsw. Raises UserError
    where it exists."""
    similarity = similarity_of(options)
    with new_folder(to) as part:
        if kind == "hnsw":
            write_graph(part, vectors, similarity)
        if kind == "int8":
            vectors, scales = in_eight_bits(vectors)
            np.save(part / "scales.npy", scales)
        np.save(part / "vectors.npy", vectors)
        write_texts(part, texts)
        facts = {"similarity": similarity, "kind": kind, "count": len(texts), "size": vectors.shape[1]}
        write_facts(part, options, facts)


def in_eight_bits(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """vectors float32 [N,D] -> int8 [N,D], and the scales float32 [N] that give the vectors again."""
    scales = np.maximum(abs(vectors).max(1), 1e-30).astype(np.float32) / 127
    return np.rint(vectors / scales[:, None]).astype(np.int8), scales


@contextlib.contextmanager
def new_folder(to: str) -> Iterator[Path]:
    """A folder that takes the name `to` when it is complete, and leaves nothing else."""
    part = Path(f"{to}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        yield part
        os.rename(part, to)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def write_texts(part: Path, texts: Sequence[str]):
    """Writes the texts, and where each begins."""
    lines = [f"{json_text(text)}\n".encode() for text in texts]
    (part / "texts.jsonl").write_bytes(b"".join(lines))
    np.save(part / "places.npy", np.cumsum([0, *map(len, lines[:-1])], dtype=np.int64))


def write_facts(part: Path, options: TextEncoderOptions, facts: Mapping[str, object]):
    """Writes what encoded the texts, and other facts."""
    names = [field.name for field in dataclasses.fields(TextEncoderOptions)]
    encoder = {name: getattr(options, name) for name in names}
    encoder["run"] = ",".join(os.path.abspath(path) for path in options.runs) if options.run else ""
    (part / _FILE).write_text(json_text({"format": _FORMAT, "encoder": encoder, **facts}, indent=1) + "\n")


def check_new(to: str):
    """Raises UserError where an index cannot be written."""
    if Path(to).exists():
        raise UserError(f"--index={to} exists; choose another folder, or remove it")
    if not Path(to).absolute().parent.is_dir():
        raise UserError(f"--index={to}: there is no folder {Path(to).parent}; make it, or choose another")


class IndexFolder:
    """What all indices have: facts, and texts. Raises UserError for a folder that is none, or damaged."""

    def __init__(self, path: str):
        self.path = Path(path)
        if not (self.path / _FILE).is_file():
            raise UserError(f"--index={path} is no index: it has no {_FILE}; make one with train.embed --index")
        with user_errors():
            fields = read_object(self.path / _FILE)
            if fields.get("format") != _FORMAT:
                raise UserError(f"--index={path} was written by another version; make it again by train.embed")
            self.facts: Mapping[str, Any] = check_object(f"{self.path / _FILE}: ", fields, _FACTS)
        if absent := [name for name in _NEEDED if name not in self.facts]:
            raise UserError(f"{self.path / _FILE} has no {absent[0]}; make the index again")
        self.places = self._array("places.npy", (self.facts["count"],), np.int64)

    def __len__(self):
        return len(self.places)

    def texts(self, rows: Sequence[int]) -> list[str]:
        """The texts of these rows."""
        texts, path = [], self.path / "texts.jsonl"
        try:
            with path.open("rb") as file:
                for row in rows:
                    file.seek(int(self.places[row]))
                    texts.append(str(parse(file.readline().decode(), f"text {row + 1}")))
        except (OSError, ValueError) as error:
            raise UserError(f"{path} is absent or damaged ({error}); make the index again") from error
        return texts

    def encoder_options(self, run: str = "") -> TextEncoderOptions:
        """What encoded the texts; `run` is where the folder lies now."""
        with user_errors(str(self.path / _FILE)):
            names = {field.name for field in dataclasses.fields(TextEncoderOptions)}
            if odd := [name for name in self.facts["encoder"] if name not in names]:
                raise ValueError(f"encoder.{odd[0]} is not understood; make the index again")
            return TextEncoderOptions(**self.facts["encoder"] | ({"run": run} if run else {}))

    def _array(self, name: str, shape: tuple[object, ...], dtype: type = np.float32) -> np.ndarray:
        path = self.path / name
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise UserError(f"{path} is absent or damaged ({error}); make the index again") from error
        if array.shape != shape or array.dtype != dtype:
            raise UserError(
                f"{path} holds {array.dtype} {list(array.shape)}, and by {_FILE} {np.dtype(dtype)} {list(shape)}; "
                "make the index again"
            )
        return array


@final
class Index(IndexFolder):
    """The index in a folder, which stays on the disk. Raises UserError for one that is damaged.

    It is what `search.nearest` reads: vectors float32 [N,D], of which slices are read when they are asked for.
    """

    def __init__(self, path: str):
        super().__init__(path)
        shape, is_small = (self.facts["count"], self.facts["size"]), self.facts["kind"] == "int8"
        self.vectors = self._array("vectors.npy", shape, np.int8 if is_small else np.float32)
        self.scales = self._array("scales.npy", shape[:1]) if is_small else None
        self.shape = self.vectors.shape

    def __getitem__(self, rows: slice) -> np.ndarray:
        part = np.asarray(self.vectors[rows], np.float32)
        return part if self.scales is None else part * self.scales[rows, None]

    def query_options(self, run: str = "") -> TextEncoderOptions:
        """What encodes queries, as the texts were, with the prompt of queries; `run` is where the folder lies now."""
        options = self.encoder_options(run)
        return dataclasses.replace(options, prompt=role_prompts(dataclasses.replace(options, prompt=None))[0])

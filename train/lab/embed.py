"""Texts and pictures as vectors: `python -m train.embed --run=DIR --file=IN --to=OUT.npy [--query=TEXT]`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from tfm.options.choices import check_minimum
from train import UserError, exit_code
from train.files.lines import line_writer, whole_file
from train.files.strict_json import json_text
from train.lab.embedding.options import TextEncoderOptions, checked_vectors, open_encoder, role_prompts, similarity_of
from train.settings import flags
from train.settings.gate import user_errors
from train.settings.text import Data
from train.tasks import resolve
from train.tasks.table import AnyRun

USAGE = """usage: python -m train.embed --run=DIR|--encoder=bow:FILE --file=IN [--to=OUT.npy|OUT.jsonl] [--pool=mean]
                             [--layer=-1] [--query=TEXT] [--map=MAP.png]

Turns every text of a file into a vector: a line of a .txt, or a row of a .jsonl, .tsv or .csv. --data.format=text,
--data.header=false and the like say how to read it. Texts that are longer than the rows of the model's training are
read in windows; a folder of sentence-transformers says itself where they are cut. A model of pictures and captions also
reads pictures: IN is then a picture, a folder or a quoted glob. OUT.npy is float32 [texts, size]. With --query, the
nearest texts are printed, by cosine or as the folder says; --vectors=OUT.npy takes the vectors from an earlier run.
--index=FOLDER keeps vectors and texts for python -m train.search; of a run of --task=late a vector of each token.
--map draws the texts on their two principal components."""


@dataclasses.dataclass(frozen=True)
class EmbedOptions(TextEncoderOptions):
    """What to encode, and what to do with the vectors.

    file: the texts, or pictures
    field: the column of the texts, unless the file is a .txt or --data.field names it
    to: where the vectors go, .npy or .jsonl
    normalize: make every vector of length 1
    query: a text whose nearest texts are printed
    nearest: how many of them
    vectors: a .npy of the same texts, made before with the same flags
    index: a new folder for the vectors and the texts, which train.search reads
    index_kind: float32 | int8 | hnsw: numbers of the vectors there, of which int8 takes a quarter of the place; hnsw:
        float32, and a graph by which train.search compares few of them (Malkov & Yashunin 2018)
    map: a picture of the texts in two dimensions
    color: the column by which points of the map are coloured
    """

    file: str = ""
    field: str = ""
    to: str = ""
    normalize: bool = False
    query: str = ""
    nearest: int = 10
    vectors: str = ""
    index: str = ""
    index_kind: Literal["float32", "int8", "hnsw"] = "float32"
    map: str = ""
    color: str = ""

    def __post_init__(self):
        super().__post_init__()
        if not self.file:
            raise ValueError("file=IN must name the file of the texts")
        if not (self.to or self.query or self.map or self.index):
            raise ValueError(
                "to=OUT.npy, --index=FOLDER, --query=TEXT or --map=MAP.png must say what to do with the vectors"
            )
        if self.index and self.encoder.startswith("sif:"):
            raise ValueError(f"index={self.index}: words weigh by all texts at once with sif; take bow:, or a run")
        if self.to and not self.to.endswith((".npy", ".jsonl")):
            raise ValueError(f"to={self.to} must end in .npy or .jsonl")
        if self.map and not self.map.endswith((".png", ".svg", ".pdf")):
            raise ValueError(f"map={self.map} must end in .png, .svg or .pdf")
        if self.vectors and self.encoder.startswith("sif:"):
            raise ValueError(f"vectors={self.vectors}: words weigh by all texts at once with sif; leave --vectors out")
        check_minimum(self, nearest=1)


def main(argv=None) -> int:
    """The command; returns its exit code."""
    return exit_code(embed, argv)


def embed(argv):
    """Encodes the texts, writes the vectors, and looks for the nearest ones."""
    changes, argv = resolve.split_data_flags(argv)
    options = flags.options(EmbedOptions, USAGE, argv)
    if options is None:
        return
    items, labels = _items(options, flags.build(AnyRun, {}, changes).data)
    if options.run and _keeps_tokens(options, items):
        return
    if options.index:
        options = _for_index(options)
    count, texts = len(items), [str(item) for item in items]

    from train.lab.embedding import index, picture, search
    from train.screens.console import Log

    log = Log()
    encode = open_encoder(options, log, not isinstance(items[0], str), changes)
    queries = [options.query] if options.query else []
    if options.vectors:
        vectors = _saved(options, count)
        query = checked_vectors(encode(queries), 1) if queries else None
    else:
        encoded = checked_vectors(encode([*items, *queries]), count + len(queries))
        vectors, query = encoded[:count], encoded[count:] if queries else None
        vectors = search.normalize(vectors) if options.normalize else vectors
    if options.to:
        _write(options.to, items, vectors)
        log.info(f"saved in {options.to}: {len(vectors):,} vectors of {vectors.shape[1]} numbers")
    if options.index:
        index.write(options.index, texts, np.asarray(vectors), options.index_kind, options)
        log.info(f"saved in {options.index}: {count:,} texts; python -m train.search --index={options.index} --query=")
    if options.map:
        picture.draw(np.asarray(vectors), texts, labels, Path(options.map))
        log.info(f"saved in {options.map}")
    if query is not None:
        _print_nearest(options, query, texts, vectors)


def _keeps_tokens(options: EmbedOptions, items: Sequence[object]) -> bool:
    """Whether a run has a vector of each token; then it writes the index. Raises UserError for flags beside that."""
    from train.lab.embedding import index, late, late_index
    from train.screens.console import Log

    if not late.is_late(options):
        return False
    if not options.index or options.to or options.query or options.map or options.vectors:
        raise UserError(f"--run={options.run} has a vector of each token (--task=late); say --index=FOLDER alone")
    if not all(isinstance(item, str) for item in items):
        raise UserError(f"--run={options.run} reads no pictures; name a file of texts")
    index.check_new(options.index)
    log = Log()
    late_index.write(options.index, [str(item) for item in items], options, log)
    log.info(f"saved in {options.index}: {len(items):,} texts; python -m train.search --index={options.index} --query=")
    return True


def _for_index(options: EmbedOptions) -> EmbedOptions:
    """The options with the prompt of passages, if the folder has one. Raises UserError where the index exists."""
    from train.lab.embedding import approximate, index

    index.check_new(options.index)
    if options.index_kind == "hnsw":
        approximate.load_faiss()
    return dataclasses.replace(options, prompt=role_prompts(options)[1])


def _items(options: EmbedOptions, data: Data) -> tuple[Sequence[object], list[str]]:
    """The texts or the pictures, and the labels that colour the map."""
    from train.images import decoding, sources

    path = Path(options.file)
    if path.suffix.lower() not in decoding.ENDINGS and not path.is_dir():
        return _texts(options, data)
    if options.color:
        raise UserError(f"--color={options.color} is a column, and pictures have none; leave it out")
    return sources.named_pictures(options.file), []


def _texts(options: EmbedOptions, data: Data) -> tuple[list[str], list[str]]:
    """The texts, and the labels that colour the map. Raises UserError for an empty text, which has no vector."""
    from train.data.sources import files

    path = Path(options.file)
    if files.ending(path, data) == ".txt":
        if options.color:
            raise UserError(f"--color={options.color} is a column, and {path} has none; give a .tsv, .csv or .jsonl")
        texts, labels = files.read_lines(path), []
    else:
        field = options.field or data.field
        rows = files.read(path, data, files.Columns((field, options.color) if options.color else (field,)))
        texts = [row[field] for row in rows]
        labels = [str(row[options.color]) for row in rows] if options.color else []
    empty = next((index for index, text in enumerate(texts) if not text.strip()), None)
    if not texts or empty is not None:
        where = f"text {empty + 1} of {path}" if empty is not None else str(path)
        raise UserError(f"{where} is empty; every text must say something")
    return texts, labels


def _saved(options: EmbedOptions, count: int) -> np.ndarray:
    """The vectors of an earlier run, mapped from their file. Raises UserError where they are of other texts."""
    path = Path(options.vectors)
    if not path.exists():
        raise UserError(f"--vectors={path} does not exist; make it with --to={path}")
    try:
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise UserError(f"--vectors={path} is no whole .npy ({error}); make it again with --to") from error
    if vectors.ndim != 2 or vectors.dtype != np.float32 or len(vectors) != count:
        raise UserError(
            f"--vectors={path} holds {vectors.dtype} {list(vectors.shape)}, and {options.file} has {count:,} texts; "
            "make it again with --to"
        )
    return vectors


def _write(to: str, items: Sequence[object], vectors: np.ndarray):
    """The vectors as one array, or as an object a line."""
    if to.endswith(".jsonl"):
        with line_writer(to) as write:
            for item, vector in zip(items, vectors.tolist(), strict=True):
                name = "text" if isinstance(item, str) else "file"
                write(json_text({name: str(item), "vector": vector}))
        return
    with whole_file(to) as part, part.open("wb") as file:
        np.save(file, vectors)


def _print_nearest(options: EmbedOptions, query: np.ndarray, texts: list[str], vectors: np.ndarray):
    """Similarity, line and text of the nearest texts, best first."""
    from train.lab.embedding import search

    similarity = similarity_of(options)
    with user_errors(f"--vectors={options.vectors}" if options.vectors else f"--query={options.query}"):
        values, rows = search.nearest(query, vectors, min(options.nearest, len(texts)), similarity=similarity)
    for value, row in zip(values[0], rows[0], strict=True):
        print(f"{value:.4f}\t{row + 1}\t{texts[row]}")

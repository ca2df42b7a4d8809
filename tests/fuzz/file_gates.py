"""The gates of files that are no text: metrics, checkpoints, tensors, pictures and vectors of words."""

import functools
import gzip
import io
import json
import math
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from fuzz import mutations
from hypothesis import strategies as st
from PIL import Image

from tfm.hf import tensors
from train.data.labels import label_checker
from train.files import checksum
from train.images import palette
from train.images import sources as pictures
from train.lab.difference import _by_step
from train.lab.embedding.word_vectors import BagOfWords
from train.runs import manifest
from train.runs.checkpoint import Checkpoints
from train.runs.metrics_lines import MetricsFile, Written, read_lines
from train.runs.saved import SavedCheckpoints, load_params
from train.runs.state import State
from train.settings.gate import user_errors
from train.settings.schema import Data, Eval
from train.tasks.lm.task import LM
from train.training.early_stopping import EarlyStopping
from train.training.metric_buffer import MetricBuffer
from train.training.progress import Progress


class Gate(NamedTuple):
    """Something that reads what comes from outside: a strategy of inputs, and what reads one in a folder of its own."""

    inputs: st.SearchStrategy
    read: Callable[[Any, Path], Any]


class Log:
    """Says nothing."""

    def info(self, text):
        pass

    def progress(self, title, total):
        return self

    def __enter__(self):
        return lambda units: None

    def __exit__(self, *error):
        pass


# metrics.jsonl

LINES = [
    {"step": step, "split": "train", "loss": 3.5 / step, "rate": 1e-3, "tokens_per_s": 9.5} for step in range(1, 6)
]
LINES.append({"step": 5, "split": "eval", "loss": 1.5, "accuracy": 0.5})


@st.composite
def metrics(draw):
    lines = [json.dumps(line).encode() for line in LINES]
    if draw(st.booleans()):
        place = draw(st.integers(0, len(lines) - 1))
        lines[place] = draw(mutations.json_files(LINES[place]))
        return b"\n".join(lines) + b"\n"
    return draw(mutations.damaged(b"\n".join(lines) + b"\n"))


def read_metrics(data: bytes, folder: Path):
    path = folder / "metrics.jsonl"
    path.write_bytes(data)
    for split in ("train", "eval"):
        assert all(map(math.isfinite, _by_step(read_lines(path), split).values()))
    content = b"".join(json.dumps(line).encode() + b"\n" for line in LINES)
    written = Written()
    written.add(content)
    with MetricsFile(path, 5, written, lambda text: None) as file:
        file.write({"step": 6, "split": "train", "loss": 1.0})
    for line in read_lines(path):
        assert 0 <= line["step"] <= 6
        assert all(math.isfinite(value) for value in line.values() if isinstance(value, float))
        assert math.isfinite(line.get("loss", 0) + line.get("rate", 0))


# Checkpoints

STATE = State(jnp.int32(3), {"kernel": jnp.ones((2, 2))}, {"mean": jnp.zeros((2, 2))})
PROGRESS = Progress(MetricBuffer({"loss": 3.5, "steps": 2.0}), EarlyStopping(LM.goals, Eval()), Written(10, 77))
NOTE, MANIFEST = Path("note/metadata"), Path(manifest.NAME)


@functools.cache
def checkpoint() -> Path:
    """The folder of a checkpoint that is whole."""
    folder = Path(tempfile.mkdtemp(prefix="tfm-fuzz-"))
    PROGRESS.stopping.update(3, {"loss": 2.5})
    store = Checkpoints(folder, keep=1)
    store.save(3, STATE, PROGRESS.state(), 2.5)
    store.close()
    return folder / "3"


@st.composite
def checkpoints(draw):
    """A note whose checksum is right, or a manifest."""
    name = draw(st.sampled_from((NOTE, MANIFEST)))
    return name, draw(mutations.json_files(json.loads((checkpoint() / name).read_text())))


def read_checkpoint(case, folder: Path):
    name, data = case
    path = folder / "checkpoints" / "3"
    shutil.copytree(checkpoint(), path)
    (path / name).write_bytes(data)
    if name == NOTE:
        listed = json.loads((path / MANIFEST).read_text())
        listed["files"][NOTE.as_posix()] = [len(data), *checksum.of_pieces(checksum.pieces(path / NOTE))]
        (path / MANIFEST).write_text(json.dumps(listed))
    log = Log().info
    state, note, _ = SavedCheckpoints(path.parent).restore(STATE, log)
    assert (state.params["kernel"] == 1).all()
    progress = Progress(MetricBuffer(), EarlyStopping(LM.goals, Eval()))
    with user_errors("note"):
        progress.restore(note)
    progress.buffer.add(4, {"loss": 1.0, "grad_norm": 1.0})
    progress.buffer.flush()
    progress.stopping.update(4, {"loss": 2.5})
    assert isinstance(progress.stopping.should_stop, bool)
    json.dumps(progress.state(), allow_nan=False)
    load_params(path.parent, STATE.params, log, best=True)


# Tensors

HEADER = {
    "__metadata__": {"format": "pt"},
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "b": {"dtype": "I8", "shape": [4], "data_offsets": [24, 28]},
}
INDEX = {"metadata": {"total_size": 28}, "weight_map": {"a": "model.safetensors", "b": "model.safetensors"}}


@st.composite
def safetensors(draw):
    """The bytes of a file, or its header with the length that it has; with an index beside it, or without."""
    index = draw(mutations.json_files(INDEX)) if draw(st.integers(0, 3)) == 0 else None
    header = draw(mutations.json_files(HEADER)) if index is None else json.dumps(HEADER).encode()
    data = len(header).to_bytes(8, "little") + header + bytes(28)
    return (data if draw(st.booleans()) else draw(mutations.damaged(data))), index


def read_safetensors(case, folder: Path):
    data, index = case
    name = tensors.SINGLE if index is None else "model.safetensors"
    (folder / name).write_bytes(data)
    if index is not None:
        (folder / tensors.INDEX).write_bytes(index)
    with user_errors("weights"):
        weights = tensors.Tensors(folder)
    assert sum(weights[name].nbytes for name in weights) == weights.bytes <= len(data)
    for name in weights:
        weights[name].sum()
        weights.release(name)


# Pictures

PROCESSOR = json.loads(palette.to_text(palette.ImageProcessor((4, 5))))
PALETTE = json.loads(palette.to_text(palette.palette_processor(4, np.array([[0] * 3, [9] * 3], np.uint8), "box")))


def read_processor(data: bytes, folder: Path):
    (folder / palette.FILE).write_bytes(data)
    with user_errors("processor"):
        processor = palette.read(folder / palette.FILE)
    assert processor.shape
    if math.prod(processor.shape) <= 1 << 20:
        pixels = processor.prepare(Image.new("L" if processor.channels == 1 else "RGB", (6, 5), 7))
        values = processor.normalize(pixels[None])
        assert np.isfinite(values).all()
        assert processor.restore(values).dtype == np.uint8


def picture(kind: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.arange(60, dtype=np.uint8).reshape(4, 5, 3)).save(buffer, kind)
    return buffer.getvalue()


def idx(shape) -> bytes:
    size = math.prod(shape)
    return (
        bytes([0, 0, 8, len(shape), *np.array(shape, ">u4").tobytes()]) + (np.arange(size) % 9).astype("u1").tobytes()
    )


def npz(**arrays) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def npy(shape: str, dtype: str = "|u1") -> bytes:
    """An .npy with a header of its own, and 60 bytes."""
    text = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(60)


def zipped(images: bytes, labels: bytes) -> bytes:
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("x_train.npy", images)
        archive.writestr("y_train.npy", labels)
    return buffer.getvalue()


IMAGES, CLASSES = np.arange(360, dtype=np.uint8).reshape(6, 4, 5, 3), np.arange(6) % 2
PICTURES = {
    **{f"a/{n}.{kind.lower()}": picture(kind) for n, kind in enumerate(("PNG", "JPEG", "WEBP", "BMP", "GIF", "PPM"))},
    "train-images-idx3-ubyte": idx((6, 4, 5)),
    "train-labels-idx1-ubyte": idx((6,)),
    "arrays.npz": npz(x_train=IMAGES, y_train=CLASSES),
}
SHAPES = st.sampled_from(
    ("(6,)", "(1000000000000,)", "(3, 4, 5)", "(0, 4, 5)", "(3, 0, 5)", "(-1, 4, 5)", "'x'", "(2,)")
)
TYPES = st.sampled_from(("|u1", "<i8", "|O", "<U9", "<f4", "x", "|V5", "<M8[s]", "|b1"))


@st.composite
def picture_files(draw):
    """The name of a file, its bytes, and the source that has it."""
    name = draw(st.sampled_from(sorted(PICTURES)))
    if name.endswith("npz") and draw(st.booleans()):
        images, labels = (draw(mutations.damaged(npy(draw(SHAPES), draw(TYPES)), 1)) for _ in range(2))
        return name, zipped(images, labels)
    if "idx" in name and draw(st.booleans()):
        axes = 3 if "images" in name else 1
        sizes = draw(st.lists(st.sampled_from((0, 1, 4, 6, 2**31, 2**32 - 1)), min_size=axes, max_size=axes))
        return name, bytes([0, 0, 8, axes]) + np.array(sizes, ">u4").tobytes() + bytes(120)
    return name, draw(mutations.damaged(PICTURES[name]))


def read_pictures(case, folder: Path):
    name, data = case
    names = [path for path in PICTURES if path == name or ("idx" in name and "idx" in path)]
    names += ["a/0.png", "a/1.jpeg", "a/2.webp"] if name.startswith("a/") else []
    for path in names:
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(PICTURES[path])
    (folder / name).write_bytes(data)
    if "idx" in name and data[:1] == b"\0" and len(data) % 2:  # half of them gzipped
        (folder / name).unlink()
        (folder / f"{name}.gz").write_bytes(gzip.compress(data))
    reader = pictures.PictureReader("image", "label", label_checker("single", ["label"]))
    source = str(folder / name if name.endswith("npz") else folder)
    train, valid = pictures.load(Data(source=source), reader, lambda: None, Log())
    for row in [*train, *valid]:
        for channels in (1, 3):
            pictures.opened(row["image"], channels)


# Vectors of words

VECTORS = {
    "words.vec": b"3 4\nthe 1 2 3 4\ncat 0 1 0 -1\nsat 1e-3 2.5 0 9\n",
    "words.txt": b"the 1 2 3 4\ncat 0 1 0 -1\nsat 1e-3 2.5 0 9\n",
    "words.bin": b"3 4\n" + b"".join(word + b" " + bytes(range(16)) + b"\n" for word in (b"the", b"cat", b"sat")),
}
COUNTS = st.sampled_from(
    (b"0 4", b"3 0", b"1 99999999999", b"0 99999999999", b"9" * 5000 + b" 4", b"3 \xc2\xb2", b"3 4")
)


@st.composite
def vector_files(draw):
    name = draw(st.sampled_from(sorted(VECTORS)))
    if draw(st.integers(0, 3)) == 0:
        return name, draw(COUNTS) + draw(st.sampled_from((b"\n", b""))) + VECTORS[name].partition(b"\n")[2]
    return name, draw(mutations.damaged(VECTORS[name]))


def read_vectors(case, folder: Path):
    name, data = case
    (folder / name).write_bytes(data)
    for weighted in (False, True):
        vectors = BagOfWords(str(folder / name), weighted)(["the cat sat", "The CAT-sat dog", ""])
        assert vectors.shape[0] == 3
        assert vectors.size < 1000


FILE_GATES = {
    "metrics": Gate(metrics(), read_metrics),
    "checkpoint": Gate(checkpoints(), read_checkpoint),
    "safetensors": Gate(safetensors(), read_safetensors),
    "processor": Gate(mutations.json_files(PROCESSOR) | mutations.json_files(PALETTE), read_processor),
    "pictures": Gate(picture_files(), read_pictures),
    "vectors": Gate(vector_files(), read_vectors),
}

# How many thousands of cases a gate gets in the slow tier.
FILE_SHARES = {"metrics": 1, "checkpoint": 0.3, "safetensors": 1, "processor": 1, "pictures": 1, "vectors": 1}

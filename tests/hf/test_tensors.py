"""Reading and writing weight files, against files built by hand, and under `parity` against safetensors."""

import itertools
import json
import mmap
import struct
import weakref
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hf_tensors import assert_same, entries, fill, pack, tensor

from tfm.hf.tensors import INDEX, SINGLE, Tensors, write, write_folder

# dtype of the format: (numpy dtype, the bytes of one value written out, that value)
VALUES = {
    "F64": (np.float64, struct.pack("<d", -1.5), -1.5),
    "F32": (np.float32, struct.pack("<f", 0.25), 0.25),
    "F16": (np.float16, struct.pack("<e", 3.0), 3.0),
    "BF16": (ml_dtypes.bfloat16, struct.pack("<f", -2.0)[2:], -2.0),  # the upper half of a float32
    "I64": (np.int64, struct.pack("<q", -(2**40)), -(2**40)),
    "I32": (np.int32, struct.pack("<i", 70000), 70000),
    "I16": (np.int16, struct.pack("<h", -300), -300),
    "I8": (np.int8, b"\xff", -1),
    "U8": (np.uint8, b"\xff", 255),
    "BOOL": (np.bool_, b"\x01", True),
}


@pytest.fixture
def arrays():
    """Every dtype and odd sizes, a scalar, an empty array, and two memory orders."""
    rng = np.random.default_rng(0)
    by_code = {code: rng.integers(0, 100, (3, 5)).astype(dtype) for code, (dtype, *_) in VALUES.items()}
    transposed = np.arange(6, dtype=np.float32).reshape(2, 3).T
    return {
        **by_code,
        "scalar": np.array(7, np.int16),
        "empty": np.zeros((2, 0, 3), np.float32),
        "transposed": transposed,
    }


@pytest.mark.parametrize("code", VALUES)
def test_every_dtype(tmp_path, code):
    """Two values after one odd byte, so that they are not aligned either."""
    dtype, encoded, value = VALUES[code]
    header = {
        "__metadata__": {"a": "b"},
        "b": tensor(code, (2, 1), (1, 1 + 2 * len(encoded))),
        "odd": tensor("U8", (1,), (0, 1)),
    }
    tensors = Tensors(fill(tmp_path, **{SINGLE: pack(header, b"\x05" + encoded + encoded)}))
    assert list(tensors) == ["odd", "b"]
    assert "b" in tensors
    assert "__metadata__" not in tensors
    assert (len(tensors), tensors.bytes, tensors.files) == (2, 1 + 2 * len(encoded), [tmp_path / SINGLE])
    assert (tensors["b"].dtype, tensors["b"].shape) == (np.dtype(dtype), (2, 1))
    assert tensors["b"].tolist() == [[value], [value]]


def test_scalars_and_empty_tensors(tmp_path):
    header = {
        "end": tensor("F32", (0, 2**40), (8, 8)),
        "scalar": tensor("F64", (), (0, 8)),
        "start": tensor("I8", (0,), (0, 0)),
    }
    tensors = Tensors(fill(tmp_path, **{SINGLE: pack(header, struct.pack("<d", 2.5))}))
    assert tensors["scalar"].shape == ()
    assert tensors["scalar"] == 2.5
    assert tensors["end"].shape == (0, 2**40)
    for name in tensors:
        tensors.release(name)
    assert len(Tensors(fill(tmp_path, **{SINGLE: pack({})}))) == 0


def test_views_are_read_only_and_copy_nothing(tmp_path):
    size = 64 * mmap.PAGESIZE
    with (tmp_path / SINGLE).open("wb") as file:
        file.write(pack({"big": tensor("U8", (size,), (0, size))}))
        file.truncate(file.tell() + size)
    tensors = Tensors(str(tmp_path))
    view = tensors["big"]
    assert not view.flags.owndata
    assert isinstance(view.base, mmap.mmap)
    assert np.shares_memory(view, tensors["big"])
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        view.flags.writeable = True
    with (tmp_path / SINGLE).open("r+b") as file:  # a mapping shows what happens to the file; a copy would not
        file.seek(-1, 2)
        file.write(b"\x07")
    assert view[-1] == 7


def resident(mapping) -> int:
    """Bytes of this process's mapping of a file that are in memory."""
    text = Path("/proc/self/smaps").read_text()
    lines = itertools.dropwhile(lambda line: str(mapping) not in line, text.splitlines())
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Rss:"))


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux")
def test_release_gives_the_memory_back(tmp_path):
    arrays = {name: np.full(1 << 20, value, np.float32) for value, name in enumerate("abc")}
    write(tmp_path / SINGLE, entries(arrays))
    tensors = Tensors(tmp_path)
    views = {name: tensors[name] for name in tensors}
    assert resident(tmp_path / SINGLE) < 1 << 20
    for value, name in enumerate("abc"):
        assert views[name].sum() == value * (1 << 20)
        assert resident(tmp_path / SINGLE) >= 4 << 20
        tensors.release(name)
        assert resident(tmp_path / SINGLE) < 1 << 20
    assert_same(tensors, arrays)  # read again


def test_write_is_the_format(tmp_path):
    """The bytes, taken apart by hand: length, header with padding, tensors in C order with the wide dtypes first."""
    arrays = {"odd": np.array([1, 2, 3], np.int8), "transposed": np.arange(6, dtype=np.float32).reshape(2, 3).T}
    write(tmp_path / "x.safetensors", entries(arrays))
    content = (tmp_path / "x.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    assert length % 8 == 0
    assert json.loads(content[8 : 8 + length]) == {
        "__metadata__": {"format": "pt"},
        "transposed": tensor("F32", (3, 2), (0, 24)),
        "odd": tensor("I8", (3,), (24, 27)),
    }
    assert content[8 + length :] == struct.pack("<6f", 0, 3, 1, 4, 2, 5) + b"\x01\x02\x03"
    write(tmp_path / "x.safetensors", [], {"a": "ü"})
    assert json.loads((tmp_path / "x.safetensors").read_bytes()[8:]) == {"__metadata__": {"a": "ü"}}
    assert [path.name for path in tmp_path.iterdir()] == ["x.safetensors"]


def test_what_is_written_is_read(tmp_path, arrays):
    write(tmp_path / SINGLE, entries(arrays))
    tensors = Tensors(tmp_path)
    assert_same(tensors, arrays)
    assert all(tensors[name].flags.aligned for name in tensors)


def test_one_array_at_a_time_is_in_memory(tmp_path):
    """Each array knows whether the one before it is still alive."""
    references = []

    def make():
        assert all(reference() is None for reference in references)
        array = np.zeros(3, np.float32)
        references.append(weakref.ref(array))
        return array

    write(tmp_path / SINGLE, [(name, np.float32, (3,), make) for name in "abc"])
    assert len(references) == 3


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        (
            ("a", np.float32, (2,), lambda: np.zeros(3, np.float32)),
            r"tensor 'a' is float32 \(3,\); it was declared float32 \(2,\)",
        ),
        (
            ("a", np.float32, (2,), lambda: np.zeros(2, np.int32)),
            r"tensor 'a' is int32 \(2,\); it was declared float32",
        ),
        (("a", np.float32, (2,), lambda: np.zeros(2, ">f4")), r"tensor 'a' is >f4"),
        (
            ("a", np.complex64, (2,), lambda: np.zeros(2, np.complex64)),
            "tensor 'a' has dtype complex64; cast it to one of float64",
        ),
        (("first", np.int8, (), lambda: np.int8(1)), "tensor name 'first' is taken"),
        (("__metadata__", np.int8, (), lambda: np.int8(1)), "tensor name '__metadata__' is taken"),
    ],
)
def test_a_failed_write_leaves_what_was_there(tmp_path, entry, sentence):
    first = ("first", np.float64, (3,), lambda: np.zeros(3))
    fill(tmp_path, **{SINGLE: b"before"})
    for save in (lambda: write(tmp_path / SINGLE, [first, entry]), lambda: write_folder(tmp_path, [first, entry], 1)):
        with pytest.raises(ValueError, match=sentence):
            save()
        assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [(SINGLE, b"before")]


def test_an_interrupted_write_leaves_nothing(tmp_path):
    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / SINGLE, [("a", np.int8, (1,), stop)])
    assert not list(tmp_path.iterdir())


def test_shards_and_index(tmp_path):
    """Shards of 10 bytes: 4+4, then 12 by itself, then 8+2."""
    sizes = {"a": 4, "b": 4, "c": 12, "d": 8, "e": 2}
    arrays = {name: np.arange(size, dtype=np.uint8) for name, size in sizes.items()}
    write_folder(tmp_path / "parent" / "folder", entries(arrays), 10)
    folder = tmp_path / "parent" / "folder"
    first, second, third = (f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3))
    assert sorted(path.name for path in folder.iterdir()) == [first, second, third, INDEX]
    index = {
        "metadata": {"total_size": 30},
        "weight_map": {"a": first, "b": first, "c": second, "d": third, "e": third},
    }
    assert json.loads((folder / INDEX).read_text()) == index
    tensors = Tensors(folder)
    assert (tensors.files, tensors.bytes) == ([folder / first, folder / second, folder / third], 30)
    assert_same(tensors, arrays)


def test_a_save_replaces_an_earlier_one(tmp_path):
    """From one file to shards, to other shards and back, from views of the files that go; other files stay."""
    arrays = {name: np.full(8, value, np.int8) for value, name in enumerate("abcd")}
    fill(tmp_path, **{"config.json": b"{}", "model.fp16.safetensors": b"", "adapter_model.safetensors": b""})
    kept = {path.name for path in tmp_path.iterdir()}
    write_folder(tmp_path, entries(arrays))
    for shard_bytes, count in ((8, 5), (16, 3), (16, 3), (10**9, 1)):
        tensors = Tensors(tmp_path)
        write_folder(tmp_path, entries({name: tensors[name] for name in tensors}), shard_bytes)
        assert len(list(tmp_path.iterdir())) == len(kept) + count
        assert_same(Tensors(tmp_path), arrays)
        assert_same(tensors, arrays)  # the files are gone, the views are not
    assert {path.name for path in tmp_path.iterdir()} == kept | {SINGLE}
    write_folder(tmp_path, [])
    assert len(Tensors(tmp_path)) == 0


def test_one_file_goes_before_an_index(tmp_path):
    fill(tmp_path, **{SINGLE: pack({"a": tensor()}, b"abcd"), INDEX: b"nonsense", "pytorch_model.bin": b""})
    assert bytes(Tensors(tmp_path)["a"]) == b"abcd"


def test_a_shard_may_be_a_link_out_of_the_folder(tmp_path):
    """The cache of huggingface_hub keeps contents elsewhere."""
    folder = tmp_path / "snapshot"
    folder.mkdir()
    fill(tmp_path, blob=pack({"a": tensor()}, b"abcd"))
    fill(folder, **{INDEX: json.dumps({"weight_map": {"a": "x.safetensors"}}).encode()})
    (folder / "x.safetensors").symlink_to("../blob")
    assert bytes(Tensors(folder)["a"]) == b"abcd"


@pytest.mark.parity
def test_safetensors_reads_what_is_written(tmp_path, arrays):
    safetensors = pytest.importorskip("safetensors.numpy")
    write(tmp_path / SINGLE, entries(arrays))
    loaded = safetensors.load_file(tmp_path / SINGLE)
    assert loaded.keys() == arrays.keys()
    for name, array in arrays.items():
        assert (loaded[name].dtype, loaded[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(loaded[name], array)


@pytest.mark.parity
def test_what_safetensors_writes_is_read(tmp_path, arrays):
    safetensors = pytest.importorskip("safetensors.numpy")
    safetensors.save_file(
        {name: np.ascontiguousarray(array) if array.shape else array for name, array in arrays.items()},
        tmp_path / SINGLE,
    )
    assert_same(Tensors(tmp_path), arrays)


@pytest.mark.parity
def test_transformers_loads_shards(tmp_path):
    """A model saved by transformers, written again in small shards."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=11, n_positions=7)
    model = transformers.GPT2LMHeadModel(config).eval()
    model.save_pretrained(tmp_path / "a")
    tensors = Tensors(tmp_path / "a")
    config.save_pretrained(tmp_path / "b")
    write_folder(tmp_path / "b", entries({name: tensors[name] for name in tensors}), 1000)
    assert len(Tensors(tmp_path / "b").files) > 2
    model_again = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "b").eval()
    tokens = torch.tensor([[1, 2, 3]])
    assert torch.equal(model(tokens).logits, model_again(tokens).logits)

"""Weight files built by hand, byte by byte, are the independent answer; under `parity` it is the safetensors package."""

import itertools
import json
import mmap
import struct
import weakref
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

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


def pack(header, data=b"", length=None) -> bytes:
    """The bytes of a safetensors file; a header may be any JSON or bytes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(dtype="U8", shape=(4,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def fill(folder: Path, **files: bytes) -> Path:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def entries(arrays):
    return [(name, array.dtype, array.shape, lambda array=array: array) for name, array in arrays.items()]


def same(tensors, arrays):
    assert set(tensors) == set(arrays)
    for name, array in arrays.items():
        assert (tensors.dtype(name), tensors.shape(name)) == (array.dtype, array.shape)
        np.testing.assert_array_equal(tensors.view(name), array)


@pytest.fixture
def arrays():
    """Every dtype and odd sizes, a scalar, an empty array, and two memory orders."""
    rng = np.random.default_rng(0)
    made = {code: rng.integers(0, 100, (3, 5)).astype(dtype) for code, (dtype, *_) in VALUES.items()}
    turned = np.arange(6, dtype=np.float32).reshape(2, 3).T
    return {**made, "scalar": np.array(7, np.int16), "empty": np.zeros((2, 0, 3), np.float32), "turned": turned}


@pytest.mark.parametrize("code", VALUES)
def test_every_dtype(tmp_path, code):
    """Two values after one odd byte, so that they are not aligned either."""
    dtype, one, value = VALUES[code]
    header = {
        "__metadata__": {"a": "b"},
        "b": tensor(code, (2, 1), (1, 1 + 2 * len(one))),
        "odd": tensor("U8", (1,), (0, 1)),
    }
    tensors = Tensors(fill(tmp_path, **{SINGLE: pack(header, b"\x05" + one + one)}))
    assert list(tensors) == ["odd", "b"]
    assert "b" in tensors
    assert "__metadata__" not in tensors
    assert (len(tensors), tensors.bytes, tensors.files) == (2, 1 + 2 * len(one), [tmp_path / SINGLE])
    assert (tensors.dtype("b"), tensors.shape("b")) == (np.dtype(dtype), (2, 1))
    assert tensors.view("b").tolist() == [[value], [value]]


def test_scalars_and_empty_tensors(tmp_path):
    header = {
        "end": tensor("F32", (0, 2**40), (8, 8)),
        "scalar": tensor("F64", (), (0, 8)),
        "start": tensor("I8", (0,), (0, 0)),
    }
    tensors = Tensors(fill(tmp_path, **{SINGLE: pack(header, struct.pack("<d", 2.5))}))
    assert tensors.view("scalar").shape == ()
    assert tensors.view("scalar") == 2.5
    assert tensors.view("end").shape == (0, 2**40)
    for name in tensors:
        tensors.release(name)
    assert len(Tensors(fill(tmp_path, **{SINGLE: pack({})}))) == 0


def test_views_are_read_only_and_copy_nothing(tmp_path):
    size = 64 * mmap.PAGESIZE
    with (tmp_path / SINGLE).open("wb") as file:
        file.write(pack({"big": tensor("U8", (size,), (0, size))}))
        file.truncate(file.tell() + size)
    tensors = Tensors(str(tmp_path))
    view = tensors.view("big")
    assert not view.flags.owndata
    assert isinstance(view.base, mmap.mmap)
    assert np.shares_memory(view, tensors.view("big"))
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
    views = {name: tensors.view(name) for name in tensors}
    assert resident(tmp_path / SINGLE) < 1 << 20
    for value, name in enumerate("abc"):
        assert views[name].sum() == value * (1 << 20)
        assert resident(tmp_path / SINGLE) >= 4 << 20
        tensors.release(name)
        assert resident(tmp_path / SINGLE) < 1 << 20
    same(tensors, arrays)  # read again


def test_write_is_the_format(tmp_path):
    """The bytes, taken apart by hand: length, header with padding, tensors in C order with the wide dtypes first."""
    arrays = {"odd": np.array([1, 2, 3], np.int8), "turned": np.arange(6, dtype=np.float32).reshape(2, 3).T}
    write(tmp_path / "x.safetensors", entries(arrays))
    content = (tmp_path / "x.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    assert length % 8 == 0
    assert json.loads(content[8 : 8 + length]) == {
        "__metadata__": {"format": "pt"},
        "turned": tensor("F32", (3, 2), (0, 24)),
        "odd": tensor("I8", (3,), (24, 27)),
    }
    assert content[8 + length :] == struct.pack("<6f", 0, 3, 1, 4, 2, 5) + b"\x01\x02\x03"
    write(tmp_path / "x.safetensors", [], {"a": "ü"})
    assert json.loads((tmp_path / "x.safetensors").read_bytes()[8:]) == {"__metadata__": {"a": "ü"}}
    assert [path.name for path in tmp_path.iterdir()] == ["x.safetensors"]


def test_what_is_written_is_read(tmp_path, arrays):
    write(tmp_path / SINGLE, entries(arrays))
    tensors = Tensors(tmp_path)
    same(tensors, arrays)
    assert all(tensors.view(name).flags.aligned for name in tensors)


def test_one_array_at_a_time_is_in_memory(tmp_path):
    """Each array knows whether the one before it is still alive."""
    made = []

    def make():
        assert all(reference() is None for reference in made)
        array = np.zeros(3, np.float32)
        made.append(weakref.ref(array))
        return array

    write(tmp_path / SINGLE, [(name, np.float32, (3,), make) for name in "abc"])
    assert len(made) == 3


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
    write_folder(tmp_path / "new" / "folder", entries(arrays), 10)
    folder = tmp_path / "new" / "folder"
    one, two, three = (f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3))
    assert sorted(path.name for path in folder.iterdir()) == [one, two, three, INDEX]
    index = {"metadata": {"total_size": 30}, "weight_map": {"a": one, "b": one, "c": two, "d": three, "e": three}}
    assert json.loads((folder / INDEX).read_text()) == index
    tensors = Tensors(folder)
    assert (tensors.files, tensors.bytes) == ([folder / one, folder / two, folder / three], 30)
    same(tensors, arrays)


def test_a_save_replaces_an_earlier_one(tmp_path):
    """From whole to shards, to other shards and back, each time from views of the files that go; what else is there stays."""
    arrays = {name: np.full(8, value, np.int8) for value, name in enumerate("abcd")}
    others = fill(tmp_path, **{"config.json": b"{}", "model.fp16.safetensors": b"", "adapter_model.safetensors": b""})
    kept = {path.name for path in others.iterdir()}
    write_folder(tmp_path, entries(arrays))
    for shard_bytes, count in ((8, 5), (16, 3), (16, 3), (10**9, 1)):
        tensors = Tensors(tmp_path)
        write_folder(tmp_path, entries({name: tensors.view(name) for name in tensors}), shard_bytes)
        assert len(list(tmp_path.iterdir())) == len(kept) + count
        same(Tensors(tmp_path), arrays)
        same(tensors, arrays)  # the files are gone, the views are not
    assert {path.name for path in tmp_path.iterdir()} == kept | {SINGLE}
    write_folder(tmp_path, [])
    assert len(Tensors(tmp_path)) == 0


def test_one_file_goes_before_an_index(tmp_path):
    fill(tmp_path, **{SINGLE: pack({"a": tensor()}, b"abcd"), INDEX: b"nonsense", "pytorch_model.bin": b""})
    assert bytes(Tensors(tmp_path).view("a")) == b"abcd"


def test_a_shard_may_be_a_link_out_of_the_folder(tmp_path):
    """The cache of huggingface_hub keeps contents elsewhere."""
    folder = tmp_path / "snapshot"
    folder.mkdir()
    fill(tmp_path, blob=pack({"a": tensor()}, b"abcd"))
    fill(folder, **{INDEX: json.dumps({"weight_map": {"a": "x.safetensors"}}).encode()})
    (folder / "x.safetensors").symlink_to("../blob")
    assert bytes(Tensors(folder).view("a")) == b"abcd"


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
DEEP = b"[" * 100_000
MUCH = 100 * 1000**2
FILES = {
    "empty": (b"", "has 0 bytes, too few for a safetensors file; .* download it again"),
    "short": (b"1234567", "has 7 bytes, too few"),
    "pointer": (POINTER, "is a Git LFS pointer: run `git lfs pull`"),
    "header beyond the end": (
        pack({}, length=3),
        "announces a header of 3 bytes, more than 2; it is not safetensors, or it is damaged",
    ),
    "header of 2**64": (pack({}, length=2**64 - 1), "announces a header of 18446744073709551615 bytes, more than 2;"),
    "no JSON": (pack(b"{nonsense"), "the JSON of .* cannot be read as an object"),
    "no UTF-8": (pack(b'{"\xff": 1}'), "cannot be read as an object"),
    "nested": (pack(DEEP), "cannot be read as an object"),
    "a list": (pack([]), "cannot be read as an object"),
    "a number": (pack(3), "cannot be read as an object"),
    "no entry": (pack({"a": 3}), "tensor 'a' of .* has dtype None"),
    "no dtype": (pack({"a": {"shape": [1], "data_offsets": [0, 1]}}, b"1"), "has dtype None"),
    "dtype": (
        pack({"a": tensor("F8_E4M3")}, b"1234"),
        "tensor 'a' of .* has dtype 'F8_E4M3'; save it again as one of F64, F32",
    ),
    "dtype of a list": (pack({"a": tensor(["F32"])}, b"1234"), r"has dtype \['F32'\]"),
    "no shape": (
        pack({"a": {"dtype": "U8", "data_offsets": [0, 1]}}, b"1"),
        "a shape or data_offsets that are not lists of counts",
    ),
    "shape of floats": (pack({"a": tensor(shape=[4.0])}, b"1234"), "not lists of counts"),
    "shape of flags": (pack({"a": tensor(shape=[True], offsets=(0, 1))}, b"1"), "not lists of counts"),
    "shape of NaN": (pack({"a": tensor(shape=[float("nan")])}, b"1234"), "not lists of counts"),
    "negative": (pack({"a": tensor(shape=[-2, -2])}, b"1234"), "not lists of counts"),
    "dimensions": (pack({"a": tensor(shape=[1] * 65, offsets=(0, 1))}, b"1"), "not lists of counts"),
    "huge": (pack({"a": tensor(shape=[2**62, 2**62])}, b"1234"), "but its data_offsets are"),
    "huge and empty": (pack({"a": tensor(shape=[2**40, 2**40, 0], offsets=(0, 0))}), "but its data_offsets are"),
    "very huge": (pack({"a": tensor(shape=[10**4000] * 9)}, b"1234"), "not lists of counts"),
    "no offsets": (pack({"a": {"dtype": "U8", "shape": [1]}}, b"1"), "not lists of counts"),
    "offsets of strings": (pack({"a": tensor(offsets="04")}, b"1234"), "not lists of counts"),
    "one offset": (pack({"a": tensor(offsets=[4])}, b"1234"), r"but its data_offsets are \[4\]"),
    "three offsets": (pack({"a": tensor(offsets=[0, 4, 4])}, b"1234"), r"but its data_offsets are \[0, 4, 4\]"),
    "backwards": (pack({"a": tensor(offsets=[4, 0])}, b"1234"), r"but its data_offsets are \[4, 0\]"),
    "size": (
        pack({"a": tensor("F32", (2,), (0, 4))}, b"1234"),
        r"tensor 'a' of .* is F32 \[2\], 8 bytes, but its data_offsets are \[0, 4\]; it is damaged",
    ),
    "truncated": (
        pack({"a": tensor(), "b": tensor(offsets=(4, 8))}, b"12345"),
        "has 3 bytes too few; it is damaged: download it again",
    ),
    "offsets beyond": (
        pack({"a": tensor(shape=[2**50], offsets=(0, 2**50))}, b""),
        "has 1125899906842624 bytes too few",
    ),
    "trailing": (pack({"a": tensor()}, b"123456"), "has 2 bytes too many"),
    "hole": (
        pack({"a": tensor(), "b": tensor(offsets=(6, 10))}, b"1234567890"),
        "a hole or an overlap of 2 bytes before tensor 'b'",
    ),
    "hole at the start": (
        pack({"a": tensor(offsets=(1, 5))}, b"12345"),
        "a hole or an overlap of 1 bytes before tensor 'a'",
    ),
    "overlap": (
        pack({"b": tensor(offsets=(3, 7)), "a": tensor()}, b"1234567"),
        "a hole or an overlap of 1 bytes before tensor 'b'",
    ),
    "twice": (pack({"a": tensor(), "b": tensor()}, b"1234"), "a hole or an overlap of 4 bytes before tensor 'b'"),
}


def refused(folder, sentence, path):
    with pytest.raises(ValueError, match=sentence) as caught:
        Tensors(folder)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("name", FILES)
def test_a_bad_file_is_refused(tmp_path, name):
    """By itself, and as a shard."""
    content, sentence = FILES[name]
    refused(fill(tmp_path, **{SINGLE: content}), sentence, tmp_path / SINGLE)
    (tmp_path / SINGLE).rename(tmp_path / "x.safetensors")
    index = {"weight_map": {"a": "x.safetensors"}}
    refused(fill(tmp_path, **{INDEX: json.dumps(index).encode()}), sentence, tmp_path / "x.safetensors")


def test_a_header_of_more_than_100_mb_is_refused(tmp_path):
    """Although the file (of holes, on disk) is long enough."""
    with (tmp_path / SINGLE).open("wb") as file:
        file.write(pack({}, length=MUCH + 1))
        file.truncate(2 * MUCH)
    refused(tmp_path, "announces a header of 100000001 bytes, more than 100000000;", tmp_path / SINGLE)


GOOD = pack({"a": tensor()}, b"1234")
MAPS = {
    "no JSON": ("nonsense", f"the JSON of .*{INDEX} cannot be read as an object; it is damaged"),
    "pointer": (POINTER.decode(), "cannot be read as an object; it is a Git LFS pointer: run `git lfs pull`"),
    "a list": ("[]", "cannot be read as an object"),
    "no map": ("{}", "has no weight_map"),
    "empty map": ('{"weight_map": {}}', "has no weight_map"),
    "map of a list": ('{"weight_map": ["a"]}', "has no weight_map"),
    **{
        f"file {name}": (
            json.dumps({"weight_map": {"a": name}}),
            "correct that, for only .safetensors files beside it are read",
        )
        for name in (
            "/etc/x.safetensors",
            "../x.safetensors",
            "sub/x.safetensors",
            "sub\\x.safetensors",
            "C:x.safetensors",
            "..",
            "",
            "x.bin",
            3,
        )
    },
    **{
        f"missing {name[:20]!r}": (
            json.dumps({"weight_map": {"a": "x.safetensors", "b": name}}),
            "which is missing beside it; download that",
        )
        for name in (
            "z.safetensors",
            "folder.safetensors",
            "a\0.safetensors",
            "\ud800.safetensors",
            "n" * 5000 + ".safetensors",
        )
    },
    "absent": (
        json.dumps({"weight_map": {"a": "x.safetensors", "b": "x.safetensors"}}),
        "x.safetensors does not hold tensor 'b', which",
    ),
    "elsewhere": (
        json.dumps({"weight_map": {"a": "x.safetensors", "b": "y.safetensors", "c": "x.safetensors"}}),
        "x.safetensors does not hold tensor 'c', which",
    ),
    "in two files": (
        json.dumps({"weight_map": {"a": "x.safetensors", "c": "z2.safetensors"}}),
        "tensor 'a' is in .*z2.safetensors and in another file",
    ),
}


@pytest.mark.parametrize("name", MAPS)
def test_a_bad_index_is_refused(tmp_path, name):
    text, sentence = MAPS[name]
    both = pack({"b": tensor(), "c": tensor(offsets=(4, 8))}, b"12345678")
    twice = pack({"a": tensor(), "c": tensor(offsets=(4, 8))}, b"12345678")
    (tmp_path / "folder.safetensors").mkdir()
    files = {"x.safetensors": GOOD, "y.safetensors": both, "z2.safetensors": twice, "x.bin": b"", INDEX: text.encode()}
    refused(fill(tmp_path, **files), sentence, tmp_path)


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "model.pt", "weights.pth", "last.ckpt"]
)
def test_pickles_are_refused(tmp_path, name):
    sentence = rf"holds only pickle checkpoints \({name}\).* runs the code .* AutoModel.from_pretrained\(folder\).save_pretrained\(folder, safe"
    refused(fill(tmp_path, **{name: b"", "config.json": b"{}"}), sentence, tmp_path)


def test_a_folder_without_weights_is_refused(tmp_path):
    refused(
        fill(tmp_path, **{"config.json": b"{}", "other.safetensors": GOOD}),
        f"holds no weights; it needs {SINGLE}, or {INDEX}",
        tmp_path,
    )
    refused(tmp_path / "none", "does not exist; give a folder with model.safetensors", tmp_path / "none")
    refused(tmp_path / "config.json", "is a file; give a folder with", tmp_path / "config.json")


def small() -> tuple[bytes, int]:
    """A file with three tensors and metadata, and where its header ends."""
    header = {
        "__metadata__": {"k": "v"},
        "a": tensor("F32", (2,), (0, 8)),
        "b": tensor("I8", (), (8, 9)),
        "c": tensor("BF16", (1, 1), (9, 11)),
    }
    text = json.dumps(header).encode() + b"  "
    return pack(text, bytes(range(11))), 8 + len(text)


def content(folder) -> bytes | None:
    """All tensors in the order of the file, or None if the folder is refused; anything else fails."""
    try:
        tensors = Tensors(folder)
    except ValueError:
        return None
    assert tensors.bytes == sum(tensors.view(name).nbytes for name in tensors)
    return b"".join(tensors.view(name).tobytes() for name in tensors)


def test_a_file_cut_anywhere_is_refused(tmp_path):
    whole, _ = small()
    for length in range(len(whole)):
        assert content(fill(tmp_path, **{SINGLE: whole[:length]})) is None, length
    assert content(fill(tmp_path, **{SINGLE: whole})) == bytes(range(11))
    assert content(fill(tmp_path, **{SINGLE: whole + b"\0"})) is None


@pytest.mark.parametrize("bits", [0x01, 0x04, 0x20, 0x80, 0xFF])
def test_a_file_with_any_byte_changed_is_refused_or_read_as_it_is(tmp_path, bits):
    """What is read is all that stands behind the header, no matter what."""
    whole, start = small()
    read = 0
    for position in range(len(whole)):
        flipped = bytearray(whole)
        flipped[position] ^= bits
        found = content(fill(tmp_path, **{SINGLE: bytes(flipped)}))
        assert found is None or found == flipped[start:], position
        assert position < start or found is not None  # values cannot be wrong
        read += found is not None
    assert 11 <= read < len(whole)


@pytest.mark.parity
def test_safetensors_reads_what_is_written(tmp_path, arrays):
    safetensors = pytest.importorskip("safetensors.numpy")
    write(tmp_path / SINGLE, entries(arrays))
    found = safetensors.load_file(tmp_path / SINGLE)
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parity
def test_what_safetensors_writes_is_read(tmp_path, arrays):
    safetensors = pytest.importorskip("safetensors.numpy")
    safetensors.save_file(
        {name: np.ascontiguousarray(array) if array.shape else array for name, array in arrays.items()},
        tmp_path / SINGLE,
    )
    same(Tensors(tmp_path), arrays)


@pytest.mark.parity
@pytest.mark.parametrize("bits", [0x01, 0x04, 0x20, 0xFF])
def test_safetensors_refuses_the_same_files(tmp_path, bits):
    """Whichever byte of a small file is changed."""
    safetensors = pytest.importorskip("safetensors.numpy")
    whole, _ = small()
    for position in range(len(whole)):
        flipped = bytearray(whole)
        flipped[position] ^= bits
        found = content(fill(tmp_path, **{SINGLE: bytes(flipped)}))
        try:
            expected = safetensors.load_file(tmp_path / SINGLE)
        except Exception:
            expected = None
        if expected is not None:
            same(Tensors(tmp_path), expected)
        assert (found is None) == (expected is None), (position, bytes(flipped))


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
    write_folder(tmp_path / "b", entries({name: tensors.view(name) for name in tensors}), 1000)
    assert len(Tensors(tmp_path / "b").files) > 2
    again = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "b").eval()
    tokens = torch.tensor([[1, 2, 3]])
    assert torch.equal(model(tokens).logits, again(tokens).logits)

"""Weight files that are damaged, incomplete or of another kind are refused in one sentence."""

import json

import pytest
from hf_tensors import assert_same, fill, pack, tensor

from tfm.hf.tensors import INDEX, SINGLE, Tensors

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
        pack({"a": tensor("F8_E8M0")}, b"1234"),
        "tensor 'a' of .* has dtype 'F8_E8M0'; save it again as one of F64, F32",
    ),
    "dtype of a list": (pack({"a": tensor(["F32"])}, b"1234"), r"has dtype \['F32'\]"),
    "no shape": (
        pack({"a": {"dtype": "U8", "data_offsets": [0, 1]}}, b"1"),
        "a shape or data_offsets that are not lists of counts",
    ),
    "shape of floats": (pack({"a": tensor(shape=[4.0])}, b"1234"), "not lists of counts"),
    "shape of flags": (pack({"a": tensor(shape=[True], offsets=(0, 1))}, b"1"), "not lists of counts"),
    "shape of NaN": (pack({"a": tensor(shape=[float("nan")])}, b"1234"), "cannot be read as an object"),
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
            "correct that: only .safetensors files beside it are read",
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
            "n" * 5000 + ".safetensors",
        )
    },
    **{
        f"no text {name!r}": (json.dumps({"weight_map": {"a": name}}), "cannot be read as an object")
        for name in ("a\0.safetensors", "\ud800.safetensors")
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
    sentence = rf"holds only pickle checkpoints \({name}\).* runs the code "
    remedy = r".* AutoModel.from_pretrained\(folder\).save_pretrained\(folder, safe"
    refused(fill(tmp_path, **{name: b"", "config.json": b"{}"}), sentence + remedy, tmp_path)


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
    assert tensors.bytes == sum(tensors[name].nbytes for name in tensors)
    return b"".join(tensors[name].tobytes() for name in tensors)


def test_a_file_cut_anywhere_is_refused(tmp_path):
    intact, _ = small()
    for length in range(len(intact)):
        assert content(fill(tmp_path, **{SINGLE: intact[:length]})) is None, length
    assert content(fill(tmp_path, **{SINGLE: intact})) == bytes(range(11))
    assert content(fill(tmp_path, **{SINGLE: intact + b"\0"})) is None


@pytest.mark.parametrize("bits", [0x01, 0x04, 0x20, 0x80, 0xFF])
def test_a_file_with_any_byte_changed_is_refused_or_read_as_it_is(tmp_path, bits):
    """What is read is all that stands behind the header, no matter what."""
    intact, start = small()
    read = 0
    for position in range(len(intact)):
        flipped = bytearray(intact)
        flipped[position] ^= bits
        tensors_read = content(fill(tmp_path, **{SINGLE: bytes(flipped)}))
        assert tensors_read is None or tensors_read == flipped[start:], position
        assert position < start or tensors_read is not None  # values cannot be wrong
        read += tensors_read is not None
    assert 11 <= read < len(intact)


@pytest.mark.parity
@pytest.mark.parametrize("bits", [0x01, 0x04, 0x20, 0xFF])
def test_safetensors_refuses_the_same_files(tmp_path, bits):
    """Whichever byte of a small file is changed."""
    safetensors = pytest.importorskip("safetensors.numpy")
    intact, _ = small()
    for position in range(len(intact)):
        flipped = bytearray(intact)
        flipped[position] ^= bits
        tensors_read = content(fill(tmp_path, **{SINGLE: bytes(flipped)}))
        try:
            expected = safetensors.load_file(tmp_path / SINGLE)
        except Exception:
            expected = None
        if expected is not None:
            assert_same(Tensors(tmp_path), expected)
        assert (tensors_read is None) == (expected is None), (position, bytes(flipped))

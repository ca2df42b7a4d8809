"""Records of tf.Example and tars of samples, against writers that are not ours."""

import gzip
import io
import json
import struct
import tarfile

import pytest

from train import UserError
from train.data.sources import records, sources, stream
from train.data.sources.files import Columns
from train.data.sources.row_files import ROW_FILES
from train.settings.schema import Data

TEXTS = ["first", "", "Grüße, 東京", "x" * 70_000]


@pytest.fixture(scope="module")
def example():
    """The class of tf.Example, made by Protocol Buffers of its definition."""
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

    def field(name, place, kind, label="OPTIONAL", **rest):
        return {"name": name, "number": place, "label": f"LABEL_{label}", **kind_of(kind), **rest}

    def kind_of(kind):
        message = kind[0].isupper()
        return {"type": "TYPE_MESSAGE", "typeName": f".t.{kind}"} if message else {"type": f"TYPE_{kind.upper()}"}

    def message(name, *fields, **rest):
        return {"name": name, "field": [*fields], **rest}

    kinds = ("bytes", "float", "int64")
    entry = message("FeatureEntry", field("key", 1, "string"), field("value", 2, "Feature"), options={"mapEntry": True})
    definition = [
        *(message(f"List{kind}".title(), field("value", 1, kind, "REPEATED")) for kind in kinds),
        message(
            "Feature",
            *(field(kind, place, f"List{kind}".title(), oneofIndex=0) for place, kind in enumerate(kinds, start=1)),
            oneofDecl=[{"name": "kind"}],
        ),
        message("Features", field("feature", 1, "Features.FeatureEntry", "REPEATED"), nestedType=[entry]),
        message("Example", field("features", 1, "Features")),
    ]
    fields = {"name": "example.proto", "package": "t", "syntax": "proto3", "messageType": definition}
    file = json_format.ParseDict(fields, descriptor_pb2.FileDescriptorProto())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Example"))


@pytest.fixture(scope="module")
def serialized(example):
    """A record for each text, with a label, numbers and bytes that are no text."""

    def record(index, text):
        message = example()
        feature = message.features.feature
        feature["text"].bytes.value.append(text.encode())
        feature["label"].int64.value.append(index - 2)
        feature["many"].int64.value.extend([1, -1, 1 << 40])
        feature["share"].float.value.append(0.25)
        feature["jpeg"].bytes.value.append(b"\xff\xd8\xff")
        feature["empty"].SetInParent()
        return message.SerializeToString()

    return [record(index, text) for index, text in enumerate(TEXTS)]


def framed(record):
    head = struct.pack("<Q", len(record))
    return head + struct.pack("<I", records.masked_crc(head)) + record + struct.pack("<I", records.masked_crc(record))


@pytest.fixture(scope="module")
def folder(serialized, tmp_path_factory):
    from array_record.python.array_record_module import ArrayRecordWriter

    folder = tmp_path_factory.mktemp("records")
    content = b"".join(map(framed, serialized))
    (folder / "a.tfrecord-00000-of-00002").write_bytes(content)
    (folder / "b.tfrecord.gz").write_bytes(gzip.compress(content))
    writer = ArrayRecordWriter(str(folder / "c.array_record"), "group_size:2")
    for record in serialized:
        writer.write(record)
    writer.close()
    for name, mode in {"d.tar": "w", "e.tar.gz": "w:gz"}.items():
        with tarfile.open(folder / name, mode) as archive:
            for index, text in enumerate(TEXTS):
                files = {
                    "jpg": b"\xff\xd8\xff",
                    "text": text.encode(),
                    "json": json.dumps({"label": index - 2, "inner": {"caption": text[::-1]}}).encode(),
                }
                for ending, data in files.items():
                    info = tarfile.TarInfo(f"./part/{index:03d}.{ending}")
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))
    return folder


FILES = ("a.tfrecord-00000-of-00002", "b.tfrecord.gz", "c.array_record", "d.tar", "e.tar.gz")


@pytest.mark.parametrize("name", FILES)
def test_texts(folder, name):
    """As a stream, and in memory, where empty rows are left out."""
    documents = stream.documents(stream.Slice(str(folder / name)), Data())
    assert ["".join(document) for document in documents] == TEXTS
    rows = sources.read(str(folder / name), Data(), Columns(("text",)), lambda: ([], []), lambda line: None)
    assert [row["text"] for row in rows] == [text for text in TEXTS if text]


@pytest.mark.parametrize("name", ["a.tfrecord-00000-of-00002", "c.array_record", "d.tar"])
def test_labels_and_inner_columns(folder, name):
    label, text = ("json.label", "json.inner.caption") if name == "d.tar" else ("label", "text")
    kind = ".tfrecord" if "tfrecord" in name else "." + name.partition(".")[2]
    rows = list(ROW_FILES[kind](str(folder / name), Columns((text,), (label,))))
    assert [row[label] for row in rows] == [-2, -1, 0, 1]
    assert [row[text] for row in rows] == ([text[::-1] for text in TEXTS] if name == "d.tar" else TEXTS)


def test_numbers(serialized, folder):
    columns = Columns(("text",), ("many", "share"))
    row = next(ROW_FILES[".array_record"](str(folder / "c.array_record"), columns))
    assert row == {"text": "first", "many": [1, -1, 1 << 40], "share": 0.25}


def test_the_checksum_of_a_length():
    """CRC-32C of the nine digits is 0xE3069283 in every table of CRCs."""
    crc = 0xE3069283
    assert records.masked_crc(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert records.crc_by_bytes(b"123456789") == crc


@pytest.mark.parametrize("size", [4 * 512, 4 * 512 + 100])
def test_a_tar_that_ends_early(folder, tmp_path, size):
    """Python's `tarfile` takes the end of the file, and a header that is cut, for the end of the tar."""
    (tmp_path / "a.tar").write_bytes((folder / "d.tar").read_bytes()[:size])
    with pytest.raises(UserError, match=r"a\.tar is damaged, or no tar"):
        list(stream.documents(stream.Slice(str(tmp_path / "a.tar")), Data(field="text")))


@pytest.mark.parametrize("place", [20, -10])
def test_a_changed_byte_of_a_record(folder, tmp_path, place):
    data = bytearray((folder / "a.tfrecord-00000-of-00002").read_bytes())
    data[place] ^= 1
    (tmp_path / "a.tfrecord").write_bytes(data)
    with pytest.raises(UserError, match=r"a\.tfrecord is damaged"):
        list(stream.documents(stream.Slice(str(tmp_path / "a.tfrecord")), Data()))


@pytest.mark.parametrize("name", FILES)
def test_what_is_wrong(folder, tmp_path, name):
    names = {"tar": "jpg, text, json"}.get(name.split(".")[1], "")
    with pytest.raises(UserError, match=rf"has no text column 'body' \(it has .*{names or 'text'}"):
        list(stream.documents(stream.Slice(str(folder / name)), Data(field="body")))
    data = (folder / name).read_bytes()
    for index, broken in enumerate((data[: len(data) * 2 // 3], b"no such file at all" * 9)):
        path = tmp_path / f"{index}{name}"
        path.write_bytes(broken)
        with pytest.raises(UserError, match="is damaged, or no|is not a whole .gz file|is no tf.Example"):
            list(stream.documents(stream.Slice(str(path)), Data()))
    with pytest.raises(UserError, match="does not exist"):
        list(stream.documents(stream.Slice(str(tmp_path / f"no{name}")), Data()))


def test_records_that_are_no_examples(serialized, tmp_path):
    for record, fault in {
        serialized[0][:40]: "is no tf.Example",
        b"\x0f\x0f\x0f": "is no tf.Example (a field of kind 7)",
        serialized[0].replace(b"first", b"\xff\xfe\xfd\xfc\xfb"): "text is not UTF-8 (byte 0)",
    }.items():
        (tmp_path / "a.tfrecord").write_bytes(framed(record))
        with pytest.raises(UserError) as error:
            list(stream.documents(stream.Slice(str(tmp_path / "a.tfrecord")), Data()))
        assert "a.tfrecord, record 1" in str(error.value)
        assert fault in str(error.value)
    data = bytearray(framed(serialized[0]))
    data[2] ^= 1
    (tmp_path / "b.tfrecord").write_bytes(data)
    with pytest.raises(UserError, match=r"b\.tfrecord is damaged, or no TFRecord file"):
        list(stream.documents(stream.Slice(str(tmp_path / "b.tfrecord")), Data()))

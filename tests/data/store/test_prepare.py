"""train.prepare: the same bytes however often it is interrupted, and a sentence for whatever is wrong."""

import bz2
import contextlib
import gzip
import json
import lzma
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from data.store import documents
from data.store.documents import write

from train import UserError, prepare
from train.data.store import layout, plans, request
from train.settings.schema import Data

pytestmark = pytest.mark.usefixtures("cache")

ROOT = Path(__file__).parents[3]
DOCUMENTS = documents.DOCUMENTS[:200]


@pytest.fixture(scope="module")
def texts(cache, tmp_path_factory):
    """Four files, and a tokenizer of them."""
    folder = tmp_path_factory.mktemp("texts")
    for part in range(4):
        write(folder / f"{part}.jsonl", DOCUMENTS[part::4])
    assert run(f"--data={folder}/*.jsonl", f"--to={folder}/first", "--tokenizer.vocab=300", "--sample=1000") == 0
    (folder / "first" / "tokenizer.json").rename(folder / "tokenizer.json")
    return folder


def run(*argv):
    """The exit code of the command, in this process unless a runner is named."""
    return prepare.main(["--length=32", "--runner=here", *argv])


def flags(texts, store):
    """A store of several pieces, each of several shards."""
    return [
        f"--data={texts}/*.jsonl",
        f"--to={store}",
        f"--tokenizer.path={texts}/tokenizer.json",
        "--shard=700",
        "--hold-out=0.1",
        "--length=32",
    ]


@pytest.fixture
def pieces(monkeypatch):
    """Each file is a piece of work."""
    monkeypatch.setattr(request, "PIECE", 5000)


def content(store):
    """The bytes of all files of a store."""
    return {str(path.relative_to(store)): path.read_bytes() for path in sorted(store.rglob("*")) if path.is_file()}


def ids_of(store, part):
    """The ids of every document of a part."""
    manifest = layout.read_manifest(store)
    documents = []
    for parts in manifest.sources.values():
        for shard in parts.get(part, ()):
            ids, ends = (
                np.fromfile(store / f"{shard.file}.bin", "<u2"),
                np.fromfile(store / f"{shard.file}.ends", "<u8"),
            )
            spans = plans.spans_of(ends, manifest.document_marks, marked=False)
            documents += [ids[start : start + size].tolist() for start, size in zip(*spans, strict=True)]
    return documents


def test_every_document_is_in_one_part(texts, tmp_path, pieces):
    assert run(*flags(texts, tmp_path / "store")) == 0
    tokenizer = layout.read_tokenizer(tmp_path / "store")
    expected = [
        tokenizer.encode(text, add_special_tokens=False).ids for part in range(4) for text in DOCUMENTS[part::4]
    ]
    train, valid = (ids_of(tmp_path / "store", part) for part in ("train", "valid"))
    assert 5 < len(valid) < 40
    held_out = [ids for ids in expected if ids in valid]
    assert valid == held_out
    assert train == [ids for ids in expected if ids not in valid]
    manifest = layout.read_manifest(tmp_path / "store")
    shards = manifest.sources["store"]["train"] + manifest.sources["store"]["valid"]
    assert sum(shard.bytes for shard in shards) == sum(len(text.encode()) for text in DOCUMENTS)
    assert len(manifest.sources["store"]["train"]) > 5


@pytest.mark.slow
def test_interruptions_change_no_byte(texts, tmp_path, pieces, monkeypatch):
    """Whatever file is the last to be complete: the next command goes on, and the store is the same."""
    assert run(*flags(texts, tmp_path / "a" / "store")) == 0
    expected, complete = content(tmp_path / "a" / "store"), layout.os.replace
    for last in range(0, len(expected), 9):
        store, files = tmp_path / str(last) / "store", iter(range(len(expected)))

        def replace(part, path, files=files, last=last):
            if next(files) == last:
                raise KeyboardInterrupt
            complete(part, path)

        monkeypatch.setattr(layout.os, "replace", replace)
        run(*flags(texts, store))
        monkeypatch.setattr(layout.os, "replace", complete)
        assert not list(store.rglob(f"{layout.UNFINISHED}*"))
        assert run(*flags(texts, store)) == 0
        assert content(store) == expected, last


def test_what_killed_processes_leave_is_removed(texts, tmp_path):
    store = tmp_path / "store"
    assert run(*flags(texts, store)) == 0
    dead = subprocess.Popen(["true"])
    dead.wait()
    host = layout.socket.gethostname()
    for process in (dead.pid, os.getpid()):
        (store / "store" / f"{layout.UNFINISHED}{host}-{process}-a.bin").touch()
    assert run(*flags(texts, store)) == 0
    assert [path.name for path in store.rglob(".part-*")] == [f"{layout.UNFINISHED}{host}-{os.getpid()}-a.bin"]


def test_parts_are_jobs(texts, tmp_path, pieces, capsys):
    assert run(*flags(texts, tmp_path / "a" / "store")) == 0
    store = tmp_path / "b" / "store"
    for part in (2, 1):
        assert not (store / layout.MANIFEST).exists()
        assert run(*flags(texts, store), f"--part={part}/2") == 0
        assert ("2 of 4 pieces are missing: run the other parts" in capsys.readouterr().err) == (part == 2)
    assert content(store) == content(tmp_path / "a" / "store")


def test_plans_are_added(texts, tmp_path, pieces):
    store = tmp_path / "store"
    assert run(*flags(texts, store)) == 0
    before = layout.read_manifest(store)
    assert run(f"--to={store}", "--length=16,64") == 0
    after = layout.read_manifest(store)
    assert after.digest == before.digest
    shard = after.sources["store"]["train"][0]
    assert {".rows-16-2", ".rows-32-0", ".rows-64-2"} <= shard.plans.keys()


def test_damage_is_found_and_mended(texts, tmp_path, pieces):
    store = tmp_path / "store"
    assert run(*flags(texts, store)) == 0
    expected = content(store)
    path = store / "store" / "00001-001.bin"
    path.write_bytes(path.read_bytes()[:-3] + b"abc")
    assert run(*flags(texts, store)) == 0
    assert content(store) != expected, "checksums are compared when one asks for it"
    assert run(*flags(texts, store), "--verify=true") == 0
    assert content(store) == expected


WRONG = {
    "no source": (["--data=NO/*.jsonl"], "no file matches"),
    "no store": (["--to="], "say where to make the store with --to=FOLDER"),
    "absent": ([], "is no store of tokens; name what to make it of with --data"),
    "column": (["--data=TEXTS/0.jsonl", "--data.field=body"], "has no text column 'body' (it has text)"),
    "ending": (
        ["--data=TEXTS/tokenizer.json"],
        "is not a .txt, .jsonl, .tsv, .csv, .parquet, .arrow, .tfrecord, .array_record, .tar file",
    ),
    "lengths": (["--length=7"], "--length=7 must be numbers from 8 to 1,048,576, joined by commas"),
    "part": (["--part=3/2"], "--part=3/2 must be i/n with i from 1 to n"),
    "names": (["--data=a=x,b"], "must be SOURCE, or NAME=SOURCE,NAME=SOURCE"),
    "labels": (["--data.label=x"], "--data.label is not for a store, which holds plain text; leave it out"),
    "hold out": (["--hold-out=1"], "--hold-out=1.0 must be from 0 to less than 1"),
    "dropout": (["--tokenizer.dropout=0.1"], "--tokenizer.dropout=0.1 needs text; a store has one segmentation"),
    "dask": (["--data=TEXTS/0.jsonl", "--runner=dask"], "--runner=dask needs the packages of pip install"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_flags(texts, tmp_path, name, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    argv, sentence = WRONG[name]
    assert (
        run(
            f"--to={tmp_path}/store",
            f"--tokenizer.path={texts}/tokenizer.json",
            *(word.replace("TEXTS", str(texts)) for word in argv),
        )
        == 2
    )
    error = capsys.readouterr().err
    assert sentence in error
    assert "Traceback" not in error


def test_a_store_is_of_one_request(texts, tmp_path, capsys):
    store = tmp_path / "store"
    assert run(*flags(texts, store)) == 0
    for change, sentence in {
        "--shard=500": "was begun with shard 700, and now it is 500; say the same again, or choose another --to",
        f"--data={texts}/0.jsonl": "was begun with file",
        "--data.split=line": "was begun with data.split file, and now it is line",
    }.items():
        assert run(*flags(texts, store), change) == 2
        assert sentence in capsys.readouterr().err


def test_a_store_without_text_may_be_begun_again(texts, tmp_path, capsys):
    store = tmp_path / "store"
    assert run(*flags(texts, store), "--data.field=body") == 2
    assert run(*flags(texts, store)) == 2
    assert f"say the same again, or remove {store}, which has no text yet" in capsys.readouterr().err


def test_verify_keeps_the_lengths_of_rows(texts, tmp_path):
    """A damaged shard is made again with all plans that it had."""
    store = tmp_path / "store"
    assert run(*flags(texts, store), "--length=32,48") == 0
    before = content(store)
    os.truncate(store / "store" / "00000-000.bin", 100)
    assert run(f"--to={store}", "--length=32", "--verify=true") == 0
    assert content(store) == before


DAMAGES = {
    "truncated": (lambda store: os.truncate(store / "store" / "00000-000.bin", 100), "has 100 bytes in place of"),
    "missing": (lambda store: (store / "store" / "00000-001.rows-32-2").unlink(), "rows-32-2 is missing; restore it"),
    "no folder": (lambda store: [path.unlink() for path in (store / "store").iterdir()], "is missing; restore it"),
    "incomplete": (lambda store: (store / layout.MANIFEST).unlink(), "is not complete: it has no manifest.json"),
    "manifest": (lambda store: (store / layout.MANIFEST).write_text("{"), "manifest.json is damaged"),
    "format": (lambda store: (store / layout.MANIFEST).write_text('{"format": 0}'), "was made by another version"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_stores(texts, tmp_path, name):
    store = tmp_path / "store"
    assert run(*flags(texts, store)) == 0
    damage, sentence = DAMAGES[name]
    damage(store)
    with pytest.raises(UserError) as error:
        layout.read_manifest(store)
    assert sentence in str(error.value)


def test_a_full_disk(texts, tmp_path, capsys, monkeypatch):
    """One sentence, and the next command goes on."""

    def full(handle):
        raise OSError(28, "No space left on device", str(tmp_path))

    with monkeypatch.context() as patch:
        patch.setattr(layout.os, "fsync", full)
        assert run(*flags(texts, tmp_path / "store")) == 2
        assert "the disk is full" in capsys.readouterr().err
    assert run(*flags(texts, tmp_path / "store")) == 0


COMPRESSED = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def zstd(data):
    import pyarrow

    return pyarrow.Codec("zstd").compress(data, asbytes=True)


@pytest.mark.parametrize("ending", [*COMPRESSED, ".zst"])
def test_compressed_files_of_several_members(texts, tmp_path, ending):
    compress = COMPRESSED.get(ending, zstd)
    data = (texts / "0.jsonl").read_bytes()
    (tmp_path / f"a.jsonl{ending}").write_bytes(compress(data[:1000]) + compress(data[1000:]))
    part = request.WorkPiece("a/0", (request.Slice(str(tmp_path / f"a.jsonl{ending}")),), 0)
    assert ["".join(document) for document in part.documents(Data())] == DOCUMENTS[0::4]
    (tmp_path / f"b.jsonl{ending}").write_bytes(compress(data)[:-9])
    part = request.WorkPiece("a/0", (request.Slice(str(tmp_path / f"b.jsonl{ending}")),), 0)
    with pytest.raises(UserError, match=rf"b\.jsonl\{ending} is not a whole \{ending} file .*; compress it again"):
        list(part.documents(Data()))


def test_columns(tmp_path):
    """Parquet, nested columns, both formats of Arrow, and a folder as `datasets` saves it."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import ipc, parquet

    table = pyarrow.table({"text": DOCUMENTS[:50], "meta": [{"body": text.upper()} for text in DOCUMENTS[:50]]})
    parquet.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "folder").mkdir()
    with ipc.new_stream(str(tmp_path / "folder" / "data.arrow"), table.schema) as stream:
        stream.write_table(table)
    with ipc.new_file(str(tmp_path / "b.arrow"), table.schema) as file:
        file.write_table(table)
    (tmp_path / "folder" / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))

    def read(name, **options):
        asked = request.Request.of(Data(source=str(tmp_path / name), **options), Path("s"), 0.0, 1)
        return ["".join(document) for piece in asked.pieces for document in piece.documents(asked.data)]

    for name in ("a.parquet", "folder", "b.arrow"):
        assert read(name) == DOCUMENTS[:50]
        assert read(name, field="meta.body") == [text.upper() for text in DOCUMENTS[:50]]
        with pytest.raises(UserError, match=r"has no text column 'no' \(it has text, meta\)"):
            read(name, field="no")
        with pytest.raises(UserError, match=r"has no text column 'meta.no' \(it has text, meta\)"):
            read(name, field="meta.no")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 or not")
    with pytest.raises(UserError, match="is damaged, or of another format"):
        read("bad.parquet")


def test_urls(texts):
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://bucket/a.jsonl.gz", "wb") as file:
        file.write(gzip.compress((texts / "1.jsonl").read_bytes()))
    asked = request.Request.of(Data(source="memory://bucket/*.gz"), Path("s"), 0.0, 1)
    assert ["".join(text) for piece in asked.pieces for text in piece.documents(asked.data)] == DOCUMENTS[1::4]


class HttpError(Exception):
    """As gcsfs raises it."""

    __module__ = "gcsfs.retry"


FAULTS = {
    "forbidden": (
        HttpError("user@x does not have storage.objects.get access\nmore"),
        "cannot be read: user@x does not",
    ),
    "rights": (PermissionError(13, "Forbidden"), "may not be read; give your account the right to read the bucket"),
    "silent": (TimeoutError(), "cannot be read: nothing answers; check the network"),  # as fsspec raises it
    "absent": (FileNotFoundError("gs://no"), "does not exist; give the path of a file"),
    "quota": (
        OSError("429: rate limit"),
        "429: rate limit; check the name of the bucket, the rights of your account and",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_buckets_that_cannot_be_read(tmp_path, name, monkeypatch, capsys):
    """Names are listed, or a file is opened: one sentence, and nothing is made."""
    fsspec = pytest.importorskip("fsspec")
    error, sentence = FAULTS[name]

    def refuse(*_, **__):
        raise error

    for method in ("glob", "_open"):
        with fsspec.open("memory://rights/a.jsonl", "wb") as file:
            file.write(b'{"text": "a"}\n')
        with monkeypatch.context() as patch:
            patch.setattr(fsspec.get_filesystem_class("memory"), method, refuse)
            assert run("--data=memory://rights/*.jsonl", f"--to={tmp_path}/{method}", "--tokenizer.vocab=300") == 2
        said = capsys.readouterr().err
        assert sentence in said
        assert "Traceback" not in said
        assert not list((tmp_path / method).rglob("*.bin")) if (tmp_path / method).exists() else True


@pytest.mark.parametrize("size", [100, 1000])
def test_large_files_of_lines_are_cut(tmp_path, monkeypatch, size):
    monkeypatch.setattr(request, "PIECE", size)
    write(tmp_path / "a.jsonl", DOCUMENTS[:30])
    (tmp_path / "b.txt").write_text("\r\n".join(DOCUMENTS[:30]), encoding="utf-8")
    for name in ("a.jsonl", "b.txt"):
        asked = request.Request.of(Data(source=str(tmp_path / name), split="line"), Path("s"), 0.0, 1)
        assert len(asked.pieces) > 1
        assert ["".join(text) for piece in asked.pieces for text in piece.documents(asked.data)] == DOCUMENTS[:30]


def test_the_tokenizer_of_a_run(texts, tmp_path, capsys):
    """A store of another tokenizer than that of --init is refused."""
    from train.data import documents as read_documents
    from train.data.store.texts import StoredText
    from train.screens.console import Log
    from train.settings import schema
    from train.tasks import resolve
    from train.text import tokenize

    store = tmp_path / "store"
    assert run(*flags(texts, store)) == 0
    other_tokenizer = tokenize.train(schema.Tokenizer(vocab=350), DOCUMENTS)
    with pytest.raises(UserError, match=r"holds tokens of another tokenizer \(.*\) than the model has \(.*\); make"):
        StoredText.of(str(store), ("train",)).tokens(other_tokenizer, marked=True)
    other_tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert run(*flags(texts, store), f"--tokenizer.path={tmp_path}/tokenizer.json") == 2
    assert "has another tokenizer" in capsys.readouterr().err
    named, _ = resolve.resolve(["--task=mlm", f"--tokenizer.path={tmp_path}/tokenizer.json"], None, None)
    unnamed, _ = resolve.resolve(["--task=mlm"], None, None)
    text = StoredText.of(str(store), ("train",))
    own, of_store = (read_documents.tokenizer_of(of_run, text, Log()) for of_run in (named, unnamed))
    assert tokenize.fingerprint(own) == tokenize.fingerprint(other_tokenizer)
    assert tokenize.fingerprint(of_store) == tokenize.fingerprint(text.tokenizer())
    assert "--tokenizer trains none" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["command", "worker"])
def test_kills(texts, tmp_path, victim):
    """kill -9 at any moment, TFM_KILLS times: nothing is lost, and the bytes are the same."""
    write(texts / "large.jsonl", DOCUMENTS * 150)
    options = [f"--tokenizer.path={texts}/tokenizer.json", "--shard=20000", "--workers=2"]

    def start(store):
        argv = [sys.executable, "-m", "train.prepare", f"--data={texts}/large.jsonl", f"--to={store}", *options]
        return subprocess.Popen(argv, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True)

    assert start(tmp_path / "a" / "store").wait() == 0
    expected = content(tmp_path / "a" / "store")
    shards = len(list((tmp_path / "a" / "store").glob("store/*.json")))
    attempts = int(os.environ.get("TFM_KILLS", 3))
    for attempt in range(attempts):
        store = tmp_path / str(attempt) / "store"
        process = start(store)
        while len(list(store.glob("store/*.json"))) < shards * attempt // attempts:
            time.sleep(0.02)
        time.sleep(0.1 * (attempt % 4))
        if victim == "worker":
            for child in children(process.pid):
                os.kill(child, signal.SIGKILL)
            assert process.wait() == 0
        else:
            process.kill()
            process.wait()
            assert start(store).wait() == 0
        assert content(store) == expected, attempt


def children(pid):
    """The workers of a command."""
    pids = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in pids if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


@pytest.mark.slow
def test_dask(texts, tmp_path):
    """Workers in processes of their own, one of which is killed: the store is that of this process."""
    distributed = pytest.importorskip("distributed")
    write(texts / "dask.jsonl", DOCUMENTS * 40)
    options = [f"--data={texts}/dask.jsonl", f"--tokenizer.path={texts}/tokenizer.json", "--shard=9000", "--length=32"]
    assert run(*options, f"--to={tmp_path}/a/store") == 0
    with distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster:
        argv = [sys.executable, "-m", "train.prepare", *options, f"--to={tmp_path}/b/store", "--runner=dask"]
        argv.append(f"--dask.scheduler={cluster.scheduler_address}")
        process = subprocess.Popen(argv, cwd=ROOT, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        while process.poll() is None and not list((tmp_path / "b").rglob("00000-00*.json")):
            time.sleep(0.05)
        with distributed.Client(cluster) as client:
            pids = client.run(os.getpid)
            busy = [worker for worker, keys in client.processing().items() if keys]
        for worker in busy:
            os.kill(pids[worker], signal.SIGKILL)
        assert process.wait(120) == 0
    assert content(tmp_path / "b" / "store") == content(tmp_path / "a" / "store")


@pytest.mark.slow
def test_a_scheduler_is_killed(texts, tmp_path):
    """kill -9 of the scheduler of Dask, TFM_KILLS times: the command says so, and with a new one nothing is lost."""
    pytest.importorskip("distributed")
    write(texts / "killed.jsonl", DOCUMENTS * 40)
    argv = [f"--data={texts}/killed.jsonl", f"--tokenizer.path={texts}/tokenizer.json", "--shard=9000", "--length=32"]
    assert run(*argv, f"--to={tmp_path}/a/store") == 0
    expected = content(tmp_path / "a" / "store")
    shards = len(list((tmp_path / "a" / "store").glob("store/*.json")))
    attempts = int(os.environ.get("TFM_KILLS", 2))
    for attempt in range(attempts):
        store = tmp_path / str(attempt) / "store"
        with dask() as (scheduler, start):
            process = start(*argv, f"--to={store}")
            while len(list(store.glob("store/*.json"))) < 1 + (shards - 2) * attempt // attempts:
                assert process.poll() is None
                time.sleep(0.02)
            scheduler.kill()
            err = process.communicate(timeout=100)[1]
        assert process.returncode == 2
        assert err.splitlines()[-1].startswith("error: the scheduler of Dask ended; start it again"), err
        assert not (store / layout.MANIFEST).exists()
        with dask() as (_, start):
            assert start(*argv, f"--to={store}").wait(100) == 0
        assert content(store) == expected, attempt


@contextlib.contextmanager
def dask():
    """A scheduler of Dask and a worker, in processes of their own; and a function that starts the command with them."""
    with socket.socket() as server:
        server.bind(("localhost", 0))
        address = f"tcp://localhost:{server.getsockname()[1]}"
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    roles = {"scheduler": ["--host", address], "worker": [address, "--nthreads=1", "--no-nanny", "--death-timeout=60"]}
    started = {
        role: subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.dask_{role}", *words, "--no-dashboard"],
            env=environ,
            stderr=subprocess.DEVNULL,
        )
        for role, words in roles.items()
    }

    def start(*argv):
        argv = [sys.executable, "-m", "train.prepare", *argv, "--runner=dask", f"--dask.scheduler={address}"]
        return subprocess.Popen(argv, cwd=ROOT, env=environ, stderr=subprocess.PIPE, text=True)

    try:
        yield started["scheduler"], start
    finally:
        for process in started.values():
            process.kill()
            process.wait()

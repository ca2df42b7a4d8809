"""Checkpoints in a bucket: what is read of them, who owns them, and a sentence for whatever a bucket refuses.

The bucket is a dictionary here; `test_emulator` has a server.
"""

import contextlib
import json
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pytest
import tensorstore
from etils.epath.backend import fsspec_backend
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry

from train import UserError
from train.files import buckets
from train.runs import bucket_claim, manifest
from train.runs.bucket_claim import Lease
from train.runs.checkpoint import disk_errors
from train.runs.saved import SavedCheckpoints
from train.settings import flags
from train.tasks.table import AnyRun

URL = "gs://bucket/runs/a"


class FakeBucket(MemoryFileSystem):
    """Objects by name, with the checksums that a bucket reports."""

    protocol = ("gs", "gcs")
    store, pseudo_dirs = {}, [""]

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(f"memory://{str(path).rpartition('://')[2]}")

    def find(self, path, detail=False, **kwargs):
        files = super().find(path, detail=True)
        return {name: info | {"crc32c": f"{zlib.crc32(self.cat_file(name)):x}"} for name, info in files.items()}


@pytest.fixture
def folder(monkeypatch):
    """Checkpoints 1 and 2, and 3, which was never finished."""
    for protocol in FakeBucket.protocol:
        monkeypatch.setitem(_registry, protocol, FakeBucket)
    fsspec_backend._get_filesystem.cache_clear()
    monkeypatch.setattr(FakeBucket, "store", {})
    monkeypatch.setattr(FakeBucket, "pseudo_dirs", [""])
    folder = buckets.open_folder(URL)
    for step in (1, 2, 3):
        for item in ("params", "opt"):
            (folder / str(step) / item / "d" / "array").write_bytes(bytes([step] * 100))
        (folder / str(step) / "note" / "metadata").write_text('{"best": null}')
        if step < 3:
            manifest.write(folder / str(step), step)
            (folder / str(step) / buckets.COMMITTED).write_text("")
    yield folder
    fsspec_backend._get_filesystem.cache_clear()


def test_a_checkpoint_counts_when_all_files_are_there(folder):
    saved, lines = SavedCheckpoints(folder), []
    saved.log_unfinished(lines.append)
    assert saved.steps == [1, 2]
    assert lines == ["checkpoint 3 was never finished; passing over it"]
    assert saved.damage(2, ["params", "opt"]) is None


def test_what_was_never_finished_goes_and_nothing_else(folder):
    (folder / "other" / "file").write_text("of somebody else")
    buckets.remove_unfinished(folder)
    assert {path.name for path in folder.iterdir()} == {"1", "2", "other"}
    assert buckets.unfinished_steps(folder) == []


@pytest.mark.parametrize(
    ("verify", "content", "reason"),
    [
        ("all", b"0" * 100, "params/d/array differs from its checksum"),
        ("none", b"0" * 100, None),
        ("none", b"0", "params/d/array has not the size that manifest.json says"),
        ("none", None, "params/d/array is missing"),
    ],
)
def test_damage_is_told_from_what_the_bucket_reports(folder, verify, content, reason):
    path = folder / "2" / "params" / "d" / "array"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert SavedCheckpoints(folder, verify).damage(2, ["params"]) == reason


def test_a_damaged_checkpoint_is_moved_aside(folder):
    for _ in range(2):
        saved = SavedCheckpoints(folder)
        saved._set_aside([2])
        assert saved.steps == [1]
        assert (folder / "damaged" / "2" / "params" / "d" / "array").read_bytes() == bytes([2] * 100)
        (folder / "2" / "params" / "d" / "array").write_bytes(bytes([2] * 100))
        assert SavedCheckpoints(folder).steps == [1]


@pytest.mark.parametrize("url", ["gs://bucket", "gs:/bucket/a", "bucket/a", "/a/b", "gs://bucket/a b", "s3://bucket/a"])
def test_what_is_no_folder_of_a_bucket_is_refused(url):
    with pytest.raises(UserError, match=rf"^--checkpoint.folder={url} must be gs://BUCKET/PATH; "):
        flags.build(AnyRun, {"checkpoint.folder": url})


def test_a_package_that_is_absent_is_named(monkeypatch):
    def absent(name):
        raise ImportError("gcsfs")

    monkeypatch.setattr(fsspec, "get_filesystem_class", absent)
    with pytest.raises(UserError, match=r"gs://a/b needs the package gcsfs: pip install 'tfm\[gcs\]'"):
        buckets.open_folder("gs://a/b")


# What TensorStore says.
RETRIED = "ABORTED: All 3 retry attempts failed"
FAULTS = {
    "PERMISSION_DENIED: refused [http_response_code='403']": "your account may not read and write there; give it the",
    f"{RETRIED}: refused [http_response_code='429']": "a quota or a rate of requests is used up; raise it, or save",
    "NOT_FOUND: Not Found [http_response_code='404']": "the bucket, or something in it, is absent; check the name",
    f"{RETRIED}: CURL error Could not resolve hostname [curl_code='6']": "it cannot be reached; check the network",
    f"{RETRIED}: refused [http_response_code='503']": "it cannot be reached; check the network",
    "DATA_LOSS: gs://bucket/runs/a/x": "Orbax failed; check the bucket and the network",
}


@pytest.mark.parametrize("message", FAULTS)
def test_faults_of_a_bucket_are_sentences(folder, message):
    with pytest.raises(UserError) as caught, disk_errors(folder):
        raise ValueError("Orbax failed") from RuntimeError(message)
    assert str(caught.value).startswith(f"{URL}: {FAULTS[message]}")
    assert str(caught.value).endswith("; its last whole checkpoint is kept: add --resume then")


def test_other_faults_pass(folder, tmp_path):
    for place, error in (
        (folder, ZeroDivisionError("404")),
        (folder, UserError("gs://")),
        (tmp_path, ValueError("HTTP response code: 403")),
    ):
        with pytest.raises(type(error)) as caught, disk_errors(place):
            raise error
        assert caught.value is error


@pytest.fixture
def leases(monkeypatch):
    """Makes leases on one object, as processes of different machines do."""
    monkeypatch.setattr(bucket_claim, "_LOOK", 0.01)
    monkeypatch.setattr(bucket_claim, "_EXPIRY", 0.1)
    monkeypatch.setattr(bucket_claim, "_machine", lambda: "")
    store = tensorstore.KvStore.open({"driver": "memory"}).result()
    return lambda: Lease(store, URL)


BELONGS = rf"{URL} belongs to process \d+ on .*, which saves checkpoints in it; wait until it ends, or choose another"


def test_one_of_several_becomes_the_owner(leases, monkeypatch):
    monkeypatch.setattr(bucket_claim, "_TOUCH", 0.02)
    monkeypatch.setattr(bucket_claim, "_EXPIRY", 10)

    def take(_):
        with contextlib.suppress(UserError):
            lease = leases()
            lease.take()
            release.enter_context(lease.kept())
            return lease

    with contextlib.ExitStack() as release, ThreadPoolExecutor(6) as threads:
        owners = [lease for lease in threads.map(take, range(6)) if lease]
        assert len(owners) == 1
        assert owners[0].touch()


def test_an_owner_that_lives_keeps_the_folder(leases, monkeypatch, capsys):
    monkeypatch.setattr(bucket_claim, "_TOUCH", 0.02)
    monkeypatch.setattr(bucket_claim, "_EXPIRY", 10)
    owner = leases()
    owner.take()
    with owner.kept(), pytest.raises(UserError, match=BELONGS):
        leases().take()
    assert "looking for 10 s whether it lives" in capsys.readouterr().err


def test_an_owner_that_is_gone_loses_it(leases):
    gone, heir = leases(), leases()
    gone.take()
    heir.take()
    assert heir.touch()
    assert not gone.touch()
    gone.drop()
    assert heir.touch(), "it was not the other's any more"
    heir.drop()
    leases().take()


def test_an_answer_that_was_lost_does_not_cost_the_folder(leases):
    owner = leases()
    owner.take()
    before = owner._generation
    assert owner.touch()
    owner._generation = before
    assert owner.touch()


def test_a_process_of_this_machine_that_ended_is_gone(leases, monkeypatch):
    monkeypatch.setattr(bucket_claim, "_machine", lambda: "here")
    monkeypatch.setattr(bucket_claim, "_EXPIRY", 1e9)
    gone = leases()
    gone._sign["process"] = 2**22 + 1
    gone.take()
    assert json.loads(gone._read().value)["process"] == 2**22 + 1
    leases().take()


def test_without_a_url_nothing_is_claimed():
    with bucket_claim.claimed_bucket("", False):
        pass
    assert not buckets.is_bucket(Path())

"""A run folder has one owner, whatever happens to the processes that want it."""

import errno
import fcntl
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from train import UserError
from train.devices import distributed
from train.runs import claim
from train.runs.claim import OWNER, claimed_folder
from train.tasks.table import AnyRun

LIVES = r"belongs to process \d+ on .*, which trains in it; wait until it ends, or choose another folder with --out"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def everything(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("run", [AnyRun(preset="p"), AnyRun(out="a/b/c")])
def test_what_stays_empty_is_removed(home, run):
    with claimed_folder(run) as folder:
        assert json.loads((folder / OWNER).read_text())["process"] == os.getpid()
    assert everything(home) == []
    with pytest.raises(ZeroDivisionError), claimed_folder(run):
        raise ZeroDivisionError
    assert everything(home) == []


def test_what_was_there_or_has_content_stays(home):
    (home / "empty").mkdir()
    with claimed_folder(AnyRun(out="empty")):
        pass
    with claimed_folder(AnyRun(out="a/b")) as folder:
        (folder / "run.json").write_text("{}")
    assert everything(home) == ["a", "a/b", "a/b/run.json", "empty"]


def test_a_run_that_not_all_processes_see(home, monkeypatch):
    """One would go on, and another begin."""
    monkeypatch.setattr(distributed, "all_equal", lambda text: False)
    with pytest.raises(UserError, match="--out=a holds a run that not all processes see; give a folder that all"):
        claimed_folder(AnyRun(out="a", resume=True)).__enter__()
    assert everything(home) == []


def test_each_start_gets_a_folder_of_its_own(home):
    """Also those that start at the same moment."""

    def start(_):
        with claimed_folder(AnyRun(preset="p")) as folder:
            (folder / "mine").open("x").close()
            time.sleep(0.2)
            return str(folder)

    with ThreadPoolExecutor(8) as threads:
        names = list(threads.map(start, range(8)))
    assert sorted(names) == [f"runs/mlm-p-{index}" for index in range(1, 9)]


@pytest.mark.parametrize("resume", [True, False])
def test_a_live_owner_is_named(home, resume):
    """Before what else is wrong with the folder."""
    with claimed_folder(AnyRun(out="a")) as folder:
        (folder / "run.json").write_text("{}")
        before = everything(home)
        with pytest.raises(UserError, match=rf"^a {LIVES}$"), claimed_folder(AnyRun(out="a", resume=resume)):
            pass
        assert everything(home) == before
    with claimed_folder(AnyRun(out="a", resume=True)):
        pass
    with (
        pytest.raises(UserError, match="--out=a already holds something; choose another folder, or add --resume"),
        claimed_folder(AnyRun(out="a")),
    ):
        pass
    assert everything(home) == ["a", "a/run.json"]


HOLD = """
import sys, time
from train.runs.claim import claimed_folder
from train.tasks.table import AnyRun
with claimed_folder(AnyRun(preset="p")):
    print("claimed", flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_a_killed_owner_gives_way(home):
    """Its folder is free at once, though its signature is still in it."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", HOLD], env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "claimed\n"
        with pytest.raises(UserError, match=LIVES), claimed_folder(AnyRun(out="runs/mlm-p-1")):
            pass
        with claimed_folder(AnyRun(preset="p")) as folder:
            assert str(folder) == "runs/mlm-p-2"
        process.kill()
    assert everything(home) == ["runs", "runs/mlm-p-1", f"runs/mlm-p-1/{OWNER}"]
    with claimed_folder(AnyRun(preset="p")) as folder:
        assert str(folder) == "runs/mlm-p-1"
    assert everything(home) == ["runs", "runs/mlm-p-1"]


@pytest.mark.parametrize(
    ("machine", "age", "locks", "lives"),
    [
        ("here", 0, True, False),
        ("elsewhere", 5, True, True),
        ("elsewhere", 99, True, False),
        ("elsewhere", 5, False, True),
        ("here", 5, False, True),
        ("here", 99, False, False),
        (None, 99, True, False),
    ],
)
def test_an_owner_without_a_lock(home, monkeypatch, machine, age, locks, lives):
    """A lock of this machine's own is proof; without one, an owner lives while it touches its file."""

    def no_locks(handle, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    if not locks:
        monkeypatch.setattr(fcntl, "flock", no_locks)
    (home / "a").mkdir()
    machine = claim.machine() if machine == "here" else machine
    sign = json.dumps({"process": 7, "host": "h", "machine": machine}) if machine else "{damaged"
    (home / "a" / OWNER).write_text(sign)
    moment = time.time() - age
    os.utime(home / "a" / OWNER, (moment, moment))
    if lives:
        with pytest.raises(UserError, match="^a belongs to process 7 on h, which"), claimed_folder(AnyRun(out="a")):
            pass
        assert (home / "a" / OWNER).stat().st_mtime == pytest.approx(moment), "asking keeps nobody alive"
    else:
        with claimed_folder(AnyRun(out="a")):
            assert json.loads((home / "a" / OWNER).read_text())["process"] == os.getpid()


def test_an_owner_touches_its_file(home, monkeypatch):
    monkeypatch.setattr(claim, "_TOUCH", 0.01)
    with claimed_folder(AnyRun(out="a")) as folder:
        os.utime(folder / OWNER, (0, 0))
        deadline = time.time() + 10
        while (folder / OWNER).stat().st_mtime == 0 and time.time() < deadline:
            time.sleep(0.01)
        assert time.time() - (folder / OWNER).stat().st_mtime < 5


@pytest.mark.parametrize(
    ("out", "sentence"),
    [
        ("x" * 300, "cannot be made: File name too long"),
        ("file/deeper", "cannot be made: Not a directory"),
        ("file", "is a file"),
        ("/proc/nowhere/x", "cannot be made: No such file or directory"),
    ],
)
def test_places_where_no_folder_can_be(home, out, sentence):
    (home / "file").write_text("")
    with (
        pytest.raises(UserError, match=f"--out={out} {sentence}; choose another folder"),
        claimed_folder(AnyRun(out=out)),
    ):
        pass
    assert everything(home) == ["file"]

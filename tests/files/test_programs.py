"""Compiled programs are kept: whole, bounded, and by several processes."""

import os
import subprocess
import sys
import threading

import pytest

from train import exit_code
from train.devices import mesh
from train.files import programs as module
from train.files.programs import Programs

# A process that compiles a program, and one that is in use already.
SCRIPT = """
import sys
from train.files import programs
programs.keep()
import jax
print(jax.jit(lambda x: x * 2 + 1)(jax.numpy.arange(3.0)).tolist())
print(programs.summary().partition(" from ")[0])
"""


@pytest.fixture
def programs(tmp_path):
    return Programs(tmp_path / "programs", max_bytes=1000)


def names(programs):
    return sorted(path.name for path in programs.folder.iterdir())


def age(programs, key, seconds):
    os.utime(programs.folder / key, (seconds, seconds))


def test_a_program_is_what_was_put_in(programs):
    assert programs.get("a") is None
    programs.put("a", b"a program")
    assert programs.get("a") == b"a program"
    assert (programs.loaded, programs.requested) == (1, 2)


def test_the_summary_shortens_the_home(programs, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_programs", programs)
    programs.put("a", b"a program")
    programs.get("a")
    assert module.summary() == f"1 of 1 from {programs.folder}"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert module.summary() == "1 of 1 from ~/programs"


def test_a_damaged_program_is_replaced(programs):
    programs.put("a", b"a program")
    intact = (programs.folder / "a").read_bytes()
    for damaged in (b"", intact[:5], b"b" + intact[1:]):
        (programs.folder / "a").write_bytes(damaged)
        assert programs.get("a") is None
        programs.put("a", b"a program")
        assert (programs.folder / "a").read_bytes() == intact


def test_a_program_that_cannot_be_loaded_is_replaced(programs):
    """Whoever compiles what the cache has just returned could not use it."""
    programs.put("a", b"of another jaxlib")
    assert programs.get("a")
    programs.put("a", b"a program")
    assert programs.loaded == 0
    assert programs.get("a") == b"a program"


def test_the_oldest_goes_first(programs):
    for second, key in enumerate("abc", start=1):
        programs.put(key, bytes(300))
        age(programs, key, second)
    programs.get("a")
    programs.put("d", bytes(300))
    assert names(programs) == ["a", "c", "d"]
    programs.put("e", bytes(1001))
    assert names(programs) == ["a", "c", "d"]


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "programs").write_text("a file")
    programs = Programs(tmp_path / "programs")
    programs.put("a", b"a program")
    assert programs.get("a") is None


def test_threads_that_read_write_and_discard(programs):
    """What is read is whole or absent."""
    wrong = []

    def work():
        for round_ in range(30):
            for key in "abcdef":
                content = programs.get(key)
                if content not in (None, key.encode() * 300):
                    wrong.append((round_, key))
                programs.put(key, key.encode() * 300)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(names(programs)) <= 3


@pytest.mark.slow
def test_a_second_process_compiles_nothing(tmp_path):
    def run(**env):
        variables = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | env
        result = subprocess.run(
            [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, env=variables
        )
        assert result.stderr == ""
        return result.stdout.splitlines()

    first = run(TFM_CACHE=str(tmp_path))
    assert first[0] == "[1.0, 3.0, 5.0]"
    count = first[1].removeprefix("0 of ")
    assert run(TFM_CACHE=str(tmp_path)) == [first[0], f"{count} of {count}"]
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        path.write_bytes(path.read_bytes()[:-9])
    assert run(TFM_CACHE=str(tmp_path)) == first
    assert run(TFM_CACHE=str(tmp_path)) == [first[0], f"{count} of {count}"]
    assert run(TFM_CACHE="") == [first[0], ""]
    assert run(TFM_CACHE=str(tmp_path), JAX_COMPILATION_CACHE_DIR=str(tmp_path / "own")) == [first[0], ""]


def test_a_command_says_how_many_of_its_programs_were_kept(monkeypatch, capsys, tmp_path):
    """Those that it needed itself; one that needs none says nothing."""
    kept = Programs(tmp_path / "programs")
    kept.put("a", b"a program")
    kept.get("b")
    monkeypatch.setattr(module, "_programs", kept)
    assert exit_code(lambda argv: [kept.get(key) for key in argv], ["a", "c"]) == 0
    assert capsys.readouterr().err == f"programs: 1 of 2 from {kept.folder}\n"
    assert exit_code(lambda argv: None, []) == 0
    assert capsys.readouterr().err == ""


def test_whoever_asks_for_devices_keeps_programs(monkeypatch):
    """So do all commands, for they load a model or measure a job."""
    calls = []
    monkeypatch.setattr(module, "keep", lambda: calls.append("keep"))
    mesh.available_devices()
    assert calls == ["keep"]

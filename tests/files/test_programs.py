"""Compiled programs are kept: whole, bounded, and by several processes."""

import os
import subprocess
import sys
import threading

import pytest

from train import exit_code
from train.devices import mesh
from train.files import programs
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
def program_cache(tmp_path):
    return Programs(tmp_path / "programs", max_bytes=1000)


def names(program_cache):
    return sorted(path.name for path in program_cache.folder.iterdir())


def age(program_cache, key, seconds):
    os.utime(program_cache.folder / key, (seconds, seconds))


def test_a_program_is_what_was_put_in(program_cache):
    assert program_cache.get("a") is None
    program_cache.put("a", b"a program")
    assert program_cache.get("a") == b"a program"
    assert (program_cache.loaded, program_cache.requested) == (1, 2)


def test_the_summary_shortens_the_home(program_cache, tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "_programs", program_cache)
    program_cache.put("a", b"a program")
    program_cache.get("a")
    assert programs.summary() == f"1 of 1 from {program_cache.folder}"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert programs.summary() == "1 of 1 from ~/programs"


def test_a_damaged_program_is_replaced(program_cache):
    program_cache.put("a", b"a program")
    intact = (program_cache.folder / "a").read_bytes()
    for damaged in (b"", intact[:5], b"b" + intact[1:]):
        (program_cache.folder / "a").write_bytes(damaged)
        assert program_cache.get("a") is None
        program_cache.put("a", b"a program")
        assert (program_cache.folder / "a").read_bytes() == intact


def test_a_program_that_cannot_be_loaded_is_replaced(program_cache):
    """Whoever compiles what the cache has just returned could not use it."""
    program_cache.put("a", b"of another jaxlib")
    assert program_cache.get("a")
    program_cache.put("a", b"a program")
    assert program_cache.loaded == 0
    assert program_cache.get("a") == b"a program"


def test_the_oldest_goes_first(program_cache):
    for second, key in enumerate("abc", start=1):
        program_cache.put(key, bytes(300))
        age(program_cache, key, second)
    program_cache.get("a")
    program_cache.put("d", bytes(300))
    assert names(program_cache) == ["a", "c", "d"]
    program_cache.put("e", bytes(1001))
    assert names(program_cache) == ["a", "c", "d"]


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "programs").write_text("a file")
    program_cache = Programs(tmp_path / "programs")
    program_cache.put("a", b"a program")
    assert program_cache.get("a") is None


@pytest.mark.slow
def test_threads_that_read_write_and_discard(program_cache):
    """What is read is whole or absent."""
    wrong = []

    def work():
        for round_ in range(30):
            for key in "abcdef":
                content = program_cache.get(key)
                if content not in (None, key.encode() * 300):
                    wrong.append((round_, key))
                program_cache.put(key, key.encode() * 300)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(names(program_cache)) <= 3


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
    monkeypatch.setattr(programs, "_programs", kept)
    assert exit_code(lambda argv: [kept.get(key) for key in argv], ["a", "c"]) == 0
    assert capsys.readouterr().err == f"programs: 1 of 2 from {kept.folder}\n"
    assert exit_code(lambda argv: None, []) == 0
    assert capsys.readouterr().err == ""


def test_whoever_asks_for_devices_keeps_programs(monkeypatch):
    """So do all commands, for they load a model or measure a job."""
    calls = []
    monkeypatch.setattr(programs, "keep", lambda: calls.append("keep"))
    mesh.available_devices()
    assert calls == ["keep"]

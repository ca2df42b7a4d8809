"""Errors of the operating system are one sentence, whatever they are and wherever they arise."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from train import exit_code

ENV = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.mark.parametrize(
    ("refused", "sentence"),
    [
        (lambda: Path("x" * 300).read_text(), "cannot be read or written: File name too long; choose a shorter name"),
        (lambda: Path("/").read_text(), "/ cannot be read or written: Is a directory; check the path"),
        (lambda: Path("file/deeper").read_text(), "file/deeper cannot be read or written: Not a directory"),
        (lambda: Path("absent").read_text(), "absent cannot be read or written: No such file or directory"),
        (lambda: os.mkdir("/proc/x"), "/proc/x cannot be read or written: No such file or directory"),
        (lambda: os.read(99, 1), "a file cannot be read or written: Bad file descriptor"),
    ],
)
def test_what_the_system_refuses(tmp_path, monkeypatch, capsys, refused, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    assert exit_code(lambda argv: refused(), []) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("error: ")
    assert sentence in err


@pytest.mark.parametrize("code", errno.errorcode)
def test_every_error(capsys, code):
    def refused(argv):
        raise OSError(code, os.strerror(code), "a/b")

    assert exit_code(refused, []) == 2
    err = capsys.readouterr().err
    assert "a/b" in err
    assert err.count("\n") == 1
    assert os.strerror(code) in err or "the disk is full (a/b); free some space" in err


def test_an_error_that_no_call_of_the_system_made(capsys):
    def refused(argv):
        raise OSError("a library's own")

    with pytest.raises(OSError, match="a library's own"):
        exit_code(refused, [])


SPEAK = "import sys; from train import exit_code; sys.exit(exit_code(lambda argv: print('x' * 99_999), []))"


@pytest.mark.parametrize("place", ["/dev/full", "a pipe that nobody reads"])
def test_nobody_takes_the_output(place):
    """Nothing else is said at the end of the process."""
    if place == "/dev/full":
        stdout = os.open(place, os.O_WRONLY)
    else:
        reader, stdout = os.pipe()
        os.close(reader)
    process = subprocess.run([sys.executable, "-c", SPEAK], stdout=stdout, stderr=subprocess.PIPE, text=True, env=ENV)
    os.close(stdout)
    assert process.returncode == 2
    (sentence,) = process.stderr.splitlines()
    assert sentence.startswith("error: ")

"""The commands. Everything with side effects lives here: files, clocks, printing, devices."""

import errno
import os
import sys
from collections.abc import Callable, Sequence

from train import interruption


class UserError(Exception):
    """Bad usage or bad input: one plain sentence that says what is wrong, where, and what to do."""


class DivergedError(UserError):
    """A run fails: what it computes is not finite."""


class OutOfMemoryError(UserError):
    """A run fails: memory is too small for it."""


# Characters of an error: of a file that is no table, a line may be a name.
_MAX_LENGTH = 2000

# The module of compiled programs; a command that needs none, such as `--help`, does not import it.
_PROGRAMS = "train.files.programs"


def sentence(error: Exception) -> str:
    """What an error says, in one line of bounded length."""
    text = " ".join(str(error).splitlines())
    return text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH // 2]} ... {text[-_MAX_LENGTH // 2 :]}"


def exit_code(command: Callable[[Sequence[str]], None], argv: Sequence[str] | None) -> int:
    """Runs a command: 0, 2 with one sentence on stderr for bad input and for errors of the operating system, 130 after
    Ctrl-C, 143 after SIGTERM. Any other exception is our own bug and passes.

    A command that needed compiled programs says on stderr how many of them were kept by earlier ones.
    """
    earlier = sys.modules.get(_PROGRAMS)
    before = earlier.count() if earlier else (0, 0)
    with interruption.handled() as outcome:
        try:
            command(sys.argv[1:] if argv is None else argv)
            sys.stdout.flush()
            if (programs := sys.modules.get(_PROGRAMS)) and (kept := programs.summary(before)):
                print(f"programs: {kept}", file=sys.stderr)
        except UserError as error:
            print(f"error: {sentence(error)}", file=sys.stderr)
            outcome.code = 2
        except OSError as error:
            if error.errno is None:
                raise  # a library's, or our own: it comes from no call of the system
            _abandon_stdout()
            print(f"error: {_os_error_sentence(error)}", file=sys.stderr)
            outcome.code = 2
    return outcome.code


def _os_error_sentence(error: OSError) -> str:
    """What the operating system refused, for which file, and what to do."""
    name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full{name and f' ({name})'}; free some space and run the command again"
    remedies = {
        errno.EACCES: "change its permissions, or choose another place",
        errno.EPERM: "change its permissions, or choose another place",
        errno.EROFS: "choose a place that can be written",
        errno.ENAMETOOLONG: "choose a shorter name",
        errno.EPIPE: "let the program that reads the output read it to its end",
    }
    remedy = remedies.get(error.errno or 0, "check the path and the disk")
    return f"{name or 'a file'} cannot be read or written: {error.strerror}; {remedy}"


def _abandon_stdout():
    """Sends what stdout still holds nowhere, if nobody takes it: Python would fail again at its exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

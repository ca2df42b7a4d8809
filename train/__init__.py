"""The commands. Everything with side effects lives here: files, clocks, printing, devices."""

import errno
import sys
from collections.abc import Callable, Sequence


class UserError(Exception):
    """Bad usage or bad input: one plain sentence that says what is wrong, where, and what to do."""


def exit_code(command: Callable[[Sequence[str]], None], argv: Sequence[str] | None) -> int:
    """Runs a command: 0, 2 with one sentence on stderr for bad input, 130 after Ctrl-C. Any other exception is our own
    bug and passes."""
    try:
        command(sys.argv[1:] if argv is None else argv)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        where = f" ({error.filename})" if error.filename else ""
        print(f"error: the disk is full{where}; free some space and run the command again", file=sys.stderr)
        return 2
    return 0

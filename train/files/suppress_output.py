"""Silence for libraries that talk too much."""

import contextlib
import io
import logging
import os
import sys
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def quietly(logger: str) -> Iterator[None]:
    """Holds back prints, warnings, a logger by name, and what C++ writes past Python to the standard error stream of the process."""
    talker, sink = logging.getLogger(logger), io.StringIO()
    level = talker.level
    sys.stderr.flush()
    stderr = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        talker.setLevel(logging.CRITICAL + 1)
        with warnings.catch_warnings(), contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
            warnings.simplefilter("ignore")
            yield
    finally:
        talker.setLevel(level)
        os.dup2(stderr, 2)
        os.close(stderr)

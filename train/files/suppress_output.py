"""Silence for libraries that print and log."""

import contextlib
import io
import logging
import os
import sys
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def suppress_output(logger: str) -> Iterator[None]:
    """Suppresses prints, warnings, the logger of that name, and what C++ code writes to stderr directly."""
    library = logging.getLogger(logger)
    level = library.level
    sink = io.StringIO()
    sys.stderr.flush()
    stderr = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        library.setLevel(logging.CRITICAL + 1)
        with warnings.catch_warnings(), contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
            warnings.simplefilter("ignore")
            yield
    finally:
        library.setLevel(level)
        os.dup2(stderr, 2)
        os.close(stderr)

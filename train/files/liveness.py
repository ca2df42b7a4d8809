"""Whether a process is still there."""

import contextlib
import os
from pathlib import Path


def is_gone(process: int) -> bool:
    """Whether no process of this machine has this number, or one that has ended and that nobody waits for: the first
    process of a container often waits late or never."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    with contextlib.suppress(OSError):
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "Z"
    return False

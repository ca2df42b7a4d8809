"""Compiled programs, kept between commands: jax's compilation cache in the folder `programs` of TFM_CACHE.

jax makes the key of a program: it covers the computation, the options and flags of the compiler, the devices and the
versions of jax and jaxlib. The processor and its features are the name of a folder. An entry has a checksum and takes
its name when it is complete, so that several processes may share the folder; a damaged one is compiled again and
replaced. `TFM_CACHE=` keeps no programs, and a JAX_COMPILATION_CACHE_DIR of the user's stays in charge.
"""

import contextlib
import hashlib
import os
import platform
import time
import warnings
from pathlib import Path

from train.files import cache

# Bytes that the programs of one processor may take; the oldest go first. A step takes about 1 MB.
MAX_BYTES = 1 << 30

# Seconds after which nobody writes an entry any more.
_PATIENCE = 3600

# Lines of /proc/cpuinfo that say what a processor can do.
_FEATURES = ("vendor_id", "model name", "flags", "CPU implementer", "CPU part", "Features")


class Programs:
    """A folder of compiled programs, with the methods that jax's compilation cache calls."""

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES):
        self.folder, self.max_bytes = folder, max_bytes
        self.loaded = self.requested = 0
        self._read: set[str] = set()

    @property
    def _path(self) -> Path:
        """The folder, under the name by which jax logs it."""
        return self.folder

    def get(self, key: str) -> bytes | None:
        """The program of a key; None if there is none, or a damaged one."""
        self.requested += 1
        with contextlib.suppress(OSError):
            content = cache.read(self.folder / key)
            if content is not None:
                os.utime(self.folder / key)
                self.loaded += 1
                self._read.add(key)
                return bytes(content)
        return None

    def put(self, key: str, value: bytes):
        """Keeps a program that was just compiled, and discards the oldest if there are too many.

        A disk that is full, or cannot be written, keeps nothing.
        """
        if len(value) > self.max_bytes:
            return
        with contextlib.suppress(OSError):
            if key in self._read:  # it is intact, and yet this jax could not load it
                self.loaded -= 1
                self._read.remove(key)
                (self.folder / key).unlink(missing_ok=True)
            cache.write(self.folder / key, value)
            self._discard_oldest()

    def _discard_oldest(self):
        """Removes what was not used for longest, until the rest fits; another process may do so at the same time."""
        with os.scandir(self.folder) as entries:
            stats = [(entry.stat(), entry.path) for entry in entries if not _is_in_progress(entry)]
        excess = sum(stat.st_size for stat, _ in stats) - self.max_bytes
        for stat, path in sorted(stats, key=lambda item: item[0].st_mtime_ns):
            if excess <= 0:
                return
            Path(path).unlink(missing_ok=True)
            excess -= stat.st_size


def _is_in_progress(entry: os.DirEntry[str]) -> bool:
    """Whether a process writes this entry now; what a process that was killed has left is older."""
    return entry.name.startswith(cache.PART) and time.time() - entry.stat().st_mtime < _PATIENCE


_programs: Programs | None = None


def keep():
    """Programs that are compiled from now on are kept, and those of earlier commands are loaded."""
    global _programs
    import jax
    from jax._src import compilation_cache

    chosen = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    if _programs or os.environ.get("TFM_CACHE") == "" or chosen:
        return
    folder = cache.cache_dir() / "programs" / _processor()
    _programs = programs = Programs(folder)
    # jax's own file cache neither checks its entries nor writes them whole, and replaces none that is damaged.
    compilation_cache.get_file_cache = lambda path: (programs, path)  # type: ignore
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache entry")


def count() -> tuple[int, int]:
    """How many programs of this process came from the cache, and how many it needed."""
    return (_programs.loaded, _programs.requested) if _programs else (0, 0)


def summary(before: tuple[int, int] = (0, 0)) -> str:
    """How many programs came from the cache since `count` was `before`; empty if none were needed, or none are kept.

    Of several processes, the first speaks for all.
    """
    loaded, requested = (now - then for now, then in zip(count(), before, strict=True))
    if not _programs or not requested or _is_other_process():
        return ""
    folder, home = Path(_programs.folder).absolute(), Path.home()
    shown = Path("~", folder.relative_to(home)) if folder.is_relative_to(home) else folder
    return f"{loaded} of {requested} from {shown}"


def _is_other_process() -> bool:
    """Whether this is one of several processes, and not the first."""
    import jax

    return jax.process_index() > 0


def _processor() -> str:
    """A hash of this processor and its features: a program for one need not run on another."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    features = sorted({line for line in lines if line.startswith(_FEATURES)})
    text = "\n".join([platform.system(), platform.machine(), *features])
    return hashlib.sha256(text.encode()).hexdigest()[:16]

"""Files that are mapped into memory, and pages of them that are read before they are needed."""

import collections
import mmap
import resource

import numpy as np

from train import UserError

# Files that stay mapped: the addresses of a process and the limit of open maps have room for these.
_MAPPED = 4096

# That pages are needed; 0 on systems that cannot be told.
_NEEDED: int = getattr(mmap, "MADV_WILLNEED", 0)


class MappedFiles:
    """Files that are mapped when they are first read; the first ones are given up where there are too many."""

    def __init__(self):
        self._maps: collections.OrderedDict[str, mmap.mmap] = collections.OrderedDict()
        self._blocks: dict[str, int] = {}

    def array(self, path: str, dtype: str, offset: int = 0, count: int = -1) -> np.ndarray:
        """An array in a file, from a byte on."""
        try:
            return np.frombuffer(self._mapped(path), dtype, count, offset)
        except ValueError as error:
            raise UserError(f"{path} is shorter than the manifest says; restore it, or make it again") from error

    def is_read(self, ending: str) -> bool:
        """Whether this thread has read from a disk since the last call for such files, or this is the first. Then more
        of them is not in memory, and `fetch` pays."""
        before, self._blocks[ending] = self._blocks.get(ending), _blocks_read()
        return self._blocks[ending] != before and _NEEDED != 0

    def fetch(self, path: str, starts: np.ndarray, sizes: np.ndarray | int) -> None:
        """Has the pages with these bytes [N] read, all at once: page faults wait for them one by one."""
        mapped, pages = self._mapped(path), starts - starts % mmap.PAGESIZE
        for page, size in zip(pages.tolist(), (starts + sizes - pages).tolist(), strict=True):
            mapped.madvise(_NEEDED, page, size)

    def _mapped(self, path: str) -> mmap.mmap:
        mapped = self._maps.get(path)
        if mapped is None:
            try:
                with open(path, "rb") as file:
                    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except FileNotFoundError as error:
                raise UserError(f"{path} is missing; restore it, or make it again with train.prepare") from error
            self._maps[path] = mapped
            if len(self._maps) > _MAPPED:
                self._maps.popitem(last=False)
        return mapped


def _blocks_read() -> int:
    """Blocks that were read from a disk for this thread, and page faults that waited for it."""
    usage = resource.getrusage(getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF))
    return usage.ru_inblock + usage.ru_majflt

"""What a command shows on stderr: lines, tables and progress."""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

# Seconds between two lines about work that takes long.
PATIENCE = 20


class Log:
    """Progress on stderr: bars on a terminal, plain lines elsewhere; nothing if `quiet`."""

    def __init__(self, quiet: bool = False):
        terminal = False if "ipykernel" in sys.modules else None  # cells of a notebook show plain lines
        self.console = Console(
            stderr=True, highlight=False, soft_wrap=True, force_jupyter=False, force_terminal=terminal, quiet=quiet
        )

    def info(self, text: str):
        """One line."""
        self.console.print(text, markup=False)

    def table(self, title: str, rows: Mapping[str, object]):
        """Names and values in two columns."""
        self.info(title)
        width = max(map(len, rows), default=0)
        for name, value in rows.items():
            self.console.print(Text.assemble((f"{name:<{width}}", "dim"), f"  {value}"))

    @contextmanager
    def progress(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """A bar for work of `total` units; yields the function that advances it."""
        if not self.console.is_terminal:
            self.info(title)
            yield lambda units: None
            return
        columns = (TextColumn(title), BarColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self.console, transient=True) as bar:
            task = bar.add_task(title, total=total)
            yield lambda units: bar.advance(task, units)

    @contextmanager
    def waiting(self, title: str) -> Iterator[None]:
        """Shows how long work of unknown length has taken: a spinner on a terminal, elsewhere a line now and then."""
        self.info(title)
        if self.console.is_terminal:
            with Progress(SpinnerColumn(), TimeElapsedColumn(), console=self.console, transient=True) as bar:
                bar.add_task("", total=None)
                yield
            return
        began = time.perf_counter()
        done = threading.Event()

        def remind():
            while not done.wait(PATIENCE):
                self.info(f"... {time.perf_counter() - began:.0f} s so far")

        reminder = threading.Thread(target=remind, daemon=True)
        reminder.start()
        try:
            yield
        finally:
            done.set()
            reminder.join()


def human_bytes(size: float) -> str:
    """Bytes as people read them: 1.5 GB, 800 MB."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.0f} MB"

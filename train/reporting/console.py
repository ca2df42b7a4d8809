"""What a run shows and records: tables and progress on stderr, metrics.jsonl, TensorBoard events, pictures."""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from train.reporting import plots
from train.runs.folder import METRICS

# Seconds between two lines about work that goes on.
PATIENCE = 20


class Log:
    """Progress on stderr: bars on a terminal, plain lines elsewhere; nothing where it is `quiet`."""

    def __init__(self, quiet: bool = False):
        notebook = "ipykernel" in sys.modules  # whose cells show plain lines, not what moves
        terminal = False if notebook else None
        self.console = Console(
            stderr=True, highlight=False, soft_wrap=True, force_jupyter=False, force_terminal=terminal, quiet=quiet
        )

    def info(self, text: str):
        """One line."""
        self.console.print(text, markup=False)

    def table(self, title: str, rows: Mapping[str, Any]):
        """Names and values in two columns."""
        self.info(title)
        width = max(map(len, rows), default=0)
        for name, value in rows.items():
            self.console.print(Text.assemble((f"{name:<{width}}", "dim"), f"  {value}"))

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """A bar for work of `total` units; yields the function that advances it."""
        if not self.console.is_terminal:
            self.info(what)
            yield lambda units: None
            return
        with Progress(
            TextColumn(what), BarColumn(), TimeRemainingColumn(), console=self.console, transient=True
        ) as bar:
            task = bar.add_task(what, total=total)
            yield lambda units: bar.advance(task, units)

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Work of unknown length, and how long it has taken: a spinner on a terminal, elsewhere a line now and then."""
        self.info(what)
        if self.console.is_terminal:
            with Progress(SpinnerColumn(), TimeElapsedColumn(), console=self.console, transient=True) as bar:
                bar.add_task("", total=None)
                yield
            return
        began, over = time.perf_counter(), threading.Event()

        def remind():
            while not over.wait(PATIENCE):
                self.info(f"... {time.perf_counter() - began:.0f} s so far")

        reminder = threading.Thread(target=remind, daemon=True)
        reminder.start()
        try:
            yield
        finally:
            over.set()
            reminder.join()


class Clock:
    """Time spent on steps, without pauses."""

    def __init__(self):
        self._steps = self._lap_steps = 0
        self._began = self._lap_began = time.perf_counter()

    def tick(self):
        """A step is on its way."""
        self._steps += 1
        self._lap_steps += 1

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Time that does not count: compiling, evaluation, saving."""
        began = time.perf_counter()
        yield
        paused = time.perf_counter() - began
        self._began, self._lap_began = self._began + paused, self._lap_began + paused

    def lap(self) -> float:
        """Seconds a step since the last lap; 0 where there was none."""
        now, steps = time.perf_counter(), self._lap_steps
        seconds = (now - self._lap_began) / steps if steps else 0.0
        self._lap_began, self._lap_steps = now, 0
        return seconds

    def left(self, steps: int) -> str:
        """How long so many more steps take, as h:mm:ss."""
        if not self._steps:
            return "?"
        seconds = round((time.perf_counter() - self._began) / self._steps * steps)
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


class Recorder:
    """The lines of one run: on stderr, in metrics.jsonl and in tensorboard/. Lines after step `start` are dropped: they will come again."""

    def __init__(self, log: Log, folder: Path, start: int, stop: int):
        from tensorboardX import SummaryWriter

        self.log, self.folder, self.stop, self.clock = log, folder, stop, Clock()
        path = folder / METRICS
        kept = [line for line in read_lines(path) if line["step"] <= start]
        path.write_text("".join(json.dumps(line) + "\n" for line in kept))
        self._file = path.open("a", buffering=1)
        self._events = SummaryWriter(str(folder / "tensorboard"), purge_step=start + 1)
        columns = (
            TextColumn("{task.completed}/{task.total}"),
            BarColumn(bar_width=12),
            TextColumn("{task.fields[shown]}"),
        )
        self._bar = Progress(*columns, console=log.console, disable=not log.console.is_terminal)
        self._task = self._bar.add_task("", total=stop, completed=start, shown="compiling")
        self._bar.start()

    def tick(self, step: int, timed: bool = True):
        """A step was handed to the device; one during which the clock paused is not timed."""
        if timed:
            self.clock.tick()
        self._bar.update(self._task, completed=step)

    def line(self, split: str, step: int, metrics: Mapping[str, float]):
        """One line of metrics, everywhere."""
        self._file.write(json.dumps({"step": step, "split": split, **metrics}) + "\n")
        for name, value in metrics.items():
            self._events.add_scalar(f"{split}/{name}", value, step)
        on_bar = split == "train" and self.log.console.is_terminal
        shown = [
            f"{name} {_shown(name, value)}"
            for name, value in metrics.items()
            if (name in _ON_BAR if on_bar else name not in _UNSHOWN)
        ]
        if split == "train":
            shown.append(f"left {self.clock.left(self.stop - step)}")
        if on_bar:
            self._bar.update(self._task, shown="  ".join(shown))
        else:
            self.log.info("  ".join([f"{split:<5} {step:>6}/{self.stop}", *shown]))

    def close(self):
        """Ends the bar, the files and the pictures."""
        self._bar.stop()
        self._file.close()
        self._events.close()
        plots.curves(list(read_lines(self.folder / METRICS)), self.folder)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of metrics.jsonl; a last one that was cut short is passed over."""
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            yield json.loads(line)
        except ValueError:
            return


# What a line leaves to metrics.jsonl, and what a bar of 80 columns has room for.
_UNSHOWN = ("perplexity", "grad_norm", "ms_per_step")
_ON_BAR = ("loss", "padding", "tokens_per_s")


def _shown(name: str, value: float) -> str:
    form = {"tokens_per_s": ",.0f", "rate": ".2e", "padding": ".1%", "mfu": ".1%"}.get(name, ".4f")
    return f"{value:{form}}"

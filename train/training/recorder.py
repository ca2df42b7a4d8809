"""What a run records: lines on stderr, metrics.jsonl, trackers, a progress bar, and the plots at the end."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType

from rich.progress import BarColumn, Progress, TextColumn

from train.runs.metrics_lines import MetricsFile, Written, read_lines
from train.runs.run_folder import METRICS
from train.screens import plots, trackers
from train.screens.console import Log

# Metrics that a line on stderr leaves to metrics.jsonl, and those that fit on a bar of 80 columns.
_NOT_SHOWN = ("perplexity", "grad_norm", "ms_per_step", "epochs/", "layers/")
_ON_BAR = ("loss", "padding", "tokens_per_s")

# How metrics are shown; others have four decimals.
_FORMATS = {
    "tokens_per_s": ",.0f",
    "rate": ".2e",
    "padding": ".1%",
    "mfu": ".1%",
    "loss_scale": ",.0f",
    "overflows": ".0f",
    "phase": ".0f",
}


class Recorder:
    """Writes the metrics of one run. Drops lines of metrics.jsonl after step `start`: the run writes them again.

    `written` says what was written before, and then with every line. `tracked` names the trackers that get the metrics
    too, with the configuration `config`.
    """

    def __init__(
        self,
        log: Log,
        folder: Path,
        start: int,
        stop: int,
        written: Written,
        tracked: Sequence[str] = ("tensorboard",),
        config: Mapping[str, object] = MappingProxyType({}),
    ):
        self.log, self.folder, self.stop = log, folder, stop
        self.clock = Clock()
        self._files = ExitStack()  # all are closed, even if the first cannot write what it holds
        self._metrics = self._files.enter_context(MetricsFile(folder / METRICS, start, written, log.info))
        subject = trackers.TrackedRun(folder, config, start + 1)
        self._track = self._files.enter_context(trackers.open_trackers(tracked, subject, log.info))
        columns = (
            TextColumn("{task.completed}/{task.total}"),
            BarColumn(bar_width=12),
            TextColumn("{task.fields[shown]}"),
        )
        self._bar = Progress(*columns, console=log.console, disable=not log.console.is_terminal)
        self._task = self._bar.add_task("", total=stop, completed=start, shown="compiling")
        self._bar.start()

    def tick(self, step: int, timed: bool):
        """A step was handed to the device; the time of one that was compiled does not count."""
        if timed:
            self.clock.tick()
        else:
            self.clock.discard()
        self._bar.update(self._task, completed=step)

    def write(self, split: str, step: int, metrics: Mapping[str, float]):
        """One line of metrics, everywhere."""
        self._metrics.write({"step": step, "split": split, **metrics})
        self._track({f"{split}/{name}": value for name, value in metrics.items()}, step)
        on_bar = split == "train" and self.log.console.is_terminal
        names = [name for name in metrics if (name in _ON_BAR if on_bar else not name.startswith(_NOT_SHOWN))]
        shown = [f"{name} {metrics[name]:{_FORMATS.get(name, '.4f')}}" for name in names]
        if split == "train":
            shown.append(f"left {self.clock.left(self.stop - step)}")
        if on_bar:
            self._bar.update(self._task, shown="  ".join(shown))
        else:
            self.log.info("  ".join([f"{split:<5} {step:>6}/{self.stop}", *shown]))

    def close(self):
        """Ends the bar and the files, and draws the plots."""
        self._bar.stop()
        self._files.close()
        lines = list(read_lines(self.folder / METRICS))
        plots.curves(lines, self.folder)
        plots.layers(lines, self.folder)


class Clock:
    """Time spent on steps, without pauses."""

    def __init__(self):
        self._steps = 0
        self._lap_steps = 0
        self._began = self._lap_began = self._mark = time.perf_counter()

    def tick(self):
        """A step was handed to the device."""
        self._steps += 1
        self._lap_steps += 1
        self._mark = time.perf_counter()

    def discard(self):
        """The time since the last tick, lap or pause does not count."""
        now = time.perf_counter()
        self._began += now - self._mark
        self._lap_began += now - self._mark
        self._mark = now

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Time that does not count: evaluation, saving."""
        self._mark = time.perf_counter()
        yield
        self.discard()

    def lap(self) -> float:
        """Seconds per step since the last lap; 0 if there was none."""
        now = time.perf_counter()
        seconds = (now - self._lap_began) / self._lap_steps if self._lap_steps else 0.0
        self._lap_began = self._mark = now
        self._lap_steps = 0
        return seconds

    def left(self, steps: int) -> str:
        """The time that the steps will take, as h:mm:ss."""
        if not self._steps:
            return "?"
        seconds = round((time.perf_counter() - self._began) / self._steps * steps)
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"

"""What a run shows and records: tables and progress on stderr, metrics.jsonl, TensorBoard events, pictures."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from train.run import METRICS


class Log:
    """Progress on stderr: bars on a terminal, plain lines elsewhere."""

    def __init__(self):
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)

    def say(self, text: str):
        """One line."""
        self.console.print(text, markup=False)

    def table(self, title: str, rows: Mapping[str, Any]):
        """Names and values in two columns."""
        table = Table(title=title, title_justify="left", show_header=False, box=None, pad_edge=False)
        table.add_column(style="dim")
        table.add_column()
        for name, value in rows.items():
            table.add_row(name, str(value))
        self.console.print(table)

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """A bar for work of `total` units; yields the function that advances it."""
        if not self.console.is_terminal:
            self.say(what)
            yield lambda units: None
            return
        with Progress(TextColumn(what), BarColumn(), TimeRemainingColumn(), console=self.console, transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda units: bar.advance(task, units)


class Recorder:
    """The lines of one run: on stderr, in metrics.jsonl and in tensorboard/. Lines after step `start` are dropped: they will come again."""

    def __init__(self, log: Log, folder: Path, start: int, stop: int, tokens: int):
        from tensorboardX import SummaryWriter

        self.log, self.folder, self.stop, self.tokens = log, folder, stop, tokens
        self.start = self.step = start
        self._began = self._mark = (0.0, start)
        path = folder / METRICS
        kept = [line for line in _lines(path) if line["step"] <= start]
        path.write_text("".join(json.dumps(line) + "\n" for line in kept))
        self._file = path.open("a", buffering=1)
        self._events = SummaryWriter(str(folder / "tensorboard"), purge_step=start + 1)
        self._bar = self._bar_or_none()

    def _bar_or_none(self) -> Progress | None:
        if not self.log.console.is_terminal:
            return None
        columns = (TextColumn("step {task.completed}/{task.total}"), BarColumn(), TextColumn("{task.fields[shown]}"))
        bar = Progress(*columns, console=self.log.console)
        self._task = bar.add_task("", total=self.stop, completed=self.start, shown="compiling")
        bar.start()
        return bar

    def tick(self, step: int):
        """A step was handed to the device. The clock starts after the first, which waits for compilation."""
        self.step = step
        if self._began == (0.0, self.start):
            self._began = self._mark = (time.perf_counter(), step)
        if self._bar:
            self._bar.update(self._task, completed=step)

    def speed(self) -> dict[str, float]:
        """Milliseconds a step and tokens a second since the last call, compilation left out; empty after the first step."""
        now = (time.perf_counter(), self.step)
        seconds, steps = now[0] - self._mark[0], now[1] - self._mark[1]
        self._mark = now
        return {"tokens_per_s": self.tokens * steps / seconds, "ms_per_step": 1000 * seconds / steps} if steps else {}

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Time spent inside, on evaluation or saving, does not count as training."""
        began = time.perf_counter()
        yield
        self._mark = (self._mark[0] + time.perf_counter() - began, self._mark[1])

    def line(self, split: str, step: int, metrics: Mapping[str, float]):
        """One line of metrics, everywhere."""
        self._file.write(json.dumps({"step": step, "split": split, **metrics}) + "\n")
        for name, value in metrics.items():
            self._events.add_scalar(f"{split}/{name}", value, step)
        shown = "  ".join(f"{name} {_shown(name, value)}" for name, value in metrics.items() if name not in ("perplexity", "grad_norm"))
        eta = self._eta()
        if self._bar and split == "train":
            self._bar.update(self._task, shown=f"{shown}  left {eta}")
        else:
            self.log.say(f"{split:<5} {step:>6}/{self.stop}  {shown}" + (f"  left {eta}" if split == "train" else ""))

    def _eta(self) -> str:
        done = self.step - self._began[1]
        seconds = (time.perf_counter() - self._began[0]) / done * (self.stop - self.step) if done else 0
        return time.strftime("%H:%M:%S", time.gmtime(seconds)) if done else "?"

    def close(self):
        """Ends the bar, the files and the pictures."""
        if self._bar:
            self._bar.stop()
        self._file.close()
        self._events.close()
        draw(self.folder)


def draw(folder: Path):
    """plots/loss.png and plots/lr.png from metrics.jsonl."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    lines = list(_lines(folder / METRICS))
    (folder / "plots").mkdir(exist_ok=True)
    for name, key, splits in (("loss", "loss", ("train", "eval")), ("lr", "rate", ("train",))):
        figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
        for split in splits:
            points = [(line["step"], line[key]) for line in lines if line["split"] == split and key in line]
            if points:
                axes.plot(*zip(*points, strict=True), label=split, marker="o" if len(points) < 30 else None, markersize=3)
        axes.set(xlabel="step", ylabel={"loss": "loss (nats per predicted token)", "lr": "learning rate"}[name])
        axes.grid(alpha=0.3)
        if len(splits) > 1:
            axes.legend(frameon=False)
        figure.savefig(folder / "plots" / f"{name}.png", dpi=120)
        pyplot.close(figure)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of metrics.jsonl; a last one that was cut short is passed over."""
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            yield json.loads(line)
        except ValueError:
            return


def _shown(name: str, value: float) -> str:
    if name in ("tokens_per_s", "ms_per_step"):
        return f"{value:,.0f}"
    return f"{value:.2e}" if name == "rate" else f"{value:.4f}"

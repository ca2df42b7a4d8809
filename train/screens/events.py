"""TensorBoard events: numbers by step, written by the thread that has them, so that its errors are raised there."""

import contextlib
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

_FLUSH = 30  # seconds


class Events:
    """A new file of events in a folder; TensorBoard then forgets what older files say of `first_step` and after."""

    def __init__(self, folder: Path, first_step: int):
        with _without_torch():
            from tensorboardX.proto.event_pb2 import Event, SessionLog
            from tensorboardX.record_writer import RecordWriter

        folder.mkdir(parents=True, exist_ok=True)
        self._file = RecordWriter(str(folder / f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}"))
        self._flushed = 0.0
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))
        start = SessionLog(status=SessionLog.START)
        self._write(Event(wall_time=time.time(), step=first_step, session_log=start))

    def add(self, metrics: Mapping[str, float], step: int):
        """Metrics of a step, by name."""
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self._write(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    def close(self):
        """Writes what it holds."""
        self._file.close()

    def _write(self, event):
        self._file.write(event.SerializeToString())
        if time.time() - self._flushed > _FLUSH:
            self._file.flush()
            self._flushed = time.time()


@contextlib.contextmanager
def _without_torch() -> Iterator[None]:
    """tensorboardX imports torch where it is installed, which takes seconds, and needs it for nothing that is used."""
    hides = "torch" not in sys.modules
    if hides:
        sys.modules["torch"] = None  # type: ignore[assignment]  # as if it were not installed
    try:
        yield
    finally:
        if hides:
            del sys.modules["torch"]

"""What the server counts, in the text format of Prometheus."""

import functools
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from train.lab.serve.abilities import Served


class Meters:
    """Counters of requests, tokens and faults, seconds of answers, and what waits."""

    def __init__(self, models: Sequence[Served]):
        self.registry = CollectorRegistry()
        registry = self.registry
        self._requests = Counter("tfm_requests", "requests by path and status", ["path", "status"], registry=registry)
        self._seconds = Histogram("tfm_seconds", "seconds until an answer begins", ["path"], registry=registry)
        self.read = Counter("tfm_tokens_read", "tokens of texts and prompts", registry=registry)
        self.faults = Counter("tfm_faults", "requests at which a model failed", registry=registry)
        waiting = Gauge("tfm_waiting", "texts that wait or are written, by model", ["model"], registry=registry)
        written = Gauge("tfm_tokens_written", "tokens that a language model has written", ["model"], registry=registry)
        for model in models:
            waiting.labels(model.name).set_function(functools.partial(_waiting, model))
            if model.writer is not None:
                written.labels(model.name).set_function(functools.partial(getattr, model.writer, "written"))

    def count(self, path: str, status: int, seconds: float):
        """Counts a request."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def text(self) -> bytes:
        """All of it."""
        return generate_latest(self.registry)


def _waiting(model: Served) -> int:
    return sum(work.waiting for work in model.works)

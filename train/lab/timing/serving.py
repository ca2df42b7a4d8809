"""A running server (`train.serve`) under load: requests a second, times of answers, and whether company changes one."""

from train import interruption

if __name__ == "__main__":
    interruption.install()

import asyncio
import itertools
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tfm.options.choices import check_minimum
from train import UserError, exit_code
from train.lab.serve.body import Json
from train.settings import flags

USAGE = """usage: python -m train.lab.timing.serving --path=/v1/embeddings --bodies=FILE.jsonl [--clients=32]

A line of the file is the body of a request. Each is first sent alone, then all again by many clients, until there are
enough requests. Prints a line of JSON for both: `lost` requests had no answer with status 200; `changed` ones had
another answer than alone. Numbers that differ by less than 1e-5 are equal. Needs httpx."""

# Fields of an answer that are new in each: names, times, and how the request was served.
_OF_THE_MOMENT = ("id", "created")

# Seconds that an answer may take.
_PATIENCE = 600


@dataclass(frozen=True)
class ServingOptions:
    """Which server, and what it is asked.

    url: where the server is
    path: what is asked of it
    bodies: a file with the body of a request a line
    clients: requests that are sent at a time
    requests: how many are sent
    rate: requests a second, at most; 0: as fast as answers come
    """

    url: str = "http://127.0.0.1:8000"
    path: str = "/v1/embeddings"
    bodies: str = ""
    clients: int = 32
    requests: int = 1000
    rate: float = 0.0

    def __post_init__(self):
        check_minimum(self, clients=1, requests=1, rate=0)


@dataclass
class Replies:
    """Answers to bodies, by the number of the body, and how they came."""

    seconds: list[float] = field(default_factory=list)
    answers: dict[int, Json] = field(default_factory=dict)
    lost: int = 0
    changed: int = 0
    tokens: int = 0
    wall: float = 0.0

    def row(self, clients: int) -> dict[str, Json]:
        """What is printed. `tokens_per_s` counts those that were written."""
        times = sorted(self.seconds) or [math.nan]
        quantiles = {f"ms_p{percent}": 1e3 * times[len(times) * percent // 100] for percent in (50, 99)}
        row = {"clients": clients, "requests": len(self.seconds), "lost": self.lost, "changed": self.changed}
        rates = {"requests_per_s": len(self.seconds) / self.wall, "tokens_per_s": self.tokens / self.wall}
        return row | {name: round(value, 2) for name, value in (rates | quantiles).items()}


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return exit_code(measure, argv)


def measure(argv: Sequence[str]):
    """Sends the bodies, alone and together."""
    options = flags.options(ServingOptions, USAGE, argv)
    if options is None:
        return
    bodies = _bodies(options.bodies)
    url = options.url.rstrip("/") + options.path
    alone = asyncio.run(_send(url, bodies, range(len(bodies)), 1, math.inf, {}))
    print(json.dumps(alone.row(1)), flush=True)
    order = itertools.islice(itertools.cycle(range(len(bodies))), options.requests)
    together = asyncio.run(_send(url, bodies, order, options.clients, options.rate or math.inf, alone.answers))
    print(json.dumps(together.row(options.clients)), flush=True)


def _bodies(path: str) -> list[Json]:
    try:
        bodies = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise UserError(f"--bodies={path} cannot be read as lines of JSON ({error})") from error
    if not bodies:
        raise UserError(f"--bodies={path} has no line; write the body of a request in each")
    return bodies


async def _send(
    url: str, bodies: Sequence[Json], order: Iterator[int] | range, clients: int, rate: float, expected: dict[int, Json]
) -> Replies:
    """Sends the bodies in this order, by so many clients at once; the n-th no sooner than after n / `rate` seconds."""
    import httpx

    replies, numbered, begin = Replies(), enumerate(order), time.perf_counter()

    async def work(client: httpx.AsyncClient):
        for n, row in numbered:
            await asyncio.sleep(begin + n / rate - time.perf_counter())
            start = time.perf_counter()
            try:
                response = await client.post(url, json=bodies[row], timeout=_PATIENCE)
            except httpx.HTTPError:
                replies.lost += 1
                continue
            replies.seconds.append(time.perf_counter() - start)
            if response.status_code != 200:
                replies.lost += 1
                continue
            answer = response.json()
            replies.tokens += answer.get("usage", {}).get("completion_tokens", 0)
            replies.answers.setdefault(row, answer)
            replies.changed += row in expected and not _same(answer, expected[row])

    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx.AsyncClient(limits=limits) as client:
        await asyncio.gather(*(work(client) for _ in range(clients)))
    replies.wall = time.perf_counter() - begin
    return replies


def _same(answer: Json, expected: Json) -> bool:
    """Whether two answers say the same."""
    if isinstance(answer, dict) and isinstance(expected, dict):
        names = (answer.keys() | expected.keys()) - {*_OF_THE_MOMENT}
        return all(_same(answer.get(name), expected.get(name)) for name in names)
    if isinstance(answer, list) and isinstance(expected, list):
        return len(answer) == len(expected) and all(map(_same, answer, expected))
    if isinstance(answer, float) and isinstance(expected, float):
        return math.isclose(answer, expected, rel_tol=1e-5, abs_tol=1e-5)
    return answer == expected


if __name__ == "__main__":
    sys.exit(main())

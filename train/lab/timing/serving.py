"""A running server (`train.serve`) under load: requests a second, times of answers, and whether company changes one.

    python -m train.lab.timing.serving --url=http://127.0.0.1:8000 --path=/v1/embeddings --bodies=FILE.jsonl

A line of the file is the body of a request. Each is first sent alone, then all again by many clients, until there are
enough requests. Prints a line of JSON for both: `lost` requests had no answer with status 200; `changed` ones had
another answer than alone. Numbers that differ by less than 1e-5 are equal. Needs httpx.
"""

import argparse
import asyncio
import itertools
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from train import UserError, exit_code
from train.lab.serve.body import Json

# Fields of an answer that are new in each: names, times, and how the request was served.
_OF_THE_MOMENT = ("id", "created")

# Seconds that an answer may take.
_PATIENCE = 600


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


def measure(argv: Sequence[str] | None):
    """Sends the bodies, alone and together."""
    parser = argparse.ArgumentParser(prog="train.lab.timing.serving", description=__doc__.splitlines()[0])
    parser.add_argument("--url", required=True)
    parser.add_argument("--path", required=True)
    parser.add_argument("--bodies", required=True, help="a file of JSON lines")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=math.inf, help="requests a second, at most")
    options = parser.parse_args(argv)
    bodies = _bodies(options.bodies)
    url = options.url.rstrip("/") + options.path
    alone = asyncio.run(_send(url, bodies, range(len(bodies)), 1, math.inf, {}))
    print(json.dumps(alone.row(1)), flush=True)
    order = itertools.islice(itertools.cycle(range(len(bodies))), options.requests)
    together = asyncio.run(_send(url, bodies, order, options.clients, options.rate, alone.answers))
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
    """Sends the bodies in this order, by so many clients at once; no more than `rate` a second."""
    import httpx

    replies, order, begin = Replies(), iter(order), time.perf_counter()

    async def work(client: httpx.AsyncClient):
        for row in order:
            await asyncio.sleep(begin + len(replies.seconds) / rate - time.perf_counter())
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

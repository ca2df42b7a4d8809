"""Mixtures of sources: which source row k of a run is from, by exact integers, at any k and without drift.

A mixture is a list of phases. A phase begins at a row of the run and gives every source an integer share. Of the first
k rows of a phase, as many are of a source as its share says, up to log2 of the number of sources, after any k.
"""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from train import UserError
from train.settings.schema import Data, Run

# What the shares of weights add up to: a share is wrong by less than 6e-8. What shares may add up to in 64 bits.
_TOTAL, _LARGEST = 1 << 24, 1 << 31


class Phase(NamedTuple):
    """Rows of a run from `first` on, in which sources have these shares."""

    first: int
    shares: Mapping[str, int]


def resolve(data: Data, sizes: Mapping[str, int], rows: int) -> list[Phase]:
    """The phases that --data.mixture asks for, of sources with so many rows, in a run of `rows` rows.

    Raises UserError for weights of sources that are not there or that sum to 0, and where a source would be read more
    often than --data.max-epochs.
    """
    phases = [Phase(first, _shares(data, weights, sizes, rows)) for first, weights in _weights(data, sizes)]
    counts = counts_before(np.array([rows]), phases, list(sizes))[:, 0]
    for (name, size), count in zip(sizes.items(), counts.tolist(), strict=True):
        if data.max_epochs is not None and count > data.max_epochs * size * (1 + 1e-6) + 1:
            raise UserError(
                f"--data.mixture={data.mixture} reads {name} {count / size:.2f} times, and --data.max-epochs="
                f"{data.max_epochs:g}; give it less weight, or train for fewer steps"
            )
    return phases


def counts_before(rows: np.ndarray, phases: Sequence[Phase], names: Sequence[str]) -> np.ndarray:
    """How many of the first `rows` [K] rows of a run are of each source, int64 [S,K]."""
    counts = np.zeros((len(names), len(rows)), np.int64)
    for index, phase in enumerate(phases):
        end = phases[index + 1].first if index + 1 < len(phases) else None
        within = np.clip(rows - phase.first, 0, None if end is None else end - phase.first)
        counts += np.stack(_divided(within.astype(np.int64), [phase.shares.get(name, 0) for name in names]))
    return counts


def _divided(rows: np.ndarray, shares: Sequence[int]) -> list[np.ndarray]:
    """So many first rows [K], divided among sources by these shares: halves of the sources, and halves of these.

    With a row more, one source has one more. A count is exact but for a row in each of the log2(S) divisions.
    """
    if len(shares) == 1:
        return [rows]
    middle, total = len(shares) // 2, max(1, sum(shares))
    part, (cycles, left) = sum(shares[:middle]), np.divmod(rows, total)
    first = cycles * part + left * part // total
    return [*_divided(first, shares[:middle]), *_divided(rows - first, shares[middle:])]


class MixedRows(NamedTuple):
    """Rows of a run: the source of each, and its number among the rows of that source, from 0; int [K]."""

    sources: np.ndarray
    numbers: np.ndarray


def rows_of(first: int, count: int, phases: Sequence[Phase], names: Sequence[str]) -> MixedRows:
    """The rows `first` to `first` + `count` - 1 of a run."""
    before = counts_before(np.arange(first, first + count + 1), phases, names)
    sources = np.diff(before, axis=1).argmax(0)
    return MixedRows(sources, before[sources, np.arange(count)])


def overview(sizes: Mapping[str, int], tokens: Sequence[int], phases: Sequence[Phase], run: Run) -> str:
    """The tokens of every source, its rows in a run, and how often each is read, for the start-up table."""
    counts = counts_before(np.array([run.steps * run.batch.size]), phases, list(sizes))[:, 0].tolist()
    rows = zip(sizes.items(), tokens, counts, strict=True)
    return "; ".join(
        f"{name} {own:,} tokens, {count:,} rows, {count / size:.2f} epochs" for (name, size), own, count in rows
    )


def _weights(data: Data, sizes: Mapping[str, int]) -> list[tuple[int, dict[str, float] | None]]:
    """The first row and the weights of every phase; None where sizes decide."""
    text = data.mixture
    if text in ("size", "unimax"):
        return [(0, None)]
    phases = _phases_in(Path(text)) if text.endswith(".json") else [(0, _parsed(text))]
    for _, weights in phases:
        if unknown := sorted(weights.keys() - sizes.keys()):
            raise UserError(f"--data.mixture={text} names {unknown[0]}, and the sources are {', '.join(sizes)}")
        if not all(0 <= weight < math.inf for weight in weights.values()) or sum(weights.values()) <= 0:
            raise UserError(f"--data.mixture={text}: weights must be numbers from 0 on, and not all 0")
    return [*phases]


def _parsed(text: str) -> dict[str, float]:
    """The weights of NAME:WEIGHT,NAME:WEIGHT."""
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, _, weight = part.rpartition(":")
        try:
            weights[name] = float(weight)
        except ValueError as error:
            raise UserError(
                f"--data.mixture={text} must be size, unimax, NAME:WEIGHT,NAME:WEIGHT, or a .json file of phases"
            ) from error
    return weights


def _phases_in(path: Path) -> list[tuple[int, dict[str, float]]]:
    """The phases in a file: [{"row": 0, "weights": {NAME: WEIGHT}}, ...], in the order of their first rows."""
    try:
        phases = [
            (int(phase["row"]), {k: float(v) for k, v in phase["weights"].items()})
            for phase in json.loads(path.read_bytes())
        ]
    except FileNotFoundError as error:
        raise UserError(f"--data.mixture={path} does not exist; name a file of phases") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f'{path} must be a list of phases, {{"row": 0, "weights": {{"web": 0.7}}}} each: {error}'
        ) from error
    firsts = [first for first, _ in phases]
    if not firsts or firsts[0] != 0 or any(after <= before for before, after in itertools.pairwise(firsts)):
        raise UserError(f"{path}: the first phase must begin at row 0, and each other one behind the one before it")
    return phases


def _shares(data: Data, weights: dict[str, float] | None, sizes: Mapping[str, int], rows: int) -> dict[str, int]:
    """The integer shares of the sources in a phase."""
    if weights is not None:
        return _rounded(weights)
    if data.mixture == "unimax":
        return _rounded(_unimax(sizes, rows, data.max_epochs or 1.0))
    if data.temperature == 1 and sum(sizes.values()) < _LARGEST:
        return dict(sizes)  # each row of each source once, and then again
    largest = max(sizes.values())
    return _rounded({name: (size / largest) ** (1 / data.temperature) for name, size in sizes.items()})


def _unimax(sizes: Mapping[str, int], rows: int, max_epochs: float) -> dict[str, float]:
    """Equal weights, but of a source that would be read more often than max_epochs (Chung et al. 2023, algorithm 1)."""
    left, weights = float(rows), {}
    for position, name in enumerate(sorted(sizes, key=sizes.__getitem__)):
        weights[name] = min(left / (len(sizes) - position), max_epochs * sizes[name])
        left -= weights[name]
    if left > 0.5:
        raise UserError(
            f"--data.mixture=unimax: {rows:,} rows read all sources more often than --data.max-epochs={max_epochs:g}; "
            "allow more, or train for fewer steps"
        )
    return {name: weights[name] for name in sizes}


def _rounded(weights: Mapping[str, float]) -> dict[str, int]:
    """Integers of the sum _TOTAL, nearest to the weights by the largest remainder; a weight above 0 has 1."""
    exact = np.array(list(weights.values())) / sum(weights.values()) * _TOTAL
    shares = np.where(exact > 0, np.maximum(1, np.floor(exact)), 0).astype(np.int64)
    by_remainder = np.argsort(shares - exact, kind="stable")
    shares[by_remainder[: max(0, _TOTAL - int(shares.sum()))]] += 1
    shares[shares.argmax()] += _TOTAL - shares.sum()
    return dict(zip(weights, shares.tolist(), strict=True))

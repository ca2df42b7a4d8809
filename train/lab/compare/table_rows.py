"""What is compared: the rows of a table, each with flags of train.main of its own."""

import itertools
import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from train import UserError
from train.settings import flags
from train.tasks.resolve import ALIASES

# What the command decides itself, and how to choose it.
_OWN = {
    "out": "name the folder of all runs with --out=DIR",
    "seed": "say how many with --seeds=N",
    "resume": "the same command goes on after an interruption",
    "stop_at": "the same command goes on after an interruption",
    "eval.final": "every run is evaluated at its end",
}


class TableRow(NamedTuple):
    """A row: its name, and its own words for train.main."""

    name: str
    words: tuple[str, ...]

    @property
    def folder(self) -> str:
        """Its name as a folder's."""
        return re.sub(r"[^\w.=,+-]+", "-", self.name).strip("-.") or "row"


def grid(vary: Sequence[str], flag: str = "vary") -> list[TableRow]:
    """`FIELD=A,B` and so on -> a row for every combination of values. Raises UserError for another form."""
    axes = []
    for text in vary:
        field, _, values = text.partition("=")
        choices = [value.strip() for value in values.split(",")]
        if not field or not all(choices):
            raise UserError(f"--{flag}={text} must be FIELD=A,B, such as model.position=learned,rotary")
        if len(set(choices)) < len(choices):
            raise UserError(f"--{flag}={text} names a value twice; leave one of them out")
        axes.append([f"{field}={value}" for value in choices])
    fields = [axis[0].partition("=")[0] for axis in axes]
    if repeated := [field for field in fields if fields.count(field) > 1]:
        raise UserError(f"--{flag}={repeated[0]}=... stands twice; join its values by commas")
    return [TableRow(" ".join(chosen), tuple(f"--{word}" for word in chosen)) for chosen in itertools.product(*axes)]


def named(runs: Sequence[str]) -> list[TableRow]:
    """`NAME: flags` and so on -> the rows. Raises UserError for another form."""
    rows = []
    for text in runs:
        name, colon, rest = text.partition(":")
        if not colon or not name.strip() or "=" in name:
            raise UserError(f"--run={text} must be 'NAME: flags', such as --run='narrow: --model.width=64'")
        try:
            rows.append(TableRow(name.strip(), tuple(shlex.split(rest))))
        except ValueError as error:
            raise UserError(f"--run={text} cannot be split into flags: {error}; close its quotes") from error
    return rows


def check(rows: Sequence[TableRow], shared: Sequence[str], tuned: Sequence[TableRow]) -> None:
    """Raises UserError for fewer than two rows, for rows of one name, and for flags that cannot be the row's own."""
    if len(rows) < 2:
        raise UserError("there is one row, and nothing to compare it with; name two with --vary=FIELD=A,B or --run")
    folders = [row.folder for row in rows]
    for row in rows:
        if folders.count(row.folder) > 1:
            raise UserError(f"several rows are named {row.name}; give them different names")
    for words in (shared, *(row.words for row in (*rows, *tuned))):
        for name in flags.parse(words, ALIASES):
            if name in _OWN:
                raise UserError(f"--{name.replace('_', '-')} is decided for every run by this command; {_OWN[name]}")
    tuned_names = {name for row in tuned for name in flags.parse(row.words, ALIASES)}
    for row in rows:
        if both := tuned_names & flags.parse(row.words, ALIASES).keys():
            raise UserError(f"--{min(both)} is both compared and tuned; leave it out of one of them")

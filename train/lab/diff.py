"""What differs between two runs, and where their losses part: `python -m train.diff RUN_A RUN_B`."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from tfm.options.choices import check_fields
from train import UserError, exit_code
from train.files.strict_json import json_text
from train.settings import flags

USAGE = """usage: python -m train.diff RUN_A RUN_B [--tolerance=X]

Compares two run folders: configuration, versions, hashes of data and tokenizer, devices; and their losses, step by
step. Prints a table, and one JSON object on stdout."""


@dataclasses.dataclass(frozen=True)
class DiffOptions:
    """How to compare.

    tolerance: losses part where one is more than 1 + tolerance times the other
    """

    tolerance: float = 0.01

    def __post_init__(self):
        check_fields(self)
        if self.tolerance < 0:
            raise ValueError(f"tolerance={self.tolerance} must not be negative")


def main(argv=None) -> int:
    """The command; returns its exit code."""
    return exit_code(compare, argv)


def compare(argv):
    """Reads two run folders, and prints how they differ."""
    names = list(itertools.takewhile(lambda word: not word.startswith("-"), argv))
    options = flags.options(DiffOptions, USAGE, argv[len(names) :])
    if options is None:
        return
    if len(names) != 2:
        raise UserError(f"train.diff compares two run folders, and {len(names)} are named; write RUN_A RUN_B")

    from train.lab.difference import difference
    from train.runs.run_folder import RunFolder
    from train.screens.console import Log

    result = difference(RunFolder(names[0]), RunFolder(names[1]), options.tolerance)
    log = Log()
    for name, pairs in result.sections.items():
        log.table(name, {key: f"{_shown(before)}  |  {_shown(after)}" for key, (before, after) in pairs.items()})
    if not result.sections:
        log.info("configuration, versions, data and devices are equal")
    log.table("loss", {split: _sentence(parting, options.tolerance) for split, parting in result.losses.items()})
    losses = {split: parting._asdict() for split, parting in result.losses.items()}
    print(json_text({"runs": names, "differs": _as_lists(result.sections), "loss": losses}))


def _shown(value: object) -> str:
    return "none" if value is None else flags.show(value)


def _as_lists(sections: Mapping[str, Mapping[str, Sequence[object]]]) -> dict[str, dict[str, list[object]]]:
    return {name: {key: list(pair) for key, pair in pairs.items()} for name, pairs in sections.items()}


def _sentence(parting, tolerance: float) -> str:
    """Where losses part, as a person says it."""
    if not parting.shared:
        return "no step is logged by both"
    if parting.differs_at is None:
        return f"equal bit for bit in all {parting.shared} steps that both have logged"
    begin = "equal bit for bit until step " + str(parting.equal_until) if parting.equal_until is not None else ""
    parts = [begin, "differs at step {} ({:.6g} | {:.6g})".format(*parting.differs_at)]
    if parting.parts_at:
        parts.append("more than {:.2g} % apart at step {} ({:.6g} | {:.6g})".format(100 * tolerance, *parting.parts_at))
    else:
        parts.append(f"never more than {100 * tolerance:.2g} % apart")
    return "; ".join([part for part in parts if part] + ["last at step {}: {:.6g} | {:.6g}".format(*parting.last)])

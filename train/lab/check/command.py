"""Is my run right? Probes of its model, training, data and devices: `python -m train.check [flags of train.main]`."""

import dataclasses
import time
from pathlib import Path

from train import UserError, exit_code
from train.files.strict_json import json_text
from train.runs import run_folder
from train.settings import flags

USAGE = """usage: python -m train.check [--task=NAME] [--section.field=value ...] [--to=FILE]
       python -m train.check --run=RUN [--to=FILE]

Probes a run before it is trained, by the flags of train.main (see its --help), or the run in a folder: its own model,
loss, training step, data and devices, on a few rows. Prints a table of what was measured, and one JSON object on
stdout. Exit code 0: nothing fails; 1: a probe fails; 2: bad input. docs/check.md explains the probes. Flags of its own,
and their defaults:"""


CERTIFICATE = "check.json"


@dataclasses.dataclass(frozen=True)
class CheckOptions:
    """What to check.

    run: a run folder or a Hugging Face folder, in place of the flags of train.main
    to: the file for the certificate; by default check.json in the run folder, if there is one; a picture of widths lies
        beside it
    """

    run: str = ""
    to: str = ""


def main(argv=None) -> int:
    """The command; returns its exit code."""
    failed: list[str] = []
    code = exit_code(lambda words: failed.extend(check(words)), argv)
    return code or int(bool(failed))


def check(argv) -> list[str]:
    """Probes a run; returns the names of the probes that fail."""
    if flags.print_help(CheckOptions, USAGE, argv):
        return []
    own, rest = flags.split_argv(argv, [field.name for field in dataclasses.fields(CheckOptions)])
    options = flags.build(CheckOptions, flags.parse(own))
    if options.run and rest:
        raise UserError(f"--run={options.run} brings its own configuration; leave {rest[0]} out")
    to = _certificate_path(options)

    from train.lab.check import certificate, load
    from train.screens.console import Log

    log, began, results = Log(), time.perf_counter(), []
    subject = load.subject_of_folder(options.run, log) if options.run else load.subject_of_flags(rest, log)
    subject = dataclasses.replace(subject, picture=to and to.with_suffix(".widths.png"))
    log.info(certificate.HEADING)
    for outcome in certificate.outcomes(subject):
        log.info(certificate.line(outcome))
        results.append(outcome)

    summary = certificate.summary(results)
    failed = summary["failed"]
    if to:
        run_folder.write_json(to, certificate.certificate(subject, results))
    verdict = f"{len(failed)} of {len(results)} probes fail: {', '.join(failed)}" if failed else "nothing fails"
    log.info(f"{verdict}; {time.perf_counter() - began:.0f} s" + (f"; saved in {to}" if to else ""))
    print(json_text(summary))
    return failed


def _certificate_path(options: CheckOptions) -> Path | None:
    """The file for the certificate. Raises UserError where it cannot be one."""
    folder = Path(options.run) if options.run else None
    if options.to:
        to = Path(options.to)
        if to.is_dir() or not to.absolute().parent.is_dir():
            raise UserError(f"--to={to} cannot be written; name a file in a folder that is there")
        return to
    return folder / CERTIFICATE if folder and (folder / run_folder.CONFIG).is_file() else None

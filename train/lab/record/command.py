"""An entry of the board of time to quality: `python -m train.record --board=decoder --text=FILE --changed=TEXT ...`."""

import dataclasses
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from tfm.options.choices import check_fields
from tfm.options.dotted import flatten
from train import UserError, exit_code
from train.devices import cpu
from train.files.strict_json import json_text
from train.lab.record import rules
from train.runs import run_folder
from train.settings import flags
from train.tasks import resolve

USAGE = """usage: python -m train.record --board=decoder|encoder --text=FILE --changed=TEXT --to=DIR --task=NAME
                              [--labels=FOLDER] [--trial] [flags of train.main]

Trains by the rules of docs/records.md, measures the end, and prints the entry, one JSON object; DIR has it too, with
the log. All other flags are those of train.main; some are against the rules and are refused. The clock runs from the
start of the training's process to its end, with nothing compiled before. Flags of its own, and their defaults:"""

ENTRY, LOG, TRAINED = "entry.json", "log.txt", "trained"


@dataclasses.dataclass(frozen=True)
class RecordOptions:
    """What to enter.

    board: decoder | encoder: nats a character of tiny Shakespeare or WikiText-2, or the mean of four fine-tunings
    text: the file to train on, of which train.main holds a tenth out
    changed: what the entry changes of the one before, for the table
    to: the folder to make
    labels: of an encoder, the folder of its four fine-tunings, as docs/records.md says
    trial: any text and hardware, and few steps of fine-tuning: to try what cannot be entered
    """

    board: Literal["decoder", "encoder"] = "decoder"
    text: str = ""
    changed: str = ""
    to: str = ""
    labels: str = ""
    trial: bool = False

    def __post_init__(self):
        check_fields(self)
        for name, meaning in {"text": "the file to train on", "to": "the folder to make"}.items():
            if not getattr(self, name):
                raise ValueError(f"{name}= must name {meaning}")
        if not self.changed:
            raise ValueError("changed= must say what the entry changes, in a few words")
        if (self.board == "encoder") != bool(self.labels):
            raise ValueError("labels=FOLDER is what board=encoder is measured by, and for no other board")


def main(argv=None) -> int:
    """The command; returns its exit code."""
    return exit_code(record, argv)


def record(argv):
    """Trains, measures, and prints the entry."""
    names = [field.name for field in dataclasses.fields(RecordOptions)]
    own, rest = flags.split_argv(argv, [*names, "help"])
    options = flags.options(RecordOptions, USAGE, own)
    if options is None:
        return
    rules.check_flags([*flags.parse(rest)], options.board)
    target = Path(options.to)
    run, _ = resolve.resolve([*rest, f"--data={options.text}"], run_folder.resumed_values, run_folder.run_values)
    rules.check_run(flatten(run), options.board)
    digest = rules.check_text(options.text, "" if options.trial else options.board)
    if options.board == "decoder" and not options.trial:
        rules.check_characters(flatten(run)["tokenizer.vocab"], options.text)
    labels = _checked_labels(options)
    hardware = _hardware(options)
    if target.exists():
        raise UserError(f"--to={target} is there already; an entry has a folder of its own")
    target.mkdir(parents=True)
    command, commit = [*rest, f"--data={options.text}"], _commit()
    seconds = _train([*command, f"--out={target / TRAINED}"], target)
    result = json.loads((target / TRAINED / run_folder.RESULT).read_text())
    scores = {name: _fine_tune(target, name, labels[name], options) for name in labels}
    entry = {
        "board": options.board,
        "class": hardware,
        "minutes": round(seconds / 60, 2),
        **_measure(options, rules.TEXTS.get(digest), result, scores),
        "seed": run.seed,
        "changed": options.changed,
        "text": digest,
        "command": f"python -m train.main {shlex.join(command)}",
        "machine": f"{platform.machine()}, {_processor()}",
        "commit": commit,
    }
    run_folder.write_json(target / ENTRY, entry)
    print(json_text(entry))


def _measure(
    options: RecordOptions, text: rules.BoardText | None, result: dict, scores: dict[str, float]
) -> dict[str, object]:
    """What the board orders entries by, and whether the entry may stand there."""
    if options.board == "decoder":
        loss = result["eval_loss"]
        return {"loss": loss, "counts": text is not None and loss <= text.loss and not options.trial}
    return {"mean": sum(scores.values()) / len(scores), "scores": scores, "counts": not options.trial}


def _checked_labels(options: RecordOptions) -> dict[str, rules.FineTuning]:
    """The fine-tunings of an encoder. Raises UserError for a file that is not there."""
    if not options.labels:
        return {}
    for tuning in rules.FINE_TUNING.values():
        for name in (tuning.train, tuning.dev):
            if not (Path(options.labels) / name).exists():
                raise UserError(f"--labels={options.labels} has no {name}; docs/records.md says what is in it")
    return rules.FINE_TUNING


def _hardware(options: RecordOptions) -> str:
    """The class of this machine, as a process of its own sees it: jax is not started here."""
    if options.trial:
        return "trial"
    program = "import jax; d = jax.devices(); print(jax.default_backend(), len(d), d[0].device_kind, sep='|')"
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    backend, devices, kind = output.strip().splitlines()[-1].split("|")
    return rules.check_hardware(backend, kind, int(devices), cpu.core_count())


def _train(argv: Sequence[str], target: Path) -> float:
    """The seconds of a training in a process of its own, whose log stands in the folder. Raises UserError where it
    fails."""
    words = [sys.executable, "-m", "train.main", *argv]
    began = time.perf_counter()
    with (
        (target / LOG).open("a", encoding="utf-8") as log,
        subprocess.Popen(
            words, stderr=subprocess.PIPE, text=True, env=os.environ | {"TFM_CACHE": str((target / "cache").absolute())}
        ) as process,
    ):
        assert process.stderr is not None
        for line in process.stderr:
            log.write(line)
            sys.stderr.write(line)
    seconds = time.perf_counter() - began
    if process.returncode:
        raise UserError(f"the training ended with exit code {process.returncode}; {target / LOG} says why")
    return seconds


def _fine_tune(target: Path, name: str, tuning: rules.FineTuning, options: RecordOptions) -> float:
    """The score of a fixed fine-tuning of what was trained, which the clock does not count."""
    files = [f"--data={Path(options.labels) / tuning.train}", f"--eval-data={Path(options.labels) / tuning.dev}"]
    few = ["--steps=2"] if options.trial else []
    flags_of_run = [*(flag for flag in tuning.flags if not (few and flag.startswith("--steps"))), *few]
    folder = target / name
    _train([*flags_of_run, *files, f"--init={target / TRAINED}", "--seed=0", f"--out={folder}"], target)
    return json.loads((folder / run_folder.RESULT).read_text())[tuning.metric]


def _processor() -> str:
    """The name of the processor, where the system says it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def _commit() -> str:
    """The commit of the code, with a plus where files differ from it; empty outside of a clone."""
    folder = Path(__file__).parent
    try:
        output = subprocess.run(
            ["git", "describe", "--always", "--dirty=+"], cwd=folder, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return output.stdout.strip()

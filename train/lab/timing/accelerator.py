"""Steps of six models on the accelerator of this machine, beside compiled PyTorch where that is installed.

    .ci/accelerator [FOLDER] [--seconds=570] [--smoke]

Writes a line of JSON for each model into FOLDER/accelerator.jsonl, and a table into FOLDER/accelerator.md. Needs no
network. First each model is timed alone, then in turns with PyTorch, as long as there is time. A model that does not
fit, takes too long or fails is skipped, and a sentence says so.
"""

from train import interruption

if __name__ == "__main__":
    interruption.install()

import argparse
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

# Steps that are timed, and those before them.
STEPS, WARMUP = 20, 3

# No model takes more than this share of the seconds that are left for all of them.
SHARE = 0.5


class BenchedModel(NamedTuple):
    """A model by the flags of `train.bench`, and what they are instead to try out this script.

    against: whether PyTorch can do the same work
    """

    flags: str
    smoke: str
    against: bool = True


_TINY = "--layers=1 --heads=2 --width=16 --vocab=64 --length=16 --batch=4 --steps=2 --warmup=1"
_PACKED = "--data.pack=true --model.dropout=0"
# A GPU is faster with a block for each layer (M56). Elsewhere deep models are scanned: they compile sooner.
_DEEP = "" if shutil.which("nvidia-smi") else " --scan=true"

# Devlin et al. 2018, Radford et al. 2019 and Vaswani et al. 2017: their shapes, and batches that fill a GPU of 80 GB.
MODELS = {
    "bert-base, 512": BenchedModel(
        "--model=bert --layers=12 --heads=12 --width=768 --vocab=30522 --length=512 --batch=64", f"--model=bert {_TINY}"
    ),
    "gpt2, 1024": BenchedModel(
        "--model=gpt --layers=12 --heads=12 --width=768 --vocab=50257 --length=1024 --batch=32", f"--model=gpt {_TINY}"
    ),
    "transformer-base, packed": BenchedModel(
        f"--preset=transformer-base {_PACKED} --model.dtype=bfloat16 --batch.tokens=25000 --batch.length=128",
        f"--preset=transformer-mini {_PACKED} --model.layers=1 --model.width=16 --model.heads=2 --model.ffn=32 "
        "--steps=2 --warmup=1",
        against=False,
    ),
    "transformer-base, 196 pairs of 128": BenchedModel(
        "--model=seq2seq --layers=6 --heads=8 --width=512 --vocab=37000 --length=128 --batch=196",
        f"--model=seq2seq {_TINY}",
    ),
    "bert-large, 512": BenchedModel(
        "--model=bert --layers=24 --heads=16 --width=1024 --vocab=30522 --length=512 --batch=64" + _DEEP,
        f"--model=bert {_TINY}{_DEEP}",
    ),
    "gpt2-xl, 1024": BenchedModel(
        "--model=gpt --layers=48 --heads=25 --width=1600 --vocab=50257 --length=1024 --batch=8" + _DEEP,
        f"--model=gpt {_TINY}{_DEEP}",
    ),
}

COLUMNS = {
    "devices": "devices",
    "flops": "operations a step",
    "ms_median": "ms a step",
    "tokens_per_s": "tokens/s",
    "mfu": "MFU",
    "compile_s": "s to compile",
    "peer_ms_median": "ms, torch.compile",
    "ratio": "torch / tfm",
    "ratio_interval": "95 %",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, writes and prints; 0 if a model could be timed."""
    options = _options(argv)
    deadline = time.monotonic() + options.seconds
    rows: dict[str, dict[str, object]] = {name: {"model": name} for name in MODELS}
    options.out.mkdir(parents=True, exist_ok=True)
    passes = [""] + (["--against=torch-compile"] if importlib.util.find_spec("torch") else [])
    for against in passes:
        names = [name for name, model in MODELS.items() if model.against or not against]
        for done, name in enumerate(names):
            left = deadline - time.monotonic()
            limit = left if done == len(names) - 1 else max(SHARE * left, left / (len(names) - done))
            if "error" not in rows[name]:
                problem = "peer_error" if against else "error"
                rows[name] |= _measure(_command(MODELS[name], against, options.smoke), limit, problem) | {"model": name}
            _write(options.out, list(rows.values()))
            print(json.dumps(rows[name]), flush=True)
    return 0 if any("ms_median" in row for row in rows.values()) else 1


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    """The folder, the seconds and whether this is a trial."""
    parser = argparse.ArgumentParser(prog=".ci/accelerator", description=__doc__.splitlines()[0])
    parser.add_argument("out", nargs="?", type=Path, default=Path(os.environ.get("OUT", ".")), help="default: $OUT")
    parser.add_argument("--seconds", type=float, default=570.0, help="for all models")
    parser.add_argument("--smoke", action="store_true", help="tiny shapes, in a minute on a CPU")
    return parser.parse_args(argv)


def _command(model: BenchedModel, against: str, smoke: bool) -> list[str]:
    """The command that times a model."""
    flags = model.smoke if smoke else f"{model.flags} --steps={STEPS} --warmup={WARMUP}"
    if not smoke and "--preset" not in flags:
        flags += " --dtype=bfloat16"
    return [sys.executable, "-m", "train.bench", *flags.split(), *against.split()]


def _measure(command: Sequence[str], limit: float, problem: str) -> dict[str, object]:
    """The object that a command prints, or a sentence under the name of the problem."""
    if limit <= 1:
        return {problem: "skipped: no time is left"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # PyTorch's process too
        process.communicate()
        return {problem: f"skipped: it takes more than the {limit:.0f} s that it may"}
    if not process.returncode:
        return json.loads(out.splitlines()[-1])
    if re.search(r"RESOURCE_EXHAUSTED|[Oo]ut of memory", errors):
        return {problem: "skipped: it does not fit into the memory of this device"}
    return {problem: f"failed: {(errors.strip().splitlines() or ['without a word'])[-1]}"}


def _write(folder: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Both files anew, with the models that were reached."""
    reached = [row for row in rows if len(row) > 1]
    (folder / "accelerator.jsonl").write_text("".join(json.dumps(row) + "\n" for row in reached))
    lines = ["| model | " + " | ".join(COLUMNS.values()) + " | |", "|---|" + "---|" * (len(COLUMNS) + 1)]
    for row in reached:
        cells = [_cell(row.get(key)) for key in COLUMNS]
        remarks = "; ".join(str(row[key]) for key in ("error", "peer_error") if key in row)
        lines.append(f"| {row['model']} | " + " | ".join(cells) + f" | {remarks} |")
    (folder / "accelerator.md").write_text("\n".join(lines) + "\n")


def _cell(value: object) -> str:
    """A value in the table."""
    if isinstance(value, list):
        return " to ".join(map(str, value))
    if isinstance(value, int):
        return f"{value:,}"
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())

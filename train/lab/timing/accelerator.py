"""Steps and texts of some models on the accelerator of this machine, beside compiled PyTorch where that is installed.

    .ci/accelerator [FOLDER] [--seconds=570] [--only=NAME,...] [--inputs=FOLDER] [--warm=N] [--turns] [--smoke]

Writes a line of JSON for each row into FOLDER/accelerator.jsonl, and a table into FOLDER/accelerator.md. Needs no
network. First each model is timed alone, then in turns with PyTorch, as long as there is time. A model that does not
fit, takes too long or fails is skipped, and a sentence says so.

With --inputs, texts.tsv there are labelled texts to fine-tune on, which vocab.txt splits; without it they are the
built-in ones. sentences.txt is what its model in the folder `translator` translates.
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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

# Steps that are timed, and those before them.
STEPS, WARMUP = 20, 3

# No model takes more than this share of the seconds that are left for all of them.
SHARE = 0.5


class Row(NamedTuple):
    """What is timed, by the flags of `train.bench`, and what they are instead to try out this script.

    against: the peer, and flags that are its own
    inputs: what it reads of --inputs; a row whose flags name {inputs} needs them
    """

    flags: str
    smoke: str
    against: str = "torch-compile"
    inputs: str = ""


_TINY = "--layers=1 --heads=2 --width=16 --vocab=64 --length=16 --batch=4 --steps=2 --warmup=1"
_TINY_PICTURES = "--layers=2 --heads=2 --width=16 --size=16 --patch=4 --batch=4 --steps=2 --warmup=1"
_PACKED = "--data.pack=true --model.dropout=0"
# A GPU is faster with a block for each layer (M56). Elsewhere deep models are scanned: they compile sooner.
_DEEP = "" if shutil.which("nvidia-smi") else " --scan=true"
_BASE = "--layers=12 --heads=12 --width=768"
_GPT2 = f"--model=gpt {_BASE} --vocab=50257"
_T5 = f"--model=t5 {_BASE} --vocab=32128 --length=512 --target=128 --batch=32"
_BERT_TEXTS = (
    "--preset=bert-base --task=classify --model.head.pool=first --model.dtype=bfloat16 --model.scan=false "
    "--batch.length=128 --batch.size=64 --steps=128 --warmup=16"
)
_SMOKE_TEXTS = (
    "--preset=bert-tiny --task=classify --model.head.pool=first --model.layers=1 --model.width=16 --batch.size=8 "
    "--tokenizer.vocab=300 --steps=16 --warmup=1"
)
_TEXTS = "--data={inputs}/texts.tsv --data.header=false --tokenizer.path={inputs}/vocab.txt"

# Devlin et al. 2018, Radford et al. 2019, Vaswani et al. 2017, Raffel et al. 2020, Dosovitskiy et al. 2021 and Liu et
# al. 2021: their shapes, and batches that fill a GPU of 80 GB.
ROWS = {
    "bert-base, 512": Row(f"--model=bert {_BASE} --vocab=30522 --length=512 --batch=64", f"--model=bert {_TINY}"),
    "gpt2, 1024": Row(f"{_GPT2} --length=1024 --batch=32", f"--model=gpt {_TINY}"),
    "transformer-base, packed": Row(
        f"--preset=transformer-base {_PACKED} --model.dtype=bfloat16 --batch.tokens=25000 --batch.length=128",
        f"--preset=transformer-mini {_PACKED} --model.layers=1 --model.width=16 --model.heads=2 --model.ffn=32 "
        "--steps=2 --warmup=1",
        against="",
    ),
    "transformer-base, 196 pairs of 128": Row(
        "--model=seq2seq --layers=6 --heads=8 --width=512 --vocab=37000 --length=128 --batch=196",
        f"--model=seq2seq {_TINY}",
    ),
    "bert-large, 512": Row(
        "--model=bert --layers=24 --heads=16 --width=1024 --vocab=30522 --length=512 --batch=64" + _DEEP,
        f"--model=bert {_TINY}{_DEEP}",
    ),
    "gpt2-xl, 1024": Row(
        "--model=gpt --layers=48 --heads=25 --width=1600 --vocab=50257 --length=1024 --batch=8" + _DEEP,
        f"--model=gpt {_TINY}{_DEEP}",
    ),
    "gpt2-dropout, 1024": Row(f"{_GPT2} --length=1024 --batch=32 --dropout=0.1", f"--model=gpt {_TINY} --dropout=0.1"),
    "t5-base, 512 to 128": Row(_T5, f"--model=t5 {_TINY} --target=8"),
    "t5-base-dropout, 512 to 128": Row(f"{_T5} --dropout=0.1", f"--model=t5 {_TINY} --target=8 --dropout=0.1"),
    "vit-b, 224": Row(f"--model=vit {_BASE} --size=224 --patch=16 --batch=128", f"--model=vit {_TINY_PICTURES}"),
    "swin-t, 224": Row(
        "--model=swin --layers=12 --heads=3 --width=96 --size=224 --patch=4 --window=7 --batch=128",
        f"--model=swin {_TINY_PICTURES} --window=2",
    ),
    "bert-base-texts": Row(_BERT_TEXTS, _SMOKE_TEXTS, inputs=_TEXTS),
    "bert-base-texts, peer grouped": Row(
        _BERT_TEXTS, _SMOKE_TEXTS, against="torch-compile --group=true", inputs=_TEXTS
    ),
    **{
        f"writing-{batch}, gpt2 512 + 128": Row(
            f"{_GPT2} --length=640 --generate=128 --batch={batch}",
            f"--model=gpt {_TINY} --length=32 --generate=16 --batch={batch}",
        )
        for batch in (1, 8, 64)
    },
    "translating, 5 beams": Row(
        "--run={inputs}/translator --data={inputs}/sentences.txt --beams=5 --batch=64 --warmup=3",
        "--run={inputs}/translator --data={inputs}/sentences.txt --beams=5 --batch=4 --warmup=1",
        against="torch",
    ),
}

COLUMNS = {
    "devices": "devices",
    "flops": "operations a step",
    "ms_median": "ms a step",
    "tokens_per_s": "tokens/s",
    "mfu": "MFU",
    "compile_s": "s to compile",
    "own_ms_median": "ms in turns",
    "peer_ms_median": "ms, peer",
    "own_examples_per_s": "examples/s",
    "peer_examples_per_s": "examples/s, peer",
    "ms_prefill": "ms, first token",
    "ms_decode": "ms, a later one",
    "peer_ms_prefill": "first, peer",
    "peer_ms_decode": "later, peer",
    "sentences_per_s": "sentences/s",
    "peer_sentences_per_s": "sentences/s, peer",
    "ratio": "torch / tfm",
    "ratio_interval": "95 %",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, writes and prints; 0 if a row could be timed."""
    options = _options(argv)
    deadline = time.monotonic() + options.seconds
    selected = _selected(options)
    results: dict[str, dict[str, object]] = {name: {"model": name} for name in selected}
    options.out.mkdir(parents=True, exist_ok=True)
    has_torch = bool(importlib.util.find_spec("torch"))
    with_peer = [name for name in selected if selected[name].against and has_torch]
    alone = [name for name in selected if not (options.turns and name in with_peer)]
    if options.warm:
        _warm({name: _command(selected[name], name in with_peer, options) for name in selected}, options.warm, deadline)
    runs = [(name, False) for name in alone] + [(name, True) for name in with_peer]
    for done, (name, in_turns) in enumerate(runs):
        left = deadline - time.monotonic()
        limit = left if done == len(runs) - 1 else max(SHARE * left, left / (len(runs) - done))
        if "error" not in results[name]:
            command = _command(selected[name], in_turns, options)
            results[name] |= _measure(command, limit, "peer_error" if in_turns else "error") | {"model": name}
        _write(options.out, list(results.values()))
        print(json.dumps(results[name]), flush=True)
    return 0 if any(key in row for row in results.values() for key in ("ms_median", "ms_decode", "ratio")) else 1


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    """The folder, the seconds, what is timed, and whether this is a trial."""
    parser = argparse.ArgumentParser(prog=".ci/accelerator", description=__doc__.splitlines()[0])
    parser.add_argument("out", nargs="?", type=Path, default=Path(os.environ.get("OUT", ".")), help="default: $OUT")
    parser.add_argument("--seconds", type=float, default=570.0, help="for all models")
    parser.add_argument("--only", default="", help="parts of the names of rows, joined by commas; default: all rows")
    parser.add_argument("--inputs", type=Path, help="a folder with texts.tsv, vocab.txt, sentences.txt and translator")
    parser.add_argument("--warm", type=int, default=0, metavar="N", help="first compile all rows, N at a time")
    parser.add_argument("--turns", action="store_true", help="no pass alone for rows that have a peer")
    parser.add_argument("--smoke", action="store_true", help="tiny shapes, in some minutes on a CPU")
    return parser.parse_args(argv)


def _selected(options: argparse.Namespace) -> dict[str, Row]:
    """The rows of --only, in its order, for which there are inputs."""
    parts = options.only.split(",")
    names = dict.fromkeys(name for part in parts for name in ROWS if part in name)
    return {name: ROWS[name] for name in names if options.inputs or "{inputs}" not in ROWS[name].flags}


def _command(row: Row, in_turns: bool, options: argparse.Namespace) -> list[str]:
    """The command that times a row."""
    flags = row.smoke if options.smoke else row.flags
    if options.inputs:
        flags = f"{flags} {row.inputs}".replace("{inputs}", str(options.inputs.absolute()))
    words = flags.split()
    if not options.smoke:
        words += [word for word in (f"--steps={STEPS}", f"--warmup={WARMUP}") if word.partition("=")[0] not in flags]
        words += [] if "preset" in flags or "--run" in flags else ["--dtype=bfloat16"]
    peer = f"--against={row.against}".split() if in_turns else []
    return [sys.executable, "-m", "train.bench", *words, *peer]


def _warm(commands: Mapping[str, Sequence[str]], processes: int, deadline: float):
    """Runs the commands with few steps, some at a time: what they compile is kept on the disk."""
    shared = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TORCHINDUCTOR_COMPILE_THREADS": "4"}

    def compile_row(name: str):
        start = time.monotonic()
        few = [word for word in commands[name] if not word.startswith(("--steps=", "--warmup="))]
        result = _measure([*few, "--steps=2", "--warmup=1"], deadline - start, "error", shared)
        said = result.get("error", "compiled")
        print(json.dumps({"warm": name, "seconds": round(time.monotonic() - start, 1), "said": said}), flush=True)

    with ThreadPoolExecutor(processes) as pool:
        list(pool.map(compile_row, commands))


def _measure(
    command: Sequence[str], limit: float, problem: str, environment: Mapping[str, str] | None = None
) -> dict[str, object]:
    """The object that a command prints, or a sentence under the name of the problem."""
    if limit <= 1:
        return {problem: "skipped: no time is left"}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, **(environment or {})},
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

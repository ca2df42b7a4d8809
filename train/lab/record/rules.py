"""What an entry of the board may do, and what it is measured by."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from train import UserError
from train.text.special import ROLES


class BoardText(NamedTuple):
    """A text of the decoder's board.

    name: of the text, in sentences
    loss: nats a character of its last tenth that an entry must reach
    """

    name: str
    loss: float


# By the SHA-256 of the text.
TEXTS = {
    "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed": BoardText("tiny Shakespeare", 1.55),
    "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0": BoardText("the test set of WikiText-2", 1.35),
}

# Flags that bring knowledge from elsewhere, that change what is held out or how it is measured, or that take a run
# apart. Those that end with a dot are the beginnings of others.
REFUSED = {
    **dict.fromkeys(("init", "init_head", "adapter", "teacher.", "tune", "tune."), "weights begin at random"),
    **dict.fromkeys(("data", "data.", "eval_data"), "the text is that of --text, and a tenth of it is held out"),
    **dict.fromkeys(("eval.final", "eval.batches"), "all of the text that is held out is measured at the end"),
    **dict.fromkeys(("resume", "stop_at", "phases.resume"), "an entry is one run from its first step to its last"),
    **dict.fromkeys(("out", "distributed."), "an entry is one process with a folder of its own"),
}

# Hardware of a class: the words that jax has for its devices, and how many there are.
CPU_CORES, GPUS = 2, ("H100", "H200")

# Objectives of pre-training whose run others can start from as an encoder.
ENCODER_TASKS = ("mlm", "rtd", "diffuse")

_CLASSIFY = ("--task=classify", "--batch.size=32", "--batch.length=64", "--optim.rate=3e-4")


class FineTuning(NamedTuple):
    """One fixed run of the encoder's measure.

    train, dev: names of files in the folder of --labels
    flags: of train.main
    metric: in its result, that counts
    """

    train: str
    dev: str
    flags: tuple[str, ...]
    metric: str


# Three passes over SST-2 and STS-B, two over CoLA, six over the names, all from the same seed.
FINE_TUNING = {
    "sst2": FineTuning("sst2.train.jsonl", "sst2.dev.jsonl", (*_CLASSIFY, "--steps=650"), "eval_accuracy"),
    "cola": FineTuning("cola.train.jsonl", "cola.dev.jsonl", (*_CLASSIFY, "--steps=540"), "eval_matthews"),
    "stsb": FineTuning(
        "stsb.train.jsonl",
        "stsb.dev.jsonl",
        (*_CLASSIFY, "--steps=540", "--task.kind=regression", "--data.field=first,second"),
        "eval_spearman",
    ),
    "ner": FineTuning(
        "ner.train.conll",
        "ner.dev.conll",
        ("--task=tag", "--batch.size=32", "--batch.length=48", "--optim.rate=5e-4", "--steps=640"),
        "eval_f1",
    ),
}


def check_flags(names: Sequence[str], board: str) -> None:
    """Raises UserError for a flag of train.main that an entry may not have, with the rule, and without a task."""
    for name in names:
        for refused, rule in REFUSED.items():
            if name == refused or (refused.endswith(".") and name.startswith(refused)):
                raise UserError(f"--{name.replace('_', '-')} is not for entries of the board: {rule}; leave it out")
    tasks = ("lm",) if board == "decoder" else ENCODER_TASKS
    if "task" not in names:
        raise UserError(f"say what to train for, with --task={' or --task='.join(tasks)}")


def check_run(values: Mapping[str, object], board: str) -> None:
    """Raises UserError for a run, by its dotted values, whose measure is not that of the board."""
    task = values["task"]
    if board == "decoder" and (task != "lm" or values["tokenizer.kind"] != "char"):
        raise UserError(
            f"--board=decoder counts nats a character of --task=lm, and this is --task={task} with "
            f"--tokenizer.kind={values['tokenizer.kind']}; "
            "say --task=lm --tokenizer.kind=char, or take --preset=gpt-char"
        )
    if board == "encoder" and task not in ENCODER_TASKS:
        raise UserError(f"--board=encoder pre-trains an encoder, and --task={task} does not; try --task=mlm")


def check_text(path: str, board: str) -> str:
    """The SHA-256 of the text. Raises UserError where it cannot be read, or a decoder has no goal for it."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"--text={path} cannot be read ({error.strerror}); name one file") from error
    digest = hashlib.sha256(content).hexdigest()
    if board == "decoder" and digest not in TEXTS:
        texts = " nor ".join(f"{text.name} (SHA-256 {hashed[:12]}...)" for hashed, text in TEXTS.items())
        raise UserError(
            f"--text={path} is not {texts}; --board=decoder is about these texts; add --trial to try another"
        )
    return digest


def check_characters(vocabulary: object, path: str) -> None:
    """Raises UserError for a vocabulary that has no room for each character of a text: unknown ones would be told from
    nothing."""
    characters = len(set(Path(path).read_text(encoding="utf-8")))
    if not isinstance(vocabulary, int) or vocabulary < characters + len(ROLES):
        raise UserError(
            f"--tokenizer.vocab={vocabulary} has no room for the {characters} characters of {path} and {len(ROLES)} "
            f"special tokens; raise it to {characters + len(ROLES)} or more"
        )


def check_hardware(platform: str, kind: str, devices: int, cores: int) -> str:
    """The class of the hardware. Raises UserError for hardware that has none."""
    if platform == "cpu" and cores == CPU_CORES:
        return "two cores"
    if platform == "gpu" and devices == 1 and any(name in kind for name in GPUS):
        return "one GPU"
    shown = f"{cores} cores of a CPU" if platform == "cpu" else f"{devices} x {kind}"
    raise UserError(
        f"the board has classes for two cores of a CPU and for one H100 or H200, and here are {shown}; "
        "limit the process to two cores (taskset -c 0,1), or add --trial"
    )

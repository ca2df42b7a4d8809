"""The programs that requests need, compiled before the first one comes."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from train.data.reading import SHORTEST
from train.data.row_plan import can_share
from train.lab.serve.abilities import Served
from train.lab.serve.engine import Content
from train.lab.serve.options import ServeOptions
from train.lab.serve.writing import PendingText, SlotWriter, sizes
from train.runs.hf_folder import HfFolder
from train.runs.run_folder import RunFolder
from train.screens.console import Log

# Special tokens around the texts of a row, at most.
_FRAME = 4

# Tokens that a language model writes to have its programs; more where texts wait for those beside them.
_NEW_TOKENS = 4


def warm(models: Sequence[Served], options: ServeOptions, log: Log):
    """Has each model answer texts of the usual sizes."""
    for model in models:
        for ability, batches in model.batches.items():
            with log.waiting(f"compiling {model.name}: {ability}"):
                for contents in _contents(ability, model.folder, options.tokens):
                    batches.answer(contents)
        if model.writer is not None:
            with log.waiting(f"compiling {model.name}: complete"):
                _write(model, model.writer)


def _contents(ability: str, folder: RunFolder | HfFolder, budget: int) -> Iterator[list[Content]]:
    """Batches in all shapes within a budget of tokens: 1, 2, 4, ... rows of 8, 16, 32, ... tokens. Texts that share
    rows have several of the longer ones alone. Translations of long texts, and pages of attention, are compiled when
    they are asked for."""
    longest, shares = folder.window, can_share(folder.config.model)
    shapes: dict[str, tuple[int, Callable[[str], Content]]] = {
        "embed": (1, str),
        "classify": (1, lambda text: (text,)),
        "rank": (2, lambda text: (text, text)),
        "fill": (1, lambda text: (f"{text} [MASK]", 5)),
    }
    if ability == "translate":
        yield from ([" ".join(["the"] * words)] * count for words in (2, 12, 48) for count in (1, 4, 16))
    if ability not in shapes:
        return
    parts, content = shapes[ability]
    length = 8
    while length <= min(longest, budget):
        words = max(1, (length - _FRAME) // parts)
        count = 1
        while length * count <= budget and (count == 1 or not shares or length >= SHORTEST):
            yield [content(" ".join(["the"] * words))] * count
            count *= 2
        length *= 2


def _write(model: Served, writer: SlotWriter):
    """Greedy texts and drawn ones, alone and beside others."""
    from train.lab.serve.body import Body
    from train.lab.serve.completions import read_order

    for fields in ({"temperature": 0}, {"temperature": 1}, {"temperature": 1, "top_p": 0.9}):
        for size in sizes(writer.width, 1):
            body = Body.of({"prompt": "the", "max_tokens": _NEW_TOKENS + size, **fields}, "warm-up")
            order = read_order(body, "completion", model)
            texts: list[PendingText] = [order.texts(lambda row, piece: None)[0] for _ in range(min(size, writer.width))]
            writer.submit(texts)
            while np.isfinite(writer.delay(0)):
                writer.run()

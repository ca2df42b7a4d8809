"""The programs that requests need, compiled before the first one comes."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from train.lab.serve.abilities import Served
from train.lab.serve.engine import Content
from train.lab.serve.options import ServeOptions
from train.lab.serve.writing import PendingText, SlotWriter, sizes
from train.screens.console import Log

# Tokens that a language model writes to have its programs; more where texts wait for those beside them.
_NEW_TOKENS = 4


def warm(models: Sequence[Served], options: ServeOptions, log: Log):
    """Has each model answer texts of the usual sizes."""
    for model in models:
        for ability, batches in model.batches.items():
            with log.waiting(f"compiling {model.name}: {ability}"):
                for contents in _contents(ability, options.tokens):
                    batches.answer(contents)
        if model.writer is not None:
            with log.waiting(f"compiling {model.name}: complete"):
                _write(model, model.writer)


def _contents(ability: str, tokens: int) -> Iterator[list[Content]]:
    """Batches of one text to many, short and long."""
    shapes: dict[str, Callable[[str], Content]] = {
        "embed": str,
        "translate": str,
        "classify": lambda text: (text,),
        "rank": lambda text: (text, text),
        "fill": lambda text: (f"{text} [MASK]", 5),
    }
    for words in (2, 12, 48):
        for count in (1, 4, 16):
            if words * count <= tokens:
                yield [shapes[ability](" ".join(["the"] * words))] * count


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

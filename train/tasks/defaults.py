"""What the other commands ask of a task, and what they get of a task that says nothing of its own: every file of a task
begins with these names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = [
    *("EVALUATE_FLAGS", "GENERATES", "HF_HEADS", "HF_TOKENS", "PREDICT_FLAGS"),
    *("contact_sheet", "corpus_metrics", "draw_progress", "encode_items", "generation_metrics"),
    *("hf_fields", "hf_run_values", "hf_template", "save_hf", "text_pool"),
]

# What train.generate makes with it: "continuation", "translation", "pictures" or, here, nothing.
GENERATES = ""

# The flags of train.predict that it reads; None: it predicts nothing.
PREDICT_FLAGS: tuple[str, ...] | None = None

# The flags of train.evaluate that it reads, beside those named like its options.
EVALUATE_FLAGS: tuple[str, ...] = ()

# The kinds of heads of Hugging Face models that it trains, and the roles of special tokens in their folders.
HF_HEADS: tuple[str, ...] = ()
HF_TOKENS: Mapping[str, str] = {}

# How train.inspect draws the batches of a task that reads pictures, (batches, corpus, rows, path); None: as tokens.
contact_sheet = None

# How train.embed makes vectors of texts and of pictures, (params, folder, items, log); None: of texts, from states.
encode_items = None

# What draws pictures that the model makes, at every evaluation, (params, run, corpus, folder); None: nothing.
draw_progress = None


def corpus_metrics(outputs: Mapping[str, Any], corpus: Any, during_training: bool) -> dict[str, float]:
    """Metrics that need the validation rows, not sums alone."""
    return {}


def generation_metrics(params: Any, run: Any, corpus: Any, log: Any, **options: Any) -> dict[str, Any]:
    """Metrics of what the model writes for validation rows."""
    return {}


def text_pool(run: Any) -> str:
    """How train.embed makes a vector of the states of a text."""
    return "mean"


def hf_run_values(head: str, folder: Any) -> dict[str, Any]:
    """Options of a run that could have trained a Hugging Face model; `folder` has its `fields` and `processor`."""
    return {}


def hf_fields(run: Any, processor: Any, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of config.json that depend on the task; `facts` are those of run.json about the data."""
    return {}


def hf_template(run: Any) -> tuple[str, ...]:
    """How the exported tokenizer marks a text and a pair of texts; empty where the tokenizer marks texts itself."""
    return "{cls} $A {sep}", "{cls} $A {sep} $B:1 {sep}:1"


def save_hf(run: Any, folder: Path) -> None:
    """Writes files of other libraries beside those of transformers."""

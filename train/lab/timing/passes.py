"""Passes over texts, alone or in turns with a peer in another process."""

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import numpy as np

import tfm
from train import UserError
from train.files import programs
from train.lab.timing import turns
from train.lab.timing.options import BenchOptions
from train.lab.timing.peers import against
from train.lab.timing.reading import LabelPasses, is_classifier
from train.lab.timing.writing import Continuations, Translations
from train.runs.run_folder import open_folder

# Passes before those that are timed: the second one of a compiled peer may still compile.
_WARMUP = 2

# What is done with texts.
TextPasses = Continuations | Translations | LabelPasses


def measure(options: BenchOptions, interval: Callable[..., tuple[float, float]]) -> dict[str, object]:
    """The numbers of `train.bench` for texts; with a peer, the ratio of the seconds of a pass, peer / tfm."""
    if options.against:
        against.check(options.against, needs_folder=True)
    programs.keep()
    texts = _texts(options)
    facts: dict[str, object] = {
        "model": options.run or options.model,
        "device": jax.default_backend(),
        "dtype": texts.model.config.dtype,
        "weights": options.weights,
        "params": tfm.count_params(texts.model.specs),
    }
    facts |= texts.facts()
    if not options.against:
        return facts | texts.alone(options)
    with tempfile.TemporaryDirectory() as folder:
        return facts | _in_turns(options, texts, Path(folder), interval)


def _texts(options: BenchOptions) -> TextPasses:
    """What is done with texts: continued, translated, or classified."""
    if not options.data:
        return Continuations(options)
    return LabelPasses(options) if is_classifier(open_folder(options.run)) else Translations(options)


def _in_turns(options: BenchOptions, texts: TextPasses, folder: Path, interval) -> dict[str, object]:
    """Both sides, and the share of texts that have the same tokens."""
    try:
        texts.model.save(folder)
    except ValueError as error:
        raise UserError(f"--against needs a model that transformers has: {error}") from error
    (folder / "work.json").write_text(json.dumps({**texts.work(), "weights": options.weights}))
    work = {"folder": str(folder), "peer": options.against, "dtype": texts.model.config.dtype}
    with against.Peer(options.against, work, module="train.lab.timing.peers.writing_peer") as peer:
        measured = turns.take_turns({"tfm": texts.seconds, "peer": peer.passes}, warmup=_WARMUP, size=1)
        same = [tokens == peer_tokens for tokens, peer_tokens in zip(texts.tokens, peer.tokens, strict=True)]
    peer_facts = {f"peer_{name}": value for name, value in peer.facts.items()}
    peer_numbers = {f"peer_{name}": value for name, value in texts.summary(measured["peer"]).items()}
    return {
        **texts.summary(measured["tfm"]),
        "against": options.against,
        **peer_facts,
        **peer_numbers,
        "same_texts": round(float(np.mean(same)), 4),
        **turns.ratio(_totals(measured["peer"]), _totals(measured["tfm"]), interval),
    }


def _totals(passes: Sequence[Sequence[float]]) -> list[float]:
    """The seconds of whole passes."""
    return [float(seconds[-1]) for seconds in passes]

"""Completions of batches of prompts: tokens as the options choose them, as text up to the first stop."""

import math
import re
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TextIO, final

import numpy as np
from jax import Array

import tfm
from train import UserError
from train.devices import capacity
from train.generation.defaults import Choice
from train.screens import finite
from train.text import tokenize

# Seconds that a reader of a stream may wait for the next piece.
_PACE = 0.1

# What may lose its space by the next token: the beginning of a mark that stands without one before it.
_OPEN_SPACE = re.compile(r" ('[vr]?|n'?)?\Z")

# Tokens between two looks for a stop.
_STRIDE = 16


class Completion(NamedTuple):
    """A completion of a prompt.

    text: up to the first stop
    pieces: the text of every token
    logprobs: log-probability of every token, in nats; empty for a beam
    score: log-probability with the penalties of a beam
    streamed: whether the text has been written already
    """

    text: str
    pieces: list[str]
    logprobs: list[float]
    score: float | None = None
    streamed: bool = False


@final
class Decoder:
    """Decodes with one tokenizer and one strategy; the model comes with each batch."""

    def __init__(
        self,
        folder,
        choice: Choice,
        spell: Callable[[list[int], list[int]], str],
        stops: Sequence[str],
        sliding_context: bool = False,
    ):
        """`spell(prompt, tokens)` is the text that tokens add to a prompt."""
        self.config = tokenize.writing_model(folder.config.decoding_model, folder.processor)
        self.tokenizer = folder.processor
        self.choice = choice
        self.options = choice.options
        self.strategy = choice.strategy
        self.spell = spell
        self.stops = stops
        self.ends = choice.ends
        self.sliding_context = sliding_context
        self.draft: tfm.NGram | tfm.DraftModel | None = None
        self.tokens_per_pass: list[float] = []  # with a draft, of every batch of texts

    def decode(
        self,
        model: tfm.CausalLM,
        prompts: Sequence[list[int]],
        rows: np.ndarray,
        limits: Sequence[int],
        sources: Sequence[Sequence[int]] | None = None,
    ) -> list[list[Completion]]:
        """The completions of each prompt, of at most `limits` tokens: one, or the best of a beam.

        rows: the prompts' numbers, for seeds
        sources: what an encoder has read, by these numbers
        """
        read = prompts if sources is None else [sources[row] for row in rows]
        if self.strategy == "beam":
            return self._search(model, prompts, limits, read)
        generation = self._generation(model, prompts, rows, limits, read)
        stopped = False
        while not generation.done and not stopped:
            generation.advance(_STRIDE if self.has_stops else max(limits))
            self._check(model, prompts, generation.logprobs)
            stopped = self.has_stops and all(map(self.has_stop, map(self.spell, prompts, generation.tokens)))
        self._count_passes(generation)
        return [[completion] for completion in map(self.complete, prompts, generation.tokens, generation.logprobs)]

    def stream(
        self,
        model: tfm.CausalLM,
        prompt: list[int],
        max_new_tokens: int,
        out: TextIO,
        heading: str,
        source: list[int] | None = None,
    ) -> Completion:
        """The completion of one prompt, written to `out` behind the heading while it is decoded."""
        generation = self._generation(model, [prompt], np.zeros(1, np.int32), [max_new_tokens], [source or prompt])
        _write(out, heading)
        shown = ""
        num_tokens = 1
        while not generation.done and not self.has_stop(shown):
            start = time.perf_counter()
            generation.advance(num_tokens)
            self._check(model, [prompt], generation.logprobs)
            stable = self.stable(self.spell(prompt, generation.tokens[0]), generation.done)
            if stable.startswith(shown):
                _write(out, stable[len(shown) :])
                shown = stable
            fast = time.perf_counter() - start < _PACE / 2
            num_tokens = num_tokens * 2 if fast else max(1, num_tokens // 2)
        self._count_passes(generation)
        completion = self.complete(prompt, generation.tokens[0], generation.logprobs[0])
        _write(out, completion.text[len(shown) :] + "\n")
        return completion._replace(streamed=True)

    def _search(
        self,
        model: tfm.CausalLM,
        prompts: Sequence[list[int]],
        limits: Sequence[int],
        sources: Sequence[Sequence[int]],
    ) -> list[list[Completion]]:
        """The best completions that a beam finds; the limits are equal."""
        options, max_new_tokens = self.options, max(limits)
        capacity.check_decoding(model, self.config, len(prompts), _slots(prompts, max_new_tokens), options.beams)
        beam = self.choice.beam(self.choice.constraints(prompts, sources, limits))
        groups = tfm.beam_search(model, self.config, prompts, max_new_tokens, beam, self.choice.stop, options.n)
        self._check(model, prompts, [[best.score for best in group] or [math.nan] for group in groups])
        return [
            [self.complete(prompt, best.tokens, [])._replace(score=best.score) for best in group]
            for prompt, group in zip(prompts, groups, strict=True)
        ]

    def _generation(
        self,
        model: tfm.CausalLM,
        prompts: Sequence[list[int]],
        rows: np.ndarray,
        limits: Sequence[int],
        sources: Sequence[Sequence[int]],
    ) -> tfm.Generation | tfm.Speculation:
        choice = self.choice
        seeds, constraints = rows.astype(np.int32) + self.options.seed, choice.constraints(prompts, sources, limits)
        strategy = choice.greedy(constraints) if self.strategy == "greedy" else choice.sample(seeds, constraints)
        capacity.check_decoding(model, self.config, len(prompts), _slots(prompts, max(limits)))
        if self.draft is not None:
            return tfm.Speculation(model, self.config, prompts, limits, self.draft, strategy, choice.stop)
        return tfm.Generation(model, self.config, prompts, limits, strategy, choice.stop, self.sliding_context)

    def _count_passes(self, generation: tfm.Generation | tfm.Speculation):
        if isinstance(generation, tfm.Speculation):
            self.tokens_per_pass.append(generation.tokens_per_pass)

    def _check(self, model: tfm.CausalLM, prompts: Sequence[list[int]], logprobs: Sequence[Sequence[float]]):
        """Raises UserError, with the layer where it begins, if the model gives a text no finite probability."""
        for prompt, values in zip(prompts, logprobs, strict=True):
            if not all(map(math.isfinite, values)):
                tokens = np.array([prompt], np.int32)
                raise UserError(finite.explain(_first_logits, model, self.config, tokens))

    def complete(self, prompt: list[int], tokens: list[int], logprobs: list[float]) -> Completion:
        """Tokens as text, both up to the first stop."""
        text = self.spell(prompt, tokens)
        if self.has_stop(text):
            counts = range(len(tokens) + 1)
            tokens = tokens[: next(count for count in counts if self.has_stop(self.spell(prompt, tokens[:count])))]
            text = self.spell(prompt, tokens) if self.ends else text
        pieces = [self.tokenizer.decode([token], skip_special_tokens=False) for token in tokens]
        return Completion(self._before_stop(text), pieces, logprobs[: len(tokens)])

    def stable(self, text: str, done: bool) -> str:
        """The part of a text that stays: its end may be half a character, a space, or the beginning of a stop."""
        text = self._before_stop(text)
        text = text[: min((text.index(end) + len(end) for end in self.ends if end in text), default=len(text))]
        if done:
            return text
        longest_stop = max((len(stop) for stop in (*self.stops, *self.ends)), default=1)
        text = text[: max(0, len(text.rstrip("\ufffd")) - longest_stop + 1)]
        return _OPEN_SPACE.sub("", text)

    def has_stop(self, text: str) -> bool:
        """Whether a text that ends a completion is in it."""
        return any(stop in text for stop in (*self.stops, *self.ends))

    @property
    def has_stops(self) -> bool:
        """Whether a text may end a completion."""
        return bool(self.stops or self.ends)

    def _before_stop(self, text: str) -> str:
        return text[: min((text.index(stop) for stop in self.stops if stop in text), default=len(text))]


def _slots(prompts: Sequence[list[int]], max_new_tokens: int) -> int:
    """The tokens of the longest text."""
    return max(map(len, prompts)) + max_new_tokens


def _first_logits(model: tfm.CausalLM, config: tfm.Config, tokens: Array) -> Array:
    return tfm.causal_lm(model, config, tokens)


def _write(out: TextIO, text: str):
    print(text, end="", file=out, flush=True)

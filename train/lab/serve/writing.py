"""Texts of many requests, written by one language model: they join its batch and leave it.

`tfm.catalogue.decoding.slots` computes.
"""

import dataclasses
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, final

import jax.numpy as jnp
import numpy as np

import tfm
from tfm.catalogue.decoding import slots
from tfm.decoding.generate import left_padded
from train.generation.decoder import Completion, Decoder
from train.lab.serve.engine import check_queue

# Seconds between two pieces of a text that is shown while it is written.
_PACE = 0.05

# Places of a batch grow and shrink by this factor, and so does the room of its texts.
_GROWTH = 4

# The least room of texts in tokens.
_ROOM = 128


class TextPiece(NamedTuple):
    """What a text has got: `text` is new; at its end it is `completion`, which ends for a `reason` (stop, length)."""

    text: str
    completion: Completion | None = None
    reason: str = ""
    error: Exception | None = None


@dataclasses.dataclass
class PendingText:
    """A text to write.

    prompt: its tokens
    limit: new tokens, at most
    draw: how they are chosen
    stops: tokens that end it
    decoder: spells tokens, and knows the texts that end it
    send: takes its pieces, on the thread that computes; the last one has a completion, or an error
    is_shown: pieces are sent while it is written; else the last one alone
    is_dropped: nobody waits for it any more
    """

    prompt: list[int]
    limit: int
    draw: slots.Draw
    stops: Sequence[int]
    decoder: Decoder
    send: Callable[[TextPiece], None]
    is_shown: bool
    is_dropped: bool = False
    tokens: list[int] = dataclasses.field(default_factory=list)
    logprobs: list[float] = dataclasses.field(default_factory=list)
    shown: str = ""
    spelled: float = 0.0  # when it was spelled

    @property
    def length(self) -> int:
        """Tokens that a cache holds: all but the last."""
        return len(self.prompt) + len(self.tokens) - 1

    def add(self, token: int, logprob: float) -> bool:
        """Takes the next token; whether the text has ended."""
        self.tokens.append(token)
        self.logprobs.append(logprob)
        is_last = token in self.stops or len(self.tokens) == self.limit
        if not math.isfinite(logprob):
            raise ArithmeticError("the model gives a text no finite probability; look at its weights")
        watched = self.is_shown or self.decoder.has_stops
        if watched and not is_last and time.monotonic() - self.spelled >= _PACE:
            self.spelled = time.monotonic()
            text = self.decoder.spell(self.prompt, self.tokens)
            is_last = self.decoder.has_stop(text)
            if not is_last and self.is_shown:
                self._show(self.decoder.stable(text, done=False))
        if is_last:
            self._end(token)
        return is_last

    def _show(self, text: str):
        """Sends what is new in a text that stays as it is."""
        if text.startswith(self.shown) and text != self.shown:
            self.send(TextPiece(text[len(self.shown) :]))
            self.shown = text

    def _end(self, token: int):
        completion = self.decoder.complete(self.prompt, self.tokens, self.logprobs)
        is_stopped = token in self.stops or self.decoder.has_stop(self.decoder.spell(self.prompt, self.tokens))
        self.send(TextPiece(completion.text[len(self.shown) :], completion, "stop" if is_stopped else "length"))


@final
class SlotWriter:
    """Writes up to `width` texts at a time, and lets `limit` more wait.

    A text has the tokens that it would have alone. Programs are compiled for 1, 4, 16, ... texts of at most 128, 512,
    2,048, ... tokens, prompts included: so many slots has the batch. Where they are full, all texts move to the left.
    """

    def __init__(self, model: tfm.CausalLM, config: tfm.Config, width: int, limit: int):
        self.model, self.config, self.width, self.limit = model, config, width, limit
        self.changed = threading.Condition()
        self.written = 0  # tokens
        self._queue: deque[PendingText] = deque()
        self._places: list[PendingText | None] = []
        self._batch: slots.TextSlots | None = None
        self._room = 0
        self._length = 0  # slots that are filled

    @property
    def waiting(self) -> int:
        """Texts that wait or are written."""
        return len(self._queue) + sum(text is not None for text in self._places)

    def submit(self, texts: Sequence[PendingText]):
        """Texts to write. Raises Overloaded where too many wait."""
        with self.changed:
            check_queue(len(self._queue), len(texts), self.limit)
            self._queue.extend(texts)
            self.changed.notify_all()

    def delay(self, now: float) -> float:
        """0 while there is a text."""
        return 0.0 if self.waiting else math.inf

    def run(self) -> None:
        """Reads a prompt, if there is a place for it, and adds a token to every text."""
        self._leave()
        if self._queue and self.waiting - len(self._queue) < self.width:
            text = self._queue.popleft()
            if not text.is_dropped:
                self._read(text)
        if self._batch is not None and any(self._places):
            self._write()
        else:
            self._batch, self._places, self._room, self._length = None, [], 0, 0

    def _leave(self):
        """Takes texts that nobody waits for out, and the places that are too many."""
        self._places = [None if text is None or text.is_dropped else text for text in self._places]
        taken = [place for place, text in enumerate(self._places) if text is not None]
        smaller = _size(max(1, len(taken) + min(len(self._queue), self.width)), 1)
        if taken and self._batch is not None and smaller < len(self._places):
            kept = (taken + [taken[0]] * smaller)[:smaller]
            self._batch = slots.take_places(self._batch, jnp.array(kept))
            self._places = [self._places[place] if row < len(taken) else None for row, place in enumerate(kept)]

    def _read(self, text: PendingText):
        """Reads a prompt, and gives the text a place unless it has ended."""
        tokens, starts = left_padded([text.prompt])
        size = max(self._room, _size(tokens.shape[1] + text.limit, _ROOM))
        try:
            written = slots.read_prompt(self.config, size, self.model, tokens, starts, text.draw)
            has_ended = self._take(text, int(written.token[0]), float(written.logprob[0]))
        except Exception as error:
            text.send(TextPiece("", error=error))
            return
        if not has_ended:
            self._place(text, written, size)

    def _place(self, text: PendingText, written: slots.TextSlots, size: int):
        """Puts a text into a free place, of which it makes more where there is none."""
        if self._batch is None or not self._places:
            self._batch, self._places, self._room, self._length = written, [text], size, int(written.cache.length)
            return
        if size > self._room:
            self._batch, self._room = slots.with_room(self.config, size, self._batch), size
        if None not in self._places:
            wider = min(_GROWTH * len(self._places), _size(self.width, 1))
            self._batch = slots.take_places(self._batch, jnp.arange(wider) % len(self._places))
            self._places += [None] * (wider - len(self._places))
        if text.length > self._length:
            self._move(text.length)
        place = self._places.index(None)
        self._batch = slots.join(self.config, self._batch, written, jnp.int32(place))
        self._places[place] = text

    def _move(self, length: int):
        """Moves the texts, so that so many slots are filled."""
        self._batch = slots.move(self.config, self._batch, jnp.int32(length))
        self._length = length

    def _write(self):
        """Adds a token to every text."""
        texts = [text for text in self._places if text is not None]
        if self._length == self._room:
            self._move(max(text.length for text in texts))
        draws = [text.draw for text in texts]
        is_drawn = not all(draw.is_greedy for draw in draws)
        is_filtered = any(draw.is_filtered for draw in draws)
        self._batch = slots.write_tokens(self.config, is_drawn, is_filtered, self.model, self._batch)
        self._length += 1
        tokens, logprobs = np.asarray(self._batch.token), np.asarray(self._batch.logprob)
        for place, text in enumerate(self._places):
            if text is not None and self._ends(text, int(tokens[place]), float(logprobs[place])):
                self._places[place] = None

    def _ends(self, text: PendingText, token: int, logprob: float) -> bool:
        try:
            return self._take(text, token, logprob)
        except Exception as error:
            text.send(TextPiece("", error=error))
            return True

    def _take(self, text: PendingText, token: int, logprob: float) -> bool:
        self.written += 1
        return text.add(token, logprob)


def _size(count: int, smallest: int) -> int:
    """The least of `smallest` times 1, 4, 16, ... that is not below a count."""
    return sizes(count, smallest)[-1]


def sizes(count: int, smallest: int) -> list[int]:
    """`smallest` times 1, 4, 16, ..., up to the first that is not below a count."""
    grown = [smallest]
    while grown[-1] < count:
        grown.append(_GROWTH * grown[-1])
    return grown

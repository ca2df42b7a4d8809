"""Bodies of /v1/completions and /v1/chat/completions as texts to write, and what is written as their answers."""

import time
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from tfm.catalogue.decoding import slots
from train import UserError
from train.generation.decoder import Decoder
from train.generation.defaults import Choice, choose
from train.generation.options import GenerateOptions
from train.lab.serve.abilities import Served
from train.lab.serve.body import Body, Interval, Json, Refused
from train.lab.serve.writing import PendingText, TextPiece
from train.settings.limits import MAX_SEED
from train.text import control_tokens

# New tokens where a request does not say how many.
NEW_TOKENS = {"completion": 16, "chat": 256}

# Copies of a prompt, and texts that end a completion, at most.
_COPIES, _STOPS = 16, 16

# Fields of the numbers that a draw takes, with their limits; those without are of transformers' names.
_NUMBERS = {
    "temperature": Interval(0, 10),
    "top_p": Interval(1e-6, 1),
    "min_p": Interval(0, 1),
    "typical_p": Interval(1e-6, 1),
    "repetition_penalty": Interval(1, 10),
}

# What clients send though it changes nothing, and which values do not.
_NEUTRAL: Mapping[str, Json] = {
    "presence_penalty": (0, 0.0),
    "frequency_penalty": (0, 0.0),
    "best_of": (1,),
    "logit_bias": ({},),
    "suffix": ("",),
    "echo": (False,),
    "logprobs": (False, 0),
    "top_logprobs": (0,),
    "parallel_tool_calls": (True, False),
    "response_format": ({"type": "text"},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "store": (False,),
    "service_tier": None,
    "stream_options": None,
}


class TextOrder(NamedTuple):
    """What a request asks to be written.

    kind: completion or chat
    prompts: tokens of each text, copies included
    """

    kind: str
    model: Served
    prompts: list[list[int]]
    limit: int
    draws: list[slots.Draw]
    decoder: Decoder
    stops: list[int]
    streams: bool
    name: str
    created: int

    def texts(self, send: Callable[[int, TextPiece], None]) -> list[PendingText]:
        """The texts to write; `send` gets the number of a text and its pieces."""
        texts = []
        for row, (prompt, draw) in enumerate(zip(self.prompts, self.draws, strict=True)):
            limit, send_piece = limit_of(self, prompt), partial(send, row)
            texts.append(PendingText(prompt, limit, draw, self.stops, self.decoder, send_piece, self.streams))
        return texts

    def answer(self, last: list[TextPiece]) -> dict[str, Json]:
        """The answer of all texts, by their last pieces in order."""
        choices, written = [], 0
        for index, piece in enumerate(last):
            assert piece.completion is not None, "a last piece"
            content = self._content(piece.completion.text, "message")
            choices.append({"index": index, **content, "logprobs": None, "finish_reason": piece.reason})
            written += len(piece.completion.pieces)
        read = sum(map(len, self.prompts))
        usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
        return {**self._head(""), "choices": choices, "usage": usage}

    def chunk(self, row: int, piece: TextPiece) -> dict[str, Json]:
        """An event of a stream."""
        choice = {"index": row, **self._content(piece.text, "delta"), "logprobs": None}
        return {**self._head(".chunk"), "choices": [{**choice, "finish_reason": piece.reason or None}]}

    def _content(self, text: str, field: str) -> dict[str, Json]:
        return {"text": text} if self.kind == "completion" else {field: {"role": "assistant", "content": text}}

    def _head(self, suffix: str) -> dict[str, Json]:
        kind = "text_completion" if self.kind == "completion" else f"chat.completion{suffix}"
        return {"id": self.name, "object": kind, "created": self.created, "model": self.model.name}


def limit_of(order: TextOrder, prompt: list[int]) -> int:
    """New tokens of a prompt: as many as the positions of the model allow."""
    positions = order.model.folder.config.model.max_length
    return order.limit if positions is None else min(order.limit, positions - len(prompt))


def read_order(body: Body, kind: str, model: Served) -> TextOrder:
    """What a body asks for. Raises Refused for what cannot be written."""
    prompts = _prompts(body, kind, model)
    limit = _limit(body, kind)
    copies = body.numeric("n", 1, Interval(1, _COPIES), integer=True)
    seed = body.numeric("seed", None, Interval(0, MAX_SEED), integer=True)
    stops = body.texts("stop") if body.get("stop") else []
    if len(stops) > _STOPS or "" in stops:
        raise Refused(422, f"stop has {len(stops)} texts or an empty one; send at most {_STOPS} that are not empty")
    chosen = _chosen(body, model)
    streams = body.flag("stream")
    body.finish(_NEUTRAL)
    assert model.continues is not None, "a language model"
    first = seed if seed is not None else uuid.uuid4().int % MAX_SEED
    decoder = Decoder(model.folder, chosen, model.continues.spell, [*stops, *chosen.options.stops])
    config = decoder.config
    prompts = [prompt for prompt in prompts for _ in range(copies)]
    is_greedy = chosen.strategy == "greedy"
    strategies = [
        chosen.greedy() if is_greedy else chosen.sample(np.asarray((first + row) % MAX_SEED))
        for row in range(len(prompts))
    ]
    draws = [slots.any_draw(config, strategy) for strategy in strategies]
    name = f"{'cmpl' if kind == 'completion' else 'chatcmpl'}-{uuid.uuid4().hex[:24]}"
    return TextOrder(kind, model, prompts, limit, draws, decoder, chosen.stop, streams, name, int(time.time()))


def _prompts(body: Body, kind: str, model: Served) -> list[list[int]]:
    """The tokens of prompts, or of a conversation. Raises Refused where the model cannot read them."""
    continues = model.continues
    assert continues is not None, "a language model"
    positions = model.folder.config.model.max_length
    try:
        with control_tokens.reading(model.folder.config.data.control_tokens):
            if kind == "chat":
                prompts = [continues.encode_chat(_messages(body))]
            else:
                prompts = [continues.encode(text) for text in body.texts("prompt")]
    except UserError as error:
        raise Refused(422, str(error)) from error
    for prompt in prompts:
        if positions is not None and len(prompt) >= positions:
            raise Refused(422, f"the prompt has {len(prompt)} tokens, and the model {positions} positions; shorten it")
    return prompts


def _messages(body: Body) -> list[dict[str, str]]:
    """The messages of a conversation: texts, or lists of parts that are texts."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refused(422, "messages is no list of messages; send at least one with a role and its content")
    checked = []
    for index, message in enumerate(messages):
        fields = Body.of(message, f"messages[{index}]")
        content = fields.get("content")
        if isinstance(content, list):
            parts = [Body.of(part, f"messages[{index}].content") for part in content]
            if any(part.get("type") != "text" for part in parts):
                raise Refused(422, f"messages[{index}] has a part that is no text; send texts")
            content = "".join(part.text("text") for part in parts)
        if not isinstance(content, str) or not isinstance(fields.get("role"), str):
            raise Refused(422, f"messages[{index}] lacks a role or a content; both are texts")
        checked.append({"role": fields.text("role"), "content": content})
    return checked


def _limit(body: Body, kind: str) -> int:
    longest = Interval(1, 1 << 20)
    newer = body.numeric("max_completion_tokens", None, longest, integer=True)
    older = body.numeric("max_tokens", None, longest, integer=True)
    return newer or older or NEW_TOKENS[kind]


def _chosen(body: Body, model: Served) -> Choice:
    """How texts are written: by the fields of the body, else as the folder says."""
    values = {name: body.numeric(name, None, limits) for name, limits in _NUMBERS.items()}
    values["top_k"] = body.numeric("top_k", None, Interval(1, 1 << 20), integer=True)
    explicit = {name: value for name, value in values.items() if value is not None}
    strategy = ""
    if explicit.get("temperature") == 0:
        strategy = "greedy"
        explicit = {name: explicit[name] for name in ("repetition_penalty",) if name in explicit}
    elif set(explicit) - {"repetition_penalty"}:
        strategy = "sample"
    try:
        options = GenerateOptions(run=str(model.folder.path), **explicit)
        choice = choose(model.folder, options, {"run": options.run, **explicit}, strategy, "sample")
    except (ValueError, UserError) as error:
        raise Refused(422, str(error)) from error
    return choice._replace(strategy="greedy") if choice.strategy == "beam" else choice

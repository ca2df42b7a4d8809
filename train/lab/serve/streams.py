"""Texts that a language model writes, from the thread that computes to an event loop."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator

from train.files.strict_json import json_text
from train.lab.serve.body import Refused, error_of
from train.lab.serve.completions import TextOrder
from train.lab.serve.engine import Overloaded
from train.lab.serve.writing import PendingText, TextPiece

_LOG = logging.getLogger("train.serve")


class PieceStream:
    """The pieces of texts that are written, from the thread that computes. Raises Refused (429) where many wait."""

    def __init__(self, order: TextOrder):
        self._queue: asyncio.Queue[tuple[int, TextPiece]] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def send(row: int, piece: TextPiece):
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._queue.put_nowait, (row, piece))

        self.texts: list[PendingText] = order.texts(send)
        assert order.model.writer is not None, "a language model"
        try:
            order.model.writer.submit(self.texts)
        except Overloaded as error:
            raise Refused(429, str(error)) from error

    async def all(self) -> AsyncGenerator[tuple[int, TextPiece]]:
        """Each piece with the number of its text. Texts are dropped when nobody takes their pieces any more."""
        running = len(self.texts)
        try:
            while running:
                row, piece = await self._queue.get()
                if piece.error is not None:
                    raise piece.error
                running -= piece.completion is not None
                yield row, piece
        finally:
            for text in self.texts:
                text.is_dropped = True

    async def ended(self) -> AsyncGenerator[tuple[int, TextPiece]]:
        """The last piece of each text."""
        async with contextlib.aclosing(self.all()) as pieces:
            async for row, piece in pieces:
                if piece.completion is not None:
                    yield row, piece


async def events(order: TextOrder, pieces: PieceStream) -> AsyncIterator[str]:
    """The events of a stream."""
    try:
        async with contextlib.aclosing(pieces.all()) as sent:
            async for row, piece in sent:
                yield f"data: {json_text(order.chunk(row, piece))}\n\n"
    except Exception:
        _LOG.exception("a model failed")
        yield f"data: {json_text(error_of(500, 'the model failed at this text; its log says more'))}\n\n"
    yield "data: [DONE]\n\n"

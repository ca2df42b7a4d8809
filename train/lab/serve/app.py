"""The paths of the server, and what waits for the engine: an application of Starlette."""

import asyncio
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

from train import UserError
from train.files.strict_json import json_text
from train.lab.serve.abilities import Served
from train.lab.serve.body import Body, Json, Refused, error_of
from train.lab.serve.engine import Content, Overloaded, Said
from train.lab.serve.meters import Meters
from train.lab.serve.page import page

# Tokens that stand around a text, about.
_MARKS = 2

# Seconds in which a client has to send its body.
_PATIENCE = 30.0

_LOG = logging.getLogger("train.serve")

Handler = Callable[["Server", Body, Request], Awaitable[Json]]


class Server:
    """Models by name, and what each path asks of them. `token` is what requests must bring, or empty."""

    def __init__(self, models: Sequence[Served], body_bytes: int, token: str = ""):
        self.models = {model.name: model for model in models}
        self.body_bytes, self.token = body_bytes, token
        self.meters = Meters(models)

    def application(self, handlers: "Mapping[str, Handler]") -> Starlette:
        """The application, with a handler for each path."""
        application = Starlette()
        for path, handler in handlers.items():
            application.add_route(path, self._answered(path, handler), methods=["POST"])
        pages = {"/": self._page, "/healthz": self._health, "/metrics": self._metrics, "/v1/models": self._list}
        for path, answer in pages.items():
            application.add_route(path, answer)
        return application

    def model_for(self, body: Body, *abilities: str) -> Served:
        """The model that a body names, or the first one with the first of these abilities that any has. Raises Refused
        (404) where there is none."""
        name = body.text("model")
        if name and name not in self.models:
            raise Refused(404, f"there is no model {name[:60]!r}; there are {', '.join(self.models)}")
        models = [self.models[name]] if name else self.models.values()
        for ability in abilities:
            for model in models:
                if ability in model.abilities:
                    return model
        raise Refused(404, f"{name or 'no model'} can {abilities[-1]}; {self._abilities()}")

    async def ask(self, model: Served, ability: str, contents: Sequence[Content], counts: Sequence[int]) -> list[Said]:
        """What a model says of contents, whose texts have so many tokens. Raises Refused where it cannot."""
        sizes = np.reshape(counts, (len(contents), -1)).sum(1)
        try:
            futures = model.batches[ability].submit(contents, (sizes + _MARKS).tolist())
        except Overloaded as error:
            raise Refused(429, str(error)) from error
        self.meters.read.inc(sum(counts))
        try:
            return list(await asyncio.gather(*map(asyncio.wrap_future, futures)))
        except UserError as error:
            raise Refused(422, str(error)) from error
        finally:
            for future in futures:  # nobody waits for them any more
                future.cancel()

    def _answered(self, path: str, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """A handler with what all paths share: the token, the body, errors, meters, and clients that hang up."""

        async def answer(request: Request) -> Response:
            start = time.perf_counter()
            response = await self._checked(handler, request)
            self.meters.count(path, response.status_code, time.perf_counter() - start)
            return response

        return answer

    async def _checked(self, handler: Handler, request: Request) -> Response:
        try:
            self._check_token(request)
            body = Body(await self._content(request))
            answer = await unless_gone(request, handler(self, body, request))
        except Refused as error:
            return refusal(error.status, str(error))
        except Exception:
            _LOG.exception("a model failed")
            self.meters.faults.inc()
            return refusal(500, "the model failed at this request; its log says more")
        return answer if isinstance(answer, Response) else _json(answer)

    async def _content(self, request: Request) -> bytes:
        """The bytes of a body. Raises Refused for one that is too large or comes too slowly."""
        parts, size = [], 0
        try:
            async with asyncio.timeout(_PATIENCE):
                async for part in request.stream():
                    size += len(part)
                    if size > self.body_bytes:
                        raise Refused(413, f"the body has more than {self.body_bytes:,} bytes; send several requests")
                    parts.append(part)
        except TimeoutError as error:
            raise Refused(408, f"the body did not come within {_PATIENCE:g} seconds; send it at once") from error
        return b"".join(parts)

    def _check_token(self, request: Request):
        sent = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.token and not hmac.compare_digest(sent.encode(), self.token.encode()):
            raise Refused(401, "the request has no right token; send the header Authorization: Bearer TOKEN")

    def _abilities(self) -> str:
        return "; ".join(f"{model.name} can {', '.join(model.abilities)}" for model in self.models.values())

    async def _page(self, request: Request) -> Response:
        return HTMLResponse(page(self.models.values()))

    async def _health(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _metrics(self, request: Request) -> Response:
        return Response(self.meters.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _list(self, request: Request) -> Response:
        try:
            self._check_token(request)
        except Refused as error:
            return refusal(error.status, str(error))
        return _json({"object": "list", "data": [_described(model) for model in self.models.values()]})


def count_tokens(model: Served, texts: Sequence[str]) -> list[int]:
    """The tokens of texts. Raises Refused for one that a model may not read."""
    try:
        return model.count_tokens(texts)
    except UserError as error:
        raise Refused(422, str(error)) from error


def _described(model: Served) -> dict[str, Json]:
    return {"id": model.name, "object": "model", "owned_by": "tfm", "abilities": model.abilities}


async def unless_gone(request: Request, answer: Awaitable[Json]) -> Json:
    """An answer, unless the client hangs up before: it is cancelled then."""
    task = asyncio.ensure_future(answer)
    gone = asyncio.ensure_future(_hung_up(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Refused(499, "the client has hung up")
        return task.result()
    finally:
        for waiting in (task, gone):
            waiting.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def refusal(status: int, sentence: str) -> Response:
    """The answer to a request that is refused."""
    headers = {"Retry-After": "1"} if status == 429 else {}
    return JSONResponse(error_of(status, sentence), status_code=status, headers=headers)


def _json(value: Json) -> Response:
    return Response(json_text(value), media_type="application/json")

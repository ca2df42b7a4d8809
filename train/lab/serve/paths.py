"""What each path answers: an answer is an object for JSON, or a response of its own."""

import base64
import contextlib
import functools
from collections.abc import Sequence

import numpy as np
from starlette.requests import Request
from starlette.responses import HTMLResponse, StreamingResponse

from train.lab.embedding.search import normalize
from train.lab.serve.app import Handler, Server, count_tokens
from train.lab.serve.body import Body, Interval, Json, Refused
from train.lab.serve.completions import read_order
from train.lab.serve.streams import PieceStream, events

# The most candidates for a blank, and tokens whose attention is shown.
_CANDIDATES, _LOOKED = 100, 128


async def embeddings(server: Server, body: Body, request: Request) -> Json:
    """/v1/embeddings, as OpenAI has it."""
    model = server.model_for(body, "embed")
    texts = body.texts("input")
    form = body.choice("encoding_format", ["float", "base64"])
    size = body.numeric("dimensions", None, Interval(1, 1 << 16), integer=True)
    body.finish()
    counts = count_tokens(model, texts)
    vectors = np.stack(await server.ask(model, "embed", texts, counts))
    if size and size > len(vectors[0]):
        raise Refused(422, f"dimensions is {size}, and vectors have {len(vectors[0])}; ask for fewer")
    vectors = normalize(vectors[:, :size]) if size else vectors
    data = [
        {"object": "embedding", "index": index, "embedding": _written(vector, form)}
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": sum(counts), "total_tokens": sum(counts)}
    return {"object": "list", "data": data, "model": model.name, "usage": usage}


async def rerank(server: Server, body: Body, request: Request) -> Json:
    """/rerank: texts by how well they answer a query, the best first, as text-embeddings-inference has it."""
    model = server.model_for(body, "rank", "embed")
    query, texts = body.text("query"), body.texts("texts")
    if not query:
        raise Refused(422, "query is empty; send a text")
    with_text, is_raw = body.flag("return_text"), body.flag("raw_scores")
    body.finish()
    if "rank" in model.abilities:
        pairs = [(query, text) for text in texts]
        raw = await server.ask(model, "rank", pairs, count_tokens(model, _flat(pairs)))
        scores = raw if is_raw or model.has_final_scores else [float(1 / (1 + np.exp(-score))) for score in raw]
    else:
        asked = [query, *texts]
        vectors = normalize(np.stack(await server.ask(model, "embed", asked, count_tokens(model, asked))))
        scores = (vectors[1:] @ vectors[0]).tolist()
    order = np.argsort([-score for score in scores], kind="stable").tolist()
    return [{"index": i, "score": scores[i], **({"text": texts[i]} if with_text else {})} for i in order]


async def classify(server: Server, body: Body, request: Request) -> Json:
    """/classify: the label of each text or pair, and the probabilities of all."""
    model = server.model_for(body, "classify")
    texts = body.pairs("texts")
    body.finish()
    if len({len(parts) for parts in texts}) > 1:
        raise Refused(422, "texts has single texts and pairs; send one kind")
    rows = await server.ask(model, "classify", texts, count_tokens(model, _flat(texts)))
    return [{"label": row["label"], "probabilities": row["probabilities"]} for row in rows]


async def fill(server: Server, body: Body, request: Request) -> Json:
    """/fill: the most probable tokens for each [MASK] of each text."""
    model = server.model_for(body, "fill")
    texts = body.texts("texts")
    count = body.numeric("top_k", 5, Interval(1, _CANDIDATES), integer=True)
    body.finish()
    if any("[MASK]" not in text and "<mask>" not in text for text in texts):
        raise Refused(422, "a text has no blank to fill; write [MASK] where a word is missing")
    rows = await server.ask(model, "fill", [(text, count) for text in texts], count_tokens(model, texts))
    return [[blank[:count] for blank in row["blanks"]] for row in rows]


async def translate(server: Server, body: Body, request: Request) -> Json:
    """/translate: the translation of each text."""
    model = server.model_for(body, "translate")
    texts = body.texts("texts")
    body.finish()
    limit = model.folder.config.model.max_length
    counts = count_tokens(model, texts)
    for text, count in zip(texts, counts, strict=True):
        if limit is not None and count + 2 > limit:
            raise Refused(422, f"{text[:40]!r} has {count} tokens, and the model {limit} positions; shorten it")
    rows = await server.ask(model, "translate", texts, counts)
    return [row["translation"] for row in rows]


async def attention(server: Server, body: Body, request: Request) -> Json:
    """/attention: a page of where the model looks in a text or a pair, to be turned to a layer, a head and a word."""
    model = server.model_for(body, "look")
    texts = body.pairs("texts")
    body.finish()
    if len(texts) != 1:
        raise Refused(422, "texts must be one text, or one pair")
    counts = count_tokens(model, _flat(texts))
    if sum(counts) > _LOOKED:
        raise Refused(422, f"the text has {sum(counts)} tokens, and attention is shown for {_LOOKED}; shorten it")
    (page,) = await server.ask(model, "look", texts, [sum(counts)])
    return HTMLResponse(page)


async def completions(server: Server, body: Body, request: Request, kind: str = "completion") -> Json:
    """/v1/completions and /v1/chat/completions, as OpenAI has them."""
    model = server.model_for(body, "complete" if kind == "completion" else "chat")
    order = read_order(body, kind, model)
    server.meters.read.inc(sum(map(len, order.prompts)))
    pieces = PieceStream(order)
    if order.streams:
        return StreamingResponse(events(order, pieces), media_type="text/event-stream")
    async with contextlib.aclosing(pieces.ended()) as ended:
        last = {row: piece async for row, piece in ended}
    return order.answer([last[row] for row in range(len(order.prompts))])


def _written(vector: np.ndarray, form: str) -> Json:
    """A vector as numbers, or as base64 of float32, little-endian."""
    if form == "base64":
        return base64.b64encode(np.asarray(vector, "<f4").tobytes()).decode()
    return np.asarray(vector, np.float32).tolist()


def _flat(texts: Sequence[Sequence[str]]) -> list[str]:
    return [text for parts in texts for text in parts]


PATHS: dict[str, Handler] = {
    "/v1/embeddings": embeddings,
    "/v1/completions": completions,
    "/v1/chat/completions": functools.partial(completions, kind="chat"),
    "/rerank": rerank,
    "/classify": classify,
    "/fill": fill,
    "/translate": translate,
    "/attention": attention,
}

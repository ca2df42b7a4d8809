"""The server: answers are those of the commands, alone and in company; bad requests get one sentence."""

import asyncio
import base64
import concurrent.futures
import contextlib
import json
import re
import threading
from pathlib import Path

import numpy as np
import pytest
from small import FLAGS, call, write_text

from train.generate import main as generate
from train.main import main
from train.predict import main as predict

pytest.importorskip("starlette")
pytest.importorskip("prometheus_client")
pytest.importorskip("httpx")
pytestmark = pytest.mark.slow

TEXTS = ["one two three", "a line", "the cat sat on the mat and looked", "x"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Runs of four tasks."""
    folder = tmp_path_factory.mktemp("home")
    with contextlib.chdir(folder):
        write_text(Path("text.txt"))
        rows = [f"{'good' if n % 2 else 'bad'} thing number {n}\t{n % 2}" for n in range(64)]
        Path("rows.tsv").write_text("text\tlabel\n" + "\n".join(rows) + "\n")
        Path("pairs.tsv").write_text("en\tde\n" + "".join(f"word {n} here\thier wort {n}\n" for n in range(64)))
        for flags in (
            ("--task=lm", "--data.split=line", "--model.length=48", "--out=lm"),
            ("--task=mlm", "--out=mlm"),
            ("--task=classify", "--data=rows.tsv", "--out=classify"),
            ("--task=translate", "--data=pairs.tsv", "--out=translate"),
        ):
            code, _, err = call(main, *FLAGS, *flags)
            assert code == 0, err
    return folder


@pytest.fixture(scope="module")
def server(home):
    """An engine and a client for all four."""
    from starlette.testclient import TestClient

    from train.lab.serve.abilities import served
    from train.lab.serve.app import Server
    from train.lab.serve.engine import Engine
    from train.lab.serve.options import ServeOptions
    from train.lab.serve.paths import PATHS
    from train.screens.console import Log

    with contextlib.chdir(home):
        options = ServeOptions(run="lm,mlm,classify,translate", slots=4, queue=64)
        models = list(served(options, Log(quiet=True)))
        engine = Engine([work for model in models for work in model.works])
        engine.start()
        with TestClient(Server(models, options.body).application(PATHS)) as client:
            yield client
        engine.close()


def post(server, path, **fields):
    response = server.post(path, json=fields)
    assert response.status_code == 200, response.text
    return response.json()


def test_greedy_texts_are_those_of_the_command(home, server):
    with contextlib.chdir(home):
        flags = ("--run=lm", "--strategy=greedy", "--max-new-tokens=12")
        alone = [call(generate, *flags, f"--prompt={text}")[1].removesuffix("\n") for text in TEXTS]
    fields = {"max_tokens": 12, "temperature": 0}
    assert [
        text + post(server, "/v1/completions", prompt=text, **fields)["choices"][0]["text"] for text in TEXTS
    ] == alone
    answer = post(server, "/v1/completions", prompt=TEXTS, **fields)
    assert [text + choice["text"] for text, choice in zip(TEXTS, answer["choices"], strict=True)] == alone
    assert answer["usage"]["completion_tokens"] <= 48


def test_company_changes_no_answer(server):
    asked = [
        ("/v1/completions", {"prompt": text, "max_tokens": 10 + row, "seed": row, "top_p": 0.9})
        for row, text in enumerate(TEXTS * 2)
    ]
    asked += [("/v1/embeddings", {"input": text}) for text in TEXTS]
    asked += [("/classify", {"texts": text}) for text in TEXTS]
    asked += [("/fill", {"texts": f"{text} [MASK]", "top_k": 3}) for text in TEXTS]
    asked += [("/translate", {"texts": text}) for text in TEXTS]
    alone = [_compared(post(server, path, **fields)) for path, fields in asked]
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        together = list(pool.map(lambda item: _compared(post(server, item[0], **item[1])), asked))
    for single, shared in zip(alone, together, strict=True):
        assert _words(single) == _words(shared)
        np.testing.assert_allclose(_figures(single), _figures(shared), atol=1e-5)


def _compared(answer):
    if isinstance(answer, dict):
        return [choice["text"] for choice in answer["choices"]] if "choices" in answer else answer["data"]
    return answer


def _figures(value):
    if isinstance(value, float):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [figure for part in parts for figure in _figures(part)]


def _words(value):
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [word for part in parts for word in _words(part)]


def test_a_stream_is_the_text(server):
    fields = {"prompt": TEXTS[2], "max_tokens": 20, "seed": 3}
    full = post(server, "/v1/completions", **fields)["choices"][0]
    with server.stream("POST", "/v1/completions", json={**fields, "stream": True}) as response:
        events = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert events[-1] == "[DONE]"
    choices = [json.loads(event)["choices"][0] for event in events[:-1]]
    assert "".join(choice["text"] for choice in choices) == full["text"]
    assert choices[-1]["finish_reason"] == full["finish_reason"]


def test_stops_end_a_text(server):
    full = post(server, "/v1/completions", prompt="one", max_tokens=30, temperature=0)["choices"][0]["text"]
    stop = full[len(full) // 2 :][:2]
    cut = post(server, "/v1/completions", prompt="one", max_tokens=30, temperature=0, stop=stop)["choices"][0]
    assert cut["text"] == full[: full.index(stop)]
    assert cut["finish_reason"] == "stop"


def test_vectors(server):
    plain = post(server, "/v1/embeddings", input=TEXTS)["data"]
    packed = post(server, "/v1/embeddings", input=TEXTS, encoding_format="base64")["data"]
    for row, encoded in zip(plain, packed, strict=True):
        np.testing.assert_array_equal(
            np.float32(row["embedding"]), np.frombuffer(base64.b64decode(encoded["embedding"]), "<f4")
        )
    short = post(server, "/v1/embeddings", input=TEXTS[0], dimensions=4)["data"][0]["embedding"]
    expected = np.float32(plain[0]["embedding"][:4])
    np.testing.assert_allclose(short, expected / np.linalg.norm(expected), atol=1e-6)


def test_ranks_are_in_order(server):
    rows = post(server, "/rerank", query="one two", texts=TEXTS, return_text=True, model="mlm")
    assert [row["score"] for row in rows] == sorted((row["score"] for row in rows), reverse=True)
    assert {row["text"] for row in rows} == set(TEXTS)


BAD = {
    "no object": ("/fill", b"[]", 422, "the body is a JSON array; send an object"),
    "no json": ("/fill", b"{", 422, "the body is no JSON"),
    "not finite": ("/fill", b'{"texts": NaN}', 422, "NaN is no number of JSON"),
    "no text": ("/fill", b'{"texts": 3}', 422, "texts is 3; send a text, or a list of texts"),
    "no blank": ("/fill", b'{"texts": "a"}', 422, "write [MASK] where a word is missing"),
    "no texts": ("/classify", b'{"texts": []}', 422, "send a text, or a list of texts"),
    "three texts": ("/classify", b'{"texts": [["a", "b", "c"]]}', 422, "send a text, or a pair of two"),
    "field": ("/classify", b'{"texts": "a", "lines": 2}', 422, 'the field "lines" is not read here; leave it out'),
    "model": ("/classify", b'{"texts": "a", "model": "../x"}', 404, "there is no model '../x'"),
    "ability": ("/classify", b'{"texts": "a", "model": "lm"}', 404, "lm can look, complete"),
    "many": ("/classify", json.dumps({"texts": ["a"] * 300}).encode(), 413, "a request may have 256"),
    "long": ("/classify", json.dumps({"texts": "a" * 300_000}).encode(), 413, "characters"),
    "large": ("/classify", b'{"texts": "' + b"a" * (1 << 20) + b'"}', 413, "more than 1,048,576 bytes"),
    "surrogate": ("/classify", b'{"texts": "\\ud800"}', 422, "half a character"),
    "prompt": ("/v1/completions", b'{"prompt": ""}', 422, "the prompt has no tokens"),
    "full": ("/v1/completions", json.dumps({"prompt": "one " * 200}).encode(), 422, "positions"),
    "temperature": ("/v1/completions", b'{"prompt": "a", "temperature": -1}', 422, "send a number from 0 to 10"),
    "penalty": ("/v1/completions", b'{"prompt": "a", "presence_penalty": 1}', 422, "which is not done here"),
    "chat": ("/v1/chat/completions", b'{"messages": []}', 404, "can chat"),
    "dimensions": ("/v1/embeddings", b'{"input": "a", "dimensions": 60000}', 422, "ask for fewer"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_requests(server, name):
    path, content, status, sentence = BAD[name]
    response = server.post(path, content=content)
    assert response.status_code == status, response.text
    message = response.json()["error"]["message"]
    assert sentence in message
    assert "\n" not in message


async def awaited(future):
    """The result of a future of another thread."""
    return await asyncio.wait_for(asyncio.wrap_future(future), 5)


@pytest.mark.parametrize(("error", "raised"), [(ArithmeticError, ArithmeticError), (StopIteration, RuntimeError)])
def test_a_text_that_fails_spoils_no_other(error, raised):
    """What awaits the text is told, whatever the error."""
    from train.lab.serve.engine import BatchQueue, Engine

    def answer(contents):
        if "bad" in contents:
            raise error
        return [content.upper() for content in contents]

    batches = BatchQueue(answer, wait=0.05, budget=100, limit=8)
    engine = Engine([batches])
    engine.start()
    futures = batches.submit(["a", "bad", "b"], [1, 1, 1])
    assert futures[0].result(5) == "A"
    assert futures[2].result(5) == "B"
    with pytest.raises(raised):
        asyncio.run(awaited(futures[1]))
    engine.close()


def test_batches_are_bounded_and_in_order():
    from train.lab.serve.engine import BatchQueue, Engine, Overloaded

    seen, gate = [], threading.Event()

    def answer(contents):
        gate.wait(5)
        seen.append(list(contents))
        return contents

    batches = BatchQueue(answer, wait=10, budget=10, limit=4)
    engine = Engine([batches])
    futures = batches.submit(["a", "b", "c", "d"], [4, 4, 4, 9])
    with pytest.raises(Overloaded):
        batches.submit(["e"], [1])
    engine.start()
    gate.set()
    assert [future.result(5) for future in futures] == ["a", "b", "c", "d"]
    assert seen == [["a", "b"], ["c"], ["d"]]
    engine.close()


def test_who_hangs_up_frees_the_place(home, server):
    for _ in range(6):
        with server.stream("POST", "/v1/completions", json={"prompt": "one", "max_tokens": 40, "stream": True}) as _:
            pass
    assert 'tfm_waiting{model="lm"} 0.0' in _settled(server)


def _settled(server):
    for _ in range(100):
        text = server.get("/metrics").text
        if 'tfm_waiting{model="lm"} 0.0' in text:
            break
        threading.Event().wait(0.05)
    return text


def test_pages(server):
    assert server.get("/healthz").text == "ok\n"
    assert {model["id"] for model in server.get("/v1/models").json()["data"]} == {"lm", "mlm", "classify", "translate"}
    page = server.get("/").text
    assert "connect-src 'self'" in page
    assert '"abilities":' in page.replace('"abilities": ', '"abilities":')


def maps_of(page):
    """The maps of a page of attention."""
    return json.loads(re.search(r'json">(.*?)</script>', page)[1])["maps"]


def test_attention_is_that_of_the_command(home, server):
    """The page of /attention holds the maps that train.predict --attention draws."""
    with contextlib.chdir(home):
        texts = [("mlm", "the [MASK] sat"), *((name, "the cat sat") for name in ("lm", "mlm", "classify", "translate"))]
        for name, text in texts:
            response = server.post("/attention", json={"model": name, "texts": text})
            assert response.status_code == 200, response.text
            code, _, err = call(predict, f"--run={name}", f"--text={text}", f"--attention={name}.html")
            assert code == 0, err
            assert maps_of(response.text) == maps_of(Path(f"{name}.html").read_text())
    for texts, sentence in ((["a", "b"], "one text"), ("a " * 200, "tokens, and attention is shown for 128")):
        response = server.post("/attention", json={"model": "lm", "texts": texts})
        assert response.status_code == 422
        assert sentence in response.json()["error"]["message"]

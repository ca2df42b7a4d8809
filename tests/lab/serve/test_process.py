"""The server as a process: its start, mutated requests, many connections, and its end."""

import asyncio
import contextlib
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from lab.serve.browser import ENTER, RIGHT, TAB, browser
from small import FLAGS, call, write_text

from train.lab.serve import command
from train.lab.serve.options import ServeOptions
from train.main import main
from train.serve import main as serve

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A language model and an encoder."""
    folder = tmp_path_factory.mktemp("home")
    with contextlib.chdir(folder):
        write_text(Path("text.txt"))
        for flags in (("--task=lm", "--model.length=512", "--out=lm"), ("--task=mlm", "--out=mlm")):
            code, _, err = call(main, *FLAGS, *flags)
            assert code == 0, err
    return folder


def test_answers_are_sent_at_once():
    """No connection keeps a short answer back until the last one was acknowledged, which takes 40 ms."""

    async def has_no_delay(listening) -> int:
        accepted = asyncio.get_running_loop().create_future()
        server = await asyncio.start_server(lambda reader, writer: accepted.set_result(writer), sock=listening)
        _, writer = await asyncio.open_connection(*listening.getsockname()[:2])
        connection = (await accepted).get_extra_info("socket")
        flag = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()
        server.close()
        return flag

    with command.bound(ServeOptions(run="lm", port=0)) as listening:
        assert asyncio.run(has_no_delay(listening))


@contextlib.contextmanager
def process(home, *flags, **environment):
    """A server of its own, and its port."""
    command = [sys.executable, "-m", "train.serve", "--run=lm,mlm", "--port=0", "--warm=false", *flags]
    root = str(Path(__file__).parents[3])
    with subprocess.Popen(
        command, cwd=home, env={**os.environ, "PYTHONPATH": root, **environment}, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            lines = []
            for line in server.stderr:
                lines.append(line)
                if line.startswith("ready at "):
                    break
            else:
                raise AssertionError("".join(lines))
            yield server, int(line.strip().rstrip("/").rsplit(":", 1)[1])
        finally:
            server.kill()


@pytest.fixture(scope="module")
def port(home):
    with process(home) as (_, port):
        yield port


def ask(port, path, content, headers=None, timeout=60):
    """Status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    with contextlib.closing(connection):
        connection.request("POST", path, content, headers or {})
        response = connection.getresponse()
        return response.status, response.read()


WHOLE = {
    "/v1/completions": {"prompt": "the cat", "max_tokens": 3, "temperature": 0.5, "top_p": 0.9, "seed": 1, "n": 1},
    "/v1/embeddings": {"input": ["the cat", "a dog"], "dimensions": 8, "encoding_format": "float"},
    "/fill": {"texts": "the [MASK] sat", "top_k": 3},
    "/attention": {"texts": "the cat"},
    "/rerank": {"query": "cat", "texts": ["a", "b"], "return_text": True},
}
ODD = [
    None,
    True,
    0,
    -1,
    1e400,
    10**30,
    "",
    "\x00",
    "é" * 70,
    [],
    {},
    [[]],
    [None],
    {"a": {}},
    "../../etc/passwd",
    "lm",
]


def mutated(rng):
    """A path, and the bytes of a body in which something is odd."""
    path = rng.choice(list(WHOLE))
    body = dict(WHOLE[path])
    for _ in range(rng.randint(1, 2)):
        body[rng.choice([*body, "model", "stream", "stop", "odd"])] = rng.choice(ODD)
    content = bytearray(json.dumps(body).encode())
    if rng.random() < 0.3:
        for _ in range(rng.randint(1, 3)):
            content[rng.randrange(len(content))] = rng.randrange(256)
    return path, bytes(content[: rng.randrange(len(content))] if rng.random() < 0.1 else content)


def test_mutated_requests_get_an_answer(port):
    rng, statuses = random.Random(0), set()
    for _ in range(1000):
        path, content = mutated(rng)
        status, answer = ask(port, path, content)
        statuses.add(status)
        assert status in (200, 404, 413, 422), (path, content, answer)
        assert b"Traceback" not in answer
        if status != 200:
            message = json.loads(answer)["error"]["message"]
            assert message
            assert "\n" not in message
            assert "root:" not in message
    assert {200, 422} <= statuses
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/metrics")
    metrics = connection.getresponse().read().decode()
    assert "tfm_faults_total 0.0" in metrics
    assert 'tfm_waiting{model="lm"} 0.0' in metrics


def test_open_connections_and_slow_clients_hold_nobody_up(port):
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
    try:
        for row, waiting in enumerate(sockets):
            if row % 2:
                waiting.sendall(b"POST /fill HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\n{")
        status, _ = ask(port, "/fill", json.dumps(WHOLE["/fill"]))
        assert status == 200
    finally:
        for waiting in sockets:
            waiting.close()


def test_a_secret_is_asked_for(home):
    with process(home, TFM_SERVE_TOKEN="secret") as (_, port):
        content = json.dumps(WHOLE["/fill"])
        assert ask(port, "/fill", content)[0] == 401
        assert ask(port, "/fill", content, {"Authorization": "Bearer wrong"})[0] == 401
        assert ask(port, "/fill", content, {"Authorization": "Bearer secret"})[0] == 200


def test_sigterm_answers_what_was_taken(home):
    with process(home) as (server, port):
        body = {"prompt": "the", "max_tokens": 400, "temperature": 0}
        ask(port, "/v1/completions", json.dumps({**body, "max_tokens": 2}))
        answers = []
        asking = threading.Thread(target=lambda: answers.append(ask(port, "/v1/completions", json.dumps(body))))
        asking.start()
        while b'tfm_waiting{model="lm"} 1.0' not in metrics(port):
            assert asking.is_alive(), answers
        server.send_signal(signal.SIGTERM)
        asking.join(60)
        assert answers[0][0] == 200
        assert json.loads(answers[0][1])["usage"]["completion_tokens"] > 2
        assert server.wait(30) == 143


CLIENT = """import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
connection.request("POST", "/v1/completions", sys.argv[2])
response = connection.getresponse()
while line := response.readline():
    print(line.decode(), end="", flush=True)"""


def client_of_a_stream(port, body):
    """A client in a process of its own, which prints the lines of a stream."""
    command = [sys.executable, "-c", CLIENT, str(port), json.dumps({**body, "stream": True})]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_client_killed_in_mid_stream_changes_no_answer(home, port):
    body = {"model": "lm", "prompt": "the", "max_tokens": 20, "temperature": 0}
    alone = ask(port, "/v1/completions", json.dumps(body))
    for _ in range(8):
        with client_of_a_stream(port, {**body, "max_tokens": 400}) as client:
            assert client.stdout.readline().startswith("data: ")
            client.kill()
    status, answer = ask(port, "/v1/completions", json.dumps(body))
    assert (status, json.loads(answer)["choices"]) == (200, json.loads(alone[1])["choices"])
    end = time.monotonic() + 30
    while b'tfm_waiting{model="lm"} 0.0' not in metrics(port):
        assert time.monotonic() < end


def test_sigterm_ends_a_stream_at_its_end(home):
    """A stream is read to its end after SIGTERM; its text is that of a request without a stream."""
    body = {"model": "lm", "prompt": "the", "max_tokens": 300, "temperature": 0}
    with process(home) as (server, port):
        expected = json.loads(ask(port, "/v1/completions", json.dumps(body))[1])["choices"][0]["text"]
        with client_of_a_stream(port, body) as client:
            lines = [client.stdout.readline()]
            server.send_signal(signal.SIGTERM)
            lines += client.stdout.read().splitlines()
        events = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        assert events[-1] == "[DONE]"
        assert "".join(json.loads(event)["choices"][0]["text"] for event in events[:-1]) == expected
        assert server.wait(30) == 143


def test_page_in_a_browser(home, port):
    """Tabs by mouse and keyboard; a text and a blank by keyboard are what the server answers."""
    with browser() as window:
        window.open(f"http://127.0.0.1:{port}/")
        tabs = "return [...document.querySelectorAll('[role=tab]')].map(tab => tab.textContent)"
        assert window.run(tabs)[:2] == ["Write (lm)", "Look at attention (lm)"]
        window.click("#field-text")
        window.press("the cat")
        window.run("document.getElementById('field-temperature').value = 0")
        window.run("document.getElementById('field-tokens').value = 12")
        window.click("form button")
        shown = window.until(
            "return !document.querySelector('form button').disabled && document.querySelector('output').innerText"
        )
        body = {"model": "lm", "prompt": "the cat", "max_tokens": 12, "temperature": 0}
        text = json.loads(ask(port, "/v1/completions", json.dumps(body))[1])["choices"][0]["text"]
        assert shown.split() == ("the cat" + text).split()
        window.click("[role=tab]")
        while window.run("return document.activeElement.textContent") != "Fill a blank (mlm)":
            window.press(RIGHT)
        assert window.run("return document.activeElement.ariaSelected") == "true"
        window.click("#field-text")
        window.press("the [MASK] sat")
        window.press(TAB + ENTER)
        shown = window.until("return document.querySelector('output table')?.innerText")
        guesses = json.loads(ask(port, "/fill", json.dumps({"texts": "the [MASK] sat", "top_k": 8}))[1])[0][0]
        assert [row.split("\t")[0] for row in shown.splitlines()] == [guess["token"] for guess in guesses]
        loaded = window.run("return performance.getEntriesByType('resource').map(entry => entry.name)")
        assert all(name.startswith(f"http://127.0.0.1:{port}/") for name in loaded)


def metrics(port):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        return connection.getresponse().read()


BAD = {
    "no run": ((), "--run=FOLDER must name the folder of a model"),
    "address": (("--run=lm", "--host=0.0.0.0"), "set TFM_SERVE_TOKEN to a secret"),
    "place": (("--run=lm", "--host=no.such.host.invalid"), "cannot be had"),
    "name": (("--run=lm,./lm", "--port=0"), "--run names two folders lm"),
    "folder": (("--run=nothing", "--port=0"), "nothing is not a run folder"),
    "port": (("--run=lm", "--port=70000"), "ports have 16 bits"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_starts(home, name, monkeypatch):
    flags, sentence = BAD[name]
    monkeypatch.setenv("TFM_SERVE_TOKEN", "" if name == "address" else "secret")
    with contextlib.chdir(home):
        code, out, err = call(serve, *flags)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_load_changes_no_answer(port, tmp_path, capsys):
    """Many clients lose no answer, and have those of a client alone."""
    pytest.importorskip("httpx")
    from train.lab.timing.serving import main as measure

    bodies = [{"model": "mlm", "input": f"the cat {row}"} for row in range(6)]
    (tmp_path / "bodies.jsonl").write_text("".join(json.dumps(body) + "\n" for body in bodies))
    flags = [f"--url=http://127.0.0.1:{port}", f"--bodies={tmp_path}/bodies.jsonl", "--clients=8", "--requests=40"]
    assert measure([*flags, "--path=/v1/embeddings"]) == 0
    alone, together = map(json.loads, capsys.readouterr().out.splitlines())
    assert (alone["requests"], together["requests"]) == (6, 40)
    assert [together["lost"], together["changed"]] == [0, 0]
    assert measure([*flags, "--path=/fill"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[1])["lost"] == 40
    assert measure([*flags, "--path=/fill", "--bodies=nothing.jsonl"]) == 2

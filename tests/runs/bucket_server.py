"""A bucket on this machine: an emulator (gcp-storage-emulator), and before it the generations of objects.

The emulator ignores them. A write or a deletion may say `ifGenerationMatch=N`: it happens if the object is of that
generation, and of none for 0; the answer is else 412
(https://cloud.google.com/storage/docs/request-preconditions). The content of an object comes with its generation.
"""

import contextlib
import http.client
import http.server
import json
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("localhost", 0))
        return server.getsockname()[1]


@contextlib.contextmanager
def bucket_server(name: str) -> Iterator[str]:
    """The address of a server with an empty bucket of that name."""
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "gcp_storage_emulator",
        "start",
        "--host=localhost",
        f"--port={port}",
        "--in-memory",
    ]
    process = subprocess.Popen([*command, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    proxy = QuietServer(("localhost", 0), type("Bound", (Proxy,), {"port": port}))
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    address = f"http://localhost:{proxy.server_port}"
    try:
        body, headers = json.dumps({"name": name}).encode(), {"Content-Type": "application/json"}
        for _ in range(300):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(urllib.request.Request(f"{address}/storage/v1/b?project=p", body, headers))
                break
            time.sleep(0.2)
        yield address
    finally:
        proxy.shutdown()
        process.kill()


class QuietServer(http.server.ThreadingHTTPServer):
    """Says nothing of clients that are gone."""

    def handle_error(self, request, client_address):
        pass


class Proxy(http.server.BaseHTTPRequestHandler):
    """Hands requests on, those with a condition in turn."""

    protocol_version = "HTTP/1.1"
    port = 0
    lock = threading.Lock()
    refuses = 0  # the code of all answers, from now on

    def hand_on(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if Proxy.refuses:
            self.refuse(Proxy.refuses)
            return
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        condition = query.get("ifGenerationMatch")
        if self.command == "GET" and query.get("alt") == "media":
            status, headers, content = self.ask("GET", self.path, body)
            self.send(status, [*headers, ("x-goog-generation", self.generation(url.path))], content)
            return
        if condition is None or self.command == "GET":
            self.send(*self.ask(self.command, self.path, body))
            return
        place = url.path.removeprefix("/upload")
        path = f"{place}/{urllib.parse.quote(query['name'], safe='')}" if "name" in query else place
        with self.lock:
            if self.generation(path) == condition:
                self.send(*self.ask(self.command, self.path, body))
            else:
                self.refuse(412)

    def refuse(self, code: int):
        body = json.dumps({"error": {"code": code, "message": "refused"}}).encode()
        self.send(code, [("Content-Type", "application/json")], body)

    def generation(self, path: str) -> str:
        """The generation of an object; 0 where there is none."""
        status, _, answer = self.ask("GET", path.removeprefix("/download"), b"")
        return json.loads(answer)["generation"] if status == 200 else "0"

    def __getattr__(self, name: str):
        if not name.startswith("do_"):
            raise AttributeError(name)
        return self.hand_on

    def ask(self, command: str, path: str, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        """Code, headers and content of the emulator's answer."""
        connection = http.client.HTTPConnection("localhost", self.port)
        try:
            connection.request(command, path, body, {**self.headers, "Content-Length": str(len(body))})
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        except (OSError, http.client.HTTPException):
            return 503, [], b""
        finally:
            connection.close()

    def send(self, status: int, headers: list[tuple[str, str]], content: bytes):
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "connection", "transfer-encoding", "date", "server"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        """Says nothing."""


@contextlib.contextmanager
def refusing_server(code: int) -> Iterator[str]:
    """The address of a server that answers everything with a code."""
    server = QuietServer(("localhost", 0), type("Bound", (Refusal,), {"code": code}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://localhost:{server.server_port}"
    finally:
        server.shutdown()


class Refusal(Proxy):
    """Answers everything with a code."""

    code = 403

    def hand_on(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.refuse(self.code)


@contextlib.contextmanager
def silent_server() -> Iterator[str]:
    """The address of a server that takes connections and answers nothing."""
    with socket.socket() as server:
        server.bind(("localhost", 0))
        server.listen(100)
        yield f"http://localhost:{server.getsockname()[1]}"

"""Headless Chromium over the protocol of WebDriver (W3C 2018): what a person sees of a page, and does on it."""

import contextlib
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator

import pytest

# Without them Chromium looks for its maker's servers.
_OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1000,900",
]

# Names of keys in WebDriver.
RIGHT, ENTER, TAB = "\ue014", "\ue007", "\ue004"

_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    """A window of a browser, behind a driver at `url`."""

    def __init__(self, url: str):
        self._url = url
        options = {"goog:chromeOptions": {"args": _OPTIONS}}
        session = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": options}})
        self._url += f"/session/{session['sessionId']}"

    def _ask(self, method: str, path: str, fields: dict | None = None):
        content = None if fields is None else json.dumps(fields).encode()
        request = urllib.request.Request(self._url + path, content, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)["value"]

    def open(self, url: str):
        """Goes to a page."""
        self._ask("POST", "/url", {"url": url})

    def run(self, script: str):
        """What a script returns."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": []})

    def until(self, script: str, seconds: float = 60):
        """What a script returns as soon as that is true."""
        end = time.monotonic() + seconds
        while not (value := self.run(script)):
            assert time.monotonic() < end, self.run("return document.body.innerText")
            time.sleep(0.05)
        return value

    def press(self, keys: str):
        """Types into what has the focus."""
        self._ask("POST", f"/element/{self._ask('GET', '/element/active')[_ELEMENT]}/value", {"text": keys})

    def click(self, selector: str):
        """Clicks at what a selector of CSS names."""
        element = self._ask("POST", "/element", {"using": "css selector", "value": selector})[_ELEMENT]
        self._ask("POST", f"/element/{element}/click", {})

    def close(self):
        """Closes the window."""
        self._ask("DELETE", "")


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A browser; without one on this machine the test is skipped."""
    if not (driver := shutil.which("chromedriver")):
        pytest.skip("needs chromedriver (Debian's package chromium-driver)")
    with subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, text=True) as process:
        try:
            line = next(line for line in process.stdout if "started" in line)
            port = int(line.split()[-1].rstrip("."))
            window = Browser(f"http://127.0.0.1:{port}")
            yield window
            window.close()
        finally:
            process.kill()

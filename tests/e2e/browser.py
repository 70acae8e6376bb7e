"""Headless Chromium through chromedriver, by the WebDriver protocol over HTTP: no more of it than the tests use."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

START_LIMIT_S = 60.0
CALL_LIMIT_S = 120.0
WAIT_LIMIT_S = 60.0

# Runs before any script of a page: what its policy refused is kept for the test to see.
WATCH = """
window.seenViolations = [];
document.addEventListener("securitypolicyviolation",
    (e) => window.seenViolations.push(e.violatedDirective + " " + e.blockedURI));
"""

KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Space": " ", "Shift": "\ue008"}


class BrowserError(Exception):
    """The browser refused, or what was waited for did not come; the text says which."""


def is_there() -> bool:
    """Whether Chromium and its driver are installed."""
    return shutil.which("chromedriver") is not None and shutil.which("chromium") is not None


class Browser:
    """One window."""

    def __init__(self, url: str, session: str) -> None:
        self._base = f"{url}/session/{session}"

    def _call(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        return call(method, self._base + path, body)

    def cdp(self, command: str, **parameters: object) -> Any:
        """A command of Chromium's own protocol."""
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, url: str) -> None:
        """Load a page anew, also when only what follows # differs."""
        self._call("POST", "/url", {"url": "about:blank"})
        self._call("POST", "/url", {"url": url})

    def script(self, text: str, *arguments: object) -> Any:
        """Run it as a function's body in the page; its result."""
        return self._call("POST", "/execute/sync", {"script": text, "args": list(arguments)})

    def wait(self, expression: str, *arguments: object, limit_s: float = WAIT_LIMIT_S) -> Any:
        """The first value of a JavaScript expression that is true; BrowserError after limit_s."""
        deadline = time.monotonic() + limit_s
        while not (value := self.script(f"return ({expression})", *arguments)):
            if time.monotonic() > deadline:
                raise BrowserError(f"not within {limit_s:.0f} s: {expression}; the page says:\n{self.text()[:3000]}")
            time.sleep(0.05)
        return value

    def text(self) -> str:
        return str(self.script("return document.body.innerText"))

    def wait_text(self, text: str, limit_s: float = WAIT_LIMIT_S) -> None:
        self.wait("document.body.innerText.includes(arguments[0])", text, limit_s=limit_s)

    def click(self, selector: str) -> None:
        """A click where the pointer can reach the element, as a person's."""
        found = self._call("POST", "/element", {"using": "css selector", "value": selector})
        self._call("POST", f"/element/{next(iter(found.values()))}/click", {})

    def type(self, selector: str, text: str) -> None:
        found = self._call("POST", "/element", {"using": "css selector", "value": selector})
        self._call("POST", f"/element/{next(iter(found.values()))}/value", {"text": text})

    def press(self, *names: str) -> None:
        """Keys, one after the other."""
        actions = [{"type": kind, "value": KEYS[name]} for name in names for kind in ("keyDown", "keyUp")]
        self._call("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def look(self, width: int = 1280, height: int = 900, *, dark: bool = False, narrow: bool = False) -> None:
        """Size and colour scheme; narrow is a phone of 360 pixels."""
        size = {"width": 360, "height": 740} if narrow else {"width": width, "height": height}
        self.cdp("Emulation.setDeviceMetricsOverride", **size, deviceScaleFactor=1, mobile=narrow)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.cdp("Emulation.setEmulatedMedia", features=[scheme])

    def shoot(self, path: Path, *, whole: bool = False) -> None:
        """A PNG of the window, or of the whole page."""
        found = self.cdp("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def complaints(self) -> list[str]:
        """Errors and warnings on the console since the last call, and what the page's policy refused."""
        entries = self._call("POST", "/se/log", {"type": "browser"})
        seen = [entry["message"] for entry in entries if entry["level"] in ("SEVERE", "WARNING")]
        return seen + list(self.script("return window.seenViolations || []"))


def call(method: str, url: str, body: Mapping[str, object] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method, headers={"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=CALL_LIMIT_S) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as refusal:
        with refusal:
            told = json.load(refusal)["value"]
        raise BrowserError(f"{method} {url.rpartition('/')[2]}: {told['error']}: {told['message'][:500]}") from None


def _port(driver: subprocess.Popen[bytes]) -> int:
    assert driver.stdout is not None
    deadline, said = time.monotonic() + START_LIMIT_S, b""
    while not (found := re.search(rb"started successfully on port (\d+)", said)):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([driver.stdout], [], [], left)[0]:
            raise BrowserError(f"chromedriver did not start: {said.decode(errors='replace')}")
        part = os.read(driver.stdout.fileno(), 4096)
        if not part:
            raise BrowserError(f"chromedriver ended: {said.decode(errors='replace')}")
        said += part
    return int(found[1])


def _options(profile: str, arguments: Sequence[str]) -> dict[str, object]:
    # The browser's own sandbox needs a user other than root; the pages it opens here are ours.
    own = [
        "--headless=new",
        f"--user-data-dir={profile}",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--hide-scrollbars",
    ]
    own += ["--no-first-run", "--disable-background-networking", "--disable-component-update", "--no-proxy-server"]
    own += ["--no-sandbox"] if os.geteuid() == 0 else []
    chrome = {"args": [*own, *arguments], "binary": shutil.which("chromium") or "chromium"}
    return {
        "browserName": "chrome",
        "goog:chromeOptions": chrome,
        "goog:loggingPrefs": {"browser": "ALL"},
        "pageLoadStrategy": "normal",
    }


@contextlib.contextmanager
def browser(*arguments: str) -> Iterator[Browser]:
    """A browser with a profile of its own; arguments are further ones of its command line."""
    with (
        tempfile.TemporaryDirectory(prefix="verifierd-browser-", ignore_cleanup_errors=True) as profile,
        subprocess.Popen(
            ["chromedriver", "--port=0"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "HOME": profile},
        ) as driver,
    ):
        try:
            url = f"http://127.0.0.1:{_port(driver)}"
            wanted = {"capabilities": {"alwaysMatch": _options(profile, arguments)}}
            session = call("POST", f"{url}/session", wanted)["sessionId"]
            window = Browser(url, session)
            window.cdp("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
            window.look()
            yield window
            call("DELETE", f"{url}/session/{session}")
        finally:
            # The driver and every process of the browser that it started: they are one session.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)

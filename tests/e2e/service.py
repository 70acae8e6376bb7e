"""A verifierd of one's own, and a small client for it: what the end-to-end tests stand on."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("VERIFIERD_BUILD", str(ROOT / "build"))) / "bin" / "verifierd"
START_LIMIT_S = 60.0
READY_LIMIT_S = 180.0
STOP_LIMIT_S = 60.0
LISTENING = "verifierd: listening on "
FINISHED = ("done", "cancelled")

Json = dict[str, Any]


class ServiceError(Exception):
    """The daemon did not do what was waited for; the text has the end of its log."""


@dataclass(frozen=True)
class Answer:
    """One HTTP answer, of any status."""

    status: int
    headers: Message
    body: bytes

    def json(self) -> Json:
        document = json.loads(self.body)
        if not isinstance(document, dict):
            raise ServiceError(f"not a JSON object: {self.body[:200]!r}")
        return document


@dataclass(frozen=True)
class Event:
    """One server-sent event; id is None where it has none of its own."""

    kind: str
    id: str | None
    data: Json


def read_events(text: bytes) -> list[Event]:
    """The whole events of a stream's text; comments and `retry` are left out."""
    found = []
    for part in text.decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in part.split("\n") if line and not line.startswith(":"))
        if "event" in fields:
            found.append(Event(fields["event"], fields.get("id"), json.loads(fields["data"])))
    return found


class Client:
    """Calls to one daemon. Refusals are answers, not exceptions; only a broken connection raises."""

    def __init__(self, url: str, timeout_s: float = 360.0) -> None:
        self.url = url.rstrip("/")
        self.timeout_s = timeout_s

    def call(
        self, method: str, path: str, body: object | bytes = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if data is not None else {}
        sent.update(headers or {})
        request = urllib.request.Request(self.url + path, data=data, method=method, headers=sent)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=self.timeout_s) as reply:
                return Answer(reply.status, reply.headers, reply.read())
        except urllib.error.HTTPError as refusal:
            with refusal:
                return Answer(refusal.code, refusal.headers, refusal.read())

    def get(self, path: str) -> Answer:
        return self.call("GET", path)

    def events(self, path: str, last: str | None = None) -> list[Event]:
        """What a stream of events tells until it ends; last: the id from which on."""
        answer = self.call("GET", path, headers={"Last-Event-ID": last} if last is not None else None)
        if answer.status != 200:
            raise ServiceError(f"GET {path}: {answer.status} {answer.body.decode(errors='replace')[:2000]}")
        return read_events(answer.body)

    def follow(
        self, path: str, last: str | None = None, headers: Mapping[str, str] | None = None
    ) -> Generator[Event, None, None]:
        """The events of a stream as they come, until it ends; closing the generator leaves it."""
        sent = {**(headers or {}), **({"Last-Event-ID": last} if last is not None else {})}
        request = urllib.request.Request(self.url + path, headers=sent)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=self.timeout_s) as reply:
            text = b""
            for line in reply:
                text += line
                if line == b"\n":
                    yield from read_events(text)
                    text = b""

    def post(self, path: str, body: object | bytes) -> Answer:
        return self.call("POST", path, body)

    def expect(
        self, method: str, path: str, body: object | bytes = None, status: Sequence[int] = (200, 201, 202)
    ) -> Json:
        """The document of an answer that has to be one of these statuses."""
        answer = self.call(method, path, body)
        if answer.status not in status:
            raise ServiceError(f"{method} {path}: {answer.status} {answer.body.decode(errors='replace')[:2000]}")
        return answer.json()

    def add_task(self, registration: Mapping[str, object]) -> str:
        """Register a task; its id."""
        return str(self.expect("POST", "/v1/tasks", dict(registration))["id"])

    def submit(self, body: Mapping[str, object]) -> str:
        """Submit without waiting; the id."""
        return str(self.expect("POST", "/v1/submissions", dict(body))["id"])

    def wait(self, submission: str, limit_s: float = 300.0, kind: str = "submissions") -> Json:
        """Long polls until a submission (or a group) is finished; ServiceError when limit_s is over."""
        deadline = time.monotonic() + limit_s
        while True:
            left = deadline - time.monotonic()
            seconds = max(0, min(int(left) + 1, 60))
            document = self.expect("GET", f"/v1/{kind}/{submission}?wait={seconds}")
            if document["state"] in FINISHED:
                return document
            if left <= 0:
                raise ServiceError(
                    f"{kind} {submission} is still {document['state']} after {limit_s:.0f} s: {document}"
                )

    def judge(self, body: Mapping[str, object], limit_s: float = 300.0) -> Json:
        """Submit and wait for the verdict."""
        return self.wait(self.submit(body), limit_s)


class Daemon:
    """One verifierd with a directory of its own, on a port that it picks."""

    def __init__(self, directory: Path, options: Mapping[str, object] | None = None) -> None:
        self.directory = directory
        self.options = dict(options or {})
        self.log = directory / "verifierd.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        if self._client is None:
            raise ServiceError("the daemon was not started")
        return self._client

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServiceError("the daemon was not started")
        return self._process.pid

    def command(self) -> list[str]:
        """The command line; every setting is a flag of the same name."""
        settings: dict[str, object] = {
            "listen": "127.0.0.1:0",
            "store": self.directory / "store.db",
            "log_format": "json",
        }
        if "PYTHON" in os.environ:
            settings["python"] = os.environ["PYTHON"]
        settings.update(self.options)
        return [
            str(BINARY),
            *(f"--{name.replace('_', '-')}={_text(value)}" for name, value in settings.items()),
        ]

    def start(self, *, ready: bool = True) -> Client:
        """Start it and wait for its line, and with ready for /readyz."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self._client = Client(self._listening())
        if ready:
            self.wait_ready()
        return self._client

    def _listening(self) -> str:
        assert self._process is not None and self._process.stdout is not None
        deadline = time.monotonic() + START_LIMIT_S
        text = b""
        while b"\n" not in text:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise self.failed(f"no line on stdout after {START_LIMIT_S:.0f} s")
            part = os.read(self._process.stdout.fileno(), 4096)
            if not part:
                raise self.failed("ended at start")
            text += part
        line = text.decode().splitlines()[0]
        if not line.startswith(LISTENING):
            raise self.failed(f"unexpected first line {line!r}")
        return line.removeprefix(LISTENING)

    def wait_ready(self, limit_s: float = READY_LIMIT_S) -> None:
        deadline = time.monotonic() + limit_s
        pause_s = 0.02
        while (answer := self.client.get("/readyz")).status != 200:
            if time.monotonic() > deadline:
                raise self.failed(f"not ready after {limit_s:.0f} s: {answer.body.decode(errors='replace')[:500]}")
            time.sleep(pause_s)
            pause_s = min(0.1, pause_s * 1.5)

    def failed(self, what: str) -> ServiceError:
        tail = self.log.read_text(errors="replace")[-4000:] if self.log.exists() else ""
        return ServiceError(f"verifierd: {what}\n--- end of its log ---\n{tail}")

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def stop(self) -> int:
        """SIGTERM, and its exit status; killed when it does not end in time, which is an error."""
        if self._process is None:
            return 0
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self.failed(f"still running {STOP_LIMIT_S:.0f} s after SIGTERM") from None
        finally:
            self._close()

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._close()

    def _close(self) -> None:
        if self._process is not None and self._process.returncode is not None:
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None

    def __enter__(self) -> Daemon:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.kill()
        else:
            self.stop()


StartDaemon = Callable[..., Daemon]
"""start_daemon(ready=True, **settings): see conftest.py."""


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def wait_for(is_so: Callable[[], object], limit_s: float = 60.0, what: str = "it did not come to pass in time") -> None:
    """Ask until it is so; AssertionError when limit_s is over."""
    deadline = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@contextlib.contextmanager
def directory() -> Iterator[Path]:
    """A fresh directory that children under other user ids can pass through."""
    with tempfile.TemporaryDirectory(prefix="verifierd-test-", ignore_cleanup_errors=True) as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


def has_gpu(client: Client) -> bool:
    """Whether this daemon judges on a GPU, by its own status."""
    return bool(client.expect("GET", "/v1/status").get("gpus"))

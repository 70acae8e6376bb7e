"""HTTP by hand over one socket: for requests that no client library would send."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

LIMIT_S = 50.0
"""Less than the daemon keeps a connection on which nothing is asked."""


@dataclass(frozen=True)
class Reply:
    """One answer as it came; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        document = json.loads(self.body)
        assert isinstance(document, dict)
        return document


class Closed(Exception):
    """The daemon ended the connection before a whole answer came."""


class Raw:
    """One connection to the daemon."""

    def __init__(self, url: str, source: str | None = None) -> None:
        """source: the address to come from; all of 127.0.0.0/8 are this machine's."""
        parts = urlsplit(url)
        assert parts.hostname and parts.port
        here = (source, 0) if source else None
        self._began = time.monotonic()
        self._socket = socket.create_connection((parts.hostname, parts.port), LIMIT_S, here)
        self._left = b""

    def send(self, *pieces: bytes | str) -> None:
        for piece in pieces:
            try:
                self._socket.sendall(piece.encode() if isinstance(piece, str) else piece)
            except (BrokenPipeError, ConnectionResetError):
                return  # it has heard enough: reply() tells what it said

    def request(self, method: str, path: str, body: bytes = b"", *headers: str) -> None:
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers]
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        self.send("\r\n".join(lines) + "\r\n\r\n", body)

    def _more(self) -> None:
        part = self._socket.recv(65536)
        if not part:
            raise Closed(f"after {self._left[:200]!r}")
        self._left += part

    def is_answered(self) -> bool:
        """Whether something has come that is not read yet, or the end."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def reply(self) -> Reply:
        while b"\r\n\r\n" not in self._left:
            self._more()
        head, self._left = self._left.split(b"\r\n\r\n", 1)
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        size = int(headers.get("content-length", "0"))
        while len(self._left) < size:
            self._more()
        body, self._left = self._left[:size], self._left[size:]
        return Reply(int(first.split(" ")[1]), headers, body)

    def keep_little(self) -> None:
        """Let the kernel keep little of what is not read here."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

    def end_of_requests(self) -> None:
        """Send nothing more: the daemon answers what it has, and ends the connection."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def is_closed(self, limit_s: float = LIMIT_S) -> bool:
        """Whether the daemon ends the connection, with nothing more said, within limit_s."""
        self._socket.settimeout(limit_s)
        try:
            return self._left == b"" and self._socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    def until_closed(self) -> bytes:
        """Everything that the daemon still says."""
        try:
            while True:
                self._more()
        except (Closed, ConnectionResetError):
            return self._left

    def trickle(self, text: bytes, pause_s: float) -> float:
        """Send byte by byte until the daemon has had enough; how long that took from the connecting on, in seconds."""
        try:
            for at in range(len(text)):
                self._socket.sendall(text[at : at + 1])
                self._socket.settimeout(pause_s)
                try:
                    if not (part := self._socket.recv(65536)):
                        break
                    self._left += part
                    break
                except TimeoutError:
                    pass
                if time.monotonic() - self._began > LIMIT_S:
                    break
        except (ConnectionResetError, BrokenPipeError):
            pass
        self._socket.settimeout(LIMIT_S)
        return time.monotonic() - self._began

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Raw:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

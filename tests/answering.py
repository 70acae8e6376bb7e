"""HTTP servers on loopback whose answers are a function's, for tests and measurements."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = tuple[int, Mapping[str, str], bytes]
"""Status, headers beside the length, content."""


@dataclass(frozen=True)
class Call:
    """One request."""

    method: str
    path: str
    headers: Message
    content: bytes

    @property
    def body(self) -> Any:
        """Its JSON; None where there is no content."""
        return json.loads(self.content) if self.content else None


def document(status: int, content: object, headers: Mapping[str, str] | None = None) -> Reply:
    """JSON, or bytes as they are."""
    usual = {"Content-Type": "application/json"}
    return status, usual | dict(headers or {}), content if isinstance(content, bytes) else json.dumps(content).encode()


class _Server(ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):  # of clients that are killed
            super().handle_error(request, client_address)


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The URL of a server with this handler."""
    server = _Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def answering(answer: Callable[[Call], Reply | None]) -> Iterator[str]:
    """The URL of a server that answers so; None: it hangs up. Calls come from several threads."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def take(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"] or 0))
            reply = answer(Call(self.command, self.path, self.headers, content))
            if reply is None:
                self.close_connection = True
                return
            self.send_response(reply[0])
            for name, value in ({"Content-Length": str(len(reply[2]))} | dict(reply[1])).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply[2])

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = take

        def log_message(self, format: str, *args: object) -> None:
            pass

    with listening(Handler) as url:
        yield url

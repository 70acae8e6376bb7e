"""A scripted OpenAI-compatible endpoint, and the trainer asked against it: what the trainer's tests stand on."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import service

TRAINER = service.BINARY.with_name("trainer")
TESTS = Path(__file__).parents[1]
LIMIT_S = 300.0
Json = dict[str, Any]
Reply = tuple[int, dict[str, str], bytes]


def code(label: str) -> str:
    return (TESTS / "candidates" / f"{label}.py").read_text()


def fenced(text: str) -> str:
    return f"<think>Let me see.</think>\nHere it is:\n```python\n{text}\n```\nGood luck."


ANSWERS = {
    "Rectified linear unit": [
        fenced(code("relu/honest")),
        fenced(code("relu/leaky")),
        "I cannot do that.",
        fenced(code("relu/no_kernel")),
        fenced(code("relu/honest")),
        fenced(code("relu/syntax_error")),
    ],
    "softmax": [
        fenced(code("softmax/unnormalised")),
        fenced(code("softmax/honest")),
        fenced(code("softmax/honest_heuristics")),
        fenced(code("softmax/padding_counts")),
        "",
        fenced(code("softmax/nan")),
    ],
}


@dataclass
class Endpoint:
    """What it was asked, and what it answers: by default the answers above, in turn, by the prompt's task."""

    url: str = ""
    asked: list[Json] = field(default_factory=list)
    faults: list[Callable[[Json], Reply | None]] = field(default_factory=list)
    most: int = 6  # choices of one answer
    delay_s: float = 0.0

    def answer(self, body: Json) -> Reply:
        self.asked.append(body)
        if self.delay_s:
            time.sleep(self.delay_s)
        if self.faults and (reply := self.faults.pop(0)(body)) is not None:
            return reply
        text = body["messages"][0]["content"] if "messages" in body else body["prompt"]
        known = next(answers for mark, answers in ANSWERS.items() if mark in text)
        first = body["seed"] % len(known) if body["n"] == 1 else 0
        chosen = [known[(first + i) % len(known)] for i in range(min(body["n"], self.most))]
        choices = [
            {"index": i, "finish_reason": "stop", "message": {"role": "assistant", "content": one}, "text": one}
            for i, one in enumerate(chosen)
        ]
        return 200, {}, json.dumps({"choices": choices}).encode()


@contextmanager
def serving() -> Iterator[Endpoint]:
    script = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, headers, content = script.answer(body | {"path": self.path})
            self.send_response(status)
            for name, value in {
                "Content-Type": "application/json",
                "Content-Length": str(len(content)),
                **headers,
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    script.url = f"http://127.0.0.1:{server.server_port}/v1"
    yield script
    server.shutdown()
    server.server_close()


def command(client: service.Client, endpoint: Endpoint, tmp_path: Path, *arguments: str) -> list[str]:
    return [
        str(TRAINER),
        *arguments[:1],
        f"--url={client.url}",
        f"--endpoint={endpoint.url}",
        "--model=scripted",
        f"--workdir={tmp_path}",
        *arguments[1:],
    ]


def run(
    client: service.Client, endpoint: Endpoint, tmp_path: Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(client, endpoint, tmp_path, *arguments), capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def lines(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text().splitlines()]

"""A scripted OpenAI-compatible endpoint, and the trainer asked against it: what the trainer's tests stand on."""

from __future__ import annotations

import itertools
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import service
from answering import Call, Reply, answering, document

TRAINER = service.BINARY.with_name("trainer")
TESTS = Path(__file__).parents[1]
LIMIT_S = 300.0
Json = dict[str, Any]


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
    reasoning: str | None = None

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
        thought = {"reasoning_content": self.reasoning} if self.reasoning else {}
        tokens: Json = {"token_ids": [1, 2], "logprobs": {"content": []}} if body.get("return_token_ids") else {}
        choices = [
            {
                "index": i,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": one} | thought,
                "text": one,
            }
            | tokens
            for i, one in enumerate(chosen)
        ]
        return 200, {}, json.dumps({"choices": choices}).encode()


@contextmanager
def serving() -> Iterator[Endpoint]:
    script = Endpoint()
    with answering(lambda call: script.answer((call.body or {}) | {"path": call.path})) as url:
        script.url = url + "/v1"
        yield script


@dataclass
class FakeDaemon:
    """What the trainer asks of verifierd, answered at once: every candidate is correct. No code is run."""

    url: str = ""
    asked: list[tuple[str, str, Json]] = field(default_factory=list)
    faults: list[Callable[[str, str, Json], Reply | None]] = field(default_factory=list)
    gpus: list[Json] = field(default_factory=list)
    references: dict[str, str] = field(default_factory=dict)
    groups: dict[str, Json] = field(default_factory=dict)
    timing: Callable[[str], Json | None] = lambda reference: None
    # Several may be asked for at once.
    task_numbers: Iterator[int] = field(default_factory=itertools.count)
    group_numbers: Iterator[int] = field(default_factory=itertools.count)

    def answer(self, call: Call) -> Reply:
        method, path, body = call.method, call.path, call.body or {}
        self.asked.append((method, path, body))
        if self.faults and (reply := self.faults.pop(0)(method, path, body)) is not None:
            return reply
        if path == "/v1/status":
            return document(200, {"gpus": self.gpus})
        if path == "/v1/tasks":
            name = f"task-{next(self.task_numbers)}"
            self.references[name] = body["reference"]
            return document(201, {"id": name, "flags": []})
        if method == "POST" and path == "/v1/groups":
            name = f"group-{next(self.group_numbers)}"
            item = self.verdict(self.timing(self.references[body["task"]]))
            self.groups[name] = {"id": name, "state": "done", "items": [item] * len(body["candidates"])}
            return document(202, {"id": name, "state": "queued"})
        group = self.groups.get(path.removeprefix("/v1/groups/").partition("?")[0])
        return document(200, group) if group else document(404, {"title": "There is no such thing"})

    @staticmethod
    def verdict(timing: Json | None) -> Json:
        ones = dict.fromkeys(("extracted", "valid", "compiled", "correct"), 1)
        return {
            "id": "verdict",
            "state": "done",
            "class": "ok",
            "stage": "full",
            "reward": 0.7,
            "policy": "strict",
            "components": ones | {"hack": 0, "timed": 0, "speedup": None},
            "feedback": {"class": "ok", "text": "It is correct."},
            "timing": timing,
        }


@contextmanager
def fake_daemon() -> Iterator[FakeDaemon]:
    script = FakeDaemon()
    with answering(script.answer) as url:
        script.url = url
        yield script


def command(client: service.Client | FakeDaemon, endpoint: Endpoint, tmp_path: Path, *arguments: str) -> list[str]:
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
    client: service.Client | FakeDaemon, endpoint: Endpoint, tmp_path: Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(client, endpoint, tmp_path, *arguments), capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def lines(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text().splitlines()]

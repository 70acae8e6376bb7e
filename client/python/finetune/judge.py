"""Rewards from verifierd: one group for each task, posted together and waited for."""

from __future__ import annotations

import json
import os
import re
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from verifierd_client import Client, Refused, Unavailable, labels

from . import layout
from .errors import SERVICE, StopRequested, TrainError

AWAY_LIMIT_S = 600.0  # how long a daemon may be away or full
POLL_S = 5  # also the longest that a signal waits for the answer
FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})(.*)")
Json = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """As trainer(1) registered it."""

    name: str
    id: str
    prompt: str
    policy: object  # a name or an object
    entry_point: str  # the class that the prompt asks for


@dataclass(frozen=True)
class Verdict:
    """Of one answer. reward None: there is none (infra), and the answer counts nowhere."""

    reward: float | None
    parts: dict[str, float | None]
    kind: str  # class


def tasks_of(request: Json) -> list[Task]:
    found = [Task(t["name"], t["id"], t["prompt"], t["policy"], t["entry_point"]) for t in request.get("tasks", [])]
    if not found:
        raise TrainError("there are no tasks to learn from")
    return found


def reward_of(text: str) -> Json:
    """A specification, or a kind's name."""
    if not text.lstrip().startswith("{"):
        return {"kind": text}
    try:
        return dict(json.loads(text))
    except ValueError as error:
        raise TrainError(f"reward: {text!r} is no JSON: {error}") from error


class Judge:
    """A daemon, and how it is to judge."""

    def __init__(
        self, url: str, reward: str, until: str, run: str, should_stop: Callable[[], bool] = lambda: False
    ) -> None:
        """run: the label of the submissions, unless VERIFIERD_RUN has one.

        should_stop: asked between requests; once it is true, StopRequested ends the wait.
        """
        self._reward = reward_of(reward)
        self._until = until
        self._run = os.environ.get("VERIFIERD_RUN") or run
        self._should_stop = should_stop
        try:
            self._client = Client(url, wait_s=AWAY_LIMIT_S, sleep=self._pause)
        except ValueError as error:
            raise TrainError(str(error)) from error
        self.waited_s = 0.0

    @property
    def alpha(self) -> float | None:
        """The weight of the plan's advantage; None: plan and code have one reward."""
        if self._reward.get("kind") != "tritonrl":
            return None
        return float(self._reward.get("params", {}).get("alpha", 0.1))

    def _call(self, method: str, path: str, body: Json | None = None) -> Json:
        if self._should_stop():
            raise StopRequested()
        key = str(uuid.uuid4()) if method == "POST" else ""  # a request whose response was lost is not judged twice
        try:
            return self._client.call(method, path, body, key=key, deadline=time.monotonic() + AWAY_LIMIT_S)
        except Refused as error:
            status = SERVICE if error.status in (401, 403) or error.status >= 500 else 3
            said = f"verifierd answered {error.status} to {method} {path}: {error.code}: {error.detail}"
            raise TrainError(said, status) from error
        except Unavailable as error:
            raise TrainError(f"{self._client.url} cannot be reached: {error}", SERVICE) from error

    def _pause(self, seconds: float) -> None:
        """Sleep, but not on when a signal came."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._should_stop():
                raise StopRequested()
            time.sleep(min(left, 1.0))

    def judge(self, groups: Sequence[tuple[Task, Sequence[str]]], step: int) -> list[list[Verdict]]:
        """The verdicts of each group's answers, in order."""
        return self.wait([self.post(task, answers, step) for task, answers in groups])

    def post(self, task: Task, answers: Sequence[str], step: int) -> str:
        """Have the answers to a task judged; the group's id, for wait(). step: that they are for, from 1 on."""
        began = time.monotonic()
        body: Json = {
            "task": task.id,
            "policy": task.policy,
            "entry_point": task.entry_point,
            "reward": self._reward,
            "metadata": labels(self._run, step, layout.step_name(step - 1)),
            "candidates": [{"completion": text if text.strip() else " "} for text in answers],
        }
        if self._until:
            body["until"] = self._until
        group = str(self._call("POST", "/v1/groups", body)["id"])
        self.waited_s += time.monotonic() - began
        return group

    def wait(self, groups: Sequence[str]) -> list[list[Verdict]]:
        """The verdicts of groups that were posted, in order."""
        began = time.monotonic()
        out = [self._wait(group) for group in groups]
        self.waited_s += time.monotonic() - began
        return out

    def _wait(self, group: str) -> list[Verdict]:
        while True:
            asked = time.monotonic()
            document = self._call("GET", f"/v1/groups/{group}?wait={POLL_S}")
            if document["state"] in ("done", "cancelled"):
                return [
                    Verdict(item.get("reward"), item.get("reward_parts") or {}, str(item.get("class")))
                    for item in document["items"]
                ]
            if time.monotonic() - asked < 0.2:
                time.sleep(0.2)


def blocks(text: str, start: int) -> Iterator[tuple[int, str, str]]:
    """Each fenced block from start on: where its code begins, its tag, and its code."""
    opened: re.Match[str] | None = None
    begins = at = start
    for line in text[start:].split("\n"):
        fence = FENCE.match(line)
        if opened is None:
            if fence and not ("`" in fence[1] and "`" in fence[2]):
                opened, begins = fence, min(at + len(line) + 1, len(text))
        elif fence and fence[1].startswith(opened[1]) and not fence[2].strip():
            yield begins, opened[2].strip().lower(), text[begins:at]
            opened = None
        at += len(line) + 1
    if opened is not None:
        yield begins, opened[2].strip().lower(), text[begins:]


def code_begins(text: str, entry_point: str) -> int:
    """Where the code of an answer begins, in characters: as verifierd extracts it. 0: all is code."""
    after = text.rfind("</think>")
    start = 0 if after < 0 else after + len("</think>")
    name = re.escape(entry_point)
    binding = re.compile(rf"^(class[ \t]+{name}[ \t]*[:(\[]|{name}[ \t]*=(?!=))", re.MULTILINE)
    found = [
        (tag.split(" ")[0] in ("python", "triton", "py"), bool(binding.search(textwrap.dedent(code))), begins)
        for begins, tag, code in blocks(text, start)
    ]
    return max(found)[2] if found else start


def code_token(tokenizer: Any, ids: Sequence[int], text: str, entry_point: str) -> int:
    """The first token of the code: tokens before it are the plan's."""
    wanted = code_begins(text, entry_point)
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high) // 2
        if len(tokenizer.decode(ids[:middle], skip_special_tokens=True)) < wanted:
            low = middle + 1
        else:
            high = middle
    return low

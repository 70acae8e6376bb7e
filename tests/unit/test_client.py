"""verifierd-client against a server that says what it is told to say."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from verifierd_client import Client, Refused, Unavailable, numbers_of, reward_of, task_of
from verifierd_client.numbers import ABSENT
from verifierd_client.trl import groups, make_reward, text_of
from verifierd_client.verl import compute_score

Json = dict[str, Any]


def verdict(reward: float | None = 0.7, **more: object) -> Json:
    return {"id": "1", "state": "done", "class": "ok", "reward": reward, "components": {"correct": 1}, **more}


@dataclass
class Stub:
    """Answers in this order, the last one again and again; what was asked stands in `asked`."""

    answers: list[tuple[int, Any, dict[str, str]]]
    asked: list[tuple[str, str, Any, dict[str, str]]] = field(default_factory=list)
    url: str = ""

    def next(self) -> tuple[int, Any, dict[str, str]]:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def say(status: int, document: Any, **headers: str) -> tuple[int, Any, dict[str, str]]:
    return status, document, {name.replace("_", "-"): value for name, value in headers.items()}


@contextmanager
def serving(*answers: tuple[int, Any, dict[str, str]]) -> Iterator[Stub]:
    stub = Stub(list(answers))
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            with lock:
                stub.asked.append((self.command, self.path, json.loads(body or b"null"), dict(self.headers.items())))
                status, document, headers = stub.next()
            if status == 0:  # hangs up
                return
            data = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = answer

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    stub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield stub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# --- the client ---


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("softmax", {"task": "softmax"}),
        ("import torch\nclass Model: ...", {"reference": "import torch\nclass Model: ..."}),
        ('{"task": "softmax", "policy": "hybrid"}', {"task": "softmax", "policy": "hybrid"}),
        ({"reference": "x"}, {"reference": "x"}),
    ],
)
def test_task_of(label: object, expected: Json) -> None:
    assert task_of(label) == expected


@pytest.mark.parametrize("label", ["", None, 7, "{", '{"task": '])
def test_task_of_nothing(label: object) -> None:
    with pytest.raises(ValueError):
        task_of(label)


def test_judge_waits_until_it_is_done() -> None:
    with serving(say(202, {"id": "1", "state": "queued"}), say(200, {"id": "1", "state": "running"})) as stub:
        stub.answers.append(say(200, verdict()))
        found = Client(stub.url, "vd_x").judge("softmax", "text", reward="kevin", policy=None)
    assert found == verdict()
    assert [(method, path.partition("?")[0]) for method, path, _, _ in stub.asked] == [
        ("POST", "/v1/submissions"),
        ("GET", "/v1/submissions/1"),
        ("GET", "/v1/submissions/1"),
    ]
    assert stub.asked[0][2] == {"task": "softmax", "completion": "text", "reward": "kevin"}
    assert stub.asked[0][3]["Authorization"] == "Bearer vd_x"


def test_a_lost_call_is_made_again_under_the_same_key() -> None:
    slept: list[float] = []
    with serving(
        say(0, None),
        say(503, {"code": "unavailable", "detail": "the daemon stops"}, Retry_After="7"),
        say(429, b"not json"),
        say(409, {"code": "key_in_flight", "detail": "not answered yet"}),
        say(200, verdict()),
    ) as stub:
        assert Client(stub.url, sleep=slept.append).judge("softmax", "text")["reward"] == 0.7
    keys = {headers["Idempotency-Key"] for _, _, _, headers in stub.asked}
    assert (len(stub.asked), len(keys), len(slept)) == (5, 1, 4)
    assert slept[1] == 7


def test_what_is_wrong_is_told_and_not_tried_again() -> None:
    with serving(say(404, {"code": "unknown_task", "detail": "there is no such task"})) as stub:
        with pytest.raises(Refused, match="404 unknown_task: there is no such task") as refused:
            Client(stub.url).judge("softmax", "text")
        assert (refused.value.status, refused.value.code, len(stub.asked)) == (404, "unknown_task", 1)


def test_whoever_gives_up_has_it_cancelled() -> None:
    with serving(say(202, {"id": "1", "state": "queued"})) as stub:
        with pytest.raises(Unavailable, match="no verdict within 0 s"):
            Client(stub.url, wait_s=0.2).judge("softmax", "text")
        assert stub.asked[-1][:2] == ("DELETE", "/v1/submissions/1")


def test_nobody_is_there() -> None:
    with serving(say(200, {})) as stub:
        pass
    with pytest.raises(Unavailable):
        Client(stub.url, wait_s=0.2, sleep=lambda _: None).judge("softmax", "text")


@pytest.mark.parametrize("url", [None, "", "verifier:8080", "file:///etc/passwd"])
def test_an_address_is_needed(url: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERIFIERD_URL", raising=False)
    with pytest.raises(ValueError, match="VERIFIERD_URL"):
        Client(url)


@pytest.mark.parametrize("size", [0, 257])
def test_size_of_a_group(size: int) -> None:
    with pytest.raises(ValueError, match="1 to 256"):
        Client("http://localhost").judge_group("softmax", ["x"] * size)


# --- numbers ---


def test_numbers_of_nothing_and_of_all() -> None:
    """Every key is always there, so that a trainer can stack them."""
    assert numbers_of({}, fill=-0.25) == {"score": -0.25, "masked": 1, **ABSENT}
    components = dict.fromkeys(ABSENT, 0.5)
    assert numbers_of(verdict(components=components)) == {"score": 0.7, "masked": 0, **components}
    assert numbers_of(verdict(components=dict.fromkeys(ABSENT))) == {"score": 0.7, "masked": 0, **ABSENT}
    refused = numbers_of({"class": "hack", "reward": 0, "components": None})
    assert (refused["hack"], refused["score"], refused["masked"]) == (1, 0, 0)
    assert reward_of({"reward": None}) is None


# --- TRL ---


def test_groups() -> None:
    prompts, tasks = ["a", "a", "b", "b", "b", "a"], ["t"] * 4 + ["u"] * 2
    assert groups(prompts, tasks, None) == [[0, 1], [2, 3], [4], [5]]
    assert groups(["a"] * 4, ["t"] * 4, 2) == [[0, 1], [2, 3]]


def test_text_of() -> None:
    assert text_of("x") == "x"
    assert text_of([{"role": "assistant", "content": "x"}]) == "x"
    assert text_of([{"role": "assistant", "content": [{"type": "text", "text": "x"}, {"type": "image"}]}]) == "x"
    assert text_of([{"role": "assistant", "content": None}]) == ""
    with pytest.raises(ValueError):
        text_of(7)


def test_trl() -> None:
    metrics: Json = {}
    extra: Json = {}
    items = [verdict(0.9), verdict(None, **{"class": "infra"})]
    with serving(say(200, {"id": "g", "state": "done", "items": items})) as stub:
        reward = make_reward(stub.url, reward={"kind": "rank"}, policy="hybrid", name="kernels")
        rewards = reward(
            prompts=["p", "p"],
            completions=["x", [{"role": "assistant", "content": "y"}]],
            completion_ids=[[1], [2]],
            task=["softmax", "softmax"],
            log_metric=metrics.__setitem__,
            log_extra=extra.__setitem__,
        )
    assert (rewards, reward.__name__) == ([0.9, None], "kernels")
    assert stub.asked[0][2] == {
        "candidates": [{"completion": "x"}, {"completion": "y"}],
        "task": "softmax",
        "reward": {"kind": "rank"},
        "policy": "hybrid",
    }
    assert extra == {"kernels_class": ["ok", "infra"]}
    assert (metrics["kernels/correct"], metrics["kernels/masked"]) == (1, 0.5)


def test_trl_without_a_daemon_masks_and_without_a_task_stops() -> None:
    with serving(say(503, {"detail": "starting"})) as stub:
        reward = make_reward(stub.url, wait_s=0.2)
        with pytest.warns(UserWarning, match="starting: 2 samples have no reward"):
            assert reward(prompts=["p", "p"], completions=["x", "y"], task=["t", "t"]) == [None, None]
        with pytest.raises(ValueError, match="no column 'task'"):
            reward(prompts=["p"], completions=["x"])
        stub.answers = [say(404, {"code": "unknown_task"})]
        with pytest.raises(Refused):
            reward(prompts=["p"], completions=["x"], task=["t"])


# --- verl ---


def test_verl() -> None:
    with serving(say(200, verdict(0.9))) as stub:
        score = compute_score("kernels", "text", '{"task": "softmax"}', {"index": 1}, url=stub.url, reward="kevin")
        assert (score["score"], score["correct"], score["masked"]) == (0.9, 1, 0)
        stub.answers = [say(503, {})]
        away = compute_score("kernels", "text", "softmax", url=stub.url, fill=-1, wait_s=0.2, num_turns=1)
    assert (away["score"], away["masked"]) == (-1, 1)
    assert set(away) == set(score)

"""verifierd-client against a server that says what it is told to say."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from collections import UserDict, UserList
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from answering import Call, Reply, answering, document, listening
from verifierd_client import (
    AsyncClient,
    Client,
    Filters,
    Refused,
    Unavailable,
    __version__,
    labels,
    numbers_of,
    openrlhf,
    reward_of,
    slime,
    task_of,
)
from verifierd_client.numbers import ABSENT
from verifierd_client.rows import judge_rows
from verifierd_client.trl import groups, make_reward, text_of
from verifierd_client.verl import compute_score

PACKAGE = Path(__file__).parents[2] / "client" / "python"

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

    def answer(call: Call) -> Reply | None:
        with lock:
            stub.asked.append((call.method, call.path, call.body, dict(call.headers.items())))
            status, content, headers = stub.next()
        return document(status, content, headers) if status else None  # which hangs up

    with answering(answer) as stub.url:
        yield stub


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
    with pytest.raises(ValueError, match="a task"):
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


def test_a_redirect_does_not_take_the_token_elsewhere() -> None:
    with (
        serving(say(200, {"id": "1"})) as other,
        serving(say(302, {}, Location=other.url)) as stub,
        pytest.raises(Refused, match="302"),
    ):
        Client(stub.url, "vd_x").task("softmax")
    assert other.asked == [] and len(stub.asked) == 1


def test_a_lost_call_is_made_again_under_the_same_key() -> None:
    slept: list[float] = []
    with serving(
        say(0, None),
        say(503, {"code": "unavailable", "detail": "the daemon stops"}, Retry_After="7"),
        say(429, b"not json"),
        say(409, {"code": "key_in_flight", "detail": "not answered yet", "retryable": True}),
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


def test_what_the_daemon_calls_retryable_is_tried_again() -> None:
    failed = say(500, {"code": "internal", "detail": "the daemon failed", "retryable": True})
    slow = say(408, {"code": "request_timeout", "detail": "too slow", "retryable": True})
    with serving(failed, slow, say(200, verdict())) as stub:
        assert Client(stub.url, sleep=lambda _: None).judge("softmax", "text") == verdict()
        stub.answers = [say(503, {"code": "x", "detail": "never", "retryable": False})]
        with pytest.raises(Refused, match="never"):
            Client(stub.url).judge("softmax", "text")


def test_a_daemon_that_fails_again_and_again_is_not_asked_for_ever() -> None:
    with serving(say(500, {"code": "internal", "detail": "the daemon failed", "retryable": True})) as stub:
        with pytest.raises(Refused, match="500 internal: the daemon failed"):
            Client(stub.url, sleep=lambda _: None).judge("softmax", "text")
        assert len(stub.asked) == 3


def test_options_may_be_mappings_and_lists_of_a_configuration() -> None:
    reward = UserDict({"kind": "kevin", "params": UserDict({"cap": 4}), "parts": UserList([1])})
    with serving(say(200, verdict())) as stub:
        Client(stub.url).judge("softmax", "text", reward=reward)
        assert stub.asked[0][2]["reward"] == {"kind": "kevin", "params": {"cap": 4}, "parts": [1]}
        with pytest.raises(TypeError, match="object"):
            Client(stub.url).judge("softmax", "text", reward=object())


@pytest.mark.parametrize("as_text", [False, True])
def test_a_rows_own_reward_comes_before_that_of_all_rows(as_text: bool) -> None:
    """Which has a default in every adapter. A null is none: a data set gives each row the keys of all."""
    row: Json = {"task": "softmax", "reference": None, "policy": None, "reward": {"kind": "kevin"}}
    label = json.dumps(row) if as_text else row
    with serving(say(200, {**verdict(), "items": [verdict()]})) as stub:
        compute_score("any", "code", label, url=stub.url, policy="hybrid")
        make_reward(stub.url)(["p"], ["code"], task=[label])
    for _, _, body, _ in stub.asked:
        assert (body["task"], body["reward"]) == ("softmax", {"kind": "kevin"}) and "reference" not in body
    assert [body.get("policy") for _, _, body, _ in stub.asked] == ["hybrid", None]


def test_a_body_is_utf_8_and_not_escapes() -> None:
    """Escaped, an answer in Chinese is twice as long, and a body may have 8 MiB."""
    sent: list[bytes] = []

    def answer(call: Call) -> Reply:
        sent.append(call.content)
        return document(200, verdict())

    with answering(answer) as url:
        Client(url).judge("softmax", "核\ud800", metadata={"note": "é\udfff"})
    assert "核".encode() in sent[0] and b"\\u" not in sent[0]
    assert json.loads(sent[0]) == {"completion": "核?", "task": "softmax", "metadata": {"note": "é?"}}


def test_whoever_gives_up_has_it_cancelled() -> None:
    with serving(say(202, {"id": "1", "state": "queued"})) as stub:
        with pytest.raises(Unavailable, match="no verdict within 0 s"):
            Client(stub.url, wait_s=0.2).judge("softmax", "text")
        assert stub.asked[-1][:2] == ("DELETE", "/v1/submissions/1")


def test_a_long_wait_is_several_that_a_proxy_lets_pass() -> None:
    running = say(200, {"id": "1", "state": "running"})

    async def ask(url: str) -> Json:
        async with AsyncClient(url) as client:
            return dict(await client.group("1", wait_s=200))

    with serving(running, running, say(200, verdict())) as stub:
        assert Client(stub.url).submission("1", wait_s=200) == verdict()
        stub.answers = [running, say(200, verdict())]
        assert asyncio.run(ask(stub.url)) == verdict()
        stub.answers = [running]
        assert Client(stub.url).submission("1", wait_s=0.3)["state"] == "running"
    paths = [path for _, path, _, _ in stub.asked[:5]]
    assert paths == ["/v1/submissions/1?wait=50"] * 3 + ["/v1/groups/1?wait=50"] * 2


def test_nobody_is_there() -> None:
    with serving(say(200, {})) as stub:
        pass
    with pytest.raises(Unavailable):
        Client(stub.url, wait_s=0.2, sleep=lambda _: None).judge("softmax", "text")


@pytest.mark.parametrize("url", ["verifier:8080", "file:///etc/passwd"])
def test_an_address_is_http(url: str) -> None:
    with pytest.raises(ValueError, match="VERIFIERD_URL"):
        Client(url)


def test_the_address_is_that_of_the_command_line_where_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERIFIERD_URL", raising=False)
    assert Client().url == "http://127.0.0.1:8080"
    monkeypatch.setenv("VERIFIERD_URL", "http://verifier:9000/")
    assert Client().url == "http://verifier:9000"


def test_a_daemon_on_this_machine_is_asked_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with serving(say(200, {"id": "s", "state": "done", "class": "ok", "reward": 1.0})) as stub:
        assert Client(stub.url, wait_s=5).judge("softmax", "x = 1\n")["class"] == "ok"


def test_submissions_groups_and_tasks_without_a_wait() -> None:
    pages = [{"items": [{"id": "a"}], "next": "a"}, {"items": [{"id": "b"}], "next": None}]
    with serving(say(202, {"id": "1", "state": "queued"})) as stub:
        client = Client(stub.url)
        assert client.submit("softmax", candidate="class ModelNew: ...", client="me")["id"] == "1"
        client.submit_group("softmax", ["x", "y\ud800"])
        client.submission("1")
        client.cancel("1")
        client.add_task("t", "import torch", level=2)
        stub.answers = [say(200, page) for page in pages]
        assert [task["id"] for task in client.tasks()] == ["a", "b"]
        stub.answers = [say(200, {"items": [{"id": "1", "reward": 0.5}]})]
        assert client.rescore("kevin", submissions=["1"])[0]["reward"] == 0.5
        with pytest.raises(ValueError, match="one of them"):
            client.submit("softmax")
    assert [(method, path) for method, path, _, _ in stub.asked] == [
        ("POST", "/v1/submissions?wait=0"),
        ("POST", "/v1/groups?wait=0"),
        ("GET", "/v1/submissions/1?wait=0"),
        ("DELETE", "/v1/submissions/1"),
        ("POST", "/v1/tasks"),
        ("GET", "/v1/tasks?limit=200"),
        ("GET", "/v1/tasks?limit=200&cursor=a"),
        ("POST", "/v1/rescore"),
    ]
    bodies = [body for _, _, body, _ in stub.asked]
    assert bodies[0] == {"task": "softmax", "candidate": "class ModelNew: ...", "client": "me"}
    assert bodies[1]["candidates"][1] == {"completion": "y?"}
    assert bodies[7] == {"reward": {"kind": "kevin"}, "submissions": ["1"]}


def test_submissions_are_listed_page_by_page_with_the_filters_on_each() -> None:
    pages = [
        say(200, {"items": [{"id": "b"}, {"id": "a"}], "next": "a"}),
        say(200, {"items": [{"id": "0"}], "next": None}),
    ]

    async def ask(url: str) -> list[str]:
        async with AsyncClient(url) as client:
            return [one["id"] async for one in client.submissions({"run": "r 1", "step": 0, "class": "ok"})]

    with serving(*pages) as stub:
        listed = Client(stub.url).submissions({"state": "done", "view": "brief"})
        assert next(listed)["id"] == "b" and len(stub.asked) == 1
        assert [one["id"] for one in listed] == ["a", "0"]
        stub.answers = list(pages)
        assert asyncio.run(ask(stub.url)) == ["b", "a", "0"]
        stub.answers = [say(200, {"items": [], "next": None})]
        assert list(Client(stub.url).submissions()) == []
    assert [path for _, path, _, _ in stub.asked] == [
        "/v1/submissions?state=done&view=brief&limit=200",
        "/v1/submissions?state=done&view=brief&limit=200&cursor=a",
        "/v1/submissions?run=r+1&step=0&class=ok&limit=200",
        "/v1/submissions?run=r+1&step=0&class=ok&limit=200&cursor=a",
        "/v1/submissions?limit=200",
    ]


def test_the_filters_of_submissions_are_those_of_the_contract() -> None:
    contract = json.loads((PACKAGE.parents[1] / "proto/openapi.json").read_text())
    rows = contract["paths"]["/v1/submissions"]["get"]["parameters"]
    known = contract["components"]["parameters"]
    names = {row.get("name") or known[row["$ref"].rpartition("/")[2]]["name"] for row in rows}
    assert names - {"limit", "cursor"} == set(Filters.__annotations__)


def test_a_stream_that_breaks_off_is_taken_up_behind_its_last_event() -> None:
    first = b': hello\n\nevent: state\nid: 7\ndata: {"state": "running"}\n\nevent: verdict\nid: 8\ndata: {"id"'
    stops = b'event: end\ndata: {"reason": "draining"}\n\n'
    last = b'event: verdict\nid: 8\ndata: {"id": "1"}\n\nevent: end\nid: end\ndata: {"reason": "finished"}\n\n'
    with serving(say(200, first), say(200, stops), say(200, last)) as stub:
        events = list(Client(stub.url, sleep=lambda _: None).events(submission="1"))
    assert [(event.name, event.id) for event in events] == [("state", "7"), ("verdict", "8"), ("end", "end")]
    assert events[1].data == {"id": "1"}
    assert [headers.get("Last-Event-Id") for _, _, _, headers in stub.asked] == [None, "7", "7"]


def test_labels_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERIFIERD_RUN", raising=False)
    assert labels() is None
    monkeypatch.setenv("VERIFIERD_RUN", "r1")
    assert labels(step=0, metadata={"a": 1}) == {"run": "r1", "step": 0, "a": 1}
    assert labels("r2", policy_version="v") == {"run": "r2", "policy_version": "v"}


# --- asyncio ---


def test_asyncio_waits_for_many_at_once() -> None:
    async def judge(url: str) -> list[float | None]:
        async with AsyncClient(url) as client:
            found = await asyncio.gather(*(client.judge("softmax", str(i)) for i in range(20)))
            assert [event.name async for event in client.events(group="g")] == ["end"]
            return [verdict["reward"] for verdict in found]

    with serving(*[say(200, verdict())] * 20, say(200, b'event: end\ndata: {"reason": "finished"}\n\n')) as stub:
        assert asyncio.run(judge(stub.url)) == [0.7] * 20


def test_a_stream_that_nobody_reads_any_more_ends_its_thread() -> None:
    heard = threading.Event()

    class Quiet(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # heartbeats, until whoever asked is gone
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                while True:
                    self.wfile.write(b":\n\n")
                    heard.set()
                    time.sleep(0.02)

    async def look(client: AsyncClient) -> None:
        asked = asyncio.ensure_future(anext(client.events()))
        assert await asyncio.to_thread(heard.wait, 60)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked

    with listening(Quiet) as url:
        client = AsyncClient(url)
        asyncio.run(look(client))
        client.close()
        end = time.monotonic() + 60
        while any(thread.name.startswith("verifierd") for thread in threading.enumerate()):
            assert time.monotonic() < end
            time.sleep(0.02)


def test_a_coroutine_that_is_cancelled_has_its_submission_cancelled() -> None:
    async def judge(stub: Stub) -> None:
        async with AsyncClient(stub.url) as client:
            waiting = asyncio.create_task(client.judge("softmax", "x"))
            while len(stub.asked) < 2:
                await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            while not any(method == "DELETE" for method, _, _, _ in stub.asked):
                await asyncio.sleep(0.01)
            stub.answers = [say(200, {"id": "1", "state": "cancelled"})]

    with serving(say(202, {"id": "1", "state": "queued"})) as stub:
        asyncio.run(asyncio.wait_for(judge(stub), 60))
    assert ("DELETE", "/v1/submissions/1") in [asked[:2] for asked in stub.asked]


def test_the_wheel_installs_with_its_types(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    copy = tmp_path / "python"  # setuptools builds beside the source
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    built = ["wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(copy)]
    subprocess.run([*pip, *built], check=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    assert f"-{__version__}-" in wheel.name
    assert "verifierd_client/py.typed" in zipfile.ZipFile(wheel).namelist()
    target = tmp_path / "site"
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--target", str(target), str(wheel)], check=True)
    program = "import verifierd_client, verifierd_client.trl, verifierd_client.aio as a; print(a.__file__)"
    environment = {"PYTHONPATH": str(target), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.startswith(str(target)), done.stderr


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
    slip = numbers_of({"class": "form", "reward": 0, "components": dict.fromkeys(ABSENT, 0)})
    assert slip["hack"] == 0, "a missing class or kernel is no cheat"
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


def test_trl_says_the_run_and_the_step() -> None:
    with serving(say(200, {"id": "g", "state": "done", "items": [verdict()]})) as stub:
        reward = make_reward(stub.url, run="r1", metadata={"seed": 3})
        state = SimpleNamespace(global_step=17)
        assert reward(prompts=["p"], completions=["x"], task=["softmax"], trainer_state=state) == [0.7]
    assert stub.asked[0][2]["metadata"] == {"run": "r1", "step": 17, "seed": 3}


def test_trl_without_a_daemon_masks_and_without_a_task_stops() -> None:
    with serving(say(503, {"detail": "starting"})) as stub:
        reward = make_reward(stub.url, wait_s=0.2)
        with pytest.warns(UserWarning, match="starting: 2 samples have no reward"):
            assert reward(prompts=["p", "p"], completions=["x", "y"], task=["t", "t"]) == [None, None]
        with pytest.raises(ValueError, match="no column 'task'"):
            reward(prompts=["p"], completions=["x"])


def test_each_sample_without_a_reward_is_told() -> None:
    """Also where the text is one that was told before, as while a daemon is away; not where the user wants none."""
    with serving(say(404, {"code": "unknown_task"})) as stub:
        program = (
            f"from verifierd_client.trl import make_reward; reward = make_reward({stub.url!r})\n"
            "for _ in range(3): reward(prompts=['p'], completions=['x'], task=['t'])\n"
        )
        for flags, times in (([], 3), (["-W", "ignore"], 0)):
            command = [sys.executable, *flags, "-c", program]
            done = subprocess.run(command, cwd=PACKAGE, capture_output=True, text=True, timeout=60, check=True)
            assert done.stderr.count("1 sample has no reward") == times


def test_one_bad_row_never_ends_a_run() -> None:
    """An unknown task masks its group, and an answer that is refused by itself leaves the others their rewards."""
    bad = {"code": "bad_request", "detail": "/candidates/1/completion: NUL", "errors": [{"pointer": "/candidates/1/x"}]}
    items = [verdict(0.25), verdict(0.75)]
    with serving(say(404, {"code": "unknown_task"})) as stub:
        reward = make_reward(stub.url)
        with pytest.warns(UserWarning, match="unknown_task"):
            assert reward(prompts=["p"], completions=["x"], task=["t"]) == [None]
        with pytest.warns(UserWarning, match="a task is"):
            assert reward(prompts=["p"], completions=["x"], task=[None]) == [None]
        stub.answers = [say(400, bad), say(200, {"id": "g", "state": "done", "items": items})]
        with pytest.warns(UserWarning, match="1 sample has no reward"):
            assert reward(prompts=["p"] * 3, completions=["x", "y", "z"], task=["t"] * 3) == [0.25, None, 0.75]
        assert [item["completion"] for item in stub.asked[-1][2]["candidates"]] == ["x", "z"]
        stub.answers = [say(404, {"code": "unknown_task"})]
        with pytest.warns(UserWarning, match="unknown_task"):
            assert compute_score("k", "text", "nowhere", url=stub.url)["masked"] == 1


@pytest.mark.parametrize(("status", "pointers"), [(413, []), (400, ["/candidates"])])
def test_a_group_that_is_too_long_is_judged_in_halves(status: int, pointers: list[str]) -> None:
    asked: list[int] = []

    def answer(call: Call) -> Reply:
        texts = [one["completion"] for one in call.body["candidates"]]
        asked.append(len(texts))
        if len(texts) > 2 or "long" in texts:
            errors = [{"pointer": pointer} for pointer in pointers]
            return document(status, {"code": "too_large", "detail": "the body", "errors": errors})
        return document(200, {"id": "g", "state": "done", "items": [verdict(float(text)) for text in texts]})

    with answering(answer) as url, pytest.warns(UserWarning, match="too_large: the body: 1 sample has no reward"):
        found = judge_rows(Client(url), "softmax", ["1", "2", "3", "long", "5"])
    assert [one and one["reward"] for one in found] == [1, 2, 3, None, 5]
    assert asked == [5, 2, 3, 1, 2, 1, 1]


def test_a_group_whose_reference_is_too_long_is_refused_once() -> None:
    too_long = {"code": "too_large", "detail": "it is long", "errors": [{"pointer": "/reference"}]}
    with serving(say(413, too_long)) as stub, pytest.warns(UserWarning, match="4 samples have no reward"):
        assert judge_rows(Client(stub.url), {"reference": "x"}, ["a", "b", "c", "d"]) == [None] * 4
    assert len(stub.asked) == 1


@pytest.mark.parametrize(
    ("status", "pointer", "task", "ends"),
    [
        (401, "", "t", True),
        (403, "", "t", True),
        (400, "/reward/kind", "t", True),
        (400, "/reward/kind", {"task": "t", "reward": "kevn"}, False),  # the row's own
        (400, "/task", "t", False),
    ],
)
def test_what_every_row_would_be_refused_for_ends_the_run(status: int, pointer: str, task: object, ends: bool) -> None:
    with serving(say(status, {"code": "c", "detail": "d", "errors": [{"pointer": pointer}]})) as stub:
        reward = make_reward(stub.url)
        with pytest.raises(Refused) if ends else pytest.warns(UserWarning, match="no reward"):
            assert reward(prompts=["p"], completions=["x"], task=[task]) == [None]


# --- OpenRLHF and slime, as functions ---


def test_openrlhf_by_function(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with serving(say(200, verdict(0.9))) as stub:
        (tmp_path / "step").write_text("5 of 9\n")
        for name, value in {
            "URL": stub.url,
            "RUN": "r1",
            "REWARD": "kevin",
            "STEP_FILE": str(tmp_path / "step"),
        }.items():
            monkeypatch.setenv(f"VERIFIERD_{name}", value)
        openrlhf._client.cache_clear()
        found = openrlhf.reward_func(["write itcode"], ["write it"], ["softmax"])
    assert (found["rewards"], found["scores"], found["extra_logs"]["masked"]) == ([0.9], [1.0], [0.0])
    with pytest.warns(UserWarning, match="does not begin with its prompt"):
        assert openrlhf.reward_func(["other"], ["write it"], ["softmax"])["extra_logs"]["masked"] == [1.0]
    body = stub.asked[0][2]
    assert (body["completion"], body["metadata"]) == ("code", {"run": "r1", "step": 5})
    (tmp_path / "step").write_text("")  # its writer has just opened it
    with serving(say(200, verdict(None, **{"class": "infra"}))) as stub:  # after it was found correct
        monkeypatch.setenv("VERIFIERD_URL", stub.url)
        openrlhf._client.cache_clear()
        found = openrlhf.reward_func(["write itcode"], ["write it"], ["softmax"])
    assert (found["rewards"], found["scores"], found["extra_logs"]["masked"]) == ([0.0], [0.0], [1.0])
    assert stub.asked[0][2]["metadata"] == {"run": "r1"}


@pytest.mark.parametrize(
    ("query", "sent"),
    [
        ("if a != b , write it :\ncode()", "\ncode()"),
        ("if a!= b, write it:\ncode()", "\ncode()"),  # as a tokenizer that cleans up has it
        ("if a!= b, write that:\ncode()", None),
        ("if a!=", None),
    ],
    ids=["whole", "cleaned up", "another", "cut"],
)
def test_openrlhfs_prompt_is_found_without_the_spaces_that_a_tokenizer_left_out(
    monkeypatch: pytest.MonkeyPatch, query: str, sent: str | None
) -> None:
    with serving(say(200, verdict(0.9))) as stub:
        monkeypatch.setenv("VERIFIERD_URL", stub.url)
        openrlhf._client.cache_clear()
        with contextlib.nullcontext() if sent else pytest.warns(UserWarning, match="does not begin with its prompt"):
            found = openrlhf.reward_func([query], ["if a != b , write it :"], ["softmax"])
    assert found["extra_logs"]["masked"] == [0.0 if sent else 1.0]
    assert [body["completion"] for _, _, body, _ in stub.asked] == ([sent] if sent else [])


SAMPLES = 40
"""More than asyncio has threads of its own, however many cores there are."""


@pytest.fixture
def together() -> Iterator[str]:
    """The URL of a daemon that answers once so many wait for it, and refuses all if it does not come to that."""
    all_here = threading.Barrier(SAMPLES, timeout=20)

    def answer(call: Call) -> Reply:
        try:
            all_here.wait()
        except threading.BrokenBarrierError:
            return document(400, {"code": "too_few", "detail": "at once"})
        return document(200, verdict(0.9, items=[verdict(0.9)]))

    with answering(answer) as url:
        yield url


def test_slime_waits_for_more_samples_at_once_than_asyncio_has_threads(
    monkeypatch: pytest.MonkeyPatch, together: str
) -> None:
    monkeypatch.setenv("VERIFIERD_URL", together)
    slime._client.cache_clear()

    async def ask() -> list[Any]:
        samples = [SimpleNamespace(label="softmax", response=str(n), metadata=None) for n in range(SAMPLES)]
        return await asyncio.gather(*(slime.reward(None, sample) for sample in samples))

    assert asyncio.run(ask()) == [0.9] * SAMPLES


def test_verifiers_waits_for_more_samples_at_once_than_asyncio_has_threads(
    monkeypatch: pytest.MonkeyPatch, together: str
) -> None:
    """Its own package, which stands for no more than names here, is run in tests/fault/test_trainers.py."""

    class Named:
        def __class_getitem__(cls, _: object) -> type[Named]:
            return cls

    names = ("Task", "TaskData", "TaskConfig", "Taskset", "TasksetConfig", "Trace", "State")
    package = ModuleType("verifiers.v1")
    package.__dict__.update({name: type(name, (Named,), {}) for name in names}, reward=lambda method: method)
    monkeypatch.setitem(sys.modules, "verifiers", ModuleType("verifiers"))
    monkeypatch.setitem(sys.modules, "verifiers.v1", package)
    spec = importlib.util.find_spec("verifierd_client.verifiers")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    task = module.KernelTask()
    task.config = module.KernelConfig()
    task.config.url = together
    task.data = SimpleNamespace(task="softmax", name=None)

    async def ask() -> list[Any]:
        traces = [SimpleNamespace(last_reply=str(n), info={}, record_metrics=dict) for n in range(SAMPLES)]
        return await asyncio.gather(*(task.verifierd(trace) for trace in traces))

    assert asyncio.run(ask()) == [0.9] * SAMPLES


def test_skyrls_next_turn_is_never_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a row that has no verdict."""
    base = ModuleType("skyrl_gym.envs.base_text_env")
    base.__dict__.update(BaseTextEnv=type("BaseTextEnv", (), {"turns": 0}), BaseTextEnvStepOutput=SimpleNamespace)
    for name in ("skyrl_gym", "skyrl_gym.envs"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, base.__name__, base)
    spec = importlib.util.find_spec("verifierd_client.skyrl")
    assert spec and spec.loader
    skyrl = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(skyrl)
    wrong = verdict(0.3, components={"correct": 0}, feedback={"text": "tiny: 1 of 2 values differ"})
    refusal = say(404, {"code": "unknown_task", "detail": "there is no such task", "retryable": False})
    row = {"reward_spec": {"ground_truth": "softmax"}, "extra_info": {"max_turns": 3}}
    with serving(say(200, wrong), refusal) as stub:
        env = skyrl.KernelEnv({"url": stub.url}, row)
        first = env.step("code")
        with pytest.warns(UserWarning, match="no such task"):
            second = env.step("code")
    assert [one.observations[0]["content"] for one in (first, second)] == [
        "tiny: 1 of 2 values differ",
        "It could not be judged.",
    ]
    assert (second.reward, second.metadata["masked"], second.done) == (0.0, 1.0, False)


def test_slime_by_function(monkeypatch: pytest.MonkeyPatch) -> None:
    group = {"id": "g", "state": "done"}
    one, two = ({**group, "items": [verdict(0.9)] * size} for size in (1, 2))
    with serving(say(200, one), say(200, two)) as stub:
        monkeypatch.setenv("VERIFIERD_URL", stub.url)
        monkeypatch.setenv("VERIFIERD_RUN", "r1")
        slime._client.cache_clear()
        samples = [SimpleNamespace(label="softmax", response=text, metadata=None) for text in ("code", "other")]
        assert asyncio.run(slime.reward(None, samples[0])) == 0.9
        assert asyncio.run(slime.reward(None, samples)) == [0.9, 0.9]
    assert stub.asked[0][2]["metadata"] == {"run": "r1"} and samples[0].metadata["masked"] is False


# --- verl ---


def test_verl() -> None:
    with serving(say(200, verdict(0.9))) as stub:
        score = compute_score("kernels", "text", '{"task": "softmax"}', {"index": 1}, url=stub.url, reward="kevin")
        assert (score["score"], score["correct"], score["masked"]) == (0.9, 1, 0)
        stub.answers = [say(503, {})]
        with pytest.warns(UserWarning, match="no reward"):
            away = compute_score("kernels", "text", "softmax", url=stub.url, fill=-1, wait_s=0.2, num_turns=1)
    assert (away["score"], away["masked"]) == (-1, 1)
    assert set(away) == set(score)

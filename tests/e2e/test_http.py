"""What the daemon answers over HTTP, whatever it is asked. No candidate is judged here: the daemon is paused."""

from __future__ import annotations

import gzip
import json
import os
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import service
from http_raw import LIMIT_S, Raw

HEADER_LIMIT_S = 1.5
BODY_LIMIT_S = 2.0
REFERENCE = """\
import torch
import torch.nn as nn

N = 16


class Model(nn.Module):
    def forward(self, x):
        return x + 1


def get_inputs():
    return [torch.rand(N)]


def get_init_inputs():
    return []
"""
CANDIDATE = "class ModelNew: pass\n"
PROBLEM_MEMBERS = {"type", "title", "status", "detail", "instance", "code", "request_id", "retryable"}


@pytest.fixture(scope="module")
def paused() -> Iterator[service.Daemon]:
    """One daemon for this file: it judges nothing, and is patient with whoever is slow."""
    patience = {"header_limit_ms": 60000, "body_limit_ms": 60000, "wait_limit_s": 600}
    with not_judging(queue_limit=3000, **patience) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def hasty() -> Iterator[str]:
    """The address of one that is not."""
    limits = {"header_limit_ms": int(HEADER_LIMIT_S * 1000), "body_limit_ms": int(BODY_LIMIT_S * 1000)}
    with not_judging(**limits) as daemon:
        yield daemon.client.url


@contextmanager
def not_judging(**options: object) -> Iterator[service.Daemon]:
    with service.directory() as directory:
        daemon = service.Daemon(directory, {"paused": True, **options})
        daemon.start(ready=False)
        try:
            yield daemon
        finally:
            assert daemon.stop() == 0


@pytest.fixture(scope="module")
def url(paused: service.Daemon) -> str:
    return paused.client.url


@pytest.fixture(scope="module")
def task(paused: service.Daemon) -> str:
    """A registered task; the reference is run for it, which takes a worker that is up."""
    deadline = time.monotonic() + service.READY_LIMIT_S
    while True:
        answer = paused.client.post("/v1/tasks", {"name": "plus_one", "reference": REFERENCE})
        if answer.status != 503 or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    assert answer.status in (200, 201), answer.body
    return str(answer.json()["id"])


@pytest.fixture
def waiting(paused: service.Daemon, task: str) -> str:
    """A submission that nobody will judge."""
    return paused.client.submit({"task": task, "candidate": CANDIDATE + f"# {uuid.uuid4()}\n"})


def assert_problem(status: int, headers: dict[str, str], document: service.Json, code: str) -> None:
    assert headers["content-type"] == "application/problem+json"
    assert document.keys() >= PROBLEM_MEMBERS
    assert document["status"] == status
    assert document["code"] == code
    assert uuid.UUID(document["request_id"]).version == 7


def lowered(answer: service.Answer) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.headers.items()}


# --- plain answers ---


def test_health_and_its_headers(paused: service.Daemon) -> None:
    answer = paused.client.get("/healthz")
    assert answer.status == 200
    assert answer.json() == {"status": "ok"}
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"
    assert uuid.UUID(answer.headers["X-Request-Id"]).version == 7


def test_the_page_and_its_files(url: str) -> None:
    client = service.Client(url)
    for path, kind in (
        ("/", "text/html; charset=utf-8"),
        ("/dashboard.js", "text/javascript; charset=utf-8"),
        ("/style.css", "text/css; charset=utf-8"),
        ("/openapi.yaml", "application/yaml"),
        ("/openapi.json", "application/json"),
        ("/docs", "text/html; charset=utf-8"),
    ):
        answer = client.get(path)
        assert (answer.status, answer.headers["Content-Type"]) == (200, kind)
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        again = client.call("GET", path, headers={"If-None-Match": answer.headers["ETag"]})
        assert (again.status, again.body) == (304, b"")


def test_the_page_can_only_show_text() -> None:
    sources = list((service.ROOT / "server" / "dashboard").glob("*.js"))
    assert len(sources) > 5
    for source in sources:
        for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "eval("):
            assert way not in source.read_text(), source.name


def test_the_description_has_every_call_that_answers(url: str) -> None:
    client = service.Client(url)
    text = client.get("/openapi.yaml").body.decode()
    paths = [line.strip().rstrip(":") for line in text.splitlines() if line.startswith("  /")]
    assert len(paths) >= 13
    for path in paths:
        query = "?wait=0" if path.endswith("/events") else ""  # a stream goes on until it is told not to
        answer = client.get(path.replace("{id}", str(uuid.uuid4())).replace("{task}", "nobody") + query)
        known = answer.status != 404 or "no such address" not in answer.json()["detail"]
        assert known, f"{path} is described and does not exist"


def test_the_description_as_json_is_the_same(url: str) -> None:
    """`make contract` makes it."""
    command = [sys.executable, "server/deploy/contract", "proto/openapi.yaml"]
    made = subprocess.run(command, cwd=service.ROOT, capture_output=True, timeout=LIMIT_S, check=True).stdout
    assert service.Client(url).get("/openapi.json").body == made
    json.loads(made)


def test_head_is_get_without_the_body(url: str) -> None:
    with Raw(url) as raw:
        raw.request("HEAD", "/healthz")
        raw.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        status_line_and_headers = b""
        while status_line_and_headers.count(b"\r\n\r\n") < 2:
            status_line_and_headers += raw._socket.recv(4096)
        head, rest = status_line_and_headers.split(b"\r\n\r\n", 1)
        assert b"200 OK" in head and b"Content-Length: 15" in head
        assert rest.startswith(b"HTTP/1.1 200")


def test_many_requests_on_one_connection(url: str) -> None:
    with Raw(url) as raw:
        raw.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50)
        for _ in range(50):
            assert raw.reply().status == 200


# --- refusals ---


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("GET", "/v1/tasks/", 404, "not_found"),
        ("GET", "/v1//tasks", 404, "not_found"),
        ("GET", "/v1/tasks/nobody", 404, "unknown_task"),
        ("GET", "/v1/tasks/sha256:00", 404, "unknown_task"),
        ("GET", "/v1/submissions/abc", 404, "not_found"),
        ("GET", "/v1/submissions/01a1fe05-b3cc-7450-a9e7-2bc47edb4916", 404, "not_found"),
        ("GET", "/v1/submissions/01a1fe05-b3cc-7450-a9e7-2bc47edb4916/source", 404, "not_found"),
        ("GET", "/v1/submissions/01a1fe05-b3cc-7450-a9e7-2bc47edb4916/answer", 404, "not_found"),
        ("GET", "/v1/submissions/01a1fe05-b3cc-7450-a9e7-2bc47edb4916/log", 404, "not_found"),
        ("GET", "/v1/submissions/01a1fe05-b3cc-7450-a9e7-2bc47edb4916/timing", 404, "not_found"),
        ("DELETE", "/v1/submissions/01a1fe05-b3cc-7450-a9e7-2bc47edb4916", 404, "not_found"),
        ("GET", "/v1/groups/01a1fe05-b3cc-7450-a9e7-2bc47edb4916", 404, "not_found"),
        ("DELETE", "/v1/groups/01a1fe05-b3cc-7450-a9e7-2bc47edb4916", 404, "not_found"),
        ("GET", "/v1/submissions?stat=done", 400, "bad_parameter"),
        ("GET", "/v1/submissions?state=dead", 400, "bad_parameter"),
        ("GET", "/v1/submissions?limit=0", 400, "bad_parameter"),
        ("GET", "/v1/submissions?limit=201", 400, "bad_parameter"),
        ("GET", "/v1/submissions?limit=1x", 400, "bad_parameter"),
        ("GET", "/v1/submissions?cursor=7", 400, "bad_parameter"),
        ("GET", "/v1/submissions?group=7", 400, "bad_parameter"),
        ("GET", "/v1/submissions?view=all", 400, "bad_parameter"),
        ("GET", "/v1/submissions?task=nobody", 404, "unknown_task"),
        ("GET", "/v1/tasks?cursor=7", 400, "bad_parameter"),
        ("GET", "/v1/submissions/x?wait=-1", 400, "bad_parameter"),
        ("GET", "/v1/submissions/x?wait=soon", 400, "bad_parameter"),
        ("GET", "/v1/submissions/x?wait=nan", 400, "bad_parameter"),
        ("GET", "/v1/submissions/x?wait=86401", 400, "bad_parameter"),
        ("GET", "/healthz?x=1", 400, "bad_parameter"),
        ("GET", "/v1/submissions?limit=1&limit=2", 400, "bad_address"),
        ("GET", "/v1/tasks/%00", 400, "bad_address"),
        ("GET", "/v1/tasks/%zz", 400, "bad_address"),
        ("GET", "/v1/tasks/%ff", 400, "bad_address"),
        ("GET", "/v1/tasks/%0d%0a", 400, "bad_address"),
        ("GET", "http://a/healthz", 400, "bad_address"),
        ("GET", "*", 400, "bad_address"),
        ("GET", "healthz", 400, "bad_address"),
        ("PUT", "/v1/tasks", 405, "method_not_allowed"),
        ("DELETE", "/v1/status", 405, "method_not_allowed"),
        ("OPTIONS", "/v1/submissions", 405, "method_not_allowed"),
        ("POST", "/", 405, "method_not_allowed"),
    ],
)
def test_refusals(url: str, method: str, path: str, status: int, code: str) -> None:
    with Raw(url) as raw:
        raw.request(method, path)
        reply = raw.reply()
        assert (reply.status, reply.json()["code"]) == (status, code), reply.body
        assert_problem(status, reply.headers, reply.json(), code)
        assert reply.json()["instance"] == path
        raw.request("GET", "/healthz")
        assert raw.reply().status == 200, "a refusal must not cost the connection"


def test_a_wrong_method_is_told_the_right_ones(paused: service.Daemon) -> None:
    answer = paused.client.call("PUT", "/v1/submissions/x")
    assert answer.status == 405
    assert sorted(answer.headers["Allow"].split(", ")) == ["DELETE", "GET", "HEAD"]
    assert sorted(paused.client.call("PUT", "/v1/tasks").headers["Allow"].split(", ")) == ["GET", "HEAD", "POST"]


@pytest.mark.parametrize("path", ["/v1/tasks", "/v1/submissions", "/v1/groups", "/v1/calibrations"])
@pytest.mark.parametrize(
    ("body", "kind", "status", "code"),
    [
        (b"", "application/json", 400, "bad_body"),
        (b"nothing", "application/json", 400, "bad_body"),
        (b'{"a":', "application/json", 400, "bad_body"),
        (b'{"name":"a","name":"b"}', "application/json", 400, "bad_body"),
        (b'{"candidate":"a\xff"}', "application/json", 400, "bad_body"),
        (b'{"candidate":"a\\u0000"}', "application/json", 400, "bad_body"),
        (b"[" * 10000, "application/json", 400, "bad_body"),
        (b"[1]", "application/json", 400, "bad_body"),
        (b'"text"', "application/json", 400, "bad_body"),
        (b'{"candidat":"x"}', "application/json", 400, "bad_body"),
        (b"{}", "text/plain", 415, "unsupported_type"),
        (b"{}", "application/json; charset=latin-1", 415, "unsupported_type"),
        (b"{}", "application/jsonx", 415, "unsupported_type"),
    ],
)
def test_bad_bodies(url: str, path: str, body: bytes, kind: str, status: int, code: str) -> None:
    answer = service.Client(url).call("POST", path, body, {"Content-Type": kind})
    assert answer.status == status, answer.body
    assert_problem(status, lowered(answer), answer.json(), code)
    if code == "bad_body":
        assert answer.json()["errors"][0].keys() == {"pointer", "detail"}


@pytest.mark.parametrize("kind", ["text/x-python", "application/octet-stream", "text/x-python; charset=UTF-8"])
def test_a_source_is_submitted_as_it_is(paused: service.Daemon, task: str, kind: str) -> None:
    source = f"x = 'é\0'  # {kind}\n"
    client = paused.client
    path = "/v1/submissions?until=ast&entry_point=Mine&client=me&policy=hybrid&task="
    answer = client.call("POST", path + task.replace(":", "%3A"), source.encode(), {"Content-Type": kind})
    assert answer.status == 202, answer.body
    assert client.get(f"/v1/submissions/{answer.json()['id']}/source").body == source.encode()
    shown = client.get(f"/v1/submissions/{answer.json()['id']}").json()
    assert (shown["task"], shown["client"], shown["policy"]) == (task, "me", "hybrid")


def test_a_source_may_be_a_models_answer(paused: service.Daemon, task: str) -> None:
    answer = paused.client.call(
        "POST",
        f"/v1/submissions?as=completion&task={task}",
        b"Here:\n```python\nx = 5\n```\n",
        {"Content-Type": "text/x-python"},
    )
    assert answer.status == 202, answer.body
    assert paused.client.get(f"/v1/submissions/{answer.json()['id']}/source").body == b"x = 5\n"


@pytest.mark.parametrize(
    ("query", "body", "kind", "status", "where"),
    [
        ("task=T&as=wrong", b"x = 1", "text/x-python", 400, {"parameter": "as"}),
        ("as=completion", b"x = 1", "text/x-python", 400, {"parameter": "task"}),
        ("task=nobody-knows", b"x = 1", "text/x-python", 404, None),
        ("task=T&policy=strcit", b"x = 1", "text/x-python", 400, {"pointer": "/policy"}),
        ("task=%ff", b"x = 1", "text/x-python", 400, None),
        ("task=T", b"\xff", "text/x-python", 400, None),
        ("task=T", b"{}", "application/json", 400, {"parameter": "task"}),
        ("as=candidate", b"{}", "application/json", 400, {"parameter": "as"}),
        ("task=T", b"x = 1", "text/plain", 415, None),
        ("task=T", b"x = 1", "multipart/form-data; boundary=b", 415, None),
        ("task=T", b"x = 1", "application/x-www-form-urlencoded", 415, None),
    ],
)
def test_a_bad_source_is_refused_with_where(
    paused: service.Daemon, task: str, query: str, body: bytes, kind: str, status: int, where: dict[str, str] | None
) -> None:
    path = "/v1/submissions?" + query.replace("task=T", f"task={task}")
    answer = paused.client.call("POST", path, body, {"Content-Type": kind})
    assert answer.status == status, answer.body
    if where:
        assert where.items() <= answer.json()["errors"][0].items()
        assert answer.json()["code"] == ("bad_parameter" if "parameter" in where else "bad_body")
    if status == 415:
        assert "text/x-python" in answer.json()["detail"]


def test_only_submissions_take_a_source(url: str) -> None:
    for path in ("/v1/tasks", "/v1/groups", "/v1/rescore"):
        answer = service.Client(url).call("POST", path, b"x = 1", {"Content-Type": "text/x-python"})
        assert answer.status == 415, path
        assert "text/x-python" not in answer.json()["detail"]


def test_a_key_of_a_source_is_of_its_address_too(paused: service.Daemon, task: str) -> None:
    def post(query: str) -> service.Answer:
        sent = {"Content-Type": "text/x-python", "Idempotency-Key": "source-key"}
        return paused.client.call("POST", f"/v1/submissions?task={task}{query}", b"x = 7", sent)

    first = post("&until=ast")
    again = post("&until=ast&wait=0")
    assert (first.status, again.status) == (202, 202)
    assert (again.json()["id"], again.headers["Idempotency-Replayed"]) == (first.json()["id"], "true")
    assert post("&until=tiny").json()["code"] == "key_reused"


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "br", "gzip, identity"])
def test_a_compressed_body_is_refused_with_what_is_taken(url: str, encoding: str) -> None:
    client = service.Client(url)
    answer = client.call("POST", "/v1/submissions", gzip.compress(b"{}"), {"Content-Encoding": encoding})
    assert_problem(415, lowered(answer), answer.json(), "unsupported_type")
    assert answer.headers["Accept-Encoding"] == "identity"
    assert "without Content-Encoding" in answer.json()["detail"]


def test_what_the_store_reports_is_logged_and_not_sent(paused: service.Daemon, task: str) -> None:
    """Issue 25, point 2: it names the database's path, tables and codes."""
    with closing(sqlite3.connect(paused.directory / "store.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        answer = paused.client.post("/v1/submissions", {"task": task, "candidate": CANDIDATE})
        other.execute("ROLLBACK")
    assert_problem(503, lowered(answer), answer.json(), "unavailable")
    assert answer.json()["detail"] == "the daemon could not do it, and its log has the reason"
    assert "SQLite code" in paused.log.read_text()


def test_a_body_that_says_identity_is_read(url: str) -> None:
    answer = service.Client(url).call("POST", "/v1/submissions", b"{}", {"Content-Encoding": "Identity"})
    assert (answer.status, answer.json()["code"]) == (400, "bad_body")


def test_a_body_without_a_type_is_refused(url: str) -> None:
    with Raw(url) as raw:
        raw.send("POST /v1/submissions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
        assert raw.reply().status == 415
        raw.request("GET", "/healthz")
        assert raw.reply().status == 200


def test_a_wrong_value_is_named_by_its_pointer(paused: service.Daemon, task: str) -> None:
    answer = paused.client.post("/v1/submissions", {"task": task, "candidate": 5})
    assert answer.status == 400
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/candidate"]
    answer = paused.client.post("/v1/submissions", {"task": task, "candidate": CANDIDATE, "a/b~c": 1})
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/a~1b~0c"]


# --- framing ---

GET = "GET /healthz HTTP/1.1\r\n"
POST = "POST /v1/submissions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKS = "2\r\n{}\r\n0\r\n\r\n"


def test_unusual_requests_that_are_fine(url: str) -> None:
    for text in (
        GET + "Host: a  \r\nX:\r\nY: \r\nZ:b\r\nQ: a:b \t\r\n\r\n",
        "\r\n" + GET + "Host: a\r\n\r\n",
        GET + "Host: a\r\nCookie: a=b; c=d\r\n\r\n",
        GET + "host: a\r\n" + "".join(f"X{n}: {n}\r\n" for n in range(200)) + "\r\n",
    ):
        with Raw(url) as raw:
            raw.send(text)
            assert raw.reply().status == 200, text


@pytest.mark.parametrize("host", ["rebound.example", "127.0.0.1.nip.io:80", "localhost.example"])
def test_a_name_that_resolves_to_loopback_is_not_answered(url: str, host: str) -> None:
    """Where whoever calls is the operator, a page of that name would be one (DNS rebinding)."""
    for path, status in (("/v1/submissions", 421), ("/healthz", 200)):
        with Raw(url) as raw:
            raw.send(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")
            assert raw.reply().status == status
    with Raw(url) as raw:
        raw.send(POST.replace("localhost", host), "Content-Length: 2\r\n\r\n{}")
        reply = raw.reply()
    assert (reply.status, reply.json()["code"]) == (421, "wrong_host")


def test_http_1_0_without_host(url: str) -> None:
    with Raw(url) as raw:
        raw.send("GET /healthz HTTP/1.0\r\n\r\n")
        assert raw.reply().status == 200
        assert raw.is_closed()


@pytest.mark.parametrize("size", [20_000, 200_000])
def test_a_header_that_is_too_long(url: str, size: int) -> None:
    with Raw(url) as raw:
        raw.send(GET, "Host: a\r\nX: ", "x" * size, "\r\n\r\n")
        assert raw.reply().status in (413, 414, 431)
    assert service.Client(url).get("/healthz").status == 200


def test_a_chunked_body_is_read(url: str) -> None:
    with Raw(url) as raw:
        raw.send(
            POST, "Transfer-Encoding: chunked\r\n\r\n", "9\r\n", '{"candida', "\r\n7\r\n", 't":"x"}', "\r\n0\r\n\r\n"
        )
        reply = raw.reply()
        assert (reply.status, reply.json()["errors"][0]["pointer"]) == (400, "/candidat")


# --- limits ---


def test_a_body_that_says_it_is_too_large_is_refused_before_it_comes(url: str) -> None:
    with Raw(url) as raw:
        raw.send(POST, f"Content-Length: {9 << 20}\r\n\r\n")
        reply = raw.reply()
        assert_problem(413, reply.headers, reply.json(), "too_large")


def test_a_client_busy_sending_too_much_gets_to_read_the_answer(url: str) -> None:
    with Raw(url) as raw:
        raw.request("POST", "/v1/submissions", b"[" + b" " * (9 << 20))
        assert raw.reply().status == 413
        assert raw.is_closed()


def test_a_chunked_body_that_grows_too_large(url: str) -> None:
    with Raw(url) as raw:
        raw.send(POST, "Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
        for _ in range(140):
            raw.send(chunk)
        reply = raw.reply()
        assert_problem(413, reply.headers, reply.json(), "too_large")
        assert raw.is_closed()


def test_a_body_just_under_the_limit_is_parsed(url: str) -> None:
    """More than 64 KiB is parsed beside the loop, which answers others meanwhile."""
    body = b'{"candidat":"' + b"x" * ((8 << 20) - 20) + b'"}'
    answer = service.Client(url).post("/v1/submissions", body)
    assert answer.status == 400
    assert answer.json()["errors"][0]["pointer"] == "/candidat"


def test_a_source_over_a_mebibyte(paused: service.Daemon, task: str) -> None:
    answer = paused.client.post("/v1/submissions", {"task": task, "candidate": "#" * ((1 << 20) + 1)})
    assert answer.status in (400, 413), answer.body
    assert answer.headers["Content-Type"] == "application/problem+json"


def test_expect_100_continue(url: str) -> None:
    with Raw(url) as raw:
        raw.send(POST, "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert raw.reply().status == 100
        raw.send("{}")
        assert raw.reply().status == 400
    with Raw(url) as raw:
        raw.send(POST, f"Expect: 100-continue\r\nContent-Length: {9 << 20}\r\n\r\n")
        assert raw.reply().status == 413


def test_a_header_that_trickles_ends(hasty: str) -> None:
    with Raw(hasty) as raw:
        took = raw.trickle(GET.encode() + b"Host: a\r\nX: " + b"x" * 1000, 0.1)
        assert HEADER_LIMIT_S - 0.3 < took < LIMIT_S
        assert raw.reply().status == 408


def test_a_body_that_trickles_ends(hasty: str) -> None:
    with Raw(hasty) as raw:
        raw.send(POST, "Content-Length: 1000\r\n\r\n")
        took = raw.trickle(b"{" + b" " * 998, 0.1)
        assert BODY_LIMIT_S - 0.3 < took < LIMIT_S
        reply = raw.reply()
        assert_problem(408, reply.headers, reply.json(), "request_timeout")


def test_a_silent_client_is_let_go(hasty: str) -> None:
    with Raw(hasty) as raw:
        assert raw.reply().status == 408
        assert raw.is_closed()


def test_slow_clients_do_not_hold_up_others(url: str) -> None:
    slow = [Raw(url) for _ in range(200)]
    try:
        for raw in slow:
            raw.send(POST, "Content-Length: 1000\r\n\r\n{")
        started = time.monotonic()
        for _ in range(20):
            assert service.Client(url).get("/healthz").status == 200
        assert time.monotonic() - started < LIMIT_S  # and not once they are let go
    finally:
        for raw in slow:
            raw.close()


def test_the_connection_limit() -> None:
    with service.directory() as directory:
        daemon = service.Daemon(directory, {"paused": True, "connections": 20})
        daemon.start(ready=False)
        held: list[Raw] = []
        try:
            while len(held) < 20:
                held.append(Raw(daemon.client.url))
                held[-1].request("GET", "/healthz")
                assert held[-1].reply().status == 200
            for _ in range(300):  # far more than are told at once, one after the other
                with Raw(daemon.client.url) as one_more:
                    one_more.request("GET", "/healthz")
                    reply = one_more.reply()
                    assert_problem(503, reply.headers, reply.json(), "too_many_connections")
                    assert (reply.headers["retry-after"], reply.headers["connection"]) == ("1", "close")
                    assert one_more.is_closed()
            held.pop().close()
            deadline = time.monotonic() + LIMIT_S
            while (answer := daemon.client.get("/v1/status")).status != 200:
                assert time.monotonic() < deadline
            assert answer.json()["http"]["connections_refused"] >= 300
        finally:
            for raw in held:
                raw.close()
            assert daemon.stop() == 0


# --- calibrations ---


def test_calibrations_are_kept(url: str) -> None:
    client = service.Client(url)
    run = {"name": "product_1024", "kind": "aa", "outcome": "measured", "speedup": 1.001}
    body = {"gpu": "H200", "bias": 0.001, "spread": 0.002, "runs": [run]}
    ids = [client.post("/v1/calibrations", body | {"bias": bias}).json()["id"] for bias in (0.001, -0.002)]
    (item,) = client.get("/v1/calibrations").json()["items"]
    assert item == body | {"bias": -0.002, "id": ids[1], "created": item["created"]}
    for wrong, pointer in (
        (body | {"bias": "0"}, "/bias"),
        (body | {"spread": -1}, "/spread"),
        (body | {"runs": []}, "/runs"),
        (body | {"runs": [run] * 65}, "/runs"),
        (body | {"runs": [run, run | {"speedup": -1}]}, "/runs/1/speedup"),
        (body | {"runs": [run | {"verdict": "good"}]}, "/runs/0/verdict"),
        (body | {"gpu": ""}, "/gpu"),
    ):
        answer = client.post("/v1/calibrations", wrong)
        assert (answer.status, answer.json()["errors"][0]["pointer"]) == (400, pointer)


# --- submissions that wait ---


def test_a_submission_is_accepted_and_found(paused: service.Daemon, task: str) -> None:
    answer = paused.client.post("/v1/submissions", {"task": task, "candidate": CANDIDATE})
    document = answer.json()
    assert answer.status == 202
    assert document.keys() == {"id", "state", "links"}
    assert document["state"] == "queued"
    assert answer.headers["Location"] == document["links"]["self"] == f"/v1/submissions/{document['id']}"
    assert paused.client.get(document["links"]["source"]).body.decode() == CANDIDATE
    assert paused.client.get(document["links"]["log"]).body == b""
    shown = paused.client.get(document["links"]["self"]).json()
    assert (shown["id"], shown["task"], shown["state"]) == (document["id"], task, "queued")
    timing = paused.client.get(document["links"]["self"] + "/timing").json()
    assert (timing["id"], timing["state"], timing["timing"]) == (document["id"], "queued", None)


def test_a_nul_in_metadata_is_kept(paused: service.Daemon, task: str) -> None:
    metadata = {"note": "a\0b"}
    body = {"task": task, "candidate": "x = 1", "metadata": metadata}
    submission = paused.client.post("/v1/submissions", body).json()
    shown = paused.client.get(f"/v1/submissions/{submission['id']}").json()
    assert (shown["state"], shown["metadata"]) == ("queued", metadata)
    group = paused.client.post(
        "/v1/groups", {"task": task, "candidates": [{"candidate": "x = 2", "metadata": metadata}]}
    )
    shown = paused.client.get(f"/v1/groups/{group.json()['id']}").json()
    assert shown["items"][0]["metadata"] == metadata


def test_a_wait_ends_with_the_present_state(paused: service.Daemon, task: str) -> None:
    started = time.monotonic()
    body = {"task": task, "candidate": CANDIDATE + "# waits\n"}
    answer = paused.client.post("/v1/submissions?wait=0.7", body)
    assert 0.6 < time.monotonic() - started < LIMIT_S
    assert (answer.status, answer.json()["state"]) == (202, "queued")
    assert answer.headers["Location"].endswith(answer.json()["id"])
    started = time.monotonic()
    again = paused.client.get(f"/v1/submissions/{answer.json()['id']}?wait=0.7")
    assert 0.6 < time.monotonic() - started < LIMIT_S
    assert (again.status, again.json()["state"]) == (200, "queued")


def test_prefer_wait_is_honoured_and_said(paused: service.Daemon, waiting: str) -> None:
    started = time.monotonic()
    answer = paused.client.call("GET", f"/v1/submissions/{waiting}", headers={"Prefer": "respond-async, wait=1"})
    assert 0.9 < time.monotonic() - started < LIMIT_S
    assert answer.headers["Preference-Applied"] == "wait=1"
    plain = paused.client.get(f"/v1/submissions/{waiting}")
    assert "Preference-Applied" not in plain.headers


def test_a_thousand_long_polls(paused: service.Daemon, waiting: str) -> None:
    """They hold no thread, little memory, and end together when the submission does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    before = threads_and_memory(paused.pid)
    polls = [Raw(paused.client.url) for _ in range(1000)]
    try:
        for raw in polls:
            raw.request("GET", f"/v1/submissions/{waiting}?wait=500")
        wait_for_held(paused, 1000)
        after = threads_and_memory(paused.pid)
        assert after[0] == before[0]
        assert after[1] - before[1] < 40 << 20
        assert paused.client.call("DELETE", f"/v1/submissions/{waiting}").status == 200
        for raw in polls:
            reply = raw.reply()  # long before the end of the wait
            assert (reply.status, reply.json()["state"]) == (200, "cancelled")
    finally:
        for raw in polls:
            raw.close()


def test_clients_that_leave_are_let_go(paused: service.Daemon, task: str, waiting: str) -> None:
    """Those who ask after a submission, and those who wait for the one that they post."""
    polls = [Raw(paused.client.url) for _ in range(100)]
    for n, raw in enumerate(polls):
        if n % 2:
            raw.request("GET", f"/v1/submissions/{waiting}?wait=500")
        else:
            body = json.dumps({"task": task, "candidate": f"{CANDIDATE}# left alone {n}\n"})
            raw.request("POST", "/v1/submissions?wait=500", body.encode())
    wait_for_held(paused, 100)
    for raw in polls:
        raw.close()
    wait_for_held(paused, 0)


def test_cancelling(paused: service.Daemon, waiting: str) -> None:
    bundle = paused.client.get(f"/v1/submissions/{waiting}/bundle")
    assert (bundle.status, bundle.json()["code"], bundle.json()["retryable"]) == (409, "unfinished", True)
    answer = paused.client.call("DELETE", f"/v1/submissions/{waiting}")
    assert answer.status == 200
    verdict = paused.client.wait(waiting, 10)
    assert verdict["state"] == "cancelled"
    assert verdict["reward"] is None
    again = paused.client.call("DELETE", f"/v1/submissions/{waiting}")
    assert (again.status, again.json()["code"]) == (409, "finished")
    bundle = paused.client.get(f"/v1/submissions/{waiting}/bundle")  # which nobody asks for again
    assert (bundle.status, bundle.json()["code"], bundle.json()["retryable"]) == (404, "not_found", False)
    assert "is cancelled" in bundle.json()["detail"]


def test_pages_of_submissions(paused: service.Daemon, task: str) -> None:
    client_name = f"pages-{uuid.uuid4()}"
    sent = [
        paused.client.submit({"task": task, "candidate": f"{CANDIDATE}# page {n}\n", "client": client_name})
        for n in range(5)
    ]
    path, seen, pages = f"/v1/submissions?client={client_name}&limit=2&state=queued", [], 0
    while path:
        answer = paused.client.get(path)
        seen += [item["id"] for item in answer.json()["items"]]
        link = answer.headers.get("Link")
        assert (link is None) == (answer.json()["next"] is None)
        path = link.split(">")[0].removeprefix("<") if link else ""
        pages += 1
    assert (seen, pages) == (sent[::-1], 3)
    assert paused.client.get(f"/v1/submissions?client={client_name}&state=done").json()["items"] == []
    assert len(paused.client.get(f"/v1/submissions?client={client_name}&task=plus_one").json()["items"]) == 5


def test_groups_are_accepted_and_listed(paused: service.Daemon, task: str) -> None:
    body = {"task": task, "candidates": [{"candidate": f"{CANDIDATE}# {n}\n"} for n in range(3)]}
    answer = paused.client.post("/v1/groups", body)
    assert answer.status == 202, answer.body
    group = answer.json()
    assert answer.headers["Location"] == group["links"]["self"] == f"/v1/groups/{group['id']}"
    shown = paused.client.get(group["links"]["self"]).json()
    assert [item["id"] for item in shown["items"]] == [item["id"] for item in group["items"]]
    assert paused.client.get(f"/v1/submissions/{group['id']}").status == 404
    listed = paused.client.get(f"/v1/submissions?group={group['id']}&view=brief").json()["items"]
    assert {item["id"] for item in listed} == {item["id"] for item in group["items"]}
    assert paused.client.call("DELETE", f"/v1/groups/{group['id']}").status == 200
    assert paused.client.wait(group["id"], 10, "groups")["state"] in ("done", "cancelled")


def test_tasks_by_id_and_name(paused: service.Daemon, task: str) -> None:
    by_id = paused.client.get(f"/v1/tasks/{task}").json()
    assert by_id == paused.client.get("/v1/tasks/plus_one").json()
    assert by_id["reference"] == REFERENCE
    assert [item["id"] for item in paused.client.get("/v1/tasks?name=plus_one").json()["items"]] == [task]
    again = paused.client.post("/v1/tasks", {"name": "plus_one", "reference": REFERENCE})
    assert (again.status, again.json()["id"]) == (200, task)


# --- stopping ---


def test_stopping_answers_long_polls() -> None:
    with service.directory() as directory:
        daemon = service.Daemon(directory, {"paused": True})
        daemon.start(ready=False)
        with Raw(daemon.client.url) as raw:
            raw.request("GET", "/healthz")
            assert raw.reply().status == 200
            daemon.client.get("/v1/status")
            started = time.monotonic()
            assert daemon.stop() == 0
            assert time.monotonic() - started < LIMIT_S
            assert raw.is_closed()


def test_held_requests_get_the_state_when_the_daemon_stops(task: str) -> None:
    with service.directory() as directory:
        daemon = service.Daemon(directory, {"paused": True})
        daemon.start(ready=False)
        try:
            deadline = time.monotonic() + service.READY_LIMIT_S
            body = {"reference": REFERENCE, "candidate": CANDIDATE}
            while (answer := daemon.client.post("/v1/submissions", body)).status == 503:
                assert time.monotonic() < deadline
                time.sleep(0.5)
            submission = answer.json()["id"]
            with ThreadPoolExecutor(10) as pool:
                path = f"/v1/submissions/{submission}?wait=60"
                polls = [pool.submit(daemon.client.get, path) for _ in range(10)]
                wait_for_held(daemon, 10)
                assert daemon.stop() == 0
                answers = [poll.result(30) for poll in polls]
            assert [(a.status, a.json()["state"]) for a in answers] == [(200, "queued")] * 10
        finally:
            daemon.kill()


def test_the_address_is_taken(url: str) -> None:
    with service.directory() as directory:
        daemon = service.Daemon(directory, {"listen": url.removeprefix("http://")})
        with pytest.raises(service.ServiceError, match=r"listen on 127\.0\.0\.1:"):
            daemon.start(ready=False)
        daemon.kill()


# --- settings ---


def run(*arguments: str | Path, limit_s: float = 120.0) -> tuple[int, str, str]:
    done = subprocess.run(
        [str(service.BINARY), *map(str, arguments)], capture_output=True, text=True, timeout=limit_s, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_flags_about_the_program() -> None:
    status, out, _ = run("--version")
    assert status == 0
    assert out.startswith("verifierd ")
    status, out, _ = run("--help")
    assert status == 0
    assert "--wait-limit-s=N" in out
    status, _, err = run("--no-such-flag")
    assert status == 64
    assert "no-such-flag" in err


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("pool = many\n", "conf:1:8: pool is a whole number"),
        ("\n\npool = 0\n", "conf:3:8: pool is 0"),
        ("pool = 2\npool = 3\n", "conf:2:1: pool is set a second time"),
        ("pol = 2\n", 'conf:1:1: "pol" is not a setting'),
        ("paused = perhaps\n", "conf:1:10: paused is true or false"),
        ("log_level = loud\n", "conf:1:13: log_level is one of"),
        ("listen = 0.0.0.0:1\n", "allow_remote"),
        ("listen = nowhere:1\n", "not an IPv4 or IPv6 address"),
        ("listen = 127.0.0.1\n", "listen is ADDRESS:PORT"),
        ("target = sm_90\n", "target is cuda:N"),
        ("device = gpu\n", "device is auto"),
        ('store = ""\n', "conf:1:9: store is empty"),
        ("pool = {\n", "conf:1:8: pool is a whole"),
        ('notify_hosts = "https://hooks.example"\nnotify_key = k\n', "notify_hosts is HOST or HOST:PORT"),
        ('notify_hosts = "a.example,b.example"\nnotify_key = k\n', "notify_hosts is HOST or HOST:PORT"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "conf"
    path.write_text(text)
    status, _, err = run("--config", path, "--check-config")
    assert status == 1
    assert complaint in err


@pytest.mark.parametrize("ask", ["--check-config", "--listen=127.0.0.1:0"])
@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("store = {path}", "store: {path} is no file"),
        (
            "store = {path}/none/verifierd.db",
            "store: the directory of {path}/none/verifierd.db: No such file or directory",
        ),
        (
            "scratch = {path}",
            'the scratch directory {path} is emptied at the start, and "mine" in it is not verifierd\'s',
        ),
        ("scratch = {path}/mine", "the scratch directory {path}/mine is a link or a file"),
        ("tokens = {path}/mine", "tokens: {path}/mine: "),
    ],
)
def test_a_file_that_cannot_serve_is_named_before_anything_is_touched(
    tmp_path: Path, setting: str, complaint: str, ask: str
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "mine").write_text("mine")
    path = tmp_path / "conf"
    path.write_text("log_format = text\n" + setting.format(path=f'"{data}') + '"\n')
    status, out, err = run("--config", path, ask, python())
    assert (status, out) == (1, "")
    assert complaint.format(path=data) in err
    assert len(err.splitlines()) == 1
    assert (data / "mine").read_text() == "mine" and len(list(data.iterdir())) == 1


def test_a_file_is_migrated_unless_a_daemon_has_it(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    status, out, err = run("migrate", "--check", f"--store={store}")
    known = int(out.split()[-1])
    assert (status, out, err) == (1, f"schema version 0 -> {known}\n", "")
    assert not list(tmp_path.iterdir())
    assert run("migrate", f"--store={store}") == (0, out, "")
    done = (0, f"schema version {known}: nothing to do\n", "")
    files = {store, tmp_path / "store.db.lock"}
    for flags in (["--check"], []):
        assert run("migrate", f"--store={store}", *flags) == done
        assert set(tmp_path.iterdir()) == files
    with not_judging() as daemon:
        own = daemon.command()
        used = next(flag for flag in own if flag.startswith("--store="))
        assert run("migrate", "--check", used) == done
        status, out, err = run("migrate", used)
        assert (status, out) == (2, "") and f"in use by another verifierd, process {daemon.pid}" in err
    with closing(sqlite3.connect(store)) as database:
        database.execute(f"PRAGMA user_version = {known + 1}")
    for flags in (["--check"], []):
        status, out, err = run("migrate", f"--store={store}", *flags)
        assert (status, out, err.count("\n")) == (2, "", 1) and "use a newer verifierd" in err
    assert run("migrate", "--check", "--pool=0")[0] == 2


def test_a_port_in_use_is_all_that_is_said(tmp_path: Path) -> None:
    """The workers were begun before, and end without a word."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        arguments = (f"--listen={address}", f"--store={tmp_path}/store.db", "--log-format=text", python())
        status, out, err = run(*arguments, limit_s=service.READY_LIMIT_S)
    assert (status, out) == (1, "")
    assert err.count(f"listen on {address}: Address already in use") == err.count(" error ") == 1
    assert "Traceback" not in err


def test_a_good_file_is_taken_and_flags_win(tmp_path: Path) -> None:
    path = tmp_path / "conf"
    path.write_text("# settings\nlisten = 127.0.0.1:0\nallow_remote = no\npool = 3\n")
    status, out, err = run("--check-config", "--config", path, python())
    assert (status, err) == (0, "")
    assert out.startswith("verifierd: the settings are fine\nstore: verifierd.db\nscratch: /")
    assert "\ndevice: c" in out and "\nlayer no_new_privs: on\n" in out
    assert run("--check-config", "--config", path, "--pool=0")[0] == 1
    assert run("--config", tmp_path / "none", "--check-config")[2].startswith("verifierd: cannot read ")


def test_the_manual_has_the_settings_as_they_are() -> None:
    status, out, _ = run("--help-conf")
    assert status == 0
    assert out in (service.ROOT / "docs" / "verifierd.conf.5").read_text()


def python() -> str:
    return f"--python={os.environ.get('PYTHON', 'python3')}"


@pytest.mark.parametrize("check", [True, False], ids=["check-config", "serve"])
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--python=/nowhere/python3"], "/nowhere/python3"),
        (["--python=/bin/true"], "cannot run the harness"),
        (["--harness=/nowhere"], "/nowhere/zygote.py cannot be read"),
        (["--sandbox-require=seccomp,unheard_of"], "unheard_of"),
        (["--device=cuda:0,255"], "cuda:0,255"),
        (["--notify-hosts=hooks.example", "--notify-key=/nowhere"], "notify_key: read /nowhere"),
    ],
    ids=["no interpreter", "no Python", "no harness", "no such layer", "no such GPU", "no key"],
)
def test_what_the_workers_lack_is_told_before_it_listens(
    flags: list[str], words: str, check: bool, tmp_path: Path
) -> None:
    store = f"--store={tmp_path / 'store.db'}"
    status, out, err = run("--listen=127.0.0.1:0", store, python(), *flags, *(["--check-config"] if check else []))
    assert status == 1
    assert out == ""
    assert words in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.write_bytes(bytes(range(1, 200)) * 30), "file is not a database"),
        (lambda path: sqlite3.connect(path).execute("CREATE TABLE mine (x)"), "not a verifierd store"),
    ],
    ids=["no database", "another program's"],
)
def test_a_store_that_a_start_would_refuse_is_told_by_check_config(
    make: Callable[[Path], object], words: str, tmp_path: Path
) -> None:
    make(tmp_path / "store.db")
    status, out, err = run("--check-config", f"--store={tmp_path / 'store.db'}", python())
    assert (status, out) == (1, "") and words in err
    assert [path.name for path in tmp_path.iterdir()] == ["store.db"]


def test_reload_takes_live_settings_and_keeps_the_rest() -> None:
    with service.directory() as directory:
        path = directory / "conf"
        path.write_text("wait_limit_s = 50\n")
        daemon = service.Daemon(directory, {"paused": True, "config": path})
        daemon.start(ready=False)
        try:
            path.write_text("wait_limit_s = 1\nconnections = 99\n")
            os.kill(daemon.pid, signal.SIGHUP)
            wait_for_log(daemon, "connections differs now and takes a restart")
            wait_for_log(daemon, "settings read again")
            path.write_text("wait_limit_s = never\n")
            os.kill(daemon.pid, signal.SIGHUP)
            wait_for_log(daemon, "the settings stay as they were")
            assert daemon.client.get("/healthz").status == 200
        finally:
            assert daemon.stop() == 0


def test_the_log_says_what_runs(start_daemon: service.StartDaemon) -> None:
    daemon = start_daemon(ready=False, paused=True, device="cpu:0,1")
    wait_for_log(daemon, '"listening on')
    logged = [json.loads(line)["msg"] for line in daemon.log.read_text().splitlines()]
    version = daemon.client.get("/v1/status").json()["version"]
    store, python = daemon.directory / "store.db", os.environ.get("PYTHON", "python3")
    assert f"verifierd {version}: store {store}, python {python}, devices cpu:0 cpu:1" in logged


# --- aids ---


def wait_for_held(daemon: service.Daemon, n: int) -> None:
    deadline = time.monotonic() + LIMIT_S
    while (held := daemon.client.get("/v1/status").json()["http"]["held"]) != n:
        assert time.monotonic() < deadline, f"{held} held, not {n}"
        time.sleep(0.02)


def wait_for_log(daemon: service.Daemon, text: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while text not in daemon.log.read_text():
        assert time.monotonic() < deadline, f"{text!r} is not in {daemon.log.read_text()}"
        time.sleep(0.02)


def threads_and_memory(pid: int) -> tuple[int, int]:
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return int(fields["Threads"]), int(fields["VmRSS"].split()[0]) * 1024


def test_idle_costs(paused: service.Daemon) -> None:
    """A daemon with nothing to do takes no processor time that can be seen, and little memory."""
    client = service.Client(paused.client.url)
    assert client.get("/healthz").status == 200
    ticks = []
    for _ in range(2):
        fields = Path(f"/proc/{paused.pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks.append(int(fields[11]) + int(fields[12]))
        threading.Event().wait(1.5)
    assert (ticks[1] - ticks[0]) / os.sysconf("SC_CLK_TCK") < 0.1

"""A group's end is posted to its maker: signed, tried again, and only to where the operator allows it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import service
from answering import Call, Reply, answering

KEY = "a key of the operator's"
LIMIT_S = 30.0


class Receiver:
    """Answers as `statuses` say, 200 behind them, and keeps what came: path, header, body."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.came: list[tuple[str, dict[str, str], bytes]] = []
        self.port = 0

    def wait(self, n: int) -> None:
        deadline = time.monotonic() + LIMIT_S
        while len(self.came) < n:
            assert time.monotonic() < deadline, f"{len(self.came)} of {n} came"
            time.sleep(0.02)


@contextmanager
def receiving(*statuses: int) -> Iterator[Receiver]:
    receiver = Receiver(*statuses)

    def answer(call: Call) -> Reply:
        receiver.came.append((call.path, {name.lower(): value for name, value in call.headers.items()}, call.content))
        status = receiver.statuses.pop(0) if receiver.statuses else 200
        return status, {"Location": "/elsewhere"} if status == 302 else {}, b""

    with answering(answer) as url:
        receiver.port = int(url.rpartition(":")[2])
        yield receiver


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text(KEY + "\n")
    return path


def group(url: object) -> dict[str, object]:
    return {"task": "scripted", "candidates": [{"candidate": "timing=1.5"}, {"candidate": "x"}], "notify_url": url}


def add_task(daemon: service.Daemon) -> None:
    daemon.client.expect("POST", "/v1/tasks", {"name": "scripted", "reference": "# script: describe=pass\n"})


def figures(daemon: service.Daemon) -> list[int]:
    http = daemon.client.expect("GET", "/v1/status")["http"]
    return [http[f"notices_{what}"] for what in ("delivered", "failed", "waiting")]


def test_a_groups_end_is_posted_signed_and_again_until_it_is_taken(
    start_scripted: service.StartDaemon, key: Path
) -> None:
    with receiving(302, 200) as receiver:
        daemon = start_scripted(notify_hosts=f"127.0.0.1:{receiver.port} other", notify_key=key)
        add_task(daemon)
        made = daemon.client.expect("POST", "/v1/groups", group(f"http://127.0.0.1:{receiver.port}/h?a=b"))
        receiver.wait(2)
        deadline = time.monotonic() + LIMIT_S
        while figures(daemon) != [1, 0, 0]:
            assert time.monotonic() < deadline, figures(daemon)
            time.sleep(0.02)
        assert daemon.client.expect("GET", f"/v1/groups/{made['id']}")["state"] == "done"
    assert [path for path, _, _ in receiver.came] == ["/h?a=b"] * 2  # where it was sent to is not gone to
    for _, header, body in receiver.came:
        told = json.loads(body)
        assert (told["type"], told["data"]) == ("group.ended", {"id": made["id"]})
        assert header["webhook-id"] == made["id"] and header["content-type"] == "application/json"
        signed = f"{header['webhook-id']}.{header['webhook-timestamp']}.".encode() + body
        mine = base64.b64encode(hmac.digest(KEY.encode(), signed, hashlib.sha256)).decode()
        assert header["webhook-signature"] == f"v1,{mine}"
        assert abs(int(header["webhook-timestamp"]) - time.time()) < LIMIT_S


def test_a_group_that_is_cancelled_has_ended_too(start_scripted: service.StartDaemon, key: Path) -> None:
    with receiving() as receiver:
        daemon = start_scripted(notify_hosts=f"127.0.0.1:{receiver.port}", notify_key=key, paused=True, ready=False)
        add_task(daemon)
        url = f"http://127.0.0.1:{receiver.port}/"
        made = daemon.client.expect("POST", "/v1/groups", group(url))
        assert daemon.client.call("DELETE", f"/v1/groups/{made['id']}").status in (200, 202)
        receiver.wait(1)
    assert json.loads(receiver.came[0][2])["data"] == {"id": made["id"]}


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:9/", "127.0.0.1:9 is none of the operator's notify_hosts"),
        ("http://allowed.example:8080/", "none of the operator's"),
        ("https://allowed.example.evil/", "none of the operator's"),
        ("http://allowed.example@evil/", "without a user"),
        ("file:///etc/passwd", "not an address of http or https"),
        ("allowed.example/", "not an address"),
        (7, "must be a string"),
        ("http://allowed.example/" + "x" * 2000, "2000"),
    ],
)
def test_it_is_posted_only_where_the_operator_allows_it(
    start_scripted: service.StartDaemon, key: Path, url: object, words: str
) -> None:
    daemon = start_scripted(notify_hosts="allowed.example 127.0.0.1:1", notify_key=key)
    add_task(daemon)
    refused = daemon.client.post("/v1/groups", group(url))
    assert refused.status == 400, refused
    error = refused.json()["errors"][0]
    assert error["pointer"] == "/notify_url" and words in error["detail"], error


def test_where_the_operator_names_no_host_nothing_is_posted(start_scripted: service.StartDaemon) -> None:
    daemon = start_scripted()
    add_task(daemon)
    refused = daemon.client.post("/v1/groups", group("http://127.0.0.1:9/"))
    assert refused.status == 400 and "notify_hosts" in refused.json()["errors"][0]["detail"]

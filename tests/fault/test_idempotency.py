"""A POST that comes twice under one Idempotency-Key is done once: side by side, after kill -9, and by client."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import service
from scripted import SCRIPTED, TASK
from test_access import Caller, token

LIMIT_S = 60.0


def single(script: str = "full=fail:mismatch", **more: object) -> dict[str, object]:
    return {"task": "scripted", "candidate": f"# script: {script}\n# {uuid.uuid4()}\n", **more}


def group() -> dict[str, object]:
    return {"task": "scripted", "candidates": [{"candidate": f"# script: timing=1.{i}\n"} for i in range(3)]}


def post(client: service.Client, kind: str, body: object, key: str | None, query: str = "") -> service.Answer:
    headers = {} if key is None else {"Idempotency-Key": f'"{key}"'}
    deadline = time.monotonic() + LIMIT_S
    while True:
        answer = client.call("POST", f"/v1/{kind}{query}", body, headers)
        if answer.status != 409 or answer.json()["code"] != "key_in_flight":
            return answer
        assert answer.headers["Retry-After"] == "1"
        assert time.monotonic() < deadline
        time.sleep(0.05)


def count(client: service.Client) -> int:
    return len(client.expect("GET", "/v1/submissions?limit=200")["items"])


@pytest.mark.parametrize("kind", ["submissions", "groups"])
def test_a_killed_daemon_remembers(start_scripted: service.StartDaemon, kind: str) -> None:
    daemon = start_scripted()
    daemon.client.add_task(TASK)
    body = single() if kind == "submissions" else group()
    first = post(daemon.client, kind, body, "a")
    assert first.status == 202 and "Idempotency-Replayed" not in first.headers
    daemon.kill()
    client = daemon.start()
    stored = count(client)
    again = post(client, kind, body, "a")
    assert (again.status, again.body) == (first.status, first.body)
    assert again.headers["Location"] == first.headers["Location"]
    assert again.headers["Idempotency-Replayed"] == "true"
    waited = post(client, kind, body, "a", "?wait=60")
    assert (waited.status, waited.json()["state"]) == (200, "done")
    assert waited.json()["id"] == first.json()["id"]
    assert count(client) == stored
    other = post(client, kind, single() if kind == "submissions" else group() | {"until": "full"}, "a")
    assert (other.status, other.json()["code"]) == (422, "key_reused")
    cross = post(client, "groups" if kind == "submissions" else "submissions", body, "a")
    assert (cross.status, cross.json()["code"]) == (422, "key_reused")
    assert post(client, kind, body, None).json()["id"] != first.json()["id"]


def test_many_at_once_make_one(start_scripted: service.StartDaemon) -> None:
    client = start_scripted().client
    client.add_task(TASK)
    bodies = [single("full=fail:mismatch\n#" + "x" * 100_000 * (i % 2)) for i in range(4)]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda i: post(client, "submissions", bodies[i % 4], str(i % 4)), range(48)))
    assert {answer.status for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == count(client) == 4


@pytest.mark.parametrize("key", ["", '"', "two words", "a" * 256, "ä"])
def test_what_is_no_key(start_scripted: service.StartDaemon, key: str) -> None:
    client = start_scripted(ready=False).client
    answer = client.call("POST", "/v1/submissions", single(), {"Idempotency-Key": key.encode().decode("latin-1")})
    assert (answer.status, answer.json()["code"]) == (400, "bad_header")
    assert answer.json()["errors"][0]["header"] == "Idempotency-Key"


def test_a_key_belongs_to_its_client() -> None:
    with service.directory() as directory:
        store: Path = directory / "store.db"
        ann, ann_too, bob = (
            token(store, "new", f"--name={name}", "--scope=submit,read", f"--client={client}")
            for name, client in (("a", "ann"), ("a2", "ann"), ("b", "bob"))
        )
        with service.Daemon(directory, SCRIPTED) as running:
            callers = [Caller(running.client.url, secret) for secret in (ann, ann_too, bob)]
            callers[0].add_task(TASK)
            body = single()
            ids = [post(caller, "submissions", body, "k").json()["id"] for caller in callers]
    assert ids[0] == ids[1] != ids[2]

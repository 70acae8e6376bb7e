"""Event streams: what they tell, to whom, when, and what becomes of one that broke off."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
import service
from scripted import SCRIPTED, TASK

LIMIT_S = 60.0
STAGES = ["ast", "compile", "tiny", "full", "timing"]


@pytest.fixture(scope="module")
def shared() -> Iterator[service.Daemon]:
    with service.directory() as directory, service.Daemon(directory, SCRIPTED) as running:
        running.client.add_task(TASK)
        yield running


def body(script: str, **more: object) -> dict[str, object]:
    return {"task": "scripted", "candidate": f"# script: {script}\n# {time.monotonic_ns()}\n", **more}


def test_a_submission_from_its_stages_to_its_end(shared: service.Daemon) -> None:
    client = shared.client
    go = shared.directory / "seen"
    posted = client.submit(body(f"ast=until:{go} timing=1.5"))
    told = []
    for event in client.follow(f"/v1/submissions/{posted}/events"):
        told.append(event)
        go.touch()
    verdict, end = told[-2:]
    assert (verdict.kind, end.kind, end.id, end.data["reason"]) == ("verdict", "end", "end", "finished")
    assert verdict.data == client.get(f"/v1/submissions/{posted}").json()
    stages = [event.data["stage"] for event in told if event.kind == "state" and event.data["stage"]]
    assert stages and stages == STAGES[-len(stages) :]
    assert all(event.data["id"] == posted for event in told if event.kind == "state")
    for last in ("end", "somebody else's"):
        again = client.call("GET", f"/v1/submissions/{posted}/events", headers={"Last-Event-ID": last})
        assert again.status == (204 if last == "end" else 200)
        kinds = [event.kind for event in service.read_events(again.body)]
        assert kinds == ([] if last == "end" else ["gap", "verdict", "open", "end"])


def test_a_group_as_its_items_finish(shared: service.Daemon) -> None:
    client = shared.client
    go = shared.directory / "others"
    scripts = ["timing=1.2", "full=fail:mismatch", f"ast=until:{go} timing=1.8", "compile=fail:compile"]
    group = client.expect(
        "POST", "/v1/groups", {"task": "scripted", "candidates": [{"candidate": body(s)["candidate"]} for s in scripts]}
    )
    told = []
    for event in client.follow(f"/v1/groups/{group['id']}/events"):
        told.append(event)
        if sum(event.kind == "verdict" for event in told) == len(scripts) - 1:
            go.touch()
    shown = client.get(f"/v1/groups/{group['id']}").json()
    verdicts = [event.data for event in told if event.kind == "verdict"]
    assert sorted(v["id"] for v in verdicts) == sorted(item["id"] for item in group["items"])
    assert verdicts[-1]["id"] == group["items"][2]["id"], "the slow one comes last, and holds nobody up"
    end = told[-1]
    assert (end.kind, end.data["reason"], end.data["state"]) == ("end", "finished", "done")
    assert end.data["ranking"] == shown["ranking"]
    assert [item["reward"] for item in end.data["items"]] == pytest.approx([item["reward"] for item in shown["items"]])
    # Finished by now, it is told the same at once.
    again = client.events(f"/v1/groups/{group['id']}/events?view=brief")
    assert sorted(e.data["id"] for e in again if e.kind == "verdict") == sorted(v["id"] for v in verdicts)
    assert again[-1].data == end.data


def test_a_stream_that_broke_off_is_taken_up(shared: service.Daemon) -> None:
    """After each event in turn the client goes away; in all it is told each verdict once."""
    client = shared.client
    scripts = [f"ast=sleep:0.{n}" for n in range(1, 6)]
    group = client.expect(
        "POST", "/v1/groups", {"task": "scripted", "candidates": [{"candidate": body(s)["candidate"]} for s in scripts]}
    )
    seen: list[str] = []
    last: str | None = None
    for _ in range(100):
        stream = client.follow(f"/v1/groups/{group['id']}/events", last)
        event = next((event for event in stream if event.id is not None), None)
        stream.close()
        if event is None or event.kind == "end":
            break
        assert event.kind != "gap"
        last = event.id
        seen += [event.data["id"]] if event.kind == "verdict" else []
    assert sorted(seen) == sorted(item["id"] for item in group["items"])


def test_nothing_is_told_before_it_is_durable(shared: service.Daemon) -> None:
    client = shared.client
    go = shared.directory / "held"
    posted = client.submit(body(f"compile=until:{go},fail:compile"))
    told: list[service.Event] = []
    stream = threading.Thread(target=lambda: told.extend(client.follow(f"/v1/submissions/{posted}/events")))
    finished = client.get("/v1/status").json()["counts"]["finished"]
    service.wait_for(lambda: client.get(f"/v1/submissions/{posted}").json()["state"] == "running")
    with closing(sqlite3.connect(shared.directory / "store.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        go.touch()
        stream.start()
        service.wait_for(lambda: client.get("/v1/status").json()["counts"]["finished"] == finished + 1)
        kinds = [event.kind for event in client.events(f"/v1/submissions/{posted}/events?wait=0.2")]
        assert "verdict" not in kinds
        assert kinds[-1] == "end"
        other.execute("ROLLBACK")
    stream.join(LIMIT_S)
    assert [event.kind for event in told][-2:] == ["verdict", "end"]


def test_a_restart_is_told_as_a_gap(shared: service.Daemon) -> None:
    with service.directory() as directory:
        daemon = service.Daemon(directory, SCRIPTED)
        daemon.start()
        try:
            daemon.client.add_task(TASK)
            group = daemon.client.expect(
                "POST",
                "/v1/groups?wait=60",
                {"task": "scripted", "candidates": [{"candidate": "# script: timing=1.1\n"}]},
            )
            path = f"/v1/groups/{group['id']}/events"
            told = daemon.client.events("/v1/events?wait=0", None)
            assert told[0].kind == "open"
            leaving = daemon.client.follow("/v1/events")
            assert next(leaving).kind == "open"
            daemon.stop()
            assert [event.data["reason"] for event in leaving] == ["draining"]
            daemon.start()
            after = daemon.client.events(path, told[0].id)
            assert [event.kind for event in after] == ["gap", "verdict", "open", "end"]
            assert after[1].data["id"] == group["items"][0]["id"]
        finally:
            daemon.kill()


def test_all_that_happens(shared: service.Daemon) -> None:
    client = shared.client
    start = client.events("/v1/events?wait=0")[0].id
    group = client.expect(
        "POST",
        "/v1/groups?wait=60",
        {"task": "scripted", "candidates": [{"candidate": body("timing=1.1")["candidate"]} for _ in range(3)]},
    )
    one = client.judge(body("full=fail:mismatch"), LIMIT_S)["id"]
    told = client.events("/v1/events?wait=0", start)
    verdicts = [event.data for event in told if event.kind == "verdict"]
    assert [v["id"] for v in verdicts][-1] == one
    assert {v["id"] for v in verdicts} == {item["id"] for item in group["items"]} | {one}
    assert all("timing" not in v for v in verdicts), "they are brief unless view=full is asked for"
    (ended,) = [event for event in told if event.kind == "group"]
    assert ended.data["id"] == group["id"]
    assert told[-1].data == {"reason": "wait"}
    full = client.events("/v1/events?wait=0&view=full", start)
    assert [e.data for e in full if e.kind == "verdict"][-1] == client.get(f"/v1/submissions/{one}").json()


@pytest.mark.parametrize("path", ["/v1/events?view=all", "/v1/events?wait=soon", "/v1/events?client=me"])
def test_bad_parameters(shared: service.Daemon, path: str) -> None:
    answer = shared.client.get(path)
    assert (answer.status, answer.json()["code"]) == (400, "bad_parameter")


def test_head_of_a_stream(shared: service.Daemon) -> None:
    answer = shared.client.call("HEAD", "/v1/events")
    assert (answer.status, answer.headers["Content-Type"], answer.body) == (200, "text/event-stream", b"")
    service.wait_for(lambda: shared.client.get("/v1/status").json()["http"]["streams"] == 0)


def test_a_verdict_is_one_event_however_often_it_is_asked_for(shared: service.Daemon) -> None:
    client = shared.client
    start = client.events("/v1/events?wait=0")[0].id
    one = body("timing=1.1")
    answers = [client.call("POST", "/v1/submissions?wait=60", one, {"Idempotency-Key": "asked"}) for _ in range(4)]
    assert [answer.json()["state"] for answer in answers] == ["done"] * 4
    (posted,) = {answer.json()["id"] for answer in answers}
    assert client.get(f"/v1/submissions/{posted}?wait=60").json()["id"] == posted
    told = client.events("/v1/events?wait=0", start)
    assert [event.data["id"] for event in told if event.kind == "verdict"] == [posted]

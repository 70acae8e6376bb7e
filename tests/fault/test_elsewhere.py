"""What another node has of a store is answered here all the same. The other node is played by writes to the store."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import service
from scripted import TASK

LIMIT_S = 60.0
PROMPT_S = 5.0
"""From the other node's verdict to the answer here: twenty times what it takes."""


class OtherNode:
    """Takes submissions that wait and ends them, as a daemon on another machine does."""

    def __init__(self, daemon: service.Daemon) -> None:
        self._path = daemon.directory / "store.db"

    @contextmanager
    def _store(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=30)) as store, store:
            yield store

    def add(self, like: str, node: str | None, attempts: int = 1) -> str:
        """The same once more, accepted by the other node: it runs on that node, or waits (None). Its id."""
        one = like[:-1] + format((int(like[-1], 16) + 1) % 16, "x")
        with self._store() as store:
            store.execute(
                "INSERT INTO submission (id, group_index, task_id, source_hash, state, priority, attempts,"
                " created_ms, finished_ms, request, node, claim) SELECT ?, 0, task_id, source_hash, ?, priority, ?,"
                " created_ms, 0, request, ?, 1 FROM submission WHERE id = ?",
                (one, int(node is not None), attempts, node, like),
            )
        return one

    def add_group(self, like: str, size: int) -> tuple[str, list[str]]:
        """A group of such submissions that the other node has: its id, and theirs."""
        group, *ids = (f"{like[:-2]}{(int(like[-2:], 16) + 1 + n) % 256:02x}" for n in range(1 + size))
        with self._store() as store:
            store.execute(
                "INSERT INTO submission_group (id, task_id, size, created_ms, request)"
                " SELECT ?, task_id, ?, created_ms, '{}' FROM submission WHERE id = ?",
                (group, size, like),
            )
            store.executemany(
                "INSERT INTO submission (id, group_id, group_index, task_id, source_hash, state, priority, attempts,"
                " created_ms, finished_ms, request, node, claim) SELECT ?, ?, ?, task_id, source_hash, 1, priority, 1,"
                " created_ms, 0, request, 'other', 1 FROM submission WHERE id = ?",
                [(one, group, index, like) for index, one in enumerate(ids)],
            )
        return group, ids

    def row(self, submission: str) -> tuple[int, str | None, int]:
        """State, node and attempts."""
        with self._store() as store:
            found = store.execute("SELECT state, node, attempts FROM submission WHERE id = ?", (submission,)).fetchone()
            return int(found[0]), found[1], int(found[2])

    def take(self, submission: str) -> None:
        with self._store() as store:
            done = store.execute(
                "UPDATE submission SET state = 1, node = 'other', claim = claim + 1, attempts = attempts + 1"
                " WHERE id = ? AND state = 0",
                (submission,),
            )
            assert done.rowcount == 1, f"{submission} does not wait"

    def steal(self, submission: str) -> None:
        """As the reaper and another node do once this daemon's lease has ended."""
        with self._store() as store:
            done = store.execute(
                "UPDATE submission SET node = 'other', claim = claim + 2 WHERE id = ? AND state = 1", (submission,)
            )
            assert done.rowcount == 1, f"{submission} does not run"

    def end(self, submission: str, pattern: service.Json) -> None:
        """With the verdict of another submission, as its own."""
        with self._store() as store:
            group, index = store.execute(
                "SELECT group_id, group_index FROM submission WHERE id = ?", (submission,)
            ).fetchone()
            verdict = {**pattern, "id": submission, "group": group or None, "group_index": index if group else None}
            done = store.execute(
                "UPDATE submission SET state = 2, class = 'ok', reward = ?, verdict = ?, finished_ms = ?"
                " WHERE id = ? AND state = 1 AND node = 'other'",
                (pattern["reward"], json.dumps(verdict), int(time.time() * 1000), submission),
            )
            assert done.rowcount == 1, f"{submission} is not the other node's"


class Asked(threading.Thread):
    """A request under way."""

    def __init__(self, client: service.Client, path: str) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._path = path
        self.answer: service.Answer | None = None
        self.ended_at = 0.0
        self.start()

    def run(self) -> None:
        self.answer = self._client.get(self._path)
        self.ended_at = time.monotonic()

    def wait(self, limit_s: float) -> service.Answer:
        self.join(limit_s)
        assert self.answer is not None, f"{self._path}: no answer within {limit_s:.0f} s"
        return self.answer


def body(mark: str, script: str = "timing=1.3") -> service.Json:
    return {"task": "scripted", "candidate": f"# script: {script}\n# {mark}\n"}


def gate(daemon: service.Daemon) -> Path:
    """Those that wait for this file have all the slots until it is there."""
    return daemon.directory / "go"


def start_busy(start_scripted: service.StartDaemon) -> tuple[service.Daemon, str, service.Json]:
    """A daemon whose only slot is taken, the submission that has it, and some verdict."""
    daemon = start_scripted(cpu_jobs=1)
    daemon.client.add_task(TASK)
    pattern = daemon.client.judge(body("pattern"), LIMIT_S)
    assert pattern["class"] == "ok", pattern
    busy = daemon.client.submit(body("busy", f"compile=until:{gate(daemon)},pass timing=1"))
    service.wait_for(lambda: daemon.client.expect("GET", f"/v1/submissions/{busy}")["state"] == "running")
    return daemon, busy, pattern


def test_who_waits_for_what_another_node_took_is_answered(start_scripted: service.StartDaemon) -> None:
    daemon, busy, pattern = start_busy(start_scripted)
    one = daemon.client.submit(body("one"))
    asked = Asked(daemon.client, f"/v1/submissions/{one}?wait=60")
    stream = Asked(daemon.client, f"/v1/submissions/{one}/events")
    other = OtherNode(daemon)
    other.take(one)
    gate(daemon).touch()
    daemon.client.wait(busy, LIMIT_S)
    assert daemon.client.expect("GET", f"/v1/submissions/{one}")["state"] == "running"
    time.sleep(0.5)  # it was this daemon's turn, and the store refused it
    assert asked.answer is None, asked.answer
    ended_at = time.monotonic()
    other.end(one, pattern)
    verdict = asked.wait(LIMIT_S).json()
    assert (verdict["id"], verdict["state"], verdict["class"]) == (one, "done", "ok")
    assert asked.ended_at - ended_at < PROMPT_S
    events = service.read_events(stream.wait(LIMIT_S).body)
    assert [event.kind for event in events][-2:] == ["verdict", "end"]


def test_a_group_of_which_another_node_took_some_ends_with_its_last(start_scripted: service.StartDaemon) -> None:
    daemon, _, pattern = start_busy(start_scripted)
    group = daemon.client.expect(
        "POST",
        "/v1/groups",
        {"task": "scripted", "candidates": [{"candidate": body(str(i))["candidate"]} for i in (1, 2, 3)]},
    )
    ids = [str(item["id"]) for item in group["items"]]
    asked = Asked(daemon.client, f"/v1/groups/{group['id']}?wait=60")
    stream = Asked(daemon.client, f"/v1/groups/{group['id']}/events")
    other = OtherNode(daemon)
    other.take(ids[1])
    gate(daemon).touch()
    for one in (ids[0], ids[2]):
        daemon.client.wait(one, LIMIT_S)
    assert daemon.client.expect("GET", f"/v1/groups/{group['id']}")["state"] == "running"
    assert asked.answer is None, asked.answer
    other.end(ids[1], pattern)
    document = asked.wait(LIMIT_S).json()
    assert (document["state"], [item["state"] for item in document["items"]]) == ("done", ["done"] * 3)
    told = [event for event in service.read_events(stream.wait(LIMIT_S).body) if event.kind in ("verdict", "end")]
    assert sorted(event.data["id"] for event in told) == sorted([*ids, group["id"]])


def test_a_verdict_that_comes_late_is_fenced_and_counted(start_scripted: service.StartDaemon) -> None:
    """The other node has it by then: its verdict is the one that everybody is told."""
    daemon, busy, pattern = start_busy(start_scripted)
    asked = Asked(daemon.client, f"/v1/submissions/{busy}?wait=60")
    other = OtherNode(daemon)
    other.steal(busy)
    gate(daemon).touch()
    service.wait_for(lambda: daemon.client.expect("GET", "/v1/status")["counts"]["fenced"] == 1)
    assert b"verifierd_fenced_total 1\n" in daemon.client.get("/metrics").body
    assert asked.answer is None, asked.answer
    other.end(busy, {**pattern, "reward": 0.25})
    assert asked.wait(LIMIT_S).json()["reward"] == 0.25


def test_what_this_daemon_never_had_is_waited_for(start_scripted: service.StartDaemon) -> None:
    """Accepted by another node, and judged by it."""
    daemon = start_scripted()
    daemon.client.add_task(TASK)
    pattern = daemon.client.judge(body("pattern"), LIMIT_S)
    one = OtherNode(daemon).add(str(pattern["id"]), "other")
    asked = Asked(daemon.client, f"/v1/submissions/{one}?wait=60")
    stream = Asked(daemon.client, f"/v1/submissions/{one}/events")
    time.sleep(0.5)
    assert (asked.answer, stream.answer) == (None, None)
    OtherNode(daemon).end(one, pattern)
    assert asked.wait(LIMIT_S).json()["id"] == one
    assert service.read_events(stream.wait(LIMIT_S).body)[-1].data["reason"] == "finished"


def test_what_waits_in_the_store_is_taken_up_by_a_free_daemon(start_scripted: service.StartDaemon) -> None:
    """Accepted by another node, or put back by the reaper; who asked for it here before is answered."""
    daemon = start_scripted(cache=False)
    daemon.client.add_task(TASK)
    pattern = daemon.client.judge(body("pattern"), LIMIT_S)
    one = OtherNode(daemon).add(str(pattern["id"]), None, attempts=0)
    verdict = Asked(daemon.client, f"/v1/submissions/{one}?wait=60").wait(LIMIT_S).json()
    assert (verdict["id"], verdict["class"], verdict["attempts"]) == (one, "ok", 1)


def test_what_took_three_nodes_with_it_is_not_tried_again(start_scripted: service.StartDaemon) -> None:
    daemon = start_scripted(cache=False, max_attempts=3)
    daemon.client.add_task(TASK)
    pattern = daemon.client.judge(body("pattern"), LIMIT_S)
    one = OtherNode(daemon).add(str(pattern["id"]), None, attempts=3)
    verdict = daemon.client.wait(one, LIMIT_S)
    assert (verdict["class"], verdict["reward"], verdict["attempts"]) == ("infra", None, 3)


def test_a_daemon_without_a_free_slot_leaves_what_waits_to_others(start_scripted: service.StartDaemon) -> None:
    daemon, busy, pattern = start_busy(start_scripted)
    other = OtherNode(daemon)
    one = other.add(str(pattern["id"]), None, attempts=0)
    time.sleep(2)
    assert other.row(one) == (0, None, 0)
    gate(daemon).touch()
    daemon.client.wait(busy, LIMIT_S)
    assert daemon.client.wait(one, LIMIT_S)["class"] == "ok"


def verdicts_of(events: list[service.Event]) -> list[str]:
    return [str(event.data["id"]) for event in events if event.kind == "verdict"]


def test_a_member_that_ends_soon_after_its_group_was_asked_for_is_an_event(start_scripted: service.StartDaemon) -> None:
    """Once, in the group's stream that begins after its end, and in that of everything."""
    daemon = start_scripted()
    daemon.client.add_task(TASK)
    other = OtherNode(daemon)
    rounds: list[tuple[str, list[str], list[str]]] = []
    start = daemon.client.events("/v1/events?wait=0")[0].id
    for i in range(5):
        pattern = daemon.client.judge(body(str(i)), LIMIT_S)
        group, (early, late) = other.add_group(str(pattern["id"]), 2)
        asked = Asked(daemon.client, f"/v1/groups/{group}?wait=60")
        time.sleep(0.05)  # it is read by now, and is read again 0.2 s later
        other.end(early, pattern)
        stream = Asked(daemon.client, f"/v1/groups/{group}/events")
        time.sleep(0.5)
        other.end(late, pattern)
        document = asked.wait(LIMIT_S).json()
        assert [item["state"] for item in document["items"]] == ["done", "done"], document
        rounds.append((early, [early, late], verdicts_of(service.read_events(stream.wait(LIMIT_S).body))))
    assert [told for _, _, told in rounds] == [ids for _, ids, _ in rounds]
    told = verdicts_of(daemon.client.events("/v1/events?wait=0", start))
    assert len(set(told)) == len(told)
    assert any(early in told for early, _, _ in rounds)

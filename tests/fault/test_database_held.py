"""What the daemon was about to do when its database was away, or somebody held a table, is done once it is back."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import service
from test_slow_database import locked

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "server" / "deploy"))

from demo_cluster import TASK, Database, Node

HELD_S = 6.0  # a read gives up after twice PG_LOCK_TIMEOUT


@pytest.fixture
def directory() -> Iterator[Path]:
    with service.directory() as made:
        yield made


@contextmanager
def database(directory: Path) -> Iterator[Database]:
    found = Database(directory / "database")
    try:
        yield found
    finally:
        found.stop()


def post_gated(node: Node, gate: Path) -> list[str]:
    """Four, of which two run until the gate is there."""
    node.wait_ready()
    node.call("POST", "/v1/tasks", TASK)
    bodies = [
        {"task": "scripted", "candidate": f"# script: compile=until:{gate},pass\n# {number}\n"} for number in range(4)
    ]
    return [str(node.call("POST", "/v1/submissions", body)[1]["id"]) for body in bodies]


def wait_running(found: Database) -> None:
    service.wait_for(lambda: len(found.ask("SELECT id FROM verifierd.job WHERE state = 1")) >= 2)


def test_a_stop_waits_for_no_database_that_is_away(directory: Path) -> None:
    """What had a slot and waited for its claim kept the daemon for as long as the database was away."""
    with database(directory) as found:
        node = Node("a", directory, found.url, ["--drain-ms=0"])
        try:
            gate = directory / "go"
            post_gated(node, gate)
            wait_running(found)
            found.stop()
            gate.touch()
            service.wait_for(lambda: b"is away: connect" in node.log.read_bytes())
            node.process.send_signal(signal.SIGTERM)
            assert node.process.wait(30) == 0
        finally:
            node.stop()


def test_what_cannot_be_read_yet_is_judged_later(directory: Path) -> None:
    """It ended as infra: its source could not be read, after its claim, while somebody held a table."""
    with database(directory) as found:
        node = Node("a", directory, found.url)
        try:
            gate = directory / "go"
            posted = post_gated(node, gate)
            wait_running(found)
            with locked(found, "verifierd.blob"):
                gate.touch()
                time.sleep(HELD_S)
            shown = [node.call("GET", f"/v1/submissions/{one}?wait=60")[1] for one in posted]
            assert [(one["class"], one["attempts"]) for one in shown] == [("ok", 1)] * len(posted)
        finally:
            node.stop()


def test_what_was_claimed_and_not_begun_when_it_stops_is_no_attempt(directory: Path) -> None:
    """Its claim was kept, so that the next start counted it."""
    with database(directory) as found:
        node = Node("a", directory, found.url, ["--drain-ms=0"])
        try:
            gate = directory / "go"
            late = post_gated(node, gate)[2:]
            wait_running(found)
            with locked(found, "verifierd.blob"):
                gate.touch()
                service.wait_for(lambda: b"it cannot begin yet" in node.log.read_bytes())
                node.process.send_signal(signal.SIGTERM)
                assert node.process.wait(30) == 0
            sql = "SELECT state || '/' || attempts FROM verifierd.job WHERE id IN ('{}', '{}')"
            assert found.ask(sql.format(*late)) == ["0/0"] * 2
        finally:
            node.stop()


def test_a_deadline_that_finds_the_database_held_passes_later(directory: Path) -> None:
    """The rest of the group was cancelled at the deadline or never."""
    with database(directory) as found:
        node = Node("a", directory, found.url)
        try:
            node.wait_ready()
            node.call("POST", "/v1/tasks", TASK)
            candidates = [{"candidate": f"# script: compile=hang\n# {number}\n"} for number in range(3)]
            body = {"task": "scripted", "deadline_s": 2, "candidates": candidates}
            group = str(node.call("POST", "/v1/groups", body)[1]["id"])
            wait_running(found)
            with locked(found, "verifierd.submission"):
                time.sleep(2 + HELD_S)
            assert node.call("GET", f"/v1/groups/{group}?wait=15")[1]["state"] == "cancelled"
        finally:
            node.stop()

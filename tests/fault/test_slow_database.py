"""A database that does not answer holds up who asks for what it has, and nobody else."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import service

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "server" / "deploy"))

from demo_cluster import TASK, Database, Node

LIMIT_MS = 1000.0  # of one turn of the loop; who waits for a lock waits twice as long


@contextmanager
def locked(database: Database, tables: str) -> Iterator[None]:
    holder = subprocess.Popen(["psql", "-qAtX", database.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdin is not None and holder.stdout is not None
    try:
        holder.stdin.write(f"BEGIN; LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE; SELECT 'locked';\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "locked\n"
        yield
    finally:
        holder.kill()
        holder.wait()


def test_who_asks_for_what_is_locked_holds_up_nobody_else() -> None:
    with service.directory() as directory:
        database = Database(directory / "database")
        try:
            node = Node("a", directory, database.url, ["--cache=true"])
            try:
                hold_up(database, node)
            finally:
                node.stop()
        finally:
            database.stop()


def hold_up(database: Database, node: Node) -> None:
    node.wait_ready()
    client = service.Client(node.url)
    client.add_task(TASK)
    judged = client.submit({"task": TASK["name"], "candidate": "# script:\n"})
    client.wait(judged)
    with locked(database, "verifierd.task, verifierd.task_alias, verifierd.submission"), ThreadPoolExecutor() as pool:
        asked = [
            pool.submit(client.call, method, path, body)
            for method, path, body in (
                ("GET", "/v1/status", None),
                ("GET", f"/v1/submissions/{judged}", None),
                ("POST", "/v1/submissions", {"task": TASK["name"], "candidate": "# script:\n# by name\n"}),
                (
                    "POST",
                    "/v1/submissions",
                    {"reference": "# script: describe=pass\n# x\n", "candidate": "# script:\n"},
                ),
                ("POST", "/v1/tasks", {"name": "other", "reference": "# script: describe=pass\n# other\n"}),
            )
        ]
        time.sleep(0.2)
        while not all(one.done() for one in asked):
            for path in ("/healthz", "/metrics"):
                begun = time.monotonic()
                assert client.get(path).status == 200
                assert time.monotonic() - begun < LIMIT_MS / 1000, path
            time.sleep(0.05)
        assert [one.result().status for one in asked] == [200, 503, 503, 503, 503]
    assert client.get("/v1/status").json()["http"]["loop_turn_longest_ms"] < LIMIT_MS
    assert client.judge({"task": TASK["name"], "candidate": "# script:\n"})["cache"] == "hit"

"""What is no longer to be kept goes while the daemon runs; what is unfinished or referred to stays."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import service
from service import Daemon, Json

VERIFIER = service.BINARY.with_name("verifier")
DAY_MS = 86400 * 1000
NOW_MS = int(time.time() * 1000)


class Stored:
    """Rows as a daemon would have written them, put in while it is stopped."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path)
        self.n = 0

    def blob(self, name: str, size: int = 10) -> str:
        self.db.execute("INSERT OR IGNORE INTO blob VALUES (?, ?, ?)", (name, size, os.urandom(size)))
        return name

    def submission(
        self,
        days: float,
        group: str | None = None,
        source: str = "",
        log: str = "",
        state: int = 2,
        cached_from: str | None = None,
    ) -> str:
        """One that ended so many days ago; its id."""
        self.n += 1
        one = f"0199f2c4-{self.n:04x}-7000-8000-000000000000"
        ended = 0 if state < 2 else NOW_MS - int(days * DAY_MS)
        verdict = json.dumps({"id": one, "class": "ok", "state": "done"}) if state == 2 else None
        self.db.execute(
            "INSERT INTO submission (id, group_id, group_index, task_id, source_hash, state, priority, attempts,"
            " created_ms, finished_ms, class, reward, log_hash, request, verdict, cached_from)"
            " VALUES (?, ?, ?, 'sha256:t', ?, ?, 0, 1, 1, ?, 'ok', 0.5, ?, '{}', ?, ?)",
            (one, group, self.n, self.blob(source or f"source-{self.n}"), state, ended,
             self.blob(log) if log else None, verdict, cached_from),
        )  # fmt: skip
        return one

    def group(self, name: str) -> str:
        one = f"0199f2c5-{ord(name):04x}-7000-8000-000000000000"
        self.db.execute(
            "INSERT INTO submission_group (id, task_id, size, created_ms, request) VALUES (?, 'sha256:t', 2, 1, '{}')",
            (one,),
        )
        return one

    def done(self) -> None:
        self.db.commit()
        self.db.close()


class Kept:
    """What is there after a sweep, by the file itself."""

    def __init__(self, daemon: Daemon) -> None:
        db = sqlite3.connect(f"file:{daemon.directory / 'store.db'}?mode=ro", uri=True)
        self.submissions = {row[0] for row in db.execute("SELECT id FROM submission")}
        self.groups = {row[0] for row in db.execute("SELECT id FROM submission_group")}
        self.blobs = {row[0] for row in db.execute("SELECT hash FROM blob")}
        self.logs = {row[0] for row in db.execute("SELECT id FROM submission WHERE log_hash IS NOT NULL")}
        self.tally = dict(db.execute("SELECT what, n FROM tally"))
        db.close()


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """Stopped, with an empty store; settings by its file."""
    with service.directory() as directory:
        settings = directory / "conf"
        settings.write_text("")
        daemon = Daemon(directory, {"paused": True, "config": settings})
        daemon.start(ready=False)
        daemon.stop()
        try:
            yield daemon
        finally:
            daemon.kill()


def settle(daemon: Daemon, settings: str) -> None:
    (daemon.directory / "conf").write_text(settings)


def sweep(daemon: Daemon, *arguments: str) -> Json:
    """Asked for by the command; what it removed."""
    done = subprocess.run(
        [str(VERIFIER), "--url", daemon.client.url, "retention", "--run", "--json", *arguments],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    last: Json = json.loads(done.stdout)["last"]
    assert last["error"] is None
    return last


def test_old_ones_go_and_what_is_needed_stays(daemon: Daemon) -> None:
    rows = Stored(daemon.directory / "store.db")
    old = [rows.submission(40, log="log-old"), rows.submission(31, source="shared"), rows.submission(90, state=3)]
    young = [rows.submission(29, source="shared"), rows.submission(0, log="log-young")]
    waiting = [rows.submission(0, state=0)]
    whole, open_, mixed = rows.group("a"), rows.group("b"), rows.group("c")
    gone_group = [rows.submission(50, whole), rows.submission(45, whole)]
    kept_groups = [rows.submission(50, open_), rows.submission(0, open_, state=0)]
    kept_groups += [rows.submission(50, mixed), rows.submission(1, mixed)]
    fastest, handed_on, answered = rows.submission(60), rows.submission(60), rows.submission(60)
    follower = rows.submission(1, cached_from=handed_on)
    rows.db.execute("INSERT INTO record VALUES ('', 'sha256:t', 1, ?, 2.0)", (fastest,))
    rows.db.execute("INSERT INTO idempotency VALUES ('', 'k', 'h', ?, ?)", (answered, NOW_MS))
    rows.done()
    settle(daemon, "retention_days = 30\n")
    client = daemon.start(ready=False)
    last = sweep(daemon)
    kept = Kept(daemon)
    assert kept.submissions == {*young, *waiting, *kept_groups, fastest, handed_on, answered, follower}
    assert kept.groups == {open_, mixed}
    assert (last["submissions"], last["groups"]) == (len(old) + len(gone_group), 1)
    # A text goes with the last that names it.
    assert "shared" in kept.blobs and "log-young" in kept.blobs and "log-old" not in kept.blobs
    assert len(kept.blobs) == len(kept.submissions) + 1
    assert kept.tally[2] == len(kept.submissions) - 2 and kept.tally[3] == 0
    assert client.get(f"/v1/submissions/{old[0]}").status == 404
    assert client.get(f"/v1/groups/{whole}").status == 404
    assert client.get(f"/v1/submissions/{young[0]}").status == 200
    # Once more finds nothing; and once nobody refers to it any more, it goes.
    assert sweep(daemon)["submissions"] == 0
    daemon.stop()
    rows = Stored(daemon.directory / "store.db")
    rows.db.execute("DELETE FROM record")
    rows.db.execute("UPDATE idempotency SET created_ms = 1")
    rows.done()
    daemon.start(ready=False)
    assert sweep(daemon)["submissions"] == 2
    assert Kept(daemon).submissions == {*young, *waiting, *kept_groups, handed_on, follower}


def test_of_too_many_the_oldest_go(daemon: Daemon) -> None:
    rows = Stored(daemon.directory / "store.db")
    ids = [rows.submission(days) for days in range(100, 0, -1)]
    waiting = rows.submission(0, state=0)
    rows.done()
    settle(daemon, "retention_rows = 30\n")
    daemon.start(ready=False)
    assert sweep(daemon)["submissions"] == 70
    assert Kept(daemon).submissions == {*ids[70:], waiting}


def test_captured_output_goes_earlier(daemon: Daemon) -> None:
    rows = Stored(daemon.directory / "store.db")
    old, young = rows.submission(9, log="old", source="both"), rows.submission(1, log="young")
    other = rows.submission(9, source="other", log="both")
    rows.done()
    settle(daemon, "retention_log_days = 7\nretention_days = 30\n")
    client = daemon.start(ready=False)
    assert sweep(daemon)["logs"] == 2
    kept = Kept(daemon)
    assert (kept.submissions, kept.logs) == ({old, young, other}, {young})
    assert "old" not in kept.blobs and "both" in kept.blobs, "a source with the same text stays"
    assert client.get(f"/v1/submissions/{old}/log").body == b""
    assert client.get(f"/v1/submissions/{old}").status == 200


def test_nothing_goes_unless_it_is_asked_for(daemon: Daemon) -> None:
    rows = Stored(daemon.directory / "store.db")
    ids = {rows.submission(30000, log="log") for _ in range(3)}
    rows.done()
    client = daemon.start(ready=False)
    assert sweep(daemon) | {"started": 0, "finished": 0} == {
        "started": 0, "finished": 0, "error": None, "submissions": 0, "groups": 0, "logs": 0, "blobs": 0,
        "freed_bytes": 0,
    }  # fmt: skip
    assert Kept(daemon).submissions == ids
    assert client.post("/v1/retention", {"vacuum": 1}).status == 400
    assert client.post("/v1/retention", {"all": True}).status == 400


def test_room_goes_back_to_the_disk_while_it_runs(daemon: Daemon) -> None:
    rows = Stored(daemon.directory / "store.db")
    for i in range(400):
        rows.submission(40, source=rows.blob(f"large-{i}", 40000))
    rows.done()
    settle(daemon, "retention_days = 30\n")
    client = daemon.start(ready=False)
    store = daemon.directory / "store.db"
    before = store.stat().st_size
    assert before > 400 * 40000
    assert sweep(daemon, "--vacuum")["freed_bytes"] > 300 * 40000
    # The file shrinks with the next checkpoint, at the latest the one of the end.
    assert client.get("/v1/status").json()["counts"]["done"] == 0
    daemon.stop()
    assert store.stat().st_size < before / 4
    assert sqlite3.connect(store).execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_it_comes_by_itself_and_with_new_settings(daemon: Daemon) -> None:
    rows = Stored(daemon.directory / "store.db")
    rows.submission(40)
    rows.done()
    client = daemon.start(ready=False)
    assert client.get("/v1/retention").json() | {"interval_s": 0} == {
        "days": 0, "rows": 0, "log_days": 0, "interval_s": 0, "running": False, "last": None,
    }  # fmt: skip
    settle(daemon, "retention_days = 30\nretention_interval_s = 1\n")
    os.kill(daemon.pid, signal.SIGHUP)
    service.wait_for(lambda: client.get("/v1/status").json()["counts"]["done"] != 1)
    assert client.get("/v1/retention").json()["days"] == 30
    daemon.stop()
    assert "removed 1 submissions" in daemon.log.read_text()


def test_a_second_sweep_beside_the_first_is_a_conflict(daemon: Daemon) -> None:
    rows = Stored(daemon.directory / "store.db")
    for i in range(400):
        rows.submission(40, source=rows.blob(f"large-{i}", 40000))
    rows.done()
    settle(daemon, "retention_days = 30\n")
    client = daemon.start(ready=False)
    assert client.post("/v1/retention", {"vacuum": True}).status == 202
    second = client.post("/v1/retention", {"vacuum": True})
    assert second.status == 409 and second.json()["code"] == "sweep_running", second
    assert second.json()["retryable"] is True
    service.wait_for(lambda: not client.get("/v1/retention").json()["running"])
    assert client.post("/v1/retention", {}).status == 202

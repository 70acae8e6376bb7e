"""A stop while the store still has writes to make: what they report to is there until they have.

`make sanitize` runs these with a daemon that looks for the use of freed memory.
"""

from __future__ import annotations

import http.client
import json
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import service
from scripted import TASK

LIMIT_S = 60.0


def counts(daemon: service.Daemon) -> service.Json:
    found: service.Json = daemon.client.expect("GET", "/v1/status")["counts"]
    return found


@contextmanager
def held_by_another(daemon: service.Daemon) -> Iterator[None]:
    """The store is locked, as a sqlite3 shell may, and a write waits for it for five seconds."""
    with closing(sqlite3.connect(daemon.directory / "store.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@contextmanager
def client_that_does_not_read(daemon: service.Daemon, path: str) -> Iterator[None]:
    """HTTP gives it a second before it stops."""
    host, _, port = daemon.client.url.removeprefix("http://").partition(":")
    with socket.socket() as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        own.connect((host, int(port)))
        own.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        yield


def check_stopped(daemon: service.Daemon, log: Path) -> None:
    assert daemon.stop() == 0, log.read_text()[-8000:]
    text = log.read_text()
    assert "Sanitizer" not in text and "runtime error" not in text, text[-8000:]


def write_a_verdict(daemon: service.Daemon) -> str:
    """A submission whose verdict is out, and waits for the store, which is held."""
    go = daemon.directory / "go"
    posted = daemon.client.submit({"task": "scripted", "candidate": f"# script: ast=until:{go},fail:syntax\n"})
    service.wait_for(lambda: daemon.client.expect("GET", f"/v1/submissions/{posted}")["stage"] == "ast")
    service.wait_for(lambda: daemon.client.expect("GET", "/v1/status")["store"]["queued_writes"] == 0)
    return posted


def test_nothing_is_judged_before_its_claim_is_durable(start_scripted: service.StartDaemon) -> None:
    """Issue 25.5: the begin was not waited for. The slot is free, and the store does not say yes yet."""
    daemon = start_scripted(cpu_jobs=1)
    daemon.client.add_task(TASK)
    write_a_verdict(daemon)
    second = daemon.client.submit({"task": "scripted", "candidate": "# script: ast=fail:syntax\n# second\n"})
    with held_by_another(daemon):
        (daemon.directory / "go").touch()
        service.wait_for(lambda: counts(daemon)["finished"] == 1)
        time.sleep(0.5)
        shown = daemon.client.expect("GET", f"/v1/submissions/{second}")
        assert (shown["state"], shown["stage"]) == ("queued", None)
        assert daemon.client.call("DELETE", f"/v1/submissions/{second}").status in (200, 202)
    assert daemon.client.wait(second, LIMIT_S)["state"] == "cancelled", "it was asked for while it was claimed"
    third = daemon.client.judge({"task": "scripted", "candidate": "# script: ast=fail:syntax\n# third\n"}, LIMIT_S)
    assert (third["class"], third["attempts"]) == ("syntax", 1)


def test_a_verdict_that_is_tried_again_while_http_stops(start_scripted: service.StartDaemon) -> None:
    """Issue 21.2: the funnel was freed before the store had told it of the second try."""
    daemon = start_scripted()
    large = {"name": "large", "reference": TASK["reference"] + "# x" * 300000}
    daemon.client.add_task(TASK)
    task = daemon.client.add_task(large)
    write_a_verdict(daemon)
    with held_by_another(daemon), client_that_does_not_read(daemon, f"/v1/tasks/{task}"):
        (daemon.directory / "go").touch()
        service.wait_for(lambda: counts(daemon)["finished"] == 1)
        check_stopped(daemon, daemon.log)


def test_a_stop_that_waits_for_nobody_while_the_store_is_held(start_scripted: service.StartDaemon) -> None:
    """Issue 21.2: a registration that does not end has the workers ended at once, with a verdict under way."""
    daemon = start_scripted(drain_ms=0)
    daemon.client.add_task(TASK)
    posted = write_a_verdict(daemon)
    statuses: list[int] = []
    endless = {"name": "endless", "reference": f"# script: describe=until:{daemon.directory / 'never'}\n"}
    poster = threading.Thread(target=lambda: statuses.append(daemon.client.post("/v1/tasks", endless).status))
    poster.start()
    service.wait_for(lambda: daemon.client.expect("GET", "/v1/status")["queues"]["registering"] == 1)
    with held_by_another(daemon):
        (daemon.directory / "go").touch()
        service.wait_for(lambda: counts(daemon)["finished"] == 1)
        check_stopped(daemon, daemon.log)
    poster.join(LIMIT_S)
    assert statuses == [503]
    daemon.start()
    assert daemon.client.wait(posted, LIMIT_S)["class"] == "syntax", "what was not durable is judged again"


def test_a_draining_daemon_takes_no_calibration(start_scripted: service.StartDaemon) -> None:
    """Issue 21.2: it would be stored while the funnel is freed. Then a second signal ends the grace."""
    daemon = start_scripted(drain_ms=600000)
    daemon.client.add_task(TASK)
    posted = daemon.client.submit({"task": "scripted", "candidate": "# script: compile=hang\n"})
    service.wait_for(lambda: daemon.client.expect("GET", f"/v1/submissions/{posted}")["stage"] == "compile")
    run = {"name": "a", "kind": "b", "outcome": "c"}
    body = json.dumps({"gpu": "X", "bias": 0, "spread": 0, "runs": [run]})
    with closing(http.client.HTTPConnection(daemon.client.url.removeprefix("http://"), timeout=LIMIT_S)) as kept:
        kept.request("GET", "/healthz")
        kept.getresponse().read()
        daemon.signal(signal.SIGTERM)
        service.wait_for(lambda: "draining for at most" in daemon.log.read_text())
        kept.request("POST", "/v1/calibrations", body, {"Content-Type": "application/json"})
        answer = kept.getresponse()
        assert (answer.status, "draining" in answer.read().decode()) == (503, True)
    check_stopped(daemon, daemon.log)


def test_signals_at_every_instant_of_a_stop_leave_it_one(start_scripted: service.StartDaemon) -> None:
    """One that came with the last writes had its default, and the daemon seemed to have died."""
    daemon = start_scripted(drain_ms=0)
    daemon.client.add_task(TASK)
    write_a_verdict(daemon)
    with held_by_another(daemon):
        (daemon.directory / "go").touch()
        service.wait_for(lambda: counts(daemon)["finished"] == 1)
        deadline = time.monotonic() + LIMIT_S
        status = Path(f"/proc/{daemon.pid}/status")
        while "(zombie)" not in status.read_text() and time.monotonic() < deadline:
            daemon.signal(signal.SIGTERM)
            time.sleep(0.001)
    check_stopped(daemon, daemon.log)

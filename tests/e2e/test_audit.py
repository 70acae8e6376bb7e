"""What administrators do is kept; tokens are rotated under a running daemon; without any, only loopback is served."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import service
from service import Client, Daemon


def token(daemon: Daemon, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(service.BINARY), "token", *arguments, f"--store={daemon.directory / 'store.db'}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def new(daemon: Daemon, name: str, scope: str, client: str) -> dict[str, str]:
    made = token(daemon, "new", f"--name={name}", f"--scope={scope}", f"--client={client}")
    assert made.returncode == 0, made.stderr
    return {"Authorization": f"Bearer {made.stdout.strip()}"}


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with service.directory() as directory:
        (directory / "conf").write_text("")
        daemon = Daemon(directory, {"paused": True, "config": directory / "conf"})
        yield daemon
        daemon.kill()


def entries(client: Client, admin: dict[str, str]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = client.call("GET", "/v1/audit", None, admin).json()["items"]
    return items


def test_the_trail_has_who_what_and_when(daemon: Daemon) -> None:
    admin = new(daemon, "a", "admin", "boss")
    reader = new(daemon, "r", "read", "r")
    client = daemon.start(ready=False)
    assert client.call("POST", "/v1/retention", {}, admin).status == 202
    (daemon.directory / "conf").write_text("queue_limit = 7\n")
    os.kill(daemon.pid, signal.SIGHUP)
    service.wait_for(lambda: "reload" in [one["action"] for one in entries(client, admin)])
    assert token(daemon, "revoke", "--name=r").returncode == 0
    assert token(daemon, "revoke", "--name=none").returncode == 1
    found = entries(client, admin)
    assert [(one["action"], one["object"]) for one in found] == [
        ("token revoke", "r"),
        ("reload", str(daemon.directory / "conf")),
        ("retention", None),
        ("token new", "r"),
        ("token new", "a"),
    ]
    assert [one["who"] for one in found] == [f"uid {os.getuid()}", "operator", "boss"] + [f"uid {os.getuid()}"] * 2
    assert found[2]["request_id"] and [one["time"] for one in found] == sorted(
        (one["time"] for one in found), reverse=True
    )
    assert client.call("GET", "/v1/audit", None, reader).status == 401, "it was revoked"
    path = daemon.directory / "store.db.tokens.audit"
    assert path.stat().st_mode & 0o077 == 0
    # It survives the daemon, and only grows.
    before = path.read_bytes()
    daemon.kill()
    client = daemon.start(ready=False)
    new(daemon, "b", "read", "b")
    assert path.read_bytes().startswith(before)
    assert [json.loads(line)["action"] for line in path.read_text().splitlines()][-1] == "token new"
    assert len(client.call("GET", "/v1/audit?limit=2", None, admin).json()["items"]) == 2


def test_only_an_admin_reads_it(daemon: Daemon) -> None:
    tokens = {scope: new(daemon, scope, scope, "c") for scope in ("submit", "read")}
    client = daemon.start(ready=False)
    assert [client.call("GET", "/v1/audit", None, one).status for one in tokens.values()] == [403, 403]


def test_a_token_is_rotated_without_a_gap(daemon: Daemon) -> None:
    old = new(daemon, "old", "read", "trainer")
    client = daemon.start(ready=False)
    pid = daemon.pid
    fresh = new(daemon, "new", "read", "trainer")
    assert [client.call("GET", "/v1/status", None, one).status for one in (old, fresh)] == [200, 200]
    assert token(daemon, "revoke", "--name=old").returncode == 0
    os.kill(pid, signal.SIGHUP)
    assert [client.call("GET", "/v1/status", None, one).status for one in (old, fresh)] == [401, 200]
    assert daemon.pid == pid


def test_without_tokens_nobody_listens_to_the_world(tmp_path: Path) -> None:
    python = [f"--python={os.environ['PYTHON']}"] if "PYTHON" in os.environ else []
    for flags, words in (
        ([], "set allow_remote"),
        (["--allow-remote"], "there are no tokens"),
        (["--allow-remote", "--check-config"], "there are no tokens"),
    ):
        done = subprocess.run(
            [str(service.BINARY), "--listen=0.0.0.0:0", f"--store={tmp_path / 'store.db'}", *python, *flags],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 1 and words in done.stderr and done.stdout == ""

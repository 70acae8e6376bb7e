"""What systemd hears of a daemon that it started (Type=notify, WatchdogSec)."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import service
from scripted import SCRIPTED

LIMIT_S = 30.0


@pytest.fixture
def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """systemd's end: the daemon that is started next speaks to it, and is watched with 0.4 s."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(str(tmp_path / "notify"))
        end.settimeout(LIMIT_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "400000")
        yield end


def test_systemd_hears_when_it_is_ready_that_it_lives_and_that_it_stops(
    heard: socket.socket, start_scripted: service.StartDaemon
) -> None:
    daemon = start_scripted(ready=False)
    words = {heard.recv(100).decode() for _ in range(2)}
    assert "READY=1" in words <= {"READY=1", "WATCHDOG=1"}
    assert daemon.client.get("/healthz").status == 200  # it listened when it said so
    began = time.monotonic()
    for _ in range(6):
        assert heard.recv(100) in (b"WATCHDOG=1", b"READY=1")
    assert time.monotonic() - began < 5  # twice in each 0.4 s
    daemon.stop()
    left = []
    heard.setblocking(False)
    try:
        while True:
            left.append(heard.recv(100))
    except BlockingIOError:
        pass
    assert b"STOPPING=1" in left


def test_a_daemon_that_hangs_is_not_heard(heard: socket.socket, start_scripted: service.StartDaemon) -> None:
    daemon = start_scripted()
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        heard.settimeout(1.0)
        with pytest.raises(TimeoutError):
            for _ in range(1000):
                heard.recv(100)
    finally:
        os.kill(daemon.pid, signal.SIGCONT)


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"NOTIFY_SOCKET": "relative"}, 'NOTIFY_SOCKET: "relative" is no path'),
        ({"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "soon"}, 'WATCHDOG_USEC: "soon" is no number'),
    ],
)
def test_what_systemd_cannot_have_said_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], says: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    daemon = service.Daemon(tmp_path, SCRIPTED)
    done = subprocess.run(daemon.command(), capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 1
    assert says in json.loads(done.stderr.splitlines()[-1])["msg"]

"""A stop ends in bounded time, whatever hangs: a worker that no signal ends, or the daemon itself."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import service
from scripted import TASK

LIMIT_S = 60.0

# Loaded into the daemon: SIGKILL does nothing to the process that the file STUCK names, as if it hung in a driver.
STUCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
int
kill(pid_t pid, int number)
{
    int (*real)(pid_t, int);
    int stuck = 0;
    FILE *file = getenv("STUCK") ? fopen(getenv("STUCK"), "r") : NULL;
    if (file) {
        if (fscanf(file, "%d", &stuck) != 1)
            stuck = 0;
        fclose(file);
    }
    *(void **)&real = dlsym(RTLD_NEXT, "kill");
    return stuck > 0 && pid == stuck ? 0 : real(pid, number);
}
"""

# Loaded into the daemon: whoever waits for a thread to end waits for ever, as where the disk of the store hangs.
JOINED = """
#include <pthread.h>
#include <unistd.h>
int
pthread_join(pthread_t thread, void **value)
{
    (void)thread;
    (void)value;
    for (;;)
        pause();
}
"""

Load = Callable[[str], Path]


@pytest.fixture
def library(tmp_path: Path) -> Load:
    """Builds a library to load before the daemon."""

    def build(source: str) -> Path:
        (tmp_path / "load.c").write_text(source)
        out = tmp_path / "load.so"
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-o", str(out), str(tmp_path / "load.c"), "-ldl"], check=True, timeout=LIMIT_S
        )
        return out

    return build


def test_a_worker_that_no_signal_ends_is_left_behind(
    start_scripted: service.StartDaemon, library: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Issue 21.2: the daemon says so and ends; what was on that worker is queued in the store."""
    stuck = tmp_path / "stuck"
    with monkeypatch.context() as patch:
        patch.setenv("LD_PRELOAD", str(library(STUCK)))
        patch.setenv("STUCK", str(stuck))
        daemon = start_scripted(drain_ms=0)
    daemon.client.add_task(TASK)
    posted = daemon.client.submit({"task": "scripted", "candidate": "# script: compile=hang\n"})
    service.wait_for(lambda: daemon.client.expect("GET", f"/v1/submissions/{posted}")["stage"] == "compile")
    workers = daemon.client.expect("GET", "/v1/status")["workers"]
    pid = next(int(one["pid"]) for one in workers if one["name"] == "compile zygote")
    stuck.write_text(str(pid))
    os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        assert daemon.stop() == 0
        assert time.monotonic() - began < 40
    finally:
        os.kill(pid, signal.SIGKILL)
    assert f"process {pid} does not end after SIGKILL: it is left behind" in daemon.log.read_text()
    with closing(sqlite3.connect(daemon.directory / "store.db")) as store:
        assert store.execute("SELECT state, attempts FROM submission").fetchall() == [(0, 0)]


@pytest.mark.slow
def test_a_second_signal_ends_a_daemon_that_hangs(
    start_scripted: service.StartDaemon, library: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 21.2: after 20 seconds the kernel does."""
    with monkeypatch.context() as patch:
        patch.setenv("LD_PRELOAD", str(library(JOINED)))
        daemon = start_scripted(drain_ms=600000)
    daemon.client.add_task(TASK)
    posted = daemon.client.submit({"task": "scripted", "candidate": "# script: compile=hang\n"})
    service.wait_for(lambda: daemon.client.expect("GET", f"/v1/submissions/{posted}")["stage"] == "compile")
    daemon.signal(signal.SIGINT)
    service.wait_for(lambda: "draining for at most" in daemon.log.read_text())
    assert daemon.stop() == -signal.SIGALRM

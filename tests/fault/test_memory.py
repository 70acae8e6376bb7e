"""Memory or disk that is not there for a moment: what needed it waits, and the daemon goes on."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import service
from scripted import TASK

LIMIT_S = 60.0

# Loaded into the daemon: the first two attempts that it asks memory for get none.
LOSE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include "server/submission/attempt.h"
void *
calloc(size_t n, size_t size)
{
    static __thread bool is_asking;
    static void *(*real)(size_t, size_t);
    static int lost;
    if (n * size == sizeof(struct attempt) && lost < 2) {
        lost++;
        errno = ENOMEM;
        return NULL;
    }
    if (!real && !is_asking) {
        is_asking = true;
        *(void **)&real = dlsym(RTLD_NEXT, "calloc");
        is_asking = false;
    }
    return real ? real(n, size) : NULL; /* dlsym() itself does without */
}
"""


# The same for the text of the first verdict, twice.
LOSE_VERDICT = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <jansson.h>
char *
json_dumps(const json_t *json, size_t flags)
{
    static char *(*real)(const json_t *, size_t);
    static int lost;
    const json_t *finished = json_object_get(json, "finished");
    if (json_is_string(finished) && json_object_get(json, "reward_parts") && lost < 2) {
        lost++;
        return NULL;
    }
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "json_dumps");
    return real(json, flags);
}
"""

# While the file is there, no file system has room.
FILL = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>
int
statvfs(const char *path, struct statvfs *fs)
{
    int (*real)(const char *, struct statvfs *);
    *(void **)&real = dlsym(RTLD_NEXT, "statvfs");
    int rc = real(path, fs);
    if (access(getenv("FULL"), F_OK) == 0)
        fs->f_bavail = 0;
    return rc;
}
"""

Load = Callable[[str], Path]


@pytest.fixture
def library(tmp_path: Path) -> Load:
    """Builds a library to load before the daemon."""

    def build(source: str) -> Path:
        (tmp_path / "lose.c").write_text(source)
        pkg_config = ["pkg-config", "--cflags", "libuv", "jansson", "sqlite3"]
        flags = subprocess.run(pkg_config, check=True, capture_output=True, text=True).stdout.split()
        out = tmp_path / "lose.so"
        command = ["cc", "-shared", "-fPIC", "-std=gnu11", f"-I{service.ROOT}", *flags, "-o", str(out)]
        subprocess.run([*command, str(tmp_path / "lose.c"), "-ldl"], check=True, timeout=LIMIT_S)
        return out

    return build


def test_a_submission_that_there_is_no_memory_to_judge_waits(
    start_scripted: service.StartDaemon, library: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("LD_PRELOAD", str(library(LOSE)))
        daemon = start_scripted()
    task = daemon.client.add_task(TASK)
    submission = daemon.client.submit({"task": task, "candidate": "# script: timing=1.3"})
    verdict = daemon.client.wait(submission, LIMIT_S)
    assert verdict["class"] == "ok" and verdict["attempts"] == 1
    assert daemon.log.read_text().count("no memory to judge it") == 2


def test_a_verdict_that_there_is_no_memory_for_is_made_later(
    start_scripted: service.StartDaemon, library: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 21.9: it was stored as done, without a verdict, and nobody ever got one."""
    with monkeypatch.context() as patch:
        patch.setenv("LD_PRELOAD", str(library(LOSE_VERDICT)))
        daemon = start_scripted()
    task = daemon.client.add_task(TASK)
    submission = daemon.client.submit({"task": task, "candidate": "# script: timing=1.3"})
    verdict = daemon.client.wait(submission, LIMIT_S)
    assert verdict["class"] == "ok" and verdict["reward"] > 0
    assert daemon.log.read_text().count("no memory for its verdict") == 2
    counts = daemon.client.expect("GET", "/v1/status")["counts"]
    assert (counts["finished"], counts["classes"]) == (1, {"ok": 1}), "it is counted once"


def test_a_failure_on_a_full_disk_does_not_count(
    start_scripted: service.StartDaemon, library: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A candidate that could be written nowhere had class `import` and a reward, and so had all after it."""
    full = tmp_path / "full"
    with monkeypatch.context() as patch:
        patch.setenv("LD_PRELOAD", str(library(FILL)))
        patch.setenv("FULL", str(full))
        daemon = start_scripted()
    task = daemon.client.add_task(TASK)
    gate = daemon.directory / "gate"
    script = f"# script: compile=until:{gate},fail:import\n"
    running = daemon.client.submit({"task": task, "candidate": script})
    service.wait_for(lambda: daemon.client.expect("GET", f"/v1/submissions/{running}")["stage"] == "compile")
    full.touch()
    waiting = daemon.client.submit({"task": task, "candidate": "# script: timing=1.3\n"})
    gate.touch()
    service.wait_for(lambda: "does not count" in daemon.log.read_text())
    assert daemon.client.get("/readyz").json()["detail"] == "the disk of the scratch directory is full"
    found = [daemon.client.expect("GET", f"/v1/submissions/{one}") for one in (running, waiting)]
    assert [(one["state"], one["attempts"]) for one in found] == [("queued", 1), ("queued", 0)]
    full.unlink()
    assert daemon.client.wait(waiting, LIMIT_S)["class"] == "ok"
    assert daemon.client.wait(running, LIMIT_S)["class"] == "import"
    assert daemon.log.read_text().count("nothing begins") == 1


def test_a_store_that_was_moved_acknowledges_nothing(start_scripted: service.StartDaemon) -> None:
    """All went on in a file that no start would ever find."""
    daemon = start_scripted()
    task = daemon.client.add_task(TASK)
    store = daemon.directory / "store.db"
    store.rename(daemon.directory / "elsewhere.db")
    body = {"task": task, "candidate": "# script: timing=1.3\n"}
    assert daemon.client.post("/v1/submissions", body).status == 503
    assert daemon.client.get("/readyz").status == 503
    assert "was moved, removed or replaced" in daemon.log.read_text()
    (daemon.directory / "elsewhere.db").rename(store)
    daemon.wait_ready(LIMIT_S)
    assert daemon.client.judge(body, LIMIT_S)["class"] == "ok"

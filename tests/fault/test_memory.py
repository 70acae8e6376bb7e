"""Memory that is not there for a moment: what needed it waits, and the daemon goes on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import service
from scripted import TASK

LIMIT_S = 60.0

# Loaded into the daemon: the first two judgements that it asks memory for get none.
LOSE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include "server/funnel/private.h"
void *
calloc(size_t n, size_t size)
{
    static __thread bool is_asking;
    static void *(*real)(size_t, size_t);
    static int lost;
    if (n * size == sizeof(struct judgement) && lost < 2) {
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


@pytest.fixture(scope="module")
def lose(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library to load before the daemon."""
    directory = tmp_path_factory.mktemp("lose")
    (directory / "lose.c").write_text(LOSE)
    flags = subprocess.run(
        ["pkg-config", "--cflags", "libuv", "jansson", "sqlite3"], check=True, capture_output=True, text=True
    ).stdout.split()
    out = directory / "lose.so"
    command = ["cc", "-shared", "-fPIC", "-std=gnu11", f"-I{service.ROOT}", *flags, "-o", str(out)]
    subprocess.run([*command, str(directory / "lose.c"), "-ldl"], check=True, timeout=LIMIT_S)
    return out


def test_a_submission_that_there_is_no_memory_to_judge_waits(
    start_scripted: service.StartDaemon, lose: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("LD_PRELOAD", str(lose))
        daemon = start_scripted()
    task = daemon.client.add_task(TASK)
    submission = daemon.client.submit({"task": task, "candidate": "# script: timing=1.3"})
    verdict = daemon.client.wait(submission, LIMIT_S)
    assert verdict["class"] == "ok" and verdict["attempts"] == 1
    assert daemon.log.read_text().count("no memory to judge it") == 2

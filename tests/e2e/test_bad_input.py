"""Bad input on purpose: each ends as its header says, in time, and nothing is left of it when the verdict is out."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import corpus
import pytest
import service

BAD = [c for c in corpus.load_candidates() if c.name.startswith("bad_") or c.name == "fork_bomb"]
TASKS = {c.task for c in BAD}
MANY = ("bad_descriptors", "bad_processes_share_the_load", "bad_socket_buffers")
"""They fork."""
UIDS = range(47000, 47064)
"""Of our children alone: other suites run beside this one."""
LIMITS = {
    "stage_limit_ms": 25000,
    "tiny_limit_ms": 8000,
    "memory_limit_bytes": 1 << 30,
    "scratch_limit_bytes": 256 << 20,
    "pool": 1,
    "stage_pool": 0,
    "uid_first": UIDS.start,
    "uid_count": len(UIDS),
}
SETTLE_S = 120.0
"""A new child for the pool is forked beside the verdict, so processes are counted until they are as many as before."""


@pytest.fixture(scope="module")
def own() -> Iterator[tuple[service.Daemon, dict[str, str]]]:
    with (
        service.directory() as directory,
        service.Daemon(directory, LIMITS | {"scratch": directory / "scratch"}) as daemon,
    ):
        tasks = corpus.load_tasks()
        yield daemon, {name: daemon.client.add_task(tasks[name].registration()) for name in TASKS}


def _processes(daemon: service.Daemon) -> set[int]:
    """All below the daemon, and whoever has a uid of its children."""
    parents: dict[int, int] = {}
    ours: set[int] = set()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            status = Path(f"/proc/{entry}/status").read_text()
        except OSError:
            continue
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        parents[int(entry)] = int(fields["PPid"])
        if int(fields["Uid"].split()[0]) in UIDS and not fields["State"].startswith("Z"):
            ours.add(int(entry))
    for pid in parents:
        at = pid
        while at in parents and at != daemon.pid:
            at = parents[at]
        if at == daemon.pid:
            ours.add(pid)
    return ours


def _files() -> set[str]:
    """Where a candidate could have left something."""
    return {
        f"{top}/{name}" for top in ("/dev/shm", "/tmp", "/var/tmp") for name in _names(top) if name.startswith("bad-")
    }


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _objects() -> int:
    """System V objects that our children made."""
    found = 0
    for kind in ("shm", "sem", "msg"):
        head, *rows = (line.split() for line in Path(f"/proc/sysvipc/{kind}").read_text().splitlines())
        found += sum(int(row[head.index("cuid")]) in UIDS for row in rows)
    return found


def _count_at_rest(daemon: service.Daemon) -> int:
    """Of the processes, once they have been as many for a second: a child of the reference may still be ending."""
    deadline = time.monotonic() + SETTLE_S
    counts: list[int] = []
    while len(counts) < 10 or len(set(counts[-10:])) > 1:
        assert time.monotonic() < deadline, f"the processes come and go: {counts}"
        counts.append(len(_processes(daemon)))
        time.sleep(0.1)
    return counts[-1]


def _wait_until_as_before(daemon: service.Daemon, before: int) -> None:
    deadline = time.monotonic() + SETTLE_S
    while (now := len(_processes(daemon))) != before:
        assert time.monotonic() < deadline, f"{now} processes, {before} before"
        time.sleep(0.1)


def _wait_until_removed(scratch: Path, prefix: str) -> None:
    """Fifty thousand files take a while."""
    deadline = time.monotonic() + SETTLE_S
    while left := [name for name in _names(str(scratch)) if name.startswith(prefix)]:
        assert time.monotonic() < deadline, f"{left} are kept"
        time.sleep(0.1)


class ConfinedDaemon(service.Daemon):
    """On a host that allows root no namespaces, as most containers do."""

    def command(self) -> list[str]:
        return [sys.executable, str(Path(__file__).with_name("without_namespaces.py")), *super().command()]


@pytest.mark.skipif(os.geteuid() != 0, reason="without namespaces verifierd runs as root only")
def test_nothing_is_left_where_there_are_no_namespaces() -> None:
    """A child's own processes end with it there, too."""
    with service.directory() as directory, ConfinedDaemon(directory, LIMITS) as daemon:
        client = daemon.client
        layers = client.expect("GET", "/v1/status")["sandbox"]["layers"]
        assert layers["pid_namespace"].startswith("absent"), layers
        ids = {
            name: client.add_task(task.registration()) for name, task in corpus.load_tasks().items() if name in TASKS
        }
        honest = corpus.load_candidate(corpus.HERE / "candidates" / "copy" / "honest.py")
        assert client.judge({"task": ids["copy"], "candidate": honest.text, "policy": "strict"})["class"] == "ok"
        before = _count_at_rest(daemon)
        for candidate in BAD:
            if candidate.name in MANY:
                verdict = client.judge(candidate.body(ids[candidate.task]))
                assert verdict["class"] in candidate.classes, verdict["feedback"]
                _wait_until_as_before(daemon, before)


LINGERS = """
import os, time
if getattr(os, "fo" + "rk")() == 0:
    getattr(os, "exec" + "vp")("sleep", ["sleep", "{seconds}"])
time.sleep(600)
"""


def _sleepers(seconds: str) -> list[str]:
    wanted = f"sleep\0{seconds}\0".encode()
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit() and Path(f"/proc/{entry}/cmdline").read_bytes() == wanted:
                found.append(entry)
    return found


def _wait_for_sleepers(seconds: str, n: int) -> None:
    deadline = time.monotonic() + SETTLE_S
    while len(found := _sleepers(seconds)) != n:
        assert time.monotonic() < deadline, f"{found}, and {n} were waited for"
        time.sleep(0.05)


@pytest.mark.skipif(os.geteuid() != 0, reason="without namespaces verifierd runs as root only")
def test_a_killed_zygote_leaves_nothing_where_there_are_no_namespaces() -> None:
    seconds = f"4444.{os.getpid()}"
    with service.directory() as directory, ConfinedDaemon(directory, LIMITS | {"stage_limit_ms": 60000}) as daemon:
        client = daemon.client
        task = client.add_task(corpus.load_tasks()["copy"].registration())
        honest = corpus.load_candidate(corpus.HERE / "candidates" / "copy" / "honest.py")
        text = honest.text + LINGERS.format(seconds=seconds)
        client.submit({"task": task, "candidate": text, "policy": "kernelbench"})
        _wait_for_sleepers(seconds, 1)
        workers = client.expect("GET", "/v1/status")["workers"]
        os.kill(next(one["pid"] for one in workers if one["name"] == "compile zygote"), signal.SIGKILL)
        _wait_for_sleepers(seconds, 0)


@pytest.mark.parametrize("candidate", BAD, ids=lambda c: str(c.name))
def test_nothing_is_left(candidate: corpus.Candidate, own: tuple[service.Daemon, dict[str, str]]) -> None:
    daemon, ids = own
    client = daemon.client
    honest = corpus.load_candidate(corpus.HERE / "candidates" / "copy" / "honest.py")
    neighbour_text = f"{honest.text}\n# beside {candidate.name}\n"
    first = client.judge({"task": ids["copy"], "candidate": f"{neighbour_text}# before\n", "policy": "strict"})
    assert first["class"] == "ok"
    before, files, objects = _count_at_rest(daemon), _files(), _objects()
    bad = client.submit(candidate.body(ids[candidate.task]))
    neighbour = client.submit({"task": ids["copy"], "candidate": neighbour_text})
    verdict = client.wait(bad)
    assert verdict["class"] in candidate.classes, verdict["feedback"]
    for stage in verdict["stages"]:
        limit = LIMITS["tiny_limit_ms" if stage["stage"] == "tiny" else "stage_limit_ms"]
        children = 2 if stage["stage"] == "compile" else 1  # who compiles, and who looks at what was made
        assert stage["run_ms"] is None or stage["run_ms"] <= children * limit + 5000, stage
    assert client.wait(neighbour)["class"] == "ok", "its neighbour was blamed"
    assert _files() <= files
    assert _objects() == objects
    _wait_until_as_before(daemon, before)
    _wait_until_removed(daemon.directory / "scratch", f"cache-{bad}")
    log = client.get(f"/v1/submissions/{bad}/log").body
    assert len(log) <= 262144 + 200, "captured output has a bound"

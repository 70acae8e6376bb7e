"""A control group for each child, where the host has a tree of them that may be changed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import corpus
import pytest
import service


def _tree() -> Path | None:
    """Where cgroup v2 is mounted."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == "cgroup2" and "rw" in options.split(",") and os.access(where, os.W_OK):
            return Path(where)
    return None


@pytest.fixture
def group() -> Iterator[Path]:
    tree = _tree()
    if tree is None:
        pytest.skip("the host has no cgroup v2 that may be changed")
    group = tree / f"verifierd-test-{os.getpid()}"
    group.mkdir()
    yield group
    deadline = time.monotonic() + 60
    while True:
        try:
            group.rmdir()
            return
        except OSError:
            assert time.monotonic() < deadline, f"left in {group}: {_children(group)}"
            time.sleep(0.1)


def _children(group: Path) -> list[Path]:
    return sorted(group.glob("verifierd-child-*"))


def _processes(leaf: Path) -> list[str]:
    try:
        return (leaf / "cgroup.procs").read_text().split()
    except OSError:
        return []


def test_each_child_has_a_group_and_none_is_left(start_daemon: service.StartDaemon, group: Path) -> None:
    left = group / "verifierd-child-left"
    left.mkdir()  # by a daemon that was killed
    daemon = start_daemon(cgroup=group, pool=1, stage_pool=0)
    assert not left.exists()
    client = daemon.client
    layers = client.expect("GET", "/v1/status")["sandbox"]["layers"]
    has_memory = "memory" in (group / "cgroup.controllers").read_text().split()
    assert layers["cgroup"] == "on" if has_memory else layers["cgroup"].endswith("has no memory controller")
    task = client.add_task(corpus.load_tasks()["copy"].registration())
    occupied = [leaf for leaf in _children(group) if _processes(leaf)]
    assert occupied, "a child waits for work, in no group"
    for leaf in occupied:
        if has_memory:
            assert (leaf / "memory.max").read_text().strip() == str((2 << 30) // 4 * 5)
    for name in ("honest", "bad_survivors"):
        candidate = corpus.load_candidate(corpus.HERE / "candidates" / "copy" / f"{name}.py")
        assert client.judge(candidate.body(task))["class"] == "ok"
    deadline = time.monotonic() + 60
    while len(_children(group)) > len(occupied) + 1:
        assert time.monotonic() < deadline, _children(group)
        time.sleep(0.1)
    assert daemon.stop() == 0
    assert not _children(group)


def test_the_children_of_several_devices_have_groups_of_their_own(
    start_daemon: service.StartDaemon, group: Path
) -> None:
    """Issue 21.3: each zygote numbers its own children, and with two GPUs the second mkdir failed, again and again."""
    daemon = start_daemon(cgroup=group, device="cpu:0,1", pool=2, stage_pool=0)

    def ready() -> int:
        workers = daemon.client.expect("GET", "/v1/status")["workers"]
        return sum(one["pool"]["ready"] for one in workers if one["kind"] == "referee")

    deadline = time.monotonic() + 120
    while ready() < 4:
        assert time.monotonic() < deadline, daemon.log.read_text()[-2000:]
        time.sleep(0.1)
    assert len(_children(group)) >= 4
    assert "make the control group" not in daemon.log.read_text()
    assert daemon.stop() == 0
    assert not _children(group)


def test_a_group_that_is_none_is_refused(start_daemon: service.StartDaemon, tmp_path: Path) -> None:
    with pytest.raises(service.ServiceError, match="is no control group"):
        start_daemon(cgroup=tmp_path, ready=False)


def test_a_required_group_that_is_absent_is_refused(start_daemon: service.StartDaemon) -> None:
    with pytest.raises(service.ServiceError, match=r"cgroup.*is required"):
        start_daemon(cgroup="off", sandbox_require="uid,cgroup", ready=False)

"""What a child and all below it hold, as the zygote's watch counts it (server/harness/native/watch.h)."""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "server" / "harness"))

from shared import native

MIB = 1 << 20
PLENTY = 1 << 40
with socket.socket(socket.AF_UNIX) as new:
    SOCKET_BYTES = new.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)


@contextlib.contextmanager
def child(act: Callable[[], object]) -> Iterator[int]:
    """The pidfd of a fork that has done act() and keeps what it returned."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        with contextlib.suppress(BaseException):
            held = act()
            os.write(write_end, b"." if held is not None else b"")
            os.close(read_end)
            signal.pause()
            status = 0
        os._exit(status)
    os.close(write_end)
    pidfd = os.pidfd_open(pid)
    try:
        assert os.read(read_end, 1) == b".", "the child failed"
        yield pidfd
    finally:
        os.close(read_end)
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(pidfd)


def idle() -> object:
    return 0


def shared_mapping() -> object:
    mapping = mmap.mmap(-1, 64 * MIB)
    mapping.write(bytes(64 * MIB))
    return mapping


def unmapped_memfd() -> object:
    fd = os.memfd_create("held")
    os.write(fd, bytes(64 * MIB))
    for _ in range(20):
        os.dup(fd)  # one file, however many descriptors
    return fd


def nameless_file(directory: Path) -> object:
    fd = os.open(directory / "gone", os.O_CREAT | os.O_WRONLY)
    (directory / "gone").unlink()
    os.write(fd, os.urandom(8 * MIB))
    os.fsync(fd)
    return fd


def grandchildren() -> object:
    """Four processes that share 64 MiB, which are 64 MiB."""
    block = bytearray(os.urandom(MIB) * 64)
    for _ in range(3):
        if os.fork() == 0:
            native.die_with_parent()
            signal.pause()
    return block


def socket_buffers() -> object:
    """Pairs that hold 64 MiB which nobody reads, as far as sockets of the first size take them."""
    pairs = []
    for _ in range(64 * MIB // (2 * SOCKET_BYTES)):
        pairs.append(socket.socketpair())
        for end in pairs[-1]:
            end.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while end.send(bytes(MIB)):
                    pass
    return pairs


@pytest.mark.parametrize("act", [shared_mapping, unmapped_memfd, socket_buffers], ids=lambda act: act.__name__)
def test_memory_that_no_resource_limit_sees(act: Callable[[], object], tmp_path: Path) -> None:
    """Its parent's pages are shared with fewer once a child of an earlier test is gone."""

    def base() -> int:
        with child(idle) as pidfd:
            return native.watch(pidfd, tmp_path, 1, 0).memory_bytes

    bases = [base()]
    with child(act) as pidfd:
        held = native.watch(pidfd, tmp_path, 1, 0)
        assert held.excess == "memory"
        assert native.watch(pidfd, tmp_path, PLENTY, PLENTY).excess is None
    bases.append(base())
    assert min(bases) + 60 * MIB < held.memory_bytes < max(bases) + 80 * MIB


def test_shared_pages_count_once(tmp_path: Path) -> None:
    with child(grandchildren) as pidfd:
        coarse = native.watch(pidfd, tmp_path, PLENTY, 0)
        exact = native.watch(pidfd, tmp_path, 1, 0)
    assert coarse.processes == exact.processes == 4
    assert coarse.memory_bytes > 256 * MIB
    assert exact.memory_bytes < coarse.memory_bytes / 2


def test_descriptors_that_processes_share_out_are_counted_together(tmp_path: Path) -> None:
    """Issue 21, point 5: so what sockets hold is bounded also where the limit of memory is far."""

    def fill() -> object:
        held = [os.dup(0) for _ in range(500)]
        for _ in range(8):
            if os.fork() == 0:
                native.die_with_parent()
                signal.pause()
        return held

    with child(fill) as pidfd:
        assert native.watch(pidfd, tmp_path, PLENTY, PLENTY).excess == "descriptors"


def test_files(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "file").write_bytes(os.urandom(4 * MIB))
    (tmp_path / "link").symlink_to("/")
    with child(lambda: nameless_file(tmp_path)) as pidfd:
        usage = native.watch(pidfd, tmp_path, 0, 0)
        assert usage.files == 4
        on_disk = usage.disk_bytes >= 12 * MIB
        assert on_disk or usage.memory_bytes >= 8 * MIB, "on a tmpfs a file without a name is memory"
        assert native.watch(pidfd, tmp_path, 0, 2 * MIB).excess == "disk"


def test_a_dead_child(tmp_path: Path) -> None:
    with child(idle) as pidfd:
        again = os.dup(pidfd)
    with pytest.raises(native.ChildDiedError):
        native.watch(again, tmp_path, 0, 0)
    os.close(again)

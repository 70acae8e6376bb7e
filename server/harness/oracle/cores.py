"""The cores of a timing: the referee has one, and both sides have the same other one.

The referee runs on the cores that are kept for its GPU, its children on all others except while they are timed: to make
and to end a process with a context keeps a core in the driver for a tenth of a second, and a submission that is judged
meanwhile would wait for it.

Cores of one machine differ in the time that the host needs for a call, by up to 1.6 times in a virtual machine, and a
short call is bound by the host. Both sides are never called at the same time, so that one core serves both. The referee
spins meanwhile, and on the other thread of a physical core that would slow them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Set
from pathlib import Path
from types import TracebackType
from typing import Final

from shared import native

from oracle.peer import Peer

LEAST: Final = 3
"""One for the referee, one for both sides, one for all else."""


class Cores:
    """While it is entered, is_pinned says whether the machine lets us. What was before is there again afterwards."""

    def __init__(self, *peers: Peer) -> None:
        self._peers = peers
        self._before = os.sched_getaffinity(0)
        self._theirs: list[tuple[Peer, list[int]]] = []
        self.is_pinned = False

    def __enter__(self) -> Cores:
        if len(self._before) < LEAST:
            return self
        referee, both = choose(self._before)
        try:
            for peer in self._peers:
                self._theirs.append((peer, native.cores_of(peer.pidfd)))
                _pin(peer, [both])
            os.sched_setaffinity(0, [referee])
            self.is_pinned = True
        except OSError:  # a container may forbid it: reported by is_pinned, and not needed for a right answer
            self._restore()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _restore(self) -> None:
        os.sched_setaffinity(0, self._before)
        for peer, cores in self._theirs:
            with contextlib.suppress(OSError):
                _pin(peer, cores)


def choose(cores: Set[int]) -> tuple[int, int]:
    """The referee's core and that of both sides, of two or more: of two physical ones, the second unshared."""
    other = {core: sibling(core) for core in cores}
    both = max(cores, key=lambda core: (other[core] in cores, core))
    referee = max(cores - {both}, key=lambda core: (core != other[both], core))
    return referee, both


def sibling(core: int) -> int:
    """The other thread of the same physical core. Virtual machines seldom report it: then the next core, if any."""
    try:
        text = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list").read_text()
        found = {int(number) for number in text.replace("-", ",").split(",")} - {core}
    except (OSError, ValueError):
        found = set()
    return min(found, default=core ^ 1)


def _pin(peer: Peer, cores: Iterable[int]) -> None:
    """All of the child's threads; a child that is gone needs none."""
    was_frozen = peer.is_frozen
    peer.freeze()
    try:
        if peer.is_alive():
            native.pin(peer.pidfd, cores)
    finally:
        if not was_frozen:
            peer.thaw()

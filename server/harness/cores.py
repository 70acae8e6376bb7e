"""The cores of a timing: kept awake, and the same one for both sides.

A core without work halts, and to wake it takes 50 to 100 us of the time that is measured, as long as it lasts on that
day. Cores of one machine differ in speed by up to 1.6 times, and a short call is bound by the host. So for as long
as a timing runs both sides are called on one core, which they never use at the same time, and the referee has another.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from types import TracebackType
from typing import Final

import native
from peer import Peer

LEAST: Final = 3
"""One for the referee, one for both sides, one for the driver's helpers and all else."""
MOST: Final = 4
"""Of more cores than this the last LEAST are taken: nobody has kept them for us."""


class Cores:
    """While it is entered, is_pinned says whether the machine lets us. What was before is there again afterwards."""

    def __init__(self, *peers: Peer) -> None:
        self._peers = peers
        self._before = os.sched_getaffinity(0)  # the children run where the referee does
        self.is_pinned = False

    def __enter__(self) -> Cores:
        cores = sorted(self._before)
        if len(cores) < LEAST:
            return self
        cores = cores if len(cores) <= MOST else cores[-LEAST:]
        try:
            for peer in self._peers:
                _pin(peer, cores[1:2])
            os.sched_setaffinity(0, cores[:1])
            native.awake_begin(cores)
            self.is_pinned = True
        except OSError:  # a container may forbid it: told by is_pinned, and not needed for a right answer
            self._restore()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _restore(self) -> None:
        native.awake_end()
        os.sched_setaffinity(0, self._before)
        for peer in self._peers:
            with contextlib.suppress(OSError):
                _pin(peer, self._before)


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

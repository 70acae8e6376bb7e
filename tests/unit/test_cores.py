"""The cores of a timing: one for the referee, the same other one for both sides, and what was before afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "server" / "harness"))

from oracle import cores
from shared import native


class Sleeper:
    """What Cores asks of a peer, of a process that sleeps."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(["sleep", "300"])
        self.pidfd = os.pidfd_open(self.process.pid)
        self.is_frozen = False

    def freeze(self) -> None:
        if not self.is_frozen and self.is_alive():
            native.stop(self.pidfd)
            self.is_frozen = True

    def thaw(self) -> None:
        if self.is_frozen:
            native.cont(self.pidfd)
        self.is_frozen = False

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.pidfd)


@pytest.fixture
def sleepers() -> Iterator[tuple[Sleeper, Sleeper]]:
    both = Sleeper(), Sleeper()
    yield both
    for sleeper in both:
        sleeper.end()


def cores_of(sleepers: tuple[Sleeper, Sleeper]) -> list[set[int]]:
    return [os.sched_getaffinity(sleeper.process.pid) for sleeper in sleepers]


def test_the_referee_is_no_neighbour_of_both_sides_where_there_is_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "sibling", lambda core: core ^ 1)
    assert cores.choose({29, 30, 31}) == (29, 31)
    assert cores.choose({26, 27, 28}) == (28, 27)
    assert cores.choose({1, 2, 4}) == (2, 4)
    assert cores.choose({4, 5}) == (4, 5)
    monkeypatch.setattr(cores, "sibling", lambda core: (core + 32) % 64)
    assert cores.choose({29, 30, 31, 61}) == (31, 61)


def test_a_sibling_is_another_core() -> None:
    assert all(cores.sibling(core) != core for core in os.sched_getaffinity(0))


def test_both_sides_share_a_core_and_the_referee_has_another(
    sleepers: tuple[Sleeper, Sleeper], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("one core")
    monkeypatch.setattr(cores, "LEAST", 2)
    sleepers[1].freeze()
    elsewhere = {min(before)}
    os.sched_setaffinity(sleepers[0].process.pid, elsewhere)  # children are not where the referee is
    with cores.Cores(*sleepers) as taken:  # type: ignore[arg-type]
        assert taken.is_pinned
        first, second = cores_of(sleepers)
        assert first == second and len(first) == 1
        assert len(os.sched_getaffinity(0)) == 1 and first.isdisjoint(os.sched_getaffinity(0))
        assert [sleeper.is_frozen for sleeper in sleepers] == [False, True]
    assert os.sched_getaffinity(0) == before and cores_of(sleepers) == [elsewhere, before]
    assert [sleeper.is_frozen for sleeper in sleepers] == [False, True]


def test_too_few_cores_are_left_as_they_are(sleepers: tuple[Sleeper, Sleeper], monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.sched_getaffinity(0)
    monkeypatch.setattr(cores, "LEAST", len(before) + 1)
    with cores.Cores(*sleepers) as taken:  # type: ignore[arg-type]
        assert not taken.is_pinned and os.sched_getaffinity(0) == before and cores_of(sleepers) == [before, before]


def test_a_side_that_has_died_needs_no_core(sleepers: tuple[Sleeper, Sleeper], monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("one core")
    monkeypatch.setattr(cores, "LEAST", 2)
    with cores.Cores(*sleepers) as taken:  # type: ignore[arg-type]
        assert taken.is_pinned
        sleepers[0].process.kill()
        sleepers[0].process.wait()
    assert os.sched_getaffinity(0) == before and os.sched_getaffinity(sleepers[1].process.pid) == before


def test_a_core_that_does_not_exist_is_refused(sleepers: tuple[Sleeper, Sleeper]) -> None:
    sleepers[0].freeze()
    with pytest.raises(OSError, match="core -1"):
        native.pin(sleepers[0].pidfd, [-1])
    with pytest.raises(OSError, match="pin process"):
        native.pin(sleepers[0].pidfd, [1023])

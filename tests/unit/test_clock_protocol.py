"""Each mechanism of the clock's protocol: a cheat made for it wins where it is turned off, and loses where it is on.

Without a GPU the work of a call is a pause, and the GPU's part is host_gpu.py; what needs a GPU is in
test_clock_gpu.py.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rig import Rig, policy
from shared.wire import WORKER_DETAIL_MAX

from oracle import clock  # isort: skip

PRELUDE = """
import host_gpu, referee
referee.Referee._timing = lambda self, job: host_gpu.time_job(job, {directory!r})
"""

TASK = """
import time, torch
class Model(torch.nn.Module):
    def forward(self, x):
        time.sleep(0.15)
        return x * 2 + 1
def get_inputs():
    return [torch.randn(64, 64)]
def get_init_inputs():
    return []
"""
TRIES = 3
SHORT_NS = 10**9
"""Calls under this are made several times for a bell."""
SHORT = TASK.replace("        time.sleep(0.15)\n", "")
HONEST = TASK.replace("Model(", "ModelNew(")
SHORT_HONEST = SHORT.replace("Model(", "ModelNew(")


class Bench:
    """One referee, whose protocol is changed by a file."""

    def __init__(self, rig: Rig, directory: Path) -> None:
        self._rig = rig
        self._directory = directory
        self._tasks: dict[str, tuple[str, dict[str, Any]]] = {}

    def time(
        self,
        source: str,
        *,
        task: str = TASK,
        others: list[int] | str = "",
        trials: int = 5,
        rules: str = "kernelbench",
        **changes: Any,
    ) -> dict[str, Any]:
        """The report of the timing stage; what comes before it must have passed."""
        if task not in self._tasks:
            child = self._rig.child()
            self._tasks[task] = child, self._rig.register(child, task)
        (self._directory / "protocol").write_text(json.dumps(changes))
        (self._directory / "others").write_text(json.dumps(others or []))
        given = policy(
            rules,
            variations={"count": 1},
            timing={"warmup": 2, "trials": trials, "fixed": True, "events": True},
        )
        child, spec = self._tasks[task]
        found = self._rig.judge(child, spec, task, source, stages=("tiny", "full", "timing"), rules=given)
        assert list(found)[-1] == "timing", found
        return found["timing"]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    directory = tmp_path_factory.mktemp("clock")
    with Rig(directory, prelude=PRELUDE.format(directory=str(directory))) as rig:
        yield Bench(rig, directory)


def speedup(report: dict[str, Any]) -> float:
    """By the least of each side: a busy machine makes some calls longer, and none shorter."""
    assert report["outcome"] == "pass", report
    return float(min(report["detail"]["reference_ns"]) / min(report["detail"]["candidate_ns"]))


def gain(report: dict[str, Any]) -> float:
    """The speed-up of a cheat, which is 0 if it was refused."""
    return speedup(report) if report["outcome"] == "pass" else 0.0


def test_a_copy_of_the_reference_is_as_fast(bench: Bench) -> None:
    report = bench.time(HONEST)
    assert 0.7 < speedup(report) < 1.4
    detail = report["detail"]
    assert (detail["calls"], detail["bells"], detail["trials"]) == (1, 5, 5)
    assert detail["basis"] == "wall"
    assert [block["void"] for block in detail["clocks"]["blocks"]] == [None]
    assert 5e7 < min(detail["reference_ns"]) < 1e9
    assert 5e7 < detail["host_candidate_ns"] < 1e9


def test_a_hundred_trials_reuse_the_sets_of_inputs(bench: Bench) -> None:
    """What is told of a thousand fits into a message."""
    report = bench.time(SHORT_HONEST, task=SHORT, single_ns=0, trials=100)
    detail = report["detail"]
    assert report["outcome"] == "pass" and detail["bells"] == detail["trials"] == 100
    assert len(detail["reference_ns"]) == len(detail["candidate_ns"]) == 100
    assert 10 * len(json.dumps(detail)) < WORKER_DETAIL_MAX / 2


def test_a_short_call_is_made_many_times_for_a_bell(bench: Bench) -> None:
    report = bench.time(SHORT_HONEST, task=SHORT, single_ns=SHORT_NS)
    detail = report["detail"]
    assert report["outcome"] == "pass" and detail["calls"] == 8 and detail["one_call"] is None
    assert detail["bells"] == detail["trials"] == 5


IN_PLACE = TASK.replace("0.15", "0.02").replace("x * 2 + 1", "x.mul_(2) + 1")
IN_PLACE_SHORT = IN_PLACE.replace("        time.sleep(0.02)\n", "")


@pytest.mark.parametrize(
    ("task", "rules"), [(IN_PLACE, "kernelbench"), (IN_PLACE, "strict"), (IN_PLACE_SHORT, "strict")]
)
def test_a_reference_may_change_its_inputs(bench: Bench, task: str, rules: str) -> None:
    """Where it was called first the candidate was given what it had left, and an honest one was refused."""
    report = bench.time(task.replace("Model(", "ModelNew("), task=task, rules=rules, single_ns=SHORT_NS)
    assert report["outcome"] == "pass", report


@pytest.mark.parametrize(
    ("task", "late", "class_"),
    [
        (IN_PLACE, "return x * 2 + 1", "mismatch"),
        (IN_PLACE_SHORT, "return x * 2 + 1", "mismatch"),
        (TASK.replace("0.15", "0.02"), "y = x * 2 + 1; x[3, 5] = 0; return y", "mutated_input"),
    ],
)
def test_what_timed_calls_leave_of_their_inputs_is_compared(bench: Bench, task: str, late: str, class_: str) -> None:
    counts = "self.calls = getattr(self, 'calls', 0) + 1\n        if self.calls > 6:\n            "
    begin = "        return x"
    source = task.replace("Model(", "ModelNew(").replace(begin, f"        {counts}{late}\n{begin}")
    report = bench.time(source, task=task, rules="strict", single_ns=SHORT_NS)
    assert (report["outcome"], report["class"]) == ("fail", class_), report


EARLY = """
import ctypes, threading, time, torch
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.known, self.done = [], {}
        threading.Thread(target=self.watch, daemon=True).start()
    def work(self, x):
        y = x * 2 + 1
        time.sleep(0.15)
        return y
    def first(self, x):  # by no operator: a profile, which there is without a GPU, would keep thousands of them
        return ctypes.c_float.from_address(x.data_ptr()).value
    def watch(self):
        while True:
            for x in list(self.known):
                key = self.first(x)
                if key not in self.done:
                    y = self.work(x)
                    if self.first(x) == key:  # it is not being replaced
                        self.done[key] = y
            time.sleep(0.0002)
    def forward(self, x):
        if not any(x is y for y in self.known):
            self.known.append(x)
        found = self.done.get(self.first(x))
        return self.work(x) if found is None else found.clone()
"""

REPLAY = """
import time, torch
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls, self.seen = 0, {}
    def forward(self, x):
        self.calls += 1
        if self.calls > 8 and id(x) in self.seen:
            return self.seen[id(x)].clone()
        time.sleep(0.15)
        self.seen[id(x)] = x * 2 + 1
        return self.seen[id(x)].clone()
"""

PART = """
import time, torch
class ModelNew(torch.nn.Module):
    calls = 0
    def forward(self, x):
        ModelNew.calls += 1
        y = torch.full_like(x, 7.0)
        share = 8 if ModelNew.calls > 8 else 64
        time.sleep(0.15 * share / 64)
        y[:share] = x[:share] * 2 + 1
        return y
"""

SLOW_EMPTY = (
    HONEST.replace("0.15", "0.13")
    + """
zero, depth = torch.Tensor.zero_, 0
def slow_zero(self):
    global depth
    depth += 1
    try:
        if depth == 1:  # it is called within itself where there is no GPU
            time.sleep(0.11)
        return zero(self)
    finally:
        depth -= 1
torch.Tensor.zero_ = slow_zero
"""
)
"""A little faster than the reference: what is subtracted from both sides makes much of it."""

FALSE_CLOCK = (
    TASK.replace("Model(", "ModelNew(")
    + """
start = time.monotonic_ns()
time.monotonic_ns = lambda: start + (time.perf_counter_ns() - start) // 10
"""
)

CHEATS = [
    pytest.param(EARLY, "freezes", None, id="starts-before-the-bell"),
    pytest.param(REPLAY, "draws_inputs", "mismatch", id="replays-an-old-answer"),
    pytest.param(PART, "samples_secretly", "mismatch", id="computes-what-is-looked-at"),
    pytest.param(PART, "compares", "mismatch", id="computes-a-part"),
    pytest.param(SLOW_EMPTY, "takes_empty_of_reference", None, id="slows-the-empty-call"),
    pytest.param(FALSE_CLOCK, "believes_no_claim", None, id="patches-the-clock"),
]


@pytest.mark.parametrize(("source", "mechanism", "class_"), CHEATS)
def test_cheat_wins_without_its_mechanism_and_loses_with_it(
    bench: Bench, source: str, mechanism: str, class_: str | None
) -> None:
    flush: dict[str, Any] = (
        {"flush_s": 0.25} if mechanism == "freezes" else {}
    )  # a flush as long as the work that it hides
    off: dict[str, Any] = {**flush, "caps_reference": False, mechanism: False}
    # A cheat that is not woken in time is slow or wrong, and says nothing of the mechanism.
    assert any(gain(bench.time(source, **off)) > 1.4 for _ in range(TRIES))
    report = bench.time(source, **flush)
    if class_ is None:
        assert gain(report) < 1.3
    else:
        assert (report["outcome"], report["class"]) == ("fail", class_)


SKIPS = """
import time, torch
class ModelNew(torch.nn.Module):
    calls, last = 0, 0.0
    def forward(self, x):
        now = time.monotonic()
        is_first, ModelNew.last = now - ModelNew.last > 0.001, now
        ModelNew.calls += 1
        if is_first or ModelNew.calls < 40:
            return x * 2 + 1
        return torch.empty_like(x)
"""


def test_a_call_that_is_skipped_within_a_bell_is_found(bench: Bench) -> None:
    """The samples of a bell lie in the outputs of all its calls."""
    assert bench.time(SKIPS, task=SHORT, single_ns=SHORT_NS, samples_secretly=False)["outcome"] == "pass"
    report = bench.time(SKIPS, task=SHORT, single_ns=SHORT_NS)
    assert (report["outcome"], report["class"]) == ("fail", "mismatch")


def test_a_host_that_became_slower_is_not_held_against_short_calls(bench: Bench) -> None:
    """Over its cap, the reference is looked at again while the candidate is frozen; a long call's cap stays."""
    task, honest = (source.replace("0.15", "0.01") for source in (TASK, HONEST))
    short = bench.time(honest, task=task, single_ns=SHORT_NS, known_ns=1.0)
    assert short["detail"]["calls"] > 1 and speedup(short) > 0.1  # a thousandth, were it scaled down
    assert short["detail"]["baseline_ns"] > 5e6
    long = bench.time(honest, task=task, known_ns=1.0)
    assert long["detail"]["calls"] == 1 and speedup(long) < 0.01


def test_blocks_with_somebody_elses_work_are_void(bench: Bench) -> None:
    report = bench.time(HONEST, others=[0] * 20 + [2_000_000], caps_reference=False)
    assert report["outcome"] == "pass", report
    detail = report["detail"]
    assert [block["void"] for block in detail["clocks"]["blocks"]] == [None, "background"]
    assert detail["bells"] == 5


def test_what_a_void_block_made_of_empty_bells_is_subtracted_from_nobody() -> None:
    timer = clock.Timer.__new__(clock.Timer)
    timer._calls = 1
    timer._blocks = [clock.Block([5000] * 5, [3000] * 5, [1000] * 5)]
    timer._void = [clock.Block([9000] * 5, [3000] * 5, [2900] * 5) for _ in range(2)]
    assert timer._credited() == ([4000.0] * 5, [2000.0] * 5)


def test_somebody_elses_work_at_an_empty_bell_voids_the_block(bench: Bench) -> None:
    """Each bell is looked at twice: nine that tell how long a call is, one of each side, and then the empty one."""
    report = bench.time(HONEST, others=[0] * 2 * (9 + 2) + [2_000_000], trials=1, caps_reference=False)
    assert [block["void"] for block in report["detail"]["clocks"]["blocks"]] == [None, "background"]


BRIEF, BRIEF_HONEST = (source.replace("0.15", "0.01") for source in (TASK, HONEST))


def test_work_that_ends_with_the_candidate_was_the_candidates(bench: Bench) -> None:
    report = bench.time(BRIEF_HONEST, task=BRIEF, others="alive")
    assert (report["outcome"], report["class"], report["rule"]) == ("fail", "hack", "background_work"), report
    ignored = bench.time(HONEST, others="alive", voids_blocks=False)
    assert ignored["outcome"] == "pass"


@pytest.mark.parametrize("whose", ["bursts", "awake"])
def test_a_neighbours_bursts_and_the_references_own_work_are_no_hack(bench: Bench, whose: str) -> None:
    """Between bursts the GPU is quiet for long enough; the reference is frozen while it is looked whether it is."""
    report = bench.time(BRIEF_HONEST, task=BRIEF, others=whose, trials=40)
    assert report["outcome"] == "pass", report
    assert report["detail"]["outcome"] == "inconclusive" and "something else" in report["detail"]["why"]


def test_work_that_outlives_the_candidate_was_not_the_candidates(bench: Bench) -> None:
    report = bench.time(HONEST, others="always")
    assert report["outcome"] == "pass"
    assert report["detail"]["outcome"] == "inconclusive" and "something else" in report["detail"]["why"]


def pairs_of(heads_ns: list[int], hidden_ns: int) -> tuple[int, int]:
    """A pair whose heads come so, two to each time that it is made: how often it is, and what it gives."""
    timer = clock.Timer.__new__(clock.Timer)
    timer._head_ns, timer._again = hidden_ns, 0
    made: list[int] = []

    def once(*_: Any, **__: Any) -> tuple[int, int, int | None]:
        made.append(1)
        timer._note_head(heads_ns.pop(0))
        timer._note_head(heads_ns.pop(0))
        return len(made), len(made), None

    timer._pair_once = once  # type: ignore[method-assign]
    found = timer._pair(clock.Block(), 0, has_empty=False)
    assert timer._again == len(made) - 1
    return len(made), found[0]


def test_a_pair_whose_head_is_over_late_is_made_again() -> None:
    """Within 0.1 ms of what it should be is in time. Where all are late, launches are counted, then nobody knows."""
    late, right = clock.HEAD_NS + 330_000, clock.HEAD_NS + 50_000
    assert pairs_of([right, right], clock.HEAD_NS) == (1, 1)
    assert pairs_of([right, late, right, right], clock.HEAD_NS) == (2, 2)
    most = clock.AGAIN_MOST
    assert pairs_of([late, right] * most + [right] * 2, clock.HEAD_NS) == (most + 1, most + 1)
    with pytest.raises(clock.NotHidden):
        pairs_of([late, right] * (most + 1), clock.HEAD_NS)
    with pytest.raises(clock.Disturbed):
        pairs_of([late, right] * (most + 1), 0)


def test_a_canary_that_is_slow_alone_has_its_pair_made_again(bench: Bench) -> None:
    """What is over within one turn of its context is not seen twice."""
    report = bench.time(HONEST, hiccups=[0] * 2 * (9 + 1) + [1], caps_reference=False)
    assert report["outcome"] == "pass", report
    clocks = report["detail"]["clocks"]
    assert clocks["again"] == 1 and [block["void"] for block in clocks["blocks"]] == [None]
    assert report["detail"]["bells"] == 5


@pytest.mark.parametrize(
    ("ours_ns", "theirs_ns", "hidden_us"),
    [
        ((3_300_000, 3_000_000), (3_500_000, 3_000_000), [200, 400]),
        ((3_300_000, 3_000_000), (3_700_000, 3_000_000), None),
        ((3_700_000, 3_000_000), (3_300_000, 3_000_000), None),
        ((60_700_000, 60_000_000), (3_300_000, 3_000_000), [600, 200]),  # a hundredth of so long a bell
        ((3_300_000, 3_000_000), (1_050_000, 500_000), None),  # half a millisecond of so short a one
    ],
)
def test_what_a_head_hides_is_a_launch_and_no_more(
    ours_ns: tuple[int, int], theirs_ns: tuple[int, int], hidden_us: list[int] | None
) -> None:
    """T with the launch on the clock and behind a head, c being 0.4 and 0.3 ms; the least of two blocks counts."""
    timer = clock.Timer.__new__(clock.Timer)
    timer._calls = 4
    (ours, ours_behind), (theirs, theirs_behind) = ours_ns, theirs_ns
    timer._blocks = [
        clock.Block([ours_behind] * 5, [theirs_behind] * 5, [300_000] * 5, [(ours + more, theirs + more, 400_000)])
        for more in (0, 200_000)
    ]
    if hidden_us is None:
        with pytest.raises(clock.NotHidden):
            timer._require_hidden_launches()
        return
    timer._require_hidden_launches()
    assert [round(ns / 1000) for ns in timer._launch_ns] == hidden_us


def test_a_reference_is_asked_once_whether_it_draws_numbers() -> None:
    class Asked(clock.Timer):
        asked = 0

        def __init__(self, known: dict[str, bool]) -> None:
            self._model = "own.0"
            self._job = SimpleNamespace(reference=SimpleNamespace(draws_numbers=known))  # type: ignore[assignment]

        def _answers_differ(self) -> bool:
            Asked.asked += 1
            return True

    known: dict[str, bool] = {"tiny.0": False}
    assert Asked(known)._draws_numbers() and Asked(known)._draws_numbers()
    assert Asked.asked == 1 and known == {"tiny.0": False, "own.0": True}


class Paced(clock.Timer):
    """Whose pairs are off by `scatter` in turn. empty: of each block, beside which of its pairs a bell is empty."""

    def __init__(self, calls: int, hidden_ns: int, scatter: float, *, fixed: bool = False, trials: int = 50) -> None:
        rules = SimpleNamespace(trials=trials, is_fixed=fixed)
        self._job = SimpleNamespace(policy=rules, candidate=None)  # type: ignore[assignment]
        self._gpu = SimpleNamespace(state=dict)  # type: ignore[assignment]
        self._protocol = clock.Protocol(freezes=False, caps_reference=False)
        self._theirs = clock.Side(None)  # type: ignore[arg-type]
        self._calls, self._head_ns, self._scatter = calls, hidden_ns, scatter
        self._is_long, self._is_short = calls == 1, calls > 1
        self._blocks, self._void, self._baseline_ns = [], [], None
        self._state_before = self._state_known = None
        self._end_s = time.monotonic() + 600
        self.empty: list[list[bool]] = []
        self.counted = 0

    def _trial(self, block: clock.Block, *, turn: int, has_empty: bool) -> None:
        if not block.ours_ns:
            self.empty.append([])
        assert turn == sum(map(len, self.empty))
        self.empty[-1].append(has_empty)
        block.ours_ns.append(10_001_000)
        block.theirs_ns.append(round(10_000_000 * (1 + self._scatter * (turn % 3 - 1))) + 1000)
        block.empty_ns += [1000] * has_empty

    def _trial_counted(self, block: clock.Block, *, turn: int) -> None:
        self.counted += 1


class Choosing(clock.Timer):
    """Chooses how many calls a bell is. single_ns: what one takes; bells: of how many calls each that was rung is."""

    def __init__(self, single_ns: float, *, can_many: bool) -> None:
        reference = SimpleNamespace(sizes=SimpleNamespace(calls=8, checked_sets=2))
        self._job = SimpleNamespace(reference=reference)  # type: ignore[assignment]
        self._protocol = clock.Protocol(freezes=False)
        self._ours, self._theirs = clock.Side(None), clock.Side(None)  # type: ignore[arg-type]
        self._random = random.SystemRandom()
        self._single_ns_is, self._can_many = single_ns, can_many
        self._calls = 1
        self.bells: list[int] = []
        self._choose_calls()

    def _sample(self, calls: int) -> Any:
        return 0, None

    def _reply_bytes(self) -> int:
        return 100

    def _untimed(self, side: clock.Side, bell: clock.Bell) -> int:
        self.bells.append(bell.calls)
        return round(bell.calls * self._single_ns_is)

    def _timed(
        self,
        side: clock.Side,
        bell: clock.Bell,
        sample: clock.Sample,
        block: clock.Block | None = None,
        *,
        leaf: int = 0,
        sets: range | None = None,
    ) -> tuple[int, Any]:
        self.bells.append(bell.calls)
        return round(self._single_ns_is), None

    def _empty(self, leaf: int, sample: clock.Sample, block: clock.Block | None = None) -> int:
        return 0

    def _try_calls(self, calls: int) -> int:
        self.bells.append(calls)
        return calls if self._can_many else 1

    def _bind_empty(self, calls: int) -> None:
        pass


@pytest.mark.parametrize(("single_ns", "can_many", "calls"), [(1e4, True, 8), (1e4, False, 1), (1e7, True, 1)])
def test_the_last_bell_before_the_trials_is_like_theirs(single_ns: float, can_many: bool, calls: int) -> None:
    """Outputs are looked for where the last bell left them: of several calls that were tried they are elsewhere."""
    timer = Choosing(single_ns, can_many=can_many)
    assert timer._calls == calls
    assert timer.bells[-2:] == [calls, calls], timer.bells


@pytest.mark.parametrize(
    ("calls", "hidden_ns", "scatter", "blocks", "counted"),
    [
        (8, clock.HEAD_NS, 0.002, [6], clock.COUNTED),
        (8, clock.HEAD_NS, 0.1, [6] * 6 + [4], clock.COUNTED),
        (8, 0, 0.002, [5, 5], 0),
        (1, clock.HEAD_NS, 0.002, [5, 5], 1),
        (1, 0, 0.002, [5, 5], 0),
    ],
)
def test_bells_that_scatter_little_are_fewer(
    calls: int, hidden_ns: int, scatter: float, blocks: list[int], counted: int
) -> None:
    """Ten calls are made in any case. A wide interval goes on to 40 bells of several calls. Launches are counted once
    of long calls."""
    timer = Paced(calls, hidden_ns, scatter)
    timer._trials()
    assert [len(block) for block in timer.empty] == blocks
    assert timer.counted == counted
    assert {sum(block) for block in timer.empty if len(block) == blocks[0]} == {2 if calls == 1 else 5}


@pytest.mark.parametrize("calls", [1, 4, 16])
@pytest.mark.parametrize("trials", [1, 50, 100, 1000])
def test_exactly_the_fixed_number_of_trials_is_made(calls: int, trials: int) -> None:
    """Each is a bell, however many calls that is; no width and no brief budget of short calls allows fewer."""
    timer = Paced(calls, clock.HEAD_NS, 0.0, fixed=True, trials=trials)
    assert timer._trials() is None
    assert sum(len(block) for block in timer.empty) == trials
    assert len(timer._credited()[0]) == trials


def test_a_hundred_trials_are_made_where_the_interval_stays_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "NARROW", 0.0)
    timer = Paced(1, 0, 0.1, trials=100)
    assert timer._trials() is None
    assert sum(len(block) for block in timer.empty) == 100


def test_fewer_trials_than_the_fixed_number_are_inconclusive() -> None:
    timer = Paced(1, 0, 0.0, fixed=True, trials=100)
    timer._end_s = time.monotonic() - 1
    with pytest.raises(clock.Disturbed, match="10 of 100 trials were made in the 60 s"):
        timer._trials()


def test_who_is_bound_by_launches_is_timed_anew_with_launches_on_the_clock(bench: Bench) -> None:
    named: dict[str, Any] = {"task": SHORT, "single_ns": SHORT_NS, "head_call_ns": (0, 10**10), "is_bound": True}
    report = bench.time(SHORT_HONEST, **named)
    assert report["outcome"] == "pass", report
    detail = report["detail"]
    assert detail["clocks"]["hidden_ns"] == 0 and detail["bells"] == 5
    assert len(detail["clocks"]["blocks"]) == 1
    kept = bench.time(SHORT_HONEST, asks_for_launches=False, **named)
    assert kept["detail"]["clocks"]["hidden_ns"] == clock.HEAD_NS


def test_a_call_is_timed_under_a_head_as_it_is_without(bench: Bench) -> None:
    """Without a GPU nothing keeps it waiting: bells, slopes and what is told are tried."""
    named: dict[str, Any] = {"task": SHORT, "single_ns": SHORT_NS}
    for otherwise in ({"head_call_ns": (0, 1)}, {"head_call_ns": (10**10, 10**11)}, {"hides_launch": False}):
        counted = bench.time(SHORT_HONEST, **otherwise, **named)
        assert counted["detail"]["clocks"]["hidden_ns"] == 0
    report = bench.time(SHORT_HONEST, head_call_ns=(0, 10**10), **named)
    assert report["outcome"] == "pass", report
    detail = report["detail"]
    assert detail["clocks"]["hidden_ns"] == clock.HEAD_NS and detail["calls"] == 8
    assert detail["slopes"]["calls"] == [1, 8] and min(detail["slopes"]["reference_ns"]) > 0

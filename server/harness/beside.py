"""What is timed beside the time that counts, where a policy asks for it.

The other shapes that `full` ran; and, where a call is too short for the clock, as many calls as there are sets,
captured as one CUDA graph on both sides and replayed by one bell, so that their launches cost next to nothing.

All of it comes after the stage and its evidence are done, is added to the report's detail under a key of its own,
and changes nothing else there: a candidate that fails here has failed nowhere else. docs/timing.md has the costs.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import native
import values
from clock import EMPTY_SET, WIDE, Bell, Disturbed, Sample, Side, Timer
from gpu_state import Gpu
from judge import BUILD_LIMIT_MS, Job, Report
from peer import NotTheCandidate, PeerFailed
from wire import DOORBELL_REPLY_MAX, Json

PAIRS: Final = 10
"""Of each shape, however narrow their interval."""
VARIATIONS_S: Final = 10.0
"""No further shape is begun after that."""
SHORT_NS: Final = 100_000
"""Below this an interval that stays wide is the clock's, and a batch may tell more."""
BATCH_SET: Final = 250
"""The set that is bound to a batch."""
KEPT: Final = ("outcome", "why", "calls", "bells", "empty_ns", "reference_ns", "candidate_ns")


class CaseTimer(Timer):
    """The same clock at another case of the task, for PAIRS pairs."""

    def _bounds(self) -> tuple[int, int]:
        return PAIRS, PAIRS


@dataclass
class BatchSide(Side):
    """One of the two, of which a call answers for many once they are captured."""

    captured: int = 0

    def learn(self, calls: int) -> None:
        super().learn(1 if self.captured else calls)
        if not self.captured:
            return
        outputs = self.peer.outputs_of(1)[0]
        if not isinstance(outputs, list) or len(outputs) != self.captured:
            raise PeerFailed("crash", f"the process told no outputs of {self.captured} calls", is_gone=True)
        self.leaves = [list(values.leaves(output)) for output in outputs]


class BatchTimer(Timer):
    """The same clock for many calls at once: all that a bell has to be true of is true of this one.

    Its sets are written anew before it, and elements of the outputs of all its calls are compared.
    """

    def __init__(self, job: Job, gpu: Gpu) -> None:
        super().__init__(job, gpu)
        self._ours, self._theirs = BatchSide(job.reference.peer), BatchSide(job.candidate)
        self._waiting = self._ours

    def _kind(self) -> str:
        return "batched"

    def _choose_calls(self) -> None:
        """As many as there is room for, each with inputs and outputs of its own."""
        if self._draws_numbers():
            raise Disturbed("it draws random numbers, which a graph cannot")
        for side in (self._ours, self._theirs):
            self._untimed(side, Bell(0))
        most = min(self._job.reference.sizes.calls, DOORBELL_REPLY_MAX // (2 * self._reply_bytes()))
        calls = self._try_calls(most) if most > 1 else 1
        if calls == 1:
            raise Disturbed(self._why_one or "there is no room for the inputs and outputs of several calls")
        for name, side in (("reference", self._ours), ("candidate", self._theirs)):
            self._capture(name, side, calls)
        self._calls, self._is_short = calls, True
        for side in (self._ours, self._theirs, self._ours, self._theirs):
            self._untimed(side, self._next_bell())

    def _capture(self, name: str, side: Side, calls: int) -> None:
        assert isinstance(side, BatchSide)
        self._waiting = side
        side.peer.thaw()
        try:
            side.peer.capture(BATCH_SET, calls, BUILD_LIMIT_MS)
        except PeerFailed as failure:
            if failure.is_gone:
                raise
            raise Disturbed(f"the {name}'s calls cannot be captured: {failure.error['text'][:400]}") from None
        side.captured = calls

    def _next_bell(self) -> Bell:
        return Bell(BATCH_SET) if self._calls > 1 else super()._next_bell()

    def _sets_of(self, bell: Bell) -> range:
        return range(self._calls)

    def _sample(self, calls: int) -> tuple[int, Sample]:
        return super()._sample(self._calls)

    def _empty_bell(self) -> Bell:
        """One empty call, as one call replays the batch."""
        return Bell(EMPTY_SET, 1, EMPTY_SET + 1)

    def _outcome(self, ours: list[float], theirs: list[float]) -> Json:
        """No call of a batch is too short: a batch is as long as they are together."""
        if self._disturbed is not None:
            return {"outcome": "inconclusive", "why": self._disturbed}
        outcome, width = native.judge_samples(ours, theirs, 0, WIDE)
        if outcome == native.MEASURED:
            return {"outcome": "measured", "why": None}
        return {"outcome": "inconclusive", "why": f"the interval is +-{100 * width:.0f} % wide"}


def add(job: Job, gpu: Gpu, report: Report) -> Report:
    """The report of a timing stage with what its policy asked for beside it. A failed stage stays as it is."""
    if report.outcome != "pass" or job.compiles:
        return report
    if job.policy.times_batches and is_short(report.detail):
        report.detail["batched"] = time_batch(job, gpu)
    if job.policy.times_variations:
        report.detail["variations"] = time_shapes(job, gpu)
    return report


def is_short(detail: Json) -> bool:
    """Whether a timing has ended without a figure because its calls are short."""
    if detail.get("outcome") == "too_small":
        return True
    times = detail.get("reference_ns") or []
    return detail.get("outcome") == "inconclusive" and bool(times) and statistics.median(times) < SHORT_NS


def time_batch(job: Job, gpu: Gpu) -> Json:
    """Many calls by one bell, each on a set of its own."""
    if not job.candidate.is_alive():
        return failed("crash", "the candidate's process has ended")
    told = outcome_of(partial(BatchTimer, job, gpu))
    with contextlib.suppress(PeerFailed):  # what was captured keeps memory; whoever cannot let go of it is gone
        job.reference.peer.bind(BATCH_SET, "", None, empty="nothing")
        job.candidate.bind(BATCH_SET, "", None, empty="nothing")
    return told


def time_shapes(job: Job, gpu: Gpu) -> list[Json]:
    """Each other shape at which the candidate was right, in the order of the task's."""
    end = time.monotonic() + VARIATIONS_S
    found = []
    for case in job.passed_shapes:
        told: Json = {"name": case["name"], "overrides": case["overrides"]}
        if not job.candidate.is_alive():
            told |= failed("crash", "the candidate's process has ended")
        elif time.monotonic() > end:
            told |= {"outcome": "skipped", "why": f"the other shapes took {VARIATIONS_S:g} s"}
        else:
            told |= outcome_of(partial(CaseTimer, job, gpu, case=case))
        found.append(told)
    return found


def outcome_of(make: Callable[[], Timer]) -> Json:
    """What came of a timing, whoever failed: nothing here ends a stage."""
    try:
        report = make().run()
    except NotTheCandidate as broken:
        return {"outcome": "inconclusive", "why": str(broken)}
    if report.outcome != "pass":
        return failed(report.class_ or "crash", str((report.error or {}).get("text") or "no reason given"))
    return {key: report.detail.get(key) for key in KEPT}


def failed(class_: str, why: str) -> Json:
    """The candidate did what ends a timing as this class where it counts."""
    return {"outcome": "failed", "class": class_, "why": why[:2048]}

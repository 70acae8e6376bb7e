"""What is timed beside the time that counts, where a policy asks for it: the other shapes that `full` ran.

All of it comes after the stage and its evidence are done, is added to the report's detail under a key of its own,
and changes nothing else there: a candidate that fails here has failed nowhere else. docs/timing.md has the costs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from clock import Timer
from gpu_state import Gpu
from judge import Job, Report
from peer import NotTheCandidate
from wire import Json

PAIRS: Final = 10
"""Of each shape: the fewest that an interval is made of."""
VARIATIONS_S: Final = 10.0
"""No further shape is begun after that."""
KEPT: Final = ("outcome", "why", "calls", "bells", "empty_ns", "reference_ns", "candidate_ns")


class CaseTimer(Timer):
    """The same clock at another case of the task, for PAIRS pairs."""

    def _bounds(self) -> tuple[int, int]:
        return PAIRS, PAIRS


def add(job: Job, gpu: Gpu, report: Report) -> Report:
    """The report of a timing stage with what its policy asked for beside it. A failed stage stays as it is."""
    if report.outcome == "pass" and not job.compiles and job.policy.times_variations:
        report.detail["variations"] = time_shapes(job, gpu)
    return report


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

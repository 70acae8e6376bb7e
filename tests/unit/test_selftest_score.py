"""What a run of the corpus comes to, over made-up verdicts: a service that is wrong in any way must not pass."""

from __future__ import annotations

from pathlib import Path

import pytest
from selftest.corpus import Candidate
from selftest.score import Baseline, Json, Score, why_wrong, wilson


def expects(kind: str, classes: str, stage: str | None = None) -> Candidate:
    stages = frozenset([stage] if stage else [])
    path = Path("relu/x.py")
    return Candidate(
        "relu", "x", path, "", False, kind, frozenset(classes.split("|")), stages, "strict", None, False, ""
    )


def verdict(of: str, failed_at: str | None, reward: float | None) -> Json:
    return {"state": "done", "class": of, "failed_at": failed_at, "reward": reward}


def timed(low: float, point: float, high: float, **timing: float) -> Json:
    components = {"speedup_lo": low, "speedup": point, "speedup_hi": high}
    return {**verdict("ok", None, None), "timing": {"outcome": "measured", **timing}, "components": components}


def inconclusive(**timing: float) -> Json:
    return {**verdict("ok", None, None), "timing": {"outcome": "inconclusive", **timing}, "components": {}}


def add(score: Score, kind: str, expected: str, got: str | None, work: str = "rows") -> None:
    found = verdict(got, None if got == "ok" else "full", 0.0) if got else None
    score.add(work, expects(kind, expected), found)


def probe(score: Score, got: str) -> None:
    score.add_probe(Baseline("ok"), verdict(got, None, 0.7), 2)


@pytest.fixture
def clean() -> Score:
    """All is as it must be: two cheats killed, an honest kernel and a suspicious one passed, a mistake refused."""
    score = Score()
    for row in (
        ("cheat", "hack"),
        ("cheat", "mismatch"),
        ("honest", "ok"),
        ("suspicious", "ok"),
        ("mistake", "mismatch"),
        ("robustness", "crash"),
    ):
        add(score, *row, row[1])
    probe(score, "ok")
    return score


def test_a_clean_run(clean: Score) -> None:
    assert clean.is_clean(True)
    found = clean.document()
    keys = ("ran", "killed", "followed", "surprises", "kill_rate", "false_reject_rate")
    assert [found[key] for key in keys] == [6, 2, 2, 0, 1.0, 0.0]


def test_a_daemon_that_accepts_everything_does_not_pass() -> None:
    score = Score()
    for got in ("ok", "ok", "ok", "hack"):
        add(score, "cheat", "hack", got)
    add(score, "honest", "ok", "ok")
    probe(score, "ok")
    assert not score.is_clean(True) and not score.is_clean(False)
    assert (score.document()["kill_rate"], score.document()["surprises"]) == (0.25, 3)


def test_one_that_refuses_everything_does_not_pass() -> None:
    """A cheat that crashes was not recognised, an honest kernel was refused."""
    score = Score()
    add(score, "cheat", "hack", "crash")
    add(score, "honest", "ok", "mismatch")
    add(score, "suspicious", "ok", "ok")
    assert (score.document()["kill_rate"], score.document()["false_reject_rate"]) == (0.0, 0.5)
    assert not score.is_clean(False)


@pytest.mark.parametrize(
    ("row", "kill_rate"),
    [
        (("suspicious", "ok", "hack"), 1.0),
        (("mistake", "mismatch", "ok"), 1.0),
        (("mistake", "mismatch", None), 1.0),  # ours, not the candidate's: no verdict at all, or infra
        (("cheat", "hack", "infra"), 2 / 3),
    ],
)
def test_one_thing_spoils_it(clean: Score, row: tuple[str, str, str | None], kill_rate: float) -> None:
    add(clean, *row)
    assert not clean.is_clean(True)
    assert clean.document()["kill_rate"] == kill_rate


def test_one_honest_kernel_after_a_cheat_spoils_it(clean: Score) -> None:
    probe(clean, "mismatch")
    assert (clean.contaminated, clean.is_clean(True)) == (1, False)


def test_what_did_not_run_is_not_counted(clean: Score) -> None:
    clean.skip(expects("cheat", "hack"))
    assert clean.is_clean(True)
    assert (clean.kinds["cheat"].rows, clean.kinds["cheat"].skipped, clean.document()["kill_rate"]) == (3, 1, 1.0)

    # A run of skips shows nothing.
    score = Score()
    score.skip(expects("cheat", "hack"))
    assert score.document()["kill_rate"] is None
    assert not score.is_clean(True) and not score.is_clean(False)

    # Without a cheat it is no whole run.
    add(score, "honest", "ok", "ok")
    assert score.is_clean(False) and not score.is_clean(True)


MISTAKE, HACK = expects("mistake", "mismatch|shape", "tiny"), expects("cheat", "hack")


@pytest.mark.parametrize(
    ("candidate", "found", "why"),
    [
        (MISTAKE, verdict("shape", "tiny", 0.3), ""),
        (MISTAKE, verdict("mismatch", "full", 0.5), "mismatch at stage full, expected tiny"),
        (MISTAKE, verdict("ok", None, 1.0), "class ok, expected shape|mismatch"),
        (MISTAKE, {"state": "cancelled"}, "class (none), expected shape|mismatch"),
        (MISTAKE, verdict("mismatch", None, None), ""),  # what a token may not see is null, and not judged
        (HACK, verdict("hack", "full", 0.5), "class hack with a reward of 0.5"),
        (HACK, verdict("hack", "full", -1.0), ""),
    ],
)
def test_what_is_right(candidate: Candidate, found: Json, why: str) -> None:
    assert why_wrong(candidate, found) == why


@pytest.fixture
def baseline() -> Baseline:
    found = Baseline()
    found.add(timed(1.00, 1.05, 1.15))
    found.add(timed(1.05, 1.10, 1.20))
    assert found.is_timed
    return found


@pytest.mark.parametrize(
    ("found", "is_spoilt", "has_time"),
    [
        (timed(1.00, 1.10, 1.20), False, True),  # the same
        (timed(1.15, 1.24, 1.30), False, True),  # overlaps
        (timed(1.24, 1.25, 1.28), False, True),  # outside by less than 5 % of 1.20
        (timed(1.27, 1.30, 1.33), True, True),
        (timed(0.93, 0.94, 0.96), False, True),
        (timed(0.90, 0.92, 0.94), True, True),
        (timed(40.0, 44.0, 48.0), True, True),
        # Of a short reference a quarter is let pass, and no more.
        (timed(1.40, 1.44, 1.48), True, True),
        (timed(1.40, 1.44, 1.48, reference_ms=0.04), False, True),
        (timed(1.52, 1.55, 1.60, reference_ms=0.04), True, True),
        # Every baseline had a time, and this has none.
        (inconclusive(), True, False),
        # One whose interval stayed wide speaks by it, unless it says nothing.
        (inconclusive(speedup_lo=1.1, speedup=1.3, speedup_hi=1.9), False, False),
        (inconclusive(speedup_lo=1.4, speedup=1.8, speedup_hi=2.4), True, False),
        (inconclusive(speedup_lo=0.5, speedup=1.1, speedup_hi=2.0), True, False),
    ],
)
def test_contamination_by_time(baseline: Baseline, found: Json, is_spoilt: bool, has_time: bool) -> None:
    score = Score()
    score.add_probe(baseline, found, 1)
    assert (score.contaminated, score.times_compared) == (is_spoilt, has_time)


def test_a_baseline_that_is_not_always_timed_is_nothing_to_compare_with(baseline: Baseline) -> None:
    baseline.add(inconclusive())
    assert baseline.why_spoilt(inconclusive()) == "" == baseline.why_spoilt(timed(40, 44, 48))
    assert not baseline.has_time(timed(40, 44, 48))


def test_the_other_policy_has_no_effect(clean: Score) -> None:
    clean.add_other(expects("cheat", "hack"), verdict("ok", None, 1.0))
    assert clean.is_clean(True)
    assert clean.document()["kinds"]["cheat"]["other_accepted"] == 1


@pytest.mark.parametrize(
    ("part", "whole", "low", "high"),
    [
        (0, 0, 0, 1),
        (0, 10, 0, 0.2775),
        (10, 10, 0.7225, 1),
        (5, 50, 0.0435, 0.2136),
        (1, 1000, 0.00018, 0.00564),
    ],
)
def test_wilsons_interval(part: int, whole: int, low: float, high: float) -> None:
    assert wilson(part, whole) == pytest.approx((low, high), abs=5e-5)


def test_errors_are_counted_by_kind_of_task() -> None:
    """Issue 24, point 7."""
    score = Score()
    for work, kind, expected, got in (
        ("reduction", "honest", "ok", "ok"),
        ("reduction", "suspicious", "ok", "mismatch"),
        ("scan", "mistake", "mismatch", "ok"),
        ("scan", "mistake", "mismatch", "shape"),  # another class than expected, and not accepted
        ("scan", "cheat", "ok", "ok"),  # of which a plan does not let it gain anything
        ("scan", "robustness", "crash", "ok"),
        ("scan", "cheat", "hack", None),  # not judged
    ):
        add(score, kind, expected, got, work)
    tasks = score.document()["tasks"]
    assert tasks["scan"]["false_rejects"] is None
    accepts, rejects = tasks["scan"]["false_accepts"], tasks["all"]["false_rejects"]
    assert (accepts["count"], accepts["of"], rejects["count"], rejects["of"]) == (1, 3, 1, 2)
    assert (accepts["rate"], accepts["low"]) == pytest.approx((1 / 3, 0.0615), abs=5e-5)

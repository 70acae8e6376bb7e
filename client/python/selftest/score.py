"""The results of a run of the corpus: pure. What a token may not see of a verdict is null, and is not judged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .corpus import KINDS, Candidate

Json = dict[str, Any]
Verdict = Mapping[str, Any]
Interval = tuple[float, float, float]
"""Of a speedup: low, point, high."""

SLACK = 0.05
"""How far an honest kernel's speedup may lie outside the interval that it had before the cheats."""
SHORT_MS = 0.1
"""Calls of a shorter reference are bound by the host, and their intervals do not cover what differs by process."""
SHORT_SLACK = 0.25
WIDEST = 2.0
"""Upper end by lower end, at most, of an interval too wide to be credited that is still compared."""
_Z = 1.959964  # of 95 %
_CHEATS = ("policy", "hack")


def class_of(verdict: Verdict) -> str:
    return verdict.get("class") or ""


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def why_wrong(candidate: Candidate, verdict: Verdict) -> str:
    """In what it is not as the corpus expects; empty where it is."""
    found, stage, reward = class_of(verdict), verdict.get("failed_at"), _number(verdict.get("reward"))
    if found not in candidate.classes:
        return f"class {found or '(none)'}, expected {candidate.expected}"
    if found != "ok" and candidate.stages and stage and stage not in candidate.stages:
        return f"{found} at stage {stage}, expected {candidate.expected_stages}"
    if found in _CHEATS and reward is not None and reward > 0:
        return f"class {found} with a reward of {reward:g}"
    return ""


@dataclass
class Kind:
    """Of one kind of candidate. Where ran and skipped are short of rows, the rest was not judged."""

    rows: int = 0
    ran: int = 0
    skipped: int = 0
    right: int = 0
    """Class, stage and reward are as expected."""
    refused: int = 0
    """The class is not ok."""
    expected: int = 0
    """The class is as expected, but another part is not."""
    other_ran: int = 0
    other_accepted: int = 0


@dataclass
class Work:
    """The two ways in which a verdict errs, of the tasks of one kind of work."""

    wrong: int = 0
    """Cheats and mistakes that ran; accepted: as ok, though that is not expected of them."""
    accepted: int = 0
    right: int = 0
    """Honest and suspicious ones that ran; refused: those of another class than ok."""
    refused: int = 0


def interval_of(verdict: Verdict) -> Interval | None:
    """Of a timing that was measured."""
    components = verdict.get("components") or {}
    point = _number(components.get("speedup"))
    if (verdict.get("timing") or {}).get("outcome") != "measured" or not point or not 0 < point < math.inf:
        return None
    low, high = _number(components.get("speedup_lo")), _number(components.get("speedup_hi"))
    return point if low is None else low, point, point if high is None else high


def _wide_interval(verdict: Verdict) -> Interval | None:
    """Of one that stayed too wide to be credited, and still says something."""
    timing = verdict.get("timing") or {}
    low, point, high = (_number(timing.get(key)) or 0.0 for key in ("speedup_lo", "speedup", "speedup_hi"))
    return (low, point, high) if timing.get("outcome") == "inconclusive" and 0 < high <= WIDEST * low else None


@dataclass
class Baseline:
    """An honest kernel's verdicts before anything hostile ran. cls is empty before the first."""

    cls: str = ""
    times: list[Interval | None] = field(default_factory=list)

    def add(self, verdict: Verdict) -> None:
        self.cls = self.cls or class_of(verdict)
        self.times.append(interval_of(verdict))

    @property
    def is_timed(self) -> bool:
        return bool(self.times) and None not in self.times

    def has_time(self, verdict: Verdict) -> bool:
        return self.is_timed and interval_of(verdict) is not None

    def why_spoilt(self, verdict: Verdict) -> str:
        """The differences of this later verdict on the same kernel; empty: none."""
        if class_of(verdict) != self.cls:
            return f"class {class_of(verdict)}, was {self.cls} before"
        if not self.is_timed:
            return ""
        now = interval_of(verdict) or _wide_interval(verdict)
        if now is None:
            return "not timed, was timed before"
        before = [one for one in self.times if one]
        low, high = min(one[0] for one in before), max(one[2] for one in before)
        reference_ms = _number((verdict.get("timing") or {}).get("reference_ms"))
        slack = SHORT_SLACK if reference_ms is not None and reference_ms < SHORT_MS else SLACK
        if now[2] < low * (1 - slack) or now[0] > high * (1 + slack):
            was = f"was within [{low:.3f}, {high:.3f}] before"
            return f"speedup {now[1]:.3f} [{now[0]:.3f}, {now[2]:.3f}], {was}"
        return ""


@dataclass
class Score:
    kinds: dict[str, Kind] = field(default_factory=lambda: {kind: Kind() for kind in KINDS})
    works: dict[str, Work] = field(default_factory=dict)
    followed: int = 0
    """Hostile rows after which an honest kernel was judged; probes: those honest kernels."""
    probes: int = 0
    contaminated: int = 0
    """Probes with another verdict or time than before; times_compared: those with a time both times."""
    times_compared: int = 0

    def add(self, work: str, candidate: Candidate, verdict: Verdict | None) -> None:
        """Count one row of a task of this kind of work; verdict None: it could not be judged."""
        kind = self.kinds[candidate.kind]
        kind.rows += 1
        if verdict is None:
            return
        is_ok, is_expected = class_of(verdict) == "ok", class_of(verdict) in candidate.classes
        kind.ran += 1
        kind.right += not why_wrong(candidate, verdict)
        kind.refused += not is_ok
        kind.expected += is_expected
        of = self.works.setdefault(work, Work())
        if candidate.is_honest:
            of.right += 1
            of.refused += not is_ok
        elif candidate.kind != "robustness":
            of.wrong += 1
            of.accepted += is_ok and not is_expected

    def skip(self, candidate: Candidate) -> None:
        self.kinds[candidate.kind].rows += 1
        self.kinds[candidate.kind].skipped += 1

    def add_other(self, candidate: Candidate, verdict: Verdict) -> None:
        """Count one row under the other policy, which decides nothing."""
        self.kinds[candidate.kind].other_ran += 1
        self.kinds[candidate.kind].other_accepted += class_of(verdict) == "ok"

    def add_probe(self, baseline: Baseline, verdict: Verdict, followed: int) -> None:
        self.followed += followed
        self.probes += 1
        self.contaminated += bool(baseline.why_spoilt(verdict))
        self.times_compared += baseline.has_time(verdict)

    @property
    def rejected(self) -> tuple[int, int]:
        """Correct candidates that were refused, and how many there are."""
        right = [self.kinds["honest"], self.kinds["suspicious"]]
        return sum(one.refused for one in right), sum(one.ran for one in right)

    def is_clean(self, is_whole: bool) -> bool:
        """All was as it must be. is_whole: nothing was left out, and a cheat, an honest kernel and a probe have run."""
        kinds = self.kinds.values()
        if self.contaminated or any(one.right != one.ran or one.ran + one.skipped != one.rows for one in kinds):
            return False
        needed = [self.kinds["cheat"].ran, self.kinds["honest"].ran, self.probes] if is_whole else []
        return all(needed) and any(one.ran for one in kinds)

    def all_works(self) -> dict[str, Work]:
        """Those of each kind of work, and `all` of them last."""
        of = self.works.values()
        names = ("wrong", "accepted", "right", "refused")
        return {**self.works, "all": Work(*(sum(getattr(one, name) for one in of) for name in names))}

    def document(self) -> Json:
        """The figures of docs/selftest.md."""
        kinds, cheat = self.kinds.values(), self.kinds["cheat"]
        ran, skipped = sum(one.ran for one in kinds), sum(one.skipped for one in kinds)
        return {
            "ran": ran,
            "skipped": skipped,
            "unjudged": sum(one.rows for one in kinds) - ran - skipped,
            "surprises": ran - sum(one.right for one in kinds),
            "killed": cheat.expected,
            "kill_rate": _share(cheat.expected, cheat.ran),
            "false_rejects": self.rejected[0],
            "false_reject_rate": _share(*self.rejected),
            "followed": self.followed,
            "probes": self.probes,
            "contaminated": self.contaminated,
            "times_compared": self.times_compared,
            "other_ran": sum(one.other_ran for one in kinds),
            "kinds": {name: _kind_document(kind) for name, kind in self.kinds.items()},
            "tasks": {
                name: {
                    "false_accepts": _errors(work.accepted, work.wrong),
                    "false_rejects": _errors(work.refused, work.right),
                }
                for name, work in self.all_works().items()
            },
        }


def wilson(part: int, whole: int) -> tuple[float, float]:
    """The 95 % interval of a share."""
    if whole <= 0:
        return 0.0, 1.0
    p, spread = part / whole, _Z * _Z / whole
    middle = (p + spread / 2) / (1 + spread)
    half = _Z * math.sqrt(p * (1 - p) / whole + spread / (4 * whole)) / (1 + spread)
    return 0.0 if part == 0 else middle - half, 1.0 if part == whole else middle + half


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _errors(part: int, whole: int) -> Json | None:
    low, high = wilson(part, whole)
    return {"count": part, "of": whole, "rate": part / whole, "low": low, "high": high} if whole else None


def _kind_document(kind: Kind) -> Json:
    told = {name: getattr(kind, name) for name in ("rows", "ran", "skipped", "right", "refused")}
    return {**told, "other_accepted": kind.other_accepted} if kind.other_ran else told

"""Three columns side by side: what is merged, and what is counted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

from selftest_compare import merge, table


def line(of: str, label: str, kind: str, found: str, *, right: bool = True) -> dict[str, Any]:
    return {of: label, "kind": kind, "class": found, "right": right}


def told(label: str, kind: str, *, accepted: bool | None, speedup: float | None = None) -> dict[str, Any]:
    return {"row": label, "kind": kind, "accepted": accepted, "speedup": speedup, "why": "", "seconds": 1.0}


OURS = [
    line("baseline", "relu/honest", "honest", "ok"),
    line("row", "relu/honest", "honest", "ok"),
    line("row", "relu/patched", "cheat", "hack"),
    line("row", "relu/late", "cheat", "ok", right=False),
    line("row", "relu/unseen", "cheat", "hack"),
    line("other_policy", "relu/patched", "cheat", "ok"),
    line("other_policy", "relu/honest", "honest", "ok"),
    line("probe", "relu/honest", "honest", "ok"),
    {"skipped": "relu/gpu", "kind": "cheat", "why": "needs a GPU"},
    {"ran": 4, "ok": False},
]
THEIRS = [
    told("relu/honest", "honest", accepted=True, speedup=0.9),
    told("relu/patched", "cheat", accepted=True, speedup=60.0),
    told("relu/late", "cheat", accepted=False),
]


def test_rows_are_merged_by_label() -> None:
    rows = merge(OURS, THEIRS)
    assert set(rows) == {"relu/honest", "relu/patched", "relu/late", "relu/unseen"}
    patched = rows["relu/patched"]
    assert (patched.ours, patched.kernelbench, patched.in_process, patched.speedup) == ("hack", "ok", True, 60.0)
    assert not rows["relu/unseen"].is_compared


def test_only_what_was_judged_both_ways_is_counted() -> None:
    text = table(merge(OURS, THEIRS).values(), "a machine")
    assert "| honest | 1 | 1 | 1 | 1 | 0 |" in text
    assert "| cheat | 2 | 1 | 1 of 1 | 1 | 1 |" in text  # the other was not tried so
    assert "Cheats accepted here: relu/late\n" in text
    assert "Cheats accepted under `kernelbench` here: relu/patched\n" in text
    assert "Cheats accepted in one process: relu/patched\n" in text
    assert "Honest kernels refused in one process: none" in text


def test_a_refused_honest_kernel_is_named() -> None:
    ours = [line("row", "relu/odd", "suspicious", "policy", right=False)]
    text = table(merge(ours, [told("relu/odd", "suspicious", accepted=True)]).values(), "a machine")
    assert "Honest kernels refused here: relu/odd\n" in text
    assert text.endswith("Honest kernels refused in one process: none")


def test_what_was_not_reached_is_in_no_count() -> None:
    ours = [{"row": "relu/odd", "kind": "suspicious", "class": "ok", "right": True}]
    text = table(merge(ours, [told("relu/odd", "suspicious", accepted=None)]).values(), "a machine")
    assert "| suspicious | 0 |" in text and "refused in one process: none" in text

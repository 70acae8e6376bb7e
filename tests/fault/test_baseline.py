"""torch.compile's baseline on request: timed once for a task, told with its reason, and never in a verdict's way.

The workers are scripted. The reference's source is the candidate while it is timed compiled, so what is scripted in
the task is how that goes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import service
from scripted import HASTY, SCRIPTED

LIMIT_S = 60.0
ASKED = {"timing": {"compile_baseline": True}}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[service.Daemon]:
    settings = SCRIPTED | {"cache_recheck_percent": 0, "max_attempts": 3}
    with service.directory() as directory, service.Daemon(directory, settings) as daemon:
        yield daemon


def add_task(daemon: service.Daemon, script: str) -> str:
    """A task whose compiled reference does this."""
    name = f"task{time.monotonic_ns()}"
    daemon.client.add_task({"name": name, "reference": f"# script: describe=pass {script}\n# {name}\n"})
    return name


def judge(daemon: service.Daemon, task: str, script: str, **more: Any) -> dict[str, Any]:
    source = f"# script: {script}\n# {time.monotonic_ns()}\n"
    body = {"task": task, "candidate": source, "policy": ASKED, **more}
    verdict: dict[str, Any] = daemon.client.judge(body, LIMIT_S)
    return verdict


def compiled(verdict: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = verdict["timing"]["baselines"]["compile"]
    return found


def test_who_did_not_ask_is_told_nothing(shared: service.Daemon) -> None:
    verdict = judge(shared, add_task(shared, "open=hang"), "timing=2.4", policy="strict")
    assert verdict["class"] == "ok" and verdict["components"]["speedup_compile"] is None
    assert "baselines" not in verdict["timing"] and "compile_baseline" not in verdict["policy_on"]["timing"]


def test_it_is_timed_once_for_a_task(shared: service.Daemon) -> None:
    task = add_task(shared, "timing=1.6")
    first, second = (judge(shared, task, f"timing={x}", reward="milestones") for x in (2.4, 1.2))
    for verdict, speedup, is_cached in ((first, 2.4, False), (second, 1.2, True)):
        told = compiled(verdict)
        assert (verdict["class"], told["outcome"], told["why"], told["cached"]) == ("ok", "measured", None, is_cached)
        assert told["speedup"] == pytest.approx(1.6, rel=1e-3)
        assert told["speedup_lo"] <= told["speedup"] <= told["speedup_hi"] and told["pairs"] == 20
        assert verdict["components"]["speedup"] == pytest.approx(speedup, rel=1e-3)
        assert verdict["components"]["speedup_compile"] == pytest.approx(speedup / 1.6, rel=1e-3)
        assert verdict["policy_on"]["timing"]["compile_baseline"] is True
    assert compiled(first)["measured"] == compiled(second)["measured"]
    assert (first["reward"], second["reward"]) == (3, 2)  # faster than both, and than eager alone
    other = judge(shared, task, "timing=1.2", policy={"precision": "ieee", **ASKED})
    assert compiled(other)["cached"] is False
    hasty = judge(shared, task, "timing=1.2", policy={"timing": ASKED["timing"] | {"trials": 10}})
    assert compiled(hasty)["cached"] is False


def test_the_verdict_cache_knows_who_asked(shared: service.Daemon) -> None:
    task = add_task(shared, "timing=1.6")
    body: dict[str, Any] = {"task": task, "candidate": f"# script: timing=2.4\n# {time.monotonic_ns()}\n"}
    found = [shared.client.judge(body | more, LIMIT_S) for more in ({}, {"policy": ASKED}, {"policy": ASKED})]
    assert [one["cache"] for one in found] == ["miss", "miss", "hit"]
    assert found[2]["timing"]["baselines"] == found[1]["timing"]["baselines"]
    assert found[2]["components"]["speedup_compile"] == pytest.approx(1.5, rel=1e-3)


@pytest.mark.parametrize(
    ("script", "outcome", "why", "is_kept"),
    [
        ("full=fail:mismatch", "failed", "full: mismatch: as the script says", True),
        ("open=fail:import", "failed", "open: import: as the script says", True),
        ("timing=inconclusive", "inconclusive", "as the script says", False),
        ("timing=skip", "skipped", "no reason is known", True),
        ("full=crash", "lost", "full: crash: the process ended", False),
        ("full=reference", "lost", "reference: infra: ", False),
        ("timing=kill_referee", "lost", "", False),
    ],
)
def test_one_that_fails_has_a_reason_and_harms_nobody(
    shared: service.Daemon, script: str, outcome: str, why: str, is_kept: bool
) -> None:
    task = add_task(shared, script)
    first, second = (judge(shared, task, "timing=2.4") for _ in range(2))
    for verdict in (first, second):
        assert (verdict["class"], verdict["attempts"], verdict["passed_stage"]) == ("ok", 1, "timing")
        assert verdict["components"]["speedup"] == pytest.approx(2.4, rel=1e-3)
        assert verdict["components"]["speedup_compile"] is None
        assert compiled(verdict)["outcome"] == outcome and compiled(verdict)["why"].startswith(why)
    assert compiled(second)["cached"] is is_kept


def test_one_that_hangs_is_ended(start_scripted: service.StartDaemon) -> None:
    daemon = start_scripted(**HASTY)
    verdict = judge(daemon, add_task(daemon, "timing=hang"), "timing=2.4")
    assert verdict["class"] == "ok" and compiled(verdict)["outcome"] == "lost"
    assert "timeout" in compiled(verdict)["why"]


def test_a_candidate_that_was_not_timed_has_none(shared: service.Daemon) -> None:
    task = add_task(shared, "open=fail:import")
    for script in ("full=fail:mismatch", "timing=inconclusive"):
        verdict = judge(shared, task, script)
        assert verdict["components"]["speedup_compile"] is None
        if verdict["timing"] is not None:
            told = compiled(verdict)
            assert (told["outcome"], told["why"]) == ("skipped", "the candidate was not timed")


def test_a_drift_ends_what_was_kept(shared: service.Daemon) -> None:
    task = add_task(shared, "timing=1.6")
    assert compiled(judge(shared, task, "timing=2"))["cached"] is False
    assert compiled(judge(shared, task, "timing=2"))["cached"] is True
    drifted = judge(shared, task, "timing=drift,2")
    assert (drifted["class"], drifted["attempts"]) == ("ok", 2)
    assert compiled(drifted)["cached"] is False
    assert compiled(judge(shared, task, "timing=2"))["cached"] is True


def test_a_canary_that_fails_ends_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails after a crash, until the workers were started afresh; the scripted canary sings again by then."""
    flag = tmp_path / "fails"
    monkeypatch.setenv("SCRIPT_CANARY_FAILS_ONCE", str(flag))
    with service.directory() as directory, service.Daemon(directory, SCRIPTED) as daemon:
        task = add_task(daemon, "timing=1.6")
        assert compiled(judge(daemon, task, "timing=2"))["cached"] is False
        assert compiled(judge(daemon, task, "timing=2"))["cached"] is True
        flag.touch()
        assert judge(daemon, task, "full=crash")["class"] == "crash"
        assert compiled(judge(daemon, task, "timing=2"))["cached"] is False


def test_one_that_is_cancelled_meanwhile_is_cancelled(shared: service.Daemon) -> None:
    task = add_task(shared, "full=hang")
    source = f"# script: timing=2\n# {time.monotonic_ns()}\n"
    name = shared.client.submit({"task": task, "candidate": source, "policy": ASKED})
    end = time.monotonic() + LIMIT_S
    while "timing" not in {
        stage["stage"] for stage in shared.client.expect("GET", f"/v1/submissions/{name}")["stages"]
    }:
        assert time.monotonic() < end
        time.sleep(0.02)
    shared.client.expect("DELETE", f"/v1/submissions/{name}")
    assert shared.client.wait(name, LIMIT_S)["state"] == "cancelled"

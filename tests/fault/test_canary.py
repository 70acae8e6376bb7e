"""A GPU's canary by time, and what becomes of one that drifts: its norm outlives workers and the daemon."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import service
from scripted import SCRIPTED, TASK

LIMIT_S = 60.0
USUAL_NS = 300_000


@dataclass
class Gpu:
    """A scripted one: how long its canary takes, and what its referee was asked."""

    folder: Path

    def takes(self, ns: float) -> None:
        new = self.folder / "new"
        new.write_text(str(int(ns)))
        new.rename(self.folder / "ns")  # never seen half written

    def notes(self) -> list[str]:
        path = self.folder / "notes"
        return path.read_text().splitlines() if path.exists() else []

    def canaries(self) -> int:
        return sum(line.startswith("canary") for line in self.notes())


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    monkeypatch.setenv("SCRIPT_CANARY_NS", str(tmp_path / "ns"))
    monkeypatch.setenv("SCRIPT_NOTES", str(tmp_path / "notes"))
    found = Gpu(tmp_path)
    found.takes(USUAL_NS)
    return found


@contextmanager
def daemon(**options: object) -> Iterator[service.Daemon]:
    with service.directory() as directory, service.Daemon(directory, SCRIPTED | options) as running:
        running.client.add_task(TASK)
        yield running


def told(running: service.Daemon) -> dict[str, Any]:
    (found,) = running.client.expect("GET", "/v1/status")["gpus"]
    canary: dict[str, Any] = found["canary"]
    return canary | {"state": found["state"]}


def judge(running: service.Daemon, script: str) -> service.Json:
    return running.client.judge({"task": "scripted", "candidate": f"# script: {script}\n# {time.monotonic_ns()}\n"})


def quarantined(running: service.Daemon) -> dict[str, Any]:
    """What is told of the canary at a moment when the GPU is in quarantine."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        for one in running.client.expect("GET", "/v1/status")["gpus"]:
            if one["state"] == "quarantined":
                canary: dict[str, Any] = one["canary"]
                return canary
        time.sleep(0.02)
    raise AssertionError("it was not quarantined in time")


def test_a_busy_gpu_is_looked_at_between_its_jobs(gpu: Gpu) -> None:
    """Quiet jobs one after another, the last of a stage that times: never beside one, and never left out."""
    with daemon(canary_interval_s=1) as running:
        bodies = [
            {"task": "scripted", "candidate": f"# script: full=sleep:0.5,pass timing=1.1\n# {n}\n"} for n in range(8)
        ]
        ids = [running.client.submit(body) for body in bodies]
        assert {running.client.wait(one, LIMIT_S)["class"] for one in ids} == {"ok"}
        notes = gpu.notes()
    first, last = notes.index("open j2"), max(i for i, line in enumerate(notes) if line.startswith("close"))
    between = [line for line in notes[first:last] if line.startswith("canary")]
    assert len(between) >= 2, notes
    assert {line for line in notes if line.startswith("canary")} == {"canary 0 0"}, notes
    opened = 0
    for line in notes:
        opened += line.startswith("open") - line.startswith("close")
        assert not line.startswith("canary") or opened == 0, notes


def test_an_idle_gpu_is_looked_at_by_the_timer(gpu: Gpu) -> None:
    with daemon(canary_interval_s=1) as running:
        service.wait_for(lambda: gpu.canaries() >= 4)
        found = told(running)
        assert (found["interval_s"], found["why_none"], found["failures"]) == (1, None, 0)
        assert found["passed"] and found["age_s"] is not None and found["passes"] >= 3
        assert (found["ns"], found["norm_ns"], found["drift"], found["failed"]) == (USUAL_NS, USUAL_NS, 0, None)
    assert set(gpu.notes()) == {"canary 0 0"}


def test_it_waits_for_children_that_are_being_made(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes a context beside it slows it; the job has ended long before the pool is full again."""
    monkeypatch.setenv("SCRIPT_MAKE_S", "0.5")
    with daemon(canary_interval_s=86400) as running:
        assert judge(running, "full=crash")["class"] == "crash"
        assert judge(running, "timing=1.1")["class"] == "ok"
    assert [line for line in gpu.notes() if line.startswith("canary")] == ["canary 0 0"] * 2


def test_only_timing_waits_for_the_end_of_the_candidate_before(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SCRIPT_END", str(tmp_path / "end"))
    with daemon(canary_interval_s=86400) as running:
        before = judge(running, "full=print:1000,fail:mismatch")
        assert before["class"] == "mismatch"
        assert len(running.client.get(f"/v1/submissions/{before['id']}/log").body) == 1000
        timed = running.client.submit({"task": "scripted", "candidate": "# script: timing=1.1\n"})
        service.wait_for(lambda: running.client.get(f"/v1/submissions/{timed}").json()["stage"] == "timing")
        time.sleep(0.3)
        assert gpu.notes()[-2:] == ["stage tiny", "stage full"]
        (tmp_path / "end").touch()
        assert running.client.wait(timed, LIMIT_S)["class"] == "ok"
        assert "stage timing" in gpu.notes()


@pytest.mark.slow
def test_a_process_that_does_not_end_is_not_the_next_candidates_fault(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The workers go down for it, with the next job in their hands, whose only attempt that is."""
    monkeypatch.setenv("SCRIPT_END", str(tmp_path / "end"))
    with daemon(canary_interval_s=86400, max_attempts=1) as running:
        assert judge(running, "full=fail:mismatch")["class"] == "mismatch"
        timed = running.client.submit({"task": "scripted", "candidate": "# script: timing=1.1\n"})
        assert running.client.wait(timed, LIMIT_S)["class"] == "infra"
        (tmp_path / "end").touch()


@pytest.mark.parametrize("interval_s", [0, 86400])
def test_none_comes_before_its_time(gpu: Gpu, interval_s: int) -> None:
    with daemon(canary_interval_s=interval_s) as running:
        assert {judge(running, "timing=1.1")["class"] for _ in range(3)} == {"ok"}
        assert gpu.canaries() == 1  # that of the start
        assert judge(running, "full=crash")["class"] == "crash"
        assert judge(running, "timing=1.1")["class"] == "ok"
        assert gpu.canaries() == 2
        why = told(running)["why_none"]
        assert why == (None if interval_s else "canary_interval_s is 0")


def test_an_idle_gpu_that_becomes_slow_is_quarantined_until_it_is_not(gpu: Gpu) -> None:
    """Fresh workers would take the slow time for the usual one; the GPU's own norm knows better."""
    with daemon(canary_interval_s=1) as running:
        assert judge(running, "timing=1.1")["class"] == "ok"
        gpu.takes(1.3 * USUAL_NS)
        found = quarantined(running)
        assert found["failed"] == "it takes 30.0 % longer than this GPU's norm"
        assert (found["norm_ns"], found["drift"]) == (USUAL_NS, 0.3)
        assert found["failures"] >= 4
        assert running.client.get("/readyz").status == 503
        assert "quarantined: the canary fails with fresh workers too" in running.log.read_text()
        waiting = running.client.submit({"task": "scripted", "candidate": "# script: timing=1.1\n"})
        gpu.takes(1.01 * USUAL_NS)
        assert running.client.wait(waiting, LIMIT_S)["class"] == "ok"
        assert told(running)["failed"] is None


def test_a_slow_drift_is_found_though_each_worker_learned_a_bit_of_it(gpu: Gpu) -> None:
    """Less than a drift each, more than one together: no referee sees it from its own start on."""
    with daemon(canary_interval_s=86400, max_attempts=1) as running:
        for _ in range(9):  # each crash brings a canary, and with nine the norm stands
            assert judge(running, "full=crash")["class"] == "crash"
        assert judge(running, "timing=1.1")["class"] == "ok"
        assert told(running)["norm_samples"] == 9
        for factor in (1.02, 1.04):
            gpu.takes(factor * USUAL_NS)
            assert judge(running, "tiny=kill_referee,pass")["class"] == "crash"
            assert judge(running, "timing=1.1")["class"] == "ok"
        gpu.takes(1.06 * USUAL_NS)
        assert judge(running, "full=crash")["class"] == "crash"
        assert quarantined(running)["failed"] == "it takes 6.0 % longer than this GPU's norm"


def test_a_restart_does_not_lose_the_norm(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    with daemon(canary_interval_s=86400) as running:
        assert judge(running, "timing=1.1")["class"] == "ok"
        assert told(running)["norm_samples"] == 1
        since = told(running)["norm_since"]
        assert running.stop() == 0
        gpu.takes(1.2 * USUAL_NS)
        running.start(ready=False)
        found = quarantined(running)
        assert (found["norm_ns"], found["norm_since"], found["drift"]) == (USUAL_NS, since, 0.2)
        assert running.stop() == 0
        # Another driver may make other times: it has a norm of its own.
        monkeypatch.setenv("SCRIPT_DRIVER", "2.0")
        running.start()
        assert judge(running, "timing=1.2")["class"] == "ok"
        assert told(running)["norm_ns"] == int(1.2 * USUAL_NS)
        assert running.stop() == 0
        monkeypatch.setenv("SCRIPT_DRIVER", "1.0")
        gpu.takes(USUAL_NS)
        running.start()
        assert judge(running, "timing=1.3")["class"] == "ok"
        assert (told(running)["norm_ns"], told(running)["norm_since"]) == (USUAL_NS, since)


def test_a_norm_that_is_forgotten_is_learned_anew(gpu: Gpu) -> None:
    """Its clocks were set lower, say; and the store forgets as well."""
    with daemon(canary_interval_s=86400) as running:
        assert judge(running, "timing=1.1")["class"] == "ok"
        gpu.takes(1.2 * USUAL_NS)
        assert judge(running, "full=crash")["class"] == "crash"
        assert quarantined(running)["norm_ns"] == USUAL_NS
        (known,) = running.client.expect("GET", "/v1/canaries")["items"]
        assert (known["gpu"], known["driver"], known["kind"]) == ("GPU-scripted", "1.0", "scripted")
        assert (known["norm_ns"], known["norm_samples"]) == (USUAL_NS, 1)
        answer = running.client.post("/v1/canaries", {"forget": ""})
        assert (answer.status, answer.json()["errors"][0]["pointer"]) == (400, "/forget")
        assert running.client.expect("POST", "/v1/canaries", {"forget": "GPU-other"})["items"] == [known]
        assert running.client.expect("POST", "/v1/canaries", {"forget": "GPU-scripted"})["items"] == []
        assert judge(running, "timing=1.2")["class"] == "ok"
        assert told(running)["norm_ns"] == int(1.2 * USUAL_NS)
        assert running.stop() == 0
        running.start()
        assert judge(running, "timing=1.3")["class"] == "ok"
        assert told(running)["norm_ns"] == int(1.2 * USUAL_NS)


def test_one_that_was_slow_when_it_was_first_seen_has_a_new_norm(gpu: Gpu) -> None:
    """And compiled baselines of that time are measured again."""
    gpu.takes(1.5 * USUAL_NS)
    policy = {"timing": {"compile_baseline": True}}

    def is_cached(n: int) -> bool:
        body = {"task": "compiled", "candidate": f"# script: timing=2\n# {n}\n", "policy": policy}
        verdict = running.client.judge(body, LIMIT_S)
        return bool(verdict["timing"]["baselines"]["compile"]["cached"])

    with daemon(canary_interval_s=86400) as running:
        running.client.add_task({"name": "compiled", "reference": "# script: describe=pass timing=1.6\n"})
        assert [is_cached(n) for n in range(2)] == [False, True]
        gpu.takes(USUAL_NS)
        assert judge(running, "full=crash")["class"] == "crash"
        assert [is_cached(n) for n in range(2, 4)] == [False, True]
        found = told(running)
        assert (found["norm_ns"], found["norm_samples"], found["drift"]) == (USUAL_NS, 1, 0)


def test_without_a_gpu_there_is_nothing_to_see_and_the_status_says_so() -> None:
    with daemon(canary_interval_s=1) as running:
        assert judge(running, "timing=1.1")["class"] == "ok"
        status = running.client.expect("GET", "/v1/status")
        assert status["gpus"] == []
        (found,) = [one["canary"] for one in status["workers"] if one["kind"] == "referee"]
        assert found["why_none"] == "there is no GPU: nothing is timed, and no drift can be seen"
        assert (found["interval_s"], found["norm_ns"], found["drift"], found["ns"]) == (None, None, None, None)

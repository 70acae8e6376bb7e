"""Every candidate of tests/candidates gets the class, and dies at the stage, that its header says."""

from __future__ import annotations

import corpus
import pytest
import service

CANDIDATES = corpus.load_candidates()
HOSTILE = frozenset({"timeout", "oom", "crash", "launch", "hack", "mutated_input"})
"""Classes that could harm what comes after: an honest probe follows each."""
FLOOR = {"extract": 0.0, "ast": 0.0, "compile": 0.0, "tiny": 0.3, "full": 0.5, "timing": 0.7}
NEXT = {"extract": 0.0, "ast": 0.0, "compile": 0.3, "tiny": 0.5, "full": 0.7, "timing": 0.7}
LIMIT_S = 600.0


def _probe(task: str, number: int) -> str:
    """An honest candidate whose bytes nobody has sent before."""
    honest = corpus.load_candidate(corpus.HERE / "candidates" / task / "honest.py")
    return f"{honest.text}\n# probe {number}\n"


@pytest.fixture(scope="session")
def submitted(client: service.Client, task_ids: dict[str, str], gpu: bool) -> dict[str, tuple[str, str | None]]:
    """Everything at once, so that stages overlap as they do in use: label -> (its id, its probe's id)."""
    found: dict[str, tuple[str, str | None]] = {}
    for number, candidate in enumerate(CANDIDATES):
        if candidate.needs_gpu and not gpu:
            continue
        own = client.submit(candidate.body(task_ids[candidate.task]))
        probe = None
        if candidate.classes & HOSTILE:
            probe = client.submit({"task": task_ids["copy"], "candidate": _probe("copy", number)})
        found[candidate.label] = own, probe
    return found


def _marks(candidate: corpus.Candidate) -> list[pytest.MarkDecorator]:
    return [pytest.mark.gpu] if candidate.needs_gpu else []


@pytest.mark.parametrize("candidate", [pytest.param(c, id=c.label, marks=_marks(c)) for c in CANDIDATES])
def test_verdict(
    candidate: corpus.Candidate,
    client: service.Client,
    submitted: dict[str, tuple[str, str | None]],
    gpu: bool,
) -> None:
    if candidate.needs_gpu and not gpu:
        pytest.skip("gpu: this daemon judges without a GPU")
    own, probe = submitted[candidate.label]
    verdict = client.wait(own, LIMIT_S)
    summary = {key: verdict[key] for key in ("class", "failed_at", "stage", "reward", "feedback", "stages")}
    assert verdict["class"] in candidate.classes, summary
    if candidate.is_honest:
        _check_passed(verdict, gpu)
    else:
        _check_failed(candidate, verdict)
    if probe is not None:
        after = client.wait(probe, LIMIT_S)
        assert after["class"] == "ok", (f"the submission after {candidate.label} suffered", after["feedback"])


def _check_passed(verdict: service.Json, gpu: bool) -> None:
    assert verdict["failed_at"] is None
    assert verdict["passed_stage"] == ("timing" if gpu else "full")
    assert verdict["correctness"]["cases"] == verdict["correctness"]["passed"] >= 5
    assert verdict["correctness"]["first_mismatch"] is None
    if gpu:
        assert 0.7 <= verdict["reward"] <= 1.0
    else:
        assert verdict["reward"] == pytest.approx(0.7)
        assert verdict["timing"]["outcome"] == "skipped"
        assert verdict["components"]["speedup"] is None


def _check_failed(candidate: corpus.Candidate, verdict: service.Json) -> None:
    stage = verdict["failed_at"]
    assert stage in (candidate.stages or corpus.STAGES), verdict["feedback"]
    assert verdict["feedback"]["class"] == verdict["class"]
    assert verdict["feedback"]["text"]
    if verdict["class"] in ("policy", "hack"):
        assert verdict["reward"] == 0.0
    else:
        assert FLOOR[stage] <= verdict["reward"] <= NEXT[stage]
        assert verdict["reward"] < NEXT[stage] or not NEXT[stage], "as much as a candidate that passed"
    later = corpus.STAGES[corpus.STAGES.index(stage) + 1 :]
    ran = [s["stage"] for s in verdict["stages"] if s["outcome"] in ("pass", "fail")]
    assert not set(ran) & set(later), f"a stage ran after the failure at {stage}: {ran}"
    if verdict["class"] in ("mismatch", "nonfinite"):
        _check_mismatch(verdict["correctness"]["first_mismatch"])


def _check_mismatch(first: service.Json | None) -> None:
    assert first is not None
    assert 1 <= first["differing"] <= first["of"]
    assert isinstance(first["index"], list)
    assert all(isinstance(i, int) and i >= 0 for i in first["index"])
    assert first["expected"] != first["got"]


def test_every_class_has_a_candidate() -> None:
    shown = {name for c in CANDIDATES for name in c.classes if len(c.classes) == 1}
    assert shown == corpus.CLASSES


def test_every_task_has_an_honest_kernel(tasks: dict[str, corpus.Task]) -> None:
    assert set(tasks) == {c.task for c in CANDIDATES if c.is_honest and not c.is_completion}

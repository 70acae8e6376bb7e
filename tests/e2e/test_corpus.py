"""Every candidate of tests/candidates gets the class, and dies at the stage, that its header says."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass

import corpus
import pytest
import service

CANDIDATES = corpus.load_candidates()
TWINS = corpus.twins()
VERIFIER = service.BINARY.with_name("verifier")
FLOOR = {"extract": 0.0, "ast": 0.0, "compile": 0.0, "tiny": 0.3, "full": 0.5, "timing": 0.7}
NEXT = {"extract": 0.0, "ast": 0.0, "compile": 0.3, "tiny": 0.5, "full": 0.7, "timing": 0.7}
LIMIT_S = 3000.0


@dataclass(frozen=True)
class Run:
    """What `verifier selftest` said."""

    status: int
    rows: dict[str, service.Json]
    """By label."""
    last: service.Json
    surprises: list[service.Json]


@pytest.fixture(scope="session")
def selftest(daemon: service.Daemon, request: pytest.FixtureRequest) -> Run:
    """`verifier selftest` over the candidates whose tests were chosen."""
    names = [item.name for item in request.session.items if item.name.startswith("test_verdict[")]
    chosen = [name.removeprefix("test_verdict[").removesuffix("]") for name in names]
    command = [str(VERIFIER), "selftest", "--json", "--corpus", str(corpus.HERE), "--url", daemon.client.url]
    if len(chosen) < len(CANDIDATES):
        command += [f"--only={label}" for label in chosen]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines, f"verifier selftest ended with status {done.returncode} and said nothing"
    surprises = [line for line in lines if line.get("right") is False]
    return Run(done.returncode, {line["row"]: line for line in lines if "row" in line}, lines[-1], surprises)


def _marks(candidate: corpus.Candidate) -> list[pytest.MarkDecorator]:
    """`make test` judges an honest kernel of each task; `make check` the rest, and tasks with a wrong twin."""
    slow = [] if candidate.name == "honest" and candidate.task not in TWINS else [pytest.mark.slow]
    return [*slow, pytest.mark.gpu] if candidate.needs_gpu else slow


@pytest.mark.parametrize("candidate", [pytest.param(c, id=c.label, marks=_marks(c)) for c in CANDIDATES])
def test_verdict(
    candidate: corpus.Candidate,
    client: service.Client,
    selftest: Run,
    gpu: bool,
) -> None:
    if candidate.needs_gpu and not gpu:
        pytest.skip("gpu: this daemon judges without a GPU")
    line = selftest.rows[candidate.label]
    assert line["id"] is not None, line["why"]
    verdict = client.wait(line["id"])
    summary = {key: verdict[key] for key in ("class", "failed_at", "stage", "reward", "feedback", "stages")}
    assert verdict["class"] in candidate.classes, summary
    assert line["right"] is True, line["why"]
    if verdict["class"] == "ok":
        _check_passed(verdict, gpu)
    else:
        _check_failed(candidate, verdict)


@pytest.mark.slow
def test_nothing_is_left_for_the_next_one(selftest: Run) -> None:
    """The honest kernels that were judged after the cheats."""
    assert selftest.last["probes"] > 0
    assert selftest.last["contaminated"] == 0, selftest.surprises
    assert (selftest.status, selftest.last["ok"]) == (0, True), selftest.last


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
        # Tried again at its own shapes only, it may fail at `full` with `tiny` not passed.
        skipped = [s["stage"] for s in verdict["stages"] if s["outcome"] == "skip"]
        floor = FLOOR["tiny" if "tiny" in skipped else stage]
        assert floor <= verdict["reward"] <= NEXT[stage]
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
    shown = {name for c in CANDIDATES for name in c.classes}
    assert shown == corpus.CLASSES


def test_every_task_has_an_honest_kernel(tasks: dict[str, corpus.Task]) -> None:
    honest = [one for one in corpus.load_candidates() if one.is_honest and not one.is_completion]
    assert set(tasks) == {one.task for one in honest}

"""Candidates of tests/candidates judged by their plan: attacks, and kernels of libraries, each with a wrong twin."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import corpus
import pytest
import service

VERIFIER = service.BINARY.with_name("verifier")
LIMIT_S = 2400.0
QUICK = ("softmax/plan_kernel_named_like_a_gather", "softmax/plan_of_wild_sizes", "softmax/plan_module_in_the_kernel")
QUICK_TASKS = ("masked_softmax", "quantise_fp8", "split_k_gemm")


def _is_wanted(candidate: corpus.Candidate) -> bool:
    """Rows that only a plan decides, and those of the tasks that have one honest kernel and one wrong twin."""
    return not candidate.needs_gpu and (candidate.needs_plan or candidate.task in TWINS)


TWINS = corpus.twins()
ROWS = [candidate for candidate in corpus.load_candidates() if _is_wanted(candidate)]


def _row(candidate: corpus.Candidate) -> object:
    is_quick = candidate.label in QUICK or candidate.task in QUICK_TASKS
    return pytest.param(candidate, id=candidate.label, marks=[] if is_quick else [pytest.mark.slow])


@pytest.fixture(scope="module")
def planned() -> Iterator[service.Daemon]:
    limits = {"stage_limit_ms": 60000, "tiny_limit_ms": 20000, "memory_limit_bytes": 2 << 30, "judge": "plan"}
    with service.directory() as directory, service.Daemon(directory, limits) as running:
        yield running


@pytest.fixture(scope="module")
def lines(planned: service.Daemon, request: pytest.FixtureRequest) -> dict[str, service.Json]:
    """What `verifier selftest` said of the rows whose tests were chosen, by label, and of all under ""."""
    names = [item.name for item in request.session.items if item.name.startswith("test_by_its_plan[")]
    chosen = [f"--only={name.removeprefix('test_by_its_plan[').removesuffix(']')}" for name in names]
    command = [str(VERIFIER), "selftest", "--json", "--corpus", str(corpus.HERE), "--url", planned.client.url, *chosen]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert said, f"verifier selftest ended with status {done.returncode} and said nothing"
    return {line.get("row", ""): line for line in said if "row" in line or "selftest" in line}


@pytest.mark.parametrize("candidate", [_row(candidate) for candidate in ROWS])
def test_by_its_plan(candidate: corpus.Candidate, lines: dict[str, service.Json], planned: service.Daemon) -> None:
    line = lines[candidate.label]
    assert line["id"] is not None, line["why"]
    verdict = planned.client.wait(line["id"])
    assert verdict["class"] in candidate.by_plan and line["right"] is True, (line["why"], verdict["feedback"])
    if candidate.kind in ("cheat", "mistake") and verdict["class"] == "ok":
        assert verdict["components"]["timed"] == 0, "paid for what its kernels do not do"
    if candidate.is_honest:
        assert verdict["plan"]["traced"] is True, verdict["plan"]


def test_the_rates_are_told_by_kind_of_task(lines: dict[str, service.Json]) -> None:
    """Issue 24, point 7."""
    tasks = lines[""]["tasks"]
    assert tasks["all"]["false_rejects"]["count"] == tasks["all"]["false_accepts"]["count"] == 0
    assert tasks["quantisation"]["false_accepts"]["of"] >= 1
    assert 0 < tasks["all"]["false_rejects"]["high"] < 1


def test_every_attack_is_refused_or_gains_nothing() -> None:
    """Of what only a plan decides, nothing but what its own kernels compute may be accepted."""
    cheats = [candidate for candidate in ROWS if candidate.needs_plan and candidate.kind == "cheat"]
    assert len(cheats) >= 15
    accepted = {candidate.label for candidate in cheats if "ok" in candidate.by_plan}
    assert accepted == {"gated_residual/plan_looks_at_its_gate"}

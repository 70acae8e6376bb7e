"""An honest kernel beside candidates that never end, with real workers: each gets the class that it has alone."""

from __future__ import annotations

import corpus
import pytest
import service

LOOPS = 3
LIMIT_S = 600.0


def _candidate(name: str) -> corpus.Candidate:
    return next(c for c in corpus.load_candidates() if c.label == name)


@pytest.mark.slow
def test_honest_kernel_beside_endless_loops(start_daemon: service.StartDaemon, tasks: dict[str, corpus.Task]) -> None:
    """They compile side by side on fewer cores; who was starved is judged once more alone, and is not blamed."""
    client = start_daemon(cpu_jobs=2 * LOOPS, stage_limit_ms=10000).client
    client.add_task(tasks["relu"].registration())
    endless, honest = _candidate("relu/endless_import"), _candidate("relu/honest")

    def submit(one: corpus.Candidate, n: int) -> str:
        return client.submit({**one.body("relu"), "candidate": f"{one.text}\n# {n}\n", "cache": False, "until": "full"})

    loops = [submit(endless, n) for n in range(LOOPS)]
    others = [submit(honest, n) for n in range(2)]
    for one in others:
        verdict = client.wait(one, LIMIT_S)
        assert verdict["class"] == "ok", verdict
    for one in loops:
        verdict = client.wait(one, LIMIT_S)
        assert verdict["class"] == "timeout", verdict
        assert verdict["rerun"] is None or verdict["rerun"]["class"] == "timeout"
    counts = client.expect("GET", "/v1/status")["counts"]["reruns"]
    assert counts["refused"] == 0

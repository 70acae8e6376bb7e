"""What is timed beside the time that counts: it is measured by the same clock, and nothing of it decides.

The GPU's part is host_gpu.py, as in test_clock_protocol.py.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from daemon import first_gpu
from rig import Rig, policy

PRELUDE = """
import host_gpu, referee
referee.Referee._timing = lambda self, job: host_gpu.time_job(job, {directory!r})
"""

TASK = """
import torch
ROWS = 64
class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2 + 1
def get_inputs():
    return [torch.randn(ROWS, 16)]
def get_init_inputs():
    return []
"""
HONEST = TASK.replace("Model(", "ModelNew(")
WRONG_LATER = HONEST.replace(
    "        return x * 2 + 1",
    "        ModelNew.seen = getattr(ModelNew, 'seen', 0) + (x.shape[0] > 64)\n"
    "        return x * 2 + (1 if ModelNew.seen < 8 else 3)",
)
"""Wrong at larger shapes, once it was called there more often than `full` calls."""
ENDS_LATER = WRONG_LATER.replace(
    "return x * 2 + (1 if ModelNew.seen < 8 else 3)", "ModelNew.seen < 8 or exit()\n        return x * 2 + 1"
)


class Bench:
    """One referee and one task whose shapes are dynamic."""

    def __init__(self, rig: Rig, directory: Path) -> None:
        self._rig = rig
        self._directory = directory
        self._child = rig.child()
        self.spec = rig.register(self._child, TASK, dynamic_shapes=True)
        assert len(self.spec["cases"]["shapes"]) >= 2, self.spec

    def time(self, source: str, *, too_small_ns: int = 1, **timing: Any) -> dict[str, Any]:
        """The report of the timing stage; what comes before it must have passed."""
        (self._directory / "protocol").write_text(json.dumps({"flush_s": 0.0005, "too_small_ns": too_small_ns}))
        rules = policy(
            variations={"count": 6, "value": False, "shape": True, "dtype": False},
            timing={"warmup": 2, "trials": 5, "fixed": True, "events": True, **timing},
        )
        found = self._rig.judge(self._child, self.spec, TASK, source, stages=("tiny", "full", "timing"), rules=rules)
        assert list(found)[-1] == "timing", found
        assert found["timing"]["outcome"] == "pass", found["timing"]
        return found["timing"]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    directory = tmp_path_factory.mktemp("beside")
    with Rig(directory, prelude=PRELUDE.format(directory=str(directory))) as rig:
        yield Bench(rig, directory)


def test_variations_are_not_timed_unless_asked_for(bench: Bench) -> None:
    assert "variations" not in bench.time(HONEST)["detail"]


def test_each_shape_has_samples_of_its_own(bench: Bench) -> None:
    detail = bench.time(HONEST, variations=True)["detail"]
    assert len(detail["reference_ns"]) == 5
    shapes = bench.spec["cases"]["shapes"]  # three of six variations
    assert [told["name"] for told in detail["variations"]] == [case["name"] for case in shapes]
    for told, case in zip(detail["variations"], shapes, strict=True):
        assert told["outcome"] in ("measured", "inconclusive", "too_small"), told
        assert told["overrides"] == case["overrides"]
        assert told["bells"] == len(told["reference_ns"]) == len(told["candidate_ns"]) == 10


@pytest.mark.parametrize(("source", "class_"), [(WRONG_LATER, "mismatch"), (ENDS_LATER, "crash")])
def test_what_fails_beside_the_time_that_counts_is_told_and_decides_nothing(
    bench: Bench, source: str, class_: str
) -> None:
    report = bench.time(source, variations=True)
    assert report["class"] is None and len(report["detail"]["reference_ns"]) == 5
    smaller, larger, _ = report["detail"]["variations"]
    assert (smaller["name"], larger["name"]) == ("shape x0.75", "shape x1.25")
    assert smaller["outcome"] != "failed", smaller
    assert (larger["outcome"], larger["class"]) == ("failed", class_) and larger["why"], larger


TOO_SMALL: dict[str, Any] = {"too_small_ns": 10**12, "batched": True}
"""Every call is too short for the clock."""


def test_what_is_too_short_is_timed_as_a_batch(bench: Bench) -> None:
    detail = bench.time(HONEST, **TOO_SMALL)["detail"]
    told = detail["batched"]
    assert (detail["outcome"], detail["calls"]) == ("too_small", 1)
    assert told["outcome"] in ("measured", "inconclusive"), told
    assert told["calls"] == 64 and told["bells"] == len(told["reference_ns"]) == len(told["candidate_ns"]) == 5, told


def test_a_batch_is_made_on_request_of_what_is_too_short(bench: Bench) -> None:
    assert "batched" not in bench.time(HONEST, too_small_ns=10**12)["detail"]


HALF_OF_A_BATCH = (
    HONEST.replace(
        "        return x * 2 + 1",
        "        ModelNew.turn = getattr(ModelNew, 'turn', 0) + in_batch()\n"
        "        return torch.empty_like(x) if in_batch() and ModelNew.turn % 64 > 32 else x * 2 + 1",
    )
    + """
import sys
def in_batch():
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "call" and frame.f_code.co_filename.endswith("child.py"):
            return True
        frame = frame.f_back
    return False
"""
)
"""Answers half the calls of a batch, and knows one by who calls."""
TIRED = HONEST.replace(
    "        return x * 2 + 1",
    "        ModelNew.calls = getattr(ModelNew, 'calls', 0) + 1\n"
    "        assert ModelNew.calls < 80, 'no more'\n"
    "        return x * 2 + 1",
)
"""Cannot be called as often as a batch needs."""


def test_calls_that_a_batch_leaves_out_are_found(bench: Bench) -> None:
    report = bench.time(HALF_OF_A_BATCH, **TOO_SMALL)
    told = report["detail"]["batched"]
    assert report["class"] is None and (told["outcome"], told["class"]) == ("failed", "mismatch"), told


def test_why_there_is_no_batch_is_told(bench: Bench) -> None:
    told = bench.time(TIRED, **TOO_SMALL)["detail"]["batched"]
    assert (told["outcome"], told["bells"]) == ("inconclusive", 0) and "calls in a row failed" in told["why"], told


@pytest.mark.gpu
def test_a_graph_of_calls_is_right_and_as_fast_as_its_copy(tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("gpu: no GPU on this machine")
    with Rig(tmp_path, device=first_gpu(), prelude="import clock; clock.TOO_SMALL_NS = 10**12") as rig:
        child = rig.child()
        spec = rig.register(child, TASK, dynamic_shapes=True)
        timing = {"warmup": 3, "trials": 15, "events": True, "batched": True, "variations": True}
        rules = policy(foreign="any", timing=timing)  # torch computes it
        found = rig.judge(child, spec, TASK, HONEST, stages=("tiny", "full", "timing"), rules=rules)
        detail = found["timing"]["detail"]
    told = detail["batched"]
    assert told["outcome"] in ("measured", "inconclusive") and told["calls"] == 64, told
    if told["outcome"] == "measured":  # a tenth of a millisecond, all of them together: it may well stay wide
        pairs = zip(told["reference_ns"], told["candidate_ns"], strict=True)
        ratio = statistics.median(ours / theirs for ours, theirs in pairs)
        assert abs(ratio - 1) < 40_000 / (64 * min(told["reference_ns"])), told  # twice what a batch may be off by
    assert len(detail["variations"]) == 1 and detail["variations"][0]["bells"] == 10, detail["variations"]

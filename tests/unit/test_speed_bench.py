"""The mix that bench-speed has judged: what is spoilt fails where it is to fail, and nothing is judged twice."""

from __future__ import annotations

import ast
import sys
import time
from itertools import islice
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "bench"))

import speed
import speed_load
from speed_load import Samples, Stage, Window, lost
from speed_mix import AST, BENCHES, COMPILE, FULL, GROUPS, RIGHT, TINY, Bench, Mix
from static import ast_stage


def outcome(source: str, policy: str) -> str:
    return str(ast_stage.judge(source.encode(), "ModelNew", policy)["outcome"])


@pytest.mark.parametrize("bench", BENCHES, ids=lambda bench: bench.task)
def test_only_what_is_to_fail_there_is_refused_in_ast(bench: Bench) -> None:
    mix = Mix(bench, "unit", on_gpu=True)
    for answer in [one for group in islice(mix.groups(), 6) for one in group]:
        assert outcome(answer.source, mix.policy) == ("fail" if answer.fails_at == AST else "pass"), answer.source


def test_twenty_answers_have_the_shares_of_the_target() -> None:
    every = [fails_at for group in GROUPS for fails_at in group]
    assert [len(group) for group in GROUPS] == [10, 10]
    assert [every.count(one) for one in (AST, COMPILE, TINY, FULL, RIGHT)] == [6, 5, 2, 1, 6]


def test_no_answer_comes_twice() -> None:
    mix = Mix(BENCHES[0], "unit", on_gpu=False)
    every = [answer.source for group in islice(mix.groups(), 20) for answer in group]
    assert len(set(every)) == len(every)


@pytest.mark.parametrize("bench", BENCHES, ids=lambda bench: bench.task)
def test_a_gpu_gets_the_large_sizes(bench: Bench) -> None:
    small, large = (str(Mix(bench, "unit", on_gpu).registration["reference"]) for on_gpu in (False, True))
    ast.parse(large)
    assert (small != large) == bool(bench.sizes)
    assert all(new in large for _, new in bench.sizes)


def window(finished: int, right: int, given_s: float, ready: list[int]) -> Window:
    samples = Samples(given=[0] * len(ready), ready=ready)
    stages = [Stage("tiny", 5, 0.0, 100.0, 2.0), Stage("timing", 5, 0.0, 100.0, 4.0)]
    return Window(
        10.0,
        1,
        finished,
        {"ok": right},
        stages,
        given_s,
        samples,
        [],
        {},
        1,
        13,
        {"waited_s": 1.0, "made": 20.0, "recalled": 7.0},
    )


def test_a_window_that_lacks_what_is_dear_claims_no_more() -> None:
    assert window(100, 30, 8.0, []).rate == pytest.approx(10.0)
    assert window(100, 15, 8.0, []).rate == pytest.approx(5.0)
    assert window(100, 50, 8.0, []).rate == pytest.approx(10.0)


def test_the_time_of_a_device_is_accounted_for() -> None:
    found = lost(window(100, 30, 8.0, [0, 3, 0, 0]))
    assert [share for _, share in found] == pytest.approx([0.2, 0.4, 0.2, 0.05, 0.15])
    assert sum(share for _, share in found) == pytest.approx(1.0)


def test_what_the_pools_had_to_do_is_told() -> None:
    lane = {"kind": "referee", "pool": {"waited_s": 1.5, "made": 4}, "references": {"recalled": 6}}
    assert speed_load.supply({"workers": [lane, {"kind": "run"}, lane]}) == {"waited_s": 3.0, "made": 8, "recalled": 12}
    told = speed_load.table(window(100, 30, 8.0, []))
    assert "waiting for a child, within the first stage)" in told and " 10.0%" in told
    assert "children made: 20; right answers known: 7" in told


PEAKS = {"read_gbs": 4000.0, "write_gbs": 3000.0, "tf32_tflops": 400.0}


def spec(size: int, flops: int) -> speed.Json:
    return {"cases": {"own": {"input_bytes": size, "output_bytes": size, "state_bytes": 2 * size, "flops": flops}}}


@pytest.mark.parametrize(("flops", "seconds", "bound"), [(0, 1e-3, "bytes"), (8 * 10**11, 2e-3, "products")])
def test_a_call_takes_its_bytes_or_its_products(flops: int, seconds: float, bound: str) -> None:
    found_s, found_bound = speed.bound_of(spec(10**9, flops), PEAKS)
    assert found_s == pytest.approx(seconds)
    assert found_bound == bound


def test_the_calls_are_those_of_both_sides() -> None:
    assert speed.calls_of({"timing": {"warmup": 10, "trials": 50}}) == 130
    assert speed.calls_of({"timing": None}) == 10


def found(tmp_path: Path) -> speed.Run:
    run = speed.Run("python3", tmp_path, tmp_path / "out", 0.0, True, list(speed.PARTS), 16.0, 4)
    stages = [{"stage": name, "run_ms": 100.0} for name in ("ast", "compile", "tiny", "full", "timing")]
    verdict = {"stages": stages, "components": {"speedup": 1.25}, "timing": {"warmup": 10, "trials": 20}}
    case = speed.CASES[0]
    run.latencies = [speed.Latency(case, 2.0, [0.9, 0.8, 1.0], [1.5], [0.002], verdict, 0.5, 70, "bytes")]
    run.usual = {case.label: speed.Usual(9.0, 4.5, 1.3)}
    run.windows = {"load": window(100, 30, 8.0, [0])}
    return run


def test_the_tables_have_what_was_found(tmp_path: Path) -> None:
    run = found(tmp_path)
    row = speed.latency_table(run).splitlines()[-1]
    assert "0.90 (0.90, 0.80, 1.00)" in row and "| 9.0 | 10.0 (6.0) | 4.5 | 5.0 (3.0) | 1.30, 1.25 |" in row
    assert "| 70 | bytes | 0.500 | 1.00 | 2.0 | 100, 100, 100, 100, 100, 500 |" in speed.gap_table(run)
    assert speed.load_table(run).endswith("| load | 1 | 10.00 | 100, 10.0 | 80% | - |")


def test_a_part_without_time_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = found(tmp_path)
    run.part("usual", 1.0, lambda: pytest.fail("it was begun"))
    assert run.failed == ["usual: no time was left"]
    speed.summary(run)
    assert capsys.readouterr().out.splitlines()[-1] == "0 met, 0 missed, 1 failed: usual: no time was left"


def test_what_breaks_leaves_the_rest_alone(tmp_path: Path) -> None:
    run = found(tmp_path)
    run.deadline = time.monotonic() + 60
    run.part("load", 0.0, lambda: print(1 // len(run.failed)))
    run.part("usual", 0.0, lambda: run.left_out.append("it was begun"))
    assert run.left_out == ["it was begun"]
    assert run.failed == ["load: integer division or modulo by zero"]

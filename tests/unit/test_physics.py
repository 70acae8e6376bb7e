"""Floors of time: what is impossible is a hack when it is so twice, what is unlikely is a flag."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from live import cases
from oracle import physics
from oracle.judge import Report
from oracle.physics import Floor, Peaks

PEAKS = Peaks(4000.0, 4200.0, 8000.0, 50.0, 400.0, 800.0, 50_000_000)
FLOOR = Floor(hard_ns=1e5, memory_ns=2e5, flops_ns=4e5)


def spec(source: str) -> dict[str, Any]:
    whole = "import torch\nN = 64\nclass Model(torch.nn.Module):\n" + source
    whole += "\ndef get_init_inputs():\n    return []\n"
    found = cases.describe(whole, None, torch.device("cpu"), dynamic_shapes=False, declared=None, element_limit=1 << 20)
    own: dict[str, Any] = found["cases"]["own"]
    return own


def timing(candidate_us: float, **detail: Any) -> Report:
    samples = [candidate_us * 1e3] * 10
    return Report("timing", "pass", None, 1, 1, detail={"outcome": "measured", "candidate_ns": samples, **detail})


def never() -> tuple[Report, Floor]:
    raise AssertionError("it was measured again")


def test_an_ordinary_time_is_left_alone() -> None:
    report = physics.check(timing(500.0), FLOOR, never)
    assert (report.outcome, report.detail["flags"]) == ("pass", [])
    assert report.detail["floor_ns"] == 4e5 and report.detail["hard_floor_ns"] == 1e5
    assert report.detail["bound"] == ("memory" if FLOOR.memory_ns == FLOOR.roofline_ns else "compute")
    swapped = Floor(hard_ns=FLOOR.hard_ns, memory_ns=FLOOR.flops_ns, flops_ns=FLOOR.memory_ns)
    assert physics.check(timing(500.0), swapped, never).detail["bound"] != report.detail["bound"]


def test_what_is_impossible_twice_is_a_hack() -> None:
    report = physics.check(timing(60.0), FLOOR, lambda: (timing(61.0), FLOOR))
    assert (report.outcome, report.class_, report.rule) == ("fail", "hack", "impossible_time")
    assert report.error is not None and "61.0 us" in report.error["text"] and "100.0 us" in report.error["text"]
    assert report.detail["candidate_ns"] and report.detail["hard_floor_ns"] == 1e5


def test_what_is_impossible_once_is_not() -> None:
    assert physics.check(timing(60.0), FLOOR, lambda: (timing(500.0), FLOOR)).outcome == "pass"
    faster = replace(FLOOR, hard_ns=5e4)
    assert physics.check(timing(60.0), FLOOR, lambda: (timing(60.0), faster)).outcome == "pass"


def test_a_time_that_is_not_credited_is_not_judged() -> None:
    report = physics.check(timing(1.0, outcome="inconclusive"), FLOOR, never)
    assert (report.outcome, report.detail["flags"]) == ("pass", [])
    failed = Report("timing", "fail", "mismatch", 0, 1, detail={"outcome": "measured", "candidate_ns": [1.0]})
    assert physics.check(failed, FLOOR, never).class_ == "mismatch"


def test_less_than_the_reference_needs_is_a_flag() -> None:
    assert physics.check(timing(300.0), FLOOR, never).detail["flags"] == ["beyond_flop_roofline"]
    both = ["beyond_flop_roofline", "beyond_memory_roofline"]
    assert physics.check(timing(140.0), FLOOR, never).detail["flags"] == both
    kept = physics.check(timing(300.0, flags=["before"]), FLOOR, never).detail["flags"]
    assert kept == ["before", "beyond_flop_roofline"]


def test_the_clocks_noise_is_no_offence() -> None:
    tiny = Floor(hard_ns=4000.0, memory_ns=5000.0, flops_ns=6000.0)
    report = physics.check(timing(0.001), tiny, never)
    assert (report.outcome, report.detail["flags"]) == ("pass", [])


@pytest.mark.parametrize(
    ("forward", "written"),
    [
        ("return x * 2.0", 64 * 96 * 4),
        ("return x.half(), x + 1.0", 64 * 96 * 6),
        ("return (x * 2.0)[:, -1]", 64 * 4),  # the last token's logits span those of all others
        ("return (x * 2.0).t()", 64 * 96 * 4),
        ("return (x * 2.0).chunk(3, -1)", 64 * 96 * 4),
        ("y = x * 2.0; return y, y, y[1:], y.view(-1)[5:]", 64 * 96 * 4),
        ("return x[:, :1].relu().expand(-1, 96)", 64 * 4),
        ("return (x + 1.0)[:, 8:40].sum(1, keepdim=True).expand(2, 64, 96)", 64 * 4),
        ("x[3] = 0.0; return x", 0),
        ("x[3] = 0.0; return x[2:], {'sum': x.sum(1)}", 64 * 4),
        ("return self.weight.detach(), self.table, x.sum()", 4),
    ],
)
def test_a_call_writes_no_gap_no_memory_twice_and_nothing_that_was_there(forward: str, written: int) -> None:
    """A kernel for the last token alone took less than it takes to write all logits, which nobody returns."""
    found = spec(
        "    def __init__(self):\n        super().__init__()\n        self.weight = torch.nn.Parameter(torch.ones(N))\n"
        f"        self.register_buffer('table', torch.ones(N))\n    def forward(self, x):\n        {forward}\n"
        "def get_inputs():\n    return [torch.rand(N, 96)]"
    )
    assert found["output_bytes"] == written


def test_bytes_of_a_case_are_its_floor() -> None:
    case = {
        "inputs": {"list": [{"tensor": {"dtype": "float32", "shape": [1], "stride": [1]}}]},
        "outputs": {"tensor": {"dtype": "float32", "shape": [1], "stride": [1]}},
        "input_bytes": 1_000_000_000, "output_bytes": 450_000_000, "state_bytes": 0, "flops": 4 * 10**12,
    }  # fmt: skip
    floor = physics.floor_of(case, PEAKS, "tf32")
    cached = 50_000_000 / 8000
    assert floor.hard_ns == pytest.approx((cached + 400_000_000 / 4000) / 1.25)
    assert floor.memory_ns == pytest.approx(cached + 1_400_000_000 / 4200)
    assert floor.flops_ns == pytest.approx(1e7) and floor.roofline_ns == floor.flops_ns
    assert physics.floor_of(case, PEAKS, "ieee").flops_ns == pytest.approx(3e7), (
        "three TF32 products make a float32 one"
    )
    case["outputs"]["tensor"]["dtype"] = "bfloat16"  # type: ignore[index]
    assert physics.floor_of(case, PEAKS, "ieee").flops_ns == pytest.approx(5e6)
    del case["flops"]  # a task that was registered before they were counted
    assert physics.floor_of(case, PEAKS, "ieee").flops_ns == 0


@pytest.mark.parametrize(
    ("body", "shapes", "wanted"),
    [
        ("x @ y", "(N, 8), (8, 5)", 2 * 64 * 8 * 5),
        ("torch.matmul(x, y)", "(3, N, 8), (8, 5)", 2 * 3 * 64 * 8 * 5),
        ("torch.addmm(x[:1, :1], x, y)", "(N, 8), (8, 5)", 2 * 64 * 8 * 5),
        ("torch.nn.functional.linear(x, y)", "(N, 8), (5, 8)", 2 * 64 * 8 * 5),
        ("torch.bmm(x, y)", "(3, N, 8), (3, 8, 5)", 2 * 3 * 64 * 8 * 5),
        ("torch.einsum('bij,bjk->bik', x, y)", "(3, N, 8), (3, 8, 5)", 2 * 3 * 64 * 8 * 5),
        ("torch.nn.functional.conv2d(x, y)", "(1, 6, N, 64), (5, 6, 1, 3)", 2 * 5 * 64 * 62 * 18),
        ("torch.nn.functional.conv2d(x, y, groups=2)", "(1, 6, N, 64), (4, 3, 1, 1)", 2 * 4 * 64 * 64 * 3),
        ("torch.nn.functional.scaled_dot_product_attention(x, y, y)", "(2, N, 8), (2, N, 8)", 2 * 2 * 64 * 64 * 8),
        ("torch.softmax(x * 2, 1) + y", "(N, 8), (N, 8)", 0),
    ],
)
def test_products_are_counted_from_shapes(body: str, shapes: str, wanted: int) -> None:
    first, second = shapes.replace("), (", ")|(").split("|")
    source = f"    def forward(self, x, y):\n        return {body}\n"
    source += f"def get_inputs():\n    return [torch.rand{first}, torch.rand{second}]\n"
    assert spec(source)["flops"] == wanted


def test_peaks_of_the_configuration() -> None:
    assert physics.parse_peaks("") == {}
    assert physics.parse_peaks("write_gbs=4000,tf32_tflops=4.5e2") == {"write_gbs": 4000.0, "tf32_tflops": 450.0}
    for text in ("write=4", "write_gbs=0", "write_gbs=x", "write_gbs", "cache_bytes=5", "half_tflops=inf"):
        with pytest.raises(ValueError):
            physics.parse_peaks(text)


def test_the_higher_of_two_measurements_counts() -> None:
    other = replace(PEAKS, write_gbs=4500.0, half_tflops=700.0)
    assert PEAKS.highest(other) == replace(PEAKS, write_gbs=4500.0)


@pytest.mark.gpu
def test_measured_peaks_are_those_of_a_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("gpu: no GPU on this machine")
    peaks = physics.measure_peaks(torch.device("cuda", 0), {"float32_tflops": 7.0})
    assert peaks.float32_tflops == 7.0
    assert 100 < peaks.write_gbs <= peaks.cache_gbs < 100_000
    assert 10 < peaks.tf32_tflops < peaks.half_tflops < 10_000


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("torch.relu(x.view(-1).to(torch.float64).float())", 1),
        ("torch.relu(torch.nn.functional.linear(x, y))", 2),
        ("torch.softmax(x * 2, 1).contiguous() @ y.t() + 1", 4),
        ("torch.cat(torch.var_mean(x, 1) * 3)", 1),
        ("torch.nn.functional.batch_norm(x, None, None, training=True)", 1),
        ("[x.sin_() for _ in range(9)][0].shape[0] + x", 10),
    ],
)
def test_calls_that_compute_are_counted(body: str, wanted: int) -> None:
    source = f"    def forward(self, x, y):\n        return {body}\n"
    source += "def get_inputs():\n    return [torch.rand(N, 8), torch.rand(5, 8)]\n"
    assert spec(source)["operations"] == wanted

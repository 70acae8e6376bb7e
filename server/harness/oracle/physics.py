"""Impossible times: the least time that a task takes on this GPU, from its bytes and its floating-point operations.

Peaks are measured when the referee starts and may be overridden in the configuration (`peaks`). One floor is
hard: every answer has written the outputs but for inputs and parameters among them, and no GPU writes faster than
its peak. The others only flag a time for examination: inputs need not all be read (a triangle, a mask), and products
can be avoided by algebra. docs/timing.md argues it.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final

import torch
from shared import values
from shared.wire import Json

from oracle.judge import Report

HEADROOM: Final = 1.25
"""A measured peak is believed to be exceeded by at most this factor."""
SLACK_NS: Final = 5_000
"""The amount that a time may be below a floor by the clock's own noise."""
BUDGET_S: Final = 0.2
BUFFER_BYTES: Final = 512 << 20
PRODUCT: Final = 4096
REPEATED: Final = 8
CACHE_LEAST: Final = 2.0
"""A cache is at least this many times as fast as the memory."""
HALF: Final = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Peaks:
    """Of one GPU: bandwidths in GB/s, products in TFLOP/s, and the size of its last cache."""

    write_gbs: float
    read_gbs: float
    cache_gbs: float
    float32_tflops: float
    tf32_tflops: float
    half_tflops: float
    cache_bytes: int

    def highest(self, other: Peaks) -> Peaks:
        """The higher of each: another process may have had its share of the GPU while one was measured."""
        theirs = asdict(other)
        return Peaks(**{name: max(mine, theirs[name]) for name, mine in asdict(self).items()})

    def json(self) -> Json:
        return {name: round(value, 1) for name, value in asdict(self).items()}


NAMES: Final = tuple(name for name in Peaks.__dataclass_fields__ if name != "cache_bytes")


def parse_peaks(text: str) -> dict[str, float]:
    """`write_gbs=4000,tf32_tflops=490` as figures. ValueError where a name is unknown or a figure is not positive."""
    found: dict[str, float] = {}
    for item in filter(None, text.split(",")):
        name, _, figure = item.partition("=")
        if name.strip() not in NAMES or not 0 < float(figure) < math.inf:
            raise ValueError(f"peaks: {item!r} is not one of {', '.join(NAMES)} with a positive figure")
        found[name.strip()] = float(figure)
    return found


@dataclass(frozen=True)
class Floor:
    """The least times of one call in nanoseconds."""

    hard_ns: float  # to write the outputs
    memory_ns: float  # to read inputs and weights, and to write the outputs
    flops_ns: float  # the reference's products

    @property
    def roofline_ns(self) -> float:
        return max(self.memory_ns, self.flops_ns)


def floor_of(case: Json, peaks: Peaks, precision: str) -> Floor:
    """The floors of a case of SPEC. precision: the policy's; in "tf32" float32 products count as TF32 ones."""
    dtypes = [note.dtype for note in values.notes(case["inputs"])] + [
        note.dtype for note in values.notes(case["outputs"])
    ]
    written = case["output_bytes"]
    moved = written + case["input_bytes"] + case["state_bytes"]
    tflops = peaks.tf32_tflops if precision == "tf32" else max(peaks.float32_tflops, peaks.tf32_tflops / 3)
    if any(dtype.itemsize == 1 and dtype.is_floating_point for dtype in dtypes):
        tflops = 2 * peaks.half_tflops
    elif any(dtype in HALF for dtype in dtypes):
        tflops = peaks.half_tflops
    return Floor(
        hard_ns=_moving_ns(written, peaks, peaks.write_gbs) / HEADROOM,
        memory_ns=_moving_ns(moved, peaks, max(peaks.read_gbs, peaks.write_gbs)),
        flops_ns=case.get("flops", 0) / (tflops * 1e3),
    )


def _moving_ns(size: int, peaks: Peaks, gbs: float) -> float:
    """The part that fits into the cache may stay there, the rest goes through the memory."""
    kept = min(size, peaks.cache_bytes)
    return kept / peaks.cache_gbs + (size - kept) / gbs


def check(report: Report, floor: Floor, again: Callable[[], tuple[Report, Floor]]) -> Report:
    """The report of a timing with its floors and flags; `hack` when it took less than its outputs take to write.

    again: measures peaks and times once more; an impossible time must be found twice.
    """
    if _is_impossible(report, floor):
        report, floor = again()
        if _is_impossible(report, floor):
            text = (
                f"a call took {_taken_ns(report) / 1e3:.1f} us, and its outputs cannot be written "
                f"in less than {floor.hard_ns / 1e3:.1f} us"
            )
            error = {"type": "hack", "text": text, "line": None}
            report = replace(report, outcome="fail", class_="hack", done=0, error=error, rule="impossible_time")
    detail = {**report.detail, "floor_ns": round(floor.roofline_ns, 1), "hard_floor_ns": round(floor.hard_ns, 1)}
    detail["bound"] = "compute" if floor.flops_ns > floor.memory_ns else "memory"
    flags = []
    if _is_measured(report):
        if _taken_ns(report) + SLACK_NS < floor.flops_ns / HEADROOM:
            flags.append("beyond_flop_roofline")
        if _taken_ns(report) + SLACK_NS < floor.memory_ns / HEADROOM:
            flags.append("beyond_memory_roofline")
    return replace(report, detail={**detail, "flags": [*report.detail.get("flags", []), *flags]})


def _is_measured(report: Report) -> bool:
    return report.outcome == "pass" and report.detail.get("outcome") == "measured"


def _taken_ns(report: Report) -> float:
    return statistics.median(report.detail["candidate_ns"])


def _is_impossible(report: Report, floor: Floor) -> bool:
    return _is_measured(report) and _taken_ns(report) + SLACK_NS < floor.hard_ns


# --- peaks ---


def measure_peaks(device: torch.device, overrides: dict[str, float]) -> Peaks:
    """The best of some repetitions of fills, copies and products; at most some tenths of a second."""
    cache_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    found = dict(overrides)
    _measure_memory(found, device, cache_bytes, overrides)
    _measure_products(found, device)
    torch.cuda.empty_cache()
    return Peaks(**{name: found[name] for name in NAMES}, cache_bytes=cache_bytes)


def _measure_memory(
    found: dict[str, float], device: torch.device, cache_bytes: int, overrides: dict[str, float]
) -> None:
    free, _ = torch.cuda.mem_get_info(device)
    buffer = torch.empty(min(BUFFER_BYTES, free // 16) // 8 * 2, dtype=torch.float32, device=device)
    first, second = buffer.chunk(2)
    _find(found, "write_gbs", partial(buffer.fill_, 1.0), buffer.nbytes / 1e9)
    _find(found, "read_gbs", partial(first.copy_, second), buffer.nbytes / 1e9)
    # A fill that stays in the cache is shorter than its launch: the measured rate is only a lower bound.
    _find(found, "cache_gbs", _repeated(buffer[: cache_bytes // 8]), cache_bytes // 8 * 4 * REPEATED / 1e9)
    if "cache_gbs" not in overrides:
        found["cache_gbs"] = max(found["cache_gbs"], CACHE_LEAST * found["write_gbs"])


def _repeated(part: torch.Tensor) -> Callable[[], None]:
    def fill() -> None:
        for _ in range(REPEATED):
            part.fill_(1.0)

    return fill


def _measure_products(found: dict[str, float], device: torch.device) -> None:
    allowed = torch.backends.cuda.matmul.allow_tf32
    try:
        for name, dtype, is_tf32 in (
            ("half_tflops", torch.bfloat16, False),
            ("tf32_tflops", torch.float32, True),
            ("float32_tflops", torch.float32, False),
        ):
            torch.backends.cuda.matmul.allow_tf32 = is_tf32
            a = torch.ones(PRODUCT, PRODUCT, dtype=dtype, device=device)
            _find(found, name, partial(torch.mm, a, a, out=torch.empty_like(a)), 2 * PRODUCT**3 / 1e12)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed


def _find(found: dict[str, float], name: str, call: Callable[[], Any], amount: float) -> None:
    """The best rate of some calls, unless it is known already: `amount` of one call over its seconds on the GPU."""
    if name in found:
        return
    call()
    torch.cuda.synchronize()
    end = time.monotonic() + BUDGET_S / len(NAMES)
    best = math.inf
    while time.monotonic() < end or best == math.inf:
        events = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        events[0].record()
        call()
        events[1].record()
        torch.cuda.synchronize()
        best = min(best, events[0].elapsed_time(events[1]) / 1e3)
    found[name] = amount / best

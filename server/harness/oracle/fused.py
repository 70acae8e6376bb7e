"""The comparison of tolerance.py as one pass over GPU memory: outputs of gigabytes in milliseconds.

Same rules, same figures as the plain version; a test marked gpu holds the two against each other. The kernels are the
referee's own: they are compiled into its own cache and never see what a candidate wrote but as numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
import triton
import triton.language as tl

BLOCK: Final = 1024
PROGRAMS: Final = 2112
"""Sixteen for each multiprocessor of an H100; enough for any card, and few atomics."""
SURE: Final = 1.0 - 1e-5
"""Of a limit: what is within so much of it in single precision is within it exactly."""
LARGEST: Final = torch.finfo(torch.float32).max
"""What the kernels tell of an error that single precision cannot hold."""
FLOATS: Final = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Counts:
    differing: int
    beyond: int
    nonfinite: int
    first: int
    first_is_nonfinite: bool
    expected_nonfinite: int
    max_abs: float
    max_rel: float
    max_scaled: float


@triton.jit
def _compare_kernel(got, expected, counts, worst, n, atol, rtol, outlier, scale, step, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    infinity = float("inf")
    far = 0x7FFFFFFFFFFFFFFF
    differing = tl.zeros((BLOCK,), tl.int32)
    beyond = tl.zeros((BLOCK,), tl.int32)
    nonfinite = tl.zeros((BLOCK,), tl.int32)
    odd_expected = tl.zeros((BLOCK,), tl.int32)
    first = tl.full((BLOCK,), far, tl.int64)
    max_abs = tl.zeros((BLOCK,), tl.float32)
    max_rel = tl.zeros((BLOCK,), tl.float32)
    max_scaled = tl.zeros((BLOCK,), tl.float32)
    start = tl.program_id(0).to(tl.int64) * BLOCK
    while start < n:
        at = start + tl.arange(0, BLOCK)
        inside = at < n
        a = tl.load(got + at, mask=inside, other=0.0).to(tl.float64)
        b = tl.load(expected + at, mask=inside, other=0.0).to(tl.float64)
        size = tl.abs(b)
        a_finite = tl.abs(a) < infinity
        b_finite = size < infinity
        both = a_finite & b_finite
        error = tl.where(both, tl.abs(a - b), 0.0)
        allowed = atol + rtol * size
        same_odd = (a == b) | ((a != a) & (b != b))
        wrong = inside & tl.where(both, error > allowed, same_odd == 0)
        differing += wrong.to(tl.int32)
        beyond += (wrong & ((both == 0) | (error > outlier * allowed))).to(tl.int32)
        nonfinite += (wrong & (a_finite == 0) & b_finite).to(tl.int32)
        odd_expected += (inside & (b_finite == 0)).to(tl.int32)
        first = tl.minimum(first, tl.where(wrong, at, far))
        # The largest errors are for people and for scales: single precision, and one fast division each.
        narrow = error.to(tl.float32)
        width = size.to(tl.float32)
        max_abs = tl.maximum(max_abs, narrow)
        max_rel = tl.maximum(max_rel, tl.where(both & (width > 1e-30), narrow / tl.maximum(width, 1e-30), 0.0))
        max_scaled = tl.maximum(max_scaled, tl.where(both, narrow / tl.maximum(scale + width, 1e-37), 0.0))
        start += step
    tl.atomic_add(counts, tl.sum(differing, 0).to(tl.int64))
    tl.atomic_add(counts + 1, tl.sum(beyond, 0).to(tl.int64))
    tl.atomic_add(counts + 2, tl.sum(nonfinite, 0).to(tl.int64))
    tl.atomic_add(counts + 3, tl.sum(odd_expected, 0).to(tl.int64))
    tl.atomic_min(counts + 4, tl.min(first, 0))
    program = tl.program_id(0)
    tl.store(worst + program * 3, tl.max(max_abs, 0))
    tl.store(worst + program * 3 + 1, tl.max(max_rel, 0))
    tl.store(worst + program * 3 + 2, tl.max(max_scaled, 0))


@triton.jit
def _screen_kernel(got, expected, unsure, worst, n, atol, rtol, step, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    infinity = float("inf")
    odd = tl.zeros((BLOCK,), tl.int32)
    max_abs = tl.zeros((BLOCK,), tl.float32)
    max_rel = tl.zeros((BLOCK,), tl.float32)
    start = tl.program_id(0).to(tl.int64) * BLOCK
    while start < n:
        at = start + tl.arange(0, BLOCK)
        inside = at < n
        a = tl.load(got + at, mask=inside, other=0.0).to(tl.float32)
        b = tl.load(expected + at, mask=inside, other=0.0).to(tl.float32)
        error = tl.abs(a - b)
        size = tl.abs(b)
        odd |= ((error <= atol + rtol * size) & (size < infinity)).to(tl.int32) ^ 1  # a NaN is within nothing
        max_abs = tl.maximum(max_abs, error)
        max_rel = tl.maximum(max_rel, tl.where(size > 1e-30, error / tl.maximum(size, 1e-30), 0.0))
        start += step
    tl.atomic_max(unsure, tl.max(odd, 0))
    program = tl.program_id(0)
    tl.store(worst + program * 2, tl.max(max_abs, 0))
    tl.store(worst + program * 2 + 1, tl.max(max_rel, 0))


def _screen(mine: torch.Tensor, theirs: torch.Tensor, atol: float, rtol: float) -> Counts | None:
    """Of outputs that are all clearly within the limit, as right ones are: half as long as the whole comparison takes,
    which is in double precision. None: it has to be asked."""
    n = mine.numel()
    programs = min(PROGRAMS, triton.cdiv(n, BLOCK))
    unsure = torch.zeros(1, dtype=torch.int32, device=mine.device)
    worst = torch.zeros((programs, 2), dtype=torch.float32, device=mine.device)
    _screen_kernel[(programs,)](
        mine, theirs, unsure, worst, n, SURE * atol, SURE * rtol, programs * BLOCK, BLOCK, num_warps=8
    )
    if unsure.item():
        return None
    max_abs, max_rel = worst.max(0).values.clamp_max(LARGEST).tolist()
    return Counts(0, 0, 0, -1, False, 0, max_abs, max_rel, 0.0)


def are_surely_within(pairs: list[tuple[torch.Tensor, torch.Tensor, float, float]]) -> bool:
    """(got, expected, atol, rtol), as compare() takes them: one wait for all. False: not surely."""
    if not pairs or any(torch.float64 in (got.dtype, expected.dtype) for got, expected, _, _ in pairs):
        return False
    device = pairs[0][0].device
    unsure = torch.zeros(1, dtype=torch.int32, device=device)
    worst = torch.empty((PROGRAMS, 2), dtype=torch.float32, device=device)  # which nobody reads
    for got, expected, atol, rtol in pairs:
        mine, theirs = got.reshape(-1), expected.reshape(-1)
        n = mine.numel()
        programs = min(PROGRAMS, triton.cdiv(n, BLOCK))
        _screen_kernel[(programs,)](
            mine, theirs, unsure, worst, n, SURE * atol, SURE * rtol, programs * BLOCK, BLOCK, num_warps=8
        )
    return not unsure.item()


def can_compare(got: torch.Tensor, expected: torch.Tensor) -> bool:
    return got.is_cuda and got.dtype in FLOATS and expected.dtype in FLOATS and got.numel() > 0


def compare(
    got: torch.Tensor,
    expected: torch.Tensor,
    *,
    atol: float = 0.0,
    rtol: float = 0.0,
    outlier: float = 1.0,
    scale: float = 0.0,
) -> Counts:
    """Both of one shape, on the GPU, floats. max_scaled: the largest |got - expected| / (scale + |expected|); with a
    limit it may be 0."""
    mine, theirs = got.reshape(-1), expected.reshape(-1)
    if rtol > 0.0 and torch.float64 not in (got.dtype, expected.dtype):
        found = _screen(mine, theirs, atol, rtol)
        if found is not None:
            return found
    n = mine.numel()
    counts = torch.zeros(5, dtype=torch.int64, device=got.device)
    counts[4] = 0x7FFFFFFFFFFFFFFF
    programs = min(PROGRAMS, triton.cdiv(n, BLOCK))
    worst = torch.zeros((programs, 3), dtype=torch.float32, device=got.device)
    _compare_kernel[(programs,)](
        mine, theirs, counts, worst, n, atol, rtol, outlier, scale, programs * BLOCK, BLOCK, num_warps=8
    )
    differing, beyond, nonfinite, odd, first = counts.tolist()
    max_abs, max_rel, max_scaled = worst.max(0).values.clamp_max(LARGEST).tolist()
    is_odd = False
    if differing:
        is_odd = not bool(torch.isfinite(mine[first])) and bool(torch.isfinite(theirs[first]))
    return Counts(differing, beyond, nonfinite, first if differing else -1, is_odd, odd, max_abs, max_rel, max_scaled)


def warm_up(device: torch.device) -> None:
    """Compile for the pairs of dtypes that tasks have."""
    for mine in FLOATS:
        a = torch.ones(16, dtype=mine, device=device)
        for theirs in {mine, torch.float64}:
            compare(a, a.to(theirs))
            compare(a, 2 * a.to(theirs), rtol=0.1)  # which the screen leaves to the whole comparison

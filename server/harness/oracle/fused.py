"""The comparison of tolerance.py as one pass over GPU memory: outputs of gigabytes in milliseconds.

Same rules, same figures as the plain version; a test marked gpu holds the two against each other. The kernels are the
referee's own: they are compiled into its own cache and never see what a candidate wrote but as numbers.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from typing import Final

import torch
import triton
import triton.language as tl

BLOCK: Final = 1024
PROGRAMS: Final = 2112
"""Sixteen for each multiprocessor of an H100; enough for any card, and few atomics."""
SURE: Final = 1.0 - 1e-5
"""Of a limit: a value within this part of it in single precision is within it exactly."""
LARGEST: Final = torch.finfo(torch.float32).max
"""The kernels' result for an error that single precision cannot represent."""
FLOATS: Final = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
FAR: Final = (1 << 63) - 1
NOTHING: Final = (0, 0, 0, FAR, 0, 0, 0)
"""The kernels' result, before the first element: four counts as in Counts, then the largest errors as the bits of a
float, which are ordered if none is negative. All in one tensor, since waiting for the GPU takes the most time."""


@dataclass(frozen=True)
class Counts:
    differing: int
    beyond: int
    nonfinite: int
    first: int
    max_abs: float
    max_rel: float
    max_scaled: float


@triton.jit
def _tell_largest(told, values):  # type: ignore[no-untyped-def]
    tl.atomic_max(told, tl.max(values, 0).to(tl.int32, bitcast=True).to(tl.int64))


@triton.jit
def _compare_kernel(got, expected, told, n, atol, rtol, outlier, scale, step, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    infinity = float("inf")
    far = 0x7FFFFFFFFFFFFFFF
    differing = tl.zeros((BLOCK,), tl.int32)
    beyond = tl.zeros((BLOCK,), tl.int32)
    nonfinite = tl.zeros((BLOCK,), tl.int32)
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
        first = tl.minimum(first, tl.where(wrong, at, far))
        # The largest errors are for people and for scales: single precision, and one fast division each.
        narrow = error.to(tl.float32)
        width = size.to(tl.float32)
        max_abs = tl.maximum(max_abs, narrow)
        max_rel = tl.maximum(max_rel, tl.where(both & (width > 1e-30), narrow / tl.maximum(width, 1e-30), 0.0))
        max_scaled = tl.maximum(max_scaled, tl.where(both, narrow / tl.maximum(scale + width, 1e-37), 0.0))
        start += step
    tl.atomic_add(told, tl.sum(differing, 0).to(tl.int64))
    tl.atomic_add(told + 1, tl.sum(beyond, 0).to(tl.int64))
    tl.atomic_add(told + 2, tl.sum(nonfinite, 0).to(tl.int64))
    tl.atomic_min(told + 3, tl.min(first, 0))
    _tell_largest(told + 4, max_abs)
    _tell_largest(told + 5, max_rel)
    _tell_largest(told + 6, max_scaled)


@triton.jit
def _screen_kernel(got, expected, told, n, atol, rtol, step, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
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
    tl.atomic_max(told, tl.max(odd, 0).to(tl.int64))
    _tell_largest(told + 4, max_abs)
    _tell_largest(told + 5, max_rel)


@functools.cache
def _nothing(device: torch.device) -> torch.Tensor:
    return torch.tensor(NOTHING, dtype=torch.int64, device=device)


def _screen(got: torch.Tensor, expected: torch.Tensor, told: torch.Tensor, atol: float, rtol: float) -> None:
    """Queue it: the first count is 0 where all is clearly within the limit, as right outputs are. That takes half as
    long as the whole comparison, which is in double precision."""
    mine, theirs = got.reshape(-1), expected.reshape(-1)
    n = mine.numel()
    programs = min(PROGRAMS, triton.cdiv(n, BLOCK))
    _screen_kernel[(programs,)](mine, theirs, told, n, SURE * atol, SURE * rtol, programs * BLOCK, BLOCK, num_warps=8)


def _counts(told: list[int]) -> Counts:
    differing, beyond, nonfinite, first, *bits = told
    largest = (min(struct.unpack("f", struct.pack("i", each))[0], LARGEST) for each in bits)
    return Counts(differing, beyond, nonfinite, first if differing else -1, *largest)


def are_surely_within(pairs: list[tuple[torch.Tensor, torch.Tensor, float, float]]) -> bool:
    """(got, expected, atol, rtol), as compare() takes them: one wait for all. False: not surely."""
    if not pairs or any(torch.float64 in (got.dtype, expected.dtype) for got, expected, _, _ in pairs):
        return False
    told = _nothing(pairs[0][0].device).clone()
    for got, expected, atol, rtol in pairs:
        _screen(got, expected, told, atol, rtol)
    return not told[0].item()


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
    nothing = _nothing(got.device)
    if rtol > 0.0 and torch.float64 not in (got.dtype, expected.dtype):
        told = nothing.clone()
        _screen(got, expected, told, atol, rtol)
        found = told.tolist()
        if not found[0]:
            return _counts(found)
    mine, theirs, told = got.reshape(-1), expected.reshape(-1), nothing.clone()
    n = mine.numel()
    programs = min(PROGRAMS, triton.cdiv(n, BLOCK))
    _compare_kernel[(programs,)](
        mine, theirs, told, n, atol, rtol, outlier, scale, programs * BLOCK, BLOCK, num_warps=8
    )
    return _counts(told.tolist())


def warm_up(device: torch.device) -> None:
    """Compile for the pairs of dtypes that tasks have."""
    for mine in FLOATS:
        a = torch.ones(16, dtype=mine, device=device)
        for theirs in {mine, torch.float64}:
            compare(a, a.to(theirs))
            compare(a, 2 * a.to(theirs), rtol=0.1)  # which the screen leaves to the whole comparison

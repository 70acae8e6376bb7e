"""Answers beside a step. What a task rounds to codes inside lies on one side of a step or on the other by last digits
alone, so that a right kernel differs from the reference by a whole step at a few places. Such a place is right where an
exact answer is the same once the inputs' last digits are others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from oracle import tolerance
from oracle.tolerance import Limit

FEW: Final = 1e-3
"""Of an answer's elements so many may be beside a step, and one always."""
ELEMENTS_MOST: Final = 1 << 26


@dataclass
class Doubt:
    """Where an answer is beyond its limit."""

    limit: Limit
    shape: torch.Size
    places: torch.Tensor
    """int64[n], flat and row-major."""
    got: torch.Tensor
    """float64[n], the answer there."""
    right: torch.Tensor
    """float64[n], NaN as long as no right answer is near."""
    is_settled: bool = False

    def look(self, answer: Any) -> None:
        """At another exact answer; one of another shape says nothing."""
        if not isinstance(answer, torch.Tensor) or answer.shape != self.shape:
            return
        there = answer.reshape(-1)[self.places].double()
        is_near = (self.got - there).abs() <= self.limit.atol + self.limit.rtol * there.abs()
        is_near &= torch.isfinite(there)  # to infinity any number is near
        self.right = torch.where(is_near & self.right.isnan(), there, self.right)
        self.is_settled = not bool(self.right.isnan().any())

    def put(self, wanted: torch.Tensor) -> None:
        """The right answers that were found, in their places of a contiguous tensor."""
        known = ~self.right.isnan()
        wanted.view(-1)[self.places[known]] = self.right[known].to(wanted.dtype)


def doubt(got: Any, wanted: Any, limit: Limit) -> Doubt | None:
    """None where an answer is within its limit, or is not beside steps: wrong at more than a few places, or NaN. One
    number alone is compared as it is: a sum moves by less than its limit where one of its codes is another."""
    if not all(isinstance(x, torch.Tensor) and x.is_floating_point() for x in (got, wanted)):
        return None
    if got.shape != wanted.shape or not 1 < wanted.numel() <= ELEMENTS_MOST:
        return None
    found = tolerance.compare(got, wanted, limit)
    if found.is_match(limit) or found.nonfinite or found.differing > max(1, FEW * found.elements):
        return None
    a, b = got.reshape(-1).double(), wanted.reshape(-1).double()
    error, allowed = (a - b).abs(), limit.atol + limit.rtol * b.abs()
    wrong, far = error > allowed, error > limit.outlier * allowed
    if int(wrong.sum()) != found.differing:  # a number where none is right has no distance, and no step
        return None
    is_few = int((wrong & ~far).sum()) <= (1.0 - limit.ratio) * found.elements  # that a limit allows anyway
    places = (far if is_few else wrong).nonzero()[:, 0]
    return Doubt(limit, wanted.shape, places, a[places], torch.full_like(a[places], torch.nan))


def settle(doubts: Mapping[int, Doubt], answers: Generator[list[Any], None, None]) -> bool:
    """By output. answers: exact ones to inputs with other last digits, as many as are looked at; closed. False: some
    place is right by none of them."""
    with contextlib.closing(answers):
        for answer in answers:
            for index, one in doubts.items():
                one.look(answer[index] if index < len(answer) else None)
            if all(one.is_settled for one in doubts.values()):
                return True
    return False

"""Metamorphic relations: what answers to related inputs must be to each other, whoever computes them.

A form says which inputs to call and what the answers must then be. Whether a form is a task's is not decided here: it
is where the task's reference satisfies it in fp64 (`holds()`); then a candidate's own answers must satisfy it within
the error that each of them may have (`violation()`).

Inputs that are added to are put onto a grid of few binary digits first, so that every sum is exact in any dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

GRID: Final = 64
"""Steps from 0 to the largest value of an input on the grid: sums of two have eight binary digits."""
EXACT: Final = 1e-9
"""What an fp64 reference that satisfies a form may be off, relative to the answers that are put together."""
CHUNK: Final = 1 << 24
"""Elements compared at once."""

Inputs = list[Any]
Answer = list[torch.Tensor]
"""The floating-point outputs of a call, in order."""


@dataclass(frozen=True)
class Pair:
    """Two tensors that are equal where the form holds, and the answers that went into them."""

    left: torch.Tensor
    right: torch.Tensor
    terms: tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Form:
    """One way in which a relation can hold."""

    relation: str
    text: str
    vary: Callable[[Inputs, torch.Generator], list[Inputs] | None]
    """What is called, in order; None: it says nothing of such inputs."""
    relate: Callable[[list[torch.Tensor], list[Inputs]], Pair | None]
    """One output of each of those calls, and what was called; None: the form says nothing of such outputs."""


@dataclass(frozen=True)
class Allowed:
    """What each answer that is put together may err, for this share of the elements."""

    rtol: float
    atol: float
    ratio: float = 1.0


@dataclass(frozen=True)
class Violation:
    """Where two answers contradict each other the most."""

    output: int
    max_abs: float
    differing: int
    elements: int


def related(form: Form, answers: list[Answer], varied: list[Inputs]) -> list[Pair] | None:
    """What has to be equal, for each output; None where the form says nothing of such outputs."""
    if not answers[0] or any(len(answer) != len(answers[0]) for answer in answers):
        return None
    found = [form.relate(list(outputs), varied) for outputs in zip(*answers, strict=True)]
    return None if any(pair is None for pair in found) else [pair for pair in found if pair is not None]


def holds(found: Sequence[Pair]) -> bool:
    """Answers of an fp64 reference satisfy the form, and say anything: not all of them are zero."""
    if not all(bool(torch.isfinite(term).all()) for pair in found for term in pair.terms):
        return False
    limits = [Allowed(EXACT, EXACT * max(_largest(term) for term in pair.terms)) for pair in found]
    return any(_largest(pair.left) > 0 for pair in found) and violation(found, limits) is None


def violation(found: Sequence[Pair], limits: Sequence[Allowed]) -> Violation | None:
    """The first output whose pair is not equal within its limit."""
    for index, (pair, limit) in enumerate(zip(found, limits, strict=True)):
        if pair.left.shape != pair.right.shape:
            return Violation(index, float("inf"), pair.left.numel(), pair.left.numel())
        differing, max_abs = 0, 0.0
        flat = [tensor.reshape(-1).split(CHUNK) for tensor in (pair.left, pair.right, *pair.terms)]
        for left, right, *terms in zip(*flat, strict=True):
            error = (left.double() - right.double()).abs()
            allowed = torch.zeros_like(error)
            for term in terms:
                allowed += limit.rtol * term.double().abs() + limit.atol
            wrong = ~(error <= allowed)  # NaN is wrong, too
            differing += int(wrong.sum())
            max_abs = max(max_abs, float(error.nan_to_num(nan=float("inf")).max()) if error.numel() else 0.0)
        if differing > (1.0 - limit.ratio) * pair.left.numel():
            return Violation(index, max_abs, differing, pair.left.numel())
    return None


# --- the inputs ---


def _floats(inputs: Inputs) -> list[int]:
    return [i for i, x in enumerate(inputs) if isinstance(x, torch.Tensor) and x.is_floating_point() and x.numel()]


def _replaced(inputs: Inputs, changed: dict[int, torch.Tensor]) -> Inputs:
    return [changed.get(index, item) for index, item in enumerate(inputs)]


def _largest(tensor: torch.Tensor) -> float:
    return float(tensor.abs().max()) if tensor.numel() else 0.0


def _on_grid(tensor: torch.Tensor) -> torch.Tensor:
    """Rounded to GRID steps of a power of two each."""
    step = _step(tensor)
    return (tensor.double() / step).round().mul_(step).to(tensor.dtype)


def _step(tensor: torch.Tensor) -> float:
    largest = _largest(tensor)
    return 2.0 ** float(torch.tensor(max(largest, 1e-30)).log2().ceil()) / GRID


def _another(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Others on the same grid, of both signs."""
    drawn = torch.randint(-GRID, GRID + 1, tensor.shape, generator=generator, device=generator.device)
    return (drawn.to(tensor.device).double() * _step(tensor)).to(tensor.dtype)


Which = Callable[[Inputs], list[int]]


def _all(inputs: Inputs) -> list[int]:
    return _floats(inputs)


def _first(inputs: Inputs) -> list[int]:
    """The first alone, where there are others: a product is linear in each of its operands."""
    found = _floats(inputs)
    return found[:1] if len(found) > 1 else []


def _doubled(which: Which) -> Callable[[Inputs, torch.Generator], list[Inputs] | None]:
    def vary(inputs: Inputs, generator: torch.Generator) -> list[Inputs] | None:
        chosen = which(inputs)
        return [inputs, _replaced(inputs, {i: inputs[i] * 2 for i in chosen})] if chosen else None

    return vary


def _added(which: Which) -> Callable[[Inputs, torch.Generator], list[Inputs] | None]:
    def vary(inputs: Inputs, generator: torch.Generator) -> list[Inputs] | None:
        chosen = which(inputs)
        if not chosen:
            return None
        one = {i: _on_grid(inputs[i]) for i in chosen}
        other = {i: _another(inputs[i], generator) for i in chosen}
        both = {i: one[i] + other[i] for i in chosen}
        return [_replaced(inputs, changed) for changed in (one, other, both)]

    return vary


def _shifted(inputs: Inputs, generator: torch.Generator) -> list[Inputs] | None:
    """By the largest value of the first: a whole number of steps."""
    found = _floats(inputs)
    if not found:
        return None
    first = found[0]
    plain = _on_grid(inputs[first])
    by = _step(inputs[first]) * GRID
    return [_replaced(inputs, {first: plain}), _replaced(inputs, {first: plain + by})]


def _swapped(inputs: Inputs, generator: torch.Generator) -> list[Inputs] | None:
    found = _floats(inputs)
    if len(found) < 2:
        return None
    a, b = inputs[found[0]], inputs[found[1]]
    if a.shape != b.shape or a.dtype != b.dtype or torch.equal(a, b):
        return None
    return [inputs, _replaced(inputs, {found[0]: b, found[1]: a})]


def _order(size: int) -> torch.Tensor:
    """A fixed order without a fixed point but for odd sizes: halves change places."""
    return torch.arange(size).roll(size // 2)


def _permuted(inputs: Inputs, generator: torch.Generator) -> list[Inputs] | None:
    """The rows (first dimension) of every input that has as many as the first one."""
    tensors = [i for i, x in enumerate(inputs) if isinstance(x, torch.Tensor) and x.dim() > 0]
    if not tensors or inputs[tensors[0]].shape[0] < 2:
        return None
    rows = inputs[tensors[0]].shape[0]
    chosen = [i for i in tensors if inputs[i].shape[0] == rows]
    return [inputs, _replaced(inputs, {i: inputs[i][_order(rows).to(inputs[i].device)] for i in chosen})]


# --- the answers ---


def _twice(outputs: list[torch.Tensor], varied: list[Inputs]) -> Pair:
    plain, doubled = outputs
    return Pair(doubled, plain.double() * 2, (doubled, plain, plain))


def _sum(outputs: list[torch.Tensor], varied: list[Inputs]) -> Pair:
    one, other, both = outputs
    return Pair(both, one.double() + other.double(), (both, one, other))


def _same(outputs: list[torch.Tensor], varied: list[Inputs]) -> Pair:
    plain, changed = outputs
    return Pair(changed, plain, (changed, plain))


def _moved_along(outputs: list[torch.Tensor], varied: list[Inputs]) -> Pair | None:
    plain, changed = outputs
    rows = next(x.shape[0] for x in varied[0] if isinstance(x, torch.Tensor) and x.dim() > 0)
    if plain.dim() == 0 or plain.shape[0] != rows:
        return None
    moved = plain[_order(rows).to(plain.device)]
    return Pair(changed, moved, (changed, moved))


def _shifted_along(outputs: list[torch.Tensor], varied: list[Inputs]) -> Pair:
    plain, changed = outputs
    first = _floats(varied[0])[0]
    by = (varied[1][first].reshape(-1)[0].double() - varied[0][first].reshape(-1)[0].double()).item()
    return Pair(changed, plain.double() + by, (changed, plain))


FORMS: Final = (
    Form("homogeneity", "f(2x) = 2 f(x)", _doubled(_all), _twice),
    Form("homogeneity", "f(2x, y) = 2 f(x, y)", _doubled(_first), _twice),
    Form("additivity", "f(x + x') = f(x) + f(x')", _added(_all), _sum),
    Form("additivity", "f(x + x', y) = f(x, y) + f(x', y)", _added(_first), _sum),
    Form("commutativity", "f(x, y) = f(y, x)", _swapped, _same),
    Form("permutation", "f(Px) = P f(x), P of rows", _permuted, _moved_along),
    Form("permutation", "f(Px) = f(x), P of rows", _permuted, _same),
    Form("shift", "f(x + c) = f(x)", _shifted, _same),
    Form("shift", "f(x + c) = f(x) + c", _shifted, _shifted_along),
)
"""Of each relation the first form that the reference satisfies is asked."""

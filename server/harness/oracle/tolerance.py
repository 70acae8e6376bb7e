"""When two outputs are equal: the comparison, and the table of tolerances (docs/tolerances.md argues each row).

An element matches when |got - expected| <= r * (s + |expected|), s being the root mean square of expected over
the tensor's elements that are not zero, its largest hundredth left out, and FLOOR of the root mean square of all at
least. A value that the dtype cannot represent as a normal number may be zero. r begins at the row's `base` and grows
to MARGIN times the error of the reference itself in the task's own dtype, measured the same way against fp64, up to
`most`. Integers and booleans equal the reference's own answer or its fp64 one; as many elements as these two differ
in, AMBIGUOUS_MOST at most, may have a third value no further away than these are, or than one. A float of Python's is
an output like a tensor of one element, compared by NUMBER's row: it does not show the dtype from which it was made.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch


@dataclass(frozen=True)
class Row:
    base: float
    most: float
    ratio: float  # share of the elements that must match; the others must be within OUTLIER times r


MARGIN: Final = 4.0
OUTLIER: Final = 10.0
EXTREME_RATIO: Final = 0.995
"""As a row's `ratio`, at most, for inputs under an extreme transformation: for some the reference's error is chance (a
softmax of logits of 10,000 whose two greatest are nearly one). Precision shows at the other inputs."""
LAST_DIGITS: Final = 2.0**-22
"""The error that float32 answers to extreme inputs may have, within OUTLIER times the limit, however small they are: a
sigmoid or 1 + x on the way is about 1, and this is four of its last digits."""
TABLE: Final[dict[torch.dtype, Row]] = {
    torch.float64: Row(1e-9, 1e-6, 1.0),
    torch.complex128: Row(1e-9, 1e-6, 1.0),
    torch.float32: Row(1e-4, 1.5e-2, 1.0),
    torch.complex64: Row(1e-4, 1.5e-2, 1.0),
    torch.float16: Row(4e-3, 4e-2, 0.9999),
    torch.bfloat16: Row(1.6e-2, 8e-2, 0.9999),
    torch.float8_e4m3fn: Row(0.13, 0.25, 0.999),
    torch.float8_e5m2: Row(0.25, 0.5, 0.999),
}
NUMBER: Final = torch.float32
AMBIGUOUS_MOST: Final = 0.125
AMBIGUOUS_SANE: Final = 0.25
"""Share of an integer output in which the reference's own run and its fp64 run may differ: more says nothing."""
AMBIGUOUS_LEAST: Final = 1e-4
"""Of integers that are computed from floats, however well the two runs agree: a division may round otherwise."""
SCATTERED: Final = 3.0
"""Standard deviations by which the number of ambiguous elements may be above the expected one."""
TF32_BASE: Final = 4e-3
"""`base` of float32 outputs for tasks whose reference itself changes when TF32 is allowed."""
KERNELBENCH: Final = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 1e-2}
"""KernelBench's own rule: |got - expected| <= t + t * |expected|."""
CHUNK: Final = 1 << 26
SAMPLE: Final = 65536
TRIM: Final = 0.01
FLOOR: Final = 1e-6
"""Of the untrimmed root mean square: a softmax that is nearly one-hot has all its weight in the trimmed hundredth."""
SUBNORMAL: Final = {
    torch.float64: torch.finfo(torch.float64).tiny,
    torch.complex128: torch.finfo(torch.float64).tiny,
    torch.float32: torch.finfo(torch.float32).tiny,
    torch.complex64: torch.finfo(torch.float32).tiny,
    torch.bfloat16: torch.finfo(torch.bfloat16).tiny,
}
"""GPUs flush results below it to zero in fast arithmetic. Not for float16, whose subnormal numbers are used."""
SCALE_LEAST: Final = {torch.float16: 2.0**-24 / 4e-3}
"""With its row's base one step of the type: most of a softmax may be less than that."""
ROUNDED_LEAST: Final = 256
"""Fewer elements than this do not show whether outputs were rounded."""
MISROUNDED_MOST: Final = 0.25
"""Share of a float8 output's values that may be neighbours of right ones: a product in half precision errs in a tenth,
truncation in a half."""
DIFFERING: Final = 0.01
"""Share of an output's elements that must change with the inputs."""


@dataclass(frozen=True)
class Limit:
    """|got - expected| <= atol + rtol * |expected|, for `ratio` of the elements, outlier times that for the rest."""

    rtol: float
    atol: float
    ratio: float = 1.0
    outlier: float = 1.0


@dataclass
class Difference:
    """How far an output is from what was expected."""

    elements: int = 0
    differing: int = 0
    beyond_outlier: int = 0
    nonfinite: int = 0
    max_abs: float = 0.0
    max_rel: float = 0.0
    first: int | None = None  # flat index of the first element that differs

    def is_match(self, limit: Limit) -> bool:
        if self.nonfinite or self.beyond_outlier:
            return False
        return self.differing <= (1.0 - limit.ratio) * self.elements


def as_tensor(leaf: Any) -> torch.Tensor | None:
    """The tensor that is compared by a limit, also made of a float or a complex. None: compared for equality."""
    if isinstance(leaf, torch.Tensor):
        return leaf
    if isinstance(leaf, float | complex):
        return torch.tensor(leaf, dtype=torch.complex128 if isinstance(leaf, complex) else torch.float64)
    return None


def dtype_of(leaf: Any) -> torch.dtype:
    """The row of the table for a leaf."""
    return leaf.dtype if isinstance(leaf, torch.Tensor) else NUMBER


def scale_of(expected: torch.Tensor) -> float:
    """Root mean square over finite elements but 0, from an even sample of fewer than twice SAMPLE; 0 for none.

    Trimmed, so that a few spikes do not loosen the limit of all the others, but not below FLOOR times the whole one's.
    The device is waited for once.
    """
    return float(scales_of(expected.reshape(1, -1))) if expected.numel() else 0.0


def scales_of(rows: torch.Tensor) -> torch.Tensor:
    """scale_of() each row, in fp64. They have elements."""
    sample = _wide(rows[:, :: max(1, rows.shape[1] // SAMPLE)]).abs()
    counts = torch.isfinite(sample) & (sample > 0)
    squares = torch.where(counts, sample, torch.inf).sort(1).values.square()
    of = counts.sum(1, keepdim=True)
    kept = (of * (1.0 - TRIM)).long().clamp_min(1)
    place = torch.arange(squares.shape[1], device=squares.device)
    trimmed, whole = (torch.where(place < n, squares, 0.0).sum(1) / n.clamp_min(1)[:, 0] for n in (kept, of))
    return torch.where(of[:, 0] > 0, torch.maximum(trimmed.sqrt(), FLOOR * whole.sqrt()), 0.0)


def relative_errors(got: torch.Tensor, expected: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """relative_error() of each row, by the scales. In fp64."""
    error = (got - expected).abs() / (scales[:, None] + expected.abs()).clamp_min(1e-300)
    return torch.where(torch.isfinite(error), error, 0.0).amax(1)


def distances(
    got: torch.Tensor, expected: torch.Tensor, atol: torch.Tensor, rtol: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of each row, in fp64: how many elements are beyond its limit, and the largest errors, absolute and relative."""
    error, size = (got - expected).abs(), expected.abs()
    odd = ~torch.isfinite(got) | ~torch.isfinite(expected)
    same = (got == expected) | (got.isnan() & expected.isnan())
    wrong = torch.where(odd, ~same, error > atol + rtol * size)
    error = torch.where(odd, 0.0, error)
    relative = torch.where(size > 1e-30, error / size.clamp_min(1e-30), 0.0)
    return wrong.sum(1).double(), error.amax(1), torch.where(odd, 0.0, relative).amax(1)


def sampled_rows(rows: torch.Tensor) -> torch.Tensor:
    """sample() of each row, not copied."""
    return rows[:, :: (rows.shape[1] // SAMPLE) | 1]


def _scale(dtype: torch.dtype, expected: torch.Tensor, most: float | None, known: float | None) -> float:
    found = scale_of(expected) if known is None else known
    return max(min(found, most) if most else found, SCALE_LEAST.get(dtype, 0.0))


def vanishes(scales: Iterable[float | None], plain: Iterable[float | None]) -> bool:
    """All of an answer is less than the last digits of the plain one. scales, plain: scale_of() each output; None: it
    has none."""
    both = zip(scales, plain, strict=False)
    lost = [now < LAST_DIGITS * before for now, before in both if now is not None and before is not None]
    return bool(lost) and all(lost)


def sample(leaf: torch.Tensor) -> torch.Tensor:
    """At most twice SAMPLE elements, evenly, copied; the step is odd: rows of 2^n are not all met at one place."""
    return leaf.reshape(-1)[:: (leaf.numel() // SAMPLE) | 1].clone()


def differs(
    got: torch.Tensor, first: torch.Tensor, dtype: torch.dtype, *, tf32: bool, known: float | None = None
) -> bool:
    """Of two samples of outputs of this dtype, one element in a hundred is another by more than the table's base.

    known: scale_of(first), where that was asked before.
    """
    if got.shape != first.shape:
        return True
    found = compare(got, first, limit_for(dtype, first, 0.0, tf32=tf32, known=known))
    return found.differing > DIFFERING * first.numel()


def is_rounded(got: torch.Tensor, allowed: torch.Tensor) -> bool:
    """A float32 output whose values have 11 bits, or fewer, if the reference's have more: rounded on its way.

    A float16 output is, if its values have 8 bits, as in bfloat16. allowed: a sample of the reference's own output in
    the precision that is allowed, TF32 products included.
    """
    if got.dtype not in _LAST_BITS or allowed.dtype is not got.dtype:
        return False
    return _share_of_short(sample(got)) > 0.99 and _share_of_short(allowed) < 0.5


def is_misrounded(got: torch.Tensor, own: torch.Tensor, expected: torch.Tensor) -> bool:
    """A float8 output of which more values differ from both answers of the reference than an honest error explains.

    Its limit is one step of the type, within which a value that was cut off, and not rounded, lies as well. own: a
    sample of the reference's output; expected: the whole one in fp64.
    """
    if got.itemsize != 1 or not got.is_floating_point() or got.shape != expected.shape:
        return False
    mine, theirs, wide = sample(got).double(), own.double(), sample(expected).to(got.dtype).double()
    if mine.shape != theirs.shape:
        return False
    shows = (wide != 0) & torch.isfinite(wide)  # zeros are what they are, however the rest is rounded
    mine, theirs, wide = mine[shows], theirs[shows], wide[shows]
    if mine.numel() < ROUNDED_LEAST:
        return False
    ambiguous = float((theirs != wide).double().mean())
    return float(((mine != theirs) & (mine != wide)).double().mean()) > MISROUNDED_MOST + ambiguous


_LAST_BITS: Final = {torch.float32: (torch.int32, 0x1FFF), torch.float16: (torch.int16, 0x7)}
"""The bits that are 0 after rounding to float16, and to bfloat16."""


def _share_of_short(values: torch.Tensor) -> float:
    """The share of elements whose last bits are 0; zeros and non-finite values left out, 0 for a few."""
    kept = values[torch.isfinite(values) & (values != 0)]
    if kept.numel() < ROUNDED_LEAST:
        return 0.0
    kind, bits = _LAST_BITS[values.dtype]
    return float(((kept.view(kind) & bits) == 0).double().mean())


def _parts(got: torch.Tensor, expected: torch.Tensor) -> list[tuple[int, torch.Tensor, torch.Tensor]]:
    mine, theirs = got.reshape(-1), expected.reshape(-1)
    return [
        (start, mine[start : start + CHUNK], theirs[start : start + CHUNK]) for start in range(0, mine.numel(), CHUNK)
    ]


def _wide(part: torch.Tensor) -> torch.Tensor:
    return part.to(torch.complex128) if part.is_complex() else part.double()


def relative_error(
    got: torch.Tensor, expected: torch.Tensor, scale: float | None = None, known: float | None = None
) -> float:
    """max |got - expected| / (s + |expected|) over elements that are finite in both; 0 when s is 0 and all agree.

    scale, known: as in limit_for().
    """
    scale = _scale(got.dtype, expected, scale, known)
    if _on_gpu(got, expected):
        from oracle import fused

        return fused.compare(got, expected, scale=scale).max_scaled
    worst = 0.0
    for _, mine, theirs in _parts(got, expected):
        a, b = _wide(mine), _wide(theirs)
        error = (a - b).abs() / (scale + b.abs()).clamp_min(1e-300)
        error = error[torch.isfinite(error)]
        if error.numel():
            worst = max(worst, float(error.max()))
    return worst


def limit_for(
    dtype: torch.dtype,
    expected: torch.Tensor,
    own_error: float,
    *,
    tf32: bool,
    ratio: float = 1.0,
    scale: float | None = None,
    known: float | None = None,
) -> Limit:
    """The limit for outputs of this dtype. own_error: relative_error of the reference in its own dtype.

    ratio: the row's, if that is less. scale: in place of scale_of(expected), if that is less. known: that one, which
    takes its time, where it was asked before.
    """
    row = TABLE.get(dtype)
    if row is None:
        return Limit(0.0, 0.0, 1.0 - ambiguous_most(own_error, expected.numel(), AMBIGUOUS_MOST))
    ratio = min(ratio, row.ratio)
    base = max(row.base, TF32_BASE) if tf32 and dtype in (torch.float32, torch.complex64) else row.base
    r = min(row.most, max(base, MARGIN * own_error))
    atol = max(r * _scale(dtype, expected, scale, known), SUBNORMAL.get(dtype, 0.0))
    if ratio < row.ratio and dtype is torch.float32:
        atol = max(atol, min(OUTLIER * atol, LAST_DIGITS))
    return Limit(r, atol, ratio, OUTLIER if ratio < 1.0 else 1.0)


def is_coarse(dtype: torch.dtype, own_error: float) -> bool:
    """The reference itself errs by more than its limit allows for: an answer of its own may be beyond it."""
    row = TABLE.get(dtype)
    return row is not None and MARGIN * own_error > row.most


def kernelbench_limit(dtype: torch.dtype) -> Limit:
    tolerance = KERNELBENCH.get(dtype, 1e-4)
    return Limit(tolerance, tolerance)


def compare(got: torch.Tensor, expected: torch.Tensor, limit: Limit, other: torch.Tensor | None = None) -> Difference:
    """Shapes must be equal. NaN and Inf match only where the reference has the same.

    other: of integers, values as right as `expected` where the two differ; of floats, another right answer. Several of
    these have one dimension more, the first.
    """
    others = () if other is None else other.unbind() if other.dim() > expected.dim() else (other,)
    if others and not is_discrete(expected):
        found = compare(got, expected, limit)
        more = () if found.is_match(limit) else (compare(got, one, limit) for one in others)
        return next((one for one in more if one.is_match(limit)), found)
    if _on_gpu(got, expected):
        return _compare_fused(got, expected, limit)
    found = Difference(elements=expected.numel())
    if is_discrete(expected):
        _compare_discrete(found, got, expected, limit, others)
        return found
    for start, mine, theirs in _parts(got, expected):
        _compare_part(found, start, mine, theirs, limit)
    return found


def third_values(got: torch.Tensor, expected: torch.Tensor, other: torch.Tensor | None) -> list[int]:
    """The places, flat, where integers of one shape have none of the right values."""
    others = () if other is None else other.unbind() if other.dim() > expected.dim() else (other,)
    found: list[int] = []
    for start, mine, theirs in _parts(got, expected):
        wrong = mine != theirs
        for one in others:
            wrong &= mine != one.reshape(-1)[start : start + CHUNK]
        found += (start + wrong.nonzero()[:, 0]).tolist()
    return found


def is_discrete(tensor: torch.Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex())


def ambiguous_most(share: float, elements: int, most: float) -> float:
    """The share of elements that may have a third value if this share is ambiguous: a count varies by its root."""
    return min(most, share + SCATTERED * math.sqrt(share / max(1, elements)))


def ambiguous_share(own: torch.Tensor, wide: torch.Tensor) -> float:
    """The share of elements that two runs of one reference answer differently."""
    return float((own != wide).double().mean()) if own.numel() else 0.0


def is_finite(tensor: torch.Tensor) -> torch.Tensor:
    """As torch.isfinite, which floats of 8 bits have not."""
    return torch.isfinite(tensor.half() if tensor.is_floating_point() and tensor.itemsize == 1 else tensor)


def are_surely_within(pairs: list[tuple[torch.Tensor, torch.Tensor, Limit]]) -> bool:
    """All elements of all these (got, expected, limit) match. False: they may not, and compare() says."""
    if not all(got.shape == expected.shape for got, expected, _ in pairs):
        return False
    exact = [(got, expected) for got, expected, _ in pairs if is_discrete(got) and is_discrete(expected)]
    if exact and bool(torch.stack([(got != expected).any() for got, expected in exact]).any()):
        return False
    rest = [pair for pair in pairs if not (is_discrete(pair[0]) and is_discrete(pair[1]))]
    if not all(_on_gpu(got, expected) for got, expected, _ in rest):
        return False
    if not rest:
        return True
    from oracle import fused

    return fused.are_surely_within([(got, expected, limit.atol, limit.rtol) for got, expected, limit in rest])


def are_rows_within(got: list[torch.Tensor], expected: list[torch.Tensor], limits: list[Limit]) -> torch.Tensor:
    """The same of one output of several calls, small ones, as a boolean of the device's."""
    a, b = torch.stack(got), torch.stack(expected)
    if is_discrete(a) or is_discrete(b) or a.is_complex() or b.is_complex():
        return (a == b).all()
    a, b = (x.reshape(len(got), -1).double() for x in (a, b))
    atol, rtol = b.new_tensor([[x.atol for x in limits], [x.rtol for x in limits]])[:, :, None]
    size = b.abs()
    return (((a - b).abs() <= atol + rtol * size) & (size < torch.inf)).all()  # a NaN is within nothing


def _on_gpu(got: torch.Tensor, expected: torch.Tensor) -> bool:
    if not got.is_cuda:
        return False
    from oracle import fused

    return fused.can_compare(got, expected)


def _compare_fused(got: torch.Tensor, expected: torch.Tensor, limit: Limit) -> Difference:
    from oracle import fused

    counts = fused.compare(got, expected, atol=limit.atol, rtol=limit.rtol, outlier=limit.outlier)
    return Difference(
        elements=expected.numel(),
        differing=counts.differing,
        beyond_outlier=counts.beyond if limit.ratio < 1.0 else 0,
        nonfinite=counts.nonfinite,
        max_abs=counts.max_abs,
        max_rel=counts.max_rel,
        first=counts.first if counts.differing else None,
    )


def _compare_part(found: Difference, start: int, mine: torch.Tensor, theirs: torch.Tensor, limit: Limit) -> None:
    a, b = _wide(mine), _wide(theirs)
    error = (a - b).abs()
    allowed = limit.atol + limit.rtol * b.abs()
    odd = ~torch.isfinite(a) | ~torch.isfinite(b)
    wrong = torch.where(odd, ~((a == b) | (a.isnan() & b.isnan())), error > allowed)
    found.nonfinite += int((wrong & ~torch.isfinite(a) & torch.isfinite(b)).sum())
    if limit.ratio < 1.0:
        found.beyond_outlier += int((wrong & (odd | (error > limit.outlier * allowed))).sum())
    _count(found, start, wrong, error, b)


def _compare_discrete(
    found: Difference, got: torch.Tensor, expected: torch.Tensor, limit: Limit, others: Sequence[torch.Tensor]
) -> None:
    got = got.double() if got.is_floating_point() else got  # torch compares no integers with 8-bit floats
    step = max((_distance(a, b) for other in others for _, a, b in _parts(expected, other)), default=0.0)
    step = max(step, limit.outlier)
    for start, mine, theirs in _parts(got, expected):
        wrong = mine != theirs
        for other in others:
            wrong &= mine != other.reshape(-1)[start : start + CHUNK]
        error = torch.where(wrong, (mine.double() - theirs.double()).abs(), 0.0)
        found.beyond_outlier += int((error > step).sum()) if limit.ratio < 1.0 else 0
        _count(found, start, wrong, error, theirs.double())


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() - b.double()).abs().max()) if a.numel() else 0.0


def _count(found: Difference, start: int, wrong: torch.Tensor, error: torch.Tensor, expected: torch.Tensor) -> None:
    count = int(wrong.sum())
    found.differing += count
    if count and found.first is None:
        found.first = start + int(wrong.to(torch.int8).argmax())
    finite = torch.isfinite(error)
    if bool(finite.any()):
        kept = torch.where(finite, error, torch.zeros_like(error))
        found.max_abs = max(found.max_abs, float(kept.max()))
        relative = kept / expected.abs().clamp_min(1e-300)
        relative = relative[torch.isfinite(relative) & (expected.abs() > 1e-30)]
        if relative.numel():
            found.max_rel = max(found.max_rel, float(relative.max()))


def unravel(flat: int, shape: tuple[int, ...]) -> list[int]:
    """Flat index (row-major) to one index for each dimension."""
    index = []
    for size in reversed(shape):
        index.append(flat % size)
        flat //= size
    return index[::-1]


def number(value: Any) -> float | int | bool | str | None:
    """A tensor's element as JSON can carry it: NaN and infinities as text."""
    found = value.item() if isinstance(value, torch.Tensor) else value
    if isinstance(found, float) and not math.isfinite(found):
        return str(found)
    if isinstance(found, complex):
        return str(found)
    return found if isinstance(found, float | int | bool) else None

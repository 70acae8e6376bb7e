"""How the inputs of a correctness case differ from the task's own: transformed by the referee, in place.

Floating-point tensors are changed. Integers are indices or classes, and a changed one would be another task, unless the
specification says that they vary (`ends`). Structure that a task may promise is kept: zeros stay zeros (triangular
inputs; but not a tensor of nothing else, see `filled`), a symmetric matrix stays symmetric, and sorted rows stay
sorted. Whether a transformation is legal for a task is not decided here: the reference must be finite on it, agree with
itself in fp64 and answer something else than before, else another takes its place (judge.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from shared import values

SPIKE: Final = {torch.float64: 1e6, torch.float32: 131072.0, torch.bfloat16: 131072.0, torch.float16: 8.0}
"""Factor of a spike. In float32 it leaves the range of float16, so that half precision inside shows."""
SPIKE_SHARE: Final = 1e-4
SPIKED_ENDS: Final = 64
"""Of fewer elements too many would be spikes, and one that is left out shows by itself."""
PEAK: Final = 1.25
"""The last value, times the largest of the others."""
OUTLIER: Final = 1000.0
"""Times the median of magnitudes beyond which a value is taken for a spike."""
ROW_SHARE: Final = 0.125
OFFSET: Final = {torch.float64: 1000.0, torch.float32: 1000.0, torch.float16: 16.0, torch.bfloat16: 4.0}
"""Added by `offset`. In half types it is so small that the values keep their last digits."""
OPPOSED: Final = 100.0
"""At most this: a product of values of `opposed` is far below zero, and not below the values of a filled mask."""
LARGE: Final = 100.0
LOUD: Final = (5.0, 90.0)
"""The largest overflows an exponential, and with it no value of a softmax is zero: the smallest is no further away than
the range of float32."""
EIGHTFOLD: Final = 8.0
FOURFOLD: Final = 4.0
SMALL: Final = 1e-3
FILLED_STEPS: Final = 5
"""Powers of two, from 1 on, by which the values of `filled` are multiplied: some are visible in large sums."""
ZERO_SHARE: Final = 0.125
ROWS_LEAST: Final = 4
"""Of this many rows one at least is zero throughout."""
ENDS_SHARE: Final = 1 / 64
ENDS_LEAST: Final = 8
"""With this many values: both ends, and the three next to each, each of which a division rounds differently."""
NAN_EVERY: Final = 64
NAN_MOST: Final = 16
"""So that a part of an answer is finite if each row is reduced."""
ROWS_MAX: Final = 1 << 24
"""Of a tensor with more rows only this many change places."""
SAMPLE: Final = 65536
CHUNK: Final = 1 << 28
"""Elements handled at once, so that a large input needs little additional memory."""


def _generator(tensor: torch.Tensor, seed: int) -> torch.Generator:
    generator = torch.Generator(device=tensor.device)
    generator.manual_seed(seed & (1 << 62) - 1)
    return generator


def _flat(tensor: torch.Tensor) -> torch.Tensor | None:
    """The elements in memory order, as a view; None for a tensor with gaps."""
    if not values.is_dense(tensor):
        return None
    return tensor.as_strided((tensor.numel(),), (1,))


def is_symmetric(tensor: torch.Tensor) -> bool:
    """A square matrix (last two dimensions) that equals its transpose."""
    if tensor.dim() < 2 or tensor.shape[-1] != tensor.shape[-2] or tensor.shape[-1] < 2:
        return False
    return bool(torch.equal(tensor, tensor.transpose(-1, -2)))


def is_label(tensor: torch.Tensor) -> bool:
    """At most two values in an even sample: classes, masks, flags. Scaled or offset they would mean nothing."""
    values = tensor.reshape(-1)[:: max(1, tensor.numel() // SAMPLE)]
    return bool(((values == values.min()) | (values == values.max())).all())


def is_flags(tensor: torch.Tensor) -> bool:
    """Zeros and ones in an even sample, both: yes and no, also where other numbers could stand."""
    values = tensor.reshape(-1)[:: max(1, tensor.numel() // SAMPLE)]
    ones = values == 1
    return bool(ones.any() and not ones.all() and (ones | (values == 0)).all())


def has_zeros(tensor: torch.Tensor) -> bool:
    """Zeros in an even sample: a structure (triangular, sparse, one-hot) whose places may be part of the task."""
    flat = _flat(tensor)
    if flat is None:
        return bool((tensor == 0).any())
    return bool((flat[:: max(1, flat.numel() // SAMPLE)] == 0).any())


def is_sorted(tensor: torch.Tensor) -> bool:
    """Every row (last dimension) rises: edges of intervals, offsets. Drawn at random none does."""
    if tensor.dim() == 0 or tensor.shape[-1] < 3:
        return False
    first = tensor[(0,) * (tensor.dim() - 1)][:SAMPLE]
    if not bool((first[1:] >= first[:-1]).all() and first[0] < first[-1]):
        return False
    return bool((tensor[..., 1:] >= tensor[..., :-1]).all())


def _row_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A tensor cut along its first dimension into parts of at most CHUNK elements or one row."""
    return tensor.split(max(1, CHUNK * tensor.shape[0] // tensor.numel()))


Transform = Callable[[torch.Tensor, int], bool]
"""Changes a tensor that has elements, in place; False: it left it alone."""


def _times(factor: float, is_left_alone: Callable[[torch.Tensor], bool] = is_label) -> Transform:
    """Every value multiplied."""

    def transform(tensor: torch.Tensor, seed: int) -> bool:
        if is_left_alone(tensor):
            return False
        tensor.mul_(factor)
        return True

    return transform


scaled = _times(2.0, is_flags)
eightfold = _times(EIGHTFOLD)
"""An approximation beyond a threshold of 4 is wrong for many values, and `large` leaves few that are near it."""
small = _times(SMALL)
"""An epsilon outweighs a variance, and where it is added matters."""


def large(tensor: torch.Tensor, seed: int) -> bool:
    """Every value times 100, the last one being the greatest of all."""
    return _times(LARGE)(tensor, seed) and _end_by(tensor, PEAK)


def _end_by(tensor: torch.Tensor, factor: float) -> bool:
    """The last value becomes so many times the largest magnitude: if a whole tensor's greatest or least is searched,
    it shows whether the end of it is. A zero stays."""
    flat = _flat(tensor)
    if flat is not None and bool(flat[-1] != 0):
        low, high = flat.aminmax()
        peak = torch.maximum(-low, high) * factor
        flat[-1] = torch.where(torch.isfinite(peak), peak, flat[-1])
    return True


def loud(tensor: torch.Tensor, seed: int) -> bool:
    """The values, in their order, from 5 to 90: in place of `large` for tasks that choose among values. Zeros stay."""
    finite = tensor[torch.isfinite(tensor)]  # a mask's infinities stay, too
    if is_label(tensor) or not finite.numel():
        return False
    low, high = (end.double() for end in finite.aminmax())
    if not low < high:
        return False
    by = (LOUD[1] - LOUD[0]) / (high - low)
    tensor.mul_(by.to(tensor.dtype))
    return _moved(tensor, float(LOUD[1] - high * by))


def wide(tensor: torch.Tensor, seed: int) -> bool:
    """Where all values had one sign, every value times 100 signs mixed: another bound or overflow may be below zero."""
    ends = tensor.reshape(-1)[:: max(1, tensor.numel() // SAMPLE)].aminmax()
    return not (ends.min < 0 < ends.max) and large(tensor, seed) and signs(tensor, seed) and _end_by(tensor, -1.0)


def offset(tensor: torch.Tensor, seed: int) -> bool:
    """A constant added to every value but zeros: an exp without its maximum overflows, a mean must be subtracted."""
    return _moved(tensor, OFFSET.get(tensor.dtype, 1.0))


def lowered(tensor: torch.Tensor, seed: int) -> bool:
    """The same subtracted: all values are far below zero, where a maximum from 0 and a finite fill are the greatest."""
    return _moved(tensor, -OFFSET.get(tensor.dtype, 1.0))


def opposed(tensor: torch.Tensor, seed: int) -> bool:
    """Raised by an even number, lowered by an odd one, as tensors in turn are: every product of two is below zero, and
    so are the logits of an attention."""
    by = min(OPPOSED, OFFSET.get(tensor.dtype, 1.0))
    return _moved(tensor, -by if seed % 2 else by)


def filled(tensor: torch.Tensor, seed: int) -> bool:
    """A tensor of one value throughout gets others. In place of zero (a bias, a state to begin with): none negative,
    small and large. Of another value (a weight, a factor): up to twice that."""
    if bool((tensor != tensor.reshape(-1)[0]).any()):
        return False
    drawn = torch.rand((2, *tensor.shape), generator=_generator(tensor, seed), device=tensor.device)
    if bool((tensor != 0).any()):
        tensor.mul_(1 + drawn[0])
    else:
        tensor.copy_(drawn[0] * torch.exp2(torch.floor(drawn[1] * FILLED_STEPS)))
    return True


def negative(tensor: torch.Tensor, seed: int) -> bool:
    """Every value below zero, and none equal to another by rounding: a maximum that starts at zero is then wrong."""
    if is_label(tensor) or tensor.itemsize < 4:  # of few digits many have the same magnitude
        return False
    tensor.copy_(torch.where(tensor > 0, -tensor, tensor))
    return True


def _moved(tensor: torch.Tensor, by: float) -> bool:
    if is_label(tensor):
        return False
    if not has_zeros(tensor):
        tensor.add_(by)
        return True
    for part in _row_parts(tensor) if tensor.dim() else (tensor,):
        part.add_((part != 0).to(part.dtype).mul_(by))
    return True


def zeros(tensor: torch.Tensor, seed: int) -> bool:
    """Some values, and some whole rows (last dimension), are exactly zero."""
    if not tensor.dim() or is_label(tensor) or is_symmetric(tensor):  # one value is a label, but for NaN
        return False
    drawn = torch.rand(tensor.shape, generator=_generator(tensor, seed), device=tensor.device)
    tensor.masked_fill_(drawn < ZERO_SHARE, 0.0)
    first = drawn[..., :1]
    if tensor.dim() >= 2:
        least = min(1.0 - ZERO_SHARE, float(first.max())) if first.numel() >= ROWS_LEAST else 1.0 - ZERO_SHARE
        tensor.masked_fill_(first >= least, 0.0)
    return True


def ties(tensor: torch.Tensor, seed: int) -> bool:
    """Every value rounded to a half, a quarter, an eighth or a sixteenth: many are equal, and many lie halfway between
    two integers, also when they are doubled or taken four or eight times."""
    if is_label(tensor):
        return False
    if is_symmetric(tensor):
        tensor.mul_(2.0).round_().mul_(0.5)
        return True
    generator = _generator(tensor, seed)
    for part in _row_parts(tensor) if tensor.dim() else (tensor,):
        drawn = torch.randint(1, 5, part.shape, generator=generator, device=part.device, dtype=torch.int8)
        steps = (torch.ones_like(drawn) << drawn).to(part.dtype)
        part.mul_(steps).round_().div_(steps)
    return True


def nan(tensor: torch.Tensor, seed: int) -> bool:
    """A few values are NaN: a maximum or a comparison may drop them."""
    flat = _flat(tensor)
    if flat is None or is_label(tensor) or is_symmetric(tensor):
        return False
    count = min(NAN_MOST, 1 + flat.numel() // NAN_EVERY)
    places = torch.randint(0, flat.numel(), (count,), generator=_generator(tensor, seed), device=tensor.device)
    places = places[flat[places] != 0]
    flat[places] = torch.nan
    return bool(places.numel())


def ends(tensor: torch.Tensor, seed: int) -> bool:
    """A few integers are the least and the greatest of their type, or next to these: a remainder has its sign. As many
    have any bits, none, or all: also those that no draw sets, and not all at once. Of bytes a row and a column are the
    greatest throughout: a sum of their products leaves 16 bits."""
    flat = _flat(tensor)
    if flat is None:
        return False
    generator, kind = _generator(tensor, seed), torch.iinfo(tensor.dtype)
    if tensor.dim() >= 2 and tensor.itemsize == 1 and flat.numel():
        for dim in (-2, -1):
            at = torch.randint(0, tensor.shape[dim], (1,), generator=generator, device=tensor.device)
            tensor.index_fill_(dim, at, kind.max)
    count = max(2, min(ENDS_LEAST, flat.numel() // 8), int(flat.numel() * ENDS_SHARE))
    places = torch.randint(0, flat.numel(), (count,), generator=generator, device=tensor.device)
    anywhere = torch.randint(0, flat.numel(), (count,), generator=generator, device=tensor.device)
    drawn = torch.randint(kind.min, kind.max, (count,), generator=generator, device=tensor.device, dtype=tensor.dtype)
    drawn[::4], drawn[1::4] = -1 if kind.min else kind.max, 0
    flat[anywhere] = drawn
    within = (torch.arange(count, device=tensor.device) // 2 % 4).to(tensor.dtype)
    flat[places[::2]] = kind.max - within[::2]
    flat[places[1::2]] = kind.min + within[1::2]
    return True


def permuted(tensor: torch.Tensor, seed: int) -> bool:
    """Rows (first dimension) change places in secret pairs; a symmetric matrix' columns with them."""
    if tensor.dim() == 0 or tensor.shape[0] < 2 or has_zeros(tensor):
        return False
    rows = min(tensor.shape[0], ROWS_MAX)
    order = torch.randperm(rows, generator=_generator(tensor, seed), device=tensor.device)
    left, right = order[: rows // 2], order[rows // 2 : rows // 2 * 2]
    both = is_symmetric(tensor)
    step = max(1, CHUNK * tensor.shape[0] // tensor.numel())
    for view in (tensor, tensor.transpose(-1, -2)) if both and tensor.dim() == 2 else (tensor,):
        for a, b in zip(left.split(step), right.split(step), strict=True):
            kept = view[a]
            view[a] = view[b]
            view[b] = kept
    return True


def shifted(tensor: torch.Tensor, seed: int) -> bool:
    """Every row (last dimension) rolled by one secret number of places."""
    if tensor.dim() == 0 or tensor.shape[-1] < 2 or has_zeros(tensor) or is_symmetric(tensor):
        return False
    for part in _row_parts(tensor):
        size = part.shape[-1]
        if size > 1:
            part.copy_(part.roll(1 + seed % (size - 1), -1))
    return True


def constant_rows(tensor: torch.Tensor, seed: int) -> bool:
    """Half of the first dimension's slices have one value in each row (last dimension): variance 0, all maxima."""
    if tensor.dim() < 2 or has_zeros(tensor) or is_symmetric(tensor):
        return False
    order = torch.randperm(tensor.shape[0], generator=_generator(tensor, seed), device=tensor.device)
    chosen = order[: max(1, tensor.shape[0] // 2)]
    step = max(1, CHUNK * tensor.shape[0] // tensor.numel())
    for rows in chosen.split(step):
        tensor[rows] = _summable(tensor[..., :1][rows]).expand(tensor[rows].shape)
    return True


def _summable(values: torch.Tensor) -> torch.Tensor:
    """About these values, with eight binary digits and at most 1: a sum of one of them is exact in any order.

    A norm divides the rounding error of the mean by the root of its epsilon, which would make honest kernels differ.
    """
    mantissa, exponent = torch.frexp(values.double())
    return torch.ldexp(torch.round(mantissa * 256) / 256, exponent.clamp(max=0)).to(values.dtype)


def signs(tensor: torch.Tensor, seed: int) -> bool:
    """Signs mixed: each value negated with probability 1/2."""
    if is_flags(tensor):
        return False
    flat = _flat(tensor)
    if flat is None or is_symmetric(tensor):
        tensor.neg_()
        return True
    generator = _generator(tensor, seed)
    for part in flat.split(CHUNK):
        flips = torch.randint(0, 2, part.shape, generator=generator, device=part.device, dtype=torch.int8)
        part.mul_(flips.mul_(2).sub_(1).to(part.dtype))
    return True


def spikes(tensor: torch.Tensor, seed: int) -> bool:
    """A few values multiplied by a large factor at secret places, and some rows made constant, every other one of them
    but for one place."""
    if is_flags(tensor):
        return False
    flat = _flat(tensor)
    if flat is None or is_symmetric(tensor):
        tensor.mul_(FOURFOLD)
        return True
    if tensor.dim() >= 2 and not has_zeros(tensor):
        rows = min(64, max(1, int(tensor.shape[0] * ROW_SHARE)))
        order = torch.randperm(tensor.shape[0], generator=_generator(tensor, seed + 1), device=tensor.device)
        chosen = order[:rows]
        first_of_each = (chosen, *[0] * (tensor.dim() - 1))
        first = tensor[first_of_each]
        tensor[chosen] = _summable(first).reshape(-1, *[1] * (tensor.dim() - 1))
        # A few places of a row do not show whether it is constant. No spike: it would hide those of other rows.
        some = chosen[1::2]
        places = torch.randint(tensor.shape[-1], some.shape, generator=_generator(tensor, seed), device=tensor.device)
        but_for_one = (some, *[0] * (tensor.dim() - 2), places)
        tensor[but_for_one] *= FOURFOLD
    return sparse(tensor, seed)


def sparse(tensor: torch.Tensor, seed: int) -> bool:
    """Multiply a few values at secret places by a large factor: zeros stay zeros. Symmetric matrices are left alone."""
    return sparse_sets(tensor, 1, 0, seed)


def _ends(tensor: torch.Tensor) -> torch.Tensor | None:
    """The first and the last of its values, as a view; None: there are few, and one that is left out shows."""
    flat = _flat(tensor)
    return None if flat is None or flat.numel() < SPIKED_ENDS else flat[:: flat.numel() - 1]


def _spike_ends(tensor: torch.Tensor, before: torch.Tensor, seed: int, *, both: bool) -> None:
    """Make spikes of what was there before: which of many a sum leaves out shows by nothing else. both: or one of the
    two, for of two tensors spikes at one place would be multiplied by each other. A small value becomes as large a
    spike as others are, or it would not be missed beside them."""
    now = _ends(tensor)
    assert now is not None
    spikes = before.sign() * before.abs().maximum(_typical(tensor).nan_to_num(0)) * SPIKE.get(tensor.dtype, 2.0)
    for end in (0, 1) if both else (seed % 2,):
        now[end] = spikes[end]
    if both:
        _end_by(tensor, PEAK * float(before[1].sign()))


def _typical(tensor: torch.Tensor) -> torch.Tensor:
    """The median magnitude of an even sample of its values but zeros; NaN: these are all."""
    some = tensor.reshape(-1)[:: max(1, tensor.numel() // SAMPLE)].abs()
    return torch.where(some == 0, torch.nan, some).nanmedian()


def sparse_sets(first: torch.Tensor, sets: int, distance: int, seed: int) -> bool:
    """The same for `sets` tensors like this one, each next one `distance` bytes further in its memory."""
    flat = _flat(first)
    if flat is None or not flat.numel() or is_symmetric(first) or is_flags(first) or is_sorted(first):
        return False
    size, factor = flat.numel(), SPIKE.get(first.dtype, 2.0)
    rows = first.as_strided((sets, size), (distance // first.element_size(), 1))
    count = max(2, int(size * SPIKE_SHARE))
    places = torch.randint(0, size, (sets, count), generator=_generator(first, seed), device=first.device)
    spiked = rows.gather(1, places) * factor
    if bool((rows[:, :: max(1, size * sets // SAMPLE)] < 0).any()):
        # Where both signs are legal, both are there: an exp overflows on one side only.
        # Far apart, so that no product of rows has both: their difference would drown every rounding.
        places[:, 1] = (places[:, 0] + size // 2) % size
        spiked[:, 0], spiked[:, 1] = spiked[:, 0].abs(), -(rows.gather(1, places[:, 1:2])[:, 0] * factor).abs()
    rows.scatter_(1, places, spiked)
    return True


TRANSFORMS: Final[dict[str, Transform]] = {
    "signs": signs,
    "first signs": signs,
    "scaled": scaled,
    "spikes": spikes,
    "large": large,
    "eightfold": eightfold,
    "loud": loud,
    "wide": wide,
    "offset": offset,
    "lowered": lowered,
    "opposed": opposed,
    "crossed": opposed,
    "filled": filled,
    "negative": negative,
    "small": small,
    "zeros": zeros,
    "ties": ties,
    "nan": nan,
    "ends": ends,
    "permuted": permuted,
    "shifted": shifted,
    "constant rows": constant_rows,
}
SECRET: Final = (
    "large", "eightfold", "wide", "offset", "lowered", "opposed", "crossed", "filled", "small", "zeros", "ties", "ends",
    "permuted", "shifted", "constant rows",
)  # fmt: skip
"""The order in which a submission is judged by these comes of its secret seed: a cheap task by all, another by some.
`signs` and `spikes` are always tried."""
EXTREME: Final = (*SECRET, "spikes")
"""Transformations whose inputs leave some answers of the reference to chance: a few elements may differ by more."""
OPPOSED_NAMES: Final = ("opposed", "crossed")
"""The first tensor is raised, or lowered: a reference may not be finite under one of them."""
TIED: Final = ("zeros", "ties", "constant rows", "offset", "lowered", *OPPOSED_NAMES)
"""Those with equal values, by rounding at least: of no use if the answer shows which of equal values was chosen."""
CHOOSERS: Final = {"large": "loud", "lowered": "negative"}
"""What stands for these where the answer says which of some was chosen."""
MOVING: Final = ("offset", "lowered", *OPPOSED_NAMES)
"""Which leave a matrix next to one that has no inverse: what is made of it depends on how it was rounded. They
may leave less of an answer than log(1 + x) has digits of, too."""
FIRST_ALONE: Final = "first signs"
"""Changes the first tensor alone, for a reference that is not finite where another one (a variance) is below zero."""
SIGNING: Final = ("signs", FIRST_ALONE, "wide", "lowered", *OPPOSED_NAMES)
"""Under which sums of probabilities do not rise any more: a linear and a binary search then find different places."""
UNTIMED: Final = {"spikes", "nan"}
"""Not in timed calls: beside spikes precision does not show, and by NaN nothing is decided."""
INTEGERS: Final = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
REARRANGING: Final = ("permuted", "shifted")
"""Applied to the first case's own inputs: the same values in other places, which a remembered answer does not match."""


def apply(name: str, tensors: list[torch.Tensor], seed: int) -> bool:
    """Transform all floating-point tensors, complex ones as their parts (`ends`: all integers); False when there was
    nothing that it changes."""
    kinds = INTEGERS if name == "ends" else SPIKE
    chosen = [tensor for tensor in map(real, tensors) if tensor.dtype in kinds and tensor.numel()]
    if name == FIRST_ALONE:
        if len(chosen) < 2:  # alone it is `signs`
            return False
        chosen = chosen[:1]
    if name in OPPOSED_NAMES:
        if sum(not is_label(tensor) for tensor in chosen) < 2:
            return False
        seed = OPPOSED_NAMES.index(name)
    rising = [tensor for tensor in chosen if is_sorted(tensor)]
    ends = [_ends(tensor) if name == "spikes" else None for tensor in chosen]
    ends = [None if end is None else end.clone() for end in ends]
    changed = [TRANSFORMS[name](tensor, seed + index) for index, tensor in enumerate(chosen)]
    for index, (tensor, end) in enumerate(zip(chosen, ends, strict=True)):
        if end is not None and changed[index] and not (is_symmetric(tensor) or is_sorted(tensor)):
            _spike_ends(tensor, end, seed + index, both=len(chosen) == 1)
    for tensor in rising:
        tensor.copy_(tensor.sort(-1).values)
    return any(changed)


def real(tensor: torch.Tensor) -> torch.Tensor:
    """Of complex numbers both parts, as a view."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def name_for(name: str, case: Mapping[str, Any], *, is_half: bool = False) -> str | None:
    """The replacement of this transformation in a case whose reference may not accept it; None: there is none.

    is_half: some inputs are of half types; equal ones are made distinct by less than the precision that `small` leaves.
    """
    if is_half and name == "small" and case.get("breaks_ties", True):
        return None
    if case.get("solves", False) and name in MOVING:
        return None
    if case.get("searches", False) and name in SIGNING:
        return None
    if name == "eightfold" and (case.get("multiplies_matrices", True) or case.get("breaks_ties", True)):
        return None  # of logits TF32 moves, and whoever chooses has `loud`
    if case.get("breaks_ties", True) and name in CHOOSERS:
        return CHOOSERS[name]
    if case.get("breaks_ties", True) and name in (*TIED, "spikes"):  # with a spike all else of a softmax is zero
        return None
    return name if name != "ends" or case.get("varies_integers", False) else None


def jitter(tensor: torch.Tensor, seed: int) -> None:
    """Each value moved to one of its two neighbours; zeros stay. Spikes all move up: a sum that holds one of each sign
    would stand still where their steps are opposite, and seem exact."""
    drawn = torch.rand(tensor.shape, generator=_generator(tensor, seed), device=tensor.device)
    falls = (drawn < 0.5) & (tensor.abs() <= OUTLIER * _typical(tensor))
    ends = torch.where(falls, -torch.inf, torch.inf).to(tensor.dtype)
    tensor.copy_(torch.where(tensor == 0, tensor, torch.nextafter(tensor, ends)))


def move(tensor: torch.Tensor, seed: int, digits: int) -> None:
    """Each value moved to either side by about so many of its last digits; zeros stay."""
    sides = torch.randint(
        0, 2, tensor.shape, generator=_generator(tensor, seed), device=tensor.device, dtype=torch.int8
    )
    tensor.mul_(1 + sides.mul_(2).sub_(1) * (digits * torch.finfo(tensor.dtype).eps))

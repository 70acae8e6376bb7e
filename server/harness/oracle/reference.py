"""The task's reference in its child: loaded once, kept for its task, and asked what the right answer is."""

from __future__ import annotations

import cmath
import operator
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Generator, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import torch
from shared import draws, values
from shared.arena import PAGE, Heap, align
from shared.values import TensorNote
from shared.wire import Json, clean_text

from oracle import variations
from oracle.peer import NotTheCandidate, Peer, PeerFailed, Run
from oracle.tolerance import (
    AMBIGUOUS_LEAST,
    AMBIGUOUS_SANE,
    CHUNK,
    EXTREME_RATIO,
    SCALE_LEAST,
    TABLE,
    Limit,
    ambiguous_share,
    as_tensor,
    compare,
    differs,
    dtype_of,
    is_coarse,
    is_discrete,
    is_finite,
    kernelbench_limit,
    limit_for,
    relative_error,
    sample,
    scale_of,
    vanishes,
)

WEIGHT_SEEDS: Final = (42, 1042, 1042)
"""Public, as KernelBench's are. The second is for the case "other weights", where constant parameters vary, too,
and the third is as the second: a model of its own for the other mode, whose statistics no call has changed."""
OTHER_MODE: Final = 2
CALL_SEED: Final = 42
"""Set before each call of both sides, for modules that draw numbers. Public: the inputs' seed never leaves the referee
but to the reference."""
LIMIT_MS: Final = 120_000
BITS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By bytes of an element."""
SETS: Final = 2
SETS_MOST: Final = 128
SETS_SHARE: Final = 32
"""A task with small inputs gets more sets, up to SETS_MOST or this part of the GPU's memory, so that a bell may be
several calls; and as much for the outputs of those calls."""
HOST_SETS: Final = 512 << 20
"""In place of that part, without a GPU."""
LARGE_SET: Final = 2 << 30
"""A task whose inputs are larger than this (bytes) gets one set instead of SETS."""
OTHER_BYTES: Final = 64 << 20
OTHER_ELEMENTS: Final = 1 << 17
"""Without a GPU."""
SPARE: Final = 256 << 20
"""Of the reference's pool, in addition to all measured sizes."""
CANDIDATE_SPARE: Final = 1 << 30
HOST_SPARE: Final = 64 << 20
"""The same of a candidate, on a GPU and without one."""
FP64_SHARE: Final = 0.8
"""The fp64 run is tried when its estimated memory is within this share of what is free."""
ANSWERS_MOST: Final = 48
"""Kept right answers to small cases, the least recently used one being dropped: those of some groups in progress."""
ANSWER_BYTES: Final = 4 << 20
"""The largest of them, with its inputs."""
SCATTER: Final = 8.0
"""An answer may err by SCATTER * MARGIN times the amount by which the exact answer moves when inputs move by their last
digit."""
SCATTER_BYTES: Final = 1 << 28
"""Of larger inputs and answers it is not asked how they scatter."""
MOVED: Final = 24
MOVED_DOUBLED: Final = 6
"""So many answers are made of inputs that are 1, 2, 4 ... last digits beside what they are, so many powers of two."""
MOVED_S: Final = 2.0
"""After this time no more than one of each power are made: a stage has to end within its limit."""
ROUNDED_RUNS: Final = 4
"""Each moves a value that lies at a step to its other side with a probability of a half."""
AT_ONCE_BYTES: Final = 64 << 20
"""Calls for answers are one bell where the inputs, outputs and weights of all of them each come to no more."""
AT_ONCE_NS: Final = 250_000_000
"""The time that they may take, about: if many are requested, the first ones may be enough."""
NOT_AT_ONCE: Final = ("", "at once")
NONE_IS_FIT: Final = ("", "any")
NOT_MOVED: Final = ("", "moved")
"""Further facts about a task whose processes were lost, in addition to the transformations."""
JITTERED: Final = Run("float64 of jittered inputs")
Leaves = list[tuple[str, Any]]
"""The outputs of a call, with their paths."""
Scales = Sequence[float | None]
"""By output, as large as its values are."""
Shares = tuple[tuple[float, ...], ...]
"""By output, of NaN, infinity and its negative; nothing: all of it is finite."""
ODD_MOST: Final = 2.0
NOTHING: Final = 2.0**-20
"""The part of the reference's own answer that an exact one has at most which is nothing."""
UNTIED: Final = (Run("float64 falling"), Run("float64 rising"))
"""In fp64 with equal inputs made distinct, one way and the other (cases.py)."""
COPIES: Final = 4
"""Of the reference's outputs, while it is compared: its own, in fp64, the candidate's, and temporary values."""


class ReferenceBroken(NotTheCandidate):
    """The reference could not answer."""


class ReferenceRaised(ReferenceBroken):
    """The reference's call raised; its process is there."""


@contextmanager
def blamed(what: str) -> Iterator[None]:
    """Around all use of data that the reference's process sent: it has run the task's code, and may send anything.

    A failure here ends that process and not the referee, which others need.
    """
    try:
        yield
    except (NotTheCandidate, PeerFailed):
        raise
    except Exception as error:
        text = clean_text(f"{type(error).__name__}: {error}", 1024)
        raise ReferenceBroken(f"what the reference's process told of its {what} cannot be used: {text}") from None


def others_of(spec: Json, device: torch.device) -> list[Json]:
    """The cases that are reported as `generality`: the cheap ones."""
    found = spec["cases"].get("other") or []
    if device.type == "cuda":
        return [case for case in found if case["input_bytes"] + case["output_bytes"] <= OTHER_BYTES]
    return [case for case in found if case["elements"] <= OTHER_ELEMENTS]


@dataclass(frozen=True)
class Sizes:
    """Bytes that a task needs in an arena."""

    inputs: int
    outputs: int
    state: int
    peak: int
    sets: int
    calls: int
    """The most calls for one bell: their inputs and their outputs have room side by side."""

    @staticmethod
    def of(spec: Json, device: torch.device) -> Sizes:
        cases = [spec["cases"]["own"], *spec["cases"]["shapes"], *others_of(spec, device)]
        if spec["cases"]["tiny"] is not None:
            cases.append(spec["cases"]["tiny"])

        def total(key: str) -> int:
            return max(sum(align(note.span_bytes) for note in values.notes(case[key])) for case in cases)

        inputs = align(total("inputs")) or align(1)
        if inputs >= draws.LEAST:
            inputs = align(inputs, PAGE)
        state = align(max(case["state_bytes"] for case in cases)) + (1 << 20)
        peak = max(case["peak_bytes"] for case in cases)
        outputs = align(total("outputs")) or align(1)
        most = HOST_SETS
        if device.type == "cuda":
            most = int(torch.cuda.get_device_properties(device).total_memory) // SETS_SHARE
        sets = 1 if inputs > LARGE_SET else max(SETS, min(SETS_MOST, most // inputs))
        return Sizes(inputs, outputs, state, peak, sets, max(1, min(sets, most // outputs)))

    @property
    def heap_base(self) -> int:
        """The beginning of the heap of an arena, after the sets and the exported weights.

        It is the same for both sides, and torch's segments, multiples of a page, are aligned as the driver's own.
        """
        return align(self.sets * self.inputs + 2 * self.state, PAGE)

    @property
    def checked_sets(self) -> int:
        """The sets that a checked call may be given."""
        return min(self.sets, SETS)

    @property
    def batch(self) -> int:
        """Bytes of the outputs that a bell of several calls keeps beyond those of one."""
        return (self.calls - 1) * self.outputs

    @property
    def answers(self) -> int:
        """Bytes of the outputs that calls one after another have at once, with what they make on the way."""
        return (3 if self.outputs <= LARGE_SET else 2) * self.outputs

    @property
    def reference_pool(self) -> int:
        """Serves the reference's allocations, the fp64 run's too where they are small. What does not fit spills."""
        wide = 2 * self.inputs + self.outputs + self.peak if self.inputs + self.outputs <= LARGE_SET else 0
        return align(max(self.answers, self.peak + self.peak // 4) + 4 * self.state + wide + SPARE + self.batch)

    @property
    def room(self) -> int:
        """Where outputs (up to fp64) and weights are copied that were made elsewhere: weights of two models if they are
        large, else of four."""
        return align(2 * self.outputs + (2 if self.state > LARGE_SET else 4) * self.state + (1 << 20) + self.batch)

    def candidate_pool(self, device: torch.device) -> int:
        """Serves the candidate's allocations: as much as the reference needs."""
        pool = max(self.answers, self.peak) + 2 * self.state
        if device.type == "cuda":
            return align(pool + self.batch + CANDIDATE_SPARE + min(self.inputs, CANDIDATE_SPARE))
        return align(pool + HOST_SPARE + self.inputs)

    def candidate_arena(self, device: torch.device) -> int:
        """The sets, the weights, the pool, and room."""
        return self.heap_base + self.candidate_pool(device) + self.candidate_room

    @property
    def candidate_room(self) -> int:
        """The same of a candidate's outputs; large ones have the task's own dtype. It exports no weights."""
        return align((1 if self.outputs > LARGE_SET else 2) * self.outputs + (1 << 20) + self.batch)

    @property
    def reference_arena(self) -> int:
        return self.heap_base + self.reference_pool + self.room


def _fp64_bytes(inputs: list[TensorNote], outputs: int) -> int:
    """The memory of the fp64 run, about, without four times the weights. outputs: bytes in the task's own dtypes."""
    return 16 * sum(note.elements for note in inputs if note.dtype.is_floating_point) + 6 * outputs


def fp64_room(sizes: Sizes, case: Json) -> int:
    """Bytes of a GPU that have to be free for a case's fp64 run to be tried."""
    needed = _fp64_bytes(values.notes(case["inputs"]), sizes.outputs) + 4 * sizes.state
    return int(needed / FP64_SHARE) + 1


@dataclass(frozen=True)
class Changed:
    """An input that the reference changes: what it is after a call."""

    index: int
    value: torch.Tensor
    error: float
    """As `errors` of outputs, between the reference's own runs."""


@dataclass
class Expected:
    """The right answer for one set of inputs.

    values: the outputs compared against (fp64 where it was possible); own: the same in the task's own dtypes.
    """

    values: list[Any]
    own: list[Any]
    paths: list[str]
    against: str  # "fp64" or "own"
    errors: list[float]  # the reference's own relative error for each leaf, 0 where not known
    tf32: bool
    allowed: list[Any]  # samples of the reference's outputs in the precision that is allowed
    training: bool | None  # the mode that was asked for; None: as constructed
    is_extreme: bool = False  # on inputs of which some are such that what the reference errs is chance
    changed: tuple[Changed, ...] | None = None  # None: the reference was not known to change any
    scales: tuple[float | None, ...] = ()
    """By output: as large as its values are on plain inputs; None: as they are here."""
    others: tuple[torch.Tensor | None, ...] = ()
    """By output, values that are as right as `values`: integers of the fp64 run that are others; if TF32 is allowed and
    moves the reference itself by more than the limit (a deep network), its own answer in TF32; and the answers with
    equal inputs made distinct. Several have one dimension more, the first."""
    tied: tuple[float, ...] = ()
    """By output, the share of it that depends on how equal inputs are made distinct."""
    settled: tuple[float, ...] = ()
    """As `errors`, without the outputs that another choice among equal inputs changes."""
    on_host: tuple[bool, ...] = ()
    """By output: the reference makes it on the host, as far as a GPU shows that."""
    known: dict[int, float] = field(default_factory=dict)
    """scale_of() of `values` by output, as far as it was asked."""
    noise: dict[int, float] = field(default_factory=dict)
    """By output that is rounding error alone, the scale by which that error is as small as any."""

    def is_finite(self) -> bool:
        """No value is infinite or no number; a pass over all of them."""
        with blamed("outputs"):
            return all(_is_finite(leaf) for leaf in [*self.own, *(self.values if self.against == "fp64" else [])])

    def odd_shares(self) -> Shares:
        """By output, how much of it is NaN, and either infinity."""
        with blamed("outputs"):
            return tuple(() if _is_finite(leaf) else _odd_shares(leaf) for leaf in self.values)

    def is_as_odd(self, plain: Shares) -> bool:
        """What is not finite is so in both runs, and no more of it than twice what the plain answer has."""
        if len(self.values) != len(plain):
            return False
        with blamed("outputs"):
            for own, value, shares in zip(self.own, self.values, plain, strict=True):
                if _is_finite(own) and _is_finite(value):
                    continue
                most = [ODD_MOST * share for share in shares or (0.0, 0.0, 0.0)]
                if not _is_odd_alike(own, value) or any(map(operator.gt, _odd_shares(value), most)):
                    return False
        return True

    def has_some_nan(self) -> bool:
        """Some values are NaN, in both runs the same ones, and a quarter at least are finite."""
        count = of = 0
        for own, value in zip(self.own, self.values, strict=True):
            if not isinstance(own, torch.Tensor) or is_discrete(own):
                continue
            if own.itemsize == 1:
                own, value = own.half(), value.half()
            nan = value.isnan()
            if own.shape != value.shape or not bool((own.isnan() == nan).all() and (torch.isfinite(value) | nan).all()):
                return False
            count, of = count + int(nan.sum()), of + nan.numel()
        return 0 < count <= of * 3 // 4

    def limit(self, index: int, policy: str) -> Limit:
        wanted, dtype = as_tensor(self.values[index]), dtype_of(self.own[index])
        if wanted is None:
            return Limit(0.0, 0.0)
        if policy == "kernelbench":
            return kernelbench_limit(dtype)
        return limit_for(
            dtype,
            wanted,
            self.errors[index],
            tf32=self.tf32,
            ratio=self._ratio(),
            scale=self.scale(index),
            known=self.scale_here(index),
        )

    def scale_here(self, index: int) -> float | None:
        """scale_of() an output; None of one that has none."""
        found = self.known.get(index)
        own = self.own[index] if self.own else None  # a sample has none
        if found is None and (found := _known(self.values[index], own)) is not None:
            self.known[index] = found
        return found

    def scale(self, index: int) -> float | None:
        return self.scales[index] if self.scales else None

    def plain_scales(self) -> tuple[float | None, ...]:
        """scale_here() of each. Of sampled plain answers: what those to spiked inputs are held to."""
        return tuple(map(self.scale_here, range(len(self.values))))

    def is_constant(self) -> bool:
        """Each output has one value alone, more or less: whatever is wrong elsewhere could answer so."""
        leaves = [sample(leaf) for leaf in self.values if isinstance(leaf, torch.Tensor) and leaf.numel() > 1]
        return bool(leaves) and all(bool((leaf == leaf[0]).all()) for leaf in leaves)

    def vanishes(self, first: Expected) -> bool:
        """Beside the plain answer nothing is left: 1 + x on the way has none of its digits."""
        return vanishes(self.plain_scales(), first.plain_scales())

    def other(self, index: int) -> torch.Tensor | None:
        return self.others[index] if self.others else None

    def ambiguous(self) -> str | None:
        """For people: where not one answer alone is right."""
        known = [(error, other) for error, other in zip(self.errors, self.others, strict=False) if other is not None]
        shares = [error for error, other in known if is_discrete(other)]
        if shares:
            return f"{max(shares):.2%} of the integers are ambiguous: the reference's fp64 run differs"
        if self.tied:
            return "the reference chooses among equal values: another of these is right, too"
        if known:
            moved = max(error for error, _ in known)
            return f"TF32 moves the reference by up to {moved:.1%}: its own answer in TF32 is right, too"
        return None

    def limit_after(self, item: Changed) -> Limit:
        """For an input that is changed: against the reference's own answer, so that both may err."""
        return limit_for(item.value.dtype, item.value, 2 * item.error, tf32=self.tf32, ratio=self._ratio())

    def _ratio(self) -> float:
        return EXTREME_RATIO if self.is_extreme else 1.0

    def sampled(self) -> Expected:
        """Itself with an even sample of each output instead of the whole."""
        kept = [sample(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.values]
        return replace(self, values=kept, own=[], others=(), known={})

    def differs(self, other: Expected) -> bool:
        """Something else than `other` (sampled) is asked for: an answer that fits both would not be seen to be wrong.

        One output at least differs from its sample as tolerance.differs() says, or they have not even the same form.
        """
        if len(self.values) != len(other.values):
            return True
        for index, (mine, first, own) in enumerate(zip(self.values, other.values, self.own, strict=True)):
            taken, before = as_tensor(mine), as_tensor(first)
            if taken is None or before is None:
                if type(mine) is not type(first) or mine != first:
                    return True
                continue
            taken = sample(taken)
            known = other.scale_here(index)
            if taken.shape != before.shape or differs(taken, before, dtype_of(own), tf32=self.tf32, known=known):
                return True
        return False

    def is_self_consistent(self, most: float = AMBIGUOUS_SANE) -> bool:
        """The reference agrees with itself in fp64 as well as the table ever allows. most: the share of integers
        that may be others there."""
        for leaf, error in zip(self.own, self.settled or self.errors, strict=True):
            row = TABLE.get(dtype_of(leaf))
            if error > (most if row is None else row.most):
                return False
        return True


@dataclass
class Errors:
    """What the reference errs by, at most: an answer to a timed call may err by twice as much."""

    outputs: dict[int, float] = field(default_factory=dict)
    tied: dict[int, float] = field(default_factory=dict)
    """By output, the share that depends on which of equal inputs is taken."""
    changed: dict[int, float] = field(default_factory=dict)
    """By input that it changes, of what it leaves there."""
    noise: dict[int, float] = field(default_factory=dict)
    """Expected.noise"""

    @staticmethod
    def of(expected: Expected) -> Errors:
        changed = {item.index: item.error for item in expected.changed or ()}
        return Errors(dict(enumerate(expected.errors)), dict(enumerate(expected.tied)), changed, expected.noise)

    def times(self, factor: float) -> Errors:
        return Errors(*({index: factor * error for index, error in known.items()} for known in vars(self).values()))

    @staticmethod
    def worst(several: Iterable[Errors]) -> Errors:
        found = Errors()
        for one in several:
            for most, known in zip(vars(found).values(), vars(one).values(), strict=True):
                most.update({index: max(error, most.get(index, 0.0)) for index, error in known.items()})
        return found


@dataclass(frozen=True)
class Asks:
    """The parts of an answer to compute, in addition to the outputs."""

    fp64: bool = True
    is_extreme: bool = False
    """The inputs are such that what the reference errs is chance."""
    scatters: bool = False
    """The limits follow how far exact answers move with the inputs' last digits."""
    rounds: bool = False
    """They follow how far these move if intermediate values are rounded differently."""
    scales: tuple[float | None, ...] = ()
    """Of plain answers, by output."""
    chooses: bool = False
    """Which of some equal inputs was taken may be part of the answer, and another of them is as right."""
    training: bool | None = None
    """The mode of the model; None: as constructed."""


@dataclass(frozen=True)
class Made:
    """Calls for an answer: the inputs before them, copied; outputs, in the reference's arena until its next bell."""

    inputs: list[torch.Tensor]
    outputs: dict[Run, list[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Answered:
    """A kept request: the place of the inputs, their values, and the right answer."""

    tree: Any
    inputs: list[torch.Tensor]
    expected: Expected


class Reference:
    """One reference child and what it has loaded. One referee thread."""

    def __init__(self, peer: Peer, fatal: set[tuple[str, str]] | None = None) -> None:
        self.peer = peer
        self.fatal = set() if fatal is None else fatal
        """(case, transformation) under which a process of the task was lost, this one or an earlier one."""
        self.is_second = bool(self.fatal - {NOT_MOVED})
        """An earlier one was lost."""
        self.is_tight = False
        """The GPU has no room for the arenas that are estimated: less serves the allocations of both sides."""
        self.spec: Json = {}
        self.sizes = Sizes(0, 0, 0, 0, 1, 1)
        self.baselines: dict[tuple[bool, bool, int, int], float] = {}
        """Nanoseconds of a call while no candidate could run, by (tf32, cold, calls for each bell,
        steps of the canary at the ring)."""
        self.rough_ns: dict[str, float] = {}
        """By model: the quickest of its calls that were checked, by a clock outside of the GPU."""
        self.draws_numbers: dict[str, bool] = {}
        """By model: two calls on one input answer differently."""
        self.recalled = 0
        """Right answers that were given again."""
        self._answered: OrderedDict[Hashable, Answered] = OrderedDict()  # the one used last stands last
        self._states: dict[tuple[str, int], list[Json]] = {}
        self._fp64_fails = False
        self.tf32_matters: bool | None = None
        self.mutates_inputs = False
        self._may_have_changed = False  # a call was made since the inputs were looked at
        self._steady: set[str] = set()  # models that have answered before
        self.returns_inputs = False
        self._unfit: set[tuple[str, str]] = set()  # (case, transformation)
        self.takes_other_weights: bool | None = None
        self.graph_ns: dict[bool, float] = {}
        """The time of a graph beyond its kernels, with a cold cache or a warm one (oracle/timing.py)."""
        self.call_ns: dict[str, float] = {}
        """Device time of a call of a model as a graph, about: as the last job measured it."""
        self.plain_errors: dict[tuple[str, str], Errors] = {}
        """What it errs by on plain inputs, by model and precision."""
        self.timed_scales: dict[tuple[str, str | None, int], float] = {}
        """scale_of() a timed answer, by model, transformation and output: as the first one had it."""
        self._viewed: tuple[Any, list[torch.Tensor]] | None = None  # the tree that was looked at last
        self.told_seed = secrets.randbits(62)
        """Of inputs whose answers decide nothing: all submissions share them."""
        self._alone: set[str] = set()
        self._asks = Asks()  # of the answer that is being computed
        self._made: dict[Run, list[Any]] = {}  # for it
        self._on_host: tuple[bool, ...] = ()  # of its outputs
        self._has_failed_at_once = False
        self._fails_at_once: set[str] = set()  # models whose calls succeed one by one alone

    def is_unfit(self, case: Json, transform: str) -> bool:
        """Found before: this transformation is not admitted for this case, or would expose nothing."""
        if (case["name"], transform) in self._unfit | self.fatal:
            return True
        return NONE_IS_FIT in self.fatal and transform not in variations.REARRANGING

    def set_unfit(self, case: Json, transform: str) -> None:
        self._unfit.add((case["name"], transform))

    def set_fatal(self, case: Json, transform: str) -> None:
        """Its process is lost under this transformation: the next one is not asked. After a second loss the next one is
        asked none that changes a value: a verdict has three attempts."""
        self.fatal.add((case["name"], transform))
        if self.is_second:
            self.fatal.add(NONE_IS_FIT)

    def ensure(self, source: bytes, spec: Json) -> None:
        """Load the task, once."""
        if self.spec:
            return
        with blamed("sizes"):
            self.sizes = sizes = Sizes.of(spec, self.peer.device)
        self._require_room("inputs and outputs", sizes.inputs + sizes.outputs)
        base = sizes.heap_base
        pool = self._pool_bytes() if self.peer.device.type == "cuda" else 0
        heap = pool + sizes.room if pool else sizes.reference_pool + sizes.room
        try:
            self.peer.give_arena(base + heap, Heap(base, heap, pool))
            self.peer.load(source, spec["entry_point"], "reference", None, LIMIT_MS)
        except PeerFailed as error:
            raise ReferenceBroken(f"the reference could not be loaded: {error.error['text']}") from None
        self.spec = spec
        if spec["cases"]["own"]["multiplies_matrices"]:
            self.tf32_matters = True

    def _pool_bytes(self) -> int:
        """The estimate, if the GPU has room for both sides. Else a third of the memory that is left after the fixed
        parts: the candidate's has another, and the last third serves allocations beyond both."""
        sizes, device = self.sizes, self.peer.device
        free = torch.cuda.mem_get_info(device)[0] - 2 * sizes.heap_base - sizes.room - sizes.candidate_room
        self.is_tight = sizes.reference_pool + sizes.candidate_pool(device) > free
        return min(sizes.reference_pool, max(PAGE, free // 3 // PAGE * PAGE)) if self.is_tight else sizes.reference_pool

    def candidate_pool(self) -> int:
        """Bytes for the other side's own tensors, in its arena."""
        sizes, device = self.sizes, self.peer.device
        if not self.is_tight:
            return sizes.candidate_pool(device)
        free = torch.cuda.mem_get_info(device)[0] - sizes.heap_base - sizes.candidate_room
        return min(sizes.candidate_pool(device), max(PAGE, free // 2 // PAGE * PAGE))

    def model(self, case: Json, weights: int) -> tuple[str, list[Json]]:
        """Build the model of a case with a weight seed (an index into WEIGHT_SEEDS), or take the one that is there."""
        key = (case["name"], weights)
        name = f"{case['name']}.{weights}"
        if key not in self._states:
            try:
                state = self.peer.build(
                    name,
                    WEIGHT_SEEDS[weights],
                    init=None,
                    overrides=case["overrides"],
                    tell_state=True,
                    limit_ms=LIMIT_MS,
                    vary=weights > 0,
                    dtype=case.get("dtype"),
                )
            except PeerFailed as error:
                raise ReferenceBroken(f"the reference could not be built: {error.error['text']}") from None
            with blamed("weights"):
                self._states[key] = [self._checked_weight(item) for item in state]
        return name, self._states[key]

    def _checked_weight(self, item: Any) -> Json:
        assert self.peer.arena is not None
        note = TensorNote.parse(item["tensor"], "a weight")
        self.peer.arena.view(note)
        if type(item["name"]) is not str or set(item) != {"name", "tensor"}:
            raise ValueError("a weight has a name and a tensor")
        return dict(item)

    def inputs(self, case: Json, seed: int, set_: int = 0, more: list[int] | None = None) -> Any:
        """get_inputs() of a case into one set of the reference's arena: the tree with offsets.

        more: seeds for the sets behind it; their trees are the same, a set's size further on.
        """
        size = self.sizes.inputs
        try:
            seeds = [seed, *(more or [])]
            tree = self.peer.make_inputs(seeds, case["overrides"], set_ * size, size, dtype=case.get("dtype"))
        except PeerFailed as error:
            raise ReferenceBroken(f"get_inputs() failed: {error.error['text']}") from None
        with blamed("inputs"):
            placed, end = place_tree(tree, set_ * size)
            if end > (set_ + 1) * size:
                raise ReferenceBroken("get_inputs() made larger inputs than it did when the task was registered")
            if values.notes(placed) != values.notes(tree):
                raise ValueError("they do not lie one behind the other")
            if not isinstance(values.decode(tree, lambda note: note), list):
                raise ValueError("they are no list")
            if not all(values.is_dense(view) for view in self.views(tree)):
                raise ValueError("an input is not dense")
        return tree

    def views(self, tree: Any) -> list[torch.Tensor]:
        """The tensors of an inputs tree, in order, as views of the arena."""
        if self._viewed is None or self._viewed[0] is not tree:
            assert self.peer.arena is not None
            self._viewed = tree, [self.peer.arena.view(note) for note in values.notes(tree)]
        return self._viewed[1]

    def recall(self, question: Hashable) -> tuple[Any, Expected] | None:
        """The inputs of a question that was asked before, in set 0 again, and the right answer."""
        found = self._answered.get(question)
        if found is None:
            return None
        self._answered.move_to_end(question)
        self.recalled += 1
        for view, kept in zip(self.views(found.tree), found.inputs, strict=True):
            view.copy_(kept)
        synchronize(self.peer.device)
        return found.tree, found.expected

    def known(self, question: Hashable) -> Answered | None:
        return self._answered.get(question)

    def remember(
        self, question: Hashable, tree: Any, expected: Expected, views: list[torch.Tensor] | None = None
    ) -> None:
        """tree: of set 0. views: the inputs, as they were when the answer was made; None: they lie there. A large
        answer is not kept."""
        views = self.views(tree) if views is None else views
        answers = [*expected.values, *expected.own]
        answers += [item.value for item in expected.changed or ()]
        if sum(x.nbytes for x in [*views, *answers] if isinstance(x, torch.Tensor)) > ANSWER_BYTES:
            return
        copies = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in expected.values]
        self._answered[question] = Answered(tree, [view.clone() for view in views], replace(expected, values=copies))
        while len(self._answered) > ANSWERS_MOST:
            self._answered.popitem(last=False)

    def runs_for(self, asks: Asks, precision: str) -> list[Run]:
        """The calls that an answer takes."""
        runs = [Run()]
        if self._allows(precision) and self.tf32_matters is not False:
            runs.append(Run(tf32=True))
        if asks.fp64 and not self._fp64_fails:
            runs += [Run("float64"), *([JITTERED] if asks.scatters else [])]
            runs += [Run("rounded")] * (ROUNDED_RUNS if asks.rounds else 0)
        return runs

    def answers_at_once(self, model: str) -> bool:
        """Calls for several answers of this model may be one bell: it has answered before, so that it is known that it
        changes no inputs, also in fp64."""
        is_known = model in self._steady and model not in self._fails_at_once and model not in self._alone
        return is_known and not self.mutates_inputs and not self._fp64_fails and NOT_AT_ONCE not in self.fatal

    def set_alone(self, model: str) -> None:
        """Found before: this model's answers are not all floating-point tensors."""
        self._alone.add(model)

    def bind_runs(self, first: int, model: str, tree: Any, runs: Sequence[tuple[Run, int]], *, bells: int) -> None:
        """Calls from set `first` on. runs: how, and on which inputs, by how many sets these lie behind tree's."""
        told = [_told(run) for run, _ in runs]
        self.peer.bind(
            first, model, tree, sets=len(runs), stride=self.sizes.inputs, runs=told, places=[at for _, at in runs],
            seed=CALL_SEED, bells=bells,
        )  # fmt: skip

    def _fits_at_once(self, model: str, calls: int) -> bool:
        """So many calls may be one bell: not of a large or slow task, nor before the model has answered. Then it is
        known whether it changes inputs."""
        is_fit = not self.mutates_inputs and model not in self._fails_at_once and NOT_AT_ONCE not in self.fatal
        sizes = self.sizes
        most = min(sizes.sets, sizes.calls // 2)  # in fp64 outputs are twice as large
        most = min(most, AT_ONCE_BYTES // max(1, sizes.inputs, sizes.outputs, sizes.state))
        most = min(most, int(AT_ONCE_NS / max(1.0, self.rough_ns.get(model, 1.0))))
        return model in self._steady and is_fit and 2 <= calls <= most

    def _make_at_once(self, model: str, tree: Any, asks: Asks, precision: str) -> Made | None:
        """The calls for an answer in one bell, each on inputs of its own; None where they do not fit.

        tree: inputs in set 0. The answer is to be taken before the next bell.
        """
        self._has_failed_at_once = False
        runs = self.runs_for(asks, precision)
        if not self._fits_at_once(model, len(runs)):
            return None
        pristine = [view.clone() for view in self.views(tree)]
        for place, run in enumerate(runs[1:], 1):
            copies = self.views(place_tree(tree, place * self.sizes.inputs)[0])
            for copy, kept in zip(copies, pristine, strict=True):
                copy.copy_(kept)
            if run is JITTERED:
                jitter(copies)
        synchronize(self.peer.device)
        start = time.monotonic_ns()
        try:
            self._bind(model, tree, runs, asks.training)
            answers = self.peer.call_sets(0, len(runs), LIMIT_MS)
        except PeerFailed as error:
            if error.is_gone:
                self.fatal.add(NOT_AT_ONCE)  # one by one it will show which call that is
                raise ReferenceBroken(f"the reference failed: {error.error['text']}") from None
            answers = []
        if not answers or overlap([list(values.leaves(answer)) for answer in answers]):  # the last call wrote all of it
            self._has_failed_at_once = True
            self._may_have_changed = True
            self._restore(tree, pristine)
            return None
        self._note_rough(model, (time.monotonic_ns() - start) / len(runs))
        made = Made(pristine)
        for run, answer in zip(runs, answers, strict=True):
            made.outputs.setdefault(run, []).append(answer)
        return made

    def _allows(self, precision: str) -> bool:
        return precision == "tf32" and self.peer.device.type == "cuda"

    def _bind(self, model: str, tree: Any, runs: list[Run], training: bool | None) -> None:
        """One call for each, and a bell for all of them."""
        size = self.sizes.inputs
        told = [_told(run) for run in runs]
        self.peer.bind(
            0, model, tree, sets=len(runs), stride=size, runs=told, seed=CALL_SEED, training=training, bells=1
        )

    def _note_rough(self, model: str, ns: float) -> None:
        self.rough_ns[model] = min(ns, self.rough_ns.get(model, ns))

    def _run(self, model: str, tree: Any, *, tf32: bool, dtype: str | None = None) -> Any:
        made = self._made.get(Run(dtype, tf32))
        if made:
            return made.pop()
        self._bind(model, tree, [Run(dtype, tf32)], self._asks.training)
        start = time.monotonic_ns()
        answer = self.peer.call(0, LIMIT_MS)
        if dtype is None:
            self._note_rough(model, float(time.monotonic_ns() - start))
        return answer

    def call_takes(self, case: Json) -> float:
        """Nanoseconds of a call in plain mode, about: the quickest so far, one of two where none was made yet."""
        model, _ = self.model(case, 0)
        if model not in self.rough_ns:
            tree = self.inputs(case, self.told_seed)
            self._asks, self._made = Asks(), {}
            try:
                for _ in range(2):
                    self._run(model, tree, tf32=False)
            except PeerFailed as error:
                raise ReferenceBroken(f"the reference failed: {error.error['text']}") from None
        return self.rough_ns[model]

    def expect(self, model: str, tree: Any, asks: Asks, *, precision: str) -> Expected:
        """Run the reference on these inputs, which lie in set 0 and are left as they were found."""
        self._asks = asks
        known = self.mutates_inputs, self.tf32_matters, self._fp64_fails
        try:
            with blamed("outputs"):
                made = self._make_at_once(model, tree, asks, precision)
                if made is None:
                    made = Made([view.clone() for view in self.views(tree)])
                pristine, self._made = made.inputs, made.outputs
                expected = self._expect(model, tree, pristine, tf32=self._allows(precision))
                self._restore(tree, pristine)
                if self.mutates_inputs and not known[0]:  # maybe by a later call, and the next had other inputs
                    _, self.tf32_matters, self._fp64_fails = known
                    self._made = {}
                    expected = self._expect(model, tree, pristine, tf32=self._allows(precision))
                    self._restore(tree, pristine)
                self._steady.add(model)
                if self._has_failed_at_once:
                    self._fails_at_once.add(model)
                return expected
        except PeerFailed as error:
            kind = ReferenceBroken if error.is_gone else ReferenceRaised
            raise kind(f"the reference failed: {error.error['text']}") from None

    def _expect(self, model: str, tree: Any, pristine: list[torch.Tensor], *, tf32: bool) -> Expected:
        asks, is_made = self._asks, bool(self._made)
        exact = self._own(model, tree, tf32=False)
        changed = self._changed(tree, pristine) if self.mutates_inputs else None
        has_second = tf32 and self.tf32_matters is not False
        if not is_made and (self.mutates_inputs or model not in self._steady or has_second or not _is_narrow(pristine)):
            self._restore(tree, pristine)  # else the look behind all calls sees what this one changed
        own = exact
        if has_second:
            own = self._own(model, tree, tf32=True)
            if changed is not None:
                views = self.views(tree)
                changed = [replace(item, error=_error(views[item.index], item.value)) for item in changed]
            if self.mutates_inputs:
                self._restore(tree, pristine)
            if not _is_alike(own, exact, dtypes=True):
                raise ReferenceBroken("the reference's outputs have another form when it is called again")
            self.tf32_matters = bool(self.tf32_matters) or not _same(exact, own)
        if changed and asks.scatters:
            changed = self._scattered(model, tree, pristine, changed)
        result = self._in_own_precision(own, exact, pristine, changed, uses_tf32=bool(tf32 and self.tf32_matters))
        wide = self._wide(model, tree) if asks.fp64 and self._fits_fp64(tree, exact) else None
        if wide is None or not _is_alike(wide, own, dtypes=False):
            return result
        scales = asks.scales if len(asks.scales) == len(wide) else (None,) * len(wide)
        known = [_known(leaf, mine) for (_, leaf), (_, mine) in zip(wide, own, strict=True)]
        errors = [_error(a, b, *of) for (_, a), (_, b), *of in zip(own, wide, scales, known, strict=True)]
        pairs = [(a, b) for (_, a), (_, b) in zip(own, wide, strict=True)]
        noise = {index: _noise(*pair, errors[index]) for index, pair in enumerate(pairs)}
        for index, scale in noise.items():
            if scale:
                known[index], errors[index] = scale, _error(*pairs[index], None, scale)
        if self.mutates_inputs:
            self._restore(tree, pristine)
        if asks.scatters:
            wide, scatter = self._scatter(model, tree, pristine, wide, scales, known)
            errors = [max(error, SCATTER * moved) for error, moved in zip(errors, scatter, strict=True)]
        if asks.rounds and not self.mutates_inputs:
            wide, rounded = self._rounded(model, tree, own, wide, scales, known)
            errors = [max(error, moved) for error, moved in zip(errors, rounded, strict=True)]
        untied: list[Leaves] = []
        if asks.chooses and not self.mutates_inputs:
            wide, untied = self._untied(model, tree, wide)
        errors = [
            max(error, least) if _is_discrete(leaf) else error
            for (_, leaf), error, least in zip(own, errors, result.errors, strict=True)
        ]
        pairs = [(a, b) for (_, a), (_, b) in zip(own, wide, strict=True)]
        found = replace(
            result,
            values=[a if _is_discrete(a) else b for a, b in pairs],
            others=tuple(_others(a, b, [answer[index][1] for answer in untied]) for index, (a, b) in enumerate(pairs)),
            against="fp64",
            errors=errors,
            scales=scales if any(scales) else (),
            known={
                index: scale
                for index, ((a, _), scale) in enumerate(zip(pairs, known, strict=True))
                if scale is not None and not _is_discrete(a)
            },
            noise={index: scale for index, scale in noise.items() if scale},
        )
        for index, (a, b) in enumerate(pairs) if untied else ():
            others = [answer[index][1] for answer in untied]
            found.settled += (_error_of_any(a, [b, *others], scales[index], known[index]),)
            found.tied += (max(_share_that_differs(found, index, other) for other in others),)
        return found

    def _in_own_precision(
        self,
        own: Leaves,
        exact: Leaves,
        pristine: list[torch.Tensor],
        changed: list[Changed] | None,
        *,
        uses_tf32: bool,
    ) -> Expected:
        """Before anything wider is known: the answer without TF32, and how far the one with it, own, is from that."""
        result = Expected(
            [leaf for _, leaf in exact],
            [leaf for _, leaf in exact],
            [path for path, _ in exact],
            "own",
            [0.0 if own is exact else _error(a, b) for (_, a), (_, b) in zip(own, exact, strict=True)],
            uses_tf32,
            [sample(leaf) if isinstance(leaf, torch.Tensor) else leaf for _, leaf in own],
            self._asks.training,
            is_extreme=self._asks.is_extreme,
            changed=None if changed is None else tuple(changed),
            on_host=self._on_host,
        )
        result.others = tuple(
            leaf if isinstance(leaf, torch.Tensor) and is_coarse(leaf.dtype, error) else None
            for (_, leaf), error in zip(own, result.errors, strict=True)
        )
        if any(view.is_floating_point() or view.is_complex() for view in pristine):
            result.errors = [
                max(error, AMBIGUOUS_LEAST) if _is_discrete(leaf) else error
                for (_, leaf), error in zip(exact, result.errors, strict=True)
            ]
        return result

    def _scatter(
        self, model: str, tree: Any, pristine: list[torch.Tensor], wide: Leaves, scales: Scales, known: Scales
    ) -> tuple[Leaves, list[float]]:
        """How far the exact answers move when each input moves by its last digit, by output; and these answers, copied.

        An honest order of sums errs by a multiple of that, however well the reference's own happens to do.
        """
        still = [0.0] * len(wide)
        inputs = self.views(tree)
        moving = sum(view.nbytes for view in map(variations.real, inputs) if view.dtype is torch.float32)
        size = _bytes_of(wide)
        if not moving or size + moving > SCATTER_BYTES:
            return wide, still
        exact = _copied(wide)
        if JITTERED in self._made:
            moved = self._wide(model, tree, JITTERED.dtype)
        else:
            self._restore(tree, pristine)  # else what a call changed is put back unseen
            jitter(inputs)
            synchronize(self.peer.device)
            moved = self._wide(model, tree)
            for view, kept in zip(inputs, pristine, strict=True):
                view.copy_(kept)
            synchronize(self.peer.device)
        if moved is None or not _is_alike(moved, exact, dtypes=False):
            return exact, still
        return exact, [
            0.0 if _is_discrete(a) else _error(b, a, *of)
            for (_, a), (_, b), *of in zip(exact, moved, scales, known, strict=True)
        ]

    def can_move(self, tree: Any) -> bool:
        """moved() is not too large, and leaves the inputs and the process as they are."""
        size = sum(note.span_bytes for note in values.notes(tree)) + self.sizes.outputs
        return not self.mutates_inputs and NOT_MOVED not in self.fatal and size <= SCATTER_BYTES

    def moved(self, model: str, tree: Any, training: bool | None = None) -> Generator[list[Any], None, None]:
        """Answers to the inputs in set 0, those of single precision at random some last digits beside what they are
        (but for whole numbers: classes, flags and indices have no last digits), in the reference's heap: exact ones,
        or of its own dtype where it is not exact. Then the inputs are as they were.
        """
        if not self.can_move(tree):
            return
        inputs = self.views(tree)
        moving = [view for view in inputs if view.dtype is torch.float32 and not torch.equal(view, view.round())]
        fails, dtype = self._fp64_fails, None if self._fp64_fails else "float64"
        pristine = [view.clone() for view in inputs]
        self._asks, self._made = Asks(training=training), {}
        end = time.monotonic() + MOVED_S
        try:
            for turn in range(MOVED if moving else 0):
                if turn >= MOVED_DOUBLED and time.monotonic() > end:
                    return
                for view, kept in zip(inputs, pristine, strict=True):
                    view.copy_(kept)
                for index, view in enumerate(moving):
                    variations.move(view, CALL_SEED + turn * len(moving) + index, 2 ** (turn % MOVED_DOUBLED))
                synchronize(self.peer.device)
                answer = self._wide(model, tree, dtype)
                if answer is None:
                    return
                yield [leaf for _, leaf in answer]
        except PeerFailed as error:  # a probability that is above 1 now, say
            self.fatal.add(NOT_MOVED)
            raise ReferenceBroken(f"the reference failed: {error.error['text']}") from None
        finally:
            self._fp64_fails = fails  # an error on these inputs says nothing of others
            for view, kept in zip(inputs, pristine, strict=True):
                view.copy_(kept)
            synchronize(self.peer.device)

    def _scattered(self, model: str, tree: Any, pristine: list[torch.Tensor], changed: list[Changed]) -> list[Changed]:
        """The same of inputs that are changed, by the reference in its own dtype: fp64 changes copies of them."""
        views = self.views(tree)
        is_moved = any(variations.real(view).dtype is torch.float32 for view in views)
        if not is_moved or sum(view.nbytes for view in views) > SCATTER_BYTES:
            return changed
        jitter(views)
        synchronize(self.peer.device)
        self._own(model, tree, tf32=False)
        moved = [SCATTER * _error(views[item.index], item.value) for item in changed]
        self._restore(tree, pristine)
        return [replace(item, error=max(item.error, error)) for item, error in zip(changed, moved, strict=True)]

    def _untied(self, model: str, tree: Any, wide: Leaves) -> tuple[Leaves, list[Leaves]]:
        """These answers, copied, and those of the same form with equal inputs made distinct."""
        exact = _copied(wide)
        found = []
        for run in UNTIED:
            told = self._wide(model, tree, run.dtype)
            if told is not None and _is_alike(told, exact, dtypes=False) and _are_finite_where(told, exact):
                found.append(_copied(told))
        return exact, found

    def _rounded(
        self, model: str, tree: Any, own: Leaves, wide: Leaves, scales: Scales, known: Scales
    ) -> tuple[Leaves, list[float]]:
        """How far the exact answers move if intermediate values are rounded differently, by output (integers: 1 if any
        share does); and these answers, copied."""
        worst = [0.0] * len(wide)
        if _bytes_of(wide) > SCATTER_BYTES:
            return wide, worst
        exact = _copied(wide)
        for _ in range(ROUNDED_RUNS):
            moved = self._wide(model, tree, "rounded")
            if moved is None or not _is_alike(moved, exact, dtypes=False):
                break
            for index, ((_, a), (_, b), (_, c), *of) in enumerate(zip(own, exact, moved, scales, known, strict=True)):
                share = _error(a, c) if _is_discrete(a) else _error(c, b, *of)
                worst[index] = max(worst[index], float(share > AMBIGUOUS_LEAST) if _is_discrete(a) else share)
        return exact, worst

    def _own(self, model: str, tree: Any, *, tf32: bool) -> Leaves:
        self._may_have_changed = True
        outputs = self._run(model, tree, tf32=tf32)
        tensors = [leaf for _, leaf in values.leaves(outputs) if isinstance(leaf, torch.Tensor)]
        self._require_room("outputs", sum(leaf.numel() * leaf.itemsize for leaf in tensors))
        self.returns_inputs |= any(leaf.numel() and not self.peer.is_in_heap(leaf) for leaf in tensors)
        self._on_host = tuple(_is_on_host(leaf) for _, leaf in values.leaves(outputs))
        return _copied(values.leaves(outputs))

    def _require_room(self, what: str, size: int) -> None:
        """Few bytes can describe any number of elements, and the kernel ends a process that uses too much memory."""
        if self.peer.device.type == "cuda":  # there it is an error like any other
            return
        free = available_bytes()
        if free is not None and size > free // COPIES:
            raise ReferenceBroken(f"the reference's {what} have {size} bytes, of which {COPIES} copies find no room")

    def _restore(self, tree: Any, pristine: list[torch.Tensor]) -> None:
        """Put the inputs back where a call since the last look changed them, and remember that the reference does."""
        if not self._may_have_changed:
            return
        self._may_have_changed = False
        for view, kept in zip(self.views(tree), pristine, strict=True):
            if not same_bits(view, kept):
                self.mutates_inputs = True
                view.copy_(kept)
        synchronize(self.peer.device)

    def _changed(self, tree: Any, pristine: list[torch.Tensor]) -> list[Changed]:
        """The inputs that the last call has left as something else."""
        pairs = enumerate(zip(self.views(tree), pristine, strict=True))
        return [Changed(index, view.clone(), 0.0) for index, (view, kept) in pairs if not same_bits(view, kept)]

    def _fits_fp64(self, tree: Any, own: Leaves) -> bool:
        """own: the outputs in the task's own dtypes."""
        if self._fp64_fails:
            return False
        if self.peer.device.type != "cuda":
            return True
        outputs = _bytes_of(own)
        needed = _fp64_bytes(values.notes(tree), outputs)
        if needed <= SPARE:  # it finds that in its own pool, and the driver is slow to answer while contexts are made
            return True
        free, _ = torch.cuda.mem_get_info(self.peer.device)  # each time: a candidate may hold what was free before
        return needed + 4 * self.sizes.state < FP64_SHARE * free

    def _wide(self, model: str, tree: Any, dtype: str | None = "float64") -> Leaves | None:
        """The outputs in fp64, or None where the reference cannot be run so. dtype: or "rounded", or JITTERED's."""
        self._may_have_changed = True
        try:
            outputs = self._run(model, tree, tf32=False, dtype=dtype)
            return [  # an input that is returned will be as it was again
                (path, leaf.clone() if isinstance(leaf, torch.Tensor) and not self.peer.is_in_heap(leaf) else leaf)
                for path, leaf in values.leaves(outputs)
            ]
        except PeerFailed as error:
            if error.is_gone:
                raise
            self._fp64_fails |= dtype == "float64"
            return None

    def give_up_fp64(self) -> None:
        """The reference does not agree with itself in fp64 even on its own inputs: it means its own dtype."""
        self._fp64_fails = True


def jitter(inputs: list[torch.Tensor]) -> None:
    """Move those of single precision by their last digits."""
    for index, view in enumerate(view for view in map(variations.real, inputs) if view.dtype is torch.float32):
        variations.jitter(view, CALL_SEED + index)


def _told(run: Run) -> Run:
    """A run as the process is asked for it, which does not know of jittered inputs."""
    return Run("float64", run.tf32) if run is JITTERED else run


def _is_narrow(inputs: list[torch.Tensor]) -> bool:
    """A run in fp64 gets copies of all of them, and cannot take back what a call before it changed."""
    return all(x.is_floating_point() and x.itemsize < 8 for x in inputs)


def _is_finite(leaf: Any) -> bool:
    if isinstance(leaf, float | complex):
        return cmath.isfinite(leaf)
    if not isinstance(leaf, torch.Tensor) or not (leaf.is_floating_point() or leaf.is_complex()):
        return True
    if leaf.is_complex():
        return _is_finite(torch.view_as_real(leaf))
    if leaf.itemsize == 1:
        leaf = leaf.half()  # exact; floats of 8 bits have no order
    ends = [torch.stack(torch.aminmax(part)) for part in leaf.reshape(-1).split(1 << 28) if part.numel()]
    return not ends or bool(torch.isfinite(torch.stack(ends)).all())  # a NaN is both least and greatest


def _odd_kinds(leaf: Any) -> Iterator[list[torch.Tensor]]:
    """Where an answer is NaN, and where it is either infinity: of each part of it."""
    found = as_tensor(leaf)
    assert found is not None
    found = torch.view_as_real(found) if found.is_complex() else found
    for part in found.reshape(-1).split(CHUNK):
        wide = part.half() if part.itemsize == 1 else part
        yield [wide.isnan(), wide == torch.inf, wide == -torch.inf]


def _odd_shares(leaf: Any) -> tuple[float, ...]:
    counts, of = [0, 0, 0], 0
    for kinds in _odd_kinds(leaf):
        counts = [count + int(kind.sum()) for count, kind in zip(counts, kinds, strict=True)]
        of += kinds[0].numel()
    return tuple(count / max(1, of) for count in counts)


def _is_odd_alike(a: Any, b: Any) -> bool:
    both = zip(_odd_kinds(a), _odd_kinds(b), strict=True)
    return all(torch.equal(x, y) for mine, theirs in both for x, y in zip(mine, theirs, strict=True))


def _copied(leaves: Iterable[tuple[str, Any]]) -> Leaves:
    return [(path, leaf.clone() if isinstance(leaf, torch.Tensor) else leaf) for path, leaf in leaves]


def _bytes_of(leaves: Leaves) -> int:
    return sum(leaf.nbytes for _, leaf in leaves if isinstance(leaf, torch.Tensor))


def _same(a: Leaves, b: Leaves) -> bool:
    return all(
        same_bits(x, y) if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor) else x == y
        for (_, x), (_, y) in zip(a, b, strict=True)
    )


def _others(own: Any, wide: Any, untied: list[Any]) -> torch.Tensor | None:
    """Answers that are as right as the one that is compared against."""
    if not isinstance(own, torch.Tensor) or not isinstance(wide, torch.Tensor):
        return None
    if not _is_discrete(own):
        found = [one for one in untied if not _is_close(one, wide)]
    else:
        found = [one for one in (wide, *untied) if _is_discrete(one) and not same_bits(one, own)]
    if len(found) < 2:
        return found[0].clone() if found else None
    return torch.stack([one.to(found[0].dtype) for one in found])


def _is_close(a: torch.Tensor, b: torch.Tensor) -> bool:
    if not a.is_complex():  # some types of a byte have no allclose()
        a, b = a.double(), b.double()
    return torch.allclose(a, b, rtol=1e-6, atol=0.0, equal_nan=True)


def _are_finite_where(a: Leaves, b: Leaves) -> bool:
    """Answers of one form are finite in the same places."""
    pairs = [(x, y) for (_, x), (_, y) in zip(a, b, strict=True) if isinstance(x, torch.Tensor)]
    return all(_is_discrete(x) or bool((is_finite(x) == is_finite(y)).all()) for x, y in pairs)


def _error_of_any(own: Any, answers: list[Any], scale: float | None, known: float | None) -> float:
    """_error() to the nearest of several right answers; of integers, the share that is equal to none of them."""
    if not _is_discrete(own) or not isinstance(own, torch.Tensor):
        return min(_error(own, answer, scale, known) for answer in answers)
    differs = torch.ones_like(own, dtype=torch.bool)
    for answer in answers:
        differs &= own != answer
    return float(differs.double().mean()) if own.numel() else 0.0


def _share_that_differs(expected: Expected, index: int, other: Any) -> float:
    wanted, other = as_tensor(expected.values[index]), as_tensor(other)
    if wanted is None or other is None or not wanted.numel():
        return 0.0
    difference = compare(other, wanted, expected.limit(index, "strict"))
    return max(difference.differing, difference.nonfinite) / wanted.numel()


def _is_alike(a: Leaves, b: Leaves, *, dtypes: bool) -> bool:
    """The same paths, with tensors of the same shape where the other has one."""
    if [path for path, _ in a] != [path for path, _ in b]:
        return False
    for (_, x), (_, y) in zip(a, b, strict=True):
        if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
            if isinstance(x, torch.Tensor) or isinstance(y, torch.Tensor) or type(x) is not type(y):
                return False
        elif x.shape != y.shape or (dtypes and x.dtype != y.dtype):
            return False
    return True


def _is_discrete(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and is_discrete(leaf)


def _is_on_host(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and values.is_on_host(leaf)


def _known(leaf: Any, own: Any) -> float | None:
    """scale_of() an output, and SCALE_LEAST of its own dtype at least; None of one that has none."""
    tensor = as_tensor(leaf)
    if tensor is None or is_discrete(tensor):
        return None
    return max(scale_of(tensor), SCALE_LEAST.get(dtype_of(own), 0.0))


def _noise(own: Any, exact: Any, error: float) -> float:
    """Expected.noise of an answer next to which the exact one is nothing (the mean of what was normed); 0: it is not.

    error: between the two. The largest value is within the row's most: in half types that is a few times the scale.
    """
    a, b, row = as_tensor(own), as_tensor(exact), TABLE.get(dtype_of(own))
    if a is None or b is None or row is None or error <= row.most:
        return 0.0
    scale = scale_of(a)
    if scale_of(b) >= NOTHING * scale:
        return 0.0
    some = sample(a)
    some = (some if some.is_complex() else some.double()).abs()
    return max(scale / row.base, 2 * float(torch.where(torch.isfinite(some), some, 0.0).max()) / row.most)


def _error(a: Any, b: Any, scale: float | None = None, known: float | None = None) -> float:
    a, b = as_tensor(a), as_tensor(b)
    if a is None or b is None or a.shape != b.shape:
        return 0.0
    if is_discrete(a):
        return ambiguous_share(a, b)
    if a.numel() == 0:
        return 0.0
    return relative_error(a, b, scale, known)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal to the bit, NaNs included."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.is_complex():
        return same_bits(torch.view_as_real(a), torch.view_as_real(b))
    if _is_in_words(a) and _is_in_words(b):
        # torch writes a byte for each element that it compares: the wider they are, the fewer there are.
        return bool(torch.equal(a.view(-1).view(torch.int64), b.view(-1).view(torch.int64)))
    kind = BITS[a.dtype.itemsize]
    return bool(torch.equal(a.view(kind), b.view(kind)))


def _is_in_words(x: torch.Tensor) -> bool:
    """Its bytes are whole 64-bit words, one behind the other."""
    return x.is_contiguous() and x.nbytes % 8 == 0 and x.storage_offset() * x.itemsize % 8 == 0


def available_bytes() -> int | None:
    """Memory of the machine that could be had without swapping; None where the kernel does not say."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return None if found is None else int(found[1]) << 10


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def overlap(leaves: list[Leaves]) -> bool:
    """Whether tensors of different calls share bytes."""
    spans = sorted(
        (leaf.data_ptr(), leaf.data_ptr() + TensorNote.of(leaf).span_bytes, index)
        for index, call in enumerate(leaves)
        for _, leaf in call
        if isinstance(leaf, torch.Tensor) and leaf.numel()
    )
    end, owner = 0, -1
    for start, stop, index in spans:
        if start < end and index != owner:
            return True
        if stop > end:
            end, owner = stop, index
    return False


def place_tree(tree: Any, base: int) -> tuple[Any, int]:
    """The same inputs laid out from base on in another arena: the tree, and the first byte behind them."""
    end = base

    def place(note: TensorNote) -> TensorNote:
        nonlocal end
        placed = note.moved(end)
        end = align(end + note.span_bytes)
        return placed

    return values.map_tensors(tree, place), end

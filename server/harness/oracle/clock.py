"""The timing stage: reference and candidate in turn, on fresh inputs, by the referee's own clock.

For each bell the process that is called is frozen while its inputs are put in place, the cache is flushed and a canary
shows that the GPU is idle; it is thawed, canaries show that the GPU stays idle while it wakes up, the bell has the sets
of inputs to call on, and T runs from there to the end of the referee's gather of secret elements of the outputs, which
are then compared. Credited is (T - c) / n for a bell of n calls, c being the same round trip of empty calls on the
reference's child, made next to each pair. Bells are counted in blocks, and a disturbance voids its block.
docs/timing.md argues each step.
"""

from __future__ import annotations

import math
import os
import secrets
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import torch
from shared import native, values
from shared.wire import DOORBELL_OK, DOORBELL_REPLY_MAX, Json

from oracle import gpu_state, tolerance, variations
from oracle.cores import Cores
from oracle.gpu_state import GATHER, Gpu
from oracle.judge import BUILD_LIMIT_MS, Job, Report, form_of
from oracle.peer import SPIN_NS, NotTheCandidate, Peer, PeerFailed
from oracle.reference import (
    CALL_SEED,
    LIMIT_MS,
    Leaves,
    ReferenceBroken,
    overlap,
    place_tree,
    same_bits,
    synchronize,
)
from oracle.timing import BUDGET_TRIALS, CALL_LIMIT_MS, STOPPED, WORDS, TimedWrong, outcome_of, span_of

EMPTY_SET: Final = 128
"""The first of the sets that are bound to empty calls, behind every real one."""
REHEARSAL_SET: Final = 255
"""Bound to an empty kernel, for all kinds of empty calls."""
AWAKE_NS: Final = 150_000
"""How long a thawed process wakes up before its bell, while canaries run."""
HEAD_NS: Final = 800_000
"""How long a canary has the GPU from the ring on, so that a call's work is launched when the clock starts."""
HEAD_CALL_NS: Final = (60_000, 40_000_000)
"""Where a call of the reference takes from the one to under the other: a shorter one is bound by its launch, to a
longer one a launch is nothing. What counts is a call that follows others in a bell."""
HEAD_BELL_NS: Final = 1_500_000
"""And its bells no less."""
COUNTED: Final = 2
"""Pairs of the first block, in addition, with the clock from the ring on; one if a bell is one long call."""
PAUSE_MOST_NS: Final = 3_000_000
"""If launches are hidden, an empty bell has the GPU for as long as a bell of the reference, or for this."""
LAUNCH_NS: Final = 550_000
LAUNCH_PART: Final = 0.4
LAUNCH_SHARE: Final = 0.02
"""A bell is bound by its launches if the head hides more than LAUNCH_NS of it, or than LAUNCH_PART of the rest; but
LAUNCH_SHARE of a long one is not significant."""
SHORT_NS: Final = 500_000
"""A call under this in a bell of several is short: the host's part of it varies."""
MORE_BELLS: Final = 40
"""This many bells of several calls may be made while the interval is wide; of short ones within SHORT_BUDGET_S."""
SHORT_BUDGET_S: Final = 1.0
SHORT_NARROW: Final = 0.02
"""As NARROW, for bells of short calls."""
BUDGET_S: Final = 30.0
NARROW: Final = 0.005
"""Early stop: the interval of the median log-ratio is within this on either side."""
TOO_SMALL_NS: Final = 3_000
ESTIMATES: Final = 3
LENGTH_CALLS: Final = 1 + ESTIMATES
"""Calls of each side that measure its length, the last of the warm-up."""
BELL_NS: Final = 3_000_000
"""The length of a bell of several calls, about."""
SINGLE_NS: Final = 3_000_000
"""From here on a bell is one call."""
LONG_NS: Final = 2_000_000
"""To such a call the few microseconds by which an empty bell is off are nothing."""
CALLS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
BASELINE_BELLS: Final = 10
STEADY: Final = 0.10
"""A baseline counts when its quartiles lie within this share of it."""
ALLOWANCE: Final = 1.03
ALLOWANCE_NS: Final = 30_000
"""A block's reference counts for at most ALLOWANCE times the baseline, or for ALLOWANCE_NS more in a bell."""
VOID_MOST: Final = 3
AGAIN_MOST: Final = 20
"""So often a pair of these trials is made again where a canary was slow alone."""
BACKGROUND: Final = "background"
QUIET_S: Final = 10.0
WATCH_S: Final = (1.0, 10.0)
"""How long the GPU is watched without the candidate, at least and at most: twice as long as its void blocks took."""
PAUSE_S: Final = 0.2


@dataclass(frozen=True)
class Pace:
    """Numbers of bells: of each side in a block, of each side at least, and additional empty ones in a block."""

    block: int
    least: int
    empty: int


PACE: Final = Pace(5, 10, 5)
PACE_LONG: Final = Pace(5, 10, 2)
"""Of calls of LONG_NS and more."""
PACE_QUIET: Final = Pace(6, 6, 5)
"""For bells of several calls with hidden launches, which vary little."""


@dataclass(frozen=True)
class Protocol:
    """The mechanisms of the protocol, all on. A test turns one off and shows the cheat that it stops."""

    freezes: bool = True
    draws_inputs: bool = True
    compares: bool = True
    samples_secretly: bool = True
    takes_empty_of_reference: bool = True
    caps_reference: bool = True
    voids_blocks: bool = True
    flushes: bool = True
    believes_no_claim: bool = True
    hides_launch: bool = True
    """The clock starts HEAD_NS after the ring, and the GPU is not free before that (tests/bench/clock_modes.py)."""
    asks_for_launches: bool = True
    """Some pairs more have the clock from the ring on, and the others may gain no more than a launch."""
    pauses_empty: bool = True
    """An empty bell, too, has the GPU for as long as a real one."""


PROTOCOL = Protocol()


@dataclass
class Side:
    """One of the two processes that are timed, and where its outputs were when last seen."""

    peer: Peer
    leaves: list[Leaves] = field(default_factory=list)
    """The outputs of each call of a bell."""
    generation: int = -1
    events_ns: list[float] = field(default_factory=list)
    host_ns: list[float] = field(default_factory=list)
    moves: int = 0
    is_checked: bool = False
    """The form of these outputs was found right."""
    _bases: dict[int, tuple[torch.Tensor, bool]] = field(default_factory=dict)
    """By leaf: the outputs' addresses, and whether all have one form."""

    def learn(self, calls: int) -> None:
        """Read where the outputs of a bell are."""
        assert self.peer.doorbell is not None
        self.leaves = [list(values.leaves(outputs)) for outputs in self.peer.outputs_of(calls)]
        self.is_checked = False
        self._bases.clear()
        self.generation = self.peer.doorbell.claims().generation

    def tensors(self) -> list[torch.Tensor]:
        return [leaf for call in self.leaves for _, leaf in call if isinstance(leaf, torch.Tensor)]

    def pointers(self, leaf: int, sample: Sample) -> torch.Tensor:
        """Addresses of the sampled elements of one output, as int64 on the host."""
        tensors = [call[leaf][1] for call in self.leaves]
        if leaf not in self._bases:
            bases = torch.tensor([tensor.data_ptr() for tensor in tensors], dtype=torch.int64)
            forms = {(tensor.shape, tensor.stride()) for tensor in tensors}
            self._bases[leaf] = bases, len(forms) == 1
        bases, are_alike = self._bases[leaf]
        if are_alike:
            return bases[sample.calls] + _offsets(tensors[0], sample.places)
        offsets = torch.zeros_like(sample.places)
        for index, tensor in enumerate(tensors):
            mine = sample.calls == index
            offsets[mine] = _offsets(tensor, sample.places[mine])
        return bases[sample.calls] + offsets


def _offsets(tensor: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Bytes from a tensor's first element to those at flat, row-major places."""
    offsets = torch.zeros_like(places)
    for size, step in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        offsets += places % size * (step * tensor.element_size())
        places = places // size
    return offsets


@dataclass(frozen=True)
class Sample:
    """Which elements of the outputs a bell is judged by: flat, row-major places in the outputs of these calls."""

    calls: torch.Tensor
    places: torch.Tensor


@dataclass(frozen=True)
class Bell:
    """`calls` calls, of the sets from `set` on, modulo `sets`."""

    set: int
    calls: int = 1
    sets: int = 256


@dataclass
class Block:
    """The samples of a few bells, T in nanoseconds, and what was seen around them."""

    ours_ns: list[int] = field(default_factory=list)
    theirs_ns: list[int] = field(default_factory=list)
    empty_ns: list[int] = field(default_factory=list)
    counted: list[tuple[int, int, int]] = field(default_factory=list)
    """The same three of pairs with launches on the clock, if those of the others are hidden."""
    others_ns: int = 0
    """How long the slowest canary waited for foreign work."""
    state: Json = field(default_factory=dict)
    void: str | None = None
    began_s: float = field(default_factory=time.monotonic)
    most_ns: float = math.inf
    """The largest time that a call of the reference is credited with."""


class BackgroundWork(Exception):
    """The candidate's GPU work goes on while it is frozen."""


class NotHidden(Exception):
    """The head hides more than launches, or it cannot be seen when it ends."""


class Disturbed(Exception):
    """Blocks are void through no fault of the candidate: the text says why."""


class Timer:
    """One timing stage."""

    def __init__(self, job: Job, gpu: Gpu, protocol: Protocol = PROTOCOL) -> None:
        self._job = job
        self._gpu = gpu
        self._protocol = protocol
        self._case = job.spec["cases"]["own"]
        self._ours = Side(job.reference.peer)
        self._theirs = Side(job.candidate)
        self._model, self._state = job.reference.model(self._case, 0)
        self._calls = 1
        self._why_one: str | None = None  # why a bell is one call though the calls are short
        self._is_pinned = False
        self._head_ns = 0  # how long a canary has the GPU from the ring on
        self._pause_ns = 0  # how long an empty bell has the GPU
        self._is_late = False  # a canary of this pair was slow alone
        self._again = 0  # pairs of these trials that were made again
        self._launch_ns = [0.0, 0.0]  # hidden by the head, of a bell of either side
        self._end_s = 0.0  # of the trials, at the latest
        self._is_short = False  # calls for which a narrow interval is not worth much time
        self._is_long = False  # a few microseconds of a bell are nothing to its call
        self._blocks: list[Block] = []
        self._void: list[Block] = []
        self._disturbed: str | None = None
        self._baseline_ns: float | None = None
        self._single_ns = [0.0, 0.0]  # T of bells of one call
        self._trees: list[Any] = []
        self._limits_after: dict[int, tolerance.Limit] = {}  # by input, of the first that was another
        self._drawn: torch.Tensor | None = None  # a bell's inputs, where the reference's own arena has others after it
        self._seed: int | None = None
        self._random = secrets.SystemRandom()
        self._state_before: Json | None = None  # of the GPU, before the first block
        self._state_known: Json | None = None  # and after the last
        self._waiting = self._ours  # the side that works now: a failure is its own

    def run(self) -> Report:
        why: str | None = None
        failed: tuple[str, str, str | None] | None = None
        drift = self._gpu.drift()
        if abs(drift) > gpu_state.DRIFT:
            self._job.reference.baselines.clear()
            raise NotTheCandidate(f"the GPU's canary takes {100 * drift:+.0f} % longer than when the referee started")
        try:
            with Cores(self._ours.peer, self._theirs.peer) as cores:
                self._is_pinned = cores.is_pinned
                self._prepare()
                self._end_s = time.monotonic() + self._budget_s()
                try:
                    why = self._trials()
                except NotHidden:
                    self._count_launches()
                    why = self._trials()
        except PeerFailed as failure:
            if self._waiting.peer is self._ours.peer:
                raise ReferenceBroken(f"the reference failed while it was timed: {failure.error['text']}") from None
            return Report("timing", "fail", failure.class_, 0, 1, failure.error)
        except TimedWrong as wrong:
            failed = (wrong.class_, f"a timed call answered wrongly: {wrong}", None)
        except BackgroundWork:
            failed = ("hack", "work went on on the GPU while no call was due", "background_work")
        except Disturbed as disturbed:
            why = self._disturbed = str(disturbed)
        finally:
            self._ours.peer.thaw()
            self._theirs.peer.thaw()
        before = self._state_before or self._gpu.state()
        detail = self._detail(before, self._state_known or self._gpu.state(), why)
        if failed is None:
            return Report("timing", "pass", None, 1, 1, detail=detail)
        class_, text, rule = failed
        error = {"type": class_, "text": text, "line": None}
        return Report("timing", "fail", class_, 0, 1, error, rule=rule, detail=detail)

    # --- preparation ---

    def _prepare(self) -> None:
        job = self._job
        self._waiting = self._theirs
        job.build(self._model, self._case, 0, self._state)
        self._waiting = self._ours
        size = job.reference.sizes.inputs
        tree = job.reference.inputs(self._case, self._random.getrandbits(62))
        self._trees = [place_tree(tree, index * size)[0] for index in range(job.reference.sizes.sets)]
        first = range(job.reference.sizes.checked_sets)
        self._write(first)
        self._place(first, self._theirs)
        self._bind(first)
        if self._draws_numbers():
            self._seed = CALL_SEED
            self._bind(first)
        if self._changes_form():
            raise Disturbed("the reference's outputs have other shapes on other inputs")
        self._bind_rehearsal()
        self._bind_empty(1)
        for index in range(max(2, job.policy.warmup - LENGTH_CALLS)):
            for side in (self._ours, self._theirs):
                self._untimed(side, Bell(index % len(first)))
        self._choose_calls()
        self._find_baseline()
        for side in (self._ours, self._theirs):
            side.events_ns, side.host_ns, side.moves = [], [], 0

    def _bind(self, sets: range) -> None:
        """The same calls for both sides."""
        tf32 = self._uses_tf32()
        for side, limit_ms in ((self._ours, LIMIT_MS), (self._theirs, BUILD_LIMIT_MS)):
            self._waiting = side
            side.peer.thaw()
            side.peer.bind(
                sets[0],
                self._model,
                self._trees[sets[0]],
                sets=len(sets),
                stride=self._job.reference.sizes.inputs,
                tf32=tf32,
                seed=self._seed,
                limit_ms=limit_ms,
            )
        self._waiting = self._ours

    def _bind_rehearsal(self) -> None:
        for side in (self._ours, self._theirs):
            self._waiting = side
            side.peer.thaw()
            seed = self._seed
            side.peer.bind(REHEARSAL_SET, self._model, None, tf32=self._uses_tf32(), seed=seed, empty="kernel")
        self._waiting = self._ours

    def _bind_empty(self, calls: int) -> None:
        """Empty calls: the first launches a kernel that does nothing, the others are the harness' own part of one."""
        side = self._waiting = self._empty_side()
        side.peer.thaw()
        bind = partial(side.peer.bind, model=self._model, inputs=None, tf32=self._uses_tf32(), seed=self._seed)
        bind(EMPTY_SET, empty="kernel", pause_ns=self._pause_ns or None)
        if calls > 1:
            bind(EMPTY_SET + 1, empty="nothing", sets=calls - 1)
        self._waiting = self._ours

    def _empty_side(self) -> Side:
        return self._ours if self._protocol.takes_empty_of_reference else self._theirs

    def _draws_numbers(self) -> bool:
        """The reference answers differently on one input (dropout, say): both are then seeded before each call."""
        known = self._job.reference.draws_numbers
        if self._model not in known:
            known[self._model] = self._answers_differ()
        return known[self._model]

    def _answers_differ(self) -> bool:
        answers = []
        for _ in range(2):
            outputs = values.leaves(self._ours.peer.call(0, LIMIT_MS))
            heads = [leaf.reshape(-1)[:4096].clone() for _, leaf in outputs if isinstance(leaf, torch.Tensor)]
            answers.append([head if head.is_complex() else head.double() for head in heads])
        pairs = list(zip(*answers, strict=True))
        return not all(torch.allclose(a, b, rtol=1e-2, atol=1e-6, equal_nan=True) for a, b in pairs)

    def _changes_form(self) -> bool:
        """How many values are selected, say, depends on the inputs: no bell knows what the next one's answers are."""
        told = values.leaves(values.decode(self._case["outputs"], lambda note: note))
        shapes = [leaf.shape for _, leaf in told if isinstance(leaf, values.TensorNote)]
        for set_ in range(self._job.reference.sizes.checked_sets):
            outputs = values.leaves(self._ours.peer.call(set_, LIMIT_MS))
            if [tuple(leaf.shape) for _, leaf in outputs if isinstance(leaf, torch.Tensor)] != shapes:
                return True
        return False

    def _write(self, sets: range) -> None:
        """Fresh inputs for these sets, in the reference's arena: they carry what the checked inputs carried."""
        reference = self._job.reference
        self._waiting = self._ours
        reference.peer.thaw()
        seeds = [self._random.getrandbits(62) for _ in sets]
        tree = reference.inputs(self._case, seeds[0], sets[0], seeds[1:])
        if tree != self._trees[sets[0]]:
            raise ReferenceBroken("get_inputs() made other shapes than before")
        if "spikes" in self._job.admitted:
            for index, view in enumerate(reference.views(tree)):
                if view.is_floating_point():
                    variations.sparse_sets(view, len(sets), reference.sizes.inputs, seeds[0] + index)
        synchronize(self._job.candidate.device)

    def _place(self, sets: range, side: Side) -> None:
        """Copy these sets from the reference's arena into the candidate's; queued. For the reference, some aside."""
        ours, theirs = self._ours.peer.arena, self._theirs.peer.arena
        assert ours is not None and theirs is not None
        start, total = self._span(sets)
        if side is self._theirs:
            drawn = ours.pointer + start if self._drawn is None else self._drawn.data_ptr()
            self._gpu.copy(theirs.pointer + start, drawn, total)
        else:
            self._gpu.copy_aside(ours.pointer + start, total)

    def _span(self, sets: range) -> tuple[int, int]:
        """Where inputs of these sets begin in either arena, and how many bytes they take."""
        size = self._job.reference.sizes.inputs
        return sets[0] * size, span_of(self._trees[0], len(sets), size)

    def _choose_calls(self) -> None:
        """The number of calls in a bell, so that it is long compared with the clock's jitter; only the bell has it."""
        leaf, sample = self._sample(1)
        took = []
        for side in (self._ours, self._theirs):
            self._untimed(side, Bell(0))
            took.append([self._timed(side, Bell(0), sample, leaf=leaf)[0] for _ in range(ESTIMATES)])
        empty = min(self._empty(leaf, sample) for _ in range(ESTIMATES))
        single = [max(1.0, min(times) - empty) for times in took]
        most = min(self._job.reference.sizes.calls, DOORBELL_REPLY_MAX // (2 * self._reply_bytes()))
        calls = calls_for(min(single), most)
        self._single_ns = [statistics.median(times) for times in took]
        is_tried = calls > 1
        if is_tried:
            calls = self._try_calls(calls)
        self._calls = calls
        self._is_long = calls == 1 and min(single) >= LONG_NS
        # The reference's: the candidate may take its time here. Where single calls came last, their outputs are known.
        bell_ns = self._learn() if is_tried else statistics.median(took[0])
        call_ns = bell_ns / calls if calls > 1 else single[0]
        self._is_short = calls > 1 and call_ns < SHORT_NS
        is_fit = HEAD_CALL_NS[0] <= call_ns < HEAD_CALL_NS[1] and bell_ns >= HEAD_BELL_NS
        self._head_ns = HEAD_NS if self._protocol.hides_launch and is_fit else 0
        self._pause_ns = int(min(bell_ns, PAUSE_MOST_NS)) if self._head_ns and self._protocol.pauses_empty else 0
        self._bind_empty(calls)

    def _learn(self) -> int:
        """Where the outputs of such bells are that come now: about how many nanoseconds one takes the reference."""
        self._freeze(self._theirs)
        took_ns = [self._untimed(side, self._next_bell()) for side in (self._ours, self._theirs)]
        return took_ns[0]

    def _reply_bytes(self) -> int:
        sizes = []
        for side in (self._ours, self._theirs):
            assert side.peer.doorbell is not None
            sizes.append(len(side.peer.doorbell.read_reply()[0]))
        return max(sizes)

    def _try_calls(self, calls: int) -> int:
        """calls, or 1 if either side cannot keep the outputs of so many apart."""
        sets = range(calls)
        self._write(sets)
        self._place(sets, self._theirs)
        self._gpu.wait()
        self._bind(sets)
        for side in (self._ours, self._theirs):
            for _ in range(2):
                try:
                    self._untimed(side, Bell(0, calls, calls))
                except PeerFailed as failure:
                    if failure.is_gone:
                        raise
                    self._why_one = f"{calls} calls in a row failed: {failure.error['text'][:200]}"
                    return 1
            if overlap(side.leaves):
                self._why_one = "outputs of calls in a row share memory"
                return 1
        return calls

    def _next_bell(self) -> Bell:
        if self._calls > 1:
            return Bell(self._random.randrange(self._calls), self._calls, self._calls)
        return Bell(self._random.randrange(self._job.reference.sizes.checked_sets))

    def _fresh_bell(self) -> Bell:
        """The next, its inputs new in the reference's arena."""
        bell = self._next_bell()
        if self._protocol.draws_inputs:
            sets = self._sets_of(bell)
            self._write(sets)
            if self._job.reference.mutates_inputs and self._ours.peer.arena is not None:
                start, total = self._span(sets)
                self._drawn = self._ours.peer.arena.bytes[start : start + total].clone()
        return bell

    def _sets_of(self, bell: Bell) -> range:
        return range(bell.set, bell.set + 1) if bell.calls == 1 else range(bell.calls)

    def _uses_tf32(self) -> bool:
        return self._job.precision() == "tf32"

    def _find_baseline(self) -> None:
        """The reference's time while the candidate is frozen all along; kept for its task."""
        known = self._job.reference.baselines
        key = (self._uses_tf32(), self._job.policy.is_cold, self._calls, self._head_ns)
        if key not in known and self._protocol.caps_reference:
            low, middle, high = self._look_at_reference()
            if 0 < high - low < STEADY * middle:
                known[key] = middle
        self._baseline_ns = known.get(key)

    def _look_at_reference(self) -> tuple[float, float, float]:
        """Quartiles of one call's nanoseconds, nothing of the candidate's running; zeros where something runs."""
        self._freeze(self._theirs)
        block = Block()
        for _ in range(BASELINE_BELLS):
            bell = self._fresh_bell()
            leaf, sample = self._sample(bell.calls)
            sets = self._sets_of(bell)
            block.ours_ns.append(self._timed(self._ours, bell, sample, block, leaf=leaf, sets=sets)[0])
            block.empty_ns.append(self._empty(leaf, sample, block))
        times = [(ns - statistics.median(block.empty_ns)) / self._calls for ns in block.ours_ns]
        low, middle, high = statistics.quantiles(times, n=4)
        return (low, middle, high) if not block.others_ns else (0.0, 0.0, 0.0)

    def _cap(self, block: Block) -> float:
        """The largest time that a call of the reference is credited with in this block.

        Short calls may be bound by the host, whose cores change their speed by the second in a virtual machine: a
        reference above its cap is then measured once more at this time.
        """
        if self._baseline_ns is None or not self._protocol.caps_reference:
            return math.inf
        if self._calls > 1:
            took = statistics.median(self._calls_ns(block.ours_ns, statistics.median(block.empty_ns)))
            if took > self._allowed(self._baseline_ns):
                self._baseline_ns = max(self._baseline_ns, self._look_at_reference()[1])
        return self._allowed(self._baseline_ns)

    def _allowed(self, baseline_ns: float) -> float:
        return max(ALLOWANCE * baseline_ns, baseline_ns + ALLOWANCE_NS / self._calls)

    # --- trials ---

    def _pace(self) -> Pace:
        if self._head_ns and self._calls > 1:
            return PACE_QUIET
        return PACE_LONG if self._is_long else PACE

    def _budget_s(self) -> float:
        return BUDGET_S * max(1.0, self._job.policy.trials / BUDGET_TRIALS)

    def _bounds(self) -> tuple[int, int]:
        """The least and the most bells of each side: as many as make `trials` calls, and not fewer than the least.

        Of a fixed number each bell is one trial, whatever its number of calls.
        """
        policy = self._job.policy
        if policy.is_fixed:
            return min(PACE.least, policy.trials), policy.trials
        least = min(self._pace().least, policy.trials)
        enough = max(least, math.ceil(policy.trials / self._calls))
        return least, max(enough, min(MORE_BELLS, policy.trials))

    def _trials(self) -> str | None:
        """Until the interval is narrow, the trials are made, or the budget is spent: why it ended early, or None.

        Disturbed where a fixed number of trials was not made: fewer are not what was asked for.
        """
        is_fixed = self._job.policy.is_fixed
        is_brief = self._is_short and not is_fixed
        short_end = time.monotonic() + SHORT_BUDGET_S if is_brief else self._end_s
        least, most = self._bounds()
        narrow = SHORT_NARROW if self._is_short else NARROW
        pace = self._pace()
        rule = native.StopRule(least, most, pace.block, narrow, is_fixed)
        while True:
            done = sum(len(block.ours_ns) for block in self._blocks)
            if done >= min(2, most):
                stop = rule.decide(*self._credited(), is_spent=time.monotonic() > short_end)
                self._require_hidden_launches()
                if stop == native.STOP_SPENT and is_fixed:
                    raise Disturbed(
                        f"{done} of {most} trials were made in the {self._budget_s():g} s that they may take"
                    )
                if stop != native.STOP_GO_ON:
                    return STOPPED[stop]
            block = self._block(min(pace.block, most - done), done)
            if block.void is None or not self._protocol.voids_blocks:
                self._blocks.append(block)
            else:
                self._void.append(block)
                self._after_void(block, is_late=time.monotonic() > self._end_s)

    def _require_hidden_launches(self) -> None:
        """NotHidden if the pairs with launches on the clock took longer by more than a launch.

        So it does not help a candidate to recognise these pairs: a call is credited with its time as seen from outside,
        less LAUNCH_NS of a bell at most. Of those pairs the least counts.
        """
        counted = [pair for block in self._blocks for pair in block.counted]
        empty = self._empty_ns()
        if not counted or empty is None:
            return
        counted_empty = statistics.median(pair[2] for pair in counted)
        ours = [ns for block in self._blocks for ns in block.ours_ns]
        theirs = [ns for block in self._blocks for ns in block.theirs_ns]
        whole = [min(pair[side] for pair in counted) - counted_empty for side in (0, 1)]
        behind = [statistics.median(times) - empty for times in (ours, theirs)]
        self._launch_ns = [a - b for a, b in zip(whole, behind, strict=True)]
        for hidden, all_ns, left in zip(self._launch_ns, whole, behind, strict=True):
            if hidden > max(min(LAUNCH_NS, LAUNCH_PART * left), LAUNCH_SHARE * all_ns):
                raise NotHidden

    def _count_launches(self) -> None:
        """The clock runs from the ring on from now on, and the trials begin anew."""
        self._blocks.clear()
        self._void.clear()
        for side in (self._ours, self._theirs):
            side.events_ns, side.host_ns, side.moves = [], [], 0
        self._head_ns = self._pause_ns = self._again = 0
        self._bind_empty(self._calls)
        self._find_baseline()

    def _block(self, bells: int, done: int) -> Block:
        """`bells` pairs after the `done` earlier ones, and empty bells with some of them."""
        block = Block()
        empty = self._pace().empty
        before = self._state_known or self._gpu.state()
        self._state_before = self._state_before or before
        self._freeze(self._theirs)
        for index in range(bells):
            self._trial(block, turn=done + index, has_empty=index < empty)
        if done == 0 and self._head_ns and self._protocol.asks_for_launches:
            for turn in range(1 if self._is_long else COUNTED):
                self._trial_counted(block, turn=turn)
        after = self._gpu.state()
        block.state = gpu_state.summary(before, after)
        block.void = gpu_state.disturbance(before, after)
        if block.void is None and block.others_ns:
            block.void = BACKGROUND
        if block.void is None or not self._protocol.voids_blocks:
            block.most_ns = self._cap(block)
        self._state_known = after if block.void is None else None
        return block

    def _after_void(self, block: Block, *, is_late: bool) -> None:
        """Go on, blame the candidate, or give up."""
        counts = Counter(b.void == BACKGROUND for b in self._void)
        if counts[True] >= VOID_MOST:
            if self._is_candidates_work():
                raise BackgroundWork
            raise Disturbed("something else than this submission works on the GPU")
        if counts[False] >= VOID_MOST or is_late:
            raise Disturbed(f"{len(self._void)} blocks were disturbed: {block.void}")
        if block.void != BACKGROUND:
            time.sleep(PAUSE_S)

    def _is_candidates_work(self) -> bool:
        """Whether the disturbance of the void blocks is gone without the candidate, while all else goes on as before.

        So a disturbance that comes in bursts, or with the reference's calls, is not attributed to the candidate; nor is
        one that came too seldom to be watched for.
        """
        since_s = next(block.began_s for block in self._void if block.void == BACKGROUND)
        took_s = time.monotonic() - since_s
        self._job.candidate.end()
        if took_s > WATCH_S[1] or not self._gpu.is_quiet(QUIET_S):
            return False
        end = time.monotonic() + min(max(WATCH_S[0], 2 * took_s), WATCH_S[1])
        while time.monotonic() < end:
            seen, bell = Block(), self._fresh_bell()
            leaf, sample = self._sample(bell.calls)
            self._timed(self._ours, bell, sample, seen, leaf=leaf, sets=self._sets_of(bell))
            if seen.others_ns or self._gpu.others_ns():
                return False
        return True

    def _empty(self, leaf: int, sample: Sample, block: Block | None = None) -> int:
        """A round trip of empty calls, all else as in a real one, less its pause: what the protocol itself costs."""
        side = self._empty_side()
        sets = self._sets_of(Bell(0, self._calls)) if side is self._ours else None
        bell = Bell(EMPTY_SET, self._calls, EMPTY_SET + self._calls)
        return self._timed(side, bell, sample, block, leaf=leaf, sets=sets)[0] - self._pause_ns

    def _trial(self, block: Block, *, turn: int, has_empty: bool) -> None:
        ours_ns, theirs_ns, empty_ns = self._pair(block, turn, has_empty=has_empty)
        block.ours_ns.append(ours_ns)
        block.theirs_ns.append(theirs_ns)
        if empty_ns is not None:
            block.empty_ns.append(empty_ns)

    def _trial_counted(self, block: Block, *, turn: int) -> None:
        """A pair with its launches on the clock, which says whether the others may have theirs hidden."""
        head_ns, self._head_ns = self._head_ns, 0
        try:
            ours_ns, theirs_ns, empty_ns = self._pair(block, turn, has_empty=True)
        finally:
            self._head_ns = head_ns
        block.counted.append((ours_ns, theirs_ns, empty_ns or 0))

    def _pair(self, block: Block, turn: int, *, has_empty: bool) -> tuple[int, int, int | None]:
        """T of both sides and of an empty bell, in an order that changes each turn; the candidate's answer is compared.

        Made again if a canary was slow alone, before the call or at the ring: the work of a side has begun too soon,
        or the host noticed a head's end late. That is not attributed as long as it is rare.
        """
        while True:
            self._is_late = False
            found = self._pair_once(block, turn, has_empty=has_empty)
            if not self._is_late:
                return found
            self._again += 1
            if self._again > AGAIN_MOST:
                if self._head_ns:
                    raise NotHidden
                raise Disturbed(f"{self._again} pairs were disturbed while they began")

    def _pair_once(self, block: Block, turn: int, *, has_empty: bool) -> tuple[int, int, int | None]:
        bell = self._fresh_bell()
        leaf, sample = self._sample(bell.calls)
        took: dict[int, int] = {}
        got: dict[int, torch.Tensor] = {}
        sides = (self._ours, self._theirs) if turn % 4 in (0, 3) else (self._theirs, self._ours)
        empty_ns = self._empty(leaf, sample, block) if has_empty and turn % 2 else None
        for side in sides:
            took[id(side)], got[id(side)] = self._timed(side, bell, sample, block, leaf=leaf, sets=self._sets_of(bell))
        if has_empty and not turn % 2:
            empty_ns = self._empty(leaf, sample, block)
        if self._protocol.compares:
            self._check(leaf, sample, got[id(self._theirs)], got[id(self._ours)])
            self._check_inputs(self._sets_of(bell))
        return took[id(self._ours)], took[id(self._theirs)], empty_ns

    def _sample(self, calls: int) -> tuple[int, Sample]:
        """One of the outputs, and elements of it in every call, which cannot be predicted."""
        outputs = [(i, x) for i, (_, x) in enumerate(self._ours.leaves[0]) if isinstance(x, torch.Tensor) and x.numel()]
        if not outputs:
            nothing = torch.zeros(0, dtype=torch.int64)
            return 0, Sample(nothing, nothing)
        leaf, tensor = self._random.choice(outputs)
        which = torch.arange(GATHER, dtype=torch.int64) % calls
        if not self._protocol.samples_secretly:
            return leaf, Sample(which * 0, torch.arange(GATHER, dtype=torch.int64) % tensor.numel())
        drawn = torch.frombuffer(bytearray(os.urandom(8 * GATHER)), dtype=torch.int64)
        return leaf, Sample(which, (drawn & (1 << 62) - 1) % tensor.numel())

    def _untimed(self, side: Side, bell: Bell) -> int:
        """A bell outside the clock, after which it is known where the outputs are: its time until the answer, in ns."""
        peer = side.peer
        self._waiting = side
        assert peer.doorbell is not None
        was_frozen = peer.is_frozen
        peer.thaw()
        peer.arm(1, events=self._job.policy.events)
        peer.armed -= 1
        rung_ns = time.monotonic_ns()
        peer.await_answer(peer.doorbell.ring(bell.set, bell.calls, bell.sets), CALL_LIMIT_MS)
        took_ns = time.monotonic_ns() - rung_ns
        side.learn(bell.calls)
        if was_frozen:
            peer.freeze()
        return took_ns

    def _timed(
        self,
        side: Side,
        bell: Bell,
        sample: Sample,
        block: Block | None = None,
        *,
        leaf: int = 0,
        sets: range | None = None,
    ) -> tuple[int, torch.Tensor]:
        """One bell: T in nanoseconds, and what was gathered. sets: to be put in place before it."""
        peer = side.peer
        self._waiting = side
        assert peer.doorbell is not None
        peer.thaw()
        self._rehearse(side)
        self._freeze(side)
        self._aim(side, leaf, sample)
        if sets is not None:
            self._place(sets, side)
        if self._protocol.flushes and self._job.policy.is_cold:
            self._gpu.flush()
        else:
            self._gpu.wait()
        others_ns = self._gpu.others_ns()
        self._is_late |= self._gpu.had_hiccup
        call = native.ClockCall(
            peer.doorbell,
            bell.set,
            peer.pidfd,
            SPIN_NS,
            CALL_LIMIT_MS * 1_000_000,
            side.generation,
            self._gpu.steps_of(self._head_ns) if self._head_ns else 0,
        )
        peer.thaw()
        others_ns = max(others_ns, self._gpu.others_ns(AWAKE_NS))
        self._is_late |= self._gpu.had_hiccup
        if block is not None:
            block.others_ns = max(block.others_ns, others_ns)
        try:
            if call.run(bell.calls, bell.sets):
                side.moves += 1
                side.learn(bell.calls)
                self._aim(side, leaf, sample)
                call.finish()
        except native.ChildDiedError:
            raise peer.gone() from None
        except native.BellTimeoutError:
            text = f"the timed call did not return within {CALL_LIMIT_MS / 1000:g} s"
            raise PeerFailed("timeout", text, is_gone=True) from None
        self._freeze(side)
        self._note_head(call.head_ns)
        claims = peer.doorbell.claims()
        if claims.status != DOORBELL_OK:
            peer.outputs_of(bell.calls)
        if block is not None and bell.set != EMPTY_SET:
            side.events_ns.append(claims.events_ns / bell.calls)
            side.host_ns.append(claims.host_ns / bell.calls)
        elapsed = call.elapsed_ns if self._protocol.believes_no_claim else claims.events_ns or claims.host_ns
        dtype = side.leaves[0][leaf][1].dtype if sample.places.numel() else torch.float32
        return elapsed, self._gpu.gather_read(sample.places.numel(), dtype)

    def _note_head(self, head_ns: int) -> None:
        """A canary at the ring that ended late shared the GPU with work that should have waited for its end, or the
        host noticed it late, which is not measured again."""
        self._is_late |= head_ns > self._head_ns + gpu_state.SLOWER_NS

    def _rehearse(self, side: Side) -> None:
        """An empty bell that is not timed, so that both sides are equally warm; it is armed for one more."""
        peer = side.peer
        assert peer.doorbell is not None
        peer.arm(2, events=self._job.policy.events)
        peer.armed -= 2
        peer.await_answer(peer.doorbell.ring(REHEARSAL_SET, 1, REHEARSAL_SET + 1), CALL_LIMIT_MS)

    def _freeze(self, side: Side) -> None:
        if self._protocol.freezes:
            side.peer.freeze()

    def _aim(self, side: Side, leaf: int, sample: Sample) -> None:
        """Have the gather read these elements of where the outputs were last seen."""
        if side is self._theirs and not side.is_checked:
            self._require_form(side.leaves)
            side.is_checked = True
        if not sample.places.numel():
            self._gpu.gather_set(sample.places, 1)
            return
        self._gpu.gather_set(side.pointers(leaf, sample), side.leaves[0][leaf][1].element_size())

    def _require_form(self, leaves: list[Leaves]) -> None:
        """The candidate's outputs have the reference's form, and those of several calls lie apart."""
        wanted = form_of(self._ours.leaves[0])
        for call in leaves:
            if form_of(call) != wanted:
                raise TimedWrong(f"the outputs are {form_of(call)}, expected {wanted}")
        if overlap(leaves):
            raise TimedWrong("outputs of different calls share memory")

    def _check(self, leaf: int, sample: Sample, got: torch.Tensor, wanted: torch.Tensor) -> None:
        """The candidate's timed answer against the reference's, at the gathered places."""
        limit = self._job.timing_limit(leaf, wanted, self._job.all_errors())
        found = tolerance.compare(got, wanted, limit)
        if not found.is_match(limit):
            at = found.first or 0
            raise TimedWrong(
                f"output {leaf} of call {int(sample.calls[at])}, element {int(sample.places[at])}: expected "
                f"{tolerance.number(wanted[at])}, got {tolerance.number(got[at])}; {found.differing} of "
                f"{len(sample.places)} sampled elements differ"
            )

    def _check_inputs(self, sets: range) -> None:
        """As after a checked call: both sides began with the same, and the candidate leaves what the reference does."""
        job, ours, theirs = self._job, self._ours.peer.arena, self._theirs.peer.arena
        assert ours is not None and theirs is not None
        start, total = self._span(sets)
        mine, right = (arena.bytes[start : start + total].view(torch.int64) for arena in (theirs, ours))
        if job.policy.name == "kernelbench" or all(map(torch.equal, mine.split(WORDS), right.split(WORDS))):
            return
        errors, is_extreme = job.all_errors(), "spikes" in job.admitted
        for set_ in sets:
            for index, note in enumerate(values.notes(self._trees[set_])):
                mine, right = theirs.view(note), ours.view(note)
                if same_bits(mine, right):
                    continue
                if index not in self._limits_after:
                    self._limits_after[index] = job.timing_limit_after(index, right, errors, is_extreme=is_extreme)
                limit = self._limits_after[index]
                if not tolerance.compare(mine, right, limit).is_match(limit):
                    class_ = "mismatch" if index in errors.changed else "mutated_input"
                    raise TimedWrong(f"input {index} after call {set_ - sets[0]} is not what it should be", class_)

    # --- results ---

    def _empty_ns(self) -> float | None:
        """c, of the blocks that count: a side that disturbs a block must not gain by the block's empty bells."""
        found = [ns for block in self._blocks for ns in block.empty_ns]
        return statistics.median(found) if found else None

    def _calls_ns(self, bells_ns: list[int], empty_ns: float) -> list[float]:
        """Nanoseconds of a call, for each bell."""
        return [max(1.0, (ns - empty_ns) / self._calls) for ns in bells_ns]

    def _credited(self) -> tuple[list[float], list[float]]:
        """Nanoseconds of a call, for each bell."""
        empty = self._empty_ns()
        assert empty is not None
        ours: list[float] = []
        theirs: list[float] = []
        for block in self._blocks:
            mine = self._calls_ns(block.ours_ns, empty)
            share = min(1.0, block.most_ns / statistics.median(mine))
            ours += [share * ns for ns in mine]
            theirs += self._calls_ns(block.theirs_ns, empty)
        return ours, theirs

    def _detail(self, before: Json, after: Json, why: str | None) -> Json:
        blocks = [
            {"bells": len(block.theirs_ns), "void": block.void, "others_us": block.others_ns // 1000, **block.state}
            for block in [*self._blocks, *self._void]
        ]
        bells = sum(len(block.theirs_ns) for block in self._blocks)
        empty = self._empty_ns()
        detail: Json = {
            "method": "doorbell_paired",
            "basis": "wall",
            "warmup": self._job.policy.warmup,
            "cold": self._job.policy.is_cold,
            "trials": bells if self._job.policy.is_fixed else bells * self._calls,
            "calls": self._calls,
            "bells": bells,
            "one_call": self._why_one,
            "stopped": why,
            "empty_ns": None if empty is None else round(empty, 1),
            "baseline_ns": round(self._baseline_ns, 1) if self._baseline_ns else None,
            "moves": [self._ours.moves, self._theirs.moves],
            "slopes": None,
            "clocks": {
                "before": before,
                "after": after,
                "canary_ns": self._gpu.known_ns,
                "one_core": self._is_pinned,
                "hidden_ns": self._head_ns,
                "pause_ns": self._pause_ns,
                "launch_us": [round(ns / 1000, 1) for ns in self._launch_ns],
                "again": self._again,
                "blocks": blocks,
            },
        }
        for name, side in (("reference", self._ours), ("candidate", self._theirs)):
            for what, claims in (("events", side.events_ns), ("host", side.host_ns)):
                known = [x for x in claims if x > 0]
                detail[f"{what}_{name}_ns"] = round(statistics.median(known), 1) if known else None
        if bells < 2:
            return {**detail, "outcome": "inconclusive", "why": why or "too few trials"}
        if self._calls > 1:
            detail["slopes"] = self._slopes()
        ours, theirs = self._credited()
        detail["reference_ns"] = [round(x, 1) for x in ours]
        detail["candidate_ns"] = [round(x, 1) for x in theirs]
        return {**detail, **self._outcome(ours, theirs)}

    def _slopes(self) -> Json:
        """Whole round trips of bells of one call and of several, launches on the clock in both: what a call more takes
        is a check on c."""
        counted = [pair for block in self._blocks for pair in block.counted]
        if self._head_ns and counted:
            ours, theirs = (statistics.median(pair[side] for pair in counted) for side in (0, 1))
        else:
            ours = statistics.median(ns for block in self._blocks for ns in block.ours_ns)
            theirs = statistics.median(ns for block in self._blocks for ns in block.theirs_ns)
        return {
            "calls": [1, self._calls],
            "reference_ns": [self._single_ns[0], ours],
            "candidate_ns": [self._single_ns[1], theirs],
        }

    def _outcome(self, ours: list[float], theirs: list[float]) -> Json:
        if self._disturbed is not None:
            return {"outcome": "inconclusive", "why": self._disturbed}
        found = outcome_of(ours, theirs, TOO_SMALL_NS)
        if found["outcome"] == "inconclusive" and self._why_one:
            found["why"] += f"; {self._why_one}"
        return found


def calls_for(ns: float, most: int) -> int:
    """Calls for each bell if one takes `ns`: a bell of BELL_NS, of at most `most` calls."""
    if ns >= SINGLE_NS:
        return 1
    allowed = [calls for calls in CALLS if calls <= max(1, most)]
    return next((calls for calls in allowed if calls * ns >= BELL_NS), allowed[-1])


def time_job(job: Job, gpu: Gpu) -> Report:
    """Run the timing stage of a job whose `full` has passed."""
    return Timer(job, gpu).run()

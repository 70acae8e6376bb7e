"""Device time of a plan and its reference: CUDA graphs between CUDA events, fresh inputs and a cold cache each time.

Both sides queue a gate, a wash of the L2 cache, an event, one graph of `calls` calls on as many sets of inputs, and
an event; the figure is the time between the events, less the time of a graph beyond its kernels. So it contains no
launch of Python's, torch's or the driver's, on either side. The two take turns, and every answer is compared whole.

The side under test is trusted code, since a plan is run by the executor; its kernels are not, and could find the
events' memory. So the figure is checked against the host's clock around the whole bell. docs/timing.md argues the rest.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from shared import native, values
from shared.arena import align
from shared.wire import DOORBELL_OK, Json

from oracle import discontinuity, gpu_state, tolerance, variations
from oracle.gpu_state import Gpu
from oracle.judge import BUILD_LIMIT_MS, Job, Report, form_of
from oracle.peer import Peer, PeerFailed
from oracle.reference import CALL_SEED, LIMIT_MS, Leaves, ReferenceBroken, overlap, place_tree, synchronize

GRAPH_SET: Final = 255
"""Bound to the graph of a bell's calls."""
EMPTY_SET: Final = 240
"""The first of EMPTY_KERNELS sets that are bound to an empty kernel each."""
EMPTY_KERNELS: Final = 9
EMPTY_GRAPH_SET: Final = 254
BELL_NS: Final = 100_000
"""Calls that take less than this are timed as several in one graph."""
CALLS_MOST: Final = 12
CHANGED: Final = 6
"""Of this many calls of a bell one has changed inputs; of bells of one call every other one has."""
ENOUGH: Final = 1.5
"""A graph is recorded anew if its bell should have more than this many times its calls."""
SAVED: Final = 1.6
"""Calls of a bell are timed one by one if a single one takes more than this many times as long,"""
SAVED_NS: Final = 2_000
"""and this much longer. Data that the first call brings into the cache then save the others less."""
STEPS_SET: Final = 253
"""Bound to a call with an event after each step."""
STEPS_CALLS: Final = 3
EMPTY_BELLS: Final = 9
LENGTH_BELLS: Final = 3
LEAST: Final = 10
"""Pairs before an interval may end the trials."""
BLOCK: Final = 5
"""Pairs between two looks at the interval."""
AHEAD_BYTES: Final = 64 << 20
"""Inputs of a bell that are larger than this are drawn for it alone: to have them copied once more takes its time."""
ROWS_BYTES: Final = 8 << 20
"""Answers of a bell that come to no more are copied to be compared, all at once."""
WORDS: Final = 1 << 26
"""Of inputs, that are compared at a time: what that makes is an eighth of their size."""
NARROW: Final = ((100_000, 0.003), (20_000, 0.01), (0, 0.02))
"""Early stop: for calls from this length in nanoseconds, the interval of the median log-ratio is within this on either
side. From one judgement to the next a short call differs by 1 % whatever the number of its bells."""
WIDE: Final = 0.10
"""Beyond this half width the timing is inconclusive."""
TOO_SMALL_NS: Final = 1_000
BUDGET_S: Final = 20.0
BUDGET_TRIALS: Final = 50
"""More trials than this may take longer in proportion (device_stages.c gives them as much)."""
CALL_LIMIT_MS: Final = 20_000
GATE_NS: Final = 5_000_000
"""The GPU waits so long at most until all of a bell is queued: a busy host takes a part of that now and then."""
HOST_SHARE: Final = 0.25
HOST_NS: Final = 3_000
"""A bell may take this much longer by the host's clock, with a warm cache, than it is credited with, with a cold one:
a share, and the time that the start of a graph takes."""
LONG_NS: Final = 500_000
"""The least time of a bell that is checked against the host's clock: its calls are repeated."""
HOST_TRIES: Final = 10
DOUBTS_MOST: Final = 8
"""Of the answers of a block that seem to be beside a step so many are looked at, at random."""
DOUBTED_LEAST: Final = 64
"""Of fewer elements hardly any is beside a step, and each answer is compared as it is."""
VOID_MOST: Final = 8
VOID_PAUSE_S: Final = 0.3
"""A process that was killed may take a second to be gone from the GPU."""


STOPPED: Final = {
    native.STOP_NARROW: "the interval is narrow enough",
    native.STOP_ALL: None,
    native.STOP_SPENT: "the time budget is spent",
}


class Uncapturable(Exception):
    """A side cannot be recorded as a graph: the text says which, and why. Its calls are timed in the live way."""


class TimedWrong(Exception):
    """A timed call answered wrongly."""

    def __init__(self, text: str, class_: str = "mismatch") -> None:
        super().__init__(text)
        self.class_ = class_


@dataclass
class Side:
    """One of the two processes that are timed."""

    peer: Peer
    name: str
    events_ns: list[float] = field(default_factory=list)
    _outputs: list[Leaves] = field(default_factory=list)
    _generation: int = -1
    _answer: Any = ...
    """What the outputs were made of."""
    _written: list[tuple[torch.dtype, torch.Tensor]] | None = None
    _is_graph: bool = False
    """The last bell was a graph, which answers with a list of its calls' outputs."""

    def outputs(self) -> list[Leaves]:
        """The outputs of each call of the last bell: (path, tensor or value), as views of the arena."""
        assert self.peer.doorbell is not None
        generation = self.peer.doorbell.claims().generation
        if generation != self._generation:
            answer = self.peer.outputs_of(1)[0]
            if answer is not self._answer:  # else it lies where it did
                told = answer if self._is_graph else [answer]
                self._outputs = [list(values.leaves(outputs)) for outputs in told]
                self._answer, self._written = answer, None
            self._generation = generation
        return self._outputs

    def written(self) -> list[tuple[torch.dtype, torch.Tensor]]:
        """The memory of each output of the last bell, as bytes, with the output's dtype: not of inputs, nor of what
        the model keeps."""
        arena, outputs = self.peer.arena, self.outputs()
        assert arena is not None
        if self._written is None:
            self._written = []
            for leaf in (leaf for call in outputs for _, leaf in call if isinstance(leaf, torch.Tensor)):
                offset = arena.find(leaf)
                if offset is not None and self.peer.is_in_heap(leaf) and values.KEPT not in values.marks_of(leaf):
                    span = values.TensorNote.of(leaf).span_bytes
                    self._written.append((leaf.dtype, arena.bytes[offset : offset + span]))
        return self._written

    def ring(self, set_: int) -> tuple[int, int]:
        """One bell: nanoseconds between its events, and by the host's clock around all of it."""
        peer = self.peer
        assert peer.doorbell is not None
        if self._is_graph != (set_ == GRAPH_SET):
            self._is_graph, self._answer = not self._is_graph, ...
        began_ns = time.monotonic_ns()
        peer.await_answer(peer.doorbell.ring(set_, 1, set_ + 1), CALL_LIMIT_MS)
        host_ns = time.monotonic_ns() - began_ns
        claims = peer.doorbell.claims()
        if claims.status != DOORBELL_OK:
            peer.outputs_of(1)
        return claims.events_ns, host_ns


class DeviceTimer:
    """The timing stage of one job whose candidate is a plan."""

    def __init__(self, job: Job, gpu: Gpu) -> None:
        self._job = job
        self._gpu = gpu
        self._case = job.spec["cases"]["own"]
        self._ours = Side(job.reference.peer, "the reference")
        self._theirs = Side(job.candidate, "the candidate")
        self._sides = (self._ours, self._theirs)
        self._random = secrets.SystemRandom()
        self._weights = 1 if job.reference.takes_other_weights else 0
        self._model, self._state = job.reference.model(self._case, self._weights)
        self._calls = 1
        self._call_ns = 0.0  # of the shorter side's calls, about
        self._why_one: str | None = None  # why a bell is one call though the calls are short
        self._tree: Any = None  # of the inputs in set 0
        self._empty_ns = 0.0
        self._host_ns: dict[str, float] = {}
        self._pairs: list[tuple[float, float]] = []
        self._blocks: list[Json] = []
        self._unfinished: str | None = None  # why a fixed number of trials was not made
        self._transforms = sorted(job.admitted - variations.UNTIMED)
        self._ahead: list[tuple[int, list[str | None]]] = []
        """Of each bell whose inputs are drawn: their first set, and by which transformation each set was changed."""
        self._drawn: list[str | None] = []  # the same of the bell that rings
        self._limits: dict[tuple[str | None, int], tolerance.Limit] = {}
        """By transformation and output: of its first answer, since a limit is a matter of scale."""
        self._limits_after: dict[tuple[str | None, int], tolerance.Limit] = {}
        """The same by input."""
        self._doubts: list[tuple[list[torch.Tensor], int, discontinuity.Doubt, str]] = []
        """Of answers beside a step: the call's inputs, copied, the output, and what is wrong unless it is one."""
        self._doubted = 0  # answers of this block, whether or not they are among these
        self._waiting = self._ours
        self._seen: Json = {}  # the GPU's state between two blocks

    def run(self) -> Report:
        """Report of stage `timing`. Uncapturable: nothing was judged, and the live way may be."""
        before = self._seen = self._gpu.state()
        why: str | None = None
        try:
            self._prepare()
            why = self._trials()
            if self._calls > 1 and self._pairs and len(self._void()) < VOID_MOST and self._saves():
                self._why_one = "calls in a row take less time than one alone"
                self._record(1)
                self._forget()
                why = self._trials()
            for side in self._sides:
                self._host_ns[side.name] = self._host_clock(side, statistics.median(side.events_ns))
        except PeerFailed as failure:
            if self._waiting is self._ours:
                raise ReferenceBroken(f"the reference failed while it was timed: {failure.error['text']}") from None
            self._settle()
            return Report("timing", "fail", failure.class_, 0, 1, failure.error)
        except TimedWrong as wrong:
            self._settle()
            error = {"type": wrong.class_, "text": f"a timed call answered wrongly: {wrong}", "line": None}
            return Report("timing", "fail", wrong.class_, 0, 1, error, detail=self._detail(before, before, None))
        report = Report("timing", "pass", None, 1, 1, detail=self._detail(before, self._seen, why))
        report.detail["step_shares"] = self._step_shares()
        return report

    # --- preparation ---

    def _arm(self, side: Side, bells: int) -> None:
        """For `bells` bells of _bell(); until they have rung that process reads no message."""
        self._waiting = side
        side.peer.arm(bells, events=True, wash=self._job.policy.is_cold, gate_ns=GATE_NS)

    def _bell(self, side: Side, set_: int) -> int:
        """Nanoseconds between the events of one bell."""
        self._waiting = side
        if not side.peer.armed:
            self._arm(side, 1)
        side.peer.armed -= 1
        return side.ring(set_)[0]

    def _bells(self, side: Side, set_: int, bells: int) -> list[int]:
        """The same for several bells, one after another."""
        self._arm(side, bells)
        return [self._bell(side, set_) for _ in range(bells)]

    def _settle(self) -> None:
        """Ring what the reference still waits for: before that it reads no message, and others ask it next."""
        with contextlib.suppress(PeerFailed):  # the next request to the process reports it
            while self._ours.peer.armed:
                self._bell(self._ours, GRAPH_SET)

    def _host_clock(self, side: Side, bell_ns: float) -> float:
        """Nanoseconds of a bell by the host's clock: the slope of many in a row, and of twice as many.

        The least of several tries each, where it contradicts the events: a machine that is busy only adds to it.
        """
        self._waiting = side
        repeats = max(1, math.ceil(LONG_NS / max(1.0, bell_ns)))
        least_ns = {repeats: math.inf, 2 * repeats: math.inf}
        found_ns = math.inf
        for _ in range(HOST_TRIES):
            for times, least in least_ns.items():
                side.peer.arm(1, repeats=times)
                side.peer.armed -= 1
                least_ns[times] = min(least, side.ring(GRAPH_SET)[1])
            found_ns = (least_ns[2 * repeats] - least_ns[repeats]) / repeats
            if not is_forged(bell_ns - self._empty_ns, found_ns):
                break
        return found_ns

    def _prepare(self) -> None:
        job = self._job
        self._waiting = self._theirs
        job.build(self._model, self._case, self._weights, self._state)
        self._waiting = self._ours
        self._tree = job.reference.inputs(self._case, self._random.getrandbits(62))
        if self._weights:
            synchronize(job.candidate.device)
            job.note_plain(self._case, self._model, self._tree)
        is_cold = job.policy.is_cold
        if is_cold not in job.reference.graph_ns:
            job.reference.graph_ns[is_cold] = self._measure_empty()
        self._empty_ns = job.reference.graph_ns[is_cold]
        known_ns = job.reference.call_ns.get(self._model)
        self._record(1 if known_ns is None else self._calls_for(known_ns))
        ours_ns, theirs_ns = (self._length(side) for side in self._sides)
        job.reference.call_ns[self._model] = ours_ns
        self._call_ns = min(ours_ns, theirs_ns)
        wanted = self._calls_for(self._call_ns)
        if wanted > ENOUGH * self._calls or (self._calls == 1 and wanted > 1):
            self._record(wanted)
            for side in self._sides:
                self._bell(side, GRAPH_SET)

    def _record(self, calls: int) -> None:
        """`calls` calls as one graph on each side, on inputs just drawn."""
        self._calls = calls
        self._draw([[None] * calls])
        self._place()
        self._capture(calls)

    def _calls_for(self, ns: float) -> int:
        if self._why_one is not None:
            return 1
        most = min(CALLS_MOST, self._job.reference.sizes.calls)
        return max(1, min(most, math.ceil(BELL_NS / max(1.0, ns))))

    def _length(self, side: Side) -> float:
        """Nanoseconds of a call, about, by the last bells of a warm-up."""
        bells = max(1, self._job.policy.warmup - LENGTH_BELLS) + LENGTH_BELLS
        found = self._bells(side, GRAPH_SET, bells)[-LENGTH_BELLS:]
        return max(1.0, (statistics.median(found) - self._empty_ns) / self._calls)

    def _capture(self, calls: int) -> None:
        """Record `calls` calls, on the sets from 0 on, as one graph on each side."""
        tf32 = self._job.precision() == "tf32"
        for side, limit_ms in ((self._ours, LIMIT_MS), (self._theirs, BUILD_LIMIT_MS)):
            self._waiting = side
            side.peer.bind(
                0,
                self._model,
                self._tree,
                sets=calls,
                stride=self._job.reference.sizes.inputs,
                tf32=tf32,
                seed=CALL_SEED,
                limit_ms=limit_ms,
                bells=1,
            )
            side.peer.armed -= 1
            side.ring(0)  # work of a first call alone must not be in a graph
            try:
                side.peer.capture(GRAPH_SET, calls, limit_ms, seeded=True)
            except PeerFailed as failure:
                if failure.is_gone:
                    raise
                raise Uncapturable(f"{side.name}: {failure.error['text'][:200]}") from None
            self._bell(side, GRAPH_SET)
        self._require_form()
        if any(overlap(side.outputs()) for side in self._sides):
            self._why_one = "outputs of calls in a row share memory"  # a later call leaves nothing to compare
            self._calls = 1
            self._capture(1)

    def _measure_empty(self) -> float:
        """Nanoseconds of a graph beyond its kernels, by graphs of one and of several empty ones of the reference's."""
        side = self._waiting = self._ours
        side.peer.bind(EMPTY_SET, self._model, None, sets=EMPTY_KERNELS, empty="kernel")
        took_ns = []
        for kernels in (EMPTY_KERNELS, 1):
            side.peer.capture(EMPTY_GRAPH_SET, kernels, LIMIT_MS, first=EMPTY_SET)
            took_ns.append(min(self._bells(side, EMPTY_GRAPH_SET, EMPTY_BELLS)))
        several_ns, one_ns = took_ns
        return max(0.0, one_ns - (several_ns - one_ns) / (EMPTY_KERNELS - 1))

    def _draw(self, bells: list[list[str | None]]) -> None:
        """Fresh inputs for these bells into the reference's arena, those of each call under its transformation."""
        reference = self._job.reference
        self._waiting = self._ours
        transforms = [name for bell in bells for name in bell]
        seeds = [self._random.getrandbits(62) for _ in transforms]
        if reference.inputs(self._case, seeds[0], 0, seeds[1:]) != self._tree:
            raise ReferenceBroken("get_inputs() made other shapes than before")
        for index, transform in enumerate(transforms):
            if transform is not None:
                tree, _ = place_tree(self._tree, index * reference.sizes.inputs)
                self._job.transform(self._case, transform, tree, seeds[index])
        self._ahead = [(index * self._calls, bell) for index, bell in enumerate(bells)]

    def _place(self) -> None:
        """The next bell's inputs, as they were drawn, to where both sides' graphs read them."""
        first, self._drawn = self._ahead.pop(0)
        ours, theirs = self._ours.peer.arena, self._theirs.peer.arena
        assert ours is not None and theirs is not None
        for arena in (theirs, ours) if first else (theirs,):
            source = ours.pointer + first * self._job.reference.sizes.inputs
            self._gpu.copy(arena.pointer, source, self._bytes_of_inputs())
        synchronize(self._job.candidate.device)

    def _bytes_of_inputs(self) -> int:
        """Of a bell, from the first set on."""
        return span_of(self._tree, self._calls, self._job.reference.sizes.inputs)

    def _poison(self) -> None:
        """The candidate's outputs of the last bell, which the next one has at the same addresses: what a call leaves
        unwritten is not right because an earlier one wrote it."""
        self._waiting = self._theirs
        for dtype, written in self._theirs.written():
            written.fill_(self._pattern(dtype))
        synchronize(self._job.candidate.device)

    def _pattern(self, dtype: torch.dtype) -> int:
        """The byte of a NaN; of integers any may be a right answer, so that it is a secret."""
        if dtype is torch.bool:
            return self._random.randrange(2)
        return 0xFF if dtype.is_floating_point or dtype.is_complex else self._random.randrange(256)

    # --- trials ---

    def _forget(self) -> None:
        """The trials that were made, with what was wrong with them."""
        self._pairs.clear()
        self._blocks.clear()
        self._unfinished = None
        for side in self._sides:
            side.events_ns.clear()

    def _trials(self) -> str | None:
        policy = self._job.policy
        least = min(LEAST, policy.trials)
        rule = native.StopRule(least, policy.trials, BLOCK, self._narrow(), policy.is_fixed)
        budget_s = BUDGET_S * max(1.0, policy.trials / BUDGET_TRIALS)
        end = time.monotonic() + budget_s
        while True:
            self._block(min(BLOCK, policy.trials - len(self._pairs)))
            if len(self._void()) >= VOID_MOST:
                return self._void()[-1]
            if len(self._pairs) < 2 <= policy.trials:
                continue
            stop = rule.decide(*self._credited(), is_spent=time.monotonic() > end)
            if stop == native.STOP_SPENT and policy.is_fixed:  # fewer are not what was asked for
                made = f"{len(self._pairs)} of {policy.trials}"
                self._unfinished = f"{made} trials were made in the {budget_s:g} s that they may take"
                return self._unfinished
            if stop != native.STOP_GO_ON:
                return STOPPED[stop]

    def _narrow(self) -> float:
        return next(width for least_ns, width in NARROW if self._call_ns >= least_ns)

    def _block(self, pairs: int) -> None:
        others_ns = self._gpu.others_ns()
        sizes = self._job.reference.sizes
        is_small = self._calls * sizes.inputs <= AHEAD_BYTES and self._calls * pairs <= sizes.sets
        self._draw([self._choose() for _ in range(pairs if is_small else 1)])
        for side in self._sides if is_small else (self._theirs,):
            self._arm(side, pairs)  # inputs come through its arena, and nothing is said to it between its bells
        found = [self._pair(len(self._pairs) + index) for index in range(pairs)]
        self._settle_doubts()
        others_ns = max(others_ns, self._gpu.others_ns())
        before, self._seen = self._seen, self._gpu.state()
        why = gpu_state.disturbance(before, self._seen)
        if others_ns and why is None:
            why = "something else works on the GPU"
        self._blocks.append({"bells": pairs, "void": why, **gpu_state.summary(before, self._seen)})
        if why is None:
            self._pairs += found
        else:
            time.sleep(VOID_PAUSE_S)
            self._seen = self._gpu.state()

    def _saves(self) -> bool:
        """A call of the candidate's takes much longer where no other follows, so that calls in a row share their work:
        the first one does that of others, say, or two are done at a time."""
        row_ns = statistics.median(self._credited()[1])
        calls, self._calls = self._calls, 1
        bells = min(LENGTH_BELLS, self._job.reference.sizes.sets)
        self._draw([[None]] * bells)
        for side in self._sides:
            self._arm(side, bells)
        alone_ns = []
        while self._ahead:
            self._place()
            for side in self._sides:
                took_ns = self._bell(side, 0) - self._empty_ns
            alone_ns.append(took_ns)
            self._is_compared()
        self._calls = calls
        self._settle_doubts()
        return statistics.median(alone_ns) > max(SAVED * row_ns, row_ns + SAVED_NS)

    def _void(self) -> list[str]:
        """Why blocks do not count."""
        return [block["void"] for block in self._blocks if block["void"] is not None]

    def _pair(self, turn: int) -> tuple[float, float]:
        """Nanoseconds of a call of either side, on the same fresh inputs."""
        took: dict[str, float] = {}
        while not took or not self._is_compared():
            if not self._ahead:
                self._draw([self._choose()])
            self._poison()
            self._place()
            for side in self._sides if turn % 4 in (0, 3) else self._sides[::-1]:
                side.events_ns.append(self._bell(side, GRAPH_SET))
                took[side.name] = max(1.0, (side.events_ns[-1] - self._empty_ns) / self._calls)
        return took[self._ours.name], took[self._theirs.name]

    def _choose(self) -> list[str | None]:
        """By which transformations the inputs of a bell's calls are changed: of some, at secret places."""
        changed = self._random.randrange(2) if self._calls == 1 else max(1, self._calls // CHANGED)
        chosen: list[str | None] = [None] * self._calls
        for call in self._random.sample(range(self._calls), changed if self._transforms else 0):
            chosen[call] = self._random.choice(self._transforms)
        return chosen

    def _credited(self) -> tuple[list[float], list[float]]:
        return [ours for ours, _ in self._pairs], [theirs for _, theirs in self._pairs]

    def _limit(self, call: int, leaf: int, wanted: torch.Tensor) -> tolerance.Limit:
        key = (self._drawn[call], leaf)
        if key not in self._limits:
            scales, place = self._job.reference.timed_scales, (self._model, *key)
            if place not in scales and wanted.is_floating_point():
                scales[place] = tolerance.scale_of(wanted)
            transform = self._drawn[call]
            self._limits[key] = self._job.timing_limit(
                leaf, wanted, self._job.errors(transform, self._weights), is_plain=transform is None,
                is_extreme=transform in variations.EXTREME, known=scales.get(place),
            )  # fmt: skip
        return self._limits[key]

    def _is_compared(self) -> bool:
        """Every element of every call's answer: all at once, and one by one if that is uncertain.

        False: a transformation gave the reference a non-finite answer, for these draws, and is used no more.
        """
        wanted, got = self._ours.outputs(), self._theirs.outputs()
        pairs = [
            (mine, right, self._limit(call, leaf, right))
            for call, (expected, found) in enumerate(zip(wanted, got, strict=True))
            for leaf, ((_, right), (_, mine)) in enumerate(zip(expected, found, strict=True))
            if isinstance(right, torch.Tensor)
        ]
        if not self._are_surely_within(pairs, len(wanted)):
            names = zip(self._drawn, wanted, strict=True)
            unfit = {name for name, expected in names if name and not _is_finite(expected)}
            if unfit:
                self._transforms = [name for name in self._transforms if name not in unfit]
                return False
            self._find_difference(wanted, got)
        if self._job.policy.name != "kernelbench":  # which looks at none after a checked call either
            self._compare_inputs()
        return True

    def _compare_inputs(self) -> None:
        """After its calls a bell's inputs are what they are after the reference's: both sides began with the same.

        To the bit, or within limits: the reference may change one that no checked call has seen it change.
        """
        theirs, ours = (self._inputs_of(side) for side in self._sides[::-1])
        if all(map(torch.equal, theirs.split(WORDS), ours.split(WORDS))):
            return
        places, pairs = [], []
        for call, index, mine, right in self._each_input():
            places.append((call, index))
            pairs.append((mine, right, self._limit_after(call, index, right)))
        if self._are_surely_within(pairs, self._calls):
            return
        changed = self._job.all_errors().changed
        for (call, index), pair in zip(places, pairs, strict=True):
            class_ = "mismatch" if index in changed else "mutated_input"
            self._require_match(f"input {index} after the call", call, *pair, class_)

    def _inputs_of(self, side: Side) -> torch.Tensor:
        """As words of 64 bits."""
        assert side.peer.arena is not None
        return side.peer.arena.bytes[: self._bytes_of_inputs()].view(torch.int64)

    def _each_input(self) -> Iterator[tuple[int, int, torch.Tensor, torch.Tensor]]:
        """Call and index, and what it is in the candidate's arena and in the reference's."""
        ours, theirs = self._ours.peer.arena, self._theirs.peer.arena
        assert ours is not None and theirs is not None
        for call in range(self._calls):
            tree, _ = place_tree(self._tree, call * self._job.reference.sizes.inputs)
            for index, note in enumerate(values.notes(tree)):
                if note.elements:
                    yield call, index, theirs.view(note), ours.view(note)

    def _limit_after(self, call: int, index: int, right: torch.Tensor) -> tolerance.Limit:
        key = (self._drawn[call], index)
        if key not in self._limits_after:
            is_extreme = self._drawn[call] in variations.EXTREME
            errors = self._job.errors(self._drawn[call], self._weights)
            self._limits_after[key] = self._job.timing_limit_after(index, right, errors, is_extreme=is_extreme)
        return self._limits_after[key]

    def _are_surely_within(self, pairs: list[tuple[torch.Tensor, torch.Tensor, tolerance.Limit]], calls: int) -> bool:
        """Of several small calls each output's are compared at once. False: not surely."""
        if calls < 2 or not pairs or sum(got.nbytes for got, _, _ in pairs) > ROWS_BYTES:
            return tolerance.are_surely_within(pairs)
        leaves = len(pairs) // calls
        rows = [pairs[leaf::leaves] for leaf in range(leaves)]
        if any(x.shape != row[0][1].shape for row in rows for got, right, _ in row for x in (got, right)):
            return tolerance.are_surely_within(pairs)
        found = [tolerance.are_rows_within(*(list(of) for of in zip(*row, strict=True))) for row in rows]
        return bool(torch.stack(found).all())

    def _find_difference(self, wanted: list[Leaves], got: list[Leaves]) -> None:
        for call, (expected, found) in enumerate(zip(wanted, got, strict=True)):
            for leaf, ((path, right), (_, mine)) in enumerate(zip(expected, found, strict=True)):
                if isinstance(right, torch.Tensor) and not self._is_doubt(path, call, leaf, mine, right):
                    self._require_match(f"output {path}", call, mine, right, self._limit(call, leaf, right))

    def _is_doubt(self, path: str, call: int, leaf: int, mine: torch.Tensor, right: torch.Tensor) -> bool:
        """It is looked at once both sides have rung: before that they read no message."""
        reference = self._job.reference
        found = discontinuity.doubt(mine, right, self._limit(call, leaf, right))
        is_fit = right.numel() >= DOUBTED_LEAST and self._bytes_of_inputs() <= AHEAD_BYTES
        if found is None or not is_fit or reference.mutates_inputs:
            return False
        self._doubted += 1
        place = len(self._doubts)
        if place == DOUBTS_MOST:  # nobody knows which of them are looked at
            place = self._random.randrange(self._doubted)
        if place < DOUBTS_MOST:
            inputs = reference.views(place_tree(self._tree, call * reference.sizes.inputs)[0])
            text = _told(f"output {path}", call, mine, right, tolerance.compare(mine, right, found.limit))
            self._doubts[place : place + 1] = [([view.clone() for view in inputs], leaf, found, text)]
        return True

    def _settle_doubts(self) -> None:
        """TimedWrong for an answer that is wrong on inputs with other last digits, too."""
        doubts, self._doubts, self._doubted = self._doubts, [], 0
        reference, self._waiting = self._job.reference, self._ours
        for inputs, leaf, found, text in doubts:
            for view, kept in zip(reference.views(self._tree), inputs, strict=True):
                view.copy_(kept)
            synchronize(self._job.candidate.device)
            if not discontinuity.settle({leaf: found}, reference.moved(self._model, self._tree)):
                raise TimedWrong(text)
        if doubts:  # set 0 has an exact call of moved inputs now, and _saves() rings it
            tf32 = self._job.precision() == "tf32"
            self._ours.peer.bind(0, self._model, self._tree, tf32=tf32, seed=CALL_SEED, limit_ms=LIMIT_MS)

    def _require_match(
        self,
        what: str,
        call: int,
        mine: torch.Tensor,
        right: torch.Tensor,
        limit: tolerance.Limit,
        class_: str = "mismatch",
    ) -> None:
        difference = tolerance.compare(mine, right, limit)
        if not difference.is_match(limit):
            raise TimedWrong(_told(what, call, mine, right, difference), class_)

    def _require_form(self) -> None:
        wanted, got = (form_of(side.outputs()[0]) for side in self._sides)
        if wanted != got:
            raise TimedWrong(f"the outputs are {got}, expected {wanted}")

    # --- results ---

    def _disagreement(self) -> str | None:
        """Where a side is credited with less than the host's clock leaves room for."""
        for side in self._sides:
            host_ns = self._host_ns.get(side.name, 0.0)
            credited_ns = statistics.median(side.events_ns) - self._empty_ns
            if is_forged(credited_ns, host_ns):
                return (
                    f"a bell of {side.name} takes {credited_ns / 1e3:.1f} us by its events "
                    f"and {host_ns / 1e3:.1f} us by the host's clock"
                )
        return None

    def _step_shares(self) -> list[float] | None:
        """Of the time of a call, each step's part, in order: for people. None where there is one step, or no answer.

        The call queues its steps one by one, so that an event can stand behind each; they wait at the gate.
        """
        took: list[list[float]] = []
        try:
            self._theirs.peer.bind(
                STEPS_SET, self._model, self._tree, tf32=self._job.precision() == "tf32", seed=CALL_SEED,
                how="by steps", limit_ms=LIMIT_MS,
            )  # fmt: skip
            for _ in range(STEPS_CALLS):
                self._bell(self._theirs, STEPS_SET)
                steps_ns, all_ns = self._theirs.peer.steps_ns(self._model)
                if len(steps_ns) < 2 or all_ns <= 0:
                    return None
                took.append([ns / all_ns for ns in steps_ns])
        except PeerFailed:  # its verdict stands: all its answers were right
            return None
        return [round(statistics.median(shares), 4) for shares in zip(*took, strict=False)]

    def _detail(self, before: Json, after: Json, why: str | None) -> Json:
        ours, theirs = self._credited()
        detail: Json = {
            "method": "graph_events",
            "basis": "device",
            "warmup": self._job.policy.warmup,
            "cold": self._job.policy.is_cold,
            "trials": len(self._pairs) * (1 if self._job.policy.is_fixed else self._calls),
            "calls": self._calls,
            "bells": len(self._pairs),
            "one_call": self._why_one,
            "stopped": why,
            "empty_ns": round(self._empty_ns, 1),
            "clocks": {
                "before": before,
                "after": after,
                "canary_ns": self._gpu.known_ns,
                "blocks": self._blocks,
            },
        }
        for name, side in (("reference", self._ours), ("candidate", self._theirs)):
            events, host = side.events_ns, self._host_ns.get(side.name)
            detail[f"events_{name}_ns"] = round(statistics.median(events) / self._calls, 1) if events else None
            detail[f"host_{name}_ns"] = None if host is None else round(host / self._calls, 1)
        if len(self._pairs) < 2:
            return {**detail, "outcome": "inconclusive", "why": why or "too few trials"}
        detail["reference_ns"] = [round(x, 1) for x in ours]
        detail["candidate_ns"] = [round(x, 1) for x in theirs]
        return {**detail, **self._outcome(ours, theirs)}

    def _outcome(self, ours: list[float], theirs: list[float]) -> Json:
        void = self._void()
        if len(void) >= VOID_MOST:
            return {"outcome": "inconclusive", "why": f"{len(void)} blocks were disturbed: {void[-1]}"}
        if self._unfinished is not None:
            return {"outcome": "inconclusive", "why": self._unfinished}
        disagreement = self._disagreement()
        if disagreement is not None:
            return {"outcome": "inconclusive", "why": disagreement}
        return outcome_of(ours, theirs, TOO_SMALL_NS)


def span_of(tree: Any, sets: int, size: int) -> int:
    """Bytes that inputs in so many sets take from the first one's beginning on. tree: of set 0; size: of a set."""
    used = max(((note.offset or 0) + note.span_bytes for note in values.notes(tree)), default=0)
    return align((sets - 1) * size + used, 8)  # whole words are compared


def outcome_of(ours: list[float], theirs: list[float], too_small_ns: float) -> Json:
    """What these pairs of times are worth."""
    outcome, width = native.judge_samples(ours, theirs, too_small_ns, WIDE)
    if outcome == native.TOO_SMALL:
        return {"outcome": "too_small", "why": f"the reference takes under {too_small_ns / 1000:g} us"}
    if outcome == native.INCONCLUSIVE:
        return {"outcome": "inconclusive", "why": f"the interval is +-{100 * width:.0f} % wide"}
    return {"outcome": "measured", "why": None}


def is_forged(credited_ns: float, host_ns: float) -> bool:
    """A bell is credited with less than it takes by the host's clock, by more than the two may differ."""
    return host_ns > (1 + HOST_SHARE) * credited_ns + HOST_NS


def _told(what: str, call: int, mine: torch.Tensor, right: torch.Tensor, found: tolerance.Difference) -> str:
    place = tolerance.unravel(found.first or 0, tuple(right.shape))
    return (
        f"{what}{place} of call {call}: expected {tolerance.number(right[tuple(place)])}, "
        f"got {tolerance.number(mine[tuple(place)])}; {found.differing} of {found.elements} elements differ"
    )


def _is_finite(call: Leaves) -> bool:
    return all(bool(tolerance.is_finite(leaf).all()) for _, leaf in call if isinstance(leaf, torch.Tensor))

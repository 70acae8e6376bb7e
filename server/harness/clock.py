"""The timing stage: reference and candidate in turn, on fresh inputs, by the referee's own clock.

For each trial the candidate is frozen while new inputs are written into one of the sets and copied to both
arenas; the cache is flushed, a bell is rung, and T runs from the bell to the end of the referee's gather of
secret positions of the output, which are then compared. Credited is T - c, c being the same round trip of an
empty call on the reference's child. docs/timing.md argues each step. A GPU is needed.
"""

from __future__ import annotations

import secrets
import statistics
import time
from dataclasses import dataclass, field
from typing import Any, Final

import native
import tolerance
import torch
import values
import variations
from judge import BUILD_LIMIT_MS, Job, Report
from peer import SPIN_NS, Peer, PeerFailed
from reference import CALL_SEED, LIMIT_MS, ReferenceBroken, synchronize
from wire import Json

GATHER: Final = 512
EMPTY_SET: Final = 255
EMPTY_EVERY: Final = 5
LEAST_TRIALS: Final = 10
BUDGET_S: Final = 30.0
NARROW: Final = 0.005
"""Early stop: the interval of the median log-ratio is within this on either side."""
WIDE: Final = 0.10
"""Beyond this the timing is inconclusive."""
TOO_SMALL_NS: Final = 10_000
CALL_LIMIT_MS: Final = 20_000
STOPPED: Final = {
    native.STOP_NARROW: "the interval is narrow enough",
    native.STOP_ALL: None,
    native.STOP_SPENT: "the time budget is spent",
}


@dataclass
class Side:
    """One of the two processes that are timed, and where its outputs were when last seen."""

    peer: Peer
    leaves: list[tuple[str, Any]] = field(default_factory=list)
    generation: int = -1
    samples_ns: list[int] = field(default_factory=list)
    events_ns: list[int] = field(default_factory=list)

    def learn(self) -> None:
        """Read where the outputs are."""
        assert self.peer.doorbell is not None
        self.leaves = list(values.leaves(self.peer.outputs()))
        self.generation = self.peer.doorbell.claims().generation

    def pointers(self, leaf: int, places: torch.Tensor) -> torch.Tensor:
        """Addresses of elements (flat, row-major indices) of one output, as int64 on the host."""
        tensor = self.leaves[leaf][1]
        addresses = torch.full_like(places, tensor.data_ptr())
        for size, step in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
            addresses += places % size * (step * tensor.element_size())
            places = places // size
        return addresses


class Timer:
    """One timing stage."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._case = job.spec["cases"]["own"]
        self._ours = Side(job.reference.peer)
        self._theirs = Side(job.candidate)
        self._model, self._state = job.reference.model(self._case, 0)
        self._empty_ns: list[int] = []
        self._trees: dict[int, Any] = {}
        self._random = secrets.SystemRandom()
        self._mismatch: Json | None = None
        self._waiting = self._ours  # whose step it is: whoever fails then has failed

    def run(self) -> Report:
        job = self._job
        try:
            self._prepare()
            before = native.nvml_state()
            why = self._trials()
            after = native.nvml_state()
        except PeerFailed as failure:
            if self._waiting.peer is self._ours.peer:
                raise ReferenceBroken(f"the reference failed while it was timed: {failure.error['text']}") from None
            return Report("timing", "fail", failure.class_, 0, 1, failure.error)
        finally:
            job.candidate.thaw()
        detail = self._detail(before, after, why)
        if self._mismatch is not None:
            text = f"a timed call answered wrongly: {self._mismatch['text']}"
            error = {"type": "mismatch", "text": text, "line": None}
            return Report("timing", "fail", "mismatch", 0, 1, error, detail=detail)
        return Report("timing", "pass", None, 1, 1, detail=detail)

    # --- preparation ---

    def _prepare(self) -> None:
        job = self._job
        self._waiting = self._theirs
        job.build(self._model, self._case, 0, self._state)
        self._waiting = self._ours
        for set_ in range(job.reference.sizes.sets):
            tree = self._write(set_)
            self._trees[set_] = tree
            placed, _ = job.place_inputs(tree, set_)
            self._bind(set_, tree, placed, None)
        self._ours.peer.bind(EMPTY_SET, self._model, None, empty=True)
        if self._draws_numbers():
            for set_, tree in self._trees.items():
                placed, _ = job.place_inputs(tree, set_)
                self._bind(set_, tree, placed, CALL_SEED)
        native.gather_setup(GATHER)
        for index in range(max(2, job.policy.warmup)):
            set_ = index % job.reference.sizes.sets
            for side in (self._ours, self._theirs):
                self._waiting = side
                side.peer.call(set_, CALL_LIMIT_MS, events=job.policy.events)
                side.learn()

    def _bind(self, set_: int, tree: Any, placed: Any, seed: int | None) -> None:
        """The same call for both sides."""
        tf32 = self._job.precision() == "tf32"
        self._waiting = self._ours
        self._ours.peer.bind(set_, self._model, tree, tf32=tf32, seed=seed, limit_ms=LIMIT_MS)
        self._waiting = self._theirs
        self._theirs.peer.bind(set_, self._model, placed, tf32=tf32, seed=seed, limit_ms=BUILD_LIMIT_MS)
        self._waiting = self._ours

    def _draws_numbers(self) -> bool:
        """The reference answers differently on one input (dropout, say): both are then seeded before each call."""
        answers = []
        for _ in range(2):
            outputs = values.leaves(self._ours.peer.call(0, LIMIT_MS))
            answers.append([leaf.reshape(-1)[:4096].clone() for _, leaf in outputs if isinstance(leaf, torch.Tensor)])
        pairs = list(zip(*answers, strict=True))
        return not all(torch.allclose(a, b, rtol=1e-2, atol=1e-6, equal_nan=True) for a, b in pairs)

    def _write(self, set_: int) -> Any:
        """Fresh inputs for one set, in the reference's arena: they carry what the checked inputs carried."""
        reference = self._job.reference
        seed = self._random.getrandbits(62)
        tree = reference.inputs(self._case, seed, set_)
        if "spikes" in self._job.admitted:
            for index, view in enumerate(reference.views(tree)):
                if view.is_floating_point():
                    variations.sparse(view, seed + index)
        synchronize(self._job.candidate.device)
        return tree

    # --- trials ---

    def _trials(self) -> str | None:
        """Until the interval is narrow, the trials are made, or the budget is spent: why it ended early, or None."""
        policy = self._job.policy
        end = time.monotonic() + BUDGET_S
        rule = native.StopRule(LEAST_TRIALS, policy.trials, EMPTY_EVERY, NARROW, policy.is_fixed)
        for index in range(policy.trials):
            if index % EMPTY_EVERY == 0:
                self._empty()
            self._trial(reference_first=index % 2 == 0)
            if self._mismatch is not None:
                return None
            stop = rule.decide(*self._credited(), is_spent=time.monotonic() > end)
            if stop != native.STOP_GO_ON:
                return STOPPED[stop]
        return None

    def _empty(self) -> None:
        """One round trip of an empty call: what the protocol itself costs."""
        side = Side(self._ours.peer)
        side.peer.call(EMPTY_SET, CALL_LIMIT_MS)
        side.learn()
        elapsed, _ = self._timed(side, EMPTY_SET, 0, torch.zeros(GATHER, dtype=torch.int64))
        self._empty_ns.append(elapsed)

    def _trial(self, *, reference_first: bool) -> None:
        job = self._job
        set_ = self._random.randrange(job.reference.sizes.sets)
        self._waiting = self._ours
        job.candidate.freeze()
        tree = self._write(set_)
        if tree != self._trees[set_]:
            raise ReferenceBroken("get_inputs() made other shapes than before")
        job.place_inputs(tree, set_)
        leaf = self._random.choice([i for i, (_, x) in enumerate(self._ours.leaves) if isinstance(x, torch.Tensor)])
        count = self._ours.leaves[leaf][1].numel()
        places = torch.tensor([self._random.randrange(count) for _ in range(GATHER)], dtype=torch.int64)
        got: dict[int, torch.Tensor] = {}
        for side in (self._ours, self._theirs) if reference_first else (self._theirs, self._ours):
            if side is self._theirs:
                side.peer.thaw()
            elapsed, got[id(side)] = self._timed(side, set_, leaf, places)
            if side is self._theirs:
                side.peer.freeze()
            side.samples_ns.append(elapsed)
        self._check(leaf, places, got[id(self._theirs)], got[id(self._ours)])

    def _timed(self, side: Side, set_: int, leaf: int, places: torch.Tensor) -> tuple[int, torch.Tensor]:
        """One bell: T in nanoseconds, and what was gathered."""
        peer = side.peer
        self._waiting = side
        assert peer.doorbell is not None
        peer.arm(1, events=self._job.policy.events)
        peer.armed -= 1
        tensor = side.leaves[leaf][1]
        native.gather_set_pointers(side.pointers(leaf, places), tensor.element_size())
        if self._job.policy.is_cold:
            native.gpu_flush()
        call = native.ClockCall(peer.doorbell, set_, peer.pidfd, SPIN_NS, CALL_LIMIT_MS * 1_000_000, side.generation)
        try:
            if call.run(1, 256):
                side.learn()
                tensor = side.leaves[leaf][1]
                native.gather_set_pointers(side.pointers(leaf, places), tensor.element_size())
                call.finish()
        except native.ChildDiedError:
            raise PeerFailed("crash", "the process ended while it was timed", is_gone=True) from None
        except native.BellTimeoutError:
            text = f"the timed call did not return within {CALL_LIMIT_MS / 1000:g} s"
            raise PeerFailed("timeout", text, is_gone=True) from None
        claims = peer.doorbell.claims()
        if claims.status != native.STATUS_OK:
            peer.outputs()
        side.events_ns.append(claims.events_ns)
        return call.elapsed_ns, native.gather_read(GATHER, tensor.dtype)

    def _check(self, leaf: int, places: torch.Tensor, got: torch.Tensor, wanted: torch.Tensor) -> None:
        """The candidate's timed answer against the reference's, at the gathered positions."""
        if got.dtype != wanted.dtype:
            self._mismatch = {"text": f"output {leaf} has dtype {got.dtype}, expected {wanted.dtype}"}
            return
        limit = self._job.timing_limit(leaf, wanted)
        found = tolerance.compare(got, wanted, limit)
        if not found.is_match(limit):
            at = found.first or 0
            self._mismatch = {
                "text": f"output {leaf}, element {int(places[at])}: expected {tolerance.number(wanted[at])}, "
                f"got {tolerance.number(got[at])}; {found.differing} of {GATHER} sampled elements differ"
            }

    # --- results ---

    def _credited(self) -> tuple[list[float], list[float]]:
        empty = statistics.median(self._empty_ns)
        pairs = [
            (ours - empty, theirs - empty)
            for ours, theirs in zip(self._ours.samples_ns, self._theirs.samples_ns, strict=True)
        ]
        return [max(1.0, ours) for ours, _ in pairs], [max(1.0, theirs) for _, theirs in pairs]

    def _detail(self, before: Json, after: Json, why: str | None) -> Json:
        detail: Json = {
            "method": "doorbell_paired",
            "warmup": self._job.policy.warmup,
            "trials": len(self._theirs.samples_ns),
            "stopped": why,
            "empty_ns": round(statistics.median(self._empty_ns), 1) if self._empty_ns else None,
            "clocks": {"before": before, "after": after},
        }
        if len(self._theirs.samples_ns) < 2 or len(self._ours.samples_ns) != len(self._theirs.samples_ns):
            return {**detail, "outcome": "inconclusive", "why": "too few trials"}
        ours, theirs = self._credited()
        detail["reference_ns"] = [round(x, 1) for x in ours]
        detail["candidate_ns"] = [round(x, 1) for x in theirs]
        for name, side in (("events_reference_ns", self._ours), ("events_candidate_ns", self._theirs)):
            known = [x for x in side.events_ns if x > 0]
            detail[name] = statistics.median(known) if known else None
        outcome, width = native.judge_samples(ours, theirs, TOO_SMALL_NS, WIDE)
        if outcome == native.TOO_SMALL:
            return {
                **detail,
                "outcome": "too_small",
                "why": f"the reference takes under {TOO_SMALL_NS / 1000:g} us",
            }
        if outcome == native.INCONCLUSIVE:
            return {**detail, "outcome": "inconclusive", "why": f"the interval is +-{100 * width:.0f} % wide"}
        return {**detail, "outcome": "measured", "why": None}


def time_job(job: Job) -> Report:
    """Run the timing stage of a job whose `full` has passed."""
    native.flush_setup(2 * torch.cuda.get_device_properties(job.candidate.device).L2_cache_size)
    return Timer(job).run()

"""One submission in the referee: opened, taken through `tiny`, `full` and `timing`, closed.

Reads top down as the life of a job. The candidate's process is only ever asked to load, build and call; what
it answers is compared here, with what the reference answered on the same inputs.
"""

from __future__ import annotations

import contextlib
import math
import random
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch
from shared import plan as plan_format
from shared import values
from shared.arena import Heap, align
from shared.wire import Json, clean_text

from oracle import discontinuity, together, tolerance, variations
from oracle.answers import Answers
from oracle.peer import NotTheCandidate, Peer, PeerFailed
from oracle.reference import (
    CALL_SEED,
    OTHER_MODE,
    WEIGHT_SEEDS,
    Answered,
    Asks,
    Errors,
    Expected,
    Leaves,
    Reference,
    ReferenceBroken,
    ReferenceRaised,
    Shares,
    others_of,
    place_tree,
    same_bits,
    synchronize,
)
from oracle.tolerance import Difference, Limit, number, unravel

BUILD_LIMIT_MS: Final = 60_000
COMPILE_LIMIT_MS: Final = 150_000
"""For torch.compile, which is quick on most references and takes minutes on a few."""
DRAWS: Final = 4.0
"""Times what a plain call was seen to err by: the worst of some hundred draws."""
MANY: Final = 1024
"""Of so many elements one draw shows what the reference errs by."""
PLAIN_CASES: Final = ("original", "signs", "own")
"""Whose outputs have the last digits that rounding leaves: no constant rows, nothing saturated by scaling."""
SCREEN_ELEMENTS: Final = 1 << 16
SCREEN_S: Final = 1.0
SCREEN_LEAST: Final = 7
"""How long the transformations are tried at a tiny case, in a secret order, and how many however long they take. Those
that were not tried there come first at the task's own size."""
CHEAP_NS: Final = 10_000_000
"""A reference with a call shorter than this on a GPU is judged with all transformations at the task's own size."""
GUARDED_BYTES: Final = 64 << 20
"""A call whose inputs and outputs come to no more is made with guard zones, too (executor/guards.py)."""
NOTE_MAX: Final = 2048
"""Bytes of a case's notes: parts of them may be the candidate's words."""
DECIDED: Final = ("hack", "mutated_input")
"""Classes of an answer that stay, for any second answer to the same input."""
PLAIN: Final = re.compile(r"[A-Za-z0-9_.\[\]]{1,64}")
"""Of an output's name: a name that needs no quotes in a sentence."""
THIRD_MOST: Final = 2
"""In so many cases an integer at one place may have a third value: rounding leads to others each time."""
SHAPELESS: Final = ("timeout", "hack")
"""Failures that decide at any shape: others are excused at a shape that is not guaranteed."""


@dataclass(frozen=True)
class Policy:
    """The parts of a policy that the referee acts on; verifierd checked them."""

    name: str
    foreign: str
    count: int
    value: bool
    shape: bool
    dtype: bool
    precision: str
    warmup: int
    trials: int
    is_fixed: bool  # exactly `trials`, no early stop
    events: bool
    is_cold: bool  # the L2 cache is flushed before each bell
    sanitizes: bool  # compute-sanitizer looks at the plan in the end

    @staticmethod
    def parse(found: Json) -> Policy:
        variation, timing = found.get("variations") or {}, found.get("timing") or {}
        return Policy(
            name=str(found.get("name", "strict")),
            foreign=str(found["foreign"]),
            count=int(variation.get("count", 5)),
            value=bool(variation.get("value", True)),
            shape=bool(variation.get("shape", True)),
            dtype=bool(variation.get("dtype", True)),
            precision=str(found.get("precision", "tf32")),
            warmup=int(timing.get("warmup", 10)),
            trials=int(timing.get("trials", 50)),
            is_fixed=bool(timing.get("fixed", False)),
            events=bool(timing.get("events", True)),
            is_cold=bool(timing.get("cold", True)),
            sanitizes=bool(found.get("sanitize", False)),
        )


@dataclass
class Report:
    """The report of one stage."""

    stage: str
    outcome: str
    class_: str | None = None
    done: int = 0
    of: int = 0
    error: Json | None = None
    generality: str | None = None
    rule: str | None = None  # which rule found a hack; None where the class says all
    reopen: bool = False
    detail: Json = field(default_factory=dict)
    run_ms: float = 0.0

    def json(self, job: str) -> Json:
        return {
            "ev": "stage",
            "job": job,
            "stage": self.stage,
            "outcome": self.outcome,
            "class": self.class_,
            "rule": self.rule,
            "run_ms": round(self.run_ms, 3),
            "done": self.done,
            "of": self.of,
            "error": None if self.error is None else _bounded(self.error),
            "generality": None if self.generality is None else clean_text(self.generality, NOTE_MAX),
            "reopen": self.reopen,
        }


def _bounded(error: Json) -> Json:
    """The same with texts that fit a message, however they are escaped there."""
    return {key: clean_text(value) if isinstance(value, str) else value for key, value in error.items()}


@dataclass
class CaseResult:
    """How one correctness case went."""

    name: str
    class_: str | None = None
    note: str | None = None
    rule: str | None = None
    error: Json | None = None
    is_gone: bool = False
    max_abs: float | None = None
    max_rel: float | None = None
    matched: float | None = None
    against: str | None = None
    mismatch: Json | None = None
    call_ms: float | None = None
    transform: str | None = None  # of the inputs

    def fail(self, class_: str, note: str, rule: str | None = None) -> None:
        if self.class_ is None:
            self.class_, self.note, self.rule = class_, note, rule

    def fail_with(self, failure: PeerFailed) -> None:
        self.fail(failure.class_, failure.error.get("text") or str(failure))
        self.error, self.is_gone = failure.error, failure.is_gone

    def json(self) -> Json:
        return {
            "name": self.name,
            "outcome": "pass" if self.class_ is None else "fail",
            "class": self.class_,
            "note": None if self.note is None else clean_text(self.note, NOTE_MAX),
            "max_abs": self.max_abs,
            "max_rel": self.max_rel,
            "matched": self.matched,
            "against": self.against,
            "call_ms": self.call_ms,
        }


@dataclass(frozen=True)
class Step:
    """One variation of `full`: what it may be, in order of preference."""

    transforms: tuple[str | None, ...] = (None,)
    weights: int = 0
    case: int | None = None  # index into the spec's shapes; None: the task's own
    name: str = "original"
    seed_of: int | None = None  # takes the seed of that step instead of its own


def plan(
    policy: Policy, spec: Json, has_state: bool, secret: tuple[str, ...], rng: random.Random | None = None
) -> list[Step]:
    """The variations of one submission: always `count` of them, each with what may take its place.

    secret: transformations in this submission's order of preference: a step uses the first that fits. rng: draws which
    other sizes judge, and which of the task's own cases is judged at one of them, where not all find room.
    """
    if policy.name == "kernelbench":
        return [Step(name=f"seed {index + 1}") for index in range(policy.count)]
    chosen = (*secret, None) if policy.value else (None,)
    own = [Step()]
    if policy.value:
        own.append(Step(("signs", variations.FIRST_ALONE, "scaled", None), name="values"))
        own.append(Step(("spikes", "scaled", None), name="spikes"))
    own.append(Step(chosen, weights=1, name="other weights") if has_state else Step(chosen, name="another seed"))
    others = _others(policy, spec, rng or random.Random(0), max(1, policy.count - 3) if policy.count > 1 else 0)
    room = policy.count - len(others)
    if others and len(own) > room:
        own, others = _moved(own, others, room, rng or random.Random(0))
    steps = [*own[:room], *others]
    while len(steps) < policy.count - 1:
        steps.append(Step(chosen, name="another seed"))
    if len(steps) < policy.count:
        steps.append(Step(("scaled", None) if policy.value else (None,), name="original again", seed_of=0))
    return steps


def _others(policy: Policy, spec: Json, rng: random.Random, most: int) -> list[Step]:
    """At most `most` cases of other sizes and of another dtype, by size: of the sizes near the task's own one, the
    largest and the other dtype, as they are drawn, and then of the rest."""
    if not spec["dynamic_shapes"]:
        return []
    cases = list(enumerate(spec["cases"]["shapes"]))
    halves = [item for item in cases if item[1].get("dtype") is not None] if policy.dtype else []
    sizes = [item for item in cases if item[1].get("dtype") is None] if policy.shape else []
    sizes.sort(key=lambda item: int(item[1].get("elements", 0)))
    near, largest = sizes[:-1], sizes[-1:]
    rng.shuffle(near)
    first = [*near[:1], *largest, *halves[:1]]
    rng.shuffle(first)
    taken = sorted([*first, *near[1:]][:most], key=lambda item: int(item[1].get("elements", 0)))
    scaled = ("scaled", None) if policy.value else (None,)
    return [
        Step((None,) if case.get("dtype") is not None else scaled, case=index, name=case["name"])
        for index, case in taken
    ]


def _moved(own: list[Step], others: list[Step], room: int, rng: random.Random) -> tuple[list[Step], list[Step]]:
    """Where the task's own cases are more than find room: what the last of them vary is varied at other sizes instead.

    Which of them is drawn, so that nothing is known to be tried at no size but others.
    """
    kept, tail = own[:2], own[2:]
    rng.shuffle(tail)
    kept += tail[: max(0, room - len(kept))]
    left = [step for step in tail if step not in kept]
    placed = [
        replace(step, transforms=taken.transforms, weights=taken.weights)
        for step, taken in zip(others, left, strict=False)
    ]
    return kept, [*placed, *others[len(placed) :]]


class Job:
    """One submission. candidate is its own process; reference is shared with the task's other submissions."""

    def __init__(
        self,
        name: str,
        reference: Reference,
        candidate: Peer,
        *,
        spec: Json,
        policy: Policy,
        seed: int,
        call_limit_ms: float,
        element_limit: int | None,
        compiles: bool = False,
        answers: Answers | None = None,
    ) -> None:
        """element_limit: without a GPU, tasks with more elements than this are not judged at their own size.

        compiles: the candidate is the reference itself, and runs under torch.compile (compiled.py).

        answers: those to large cases that are kept for others, and by them; None: no other submission has the same.
        """
        self.name = name
        self.reference = reference
        self.candidate = candidate
        self.spec = spec
        self.policy = policy
        self.call_limit_ms = call_limit_ms
        self.compiles = compiles
        self._answers = answers
        self._bind_limit_ms = COMPILE_LIMIT_MS if compiles else BUILD_LIMIT_MS
        self.is_too_large = element_limit is not None and spec["cases"]["own"]["elements"] > element_limit
        self._random = random.Random(seed)
        self._device = candidate.device
        self._state_base = 0
        self._built: set[str] = set()
        self.admitted: set[str] = set()
        self._exposed: list[str] = []  # transformations at which the candidate failed at the tiny case
        self._order: list[str] = []  # in which they are tried there, as far as there is time
        self._used: set[str] = set()  # transformations that this submission was judged by at its own size
        self.first_seed = self._nan_seed = 0
        self.first: Expected | None = None
        self._errors: dict[str | None, Errors] = {}  # by the transformation of the inputs
        self._tf32_matters = False
        self._odd: dict[str, Shares] = {}  # by case, where its plain answer is not finite throughout
        self._is_wrong = False
        """An answer of this stage was beyond its limit, and not beside a step: no other is looked at so."""
        self._third: Counter[tuple[int, int]] = Counter()
        """At the task's own size, by output and place, the cases of an integer with a third value."""
        self._judged: dict[together.Key, together.Item] = {}
        """Cases that were judged together, and passed or are unfit, by model, transformation and seed."""
        self.has_own_work = False
        """Without the candidate's kernels a case was answered otherwise; they have been called since."""
        self._seems_idle = False
        """Without them no case was answered otherwise so far: each other one is asked so, too."""
        self._suspect: CaseResult | None = None
        """The first of these that counts against the candidate."""
        self._tried = 0  # cases that were asked together, the last time
        self._took_ns = math.inf
        self._call_ns: dict[str, tuple[float, int]] = {}
        """By case: what a call of the candidate took, seen from here, and the elements of that case."""
        self.images: bytes | None = None  # of its plan, where they are needed again
        self.is_planned = False  # a plan is judged, in a process that runs no code of the candidate's but its kernels

    # --- open ---

    def open(
        self, source: bytes, reference_source: bytes, entry: str, cache: str | None, images: bytes | None = None
    ) -> Report:
        """Load the reference, and the candidate's module or plan. ReferenceBroken when it is the task's fault.

        images: of the candidate's plan (executor/archive.py), which is judged then; None: it is judged live.
        """
        self.reference.ensure(reference_source, self.spec)
        sizes = self.reference.sizes
        self._state_base = sizes.sets * sizes.inputs
        heap_base, pool = sizes.heap_base, self.reference.candidate_pool()
        heap, pool = pool + sizes.candidate_room, pool if self._device.type == "cuda" else 0
        try:
            self.candidate.give_arena(heap_base + heap, Heap(heap_base, heap, pool))
            if images is not None:
                self.is_planned = True
                self.images = images if self.policy.sanitizes else None
                self.candidate.load_plan(images, source, self.policy.foreign, BUILD_LIMIT_MS)
                return Report("open", "pass", None, 1, 1)
            self.candidate.load(source, entry, "candidate", cache, BUILD_LIMIT_MS)
        except PeerFailed as failure:
            return Report("open", "fail", failure.class_, 0, 1, failure.error)
        return Report("open", "pass", None, 1, 1)

    # --- tiny ---

    def tiny(self) -> Report:
        """The smallest case. Where shapes are fixed a failure there is `generality`, and the task's own shape decides.

        reopen: the process was lost there, and another one goes on with `full`.
        """
        case = self.spec["cases"]["tiny"] or self.spec["cases"]["own"]
        if case["name"] == "own" and self.is_too_large:
            return Report(
                "tiny",
                "skip",
                detail={"why": "the task has no case that is small enough for the interpreter"},
            )
        self.first_seed, self._nan_seed = self._next_seed(), self._next_seed()
        result = self._case(case, Step(name=case["name"]), self.first_seed, twice=False)
        binds = self.spec["dynamic_shapes"] or self.spec["tiny_declared"] or case["name"] == "own"
        if result.class_ is None and self.policy.name != "kernelbench" and case["elements"] <= SCREEN_ELEMENTS:
            if self.policy.value and (binds or not self._asks_all()):
                report = self._screen(case, result, binds=binds)
            else:
                report = self._report("tiny", [result], 1)
            if report.outcome == "pass" and self.spec.get("has_modes"):
                self._try_eval(case, report)
            if report.outcome == "pass" and self.policy.value:
                self._try_nan(case, report)
            return report
        if result.class_ in (None, *SHAPELESS) or binds:
            return self._report("tiny", [result], 1)
        why = f"at the tiny case {case['overrides']}: {result.class_}: {result.note}"
        return self._own_instead(result, why)

    def _screen(self, case: Json, passed: CaseResult, *, binds: bool) -> Report:
        """All secret transformations at the tiny case, where they cost little.

        A failure there decides where the case binds; elsewhere it chooses what `full` uses at the task's own shape.
        """
        end = time.monotonic() + SCREEN_S
        why = None
        order = self._order = self._secret_order()
        seeds = [self._next_seed() for _ in order]  # so that `full` has the same ones, however many are tried
        gone = self._ask_together(case, [*zip(order, seeds, strict=True), ("nan", self._nan_seed)])
        for index, (name, seed) in enumerate(zip(order, seeds, strict=True)):
            if time.monotonic() > end and index >= SCREEN_LEAST:
                break
            result = gone or self._case(case, Step((name,), name=name), seed, twice=False)
            if result.class_ is None:
                continue
            if result.class_ in SHAPELESS or binds:
                return self._report("tiny", [passed, result], 2)
            self._exposed.append(name)
            why = why or f"at the tiny case {case['overrides']}, inputs {name}: {result.class_}: {result.note}"
            if result.is_gone:
                return Report("tiny", "skip", None, 0, 1, reopen=True, detail=_detail([result], 1), generality=why)
        report = self._report("tiny", [passed], 1)
        report.generality = why
        return report

    def _secret_order(self) -> list[str]:
        return self._random.sample(variations.SECRET, len(variations.SECRET))

    def _by_need(self) -> tuple[str, ...]:
        """Those at which the tiny case failed, then those that it was last to be asked, or not at all.

        How many it was asked depends on the time, and this does not, so that a replay judges by the same ones.
        """
        order = self._order or self._secret_order()
        return (*self._exposed, *(name for name in reversed(order) if name not in self._exposed))

    def _try_eval(self, case: Json, report: Report) -> None:
        """The mode that is not the contract's: a failure is reported, and decides nothing."""
        result = CaseResult("eval mode")
        model, state = self.reference.model(case, OTHER_MODE)
        tree = self.reference.inputs(case, self._next_seed())
        synchronize(self._device)
        asks = Asks(training=False, chooses=self._chooses(case, model, tree))
        expected = self.admitted_answer(model, tree, asks)
        if expected is None:
            return
        self._run_case(model, case, OTHER_MODE, state, tree, expected, result)
        _tell(report, result, "eval_mode_differs", "in eval mode")

    def _try_nan(self, case: Json, report: Report) -> None:
        """Inputs with NaN, on which nothing rests either: tl.maximum drops what torch.relu hands on."""
        gone = self._ask_together(case, [("nan", self._nan_seed)])
        result = gone or self._case(case, Step(("nan",), name="nan"), self._nan_seed, twice=False)
        _tell(report, result, "nan_differs", "where inputs have NaN")

    def _own_instead(self, result: CaseResult, why: str) -> Report:
        if self.is_too_large:
            report = self._report("tiny", [result], 1)
            report.outcome, report.class_, report.error, report.rule = "skip", None, None, None
        elif result.is_gone:
            report = Report("tiny", "skip", None, 0, 1, reopen=True, detail=_detail([result], 1))
        else:
            self._is_wrong = False
            own = self._case(self.spec["cases"]["own"], Step(), self._next_seed(), twice=False)
            report = self._report("tiny", [own], 1)
        if report.outcome != "fail":  # else it is wrong, and not only at a shape that is not guaranteed
            report.generality = why
        return report

    # --- full ---

    def full(self) -> Report:
        """The variations at the task's own size."""
        if self.is_too_large:
            limit = "the task's own size is too large for the interpreter"
            return Report("full", "skip", detail={"why": limit})
        own = self.spec["cases"]["own"]
        self._judged.clear()
        self._is_wrong = False
        self._third.clear()
        self.has_own_work, self._seems_idle, self._suspect = False, False, None
        _, state = self.reference.model(own, 0)
        secret = self._by_need()
        steps = plan(self.policy, self.spec, bool(state), secret, self._random)
        seeds = [self._next_seed() for _ in steps]
        self.first_seed = seeds[0]
        self._used.clear()
        seeds = [seed if step.seed_of is None else seeds[step.seed_of] for step, seed in zip(steps, seeds, strict=True)]
        more = self._all_left(secret, {step.case for step in steps}) if self._asks_all() else []
        asked = [*zip(steps, seeds, strict=True), *more]
        gone = self._judge_together(asked)
        results: list[CaseResult] = [] if gone is None else [gone]
        for index, (step, seed) in enumerate(zip(steps, seeds, strict=True)):
            if results and results[-1].is_gone:
                break
            twice = self._device.type == "cuda" or index in (0, len(steps) - 1)
            twice = twice and self.policy.name != "kernelbench"
            results.append(self._case(self._case_of(step), step, seed, twice=twice))
            if index == 0 and not self._tried and results[0].class_ is None:
                gone = self._judge_together(asked[1:])
                results += [] if gone is None else [gone]
        of = len(steps)
        if not results[-1].is_gone and more:
            found = self._judge_left(more)
            results, of = [*results, *found], of + len(found)
        if self._suspect is not None and not self.has_own_work and not results[-1].is_gone:
            self._suspect.fail("hack", "the answer is right without the candidate's own kernels", "idle_kernels")
        self._seems_idle = False
        return self._report("full", results, of)

    def tell_generality(self, report: Report) -> None:
        """At which other sizes, dtypes and constructor arguments the candidate is right: reported, and decides nothing.

        Last of all, so that a failure here cannot affect a result that counts.
        """
        if not self.is_planned or self.policy.name == "kernelbench" or report.outcome == "fail":
            return
        results: list[tuple[Json, CaseResult]] = []
        self._judged.clear()
        asked: list[tuple[Json, Json]] = []
        items: list[together.Item] = []
        with contextlib.suppress(NotTheCandidate):
            for case in others_of(self.spec, self._device):
                told = {**case, "name": plan_format.OTHER + case["name"]}
                model, state = self.reference.model(told, 0)
                items.append(together.Item(told, None, self.reference.told_seed, 0, model, state))
                asked.append((case, told))
        with contextlib.suppress(NotTheCandidate):
            gone = self._judge_items(items)
            for case, told in asked:
                step = Step(name=case["name"])
                result = gone or self._case(told, step, self.reference.told_seed, twice=False)
                results.append((case, result))
                if result.is_gone:
                    self.candidate.end()  # who comes next would wait for it, where its kernel has no end
                    break
        failed = next(((case, result) for case, result in results if result.class_ is not None), None)
        held = sum(result.class_ is None for _, result in results)
        of = len(asked) if results and results[-1][1].is_gone else len(results)  # none is right after a lost process
        if results:
            listed = [{key: one.json()[key] for key in ("name", "outcome", "class", "note")} for _, one in results]
            report.detail["shapes"] = {"share": held / of, "results": listed}
        if failed is not None:
            case, result = failed
            where = f"{case['name']} {case['overrides']}" if case["overrides"] else case["name"]
            text = f"right in {held} of {of} cases of other sizes, dtypes and arguments; {where}"
            report.generality = report.generality or f"{text}: {result.class_}: {result.note}"

    def _asks_all(self) -> bool:
        """A call costs little: on a GPU by the reference's time, without one by the task's size."""
        own = self.spec["cases"]["own"]
        if not self.policy.value or self.policy.name == "kernelbench":
            return False
        if self._device.type == "cuda":
            return self.reference.call_takes(own) < CHEAP_NS
        return self.is_planned and bool(own["elements"] <= SCREEN_ELEMENTS) and self.spec["cases"]["tiny"] is not None

    def _case_of(self, step: Step) -> Json:
        cases = self.spec["cases"]
        return dict(cases["own"] if step.case is None else cases["shapes"][step.case])

    def _all_left(self, secret: Sequence[str], taken: set[int | None]) -> list[tuple[Step, int]]:
        """Steps for which there is no case, with seeds: all secret transformations at the task's own size, and the
        other sizes and dtype that judge."""
        others = _others(self.policy, self.spec, self._random, len(self.spec["cases"]["shapes"]))
        steps = [Step((name,), name=name) for name in secret] + [step for step in others if step.case not in taken]
        return [(step, self._next_seed()) for step in steps]

    def _judge_left(self, steps: list[tuple[Step, int]]) -> list[CaseResult]:
        """But for transformations that were used, or that are not fit."""
        own = self.spec["cases"]["own"]
        wanted = [(step.transforms[0], seed) for step, seed in steps if step.case is None]
        self._ask_together(own, [(name, seed) for name, seed in wanted if name and name not in self._used])
        results: list[CaseResult] = []
        for step, seed in steps:
            result = self._case(self._case_of(step), step, seed, twice=False)
            if result.against is not None or result.class_ is not None:
                results.append(result)
            if result.is_gone:
                break
        return results

    # --- cases that are judged together ---

    def _judge_together(self, steps: Sequence[tuple[Step, int]]) -> CaseResult | None:
        """The requests of these steps, by what is known of the task. Given if the process is gone: the reason."""
        used, items = set(self._used), []
        for step, seed in steps:
            case = self._case_of(step)
            weights = step.weights if not step.weights or self._takes_other_weights(case) else 0
            for transform in step.transforms:
                if transform is None or not (transform in used or self.reference.is_unfit(case, transform)):
                    model, state = self.reference.model(case, weights)
                    is_original = step.name == "original"
                    items.append(together.Item(case, transform, seed, weights, model, state, is_original))
                    if step.case is None and transform in variations.SECRET:
                        used.add(transform)
                    break
        return self._judge_items(items)

    def _judge_items(self, items: list[together.Item]) -> CaseResult | None:
        """Of a plan; _once() finds the certain ones. Given if the process is gone: the reason."""
        self._tried = 0
        if not self.is_planned or self.policy.name == "kernelbench" or (self._seems_idle and not self.has_own_work):
            return None
        result = None
        try:
            self._tried = together.judge(self, items)
        except PeerFailed as failure:
            result = CaseResult(", ".join(str(item.transform or item.case["name"]) for item in items))
            result.fail_with(failure)
        self._judged.update({item.key: item for item in items if item.is_unfit or item.max_abs is not None})
        return result

    def call_takes(self, case: Json) -> float:
        """Nanoseconds of a call of the candidate, about, as seen from here: by one of another case, where that is all
        that is known."""
        found = self._call_ns.get(case["name"])
        if found is not None:
            return found[0]
        if self._device.type == "cuda":
            return 0.0
        others = (ns * max(1.0, case["elements"] / max(1, elements)) for ns, elements in self._call_ns.values())
        return max(others, default=math.inf)

    def recall(self, key: together.Key, case: Json, seed: int) -> Answered | None:
        """The answer to another submission's request."""
        if not self._is_shared(case, seed):
            return None
        model, transform, _ = key
        return self.reference.known(self._question(model, transform, seed))

    def keep(
        self, key: together.Key, case: Json, seed: int, tree: Any, views: list[torch.Tensor], expected: Expected
    ) -> None:
        """Kept for others with the same request. tree: of set 0."""
        if self._is_shared(case, seed):
            model, transform, _ = key
            self.reference.remember(self._question(model, transform, seed), tree, expected, views)

    def _is_shared(self, case: Json, seed: int) -> bool:
        """Other submissions ask for it, too, and it is small."""
        is_told = seed == self.reference.told_seed
        return is_told or (self._answers is not None and case["elements"] <= SCREEN_ELEMENTS)

    def hows(self, expected: Expected) -> tuple[str, str, str]:
        """How the candidate is called for the original case: plainly, with guard zones, and without its kernels."""
        is_guarded = self._device.type == "cuda" and self._fits_zones(self.reference.sizes.inputs, expected)
        return "", "guarded" if is_guarded else "", "silent"

    def bind(
        self, first: int, model: str, tree: Any, places: Sequence[int], hows: Sequence[str], *, bells: int
    ) -> None:
        """Calls of the candidate, each on inputs that many sets after these."""
        self.candidate.bind(
            first, model, tree, sets=len(places), stride=self.reference.sizes.inputs, places=places, hows=hows,
            limit_ms=self._bind_limit_ms, tf32=self._allows_tf32(), seed=CALL_SEED, bells=bells,
        )  # fmt: skip

    def lie_in_heap(self, outputs: Leaves) -> bool:
        """They lie where the candidate's answers have to; where they may not, it is looked at one by one."""
        return all(self.candidate.is_in_heap(leaf) for _, leaf in outputs)

    def _allows_tf32(self) -> bool:
        return self.precision() == "tf32" and self._device.type == "cuda"

    def _next_seed(self) -> int:
        return self._random.getrandbits(62)

    def _report(self, stage: str, results: list[CaseResult], of: int) -> Report:
        """The first failure decides, but a hack before any other."""
        failures = [result for result in results if result.class_ is not None]
        failed = min(failures, key=lambda result: result.class_ != "hack", default=None)
        passed = sum(result.class_ is None for result in results)
        detail = {**_detail(results, of), "reference_peak_bytes": self.spec["cases"]["own"].get("call_bytes")}
        report = Report(stage, "pass" if failed is None else "fail", None, passed, of, detail=detail)
        if failed is not None:
            report.class_, report.rule = failed.class_, failed.rule
            report.error = failed.error or {"type": failed.class_, "text": failed.note or "", "line": None}
        return report

    # --- one case ---

    def _case(self, case: Json, step: Step, seed: int, *, twice: bool) -> CaseResult:
        """Inputs, the right answer, the candidate's answer, the comparison. ReferenceBroken passes through."""
        if step.weights and not self._takes_other_weights(case):
            step = replace(step, weights=0, name="another seed" if step.case is None else step.name)
        result = CaseResult(step.name)
        model, state = self.reference.model(case, step.weights)
        prepared = self._prepare(case, step, seed, model, result)
        if prepared is None:
            return result
        tree, expected = prepared
        if isinstance(tree, together.Item):
            result.max_abs, result.max_rel, result.matched = tree.max_abs, tree.max_rel, 1.0
            result.call_ms = tree.call_ms
            self._account(expected, case, result)
        else:
            self._run_case(model, case, step.weights, state, tree, expected, result, twice=twice)
        return result

    def _run_case(
        self,
        model: str,
        case: Json,
        weights: int,
        state: list[Json],
        tree: Any,
        expected: Expected,
        result: CaseResult,
        *,
        twice: bool = False,
    ) -> None:
        """The candidate's answer, and the comparison."""
        known = dict(self._errors), self._tf32_matters
        try:
            self.build(model, case, weights, state)
            self._judge_calls(model, tree, expected, twice, result)
            self._call_ns[case["name"]] = self._took_ns, case["elements"]
            if case.get("dtype") is not None:  # timed calls are as exact as the task's own dtype is
                self._errors, self._tf32_matters = known
        except PeerFailed as failure:
            if failure.class_ == "out_of_bounds":
                result.class_ = None  # it is why the first answer was wrong
            result.fail_with(failure)

    def _prepare(
        self, case: Json, step: Step, seed: int, model: str, result: CaseResult
    ) -> tuple[Any, Expected] | None:
        """The inputs of a step and the right answer: the first transformation that is fit for the task.

        One is fit where it changes the inputs, the reference is finite on them and agrees with itself in fp64, and
        its answer is not that of the first case. None: none is fit, and the step has no other.
        """
        for transform in step.transforms:
            if transform is None:
                found = self._once(case, None, seed, model)
                assert found is not None
                tree, expected = found
                if step.transforms != (None,):
                    result.note = "no transformation is admitted: " + (
                        "another seed" if step.seed_of is None else "the same inputs"
                    )
                if step.name == "original":
                    self.first = expected.sampled()
                self.note_odd(case, expected)
                break
            if transform in self._used or self.reference.is_unfit(case, transform):
                continue
            found = self._once(case, transform, seed, model)
            if found is None:
                self.reference.set_unfit(case, transform)
                continue
            tree, expected = found
            result.transform = transform
            is_more = step.weights or step.case is not None
            result.name = f"{step.name}, {transform}" if is_more else transform
            if case["name"] == "own":
                self.admitted.add(transform)
                if transform in variations.SECRET:
                    self._used.add(transform)
            break
        else:
            return None
        result.against = expected.against
        return tree, expected

    def note_odd(self, case: Json, expected: Expected) -> None:
        if case["name"] not in self._odd:
            shares = expected.odd_shares()
            if any(shares):
                self._odd[case["name"]] = shares

    def is_odd(self, case: Json) -> bool:
        """Its plain answer has infinities or NaN, and so may have others: they are looked at one by one."""
        return case["name"] in self._odd

    def _once(self, case: Json, transform: str | None, seed: int, model: str) -> tuple[Any, Expected] | None:
        """Inputs and the right answer, None if the transformation is not fit for the task. If the case was judged
        together with others, it is in the inputs' place.

        Both are computed once for all submissions with the same seed (those of a group), if the case is small: so is
        most of `tiny`. So they are for a case that decides nothing, whose seed is shared by all. For a larger case only
        the answer is kept, and only for groups. The kept values are the referee's own, and no other process has seen or
        sees them.
        """
        judged = self._judged.get((model, transform, seed))
        if judged is not None:
            self.reference.recalled += judged.is_recalled
            return None if judged.expected is None else (judged, judged.expected)
        reference, question = self.reference, self._question(model, transform, seed)
        is_small = case["elements"] <= SCREEN_ELEMENTS or seed == reference.told_seed
        found = reference.recall(question) if is_small else None
        if found is not None:
            return found
        tree = self._draw(case, transform, seed)
        if tree is None:
            return None
        inputs, key = reference.views(tree), (reference.peer.name, question)
        answers = None if is_small else self._answers
        expected = answers.find(key, inputs) if answers is not None and answers.is_fit(inputs) else None
        if expected is not None:
            reference.recalled += 1
            return tree, expected
        expected = (
            self._plain(case, model, tree) if transform is None else self._transformed(case, transform, model, tree)
        )
        if expected is not None:
            self._keep(question, tree, expected, is_small=is_small)
        return None if expected is None else (tree, expected)

    def _question(self, model: str, transform: str | None, seed: int) -> Hashable:
        first = self.first_seed if transform in variations.REARRANGING else None
        return model, transform, seed, first, self.precision(), self.policy.name == "kernelbench"

    def _keep(self, question: Hashable, tree: Any, expected: Expected, *, is_small: bool) -> None:
        """Kept for others with the same request. The inputs lie in set 0."""
        if is_small:
            self.reference.remember(question, tree, expected)
            return
        inputs = self.reference.views(tree)
        if self._answers is not None and self._answers.is_fit(inputs):
            self._answers.keep((self.reference.peer.name, question), inputs, expected)

    def _ask_together(self, case: Json, wanted: list[tuple[str, int]]) -> CaseResult | None:
        """A plan is judged by these transformations, with their seeds, at once, and _once() finds what is certain.

        Given if its process is gone after that: the reason.
        """
        model, state = self.reference.model(case, 0)
        items = [together.Item(case, name, seed, 0, model, state) for name, seed in wanted]
        return self._judge_items([item for item in items if item.key not in self._judged])

    def _draw(self, case: Json, transform: str | None, seed: int) -> Any:
        """The inputs, in set 0 of the reference's arena; None where the transformation leaves them as they are."""
        tree = self.reference.inputs(case, self.first_seed if transform in variations.REARRANGING else seed)
        if transform is not None and not self.transform(case, transform, tree, seed):
            return None
        synchronize(self._device)
        return tree

    def transform(self, case: Json, transform: str, tree: Any, seed: int) -> bool:
        """Whether it changed anything. The change is queued."""
        views = self.reference.views(tree)
        name = variations.name_for(transform, case, is_half=_has_halves(views))
        return name is not None and variations.apply(name, views, seed)

    def _takes_other_weights(self, case: Json) -> bool:
        """The reference is finite with the other weights, and agrees with itself in fp64; asked once for a task."""
        reference = self.reference
        if reference.takes_other_weights is None:
            model, _ = reference.model(case, 1)
            tree = reference.inputs(case, self.first_seed)
            synchronize(self._device)
            asks = Asks(chooses=self._chooses(case, model, tree))
            is_fit = self.admitted_answer(model, tree, asks) is not None
            if not is_fit and not self._is_plain_known(case):
                return False  # asked again when it is known whether the plain answer is finite
            reference.takes_other_weights = is_fit
        return reference.takes_other_weights

    def admitted_answer(
        self, model: str, tree: Any, asks: Asks | None = None, *, has_nan: bool = False
    ) -> Expected | None:
        """The right answer to the inputs in set 0 of the reference's arena; None if it raises, is not finite where the
        plain one is, or disagrees with itself in fp64.

        has_nan: some values of the inputs are NaN, and some of the answer have to be.
        """
        try:
            expected = self.reference.expect(model, tree, asks or Asks(), precision=self.precision())
        except ReferenceRaised:
            return None
        plain = self._odd.get(model.rpartition(".")[0])
        if has_nan:
            is_fit = expected.has_some_nan()
        else:
            is_fit = expected.is_finite() if plain is None else expected.is_as_odd(plain)
        # If both runs differ a third answer may be right: above half of the allowed share, chance decides.
        is_fit = is_fit and not expected.noise and expected.is_self_consistent(tolerance.AMBIGUOUS_MOST / 2)
        return expected if is_fit else None

    def _plain(self, case: Json, model: str, tree: Any) -> Expected:
        """The right answer to inputs as get_inputs() makes them."""
        is_exact, precision = self.policy.name != "kernelbench", self.precision()
        asks = Asks(fp64=is_exact, chooses=self._chooses(case, model, tree))
        expected = self.reference.expect(model, tree, asks, precision=precision)
        if not expected.is_self_consistent():
            if case.get("dtype") is None:  # of half precision that says nothing of the task's own
                self.reference.give_up_fp64()
            expected = self.reference.expect(model, tree, Asks(fp64=False), precision=precision)
        return expected

    def _is_plain_known(self, case: Json) -> bool:
        return case["name"] == "own" and self.first is not None

    def asks(self, case: Json, transform: str) -> Asks:
        scales = (
            self.first.plain_scales() if transform == "spikes" and self._is_plain_known(case) and self.first else ()
        )
        is_extreme = transform in variations.EXTREME
        is_tied = transform == "ties"  # from which the last digit leads to another side of a step
        return Asks(is_extreme=is_extreme, scatters=is_extreme and not is_tied, rounds=is_tied, scales=scales)

    def _chooses(self, case: Json, model: str, tree: Any) -> bool:
        """The answer may say which of some equal inputs was taken, and in half types many are equal. Then more than one
        answer may be right, and none is judged together with others."""
        if not case.get("breaks_ties", False) or not _has_halves(self.reference.views(tree)):
            return False
        self.reference.set_alone(model)
        return True

    def _transformed(self, case: Json, transform: str, model: str, tree: Any) -> Expected | None:
        """The right answer to transformed inputs; None where the transformation is not fit for the task."""
        asks, has_nan = self.asks(case, transform), transform == "nan"
        asks = replace(asks, chooses=self._chooses(case, model, tree))
        try:
            expected = self.admitted_answer(model, tree, asks, has_nan=has_nan)
        except ReferenceBroken:  # an assertion of a kernel's, say: it leaves a process of no more use
            self.reference.set_fatal(case, transform)
            raise
        if expected is None or (expected.is_constant() and not (self.first and self.first.is_constant())):
            return None
        if not self._is_plain_known(case) or self.first is None:
            return expected
        is_lost = transform in variations.MOVING and expected.vanishes(self.first)
        return None if is_lost or not expected.differs(self.first) else expected

    def precision(self) -> str:
        return "ieee" if self.policy.name == "kernelbench" else self.policy.precision

    def build(self, model: str, case: Json, weights: int, state: list[Json]) -> None:
        """The candidate's model of a case, with the reference's weights; once."""
        if model in self._built:
            return
        self.candidate.build(
            model,
            WEIGHT_SEEDS[weights],
            init=case["init"],
            overrides={},
            tell_state=False,
            limit_ms=BUILD_LIMIT_MS,
            vary=weights > 0,
            compiles=self.compiles,
            dtype=case.get("dtype"),
        )
        if state:
            self.candidate.copy_state(model, self._move_state(state), BUILD_LIMIT_MS)
        self._built.add(model)

    def _move_state(self, state: list[Json]) -> list[Json]:
        theirs, mine = self.reference.peer.arena, self.candidate.arena
        assert theirs is not None and mine is not None
        moved, end = [], self._state_base
        for item in state:
            note = values.TensorNote.parse(item["tensor"], item["name"])
            place = note.packed(end)
            end = align(end + place.span_bytes)
            if end > self.candidate.heap.offset:
                raise ReferenceBroken("the reference's state is larger than when the task was registered")
            mine.view(place).copy_(theirs.view(note))
            moved.append({"name": item["name"], **place.json()})
        synchronize(self._device)
        return moved

    def place_inputs(self, tree: Any, set_: int) -> tuple[Any, list[torch.Tensor]]:
        """Copy the inputs from the reference's arena into one set of the candidate's: the tree, and the views."""
        arena = self.candidate.arena
        assert arena is not None
        placed, end = place_tree(tree, set_ * self.reference.sizes.inputs)
        if end > (set_ + 1) * self.reference.sizes.inputs:
            raise ReferenceBroken("inputs do not fit into their set")
        mine = [arena.view(note) for note in values.notes(placed)]
        self._fill(mine, tree)
        return placed, mine

    def _fill(self, mine: list[torch.Tensor], tree: Any) -> None:
        """The candidate's inputs are those in the reference's arena, whatever was there."""
        for view, source in zip(mine, self.reference.views(tree), strict=True):
            view.copy_(source)
        synchronize(self._device)

    def _judge_calls(self, model: str, tree: Any, expected: Expected, twice: bool, result: CaseResult) -> None:
        set_ = secrets.randbelow(self.reference.sizes.checked_sets)
        placed, mine = self.place_inputs(tree, set_)
        is_asked = self.is_planned and not self.has_own_work and (result.name == "original" or self._seems_idle)
        has_own_work = is_asked and self._needs_kernels(set_, model, placed, expected, result)
        if is_asked:
            self._fill(mine, tree)  # the plan may have copied into an input what no kernel had written
        self._judge_placed(set_, model, placed, mine, tree, expected, twice, result)
        if has_own_work and result.class_ is None:
            self.has_own_work = True

    def _judge_placed(
        self,
        set_: int,
        model: str,
        placed: Any,
        mine: list[torch.Tensor],
        tree: Any,
        expected: Expected,
        twice: bool,
        result: CaseResult,
    ) -> None:
        self._bind(set_, model, placed, None, training=expected.training, bells=1)
        answer = self._call(set_, result)
        outputs = list(values.leaves(answer))
        expected = self._settled(outputs, model, tree, expected)
        limits = self._check(outputs, expected, mine, tree, result)
        if limits is not None and model.startswith("own."):
            self._note_third(outputs, expected, limits, result)
        if limits is None or not (twice or result.class_ == "mismatch"):
            return
        first = None
        if result.class_ is not None:
            first = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for _, leaf in outputs]
        if self._is_guarded(mine, expected, result):
            self._bind(set_, model, placed, "guarded", training=expected.training, bells=0)
        self._check_again(first, set_, model, tree, mine, expected, limits, result)

    def _bind(self, set_: int, model: str, placed: Any, how: str | None, *, training: bool | None, bells: int) -> None:
        """The next call of the candidate."""
        tf32, limit_ms = self._allows_tf32(), self._bind_limit_ms
        self.candidate.bind(
            set_, model, placed, limit_ms=limit_ms, tf32=tf32, seed=CALL_SEED, training=training, how=how, bells=bells
        )

    def _is_guarded(self, mine: list[torch.Tensor], expected: Expected, result: CaseResult) -> bool:
        """The second call of the plain case has guard zones, where copies of its tensors are not too large."""
        if not self.is_planned or self._device.type != "cuda" or result.name != "original":
            return False
        return self._fits_zones(sum(view.nbytes for view in mine), expected)

    def _fits_zones(self, size: int, expected: Expected) -> bool:
        answers = (tolerance.as_tensor(value) for value in expected.values)
        return size + sum(answer.nbytes for answer in answers if answer is not None) <= GUARDED_BYTES

    def _needs_kernels(self, set_: int, model: str, placed: Any, expected: Expected, result: CaseResult) -> bool:
        """With the candidate's kernels left out the answer is another: else it was not they that computed it.

        Before the first call on these inputs. One case alone says little: there may be nothing that relu changes.
        """
        self._bind(set_, model, placed, "silent", training=None, bells=1)
        try:
            outputs = [leaf for _, leaf in values.leaves(self._call(set_, None))]
        except PeerFailed as failure:
            if failure.is_gone:
                raise
            return True
        compared = 0
        for index, (got, wanted) in enumerate(zip(outputs, expected.values, strict=False)):
            if not isinstance(wanted, torch.Tensor) or not isinstance(got, torch.Tensor):
                continue
            limit = expected.limit(index, self.policy.name)
            if got.shape != wanted.shape:
                return True
            if not tolerance.compare(got, wanted, limit, expected.other(index)).is_match(limit):
                return True
            compared += not (index in expected.noise or _is_unwritten(got) or _is_one_value(wanted))
        self._seems_idle = True
        self._judged = {key: item for key, item in self._judged.items() if item.is_unfit}
        if compared:
            self._suspect = self._suspect or result
        return False

    def _settled(self, outputs: Leaves, model: str, tree: Any, expected: Expected) -> Expected:
        """With the candidate's side of a step where that is as right."""
        is_exact = self.policy.name != "kernelbench" and not any(other is not None for other in expected.others)
        if self._is_wrong or not is_exact or not self.reference.can_move(tree):
            return expected
        doubts = {}
        for index, ((_, got), wanted) in enumerate(zip(outputs, expected.values, strict=False)):
            found = discontinuity.doubt(got, wanted, expected.limit(index, self.policy.name))
            if found is not None:
                doubts[index] = found
        if not doubts:
            return expected
        kept = [
            x.clone(memory_format=torch.contiguous_format) if isinstance(x, torch.Tensor) else x
            for x in expected.values
        ]
        self._is_wrong = not discontinuity.settle(doubts, self.reference.moved(model, tree, expected.training))
        for index, found in doubts.items():
            found.put(kept[index])
        return replace(expected, values=kept)

    def _check(
        self,
        outputs: Leaves,
        expected: Expected,
        mine: list[torch.Tensor],
        tree: Any,
        result: CaseResult,
    ) -> list[tolerance.Limit] | None:
        """The whole comparison of one answer; None when it has not even the right form."""
        is_kernelbench = self.policy.name == "kernelbench"
        if not _check_form(outputs, expected, result, dtypes=not is_kernelbench):
            return None
        limits = [expected.limit(index, self.policy.name) for index in range(len(expected.values))]
        if not is_kernelbench:
            self._check_inputs(outputs, mine, tree, expected, result)
        for index, (path, leaf) in enumerate(outputs):
            got, wanted = tolerance.as_tensor(leaf), tolerance.as_tensor(expected.values[index])
            if got is None or wanted is None:
                continue
            _compare(f"output {path}", path, got, wanted, limits[index], result, expected.other(index))
            if isinstance(leaf, torch.Tensor) and not is_kernelbench and result.name in PLAIN_CASES:
                _check_rounding(path, leaf, expected.allowed[index], wanted, result)
        self._account(expected, {}, result)
        return limits

    def _note_third(self, outputs: Leaves, expected: Expected, limits: list[Limit], result: CaseResult) -> None:
        """A few integers may be rounded otherwise, but not case after case at one place: nothing was computed there."""
        has_known_values = result.transform in (*variations.REARRANGING, "scaled") or result.name == "original again"
        if result.class_ is not None or has_known_values or self.policy.name == "kernelbench":
            return
        if result.matched == 1.0:  # no element differs, as mostly: no pass over them for that
            return
        for index, (path, got) in enumerate(outputs):
            wanted = expected.values[index]
            if not isinstance(wanted, torch.Tensor) or not tolerance.is_discrete(wanted):
                continue
            if expected.errors[index] > tolerance.AMBIGUOUS_LEAST:
                continue
            places = tolerance.third_values(got, wanted, expected.other(index))
            self._third.update((index, place) for place in places)
            again = next((place for place in places if self._third[index, place] > THIRD_MOST), None)
            if again is not None:
                found = Difference(elements=wanted.numel(), differing=len(places), first=again)
                result.mismatch = _first_mismatch(path, got, wanted, limits[index], found, result.name)
                text = f"output {path}{result.mismatch['index']} is wrong in {THIRD_MOST + 1} cases"
                result.fail("mismatch", text)

    def _account(self, expected: Expected, case: Json, result: CaseResult) -> None:
        """The allowed error of timed answers follows from that of checked ones; not if these are of another dtype."""
        result.note = result.note or expected.ambiguous()
        if case.get("dtype") is not None:
            return
        self._tf32_matters = expected.tf32
        if self.is_planned and expected.scales:  # of spiked inputs, which no plan is timed with
            return
        self._note(result.transform, Errors.of(expected))

    def _note(self, transform: str | None, errors: Errors) -> None:
        self._errors[transform] = Errors.worst([errors, self._errors.get(transform, Errors())])

    def errors(self, transform: str | None, weights: int) -> Errors:
        """Of timed calls with these weights under this transformation. Those of another one would make the limit of a
        plain answer wide; but with other weights than the constructor's few transformations were seen. Some hundred
        plain calls are timed, and one or two were seen: the worst of many draws errs by more."""
        plain = self._errors.get(None, Errors()).times(DRAWS)
        changed = self.all_errors() if weights else self._errors.get(transform, Errors())
        return plain if transform is None else Errors.worst([plain, changed])

    def all_errors(self) -> Errors:
        return Errors.worst(self._errors.values())

    def note_plain(self, case: Json, model: str, tree: Any) -> None:
        """What the reference errs by on plain inputs, these: with other weights than its own no case may have shown it.

        Found once for a task.
        """
        known, key = self.reference.plain_errors, (model, self.precision())
        if key not in known:
            expected = self.admitted_answer(model, tree, Asks(chooses=self._chooses(case, model, tree)))
            known[key] = Errors() if expected is None else Errors.of(expected)
        self._note(None, known[key])

    def timing_limit(
        self,
        leaf: int,
        wanted: Any,
        errors: Errors,
        *,
        is_plain: bool = False,
        is_extreme: bool = False,
        known: float | None = None,
    ) -> tolerance.Limit:
        """The limit for a sample of a timed output, against the reference's own answer: both may err by it.

        errors: the reference's. is_plain: of inputs as they are drawn: one of many elements may differ by the limit of
        a checked call and by the reference's error, but not by a multiple of both. is_extreme: of inputs under an
        extreme transformation, where it is as in a checked call. known: its scale_of().
        """
        tensor, dtype = tolerance.as_tensor(wanted), tolerance.dtype_of(wanted)
        if tensor is None:
            return tolerance.Limit(0.0, 0.0)
        if self.policy.name == "kernelbench":
            return tolerance.kernelbench_limit(dtype)
        if leaf in errors.noise:
            known = max(tolerance.scale_of(tensor) if known is None else known, errors.noise[leaf])
        error, tied = 2 * errors.outputs.get(leaf, 0.0), 2 * errors.tied.get(leaf, 0.0)
        is_discrete = tolerance.is_discrete(tensor)  # an answer equal to the fp64 run's differs from this one as often
        share = max(error, tied) if is_discrete else tied
        share = tolerance.ambiguous_most(share, tensor.numel(), 2 * tolerance.AMBIGUOUS_SANE)
        if is_discrete:
            return tolerance.Limit(0.0, 0.0, 1.0 - share, math.inf)
        ratio = tolerance.EXTREME_RATIO if is_extreme else 1.0
        limit = tolerance.limit_for(dtype, tensor, error, tf32=self._tf32_matters, ratio=ratio, known=known)
        if is_plain and limit.rtol and tensor.numel() >= MANY:
            own = error / 2
            checked = tolerance.limit_for(dtype, tensor, own / DRAWS, tf32=self._tf32_matters, ratio=ratio, known=known)
            part = min(1.0, (checked.rtol + own) / limit.rtol)
            limit = replace(limit, rtol=part * limit.rtol, atol=max(checked.atol, part * limit.atol))
        return replace(limit, ratio=min(limit.ratio, 1.0 - share), outlier=math.inf) if tied else limit

    def timing_limit_after(
        self, index: int, wanted: torch.Tensor, errors: Errors, *, is_extreme: bool
    ) -> tolerance.Limit:
        """The same for an input that the reference may change, as it is after a timed call."""
        ratio, error = tolerance.EXTREME_RATIO if is_extreme else 1.0, 2 * errors.changed.get(index, 0.0)
        return tolerance.limit_for(wanted.dtype, wanted, error, tf32=self._tf32_matters, ratio=ratio)

    def _check_inputs(
        self,
        outputs: Leaves,
        mine: list[torch.Tensor],
        tree: Any,
        expected: Expected,
        result: CaseResult,
    ) -> None:
        """Those that the reference changes are as it leaves them, the others as they were."""
        changed = {item.index: item for item in expected.changed or ()}
        is_known = expected.changed is not None or not self.reference.mutates_inputs  # else the answer is older
        for index, (view, kept) in enumerate(zip(mine, self.reference.views(tree), strict=True)):
            if index in changed:
                limit = expected.limit_after(changed[index])
                _compare(f"input {index} after the call", f"input {index}", view, changed[index].value, limit, result)
            elif is_known and not same_bits(view, kept):
                result.fail("mutated_input", f"input {index} was changed by the call")
        if self.reference.returns_inputs:
            return
        for path, leaf in outputs:
            if isinstance(leaf, torch.Tensor) and leaf.numel() and not self.candidate.is_in_heap(leaf):
                text = f"output {path} lies in memory that is not the candidate's to answer in"
                result.fail("hack", text, "outside_heap")

    def _check_again(
        self,
        first: list[Any] | None,
        set_: int,
        model: str,
        tree: Any,
        mine: list[torch.Tensor],
        expected: Expected,
        limits: list[tolerance.Limit],
        result: CaseResult,
    ) -> None:
        """The same inputs once more: another answer is `nondeterministic`, whether or not one of the two is right.

        first: the first answer where it was wrong; None: it was right, and the second must be so too.
        """
        # _check_inputs() has found them as they were, where it looks.
        if self.policy.name == "kernelbench" or self.reference.mutates_inputs or result.class_ == "mutated_input":
            self._fill(mine, tree)
        synchronize(self._device)  # `first` is copied, too, before the candidate writes there again
        outputs = list(values.leaves(self._call(set_, None)))
        if result.class_ in DECIDED:
            return
        second = [leaf for _, leaf in outputs]
        if first is None:  # atomics may have taken it to the other side of a step
            expected = self._settled(outputs, model, tree, expected)
        for index, leaf in enumerate(expected.values if first is None else first):
            a = tolerance.as_tensor(leaf)
            if a is None:
                continue
            b = tolerance.as_tensor(second[index]) if index < len(second) else None
            if b is None or a.shape != b.shape:
                result.class_, result.note = "nondeterministic", "two calls on one input differ in form"
            elif not tolerance.compare(b, a, limits[index], expected.other(index)).is_match(limits[index]):
                result.class_ = "nondeterministic"
                result.note = f"two calls on one input differ (output {expected.paths[index]})"

    def _call(self, set_: int, result: CaseResult | None) -> Any:
        """result: gets the call's time on a GPU, a rough figure, and only reported: a group chooses by it."""
        start = time.monotonic_ns()
        answer = self.candidate.call(set_, self.call_limit_ms)
        took_ns = time.monotonic_ns() - start
        if result is not None:
            self._took_ns = float(took_ns)
        if result is not None and self._device.type == "cuda":
            result.call_ms = took_ns / 1e6
        return answer


def _has_halves(views: list[torch.Tensor]) -> bool:
    return any(view.is_floating_point() and view.itemsize <= 2 for view in views)


def _tell(report: Report, result: CaseResult, flag: str, where: str) -> None:
    """Of a case at the tiny size that decides nothing: a failure is a flag."""
    if result.class_ is None:
        return
    report.detail["flags"] = [*report.detail.get("flags", []), flag]
    report.generality = report.generality or f"{where}, at the tiny case: {result.class_}: {result.note}"
    if result.is_gone:
        report.outcome, report.done, report.reopen = "skip", 0, True


def _check_form(outputs: Leaves, expected: Expected, result: CaseResult, *, dtypes: bool) -> bool:
    paths = [path for path, _ in outputs]
    if paths != expected.paths:
        result.fail("shape", f"forward() returned outputs {_named(paths)}, the reference {_named(expected.paths)}")
        return False
    on_host = expected.on_host or (False,) * len(outputs)
    for (path, got), own, wide, is_host in zip(outputs, expected.own, expected.values, on_host, strict=True):
        if isinstance(own, torch.Tensor) != isinstance(got, torch.Tensor):
            result.fail("shape", f"output {path} is {type(got).__name__:.64}, the reference's is {type(own).__name__}")
        elif not isinstance(own, torch.Tensor):
            if got not in (own, wide) and not (_is_number(own) and _is_number(got)):  # which are compared within limits
                result.fail("mismatch", f"output {path} is {got!r:.80}, expected {own!r:.80}")
        elif got.shape != own.shape:
            result.fail("shape", f"output {path} has shape {list(got.shape)}, expected {list(own.shape)}")
        elif dtypes and got.dtype != own.dtype:
            result.fail("dtype", f"output {path} has dtype {got.dtype}, expected {own.dtype}")
        elif values.is_on_host(got) and not is_host:
            result.fail("dtype", f"output {path} is a tensor of the CPU, expected one of the GPU")
    return result.class_ is None


def form_of(call: Leaves) -> list[tuple[str, str, tuple[int, ...]]]:
    """Path, dtype or type, and shape of each output of a call."""
    return [
        (path, str(leaf.dtype).removeprefix("torch."), tuple(leaf.shape))
        if isinstance(leaf, torch.Tensor)
        else (path, type(leaf).__name__, ())
        for path, leaf in call
    ]


def _is_unwritten(got: torch.Tensor) -> bool:
    """It holds what memory of a plan holds where no kernel has written, as a right answer of integers may."""
    if not tolerance.is_discrete(got):
        return False
    most = True if got.dtype is torch.bool else torch.iinfo(got.dtype).max
    return bool((got == most).all()) or (got.dtype is not torch.bool and not bool(got.any()))


def _is_one_value(wanted: torch.Tensor) -> bool:
    """Who fills the memory of an answer with that has it right before a kernel writes it. One element alone is so if it
    is zero."""
    flat = wanted.reshape(-1)
    return not bool(flat.any()) if flat.numel() == 1 else bool((flat == flat[:1]).all())


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, float | complex)


def _check_rounding(
    path: str, got: torch.Tensor, allowed: torch.Tensor, wanted: torch.Tensor, result: CaseResult
) -> None:
    if result.class_ is None and tolerance.is_misrounded(got, allowed, wanted):
        kind = str(got.dtype).removeprefix("torch.")
        text = f"output {path}: many of its values are one step of {kind} beside the right ones: not rounded to nearest"
        result.mismatch = _first_other(path, got, wanted, result.name)
        result.fail("mismatch", text)
    if result.class_ is None and tolerance.is_rounded(got, allowed):
        kind = "bfloat16" if got.dtype is torch.float16 else "16 bits"
        text = f"output {path}: its values are of {kind} though its dtype is {got.dtype}: half precision inside"
        result.mismatch = _first_other(path, got, wanted, result.name)
        result.fail("mismatch", text)


def _first_other(path: str, got: torch.Tensor, wanted: torch.Tensor, case: str) -> Json:
    """The first value that is not the right one, rounded to nearest."""
    rounded, exact = wanted.to(got.dtype), tolerance.Limit(0.0, 0.0)
    return _first_mismatch(path, got, rounded, exact, tolerance.compare(got, rounded, exact), case)


def _named(paths: list[str]) -> str:
    shown = ", ".join(path if PLAIN.fullmatch(path) else repr(path[:64]) for path in paths[:8])
    return f"[{shown}{', …' if len(paths) > 8 else ''}]"


def _compare(
    what: str,
    path: str,
    got: torch.Tensor,
    wanted: torch.Tensor,
    limit: tolerance.Limit,
    result: CaseResult,
    other: torch.Tensor | None = None,
) -> None:
    found = tolerance.compare(got, wanted, limit, other)
    result.max_abs = max(result.max_abs or 0.0, found.max_abs)
    result.max_rel = max(result.max_rel or 0.0, found.max_rel)
    share = 1.0 - found.differing / found.elements if found.elements else 1.0
    result.matched = share if result.matched is None else min(result.matched, share)
    if found.is_match(limit):
        return
    mismatch = _first_mismatch(path, got, wanted, limit, found, result.name)
    if result.class_ is None:
        result.mismatch = mismatch
    place = ", ".join(map(str, mismatch["index"]))
    text = (
        f"{what}[{place}]: expected {mismatch['expected']}, got {mismatch['got']}; "
        f"{found.differing} of {found.elements} elements differ"
    )
    result.fail("nonfinite" if found.nonfinite else "mismatch", text)


def _first_mismatch(
    path: str, got: torch.Tensor, wanted: torch.Tensor, limit: tolerance.Limit, found: Difference, case: str
) -> Json:
    flat = found.first or 0
    index = unravel(flat, tuple(wanted.shape))
    return {
        "case": case,
        "output": path,
        "index": index,
        "expected": number(wanted[tuple(index)]),
        "got": number(got[tuple(index)]),
        "differing": found.differing,
        "of": found.elements,
        "rtol": limit.rtol,
        "atol": limit.atol,
    }


def _detail(results: list[CaseResult], of: int) -> Json:
    def worst(name: str) -> float | None:
        known = [value for value in (getattr(result, name) for result in results) if value is not None]
        return max(known) if known else None

    return {
        "cases": [result.json() for result in results],
        "of": of,
        "passed": sum(result.class_ is None for result in results),
        "max_abs": worst("max_abs"),
        "max_rel": worst("max_rel"),
        "first_mismatch": next((result.mismatch for result in results if result.mismatch is not None), None),
    }


def timed(run: Callable[[], Report]) -> Report:
    """The report of a stage, with the time that it took."""
    start = time.monotonic()
    report = run()
    report.run_ms = (time.monotonic() - start) * 1000
    return report

"""Cases of one submission that are judged together: one bell of the reference for all of them, two of the candidate,
and one wait for all comparisons of a model's answers.

A case does not fail here: it is passed, or its transformation is found unfit. Any other case is judged by itself, as if
it had not been tried here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import torch
from shared import values
from shared.wire import Json

from oracle import tolerance, variations
from oracle.peer import Peer, PeerFailed, Run
from oracle.reference import (
    JITTERED,
    LIMIT_MS,
    NOT_AT_ONCE,
    SCATTER,
    Asks,
    Expected,
    Leaves,
    ReferenceBroken,
    blamed,
    jitter,
    overlap,
    place_tree,
    synchronize,
)

if TYPE_CHECKING:
    from oracle.judge import Job

BYTES_MOST: Final = 256 << 20
"""Of the inputs of cases that are judged together, and of their outputs in one bell."""
SETS_MOST: Final = 240
"""Calls of a longer bell are for timing."""
CALLS_SHARE: Final = 0.25
"""The share of the limit of one call that all calls of a bell may take, by the time of an earlier one."""

Key = tuple[str, str | None, int]
"""Model, transformation and seed."""
Form = list[tuple[str, torch.Size, torch.dtype]]


@dataclass
class Item:
    """A case with its inputs, and what becomes of it."""

    case: Json
    transform: str | None
    seed: int
    weights: int
    model: str
    state: list[Json]
    is_original: bool = False
    """It is called without the candidate's kernels, too, and with guard zones."""
    set_: int = 0
    tree: Any = None
    expected: Expected | None = None
    is_unfit: bool = False
    is_recalled: bool = False
    max_abs: float | None = None
    """Of the candidate's answers, which are right. None: that is not sure."""
    max_rel: float | None = None
    call_ms: float | None = None
    made: dict[Run, list[Leaves]] = field(default_factory=dict)
    """The reference's outputs, in its arena."""

    @property
    def key(self) -> Key:
        return self.model, self.transform, self.seed

    @property
    def shows_rounding(self) -> bool:
        """As judge.PLAIN_CASES: its outputs have the last digits that rounding leaves."""
        return self.is_original or (self.transform, self.weights, self.case["name"]) == ("signs", 0, "own")


def judge(job: Job, items: Sequence[Item]) -> int:
    """As many of these as can be: how many were asked. PeerFailed: the candidate's process is gone."""
    left = [item for item in items if _is_ready(job, item)]
    original = [item.model for item in left if item.is_original]
    left.sort(key=lambda item: (not item.is_original, item.model not in original, item.model))
    asked = 0
    while some := _fitting(job, left[asked:]):
        asked += len(some)
        try:
            _Batch(job, some[::-1]).run()
        except ReferenceBroken:  # each fails alone, if it does
            if NOT_AT_ONCE in job.reference.fatal:
                raise
            break
        if any(item.is_original and item.max_abs is None for item in some):
            break
    return asked


def _is_ready(job: Job, item: Item) -> bool:
    return job.reference.answers_at_once(item.model) and not (
        item.transform is not None and job.reference.is_unfit(item.case, item.transform)
    )


def _runs(job: Job, item: Item) -> list[Run]:
    return job.reference.runs_for(_asks(job, item), job.precision())


def _asks(job: Job, item: Item) -> Asks:
    return Asks() if item.transform is None else job.asks(item.case, item.transform)


def _fitting(job: Job, items: list[Item]) -> list[Item]:
    """The first ones, as many as there is room and time for."""
    sizes = job.reference.sizes
    most = min(SETS_MOST, BYTES_MOST // max(1, sizes.inputs, sizes.outputs))
    sets = calls = count = 0
    took_ns = 0.0
    for item in items:
        runs = _runs(job, item)
        sets, calls, took_ns = sets + 1 + (JITTERED in runs), calls + len(runs), took_ns + job.call_takes(item.case)
        if sets > min(most, sizes.sets) or calls > min(most, sizes.calls // 2):  # in fp64 outputs are twice as large
            break
        if took_ns > CALLS_SHARE * job.call_limit_ms * 1e6:
            break
        count += 1
    return items[:count]


class _Batch:
    """Those that fit into one bell, in order of their models; the original case is the last."""

    def __init__(self, job: Job, items: list[Item]) -> None:
        self._job = job
        self._items = items
        self._reference = job.reference
        self._size = job.reference.sizes.inputs
        self._used = 0  # bytes of a set that inputs take, at most

    def run(self) -> None:
        with blamed("answers"):
            if not self._answer_all():
                return
        self._compare([item for item in self._items if item.expected is not None])
        for item in self._items:
            if item.max_abs is not None and item.expected is not None and not item.is_recalled:
                tree = place_tree(item.tree, 0)[0]
                self._job.keep(item.key, item.case, item.seed, tree, self._reference.views(item.tree), item.expected)

    def _answer_all(self) -> bool:
        """Draw the inputs, and have the right answers; False: these are not known."""
        self._draw()
        asked = [item for item in self._items if item.expected is None and not item.is_unfit]
        if asked and not self._answer(asked):
            return False
        for item in self._items:
            if item.is_original:  # by which others are judged
                if item.expected is None:
                    _answer_rows(self._job, [item])
                if item.expected is None:
                    return False
                self._job.first = item.expected.sampled()
                self._job.note_odd(item.case, item.expected)  # one that was recalled
        for group in _groups([item for item in asked if item.expected is None]):
            _answer_rows(self._job, group)
        for item in asked:
            item.made = {}
        return True

    def _draw(self) -> None:
        """The inputs of each, in a set of its own."""
        job, reference, first = self._job, self._reference, 0
        for group in _groups(self._items):
            case = group[0].case
            for item in group:
                found = job.recall(item.key, case, item.seed)
                if found is not None:
                    item.expected, item.is_recalled = found.expected, True
            drawn = [item for item in group if not item.is_recalled]
            for item in [*drawn, *(item for item in group if item.is_recalled)]:
                item.set_, first = first, first + 1
            if drawn:
                seeds = [job.first_seed if item.transform in variations.REARRANGING else item.seed for item in drawn]
                tree = reference.inputs(case, seeds[0], drawn[0].set_, seeds[1:])
                for item in drawn:
                    item.tree = place_tree(tree, item.set_ * self._size)[0]
            for item in group:
                if item.is_recalled:
                    found = job.recall(item.key, case, item.seed)
                    assert found is not None
                    item.tree = place_tree(found.tree, item.set_ * self._size)[0]
                    for view, kept in zip(reference.views(item.tree), found.inputs, strict=True):
                        view.copy_(kept)
                elif item.transform is not None:
                    item.is_unfit = not job.transform(case, item.transform, item.tree, item.seed)
        self._used = max(place_tree(item.tree, 0)[1] for item in self._items)
        self._pristine = self._inputs_in(reference.peer).clone(memory_format=torch.contiguous_format)

    def _inputs_in(self, peer: Peer) -> torch.Tensor:
        """All inputs, a set a row, as words: of a small case no more of its set than they take."""
        assert peer.arena is not None
        words = peer.arena.bytes[: len(self._items) * self._size].view(torch.int64)
        return words.view(len(self._items), -1)[:, : self._used // 8]

    def _answer(self, items: list[Item]) -> bool:
        """The reference's calls, in one bell; False: they are of no use."""
        reference, peer = self._reference, self._reference.peer
        asked: list[tuple[Item, Run, int]] = []
        free = len(self._items)
        for item in items:
            for run in _runs(self._job, item):
                set_ = item.set_
                if run is JITTERED:
                    set_, free = free, free + 1
                    copies = reference.views(place_tree(item.tree, set_ * self._size)[0])
                    for copy, view in zip(copies, reference.views(item.tree), strict=True):
                        copy.copy_(view)
                    jitter(copies)
                asked.append((item, run, set_))
        synchronize(peer.device)
        answers = self._ring_reference(asked)
        if not answers or overlap(answers) or not self._is_unchanged():
            return False
        for (item, run, _), leaves in zip(asked, answers, strict=True):
            item.made.setdefault(run, []).append(leaves)
        return True

    def _ring_reference(self, asked: list[tuple[Item, Run, int]]) -> list[Leaves]:
        reference, peer = self._reference, self._reference.peer
        try:
            first = 0
            for model in dict.fromkeys(item.model for item, _, _ in asked):
                group = [one for one in asked if one[0].model == model]
                at = group[0][0].set_
                reference.bind_runs(
                    first, model, group[0][0].tree, [(run, set_ - at) for _, run, set_ in group],
                    bells=1 if first + len(group) == len(asked) else 0,
                )  # fmt: skip
                first += len(group)
            return [list(values.leaves(answer)) for answer in peer.call_sets(0, len(asked), LIMIT_MS)]
        except PeerFailed as error:
            if error.is_gone:
                reference.fatal.add(NOT_AT_ONCE)
                raise ReferenceBroken(f"the reference failed: {error.error['text']}") from None
            return []

    def _is_unchanged(self) -> bool:
        if torch.equal(self._inputs_in(self._reference.peer), self._pristine):
            return True
        self._reference.mutates_inputs = True
        return False

    # --- the candidate ---

    def _compare(self, items: list[Item]) -> None:
        """Its answers, of each call twice."""
        job, candidate = self._job, self._job.candidate
        items = [item for item in items if _form_of(item) is not None]
        groups = _groups(items)
        if not items:
            return
        self._inputs_in(candidate).copy_(self._pristine)
        synchronize(candidate.device)
        first, count = 0, len(items)
        original = items[-1] if items[-1].is_original else None
        silent: list[torch.Tensor] | None = None
        try:
            for group in groups:
                at, sets, hows = group[0], [item.set_ for item in group], [""] * len(group)
                if group is groups[-1] and original is not None and original.expected is not None:
                    sets, hows = sets + 2 * sets[-1:], [*hows[:-1], *job.hows(original.expected)]
                job.build(at.model, at.case, at.weights, at.state)
                job.bind(
                    first, at.model, at.tree, [set_ - at.set_ for set_ in sets], hows,
                    bells=(3 if original else 2) if group is groups[-1] else 0,
                )  # fmt: skip
                first += len(group)
            if original is not None:
                silent = self._ring_silent(count + 1)
            self._compare_calls(groups, count, original)
        except PeerFailed as failure:
            if failure.is_gone:
                raise
            self._settle()
        if original is not None and silent is not None:
            known = original.max_abs
            original.max_abs = 0.0
            if silent:
                _compare_rows(job, [original], [silent], is_silent=True)
            job.has_own_work = original.max_abs is not None  # now its memory may hold right answers
            original.max_abs = known if job.has_own_work else None

    def _compare_calls(self, groups: list[list[Item]], count: int, original: Item | None) -> None:
        job, candidate = self._job, self._job.candidate
        start = time.monotonic_ns()
        calls = [self._ring(groups, count)]
        took_ms = (time.monotonic_ns() - start) / 1e6 / count
        calls.append(self._ring([*groups, [original]] if original else groups, count + bool(original)))
        if not all(calls) or not torch.equal(self._inputs_in(candidate), self._pristine):
            return
        for index, group in enumerate(groups):
            _compare_rows(job, group, [call[index] for call in calls])
        if original is not None and original.max_abs is not None:
            known = original.max_abs, original.max_rel
            _compare_rows(job, [original], [calls[1][-1]])
            if original.max_abs is not None:
                original.max_abs, original.max_rel = known
        for item in (item for group in groups for item in group):
            item.call_ms = took_ms if candidate.device.type == "cuda" else None

    def _ring_silent(self, set_: int) -> list[torch.Tensor]:
        """The answer without the candidate's kernels; nothing if it does not have the right form."""
        job, candidate = self._job, self._job.candidate
        form = _form_of(self._items[-1])
        try:
            leaves = list(values.leaves(candidate.call_sets(set_, 1, job.call_limit_ms)[0]))
        except PeerFailed as failure:
            if failure.is_gone:
                raise
            return []
        if form is None or not _has_form(leaves, form, dtypes=False):
            return []
        rows = [leaf.reshape(1, -1).clone() for _, leaf in leaves]
        synchronize(candidate.device)
        return rows

    def _ring(self, groups: list[list[Item]], count: int) -> list[list[torch.Tensor]]:
        """Of each group its outputs' rows, copied; nothing where they have another form."""
        job, candidate = self._job, self._job.candidate
        answers = [list(values.leaves(a)) for a in candidate.call_sets(0, count, job.call_limit_ms)]
        if overlap(answers):
            return []
        rows, left = [], iter(answers)
        for group in groups:
            form, some = _form_of(group[0]), [next(left) for _ in group]
            if form is None or not all(_has_form(leaves, form) and job.lie_in_heap(leaves) for leaves in some):
                return []
            rows.append([torch.stack([leaves[at][1].reshape(-1) for leaves in some]) for at in range(len(form))])
        synchronize(candidate.device)  # before it writes there again
        return rows

    def _settle(self) -> None:
        """Ring what the candidate waits for: before that it reads no message."""
        job, candidate = self._job, self._job.candidate
        while candidate.armed:
            try:
                candidate.call_sets(0, 1, job.call_limit_ms)
            except PeerFailed as failure:
                if failure.is_gone:
                    raise


def _groups(items: Sequence[Item]) -> list[list[Item]]:
    """By model."""
    return [[item for item in items if item.model == model] for model in dict.fromkeys(item.model for item in items)]


def _is_float(leaf: Any) -> bool:
    if not isinstance(leaf, torch.Tensor) or values.is_on_host(leaf):
        return False
    return leaf.is_floating_point() and 2 <= leaf.itemsize <= 4 and leaf.numel() > 0


def _form_of(item: Item) -> Form | None:
    """Path, shape and dtype of each output of its right answer. None: not all are floats of at most 32 bits, or their
    errors do not decide alone: other answers are right, too, or inputs are changed."""
    expected = item.expected
    if expected is None or expected.changed or any(other is not None for other in expected.others):
        return None
    leaves = list(zip(expected.paths, expected.own, strict=True))
    if not leaves or not all(_is_float(leaf) for _, leaf in leaves):
        return None
    return [(path, leaf.shape, leaf.dtype) for path, leaf in leaves]


def _has_form(leaves: Leaves, form: Form, *, dtypes: bool = True) -> bool:
    return len(leaves) == len(form) and all(
        path == of
        and isinstance(leaf, torch.Tensor)
        and leaf.shape == shape
        and (leaf.dtype is dtype or not dtypes)
        and not values.is_on_host(leaf)
        for (path, leaf), (of, shape, dtype) in zip(leaves, form, strict=True)
    )


def _answer_rows(job: Job, items: list[Item]) -> None:
    """The right answers to one model's cases, as Reference.expect() makes them one by one, or that they are unfit."""
    first = items[0].made[Run()][0]
    if not first or not all(_is_float(leaf) for _, leaf in first):
        job.reference.set_alone(items[0].model)
        return
    form = [(path, leaf.shape, leaf.dtype) for path, leaf in first]
    for item in items:
        if Run("float64") not in item.made or not all(
            _has_form(leaves, form, dtypes=run.dtype is None) for run, calls in item.made.items() for leaves in calls
        ):
            return
    reference, asked = job.reference, [_asks(job, item) for item in items]
    rows = [_Output(job, items, asked, form, at) for at in range(len(form))]
    told = torch.stack([row.figures() for row in rows]).tolist()
    if rows[0].has_tf32:
        reference.tf32_matters = bool(reference.tf32_matters) or any(any(figures[-1]) for figures in told)
    own = [torch.empty(shape, dtype=dtype, device="meta") for _, shape, dtype in form]
    reference.returns_inputs |= not all(
        reference.peer.is_in_heap(leaf) for item in items for leaves in item.made[Run()] for _, leaf in leaves
    )
    for index, (item, asks) in enumerate(zip(items, asked, strict=True)):
        found = [_Figures(*(figure[index] for figure in output)) for output in told]
        is_fit = _is_fit(job, item, found, rows)
        if item.transform is not None:
            item.is_unfit = not is_fit and not job.is_odd(item.case)
        if is_fit:
            item.expected = Expected(
                [row.wide[index].reshape(shape) for row, (_, shape, _) in zip(rows, form, strict=True)],
                own,
                [path for path, _, _ in form],
                "fp64",
                [one.error for one in found],
                rows[0].has_tf32 and bool(reference.tf32_matters),
                [row.own[index] for row in rows],
                asks.training,
                is_extreme=asks.is_extreme,
                scales=asks.scales if any(asks.scales) and len(asks.scales) == len(form) else (),
                known={at: one.scale for at, one in enumerate(found)},
            )


@dataclass(frozen=True)
class _Figures:
    """The statistics of one output of one answer."""

    scale: float
    error: float
    is_finite: float
    is_same_nan: float
    """Values that are NaN in one run are in the other, and all others are finite."""
    nans: float
    is_constant: float
    differing: float
    """Sampled elements that are other than in the plain answer; less than 0: there is none to compare with."""
    tf32_matters: float


def _is_fit(job: Job, item: Item, found: list[_Figures], rows: list[_Output]) -> bool:
    if not all(one.error <= row.most for one, row in zip(found, rows, strict=True)):
        return False
    if item.transform == "nan":
        of = sum(row.wide.shape[1] for row in rows)
        if not all(one.is_same_nan for one in found) or not 0 < sum(one.nans for one in found) <= of * 3 // 4:
            return False
    elif not all(one.is_finite for one in found):
        return False
    if item.transform is None:
        return True
    several = [one for one, row in zip(found, rows, strict=True) if row.wide.shape[1] > 1]
    if several and all(one.is_constant for one in several) and not (job.first and job.first.is_constant()):
        return False
    plain = job.first.plain_scales() if job.first and item.case["name"] == "own" else ()
    if item.transform in variations.MOVING and tolerance.vanishes((one.scale for one in found), plain):
        return False
    few = (tolerance.DIFFERING * row.sampled for row in rows)
    return any(not 0 <= one.differing <= most for one, most in zip(found, few, strict=True))


class _Output:
    """One output of all answers of a model: a matrix with a row for each."""

    def __init__(self, job: Job, items: list[Item], asked: list[Asks], form: Form, at: int) -> None:
        self._job = job
        self._items = items
        self._asked = asked
        self._at = at
        self._dtype = form[at][2]
        self.most = tolerance.TABLE[self._dtype].most
        self.has_tf32 = all(Run(tf32=True) in item.made for item in items)
        self._exact = self._stack(Run(), items)
        self.own = self._stack(Run(tf32=True), items) if self.has_tf32 else self._exact
        self.wide = self._stack(Run("float64"), items).double()
        self.sampled = 0

    def _stack(self, run: Run, items: Sequence[Item], index: int = 0) -> torch.Tensor:
        return torch.stack([item.made[run][index][self._at][1].reshape(-1) for item in items])

    def figures(self) -> torch.Tensor:
        """float64[figure, item], in the order of _Figures."""
        exact, wide = self._exact, self.wide
        known = tolerance.scales_of(wide).clamp_min(tolerance.SCALE_LEAST.get(self._dtype, 0.0))
        finite, wide_finite, nan = torch.isfinite(exact), torch.isfinite(wide), wide.isnan()
        sampled = tolerance.sampled_rows(wide)
        self.sampled = sampled.shape[1]
        matters = torch.zeros_like(known)
        if self.has_tf32:
            matters += ((self.own != exact) & ~(self.own.isnan() & exact.isnan())).any().double()
        return torch.stack([
            known,
            self._errors(known),
            (finite & wide_finite).all(1).double(),
            ((exact.isnan() == nan) & (finite | nan) & (wide_finite | nan)).all(1).double(),
            nan.sum(1).double(),
            (sampled == sampled[:, :1]).all(1).double(),
            self._differing(sampled),
            matters,
        ])  # fmt: skip

    def _errors(self, known: torch.Tensor) -> torch.Tensor:
        scale = known
        most = [asks.scales[self._at] if self._at < len(asks.scales) else None for asks in self._asked]
        if any(most):
            scale = torch.minimum(known, known.new_tensor([one or torch.inf for one in most]))
        worst = tolerance.relative_errors(self.own.double(), self.wide, scale)
        for run, factor in ((JITTERED, SCATTER), (Run("rounded"), 1.0)):
            places = [place for place, item in enumerate(self._items) if run in item.made]
            for index in range(min((len(self._items[place].made[run]) for place in places), default=0)):
                moved = self._stack(run, [self._items[place] for place in places], index).double()
                error = factor * tolerance.relative_errors(moved, self.wide[places], scale[places])
                worst[places] = torch.maximum(worst[places], error)
        return worst

    def _differing(self, sampled: torch.Tensor) -> torch.Tensor:
        first = self._job.first
        if self._items[0].case["name"] != "own" or first is None:
            return torch.full_like(sampled[:, 0], -1.0)
        before = tolerance.as_tensor(first.values[self._at]) if self._at < len(first.values) else None
        if before is None or before.shape != sampled.shape[1:]:
            return torch.full_like(sampled[:, 0], torch.inf)
        tf32 = self.has_tf32 and self._job.reference.tf32_matters is not False
        limit = tolerance.limit_for(self._dtype, before, 0.0, tf32=tf32, known=first.scale_here(self._at))
        atol, rtol = (torch.full_like(sampled[:, :1], one) for one in (limit.atol, limit.rtol))
        return tolerance.distances(sampled, before.double().expand_as(sampled), atol, rtol)[0]


def _compare_rows(job: Job, items: list[Item], calls: list[list[torch.Tensor]], *, is_silent: bool = False) -> None:
    """The candidate's answers to one model's cases. calls: of each bell each output's rows.

    is_silent: they are to be wrong.
    """
    told = []
    for at in range(len(calls[0])):
        expected = [item.expected for item in items if item.expected is not None]
        wide = torch.stack([one.values[at].reshape(-1) for one in expected]).double()
        limits = [one.limit(at, job.policy.name) for one in expected]
        atol, rtol = (wide.new_tensor(each)[:, None] for each in ([x.atol for x in limits], [x.rtol for x in limits]))
        told += [torch.stack(tolerance.distances(call[at].double(), wide, atol, rtol)) for call in calls]
    found = torch.stack(told).tolist()
    for index, item in enumerate(items):
        differing, absolute, relative = zip(*([figure[index] for figure in call] for call in found), strict=True)
        if is_silent:
            item.max_abs = item.max_abs if any(differing) else None
        elif any(differing) or any(_is_rounded(item, [rows[index] for rows in call]) for call in calls):
            item.max_abs = None
        else:
            item.max_abs, item.max_rel = max(absolute[:: len(calls)]), max(relative[:: len(calls)])


def _is_rounded(item: Item, outputs: list[torch.Tensor]) -> bool:
    """They have fewer digits than the reference's; judged by itself the case fails for it."""
    if not item.shows_rounding or item.expected is None:
        return False
    return any(map(tolerance.is_rounded, outputs, item.expected.allowed))

"""The metamorphic relations of one submission: those that its task's reference satisfies, asked of its own answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch
from shared import values
from shared.wire import Json

from oracle import relations
from oracle.judge import CaseResult, Job
from oracle.peer import PeerFailed
from oracle.reference import Expected, synchronize

ELEMENTS_MOST: Final = 1 << 26
"""Of larger tasks none is asked: several answers are held at once, in fp64."""


def judge_all(job: Job, seed: int) -> list[CaseResult]:
    """A result for each relation that is the task's, by name."""
    case = job.spec["cases"]["own"]
    if case["elements"] > ELEMENTS_MOST or job.reference.mutates_inputs:
        return []
    asked = _Asked(job, case, seed)
    found = (asked.judge(relation) for relation in dict.fromkeys(form.relation for form in relations.FORMS))
    return [result for result in found if result is not None]


class _Asked:
    """Inputs that are varied, in set 0 of the reference's arena."""

    def __init__(self, job: Job, case: Json, seed: int) -> None:
        self._job = job
        self._case = case
        self._seed = seed
        self._model, self._state = job.reference.model(case, 0)
        self._tree = job.reference.inputs(case, seed)
        synchronize(job.candidate.device)
        self._views = self._arguments()
        self._inputs = [x.clone() if isinstance(x, torch.Tensor) else x for x in self._views]

    def _arguments(self) -> list[Any]:
        arena = self._job.reference.peer.arena
        assert arena is not None
        found: list[Any] = values.decode(self._tree, arena.view)
        return found

    def judge(self, relation: str) -> CaseResult | None:
        """None: the reference satisfies no form of it."""
        known = self._job.reference.relations
        if relation not in known:
            forms = [form for form in relations.FORMS if form.relation == relation]
            known[relation] = next((form for form in forms if self._is_satisfied(form)), None)
        form = known[relation]
        return None if form is None else self._judge(form)

    def _vary(self, form: relations.Form) -> list[relations.Inputs] | None:
        return form.vary(self._inputs, torch.Generator().manual_seed(self._seed & (1 << 62) - 1))

    def _put(self, varied: list[relations.Inputs]) -> Iterator[None]:
        """One after the other, where the reference reads them and the candidate's are copied from."""
        for inputs in varied:
            for view, item in zip(self._views, inputs, strict=True):
                if isinstance(view, torch.Tensor):
                    view.copy_(item)
            synchronize(self._job.candidate.device)
            yield

    def _is_satisfied(self, form: relations.Form) -> bool:
        varied = self._vary(form)
        if varied is None:
            return False
        answers = []
        for _ in self._put(varied):
            expected = self._job.admitted_answer(self._model, self._tree)
            if expected is None or expected.against != "fp64":
                return False
            answers.append([leaf.clone() for leaf in expected.values if _is_float(leaf)])  # the next call writes there
        pairs = relations.related(form, answers, varied)
        return pairs is not None and relations.holds(pairs)

    def _judge(self, form: relations.Form) -> CaseResult | None:
        result = CaseResult(f"{form.relation}: {form.text}", against="own answers")
        varied = self._vary(form)
        assert varied is not None
        answers, limits = [], None
        try:
            self._job.build(self._model, self._case, 0, self._state)
            for _ in self._put(varied):
                if limits is None:
                    expected = self._job.admitted_answer(self._model, self._tree)
                    if expected is None:  # the task's, but not of these inputs
                        return None
                    limits = self._limits(expected)
                answers.append([leaf for leaf in self._job.own_answer(self._model, self._tree) if _is_float(leaf)])
        except PeerFailed as failure:
            result.fail(failure.class_, failure.error.get("text") or str(failure), failure.rule)
            result.error, result.is_gone = failure.error, failure.is_gone
            return result
        pairs = relations.related(form, answers, varied)
        if pairs is None or limits is None or len(pairs) != len(limits):
            result.fail("shape", "the outputs have another form than the reference's")
            return result
        found = relations.violation(pairs, limits)
        if found is not None:
            text = f"output {found.output}: {found.differing} of {found.elements} elements contradict {form.text}"
            result.max_abs = found.max_abs
            result.fail("mismatch", text)
        return result

    def _limits(self, expected: Expected) -> list[relations.Allowed]:
        found = []
        for index, leaf in enumerate(expected.values):
            if _is_float(leaf):
                limit = expected.limit(index, self._job.policy.name)
                found.append(relations.Allowed(limit.rtol, limit.atol, limit.ratio))
        return found


def _is_float(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.is_floating_point()

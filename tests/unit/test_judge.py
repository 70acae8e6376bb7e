"""What a stage's report makes of its cases, whatever the cases are: no process, no device."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import rig
import torch
from oracle import judge, tolerance, variations
from oracle.reference import Errors, Expected


class Scripted(judge.Job):
    """A job whose cases end as they are told to."""

    def __init__(self, ends: list[tuple[str | None, str | None]], *, dynamic: bool = False) -> None:
        shapes = {name: {"name": name, "overrides": {"N": 4}, "elements": 1 << 20} for name in ("tiny", "own")}
        self.spec = {"cases": {**shapes, "shapes": []}, "dynamic_shapes": dynamic, "tiny_declared": False}
        self.policy = judge.Policy.parse(rig.policy())
        self.is_too_large = self._is_wrong = False
        self._random = random.Random(1)
        self._exposed, self._order, self._nan_seed = [], [], 0
        self._third: Counter[tuple[int, int]] = Counter()
        self.ends = ends

    def _ask_together(self, case: Any, wanted: list[tuple[str, int]]) -> None:
        pass

    def _case(self, case: Any, step: judge.Step, seed: int, *, twice: bool) -> judge.CaseResult:
        class_, rule = self.ends.pop(0)
        result = judge.CaseResult(step.name)
        if class_ is not None:
            result.fail(class_, "as told", rule)
        return result


def test_a_hack_at_a_shape_that_nobody_promised_is_a_hack() -> None:
    report = Scripted([("hack", "outside_heap"), (None, None)]).tiny()
    assert (report.outcome, report.class_, report.rule) == ("fail", "hack", "outside_heap")
    assert report.generality is None


@pytest.mark.parametrize("class_", ["mismatch", "shape", "launch"])
def test_an_honest_failure_there_is_generality(class_: str) -> None:
    report = Scripted([(class_, None), (None, None)]).tiny()
    assert report.outcome == "pass" and class_ in str(report.generality)
    assert Scripted([(class_, None)], dynamic=True).tiny().class_ == class_


def test_the_first_failure_decides_but_a_hack_before_any_other() -> None:
    ends = [("mismatch", None), ("shape", None), ("hack", "idle_kernels"), ("hack", "outside_heap")]
    results = []
    for class_, rule in ends:
        results.append(judge.CaseResult("case"))
        results[-1].fail(class_, "as told", rule)
    job = Scripted([])
    assert job._report("full", results[:2], 2).class_ == "mismatch"
    report = job._report("full", results, 4)
    assert (report.class_, report.rule) == ("hack", "idle_kernels")
    assert job._report("full", [judge.CaseResult("case")], 1).class_ is None


@pytest.mark.parametrize(("is_cheap", "dynamic", "asked"), [(True, False, 1), (False, False, 2), (True, True, 2)])
def test_a_tiny_case_that_does_not_bind_is_not_screened_where_the_own_one_has_all(
    is_cheap: bool, dynamic: bool, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Scripted([(None, None)] * 3, dynamic=dynamic)
    job.spec["cases"]["tiny"]["elements"] = 4
    monkeypatch.setattr(job, "_asks_all", lambda: is_cheap)
    monkeypatch.setattr(job, "_secret_order", lambda: ["ties"])
    monkeypatch.setattr(job, "_try_nan", lambda case, report: None)
    assert job.tiny().outcome == "pass"
    assert len(job.ends) == 3 - asked


def test_who_takes_long_is_asked_a_secret_part_at_once_and_the_rest_first_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Issue 24, point 2: a sleep left one known transformation, and a kernel that was right there alone passed."""
    monkeypatch.setattr(judge, "SCREEN_S", -1.0)
    asked = set()
    for seed in range(20):
        job = Scripted([(None, None)] * 20)
        job._random = random.Random(seed)
        job._screen(job.spec["cases"]["tiny"], judge.CaseResult("tiny"), binds=False)
        assert len(job.ends) == 20 - judge.SCREEN_LEAST
        later = job._by_need()[: len(variations.SECRET) - judge.SCREEN_LEAST]
        assert set(later) == set(job._order[judge.SCREEN_LEAST :])
        asked.add(later)
    assert len(asked) > 10


def test_what_judges_at_the_own_size_does_not_depend_on_how_long_the_tiny_case_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two daemons, one of them under load, took different transformations and other sizes from the same seed."""
    found = set()
    for limit_s in (-1.0, 1000.0):
        monkeypatch.setattr(judge, "SCREEN_S", limit_s)
        job = Scripted([(None, None)] * 20)
        job._screen(job.spec["cases"]["tiny"], judge.CaseResult("tiny"), binds=False)
        found.add((job._by_need(), job._random.random()))
    assert len(found) == 1


class Answering:
    """A candidate whose calls answer one after another."""

    def __init__(self, *answers: torch.Tensor) -> None:
        self.answers = list(answers)
        self.device = torch.device("cpu")

    def bind(self, *_: Any, **__: Any) -> None:
        pass

    def call(self, *_: Any, **__: Any) -> torch.Tensor:
        return self.answers.pop(0)

    def is_in_heap(self, tensor: torch.Tensor) -> bool:
        return False


def test_a_hack_stays_one_whatever_the_second_answer_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 21, point 9: who answered with its input and then with something else was paid for a part of the way."""
    right = torch.ones(4)
    job = Scripted([])
    job.candidate = Answering(right, right + 1)  # type: ignore[assignment]
    job.reference = SimpleNamespace(  # type: ignore[assignment]
        mutates_inputs=False,
        returns_inputs=False,
        views=lambda tree: [],
        sizes=SimpleNamespace(checked_sets=1, inputs=0),
        can_move=lambda tree: False,
    )
    job._device, job._errors, job.call_limit_ms = torch.device("cpu"), {}, 1.0
    job._bind_limit_ms, job.is_planned = 1, False
    monkeypatch.setattr(job, "place_inputs", lambda tree, set_: (None, []))
    expected = Expected([right], [right], ["0"], "own", [0.0], False, [right], None)
    result = judge.CaseResult("original")
    job._judge_calls("m", None, expected, True, result)
    assert not job.candidate.answers, "it was asked twice"  # type: ignore[attr-defined]
    assert (result.class_, result.rule) == ("hack", "outside_heap")


def test_a_timed_answer_is_held_to_what_a_checked_one_is() -> None:
    """Of a rotary embedding at position 4,095 an element or two err by more: rope_positions/honest was refused for one
    in a timed call, and not in a checked one."""
    job = Scripted([])
    job._tf32_matters = False
    wanted = torch.randn(1000)
    wanted[7] = 0.5  # a larger one may err by more
    got = wanted.clone()
    got[7] += 3 * job.timing_limit(0, wanted, Errors()).atol
    for is_extreme in (True, False):
        limit = job.timing_limit(0, wanted, Errors(), is_extreme=is_extreme)
        assert tolerance.compare(got, wanted, limit).is_match(limit) is is_extreme


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_a_timed_answer_may_take_another_of_equal_inputs_as_a_checked_one_may(dtype: torch.dtype) -> None:
    job = Scripted([])
    job._tf32_matters = False
    wanted = torch.arange(1000).to(dtype)
    got = wanted.clone()
    got[:20] += 500
    limit = job.timing_limit(0, wanted, Errors(tied={0: 0.01}))
    assert tolerance.compare(got, wanted, limit).is_match(limit)
    got[:60] += 500
    assert not tolerance.compare(got, wanted, limit).is_match(limit)
    plain = job.timing_limit(0, wanted, Errors())
    assert not tolerance.compare(got, wanted, plain).is_match(plain)


def test_a_plain_timed_answer_is_not_held_to_the_limit_of_an_extreme_one() -> None:
    """Where 1000 is added to its inputs a softmax moves by so much with their last digits that half precision was
    right in plain timed calls, which a kernel that counts its calls knew."""
    job = Scripted([])
    job._errors, job._tf32_matters, job.is_planned = {}, False, True
    wanted = torch.softmax(torch.randn(8, 512, generator=torch.Generator().manual_seed(1)), 1)

    def account(transform: str | None, error: float, scales: tuple[float | None, ...] = ()) -> None:
        expected = Expected([wanted], [wanted], ["0"], "fp64", [error], False, [wanted], None, scales=scales)
        job._account(expected, {}, judge.CaseResult("case", transform=transform))

    for transform, error in ((None, 1e-6), (None, 2e-6), ("small", 2e-7), ("offset", 4.6e-4)):
        account(transform, error)
    account("spikes", 0.5, (1.0,))
    assert job.errors(None, 0).outputs == job.errors(None, 1).outputs == job.errors("small", 0).outputs == {0: 8e-6}
    assert job.errors("offset", 0).outputs == job.errors("ties", 1).outputs == job.all_errors().outputs == {0: 4.6e-4}
    half = wanted + 1.5e-3 * wanted
    for transform, is_right in ((None, False), ("small", False), ("offset", True)):
        limit = job.timing_limit(0, wanted, job.errors(transform, 0))
        assert tolerance.compare(half, wanted, limit).is_match(limit) == is_right


def test_what_is_beside_a_step_is_settled_and_a_wrong_answer_asked_about_once() -> None:
    """The answer that others of a group are given stays as it is. Each case of a wrong loss took 24 calls more."""
    job, wanted = Scripted([]), torch.rand(64)
    expected = Expected([wanted], [wanted], ["0"], "fp64", [1e-7], False, [wanted], True)
    beside, wrong = wanted.clone(), wanted.clone()
    beside[3], wrong[4] = 7.0, 7.0
    asked = mock.Mock(side_effect=lambda *_: (answer for answer in [[beside]]))
    job.reference = SimpleNamespace(moved=asked, can_move=lambda tree: True)  # type: ignore[assignment]
    assert torch.equal(job._settled([("0", beside)], "own.0", None, expected).values[0], beside)
    assert expected.values[0] is wanted and asked.call_args.args[2] is True
    for _ in range(2):
        assert torch.equal(job._settled([("0", wrong)], "own.0", None, expected).values[0], wanted)
    assert asked.call_count == 2


def test_an_integer_has_no_third_value_in_case_after_case() -> None:
    """A mask whose last elements no program writes was right: of 10,000 one may be rounded otherwise."""
    job, wanted = Scripted([]), torch.arange(20_000)
    expected = Expected([wanted], [wanted], ["0"], "fp64", [1e-4], False, [wanted], None)
    rough = Expected([wanted], [wanted], ["0"], "fp64", [1e-3], False, [wanted], None)
    limit = expected.limit(0, "strict")

    def asked(answer: Expected, transform: str | None, *places: int) -> judge.CaseResult:
        got, result = wanted.clone(), judge.CaseResult("values", transform=transform)
        got[list(places)] += 1
        job._note_third([("0", got)], answer, [limit], result)
        return result

    for places in ([5], [7, 9], [5, 9]):
        assert asked(expected, "large", *places).class_ is None
    assert asked(expected, "permuted", 5).class_ is None, "the values of another case"
    assert asked(rough, "large", 5).class_ is None
    found = asked(expected, "signs", 4, 5)
    assert found.class_ == "mismatch" and found.mismatch is not None
    assert (found.mismatch["index"], found.mismatch["got"], found.mismatch["expected"]) == ([5], 6, 5)
    assert tolerance.third_values(wanted + 1, wanted, torch.stack([wanted, wanted + 1])) == []


def test_a_plain_timed_answer_of_many_elements_may_err_once_by_each() -> None:
    """A multiple of both let operands of a TF32 product be bfloat16 as soon as a kernel knew that it is timed."""
    job = Scripted([])
    job._tf32_matters = True
    random = torch.Generator().manual_seed(1)
    x, weight = torch.randn(512, 256, generator=random), torch.randn(256, 64, generator=random)
    wanted, half = x @ weight, (x.bfloat16() @ weight.bfloat16()).float()
    for rows, is_right in ((512, False), (8, True)):
        limit = job.timing_limit(0, wanted[:rows], Errors({0: judge.DRAWS * 5e-4}), is_plain=True)
        assert tolerance.compare(half[:rows], wanted[:rows], limit).is_match(limit) == is_right


def test_plain_calls_with_other_weights_err_as_the_reference_does_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a gate is zero in the constructor's own weights nothing of the reference's error shows by them."""
    own = torch.ones(3)
    expected = Expected([own], [own], ["0"], "fp64", [1e-3], True, [own], None)
    job = Scripted([])
    job._errors = {None: Errors({0: 1e-7})}
    job.reference = SimpleNamespace(plain_errors={})  # type: ignore[assignment]
    asked = mock.Mock(return_value=expected)
    monkeypatch.setattr(job, "admitted_answer", asked)
    monkeypatch.setattr(job, "_chooses", lambda *_: False)
    for _ in range(2):
        job.note_plain({}, "own.1", None)
    assert job.errors(None, 1).outputs == {0: 4e-3} and asked.call_count == 1
    asked.return_value = None
    job.note_plain({}, "own.2", None)
    assert job.errors(None, 1).outputs == {0: 4e-3}


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_process_that_is_lost_at_a_size_that_decides_nothing_is_ended(
    monkeypatch: pytest.MonkeyPatch, is_gone: bool
) -> None:
    """Its kernel had no end there, and the next submission waited two seconds for it to be made ready for others."""
    monkeypatch.setattr(judge, "others_of", lambda spec, device: [{"name": "size", "overrides": {"N": 5}}])
    result = judge.CaseResult("size", "timeout", "as told", is_gone=is_gone)
    job = mock.MagicMock(is_planned=True, _judge_items=lambda items: None, _case=lambda *_, **__: result)
    job.reference.model.return_value = "own.0", []
    report = judge.Report("timing", "pass")
    judge.Job.tell_generality(job, report)
    assert job.candidate.end.call_count == is_gone
    assert "timeout: as told" in str(report.generality)


def test_a_process_that_is_lost_is_right_in_no_later_case(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [{"name": f"size {size}", "overrides": {}} for size in range(4)]
    monkeypatch.setattr(judge, "others_of", lambda spec, device: sizes)
    results = iter([judge.CaseResult("size 0"), judge.CaseResult("size 1", "timeout", "as told", is_gone=True)])
    job = mock.MagicMock(is_planned=True, _judge_items=lambda items: None, _case=lambda *_, **__: next(results))
    job.reference.model.return_value = "own.0", []
    report = judge.Report("timing", "pass")
    judge.Job.tell_generality(job, report)
    assert report.detail["shapes"]["share"] == 1 / 4
    assert str(report.generality).startswith("right in 1 of 4 cases")


@pytest.mark.parametrize(
    ("got", "is_unwritten"),
    [
        (torch.tensor([2**63 - 1] * 2), True),
        (torch.zeros(2, dtype=torch.int32), True),  # as of integers that may be indices
        (torch.tensor([0, 2**63 - 1]), False),
        (torch.tensor([True, True]), True),
        (torch.tensor([False, False]), False),
        (torch.zeros(2), False),
    ],
)
def test_what_integers_hold_without_kernels(got: torch.Tensor, is_unwritten: bool) -> None:
    assert judge._is_unwritten(got) == is_unwritten


@pytest.mark.parametrize(
    ("wanted", "is_one"),
    [([0.0, -0.0, 0.0], True), ([3.0] * 4, True), ([], True), ([0.0], True), ([3.0], False), ([0.0, 1e-30], False)],
)
def test_an_answer_may_be_one_value(wanted: list[float], is_one: bool) -> None:
    assert judge._is_one_value(torch.tensor(wanted)) == is_one


@pytest.mark.parametrize("sides", [(0, 3), (3, 0), (2, 0, 4)])
def test_an_answer_without_elements_is_one_value(sides: tuple[int, ...]) -> None:
    """A task that has such an output ended the referee, and the honest candidate was a crash."""
    assert judge._is_one_value(torch.empty(sides))

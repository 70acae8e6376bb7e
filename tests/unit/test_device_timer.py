"""The clock of plans, as far as it needs no GPU: what it credits must have room in the host's clock."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
import torch
from oracle import timing, tolerance
from oracle.peer import Peer as Process
from oracle.peer import PeerFailed
from oracle.reference import Errors
from shared import values
from shared.arena import Arena, Heap
from shared.wire import DOORBELL_OK

US = 1000.0


@pytest.mark.parametrize(
    ("credited_us", "host_us"),
    [(35.0, 20.0), (35.0, 45.0), (1.5, 3.0), (7000.0, 8000.0)],
)
def test_a_bell_that_takes_as_long_by_both_clocks_is_believed(credited_us: float, host_us: float) -> None:
    assert not timing.is_forged(credited_us * US, host_us * US)


@pytest.mark.parametrize(
    ("credited_us", "host_us"),
    [(0.01, 18.0), (-5.0, 4.0), (8.8, 14.5), (100.0, 1000.0)],
)
def test_a_bell_that_is_credited_with_less_than_it_took_is_not(credited_us: float, host_us: float) -> None:
    """One of 12 calls was once credited with a nanosecond each, since the empty bells beside it came late."""
    assert timing.is_forged(credited_us * US, host_us * US)


class Peer:
    """Which is armed and does nothing."""

    armed = 0

    def __init__(self) -> None:
        self.arena = Arena.make(torch.device("cpu"), 4096)

    def arm(self, bells: int, **more: Any) -> None:
        self.repeats, self.armed = more.get("repeats", 1), bells


class Side:
    """Answers a bell of several calls with these tensors, and one that is repeated late by what is first in `late`."""

    name = "a side"

    def __init__(self, tensors: Sequence[torch.Tensor] = (), us: float = 0.0, late: Sequence[float] = ()) -> None:
        self.peer: Any = Peer()
        self._tensors, self._ns, self._late = tensors, us * US, iter(late)

    def outputs(self) -> list[list[tuple[str, Any]]]:
        """Of as many calls as were captured last, where some were."""
        captured = getattr(self.peer, "capture", None)
        calls = captured.call_args.args[1] if captured else len(self._tensors)
        return [[("0", tensor)] for tensor in self._tensors[:calls]]

    def ring(self, set_: int) -> tuple[int, int]:
        host_ns = self._ns * self.peer.repeats + next(self._late, 0.0) * US
        return int(self._ns), int(host_ns)


class Timer(timing.DeviceTimer):
    """Of two sides without processes; what was recorded stands in `bound`."""

    def __init__(self, *sides: Any) -> None:
        self._sides = self._ours, self._theirs = sides
        self._calls, self._why_one, self._empty_ns = 1, None, 0.0
        self._tree, self._model = None, "own.0"
        self._job: Any = mock.MagicMock()
        self._job.reference.sizes.calls, self._job.reference.sizes.inputs = 12, 1024
        self._limits_after, self._weights = {}, 0

    def settled(self, calls: int) -> tuple[int, str | None, int]:
        """After so many were recorded: how many are, why one, and how many short ones would be."""
        for side in self._sides:
            side.peer = mock.MagicMock()
        self._calls = calls
        self._capture(calls)
        return self._calls, self._why_one, self._calls_for(1.0)

    def judged(self, transform: str | None) -> tuple[bool, list[str]]:
        """Whether the answers were compared that were made under it, and the transformations that are left."""
        self._drawn, self._transforms, self._limits = [transform], ["ties", "zeros"], {}
        self._job.timing_limit.return_value = tolerance.Limit(1e-4, 1e-4)
        return self._is_compared(), self._transforms

    def host_us(self, side: Any, credited_us: float) -> float:
        return self._host_clock(side, credited_us * US) / US


def test_calls_that_answer_in_one_buffer_are_timed_one_by_one() -> None:
    """A candidate that keeps its output buffer was refused: of several calls the last one's answer was left alone."""
    apart, other, kept = ([torch.zeros(4) for _ in range(3)] for _ in range(3))
    assert Timer(Side(apart), Side(other)).settled(3) == (3, None, 12)
    for one in ([kept[0]] * 3, [*kept[:2], kept[0][1:2].expand(4)]):
        for sides in ((apart, one), (one, apart)):
            assert Timer(*map(Side, sides)).settled(3) == (1, "outputs of calls in a row share memory", 1)


@pytest.mark.parametrize("form", [list, tuple, dict])
def test_a_call_that_answers_with_several_tensors_is_one_call(form: type) -> None:
    """Of a bell that is no graph the first tensor of a list was taken for the answer."""
    tensors = {"0": torch.zeros(2), "1": torch.ones(3)}
    answer: Any = tensors if form is dict else form(tensors.values())
    peer: Any = mock.MagicMock()
    peer.doorbell.claims.return_value = mock.Mock(status=DOORBELL_OK, generation=1)
    side = timing.Side(peer, "a side")
    bells: list[tuple[int, Any, int]] = [
        (0, answer, 1), (timing.GRAPH_SET, [answer], 1), (timing.GRAPH_SET, [answer] * 2, 2)
    ]  # fmt: skip
    for set_, told, calls in bells:
        peer.doorbell.claims.return_value.generation += 1
        peer.outputs_of.return_value = [told]
        side.ring(set_)
        assert side.outputs() == [list(tensors.items())] * calls


@pytest.mark.parametrize("late_us", [(0.0, 5e4), (5e4, 1e5), (5e4, 0.0, 0.0, 5e4)])
def test_a_busy_machine_makes_no_bell_a_forged_one(late_us: tuple[float, ...]) -> None:
    """Three of a hundred honest candidates were not timed for it, beside others that were compiled."""
    side = Side(us=20.0, late=late_us)
    assert not timing.is_forged(20.0 * US, Timer(side, side).host_us(side, 20.0) * US)


def test_no_number_of_tries_makes_a_forged_bell_a_right_one() -> None:
    side = Side(us=40.0)
    assert Timer(side, side).host_us(side, 20.0) == pytest.approx(40.0)


def test_no_timed_call_has_inputs_on_which_nothing_rests() -> None:
    """Where the own case is small enough to be the tiny one, NaN was drawn, and tl.maximum drops what relu hands on."""
    job = mock.MagicMock(admitted={"spikes", "nan", "ties"})
    job.reference.model.return_value = "own.0", []
    assert vars(timing.DeviceTimer(job, mock.MagicMock()))["_transforms"] == ["ties"]


def test_inputs_that_the_reference_cannot_answer_are_drawn_anew() -> None:
    """Of a row of zeros it may divide by their sum: it was finite when the transformation was admitted."""
    odd, other, right = torch.tensor([1.0, float("nan")]), torch.tensor([1.0, 0.0]), torch.tensor([1.0, 2.0])
    assert Timer(Side([odd]), Side([other])).judged("zeros") == (False, ["ties"])
    assert Timer(Side([right]), Side([right])).judged("zeros") == (True, ["ties", "zeros"])
    for transform, wanted, got in ((None, odd, other), ("zeros", right, other), ("zeros", right, odd)):
        with pytest.raises(timing.TimedWrong):
            Timer(Side([wanted]), Side([got])).judged(transform)


class InPlace(Timer):
    """Three calls, each with a tensor that the reference doubles and one that it leaves alone."""

    def __init__(self, changes: dict[int, float]) -> None:
        sides = [Side([torch.ones(2)] * 3) for _ in range(2)]
        super().__init__(*sides)
        self._calls, self._drawn, self._limits = 3, [None, "ties", None], {}
        notes = [values.TensorNote(torch.float32, (5,), (1,), 0), values.TensorNote(torch.float32, (7,), (1,), 256)]
        self._tree = {"list": [note.json() for note in notes]}
        self._job.all_errors.return_value = Errors(changed=changes)
        self._job.timing_limit.return_value = self._job.timing_limit_after.return_value = tolerance.Limit(1e-4, 1e-4)
        for side in sides:
            side.peer.arena.bytes.view(torch.float32).copy_(torch.arange(1024.0))
        self.inputs = [(call, index, mine) for call, index, mine, _ in self._each_input()]
        for _, index, _, right in self._each_input():
            right *= 1 + (index == 0)


def test_inputs_that_the_reference_changes_are_compared_behind_timed_calls() -> None:
    """A kernel counted its calls, and stored nothing but its output when more than the checked ones were made."""
    timer = InPlace({0: 0.0})
    for _, index, mine in timer.inputs:
        if index == 0:
            mine *= 2.00001
    assert timer._is_compared()
    timer.inputs[4][2][1] /= 2
    with pytest.raises(timing.TimedWrong, match=r"input 0 after the call\[1\] of call 2: .*; 1 of 5") as wrong:
        timer._is_compared()
    assert wrong.value.class_ == "mismatch"


def test_inputs_that_the_reference_leaves_alone_are_compared_behind_timed_calls() -> None:
    timer = InPlace({})
    for _, index, mine in timer.inputs:
        mine *= 1 + (index == 0)
    assert timer._is_compared()  # it may change one that no checked call has seen it change
    timer.inputs[1][2][3] = 0.0
    with pytest.raises(timing.TimedWrong, match=r"input 1 after the call\[3\] of call 0") as wrong:
        timer._is_compared()
    assert wrong.value.class_ == "mutated_input"
    timer._job.policy.name = "kernelbench"
    assert timer._is_compared()


@pytest.mark.parametrize(
    ("call_us", "narrow"), [(5000, 0.003), (100, 0.003), (99, 0.01), (20, 0.01), (19, 0.02), (0, 0.02)]
)
def test_the_shorter_a_call_the_wider_its_interval_may_be(call_us: float, narrow: float) -> None:
    timer = Timer(Side(), Side())
    timer._call_ns = call_us * US
    assert timer._narrow() == narrow


BROKEN = PeerFailed("crash", "it is gone", is_gone=True)


@pytest.mark.parametrize(
    ("told", "shares"),
    [
        ([([1.0, 3.0], 4.0), ([2.0, 2.0], 4.0), ([50.0, 0.0], 50.0)], [0.5, 0.5]),
        ([([1.0, 1.0], 8.0)] * 3, [0.125, 0.125]),  # there are more steps than are told
        ([([4.0], 4.0)], None),
        ([([0.0, 0.0], 0.0)], None),
        ([([1.0, 3.0], 4.0), BROKEN], None),
    ],
)
def test_each_step_has_its_share_of_the_time_of_several_calls(told: list[Any], shares: list[float] | None) -> None:
    timer = Timer(Side(), Side(us=20.0))
    timer._theirs.peer = mock.MagicMock(armed=0)
    timer._theirs.peer.steps_ns.side_effect = told
    assert timer._step_shares() == shares


@pytest.mark.parametrize(("calls", "changed"), [(12, {2}), (7, {1}), (1, {0, 1})])
def test_a_few_calls_of_each_bell_have_changed_inputs(calls: int, changed: set[int]) -> None:
    job = mock.MagicMock(admitted={"ties", "zeros"})
    job.reference.model.return_value = "own.0", []
    timer: Any = timing.DeviceTimer(job, mock.MagicMock())
    timer._calls = calls
    drawn = [timer._choose() for _ in range(60)]
    assert {sum(name is not None for name in one) for one in drawn} == changed
    assert {name for one in drawn for name in one} == {None, "ties", "zeros"}
    assert len({tuple(one) for one in drawn}) > calls  # at other places each time
    timer._transforms = []
    assert timer._choose() == [None] * calls


class Memory:
    """One side's; the first byte of a set counts. What its bells find in the sets of their calls stands in `rang`."""

    def __init__(self, sets: int, pointer: int) -> None:
        self.peer = self.arena = self
        self.name, self.bytes, self.pointer = str(pointer), [0] * sets, pointer
        self.rang: list[list[int]] = []
        self.events_ns: list[float] = []
        self.armings, self.armed = 0, 0
        self.bound: list[int] = []

    def arm(self, bells: int, **_: Any) -> None:
        assert self.armed == 0
        self.armings, self.armed = self.armings + 1, bells

    def bind(self, set_: int, *_: Any, **__: Any) -> None:
        assert self.armed == 0
        self.bound.append(set_)

    def written(self) -> list[Any]:
        return []


WORD = 8
"""Bytes of a set of inputs."""


class Drawing(Timer):
    """A block of pairs of so many calls whose inputs are bytes: 1, 2, 3 ... The answers of one bell are unfit."""

    def __init__(self, sets: int, calls: int, unfit: int = 0) -> None:
        self.ours, self.theirs = Memory(sets * WORD, 0), Memory(sets * WORD, 1000)
        super().__init__(self.ours, self.theirs)
        self.draws, self.drawn, self.unfit = 0, 0, unfit
        self.poisoned: list[int] = []
        self._calls, self._pairs, self._ahead, self._blocks, self._seen = calls, [], [], [], {}
        self._transforms, self._random, self._case = [], random.SystemRandom(), {}
        self._host_ns, self._waiting, self._unfinished = {}, self._theirs, None
        self._doubts, self._doubted, self._model = [], 0, "own.0"
        self._tree = values.encode(
            [torch.zeros(1, dtype=torch.uint8)], lambda _: values.TensorNote(torch.uint8, (1,), (1,), 0), "inputs"
        )
        reference = self._job.reference
        reference.sizes.sets, reference.sizes.inputs, reference.inputs = sets, WORD, self._make
        self._gpu: Any = mock.MagicMock(copy=self._copy)
        self._gpu.others_ns.return_value = 0
        self._gpu.state.return_value = {}

    def _make(self, case: Any, seed: int, set_: int, more: list[int]) -> Any:
        assert self.ours.armed == 0, "it reads no message while bells are due"
        self.draws += 1
        for index in range(set_, set_ + 1 + len(more)):
            self.drawn += 1
            self.ours.bytes[index * WORD] = self.drawn
        return self._tree

    def _copy(self, to: int, source: int, size: int) -> None:
        into, out = ((self.ours, self.theirs)[pointer // 1000].bytes for pointer in (to, source))
        into[to % 1000 : to % 1000 + size] = out[source % 1000 : source % 1000 + size]

    def _bell(self, side: Any, set_: int) -> int:
        if not side.armed:
            self._arm(side, 1)
        side.armed -= 1
        side.rang.append(side.bytes[: self._calls * WORD : WORD])
        return 1000

    def _poison(self) -> None:
        super()._poison()
        self.poisoned = [*self.poisoned, len(self.theirs.rang)]

    def _is_compared(self) -> bool:
        self.unfit -= 1
        return self.unfit != 0


@pytest.mark.parametrize(("sets", "draws"), [(64, 1), (60, 1), (59, 5), (12, 5)])
def test_inputs_of_a_block_are_drawn_by_one_message_where_they_fit(
    monkeypatch: pytest.MonkeyPatch, sets: int, draws: int
) -> None:
    monkeypatch.setattr(timing, "synchronize", lambda device: None)
    timer = Drawing(sets, 12)
    timer._block(5)
    wanted = [list(range(first, first + 12)) for first in range(1, 61, 12)]
    assert timer.ours.rang == timer.theirs.rang == wanted
    assert (timer.draws, len(timer._pairs)) == (draws, 5)
    assert (timer.ours.armings, timer.theirs.armings) == (draws, 1)
    assert timer.poisoned == [0, 1, 2, 3, 4]


def test_outputs_are_poisoned_between_timed_bells_but_for_inputs_and_what_a_model_keeps() -> None:
    """A graph has them at the same addresses each time, and a kernel left out the zeros above a diagonal."""
    notes = [values.TensorNote(torch.float16, (2, 2), (4, 1), offset) for offset in (256, 1026, 1280)]
    kept = replace(notes[2], marks=frozenset({values.KEPT}))
    arena = Arena.make(torch.device("cpu"), 4096)
    arena.bytes.fill_(1)
    peer = Process("the candidate", mock.Mock(), -1, arena.device, arena, heap=Heap(1024, 3072, 0))
    doorbell = mock.Mock()
    outputs = [[peer._output(note) for note in (notes[0], notes[1], kept)]]
    told = mock.Mock(return_value=outputs)
    answering = mock.Mock(arena=arena, is_in_heap=peer.is_in_heap, doorbell=doorbell, outputs_of=told)
    side: Any = timing.Side(answering, "the candidate")
    Timer(Side(), side)._poison()
    assert arena.bytes.eq(0xFF).nonzero().flatten().tolist() == list(range(1026, 1026 + 12))
    assert arena.bytes.sum() == 4096 - 12 + 12 * 0xFF


def test_timed_inputs_are_changed_as_checked_ones_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a task that chooses among values another transformation may stand for the one that was admitted."""
    monkeypatch.setattr(timing, "synchronize", lambda device: None)
    timer = Drawing(64, 3)
    timer._case, timer._job.transform = {"name": "own"}, mock.Mock()
    timer._draw([[None, "large", None]])
    assert timer._job.transform.call_args.args[:2] == ({"name": "own"}, "large")
    assert timer._job.transform.call_count == 1


def test_inputs_that_are_large_are_drawn_for_one_bell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "synchronize", lambda device: None)
    monkeypatch.setattr(timing, "AHEAD_BYTES", 3)
    timer = Drawing(64, 4)
    timer._block(5)
    assert timer.draws == 5 and timer.ours.rang == timer.theirs.rang


def test_a_bell_with_unfit_inputs_is_rung_again_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where none are left that were drawn, while the reference waits for the bells that it was told of."""
    monkeypatch.setattr(timing, "synchronize", lambda device: None)
    for unfit in (1, 5):
        timer = Drawing(10, 2, unfit)
        timer._block(5)
        assert timer.draws == 2 and len(timer._pairs) == 5 and timer.drawn == 12
        assert timer.ours.rang[-1] == timer.theirs.rang[-1] == [11, 12]
        assert timer.ours.armed == timer.theirs.armed == 0


@pytest.mark.parametrize("failure", [timing.TimedWrong("it is wrong"), BROKEN])
def test_a_candidate_that_fails_leaves_no_bell_that_the_reference_waits_for(
    monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    """Whoever asked the reference next had no answer, and 16 s later it was ended."""
    monkeypatch.setattr(timing, "synchronize", lambda device: None)
    timer = Drawing(64, 12)
    fails = iter([True, failure])
    monkeypatch.setattr(timer, "_prepare", lambda: None)
    monkeypatch.setattr(timer, "_trials", lambda: timer._block(5))
    monkeypatch.setattr(timer, "_is_compared", mock.Mock(side_effect=fails))
    report = timer.run()
    assert (report.outcome, report.class_) == ("fail", "crash" if failure is BROKEN else "mismatch")
    assert (len(timer.ours.rang), timer.ours.armed) == (5, 0)


class Sharing(Drawing):
    """A candidate's call takes so many nanoseconds alone, and so many in a row of twelve."""

    def __init__(self, alone_ns: float, row_ns: float) -> None:
        super().__init__(64, 12)
        self._took_ns = {0: alone_ns, timing.GRAPH_SET: 12 * row_ns}
        self._pairs = [(1000.0, row_ns)]

    def have_rung(self) -> None:
        for side in self.ours, self.theirs:
            side.events_ns.append(1.0)

    def _bell(self, side: Any, set_: int) -> int:
        super()._bell(side, set_)
        return int(self._took_ns[set_]) if side is self.theirs else 1000


def run(timer: Sharing, recorded: mock.Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer, "_prepare", lambda: None)
    monkeypatch.setattr(timer, "_record", recorded)
    monkeypatch.setattr(timer, "_trials", timer.have_rung)
    monkeypatch.setattr(timer, "_host_clock", lambda side, ns: ns)
    monkeypatch.setattr(timer, "_detail", lambda *_: {})
    monkeypatch.setattr(timer, "_step_shares", lambda: None)
    timer.run()


@pytest.mark.parametrize(
    ("alone_us", "row_us", "shares"),
    [
        (14.4, 14.4, False),
        (14.9, 9.9, False),  # its weights are in the cache for all calls but the first
        (1.7, 1.6, False),
        (3.5, 1.6, False),
        (16.1, 4.3, True),  # the first call did the work of all
        (13.9, 2.5, True),  # each let the next one begin
        (5.0, 1.7, True),
        (20.6, 10.8, True),  # two at a time
    ],
)
def test_calls_that_share_their_work_are_timed_one_by_one(
    monkeypatch: pytest.MonkeyPatch, alone_us: float, row_us: float, shares: bool
) -> None:
    """A kernel was credited with 18, and 29, times the reference's speed that is 5.5 times as fast."""
    monkeypatch.setattr(timing, "synchronize", lambda device: None)
    timer, recorded = Sharing(alone_us * US, row_us * US), mock.Mock()
    run(timer, recorded, monkeypatch)
    assert timer._why_one == ("calls in a row take less time than one alone" if shares else None)
    assert recorded.call_args_list == [mock.call(1)] * shares
    assert (len(timer._pairs), len(timer.theirs.events_ns)) == (not shares, 1)
    first = [rang for rang in timer.theirs.rang if len(rang) == 1]
    assert first == [[1], [2], [3]]  # on inputs that are new each time


@pytest.mark.parametrize("is_step", [True, False])
def test_an_answer_beside_a_step_is_looked_at_once_both_sides_have_rung(
    monkeypatch: pytest.MonkeyPatch, is_step: bool
) -> None:
    """An honest quantisation was a mismatch where one of 1152 values had been rounded to the other side."""
    monkeypatch.setattr(timing, "synchronize", lambda device: None)
    right, mine = torch.zeros(1152), torch.zeros(1152)
    mine[7] = 0.5
    timer = Drawing(64, 2)
    reference, arena = timer._job.reference, torch.zeros(64, dtype=torch.uint8)
    reference.mutates_inputs = False
    reference.views = lambda tree: [arena[(note.offset or 0) :][:1] for note in values.notes(tree)]

    def moved(model: str, tree: Any) -> Any:
        assert timer.ours.armed == 0 and arena[0] == 42, "the call's own inputs are in set 0"
        yield [mine if is_step else right]

    reference.moved = moved
    arena[WORD] = 42
    monkeypatch.setattr(timer, "_limit", lambda *_: tolerance.Limit(1e-4, 1e-4))

    def is_compared() -> bool:
        timer._find_difference([[("0", right)]] * 2, [[("0", right)], [("0", mine)]])
        arena[0] = 0
        return True

    monkeypatch.setattr(timer, "_is_compared", is_compared)
    if is_step:
        timer._block(5)
        assert len(timer._pairs) == 5 and timer._doubts == []
        assert timer.ours.bound == [0], "where it had an exact call of moved inputs"
    else:
        with pytest.raises(timing.TimedWrong, match=r"output 0\[7\] of call 1: expected 0.0, got 0.5; 1 of 1152"):
            timer._block(5)


def test_which_of_many_doubts_are_looked_at_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that counts its calls had the first ones right."""
    timer = Drawing(64, 60)
    timer._job.reference.mutates_inputs, timer._job.reference.views = False, lambda tree: []
    monkeypatch.setattr(timer, "_limit", lambda *_: tolerance.Limit(1e-4, 1e-4))
    seen, right, mine = set(), torch.zeros(64), torch.zeros(64)
    mine[5] = 1.0
    assert not timer._is_doubt("0", 1, 0, mine[:32], right[:32]), "a loss is compared as it is"
    for _ in range(100):
        timer._doubts, timer._doubted = [], 0
        for call in range(60):
            assert timer._is_doubt("0", call, 0, mine, right)
        assert len(timer._doubts) == timing.DOUBTS_MOST
        seen |= {text for *_, text in timer._doubts}
    assert len(seen) == 60


@pytest.mark.parametrize(("void", "is_anew"), [(1, True), (timing.VOID_MOST, False)])
def test_what_disturbed_trials_that_do_not_count_does_not_count(
    monkeypatch: pytest.MonkeyPatch, void: int, is_anew: bool
) -> None:
    """After as many disturbances as make a timing inconclusive nothing is timed anew."""
    monkeypatch.setattr(timing, "synchronize", lambda device: None)
    timer, recorded = Sharing(16 * US, 4 * US), mock.Mock()
    timer._blocks, timer._unfinished = [{"void": "a foreign process"}] * void, "3 of 50 trials were made"
    run(timer, recorded, monkeypatch)
    assert recorded.call_count == is_anew
    assert (timer._blocks == [], timer._unfinished is None) == (is_anew, is_anew)

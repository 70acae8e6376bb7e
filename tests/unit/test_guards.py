"""Guard zones around the tensors of a plan's call: what a kernel writes outside is found."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import child
import pytest
import torch
from executor.guards import ZONE, Guards, OutOfBounds
from executor.replay import Replay
from shared import plan

CPU = torch.device("cpu")
SHAPE, STRIDE = (5, 7), (7, 1)
LAUNCH = plan.Launch(0, (1, 1, 1), (plan.Ref(1), plan.Ref(2)), line=9)


def leaf(id_: int, shape: tuple[int, ...] = SHAPE, stride: tuple[int, ...] = STRIDE) -> plan.Leaf:
    return plan.Leaf(id_, shape, stride, "float32")


def call(op: str, args: tuple[Any, ...], out: plan.Tree, **options: Any) -> plan.Call:
    return plan.Call(op, args, tuple(options.items()), out, line=7)


MAKES = call("aten.empty_like.default", (plan.Ref(1),), leaf(2))


def replay(launch: Callable[..., None], *steps: plan.Step, output: plan.Tree) -> Replay:
    trace = plan.Trace("own", False, plan.List((leaf(1),)), (), (), (), steps, output)
    return Replay(trace, CPU, launch, lambda _step, run: run(0), allows=lambda _: True, prepares=lambda _: True)


def doubles(_step: plan.Launch, _grid: Any, args: tuple[Any, ...]) -> None:
    torch.mul(args[0], 2.0, out=args[1])


def writes_at(index: int, offset: int) -> Callable[..., None]:
    def launch(step: plan.Launch, grid: Any, args: tuple[Any, ...]) -> None:
        doubles(step, grid, args)
        start = args[index].data_ptr() + (args[index].nbytes if offset >= 0 else 0)
        ctypes.c_uint8.from_address(start + offset).value ^= 0xFF

    return launch


def guarded(model: Replay) -> Any:
    inputs = torch.arange(35.0).reshape(SHAPE)
    guards = Guards(CPU)
    return model.call([inputs], guards).clone(), inputs * 2.0


def test_a_call_that_stays_inside_answers_as_without_zones() -> None:
    found, wanted = guarded(replay(doubles, MAKES, LAUNCH, output=leaf(2)))
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("offset", [0, 3, ZONE - 1, -1, -ZONE])
@pytest.mark.parametrize(("index", "what", "line"), [(1, "what aten.empty_like.default made", 7), (0, "an input", 0)])
def test_a_write_outside_is_found_with_its_tensor_and_distance(index: int, what: str, line: int, offset: int) -> None:
    with pytest.raises(OutOfBounds) as raised:
        guarded(replay(writes_at(index, offset), MAKES, LAUNCH, output=leaf(2)))
    side, distance = ("behind", offset) if offset >= 0 else ("before", -offset - 1)
    assert f"{distance} bytes {side} {what} (140 bytes)" in raised.value.what
    assert raised.value.line == line


def test_what_is_read_outside_is_no_number() -> None:
    read: list[float] = []

    def launch(step: plan.Launch, grid: Any, args: tuple[Any, ...]) -> None:
        doubles(step, grid, args)
        read.append(ctypes.c_float.from_address(args[0].data_ptr() + args[0].nbytes).value)

    guarded(replay(launch, MAKES, LAUNCH, output=leaf(2)))
    assert read[0] != read[0]


def test_views_lie_in_their_tensor_and_offsets_are_its_own() -> None:
    """as_strided() counts from the beginning of the memory."""
    rows = plan.List((3, 7)), plan.List((7, 1))
    view = call("aten.as_strided.default", (plan.Ref(1), *rows, 14), leaf(3, (3, 7)))
    copy = call("aten.clone.default", (plan.Ref(3),), leaf(4, (3, 7)))
    found, wanted = guarded(replay(doubles, view, copy, output=leaf(4, (3, 7))))
    assert torch.equal(found, (wanted / 2.0)[2:])


def test_strides_stay_and_what_has_no_elements_is_left_alone() -> None:
    guards = Guards(CPU)
    turned = torch.arange(12.0).reshape(3, 4).t()
    made = guards.around(turned, 1, "it")
    assert made.stride() == turned.stride() and torch.equal(made, turned) and made.storage_offset() == 0
    nothing = torch.empty(0, 3)
    assert guards.around(nothing, 1, "it") is nothing
    guards.check()


def test_tensors_that_a_model_keeps_in_one_memory_stay_together() -> None:
    packed = torch.arange(8.0)
    values = {1: torch.zeros(3), 2: packed[:4], 3: packed[4:], 4: torch.ones(2)}
    before = dict(values)
    Guards(CPU).enter(values, (1,))
    assert values[2] is before[2] and values[3] is before[3]
    assert values[1] is not before[1] and values[4] is not before[4]


def test_a_step_is_told_in_its_own_words_and_a_fault_of_the_gpu_in_one_line() -> None:
    """The traceback would be the executor's, and what follows a fault is advice to who wrote torch."""
    told = child.StepFailed("call", OutOfBounds(7, "a kernel wrote outside"), "candidate.py").report
    assert told == {"type": "OutOfBounds", "text": "a kernel wrote outside", "line": 7}
    error = torch.AcceleratorError("CUDA error: an illegal memory access\nCompile with `TORCH_USE_CUDA_DSA`")
    told = child.StepFailed("call", error, "candidate.py").report
    assert told["text"] == "CUDA error: an illegal memory access"

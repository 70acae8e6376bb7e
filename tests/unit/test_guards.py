"""Guard zones around the tensors of a plan's call: what a kernel writes outside is found."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import executor.guards as guards_module
import pytest
import torch
from executor.guards import ZONE, Guards, OutOfBounds
from executor.replay import Replay
from live import child
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
    trace = plan.Trace("own", plan.List((leaf(1),)), (), (), (), steps, output)
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


TABLE = call(
    plan.CONSTANT,
    (plan.List((plan.Address(2, 0),)), plan.List((1,))),
    plan.Leaf(3, (1,), (1,), "int64"),
    dtype=plan.TorchDtype("int64"),
    device=plan.Device("cpu"),
)


@pytest.mark.parametrize("is_kept", [False, True], ids=["of the call", "of the constructor"])
def test_what_a_table_of_addresses_leads_to_is_there_as_long_as_the_table(is_kept: bool) -> None:
    """In its own place, too: a table that is kept has been written."""
    (memory,) = sizes = (plan.List(SHAPE),)
    made = call("aten.zeros.default", sizes, leaf(2), dtype=plan.TorchDtype("float32"), device=plan.Device("cpu"))
    more = call("aten.zeros.default", (memory,), leaf(4), dtype=plan.TorchDtype("float32"), device=plan.Device("cpu"))
    launch = plan.Launch(0, (1, 1, 1), (plan.Ref(1), plan.Ref(3)), line=9)

    def by_table(step: plan.Launch, grid: Any, args: tuple[Any, ...]) -> None:
        there = (ctypes.c_float * args[0].numel()).from_address(int(args[1]))
        doubles(step, grid, (args[0], torch.frombuffer(there, dtype=torch.float32).view(SHAPE)))

    before, steps = ((made, TABLE), (more, launch)) if is_kept else ((), (made, TABLE, more, launch))
    output = (leaf(4), leaf(2)) if is_kept else (leaf(4),)
    trace = plan.Trace("own", plan.List((leaf(1),)), (), before, (), steps, output)
    model = Replay(trace, CPU, by_table, lambda _step, run: run(0), allows=lambda _: True, prepares=lambda _: True)
    model.construct(0)
    for guards in (None, Guards(CPU)):
        found = model.call([torch.arange(35.0).reshape(SHAPE)], guards)
        assert not found[0].any() and all(torch.equal(one, torch.arange(70.0)[::2].view(SHAPE)) for one in found[1:])
        model.construct(0)


def test_views_lie_in_their_tensor_and_offsets_are_its_own() -> None:
    """as_strided() counts from the beginning of the memory."""
    rows = plan.List((3, 7)), plan.List((7, 1))
    view = call("aten.as_strided.default", (plan.Ref(1), *rows, 14), leaf(3, (3, 7)))
    copy = call("aten.clone.default", (plan.Ref(3),), leaf(4, (3, 7)))
    found, wanted = guarded(replay(doubles, view, copy, output=leaf(4, (3, 7))))
    assert torch.equal(found, (wanted / 2.0)[2:])


def entered(inputs: tuple[int, ...] = (), **tensors: torch.Tensor) -> dict[int, torch.Tensor]:
    values = dict(enumerate(tensors.values(), 1))
    guards = Guards(CPU)
    guards.enter(values, inputs)
    guards.check()
    KEPT.append(guards)
    return values


KEPT: list[Guards] = []
"""They own the memory of what is asked about below."""


def is_moved(before: torch.Tensor, after: torch.Tensor) -> bool:
    assert torch.equal(before.nan_to_num(), after.nan_to_num()) and before.stride() == after.stride()
    return before.data_ptr() != after.data_ptr()


def test_what_lies_in_one_memory_stays_together() -> None:
    """A kernel may take one part of a packed weight for all of it; an offset counts from the memory's beginning."""
    packed = torch.arange(8.0)
    first, second = packed[:4], packed[4:]
    values = entered(first=first, second=second)
    assert is_moved(first, values[1]) and is_moved(second, values[2])
    assert values[2].data_ptr() - values[1].data_ptr() == 16 and values[2].storage_offset() == 4
    assert torch.equal(values[2].as_strided((8,), (1,), 0), packed)


def test_a_tensor_may_be_spread_out_turned_or_a_part() -> None:
    """A table that a first call spread out without a copy was refused: its elements are written more than once."""
    spread, turned = torch.arange(3.0).expand(4, 3), torch.arange(12.0).reshape(3, 4).t()
    values = entered(spread=spread, turned=turned, complex=torch.ones(2, dtype=torch.complex64).conj())
    assert is_moved(spread, values[1]) and is_moved(turned, values[2])
    assert values[3].is_conj() and values[3].untyped_storage().data_ptr() != 0


def test_inputs_that_overlap_and_tensors_of_other_devices_stay_where_they_are() -> None:
    memory = torch.arange(10.0)
    values = entered((1, 2, 3), whole=memory[:6], part=memory[4:8], other=memory[8:], far=torch.empty(2, device="meta"))
    assert [values[id_].data_ptr() == memory[at:].data_ptr() for id_, at in ((1, 0), (2, 4), (3, 8))] == [
        True, True, False,
    ]  # fmt: skip
    assert values[4].device.type == "meta"


def test_copies_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards_module, "BYTES_MAX", 40)
    small, large = torch.ones(8), torch.ones(9)
    values = entered(small=small, large=large)
    assert is_moved(small, values[1]) and values[2] is large


def test_a_step_is_told_in_its_own_words_and_a_fault_of_the_gpu_in_one_line() -> None:
    """The traceback would be the executor's, and what follows a fault is advice to who wrote torch."""
    told = child.failure_json(OutOfBounds(7, "a kernel wrote outside"), "candidate.py")
    assert told == {"type": "OutOfBounds", "text": "a kernel wrote outside", "line": 7}
    error = torch.AcceleratorError("CUDA error: an illegal memory access\nCompile with `TORCH_USE_CUDA_DSA`")
    assert child.failure_json(error, "candidate.py")["text"] == "CUDA error: an illegal memory access"

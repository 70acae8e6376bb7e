"""The model that runs a plan on a GPU, as far as it needs none: on CPU tensors, with kernels that are Python's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from shared import plan

from executor import gpu  # isort: skip

CPU = torch.device("cpu")


def leaf(value: int, *shape: int, dtype: str = "float32") -> plan.Leaf:
    return plan.Leaf(value, shape, tuple(torch.empty(shape).stride()), dtype)


def made(value: int, *shape: int, how: str = "empty.memory_format", dtype: str = "float32") -> plan.Call:
    given = (("dtype", plan.TorchDtype(dtype)), ("device", plan.Device("cpu")))
    return plan.Call(f"aten.{how}", (plan.List(shape),), given, leaf(value, *shape, dtype=dtype), 1)


class Kernels:
    """Each is a function of a launch's arguments."""

    def __init__(self, *functions: Callable[..., Any], is_dependent: bool = False) -> None:
        self._functions = functions
        self._compiled = SimpleNamespace(launch_pdl=is_dependent)
        self.overlaps: list[bool] = []

    def has(self, index: int) -> bool:
        return index < len(self._functions)

    def get(self, index: int) -> Any:
        def launch(grid: Any, args: Any, room: Any, *, overlaps: bool) -> None:
            self.overlaps.append(overlaps)
            self._functions[index](*args)

        return SimpleNamespace(launch=launch, compiled=self._compiled)


class Model(gpu.Model):
    """Each alternative is run as often as on a GPU, and the last one is the quickest."""

    def _time(self, run: Callable[[], None]) -> float:
        for _ in range(gpu.TRIALS + 1):
            run()
        self.timed = getattr(self, "timed", 0.0) - 1.0
        return self.timed


def model(trace: plan.Trace, *functions: Callable[..., Any]) -> Model:
    kernels: Any = Kernels(*functions)
    found = Model(trace, kernels, CPU, allows=lambda call: True, prepares=lambda call: True)
    found.construct(1)
    return found


def trace(*steps: plan.Step, inputs: plan.Tree, output: plan.Tree, **more: Any) -> plan.Trace:
    whole: dict[str, Any] = {"parameters": (), "construct": (), "first": ()}
    return plan.Trace(case="own", inputs=inputs, steps=steps, output=output, **{**whole, **more})


def tuned(*arguments: int) -> plan.Choose:
    """Two alternatives with these tensors."""
    refs = tuple(map(plan.Ref, arguments))
    return plan.Choose(tuple(plan.Alternative(f"B: {at}", (plan.Launch(at, (1, 1, 1), refs, 2),)) for at in (0, 1)), 2)


def add_(x: torch.Tensor, y: torch.Tensor, count: torch.Tensor) -> None:
    y.copy_(x.add_(1.0))
    count.add_(1)


def state() -> dict[str, Any]:
    """A buffer for the answer in two views, a counter, and a parameter with a view of it."""
    return {
        "construct": (made(0, 3, how="ones.default"), made(5, 1, how="zeros.default")),
        "parameters": (("weight", 0), (f"{plan.BUFFER}count", 5)),
        "first": (
            made(1, 2),
            plan.Call("aten.view.default", (plan.Ref(1), plan.List((2, 1))), (), leaf(2, 2, 1), 1),
            plan.Call("aten.view.default", (plan.Ref(0), plan.List((3, 1))), (), leaf(3, 3, 1), 1),
        ),
    }


def test_trying_alternatives_leaves_inputs_and_state_as_they_were() -> None:
    """Inputs in a list were updated by each, and a call without kernels found the answer in a buffer."""
    inputs = (plan.List((leaf(8, 2),)),)
    views = tuple(
        plan.Call("aten.clone.default", (plan.Ref(at),), (), leaf(at + 10, *shape), 3)
        for at, shape in ((2, (2, 1)), (3, (3, 1)))
    )
    found = model(
        trace(tuned(8, 1, 5), *views, inputs=inputs, output=(leaf(1, 2), leaf(12, 2, 1)), **state()), add_, add_
    )
    x = torch.tensor([1.0, 2.0])
    found.warm_up([[x]])
    assert x.tolist() == [1.0, 2.0] and found.timed == -2.0
    assert [memory.numel() for memory in found.memory()] == [4, 8], "the parameter's is none of them, views share one"
    counter, buffer = (memory.view(torch.float32) for memory in found.memory())
    assert counter.tolist() == [0.0] and bool(buffer.isnan().all())
    silent, _ = found.call_silently([x])
    assert bool(silent.isnan().all()) and x.tolist() == [1.0, 2.0]
    answer, view = found([x])
    assert answer.tolist() == view.flatten().tolist() == [2.0, 3.0] and counter.tolist() == [1.0]
    found.warm_up([[x]])
    assert found.timed == -2.0


def test_alternatives_find_nothing_in_memory_that_nobody_wrote() -> None:
    """What another plan's answer was freed from may be what they get, and they could keep it in a parameter."""
    seen: list[torch.Tensor] = []

    def looks(x: torch.Tensor, y: torch.Tensor) -> None:
        seen.append(y.clone())

    (torch.ones(1 << 10) + 1).sum()  # is freed
    found = model(trace(made(1, 1 << 10), tuned(0, 1), inputs=(leaf(0, 2),), output=leaf(1, 1 << 10)), looks, looks)
    found.warm_up([torch.ones(2)])
    assert len(seen) > gpu.TRIALS and all(bool(one.isnan().all()) for one in seen)


def rank(x: torch.Tensor, order: torch.Tensor, most: torch.Tensor, count: torch.Tensor) -> None:
    order.copy_(x.argsort())
    count.fill_(most.item())


def filled(value: int, size: int, number: int, dtype: str) -> plan.Call:
    call = made(value, size, how="full.default", dtype=dtype)
    return replace(call, args=(*call.args, number))


@pytest.mark.parametrize("is_kept", [True, False])
def test_without_kernels_an_index_is_one(is_kept: bool) -> None:
    """On a GPU the greatest integer ended the context, and who gathers by what a kernel ranked was refused."""
    order, most = made(1, 3, dtype="int64"), filled(2, 1, 127, "int8")
    steps = (
        filled(3, 4, 5, "int64"),
        plan.Launch(0, (1, 1, 1), tuple(map(plan.Ref, range(4))), 2),
        plan.Call("aten.index_select.default", (plan.Ref(0), 0, plan.Ref(1)), (), leaf(4, 3), 3),
    )
    kept = {"first": (order, most)} if is_kept else {}
    output = (leaf(4, 3), leaf(3, 4, dtype="int64"), leaf(2, 1, dtype="int8"), leaf(1, 3, dtype="int64"))
    of = trace(*(() if is_kept else (order, most)), *steps, inputs=(leaf(0, 3),), output=output, **kept)
    found = model(of, rank)
    x = torch.tensor([2.0, 3.0, 1.0])
    found.warm_up([x])
    chosen, count, number, ranked = found.call_silently(x)
    assert chosen.tolist() == [2.0] * 3 and count.tolist() == [5] * 4, "what a step wrote stays"
    assert number.tolist() == [127] and ranked.tolist() == [2**63 - 1] * 3, "no call has another state for it"
    chosen, count, *_ = found(x)
    assert chosen.tolist() == [1.0, 2.0, 3.0] and count.tolist() == [127] * 4


@pytest.mark.parametrize("dtype", gpu.INTEGERS)
def test_of_integers_what_nothing_wrote_becomes_zero(dtype: torch.dtype) -> None:
    most = torch.iinfo(dtype).max
    tensor = torch.full((2, 3), most, dtype=dtype)
    for part, zeros in (
        (tensor[:1].expand(4, 3), 0),
        (tensor[:0], 0),
        (tensor[:, ::2], 4),
        (tensor[0], 5),
        (tensor, 6),
    ):
        gpu._make_indices(part)
        assert (int((tensor == 0).sum()), int((tensor == most).sum())) == (zeros, 6 - zeros)


@pytest.mark.parametrize(("dtype", "value"), [(torch.bool, True), (torch.float32, float("nan")), (torch.int64, 1)])
def test_other_values_stay(dtype: torch.dtype, value: float) -> None:
    tensor = torch.full((3,), value, dtype=dtype)
    assert not gpu._make_indices(tensor)
    assert torch.equal(tensor, torch.full((3,), value, dtype=dtype)) or bool(tensor.isnan().all())


class Event:
    """Where in the queue it was recorded."""

    queue: list[str]

    def __init__(self) -> None:
        self.at = ""

    def record(self) -> None:
        self.at = f"behind {len(self.queue)}"


@pytest.mark.parametrize("is_captured", [True, False])
def test_no_call_of_a_graph_overlaps_the_one_in_front(monkeypatch: pytest.MonkeyPatch, is_captured: bool) -> None:
    """Not by its first launch, nor because the last one has ended before another that it overlaps."""
    queue = Event.queue = []
    waits: list[str] = []
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: is_captured)
    stream = SimpleNamespace(wait_event=lambda event: waits.append(event.at))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    steps = [plan.Launch(0, (1, 1, 1), (plan.Ref(8),), 2)] * 3
    kernels: Any = Kernels(lambda x: queue.append("launch"), is_dependent=True)
    planned = trace(*steps, inputs=(leaf(8, 2),), output=leaf(8, 2))
    found = Model(planned, kernels, CPU, allows=lambda call: True, prepares=lambda call: True)
    found.construct(1)
    for _ in range(2):
        found(torch.ones(2))
    assert kernels.overlaps == [False, True, True] * 2
    assert waits == (["behind 1", "behind 2", "behind 4", "behind 5"] if is_captured else [])


def test_a_launch_of_nothing_lets_no_other_overlap_the_call_in_front() -> None:
    """A size may be a number of the host's, which a graph's capture reads: no parser sees that it is 0."""
    options = (("dtype", plan.TorchDtype("int64")), ("device", plan.Device("cpu")))
    none = plan.Call("aten.zeros.default", (plan.List((1,)),), options, leaf(9, 1, dtype="int64"), 1)
    first = plan.Launch(0, (plan.Sym(plan.Item(9)), 1, 1), (plan.Ref(8),), 2)
    second = plan.Launch(0, (1, 1, 1), (plan.Ref(8),), 3)
    kernels: Any = Kernels(lambda x: None, is_dependent=True)
    planned = trace(none, first, second, inputs=(leaf(8, 2),), output=leaf(8, 2))
    found = Model(planned, kernels, CPU, allows=lambda call: True, prepares=lambda call: True)
    found.construct(1)
    found(torch.ones(2))
    assert kernels.overlaps == [False, False]

"""Steps of a plan on CPU tensors: what they compute, what they keep alive, and what of a false plan is refused."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from executor import steps as steps_
from executor.replay import Replay
from executor.steps import Descriptor, Environment, Program, StepError, number
from shared.plan import (
    Address,
    Alternative,
    Call,
    Choose,
    Device,
    Dict,
    Item,
    Launch,
    Leaf,
    List,
    Operation,
    Ref,
    Step,
    Sym,
    TorchDtype,
    Trace,
)
from shared.plan import Descriptor as PlannedDescriptor
from shared.values import marks_of

CPU = torch.device("cpu")


def anything(_call: Call) -> bool:
    return True


def nothing_launched(*_: Any) -> None:
    raise AssertionError("there is no kernel here")


def leaf(value: int, *shape: int, dtype: str = "float32") -> Leaf:
    return Leaf(value, shape, tuple(torch.empty(shape, device="meta").stride()), dtype)


def call(op: str, *args: Any, out: Any, line: int = 7, **kwargs: Any) -> Call:
    return Call(op, args, tuple(kwargs.items()), out, line)


def run(
    steps: list[Step],
    values: Environment,
    keep: set[int],
    launch: Callable[..., None] = nothing_launched,
    choose: Callable[..., None] = nothing_launched,
    allows: Callable[[Call], bool] = anything,
) -> Environment:
    Program.of(steps, keep, CPU, allows).run(values, launch, choose)
    return values


@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("aten.max_pool2d_with_indices_backward.default",
         (Ref(0), Ref(1), List((2, 2)), List((2, 2)), List((0, 0)), List((1, 1)), False, Ref(2))),
        ("aten.segment_reduce.default", (Ref(0), "sum", Ref(2))),
        ("aten._reshape_alias.default", (Ref(0), List((1 << 20,)), List((1,)))),
        ("aten._embedding_bag_dense_backward.default", (Ref(0), Ref(2), Ref(2), Ref(2), Ref(2), 4, False, 0, None)),
    ],
)  # fmt: skip
def test_beside_a_gpu_no_operator_follows_an_index_into_the_memory_of_the_host(op: str, args: tuple[Any, ...]) -> None:
    """On the host torch believes these indices: they are offsets from anywhere to anywhere."""
    values = {0: torch.ones(1, 1, 2, 2), 1: torch.ones(1, 1, 4, 4), 2: torch.full((1, 1, 2, 2), 1 << 40)}
    steps: list[Step] = [call(op, *args, out=None)]
    with pytest.raises(StepError, match=r"line 7: .*not (run on tensors of the host|allowed here)"):
        Program.of(steps, set(), torch.device("cuda"), anything).run(values, nothing_launched, nothing_launched)


@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("aten.mul_.Tensor", (Ref(0), 2.0)),
        ("aten.normal_.default", (Ref(0),)),
        ("aten.sum.default", (Ref(0),)),
        ("aten.linalg_qr.default", (Ref(0),)),
        ("aten.polar.default", (Ref(0), Ref(0))),
        ("aten.index_select.default", (Ref(0), 0, Ref(1))),
        ("aten.flip.default", (Ref(0), List((0,)))),
        ("aten.masked_fill_.Scalar", (Ref(0), Ref(2), 0.0)),
    ],
)
def test_beside_a_gpu_parameters_may_be_made_on_the_host(op: str, args: tuple[Any, ...]) -> None:
    values = {0: torch.ones(2, 2), 1: torch.tensor([1]), 2: torch.eye(2).bool()}
    steps: list[Step] = [call(op, *args, out=None)]
    Program.of(steps, set(), torch.device("cuda"), anything).run(values, nothing_launched, nothing_launched)


def test_constants_cost_nothing_to_make_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    make = Mock(side_effect=steps_._argument)
    monkeypatch.setattr(steps_, "_argument", make)
    got: list[Any] = []
    numbers = tuple(range(1000))
    run(
        [Launch(0, (1, 1, 1), (*numbers, Ref(0), numbers, 1.5, True), 7)],
        {0: torch.zeros(1)},
        set(),
        launch=lambda _step, _grid, args: got.extend(args),
    )
    assert (*got[:1000], *got[1001:]) == (*numbers, numbers, 1.5, True)
    assert isinstance(got[1000], torch.Tensor)
    assert make.call_count < 10


def test_views_alias_and_in_place_operators_write_through_them() -> None:
    x = torch.arange(6.0)
    steps: list[Step] = [
        call("aten.view.default", Ref(0), List((2, 3)), out=leaf(1, 2, 3)),
        call("aten.select.int", Ref(1), 0, 1, out=leaf(2, 3)),
        call("aten.mul_.Tensor", Ref(2), 10, out=leaf(2, 3)),
    ]
    found = run(steps, {0: x}, {1})
    assert torch.equal(found[1], torch.tensor([[0.0, 1, 2], [30, 40, 50]])) and found[1].data_ptr() == x.data_ptr()


def test_a_device_and_a_dtype_of_the_plan_are_the_callers() -> None:
    steps: list[Step] = [
        call(
            "aten.zeros.default",
            List((2, 2)),
            out=leaf(0, 2, 2, dtype="float16"),
            dtype=TorchDtype("float16"),
            device=Device("cuda"),
        )
    ]
    found = run(steps, {}, {0})[0]
    assert found.device == CPU and found.dtype == torch.float16


def test_a_constant_of_the_plan_is_a_tensor() -> None:
    steps: list[Step] = [
        call(
            "plan.constant.default",
            List((1, 2, 3, 4)),
            List((2, 2)),
            out=leaf(0, 2, 2, dtype="int64"),
            dtype=TorchDtype("int64"),
            device=Device("cuda"),
        )
    ]
    assert run(steps, {}, {0})[0].tolist() == [[1, 2], [3, 4]]


def test_several_results_are_bound_by_their_place() -> None:
    steps: list[Step] = [call("aten.split.Tensor", Ref(0), 2, out=List((leaf(1, 2), leaf(2, 2), leaf(3, 1))))]
    found = run(steps, {0: torch.arange(5.0)}, {1, 2, 3})
    assert [found[index].tolist() for index in (1, 2, 3)] == [[0, 1], [2, 3], [4]]


def test_a_value_is_dropped_after_its_last_reader_and_one_that_nobody_reads_at_once() -> None:
    seen: list[tuple[bool, bool]] = []
    refs: list[weakref.ref[torch.Tensor]] = []

    def launch(_step: Launch, _grid: Any, args: tuple[Any, ...]) -> None:
        if not refs:
            refs.append(weakref.ref(args[0]))
        else:
            seen.append((refs[0]() is not None, 2 in values))

    steps: list[Step] = [
        call("aten.clone.default", Ref(0), out=leaf(1, 3)),
        call("aten.clone.default", Ref(0), out=leaf(2, 3)),
        Launch(0, (1, 1, 1), (Ref(1),), 3),
        Launch(0, (1, 1, 1), (Ref(0),), 4),
    ]
    values: Environment = {0: torch.zeros(3)}
    run(steps, values, set(), launch)
    assert seen == [(False, False)] and values == {}


def test_a_launch_gets_its_arguments_as_values() -> None:
    got: list[Any] = []
    count, x = torch.tensor(5), torch.zeros(4, 8)
    size = Operation("floordiv", Operation("add", Item(1), 3), 4)
    steps: list[Step] = [
        Launch(
            2,
            (Sym(size), 1, 1),
            (
                Ref(0),
                Address(0, 64),
                Sym(Item(1)),
                (Ref(0), 3),
                PlannedDescriptor(0, (4, 8), (8, 1), (2, 8), "nan"),
                None,
            ),
            9,
        )
    ]
    run(steps, {0: x, 1: count}, set(), lambda *given: got.append(given))
    ((step, grid, args),) = got
    assert step is steps[0] and grid == (2, 1, 1)
    assert args[0] is x and args[1] == x.data_ptr() + 64 and args[2] == 5 and args[3][0] is x and args[3][1] == 3
    assert args[4] == Descriptor(x, (4, 8), (8, 1), (2, 8), True) and args[5] is None


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (Operation("mod", Item(0), 4), 3),
        (Operation("max", Item(0), 9), 9),
        (Operation("min", Item(0), 9), 7),
        (Operation("sub", 1, Item(0)), -6),
        (Operation("truediv", Item(0), 2), 3.5),
        (Operation("mul", Item(0), 0.5), 3.5),
    ],
)
def test_numbers_are_read_from_the_device(expression: Any, value: float) -> None:
    assert number(expression, {0: torch.tensor([7])}) == value


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        (Operation("floordiv", 1, Operation("sub", Item(0), 7)), "zero"),
        (Operation("mul", 1 << 62, Operation("mul", Item(0), 1 << 20)), "64 bits"),
        (Item(1), "shape"),
    ],
)
def test_a_number_that_is_none_is_refused(expression: Any, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        number(expression, {0: torch.tensor(7), 1: torch.zeros(2)})


def test_exactly_the_alternative_that_the_caller_takes_is_run_and_leaves_no_values() -> None:
    launched: list[tuple[int, float]] = []

    def launch(step: Launch, _grid: Any, args: tuple[Any, ...]) -> None:
        launched.append((step.kernel, float(args[0].sum())))

    def alternative(kernel: int) -> Alternative:
        steps = (
            call("aten.full.default", List((2,)), float(kernel), out=leaf(1, 2)),
            Launch(kernel, (1, 1, 1), (Ref(1), Ref(0)), 4),
        )
        return Alternative(f"B: {kernel}", steps)

    steps: list[Step] = [Choose((alternative(0), alternative(1), alternative(2)), 4)]
    asked: list[Any] = []

    def choose(step: Choose, run_one: Callable[[int], None]) -> None:
        asked.append(step)
        run_one(2)
        run_one(1)

    values: Environment = {0: torch.zeros(1)}
    run(steps, values, {0}, launch, choose)
    assert launched == [(2, 4.0), (1, 2.0)] and asked == steps and list(values) == [0]


def test_whoever_looks_on_is_told_of_each_operator_and_launch_of_alternatives_too() -> None:
    inner = (call("aten.full.default", List((2,)), 1.0, out=leaf(1, 2)), Launch(0, (1, 1, 1), (Ref(1),), 4))
    steps: list[Step] = [
        call("aten.relu.default", Ref(0), out=leaf(2, 1)),
        Choose((Alternative("B: 1", inner), Alternative("B: 2", inner)), 4),
    ]
    seen: list[str] = []
    Program.of(steps, set(), CPU, anything).run(
        {0: torch.zeros(1)},
        lambda *_: seen.append("launched"),
        lambda _, run_one: run_one(1),
        after=lambda: seen.append("after"),
    )
    assert seen == ["after", "after", "launched", "after"]


FALSE: dict[str, tuple[Step, str]] = {
    "a shape": (call("aten.clone.default", Ref(0), out=leaf(1, 3)), r"shape \(4,\), not \(3,\)"),
    "a dtype": (call("aten.clone.default", Ref(0), out=leaf(1, 4, dtype="int32")), "dtype float32, not int32"),
    "strides": (
        call("aten.view.default", Ref(0), List((2, 2)), out=Leaf(1, (2, 2), (1, 2), "float32")),
        r"strides \(2, 1\), not \(1, 2\)",
    ),
    "a number of results": (call("aten.split.Tensor", Ref(0), 2, out=List((leaf(1, 2),))), "sequence of 1"),
    "a tensor": (call("aten.size.int", Ref(0), 0, out=leaf(1)), "int, not a tensor"),
    "a view": (call("aten.view.default", Ref(0), List((3,)), out=leaf(1, 3)), "invalid"),
    "a view beyond its storage": (
        call("aten.as_strided.default", Ref(0), List((9,)), List((1,)), out=leaf(1, 9)),
        "out of bounds",
    ),
    "an argument": (call("aten.view.default", Ref(0), "x", out=leaf(1, 3)), "aten.view.default"),
    "a size": (
        call("aten.zeros.default", List((Sym(Operation("mod", Item(0), 0)),)), out=leaf(1, 4)),
        "read from a tensor of shape",
    ),
}


@pytest.mark.parametrize("step", FALSE.values(), ids=FALSE)
def test_a_false_claim_is_refused_with_its_line(step: tuple[Step, str]) -> None:
    with pytest.raises(StepError, match=step[1]) as error:
        run([step[0]], {0: torch.zeros(4)}, {1})
    assert error.value.line == 7


def test_a_size_that_only_the_device_knows_may_be_any() -> None:
    steps: list[Step] = [call("aten.nonzero.default", Ref(0), out=Leaf(1, (None, 1), (None, None), "int64"))]
    assert run(steps, {0: torch.tensor([0.0, 2, 3])}, {1})[1].shape == (2, 1)


@pytest.mark.parametrize("grid", [-1, 1 << 31, 2.0])
def test_a_grid_that_is_none_is_refused(grid: Any) -> None:
    count = torch.tensor(grid)
    with pytest.raises(StepError, match=r"line 5: grid\[0\] is"):
        run([Launch(0, (Sym(Item(0)), 1, 1), (), 5)], {0: count}, set(), lambda *_: None)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("aten.no_such.default", "there is no operator"),
        ("aten.view.nor_this", "there is no operator"),
        ("aten.save.default", "there is no operator"),
        ("aten.manual_seed.default", "there is no operator"),
        ("verifierd.view.default", "not allowed"),
        ("aten.from_file.default", "not allowed"),
        ("aten._nested_view_from_buffer.default", "not allowed"),
    ],
)
def test_an_operator_that_there_is_not_is_refused_before_anything_runs(name: str, what: str) -> None:
    with pytest.raises(StepError, match=f"line 7: .*{what}"):
        Program.of([call(name, Ref(0), out=None)], (), CPU, anything)


def test_an_operator_that_is_not_allowed_is_refused_inside_an_alternative_too() -> None:
    step = Choose((Alternative("", (call("aten.mm.default", Ref(0), Ref(0), out=None),)),), 4)
    with pytest.raises(StepError, match=r"line 7: the operator aten\.mm\.default is not allowed here"):
        Program.of([step], (), CPU, lambda call: call.op != "aten.mm.default")


def model(steps: tuple[Step, ...], first: tuple[Step, ...] = (), output: Any = None, allows: Any = anything) -> Replay:
    construct = (
        call("aten.empty.memory_format", List((3,)), out=leaf(0, 3), device=Device("cuda")),
        call("aten.normal_.default", Ref(0), out=leaf(0, 3)),
    )
    inputs = ((leaf(8, 3),), Dict((("scale", leaf(9, 3)),)))
    trace = Trace("own", inputs, (("weight", 0),), construct, first, steps, output)
    return Replay(trace, CPU, nothing_launched, nothing_launched, allows=allows, prepares=anything)


def test_a_model_is_drawn_from_its_seed_loaded_by_name_and_prepared_from_its_weights() -> None:
    first = (call("aten.exp.default", Ref(0), out=leaf(1, 3)),)
    steps = (
        call("aten.mul.Tensor", Ref(8), Ref(1), out=leaf(10, 3)),
        call("aten.add_.Tensor", Ref(10), Ref(9), out=leaf(10, 3)),
    )
    one = model(steps, first, output=Dict((("y", leaf(10, 3)), ("kept", (leaf(1, 3), 5)))))
    inputs = ((torch.ones(3),), {"scale": torch.full((3,), 2.0)})
    torch.manual_seed(11)
    drawn = torch.empty(3).normal_()
    one.construct(11)
    found = one.call(inputs)
    assert torch.equal(found["y"], drawn.exp() + 2) and found["kept"][1] == 5
    assert one.load({"weight": torch.zeros(3), "other": torch.zeros(3)}) == {"weight"}
    again = one.call(inputs)
    assert again["y"].tolist() == [3, 3, 3] and again["kept"][0].tolist() == [1, 1, 1]
    assert one.load({"weight": torch.zeros(4)}) == frozenset()
    one.construct(11)
    assert torch.equal(one.call(inputs)["y"], found["y"])


def test_an_output_in_memory_that_is_kept_is_marked() -> None:
    first = (call("aten.exp.default", Ref(0), out=leaf(1, 3)),)
    steps = (
        call("aten.mul.Tensor", Ref(8), Ref(1), out=leaf(10, 3)),
        call("aten.detach.default", Ref(1), out=leaf(11, 3)),
        call("aten.detach.default", Ref(8), out=leaf(12, 3)),
    )
    one = model(steps, first, output=tuple(leaf(value, 3) for value in (0, 1, 10, 11, 12)))
    one.construct(1)
    for _ in range(2):
        found = one.call(((torch.ones(3),), {"scale": torch.ones(3)}))
        assert ["kept" in marks_of(tensor) for tensor in found] == [True, True, False, True, False]


def test_a_call_refuses_inputs_that_are_not_the_traces() -> None:
    one = model((), output=leaf(8, 3))
    one.construct(1)
    for inputs in (((torch.ones(4),), {"scale": torch.ones(3)}), ((torch.ones(3),), {}), (torch.ones(3),)):
        with pytest.raises(ValueError, match="input"):
            one.call(inputs)


def test_operators_of_a_call_are_held_to_another_rule_than_those_of_state() -> None:
    first = (call("aten.exp.default", Ref(0), out=leaf(1, 3)),)
    steps = (call("aten.clone.default", Ref(1), out=leaf(2, 3)),)

    def moves_only(call: Call) -> bool:
        return call.op == "aten.clone.default"

    one = model(steps, first, leaf(2, 3), moves_only)
    one.construct(3)
    assert one.call(((torch.ones(3),), {"scale": torch.ones(3)})).shape == (3,)
    with pytest.raises(StepError, match=r"aten\.exp\.default is not allowed"):
        model(first, (), leaf(1, 3), moves_only)

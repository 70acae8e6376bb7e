"""The steps of a plan, run: what every executor shares, with and without a GPU.

A Program is a list of steps (shared/plan.py) made ready once: operators are looked up, each value's last reader is
known. `run` follows them over an environment, which maps a plan's ids to tensors. Operators are torch's own, so views,
aliases and in-place operators behave as in torch. What differs between executors comes from the caller: the device,
how a kernel is launched, which alternative of an autotuned launch is run, and which operators are allowed.

A plan is written by hostile code. Its form has been checked; what it claims of values is checked here: an operator
that does not exist or is not allowed, arguments that it refuses, and results other than the plan says raise StepError
with the candidate's line. Nothing here guards against a kernel that writes outside its tensors.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

import torch
from shared import operators, plan

Environment: TypeAlias = dict[int, torch.Tensor]
Allows: TypeAlias = Callable[[plan.Call], bool]
"""Whether an operator may be called. What the table of operators refuses everywhere is not asked about."""
Launcher: TypeAlias = Callable[[plan.Launch, tuple[int, int, int], tuple[Any, ...]], None]
"""Launches a kernel: the step, its grid, and its arguments in the order of the kernel's parameters. Tensors are
borrowed: they stay alive until the callback returns, and no longer than their last reader. Other arguments: constants
as the plan has them, numbers (a symbolic one as it is now, an address as an integer), Descriptor, tuples of these."""
Chooser: TypeAlias = Callable[[plan.Choose, Callable[[int], None]], None]
"""Decides on an autotuned launch: is given the step and a function that runs the alternative of an index. It is to
call that at least once; the values that the alternatives define are gone afterwards."""


Made: TypeAlias = Callable[[plan.Call, Environment], None]
"""Receives an operator's step and the environment with its results."""
After: TypeAlias = Callable[[], None]
"""Is called after each operator and each launch, those of alternatives included."""


class StepError(Exception):
    """A step that cannot be run as the plan has it: the candidate's line, and the fault.

    `__cause__` is the operator's exception, if there was one.
    """

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"line {line}: {what}" if line else what)
        self.line = line
        self.what = what


@dataclass(frozen=True)
class Descriptor:
    """A tensor descriptor made on the host. Sizes in elements, outermost dimension first."""

    base: torch.Tensor
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block: tuple[int, ...]
    is_nan_padded: bool


def tensors_of(args: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Those among arguments."""
    for arg in args:
        if isinstance(arg, torch.Tensor):
            yield arg
        elif isinstance(arg, Descriptor):
            yield arg.base
        elif isinstance(arg, tuple | list):
            yield from tensors_of(arg)


# --- numbers that only the device knows ---

_OPERATIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "max": max,
    "min": min,
}


def number(expression: plan.Expr, values: Mapping[int, torch.Tensor]) -> int | float:
    """An expression's value now. Waits for the device. ValueError: no number of the plan's range."""
    if isinstance(expression, plan.Item):
        tensor = values[expression.id]
        if tensor.numel() != 1:
            raise ValueError(f"a number is read from a tensor of shape {tuple(tensor.shape)}")
        found: int | float = tensor.item()
    elif isinstance(expression, plan.Operation):
        left, right = number(expression.left, values), number(expression.right, values)
        try:
            found = _OPERATIONS[expression.name](left, right)
        except (ArithmeticError, TypeError) as error:
            raise ValueError(f"{expression.name} of {left} and {right}: {error}") from None
    else:
        found = expression
    if isinstance(found, complex) or (isinstance(found, int) and not plan.INT_MIN <= found <= plan.INT_MAX):
        raise ValueError("a number read from the device leads out of the range of 64 bits")
    return found


# --- arguments ---

Fill: TypeAlias = Callable[[Environment], Any]


def _constant(value: Any) -> Fill:
    return lambda _values: value


def _sequence(items: Sequence[Any], device: torch.device, make: type) -> Fill:
    if all(type(item) in plan.PLAIN for item in items):
        return lambda _values: make(items)
    fills = [_argument(item, device) for item in items]
    return lambda values: make(fill(values) for fill in fills)


def _argument(arg: Any, device: torch.device) -> Fill:
    """The function that makes the argument out of an environment."""
    if isinstance(arg, plan.Ref):
        return operator.itemgetter(arg.id)
    if isinstance(arg, plan.List):
        return _sequence(arg.items, device, list)
    if type(arg) is tuple:
        return _sequence(arg, device, tuple)
    if isinstance(arg, plan.Sym):
        return lambda values: number(arg.expr, values)
    if isinstance(arg, plan.Address):
        return lambda values: values[arg.id].data_ptr() + arg.offset
    if isinstance(arg, plan.Descriptor):
        return lambda values: Descriptor(values[arg.id], arg.shape, arg.strides, arg.block, arg.padding == "nan")
    if isinstance(arg, plan.Device):
        return _constant(device if arg.kind == "cuda" else torch.device("cpu"))
    if isinstance(arg, plan.TorchDtype | plan.Layout | plan.MemoryFormat):
        return _constant(getattr(torch, arg.name))
    return _constant(arg)


# --- results ---


def _misfit(leaf: plan.Leaf, tensor: torch.Tensor) -> str | None:
    """How a tensor is not what the plan says; strides count where there is more than one element to step over."""
    shape, stride = tuple(tensor.shape), tensor.stride()
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype != leaf.dtype:
        return f"dtype {dtype}, not {leaf.dtype}"
    if len(shape) != len(leaf.shape) or any(
        claim is not None and claim != size for claim, size in zip(leaf.shape, shape, strict=True)
    ):
        return f"shape {shape}, not {leaf.shape}"
    if tensor.numel() and any(
        size > 1 and claim is not None and claim != step
        for claim, step, size in zip(leaf.stride, stride, shape, strict=True)
    ):
        return f"strides {stride}, not {leaf.stride}"
    return None


def bind(tree: plan.Tree, value: Any, values: Environment, where: str) -> None:
    """Enter the tensors of a value under the ids that the tree has for them.

    Lists and tuples match either, a constant of the tree matches anything. ValueError, with `where`: another
    structure, shape, dtype or stride than the tree's.
    """
    if isinstance(tree, plan.Leaf):
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"{where} is a {type(value).__name__}, not a tensor")
        wrong = _misfit(tree, value)
        if wrong is not None:
            raise ValueError(f"{where} has {wrong}")
        values[tree.id] = value
    elif isinstance(tree, plan.Dict):
        if not isinstance(value, dict) or {key for key, _ in tree.items} != set(value):
            raise ValueError(f"{where} is not a dict with the keys {[key for key, _ in tree.items]}")
        for key, item in tree.items:
            bind(item, value[key], values, f"{where}[{key!r}]")
    elif isinstance(tree, plan.List | tuple):
        items = tree.items if isinstance(tree, plan.List) else tree
        if not isinstance(value, list | tuple) or len(items) != len(value):
            raise ValueError(f"{where} is not a sequence of {len(items)}")
        for index, (item, inner) in enumerate(zip(items, value, strict=True)):
            bind(item, inner, values, f"{where}[{index}]")


def build(tree: plan.Tree, values: Mapping[int, torch.Tensor]) -> Any:
    """The value that a tree describes: lists, tuples, dicts and constants around tensors, which are not copied."""
    if isinstance(tree, plan.Leaf):
        return values[tree.id]
    if isinstance(tree, plan.Dict):
        return {key: build(item, values) for key, item in tree.items}
    if isinstance(tree, plan.List):
        return [build(item, values) for item in tree.items]
    return tuple(build(item, values) for item in tree) if type(tree) is tuple else tree


# --- programs ---


def _planned_constant(numbers: list[Any], shape: Sequence[int], **options: Any) -> torch.Tensor:
    return torch.tensor(numbers, **options).reshape(tuple(shape))


def torch_operator(step: plan.Call, allows: Allows) -> Callable[..., Any]:
    """The operator of a step. StepError: there is none, or it is not allowed.

    TorchScript's own, which save files among other things, are none: what torch dispatches is all that is traced.
    """
    if operators.kind_of(step) == "refused" or not allows(step):
        raise StepError(step.line, f"the operator {step.op} is not allowed here")
    if step.op == operators.CONSTANT:
        return _planned_constant
    if step.op == operators.SEED:
        return torch.manual_seed
    namespace, packet, overload = step.op.split(".")
    found = getattr(getattr(getattr(torch.ops, namespace), packet, None), overload, None)
    module: Any = torch._C
    if isinstance(found, torch._ops.OpOverload) and module._dispatch_has_kernel(found.name()):
        return found
    raise StepError(step.line, f"there is no operator {step.op}")


def _is_safe_on_host(step: plan.Call, operator_: Any) -> bool:
    """Whatever its arguments are, it reads and writes nothing but them (shared/operators.py: ON_HOST)."""
    kind, name = operators.kind_of(step), step.op.split(".")[1].removesuffix("_")
    is_own = step.op in (operators.CONSTANT, operators.SEED)
    return kind == "movement" or name in operators.ON_HOST or is_own or torch.Tag.pointwise in operator_.tags


@dataclass(frozen=True)
class _Ready:
    """A step, and the ids that are not read after it."""

    step: plan.Step
    dead: tuple[int, ...]
    fills: tuple[tuple[int, Fill], ...] = ()
    """Of the arguments that are not as the plan has them, by their places: of constants there may be millions."""
    options: tuple[tuple[str, Fill], ...] = ()
    grid: tuple[Fill, ...] = ()
    call: Any = None
    is_for_device: bool = False
    """It is not run on tensors of the host."""
    alternatives: tuple[Program, ...] = ()


@dataclass(frozen=True)
class Program:
    """Steps that can be run any number of times. It holds no tensor."""

    _steps: tuple[_Ready, ...] = field(repr=False)

    @staticmethod
    def of(steps: Sequence[plan.Step], keep: Iterable[int], device: torch.device, allows: Allows) -> Program:
        """Make steps ready.

        keep    ids that are to be in the environment after a run, whether defined before or by the steps
        device  where the plan says cuda
        Raises StepError for an operator that does not exist or is not allowed.
        """
        ready: list[_Ready] = []
        later = set(keep)
        for step in reversed(steps):
            used = plan.reads(step)
            dead = tuple(sorted((used | plan.defines(step)) - later))
            later |= used
            ready.append(_make_ready(step, dead, device, allows))
        return Program(tuple(reversed(ready)))

    def run(
        self,
        values: Environment,
        launch: Launcher,
        choose: Chooser,
        made: Made | None = None,
        after: After | None = None,
    ) -> None:
        """Follow the steps. The environment is the caller's: it gains what steps define and loses what was read last.

        made: is called after each operator, and may put other tensors in the place of its results.
        Raises StepError (the environment is then of no use), and lets pass what says that the device failed or is
        full (torch.OutOfMemoryError, torch.AcceleratorError, MemoryError) and what the callbacks raise.
        """
        for ready in self._steps:
            step = ready.step
            if isinstance(step, plan.Call):
                _call(ready, step, values)
                if made is not None:
                    made(step, values)
            elif isinstance(step, plan.Launch):
                launch(step, _grid(ready, step, values), _filled(ready, step, values))
            else:
                choose(step, partial(_alternative, ready, values, launch, choose, after))
            if after is not None and not isinstance(step, plan.Choose):
                after()
            for gone in ready.dead:
                values.pop(gone, None)


def _make_ready(step: plan.Step, dead: tuple[int, ...], device: torch.device, allows: Allows) -> _Ready:
    if isinstance(step, plan.Choose):
        programs = tuple(Program.of(one.steps, (), device, allows) for one in step.alternatives)
        return _Ready(step, dead, alternatives=programs)
    fills = tuple((at, _argument(arg, device)) for at, arg in enumerate(step.args) if type(arg) not in plan.PLAIN)
    if isinstance(step, plan.Launch):
        return _Ready(step, dead, fills, grid=tuple(_argument(size, device) for size in step.grid))
    options = tuple((name, _argument(value, device)) for name, value in step.kwargs)
    call = torch_operator(step, allows)
    is_for_device = device.type != "cpu" and not _is_safe_on_host(step, call)
    return _Ready(step, dead, fills, options, call=call, is_for_device=is_for_device)


def _filled(ready: _Ready, step: plan.Call | plan.Launch, values: Environment) -> tuple[Any, ...]:
    args = list(step.args)
    try:
        for at, fill in ready.fills:
            args[at] = fill(values)
    except ValueError as error:
        raise StepError(step.line, str(error)) from error
    return tuple(args)


def _grid(ready: _Ready, step: plan.Launch, values: Environment) -> tuple[int, int, int]:
    sizes = []
    for axis, fill in enumerate(ready.grid):
        try:
            size = fill(values)
        except ValueError as error:
            raise StepError(step.line, f"grid[{axis}]: {error}") from error
        if not isinstance(size, int) or not 0 <= size <= plan.GRID_MAX[axis]:
            raise StepError(step.line, f"grid[{axis}] is {size}")
        sizes.append(int(size))
    return (sizes[0], sizes[1], sizes[2])


def _call(ready: _Ready, step: plan.Call, values: Environment) -> None:
    args = _filled(ready, step, values)
    try:
        options = {name: fill(values) for name, fill in ready.options}
        tensors = tensors_of((*args, *options.values())) if ready.is_for_device else ()
        if any(tensor.dim() and tensor.device.type == "cpu" for tensor in tensors):
            raise RuntimeError("not run on tensors of the host; make them on the GPU")
        result = ready.call(*args, **options)
    except (torch.OutOfMemoryError, torch.AcceleratorError):
        raise
    except (RuntimeError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise StepError(step.line, f"{step.op}: {error}") from error
    try:
        bind(step.out, result, values, f"the result of {step.op}")
    except ValueError as error:
        raise StepError(step.line, str(error)) from None


def _alternative(
    ready: _Ready, values: Environment, launch: Launcher, choose: Chooser, after: After | None, index: int
) -> None:
    """Values that it reads for the last time are kept for the next alternative that is tried."""
    ready.alternatives[index].run(dict(values), launch, choose, after=after)

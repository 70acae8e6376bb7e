"""A plan on a machine without a GPU: operators on CPU tensors, launches through Triton's interpreter.

Needs a process in which TRITON_INTERPRET=1 was set before triton was imported. The interpreter runs a kernel's text
as Python: the functions are those that compiler/extract.py takes from the source, their text was held to what a kernel
may name, and of Python's own functions they see those that the code generator knows. Kernels read and write raw
addresses all the same, so this belongs into a sandboxed child that holds nothing worth having.
"""

from __future__ import annotations

import ast
import builtins
import copy
import ctypes
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any, Final

import numpy as np
import torch
import triton
import triton.language as tl
from compiler.extract import Functions, Text, constant
from shared import plan, wire
from shared.loading import line_of_traceback
from triton.runtime import interpreter
from triton.runtime.jit import mangle_type
from triton.tools.tensor_descriptor import TensorDescriptor

from executor import attention, bounds, combining, library, narrow, shapes
from executor.guards import Guards
from executor.meanings import CLASSES, FUNCTIONS, Meanings, Unavailable
from executor.replay import Replay, poisoned
from executor.steps import After, Allows, Descriptor, StepError, tensors_of

BUILTINS: Final = {
    name: getattr(builtins, name) for name in ("float", "int", "len", "list", "max", "min", "print", "range")
} | CLASSES
CPU: Final = torch.device("cpu")
SMALL_ELEMENTS: Final = 1 << 16
SMALL_PROGRAMS: Final = 256
"""Of the tensors and a launch of a case that is cheap with any configuration."""
WARPS: Final = 4
"""Of a launch that does not say."""


class LaunchFailed(StepError):
    """The interpreter ran a kernel and it raised."""


class OutOfBounds(StepError):
    """A kernel wrote outside of every tensor."""


@functools.cache
def _body(text: Text) -> CodeType:
    """Of its checked tree, rewritten (meanings.py), with its own lines. StepError."""
    tree = Meanings().visit(copy.deepcopy(text.tree))
    module = ast.fix_missing_locations(ast.Module([tree], []))
    ast.increment_lineno(module, text.line - 1)
    try:
        code = compile(module, wire.CANDIDATE_FILE, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise StepError(error.lineno or text.line, f"{text.name} is no Python: {error.msg}") from None
    return next(found for found in code.co_consts if isinstance(found, CodeType))


def interpreted(function: FunctionType, text: Text, _noinline: bool) -> Any:
    """The function as the interpreter runs it."""
    if not triton.knobs.runtime.interpret:
        raise RuntimeError("the interpreter needs TRITON_INTERPRET=1 before triton is imported")
    namespace = function.__globals__
    namespace.update({name: _as_patched(value) for name, value in namespace.items() if tl.core.is_builtin(value)})
    namespace["__builtins__"] = BUILTINS
    namespace["__language__"], namespace["__core__"] = tl, tl.core  # the interpreter replaces their operations
    namespace["interpreter_semantic"] = interpreter.interpreter_semantic
    namespace.update(FUNCTIONS)
    run = FunctionType(_body(text), namespace, text.name, function.__defaults__)
    run.__kwdefaults__, run.__annotations__ = function.__kwdefaults__, function.__annotations__
    made = interpreter.InterpretedFunction(function)
    made.fn = made.rewritten_fn[run] = run  # reductions and scans call what they combine with by `fn`
    return made


def _call_inner(function: Any, *args: Any, **given: Any) -> Any:
    """A function that a kernel calls. Triton's own replaces the language anew for each call, and leaves it so."""
    try:
        return function.rewrite()(*args, **given)
    except combining.IsBranch:  # of what combines, which may be inside of another function
        raise
    except Exception as error:
        raise interpreter.InterpreterError(repr(error)) from error


def _causes(error: BaseException | None) -> Iterator[tuple[int, BaseException]]:
    """Of functions that call each other: the innermost line of the source so far, and what was raised there."""
    line = 0
    while error is not None:
        line = line_of_traceback(wire.CANDIDATE_FILE, error.__traceback__) or line
        yield line, error
        error = error.__cause__ if isinstance(error, interpreter.InterpreterError) else None


LACKS: Final = ("InterpreterBuilder", "Did you forget to add @triton.jit", "interpreter mode", "Unsupported data type")
"""In the texts of errors that say nothing about the kernel: Triton's interpreter has no such operation."""


def _told(cause: BaseException) -> str:
    if isinstance(cause, Unavailable):
        return str(cause)
    if isinstance(cause, NotImplementedError) or any(text in str(cause) for text in LACKS):
        return f"Triton's interpreter, which runs it without a GPU, lacks an operation that it uses ({cause!r})"
    return repr(cause)


def _as_patched(operation: Any) -> Any:
    """An operation of the language under a name of the kernel's own: the interpreter replaces `tl.cast`, not `cast`."""
    name = operation.__name__
    holder = next((one for one in (tl, tl.math) if getattr(one, name, None) is operation), None)
    return operation if holder is None else lambda *args, **given: getattr(holder, name)(*args, **given)


def _pointer(kind: str, value: Any) -> torch.Tensor:
    """A tensor with the signature's element type, at the value's address."""
    element = tl.str_to_ty(kind.removeprefix("*").removeprefix("k"), None)
    if isinstance(value, int):
        bytes_ = max(1, element.primitive_bitwidth // 8)
        value = torch.frombuffer((ctypes.c_uint8 * bytes_).from_address(value), dtype=torch.uint8)
    same = mangle_type(value).removeprefix("*").removeprefix("k") == kind.removeprefix("*").removeprefix("k")
    return value if same else triton.reinterpret(value, element)


def _scalar(kind: str, value: float) -> Any:
    """A float or a boolean as a kernel sees it: a scalar tensor, which Triton's interpreter makes of integers alone."""
    type_ = tl.str_to_ty(kind, None)
    if type_ in narrow.TYPES:
        return tl.tensor(narrow.narrowed([value], type_), type_)
    data = np.array([value], dtype=interpreter._get_np_dtype(type_))
    return tl.tensor(interpreter.TensorHandle(data, type_), type_)


def _argument(kind: plan.Type, value: Any, function: Callable[[int], Any]) -> Any:
    if not isinstance(kind, str):
        return tuple(_argument(inner, item, function) for inner, item in zip(kind, value, strict=True))
    if isinstance(value, Descriptor):
        padding = "nan" if value.is_nan_padded else "zero"
        return TensorDescriptor(value.base, list(value.shape), list(value.strides), list(value.block), padding)
    if kind.startswith("*"):
        return _pointer(kind, value)
    if isinstance(value, float | bool) and kind != "constexpr":
        return _scalar(kind, value)
    return constant(value, function)


def _programs(step: plan.Launch) -> int:
    """Of a launch; an axis that depends on the GPU's own numbers counts as one."""
    return math.prod(size if isinstance(size, int) else 1 for size in step.grid)


class Model(Replay):
    """One trace of a plan, on CPU tensors.

    trace, kernels   of the plan (borrowed)
    functions        of the same plan, from the source
    lost             kernels that do not compile: of an autotuned launch no alternative with one is run
    allows           the operators that a call may have; state may have any
    turn             which alternative of an autotuned launch a small case runs: from 0, modulo their number
    Raises StepError for an operator that there is not or that is not allowed.
    """

    def __init__(
        self,
        trace: plan.Trace,
        functions: Functions,
        kernels: Sequence[plan.Kernel],
        *,
        allows: Allows,
        lost: frozenset[int] = frozenset(),
        turn: int = 0,
    ) -> None:
        super().__init__(trace, CPU, self._launch, self._choose, allows=allows, prepares=lambda _call: True)
        narrow.install()
        combining.install()
        library.install()
        bounds.install()
        attention.install()
        shapes.install()
        inner: Any = interpreter.InterpretedFunction
        inner.__call__ = _call_inner
        self._functions, self._kernels, self._lost, self._turn = functions, kernels, lost, turn
        self._linked: dict[int, dict[int, Any]] = {}
        self._waits: dict[int, bool] = {}
        self._is_silent = False
        self._is_unordered = False

    def call(self, inputs: Any, guards: Guards | None = None, after: After | None = None) -> Any:
        """Outputs for inputs, both as the trace's trees have them. What nothing wrote is NaN, or the greatest integer.

        In every other call, from the first on, programs of a launch see nothing of each other's that is not
        meant for them, and the last may be run first (bounds.py), so that the answers of a race differ. Raises
        StepError, ValueError for the inputs.
        """
        self._is_unordered = not self._is_unordered
        with poisoned():
            return super().call(inputs, guards, after)

    def warm_up(self, inputs: list[Any]) -> None:
        """Make the state, once. What it leaves unwritten is NaN, as on a GPU."""
        with poisoned():
            self.prepare()

    def call_silently(self, *inputs: Any) -> Any:
        """The same with none of the candidate's kernels launched, and what nothing wrote filled with NaN."""
        self._is_silent = True
        try:
            with poisoned():
                return super().call(inputs)
        finally:
            self._is_silent = False

    def _may_wait(self, index: int) -> bool:
        """A program of the kernel may wait for another: one that comes later in its order would never be run."""
        if index not in self._waits:
            texts = [self._functions.texts[at] for at in self._functions.closure(self._kernels[index])]
            self._waits[index] = any(isinstance(node, ast.While) for text in texts for node in ast.walk(text.tree))
        return self._waits[index]

    def _link(self, index: int) -> dict[int, Any]:
        if index not in self._linked:
            self._linked[index] = self._functions.link(self._functions.closure(self._kernels[index]), interpreted)
        return self._linked[index]

    def _launch(self, step: plan.Launch, grid: tuple[int, int, int], args: tuple[Any, ...]) -> None:
        if self._is_silent:
            return
        if step.kernel in self._lost:
            raise StepError(step.line, "the kernel does not compile")
        kernel, made = self._kernels[step.kernel], self._link(step.kernel)
        function = made[kernel.function]
        values = [
            _argument(kind, value, made.__getitem__) for (_, kind), value in zip(kernel.signature, args, strict=True)
        ]
        library.launches_with(next((int(value) for name, value in kernel.options if name == "num_warps"), WARPS))  # type: ignore[arg-type]
        tensors = [*self.live.values(), *tensors_of(args)]
        memory = bounds.Bounds(
            self.borrowed,
            tensors,
            is_unordered=self._is_unordered,
            may_wait=self._may_wait(step.kernel),
        )
        try:
            with bounds.held(memory):
                function.run(*values, grid=grid, warmup=False)
        except Exception as error:
            if memory.violation is not None:
                raise OutOfBounds(step.line, f"kernel {function.__name__}: {memory.violation}") from error
            *_, (line, cause) = _causes(error)
            raise LaunchFailed(line or step.line, f"kernel {function.__name__}: {_told(cause)}") from error

    def _choose(self, step: plan.Choose, run: Callable[[int], None]) -> None:
        """The alternative with the fewest programs: the interpreter takes about as long for a small one as a large.

        Small cases run the others in turn. One that fails may be one that is never chosen on a GPU, since it does not
        compile there.
        """
        launches = [[one for one in plan.walk(way.steps) if isinstance(one, plan.Launch)] for way in step.alternatives]
        programs = [sum(map(_programs, way)) for way in launches]
        left = [index for index, way in enumerate(launches) if not {one.kernel for one in way} & self._lost]
        if not left:
            raise StepError(step.line, "no configuration of the kernel compiles")
        first, *others = sorted(left, key=programs.__getitem__)
        is_small = sum(tensor.numel() for tensor in self.live.values()) <= SMALL_ELEMENTS
        ways = [first, *(index for index in others if is_small and programs[index] <= SMALL_PROGRAMS)]
        way = ways[self._turn % len(ways)]
        try:
            run(way)
        except LaunchFailed:
            if way == first:
                raise
            run(first)

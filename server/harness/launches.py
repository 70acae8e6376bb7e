"""A candidate's launches in its own process: counted, and, when the referee asks, made to write rubbish instead.

`Observer` is made before the candidate's code is read and keeps what it calls in closures. On a GPU nothing is patched
but while a call is observed, so timed calls run as Triton made them, and a candidate can tell the two apart. In the
interpreter, where nothing is timed, the patch stays for good and a candidate's every call is counted, with the same
modes around it: which one is asked about does not show, and what earlier ones did is told too. What runs between two
calls counts as the next one's. It is a trip-wire all the same: code in this process can find it, and what it tells is
never proof of honesty (docs/trust.md).

A silenced kernel does not run; what it would have written, as far as its source tells, is filled with NaN (zero in
integers). An output that is right all the same did not need it.
"""

from __future__ import annotations

import ast
import builtins
import sys
import time
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import loading
import numpy
import torch
from movement import VIEWS_AND_COPIES, words
from names import dotted
from torch._C._profiler import ProfilerActivity, ProfilerConfig, ProfilerState, _ExperimentalConfig
from torch.autograd import _disable_profiler, _enable_profiler, _enable_record_function, _prepare_profiler
from torch.overrides import TorchFunctionMode
from triton import language
from triton.runtime import interpreter, jit

# What is defined from here on has Python's own functions as they are now: a candidate may replace them for others.
globals()["__builtins__"] = dict(vars(builtins))

NAMES_MAX: Final = 64
OPS_MAX: Final = 200
STORES: Final = ("store", "store_scatter", "scatter", "reduce")
UNKNOWN: Final = "?"


def stored_parameters(function: ast.FunctionDef, jitted: frozenset[str]) -> frozenset[str] | None:
    """The parameters that lead to the places where a kernel stores; None where its source does not tell."""
    parameters = [item.arg for item in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    leads: dict[str, set[str]] = {name: {name} for name in parameters}

    def behind(node: ast.AST) -> set[str]:
        if isinstance(node, ast.Call) and _called(node).startswith(("load", "atomic")):
            return set()
        found = set(leads.get(node.id, ())) if isinstance(node, ast.Name) else set()
        return found.union(*[behind(child) for child in ast.iter_child_nodes(node)])

    for _ in range(2):  # a name may be used in a loop's body before the line that gives it
        for node in ast.walk(function):
            for target, value in _assignments(node):
                for name in (item.id for item in ast.walk(target) if isinstance(item, ast.Name)):
                    leads.setdefault(name, set()).update(behind(value))
    found: set[str] = set()
    for node in ast.walk(function):
        if not isinstance(node, ast.Call):
            continue
        called = _called(node)
        if called in jitted:
            return None
        if called.startswith(("atomic_", *STORES)):
            is_method = isinstance(node.func, ast.Attribute) and behind(node.func.value)
            places = [node.func] if is_method else node.args[:1] or [item.value for item in node.keywords[:1]]
            found.update(*[behind(place) for place in places])
    return frozenset(found) or None


def _called(node: ast.Call) -> str:
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _assignments(node: ast.AST) -> list[tuple[ast.AST, ast.AST]]:
    if isinstance(node, ast.Assign):
        pairs: list[tuple[ast.AST, ast.AST]] = []
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs.extend(zip(target.elts, node.value.elts, strict=False))
            else:
                pairs.append((target, node.value))
        return pairs
    if isinstance(node, ast.AugAssign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        return [(node.target, node.value)]
    return [(node.target, node.iter)] if isinstance(node, ast.For) else []


def stores_of(source: str) -> dict[str, frozenset[str] | None]:
    """Stored parameters of every function of a source, by name. Empty where it cannot be read."""
    try:
        tree = ast.parse(source)
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        jitted = frozenset(node.name for node in functions if node.decorator_list)
        return {node.name: stored_parameters(node, jitted) for node in functions}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}


# --- what the interpreter runs for a kernel ---

IN_KERNELS: Final = words("range len list min max int float bool isinstance hasattr print tuple abs slice")
"""Of Python's own functions."""
INSIDE: Final = frozenset({"handle"})
"""Attributes by which the interpreter's values keep NumPy's arrays: Triton's have none of them. Names with two
underscores before and behind, by which Python looks up such, are as good."""
IN_PYTHON: Final = (
    *(ast.Match, ast.Try, ast.Raise, ast.Delete, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.ClassDef),
    *(ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr),
    *(ast.Lambda, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)
"""What Triton's compiler has no word for: it stands where that does not look, and the interpreter does."""
TELLING: Final = words("static_assert static_print device_assert device_print print inline_asm_elementwise")
"""Where a kernel may put values into a text."""
MISSING: Final = object()
"""What a name means that is neither a function's nor its module's."""
Place = tuple[str, int]
"""A function's name and its first line."""


def uses_of(source: str) -> dict[Place, frozenset[str]]:
    """Of a source's decorated functions: the dotted names that are not their own. Empty where it cannot be read."""
    try:
        functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
        return {(node.name, node.decorator_list[0].lineno): _uses(node) for node in functions if node.decorator_list}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}


def _uses(function: ast.FunctionDef) -> frozenset[str]:
    """With a dot before an attribute that is looked for on whatever object."""
    nodes = [node for statement in function.body for node in ast.walk(statement)]
    own = {node.arg for node in (*ast.walk(function.args), *nodes) if isinstance(node, ast.arg)}
    own |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    parts = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    named = {dotted(node) for node in nodes if isinstance(node, ast.Name | ast.Attribute) and id(node) not in parts}
    named.discard(None)
    found = {str(name) for name in named if str(name).partition(".")[0] not in own}
    inside = {f".{node.attr}" for node in nodes if isinstance(node, ast.Attribute) and _is_inside(node.attr)}
    return frozenset(found | inside | {f".{type(node).__name__}" for node in _in_python(function)})


def _is_inside(attribute: str) -> bool:
    return attribute in INSIDE or (attribute.startswith("__") and attribute.endswith("__"))


def _in_python(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Nodes of a kernel's body that are Python's alone: also texts of values, but for those that are only told."""
    pending: list[tuple[ast.AST, bool]] = [(statement, False) for statement in function.body]
    while pending:
        node, is_told = pending.pop()
        if isinstance(node, IN_PYTHON) or (isinstance(node, ast.JoinedStr) and not is_told):
            yield node
        is_told |= isinstance(node, ast.Assert) or (isinstance(node, ast.Call) and _called(node) in TELLING)
        pending += [(child, is_told) for child in ast.iter_child_nodes(node)]


def python_behind(kernel: Any, arguments: Iterable[Any], uses: dict[Place, frozenset[str]]) -> str | None:
    """What of a kernel the interpreter runs and Triton would not compile: its name. None where all is well."""
    pending, known = [kernel, *(value for value in _flat(arguments) if callable(value))], set()
    while pending:
        found = pending.pop()
        if not isinstance(found, interpreter.InterpretedFunction | jit.JITCallable):
            if _is_of_triton(found):
                continue
            return str(getattr(found, "__name__", UNKNOWN))
        function = found.fn
        if not isinstance(function, types.FunctionType) or function in known or _is_of_triton(function):
            continue
        known.add(function)
        names = uses.get((function.__code__.co_name, function.__code__.co_firstlineno))
        if names is None:
            return function.__name__
        for name in sorted(names):
            if name.startswith("."):
                return name
            if isinstance(found, jit.JITCallable):  # a function of constants may be Python
                continue
            for meant in _flat((_meaning(name, function),)):
                if meant is MISSING and name in IN_KERNELS:
                    continue
                if isinstance(meant, interpreter.InterpretedFunction | jit.JITCallable):
                    pending.append(meant)
                elif not _is_of_triton(meant) and not isinstance(meant, int | float | str | None):
                    return name
    return None


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    """What tuples and constants hold."""
    for value in values:
        inner = (value.value,) if isinstance(value, language.constexpr) else value
        yield from _flat(inner) if isinstance(inner, tuple) else (inner,)


def _meaning(name: str, function: types.FunctionType) -> Any:
    """What a dotted name stands for inside a function. Not followed where it leads into an object."""
    root, *rest = name.split(".")
    nonlocals = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    cell = next((cell for free, cell in nonlocals if free == root), None)
    try:
        found = function.__globals__.get(root, MISSING) if cell is None else cell.cell_contents
    except ValueError:
        return None
    for attribute in rest:
        if not isinstance(found, types.ModuleType):
            break
        found = getattr(found, attribute, None)
    return found


def _is_of_triton(found: Any) -> bool:
    """Triton's own, what is known when it compiles (dtypes, constants), or a tuple with names."""
    if isinstance(found, type):
        if issubclass(found, tuple) or hasattr(found, "__triton_aggregate__"):
            return True
        homes: list[Any] = [found.__module__]
    elif isinstance(found, types.ModuleType):
        homes = [found.__name__]
    else:
        homes = [getattr(found, "__module__", None), type(found).__module__]
    return any(str(home).partition(".")[0] in ("triton", "math") for home in homes)


def interpreters_parts() -> list[tuple[Mapping[str, Any], dict[str, Any]]]:
    """What Triton's interpreter calls, its own and NumPy's: where it is kept, and what is there now.

    Not the language's, which the interpreter itself replaces, and leaves so after calls of kernels by kernels.
    """
    own = [found for found in vars(interpreter).values() if getattr(found, "__module__", "") == interpreter.__name__]
    classes = [found for found in own if isinstance(found, type)]
    homes: list[Any] = [numpy, interpreter, *classes, type(interpreter.interpreter_semantic)]
    return [(vars(home), _callables(vars(home))) for home in homes]


def _callables(held: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in held.items() if callable(value) or isinstance(value, property | staticmethod)}


def is_changed(parts: list[tuple[Mapping[str, Any], dict[str, Any]]]) -> bool:
    """Whether one of them has been replaced."""
    return any(now.get(key) is not value for now, kept in parts for key, value in kept.items()) or any(
        len(_callables(vars(tool))) != 0 for tool in (interpreter.interpreter_builder, interpreter.interpreter_semantic)
    )


# --- torch's functions beside the launches ---

MOVES_BELOW: Final = words(
    """
    alias empty_permuted lift lift_fresh new_empty_strided nonzero reflection_pad1d reflection_pad2d
    replication_pad1d replication_pad2d scalar_tensor slice _index_put_impl_ _pad_circular _pad_enum
    _reshape_alias _to_copy _unsafe_view
    """
)
"""What moves and fills, too, of operators that are called by none of these names in Python."""
ADDING: Final = frozenset({"scatter", "scatter_", "index_put", "index_put_"})
"""With `reduce`, or with `accumulate`, they compute."""
NAMESPACES: Final = words(
    "aten prim prims mkl mkldnn mkldnn_prepacked onednn prepacked quantized _quantized sparse fbgemm xnnpack"
)
"""Of torch's own operators."""
LIBRARY: Final = words(
    """
    __matmul__ __rmatmul__ addbmm addmm addmm_ addmv addr baddbmm bilinear bmm chain_matmul conv1d conv2d conv3d
    conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d convolution dot einsum ger inner linear
    linear_out matmul mm multi_dot mv outer tensordot vdot
    """
)
"""Products and convolutions, which a library may do under some policies."""
TO_HOST: Final = frozenset({"numpy", "tolist", "item", "__array__", "__dlpack__", "to_dlpack"})
"""Their results are no tensors, and what is computed from them is not seen."""
DERIVES: Final = frozenset({"backward"})
"""Has no result, and leaves what it computes in other tensors, or with hooks of the candidate's."""
READING: Final = ("tolist", "numpy", "apply_", "map_", "map2_")
"""Of tensors: no operator runs for them, so that they are seen where they are called, or nowhere."""
OF_STORAGES: Final = ("tolist", "__getitem__", "__reduce__", "_write_file", "_share_fd_cpu_", "_share_filename_cpu_")
"""Of a tensor's storage: no tensor is asked, and somebody else has its values."""
PUTTING: Final = frozenset({"index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"})
SCATTERING: Final = frozenset({"scatter", "scatter_"})
ADDS: Final = " that adds"
OPAQUE: Final = "operator of its own"
PYTHON: Final = "Python in a kernel"
HOSTS: Final = "memory of the host's"
"""That of NumPy, of a buffer, of whatever is not torch: what it has it was told there, and who owns it may compute."""
FROM_HOST: Final = words("from_numpy frombuffer from_dlpack asarray as_tensor")
UNWATCHED: Final = "operators that were not let be seen"
TOO_MANY: Final = "operators beyond those that are watched"
FUNCTIONS_MAX: Final = 8192
"""In the interpreter, of torch's functions that one call uses outside launches: each costs some 0.1 ms to watch. What
runs after so many is not watched, and counts as if it had computed everything."""
CLOCKS_DIFFER_NS: Final = 50_000
"""The profiler's clock may be so far from ours. To end a profile and begin another takes several times that."""
EVERYTHING: Final = 1 << 40
"""Elements of what was not seen: more than any case has."""
ALLOCATES: Final = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "resize_", "set_"})


def kind_of(name: str) -> str:
    """`movement`, `library` or `other` for the name of one of torch's functions."""
    plain = name.removesuffix(".default")
    if plain == OPAQUE or plain in VIEWS_AND_COPIES or plain.removesuffix("_copy") in VIEWS_AND_COPIES:
        return "movement"
    return "library" if plain in LIBRARY else "other"


class _Seen(TorchFunctionMode):
    """Notes the functions of torch that a call uses, and how many elements they read and write.

    Torch runs the body of an operator where no mode sees it. One that the candidate made by torch.library.custom_op is
    therefore called here by its own function. Any other operator of its own is opaque: one that launches kernels is
    taken for them.
    """

    def __init__(
        self,
        note: Callable[[str, int], None],
        launches: Callable[[], int],
        begins: Callable[[], None],
        is_hosts: Callable[[torch.Tensor], bool],
    ) -> None:
        """begins: called before each function that is not a plain attribute of a tensor."""
        super().__init__()
        self._is_hosts = is_hosts
        self._note = note
        self._launches = launches
        self._begins = begins

    def __torch_function__(
        self, func: Any, types: Sequence[Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        body = _operator_body(func)
        if body is not None:
            with self:
                return body(*args, **(kwargs or {}))
        name = str(getattr(func, "__name__", func))
        if name != "__get__":
            self._begins()
        launched = self._launches()
        result = func(*args, **(kwargs or {}))
        if name in ADDING and _adds(args, kwargs or {}):
            name += ADDS
        if _is_own_operator(func) and self._launches() > launched:
            self._note(OPAQUE, 0)
            return result
        before = list(_tensors((args, kwargs)))
        after = list(_tensors(result))
        exchanged = after if name in FROM_HOST else _written(name, args, kwargs or {})
        with_host = sum(item.numel() for item in exchanged if self._is_hosts(item))
        if with_host:
            self._note(HOSTS, with_host)
        if not after:
            if name in TO_HOST or name in DERIVES:
                self._note(name, sum(item.numel() for item in before))
            return result
        there = {_storage(item) for item in before}
        is_view = kind_of(name) == "movement" and not name.endswith("_") and name != "__setitem__"
        is_free = name in ALLOCATES or (is_view and all(_storage(item) in there for item in after))
        if not is_free:
            self._note(name, sum(item.numel() for item in (*before, *after)))
        return result


def _is_own_operator(func: Any) -> bool:
    """Registered by the candidate: an operator in none of torch's namespaces."""
    name = getattr(func, "_qualified_op_name", None) or getattr(func, "_name", None)
    return isinstance(name, str) and "::" in name and name.partition("::")[0] not in NAMESPACES


def _written(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors that a function of this name writes to."""
    is_in_place = (name.endswith("_") and not name.endswith("__")) or name == "__setitem__"
    return [*_tensors(args[:1] if is_in_place else ()), *_tensors(kwargs.get("out"))]


def _adds(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether a scatter or an index_put is told to reduce."""
    return any(kwargs.get(key) for key in ("reduce", "accumulate")) or any(
        item is True or isinstance(item, str) for item in args[3:]
    )


# --- operators below torch's functions ---


_wall_ns = time.time_ns  # as it was before a candidate came


class _Below:
    """Notes what the operators that run during a call compute, by torch's own profiler.

    It sees what torch's functions do not show: autograd, other threads, what an operator of the candidate's own or a
    hook of Triton calls. Only for calls on the host.
    """

    def __init__(self) -> None:
        self._activities = {ProfilerActivity.CPU}
        self._functions = 0
        self._is_on = False
        self._began_ns = (0, 0)
        self.computed: dict[str, list[int]] = {}
        """By name: how often, and how many elements were read."""

    def __enter__(self) -> _Below:
        special = _ExperimentalConfig(profile_all_threads=True)
        config = ProfilerConfig(ProfilerState.KINETO, True, False, False, False, False, special, "")
        first_ns = _wall_ns()
        _enable_record_function(True)
        _prepare_profiler(config, self._activities)
        _enable_profiler(config, self._activities)
        self._began_ns = (first_ns - CLOCKS_DIFFER_NS, _wall_ns() + CLOCKS_DIFFER_NS)
        self._is_on = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_on:
            self._end()

    def count(self) -> None:
        """One more of torch's functions begins, in the thread that entered."""
        self._functions += 1
        if self._functions > FUNCTIONS_MAX and self._is_on:
            self._end()
            self.computed[TOO_MANY] = [1, EVERYTHING]

    def _end(self) -> None:
        self._is_on = False
        try:
            found = _disable_profiler()
        except RuntimeError:  # the call has ended it
            self.computed = {UNWATCHED: [1, EVERYTHING]}
            return
        first_ns, last_ns = self._began_ns
        if not first_ns <= found.trace_start_ns() <= last_ns:  # it has, and may have put another in its place
            self.computed = {UNWATCHED: [1, EVERYTHING]}
            return
        self.computed = computed_by(
            (_told_name(event), event.start_thread_id(), event.start_ns(), event.duration_ns(), _read(event.shapes()))
            for event in found.events()
        )


def _told_name(event: Any) -> str:
    """The operator's, and whether it is a copy that adds. What was not recorded of it speaks against it."""
    name = str(event.name())
    plain = name.rpartition("::")[2]
    if plain in PUTTING:
        given = event.concrete_inputs()
        return name if len(given) > 3 and given[3] is False else name + ADDS
    return name + ADDS if plain in SCATTERING and len(event.shapes()) > 4 else name


def _read(shapes: Any) -> int:
    """Elements of all tensors of these shapes; lists of tensors have lists of shapes."""
    if isinstance(shapes, list) and all(type(item) is int for item in shapes):
        return prod(shapes) if shapes else 0
    return sum(map(_read, shapes)) if isinstance(shapes, list) else 0


def computed_by(events: Iterable[tuple[str, int, int, int, int]]) -> dict[str, list[int]]:
    """What operators computed, by name: how often, and elements read. events: name, thread, start, length, elements.

    The outermost operator that computes gives the name. It read what those inside it read, where that is more: the
    elements of lists of tensors, and of nested ones, are told of the operators inside alone.
    """
    found: dict[str, list[int]] = {}
    running: dict[int, list[_Running]] = {}  # by thread, the outermost first

    def end(stack: list[_Running]) -> None:
        last = stack.pop()
        elements = max(1, last.elements, last.inside)
        if stack:
            stack[-1].inside += elements
            return
        seen = found.setdefault(last.name, [0, 0])
        seen[0] += 1
        seen[1] += elements

    for name, thread, start, length, elements in sorted(events, key=lambda event: (event[2], -event[3])):
        space, _, plain = name.rpartition("::")
        if space not in NAMESPACES or plain in MOVES_BELOW or kind_of(plain) == "movement":
            continue
        stack = running.setdefault(thread, [])
        while stack and start >= stack[-1].until:
            end(stack)
        stack.append(_Running(plain, start + length, elements))
    for stack in running.values():
        while stack:
            end(stack)
    return found


@dataclass
class _Running:
    """An operator that computes, while those inside it are looked at."""

    name: str
    until: int
    elements: int
    inside: int = 0


def _operator_body(func: Any) -> Any:
    """The candidate's function behind an operator made by torch.library.custom_op; None for all others."""
    name = getattr(func, "_qualified_op_name", None) or getattr(getattr(func, "_schema", None), "name", None)
    custom_ops: Any = sys.modules.get("torch._library.custom_ops")
    definition = None if custom_ops is None or name is None else custom_ops.OPDEFS.get(name)
    if definition is None or set(definition._backend_fns) != {None}:
        return None
    body = definition._init_fn
    return body if getattr(body, "__module__", None) == loading.MODULE_NAME else None


def _storage(tensor: torch.Tensor) -> int:
    """Where a tensor's values are. Sparse ones and those that vmap maps over have no such place: each is its own."""
    try:
        return tensor.untyped_storage().data_ptr()
    except RuntimeError:
        return -id(tensor)


def _tensors(value: Any, depth: int = 4) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple) and depth:
        for item in value:
            yield from _tensors(item, depth - 1)
    elif isinstance(value, dict) and depth:
        for item in value.values():
            yield from _tensors(item, depth - 1)
    elif type(value).__name__ == "TensorDescriptor" and depth:
        yield from _tensors(getattr(value, "base", None), 0)


# --- the observer ---

Form = tuple[int, bool | None]
"""Of a call: elements of its inputs, and the mode that the model was put into. Told when the inputs are placed, for the
candidate can resize a tensor and say of itself that it trains."""


def form_of(inputs: Any, training: bool | None) -> Form:
    """Call it while the candidate has not had the inputs yet."""
    return sum(item.numel() for item in _tensors(inputs)), training


class Observer:
    """Of one child. begin(), a call by call(), end()."""

    def __init__(self, device: torch.device) -> None:
        self._is_gpu = device.type == "cuda"
        self._class: Any = jit.JITFunction if self._is_gpu else interpreter.InterpretedFunction
        self._launcher: Any = None
        if self._is_gpu:
            from triton.backends.nvidia.driver import CudaLauncher

            self._launcher = CudaLauncher
        self._really: tuple[Any, Any] = (self._class.run, self._launcher and self._launcher.__call__)
        self._fill = torch.Tensor.fill_
        self._stores: dict[str, frozenset[str] | None] = {}
        self._uses: dict[Place, frozenset[str]] = {}
        self._rewritten: dict[Any, Any] = {}
        self._note: Callable[[str, int], None] | None = None  # during a call
        self._inputs: frozenset[int] = frozenset()
        self._silent: frozenset[str] | None = frozenset()  # None: all
        self._launched: dict[str, int] = {}
        self._silenced = 0
        self._elements = 0
        self._ops: dict[str, list[int]] = {}
        self._depth = 0  # inside a launch
        self._counts_ops = False
        self._counts_all = False
        self._below: _Below | None = None  # since the last reply
        self._seen: _Seen | None = None  # during a call
        self._pending: tuple[dict[str, list[int]], Any, Form] | None = None  # a call whose reply is not made yet
        self._called: dict[tuple[int, Form], Callable[[], Any]] = {}
        self._arena = 0  # the address of what the referee reads
        self._hides = False  # since the last reply, operators were kept from the profiler
        self._given: dict[int, torch.UntypedStorage] = {}  # by address: memory that NumPy has been given
        self._worst: dict[Form, dict[tuple[str, ...], tuple[int, dict[str, Any]]]] = {}
        self._form: Form = (0, None)
        self.is_on = False
        self.is_needed = False  # calls are to be made by call()
        if not self._is_gpu:
            # Here nothing is timed, so it stays for good: a candidate sees the same whether it is observed or not.
            self._class.run = self._run()
            self._class.rewrite = lambda kernel: self._rewrite(kernel)
            self._watch_operators()
            self._watch_hiding()
            self._watch_storages()
            for name in READING:
                self._watch_reading(name)
            self._parts = interpreters_parts()

    def read(self, source: str) -> None:
        """What the candidate's kernels write and use, from its source."""
        self._stores = stores_of(source)
        self._uses = uses_of(source)

    def spare(self, address: int) -> None:
        """The arena is not torch's own, and nobody else's."""
        self._arena = address

    def _is_hosts(self, tensor: torch.Tensor) -> bool:
        try:
            return self._is_hosts_storage(tensor.untyped_storage())
        except RuntimeError:  # it has none
            return False

    def _is_hosts_storage(self, storage: torch.UntypedStorage) -> bool:
        address = storage.data_ptr()
        return address != self._arena and (not storage.resizable() or address in self._given)

    def count_all(self) -> None:
        """In the interpreter, of a candidate: from now on every call is counted."""
        self._counts_all = self.is_needed = not self._is_gpu

    def begin(self, silent: Sequence[str] | None, *, counts_ops: bool) -> None:
        """From now on: these kernels write rubbish (None: all of them)."""
        self._silent = None if silent is None else frozenset(silent)
        self._launched, self._ops, self._elements, self._silenced = {}, {}, 0, 0
        self._counts_ops = counts_ops
        if self._launcher is not None:
            self._class.run = self._run()
            self._launcher.__call__ = self._launch()
        self.is_on = self.is_needed = True

    def end(self) -> dict[str, Any]:
        """As it was before; what was seen, and `before`: the worst of earlier calls of the same form."""
        if self._launcher is not None:
            self._class.run = self._really[0]
            self._launcher.__call__ = self._really[1]
        self.is_on, self.is_needed = False, self._counts_all
        before = [told for _, told in self._worst.get(self._form, {}).values()]
        return {**self._told(), "before": before}

    def _told(self) -> dict[str, Any]:
        ops = sorted(self._ops.items(), key=lambda item: -item[1][1])[:OPS_MAX]
        return {
            "launches": dict(sorted(self._launched.items())[:NAMES_MAX]),
            "silenced": self._silenced,
            "elements": self._elements,
            "ops": [[name[:128], count, elements] for name, (count, elements) in ops],
        }

    def call(self, function: Callable[[], Any], inputs: Any, model: Any, form: Form) -> Any:
        """function(), observed. inputs: its arguments, which are not spoilt; form: as it was when they were placed.

        What it raises passes as it is: even to look at it may run the candidate's code.
        """
        self._inputs = frozenset(_storage_key(item) for item in _tensors(inputs))
        if self._is_gpu and not self._counts_ops:
            return function()
        if not self.is_on:
            self._launched, self._elements, self._silenced = {}, 0, 0
        self._form = form
        ops: dict[str, list[int]] = {}
        below = self._below

        def note(name: str, elements: int) -> None:
            if self._depth == 0 or kind_of(name) != "movement":  # a launch moves; what it computes is the candidate's
                seen = ops.setdefault(name, [0, 0])
                seen[0] += 1
                seen[1] += elements

        def begins() -> None:
            if self._depth == 0 and below is not None:
                below.count()

        # In names of this call alone: what the candidate finds on the stack of modes has no attribute that leads here.
        seen = _Seen(note, lambda: sum(self._launched.values()), begins, lambda tensor: self._is_hosts(tensor))
        self._seen, self._note, self._pending = seen, note, (ops, model, form)
        try:
            with seen:
                return function()
        finally:
            self._seen = self._note = None
            if self._is_gpu:
                self.settle()

    def rest(self) -> None:
        """What ran up to now is no call's: a model was built, or its weights were copied."""
        self._hides = False
        if self._counts_all:
            if self._below is not None:
                self._below.__exit__()
            self._below = _Below().__enter__()

    def settle(self) -> None:
        """The reply to a call is made. What ran since the one before, in whatever thread, counts as this call's."""
        if self._pending is None:
            return
        ops, model, form = self._pending
        self._pending = None
        if self._below is not None:
            self._below.__exit__()
            ops = _with_unseen(ops, self._below.computed)
            if self._hides:
                ops = {**ops, UNWATCHED: [1, EVERYTHING]}
            self._hides = False
            self._below = _Below().__enter__()
        self._ops = ops
        if not self.is_on and not self._is_first(model, form):
            self._remember(form)

    def _watch_operators(self) -> None:
        """The bodies of operators that the candidate registers run in the sight of the call that they are part of."""
        library: Any = torch.library.Library
        really, fallthrough = library.impl, torch.library.fallthrough_kernel

        def impl(own: Any, op_name: Any, fn: Any, *args: Any, **kwargs: Any) -> Any:
            return really(own, op_name, fn if fn is fallthrough else watched(fn), *args, **kwargs)

        def watched(body: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                with self._seen or nullcontext():
                    return body(*args, **kwargs)

            return call

        library.impl = impl

    def _watch_hiding(self) -> None:
        """What torch offers to run its operators without telling the profiler."""
        overload: Any = torch._ops.OpOverload
        really = overload.redispatch

        def redispatch(operator: Any, *args: Any, **kwargs: Any) -> Any:
            self._hides |= operator.namespace in NAMESPACES  # torch itself does it for operators that others register
            return really(operator, *args, **kwargs)

        def enable(is_on: bool) -> None:
            self._hides |= not is_on

        overload.redispatch = redispatch
        for module in (torch.autograd, torch._C._autograd):
            vars(module)["_enable_record_function"] = enable

    def _watch_storages(self) -> None:
        """Values that are taken from a tensor's storage, or copied to one that is the host's."""
        storage: Any = torch.UntypedStorage

        def watched(really: Any, is_given: Callable[[Any], bool]) -> Any:
            def call(own: Any, *args: Any, **kwargs: Any) -> Any:
                if self._note is not None and is_given(own):
                    self._note(HOSTS, own.nbytes() // 4)
                return really(own, *args, **kwargs)

            return call

        for name in OF_STORAGES:
            setattr(storage, name, watched(getattr(storage, name), lambda _: True))
        storage.copy_ = watched(storage.copy_, self._is_hosts_storage)

    def _watch_reading(self, name: str) -> None:
        """Values that a callback of torch's takes to the host, where no mode sees it, count too."""
        tensor: Any = torch.Tensor
        really = getattr(tensor, name)

        def read(values: Any, *args: Any, **kwargs: Any) -> Any:
            note = self._note
            if name == "numpy" and self._counts_all and not self._depth and _storage(values) > 0:
                storage = values.untyped_storage()
                self._given[storage.data_ptr()] = storage  # kept, so that the address is nobody else's
            if note is not None and not torch.overrides.has_torch_function((values,)):
                note(name, values.numel())
            return really(values, *args, **kwargs)

        read.__name__ = name
        setattr(tensor, name, read)

    def _is_first(self, model: Any, form: Form) -> bool:
        """Whether this form is new to a model, which may prepare its weights then. By identity: equality is its own."""
        known = self._called.get((id(model), form))
        if known is not None and known() is model:
            return False
        try:
            self._called[id(model), form] = weakref.ref(model)
        except TypeError:
            self._called[id(model), form] = lambda: model
        return True

    def _remember(self, form: Form) -> None:
        """Of the calls of one form, what the worst one did: the most of torch's work, with its products and without."""
        worst = self._worst.setdefault(form, {})
        for kinds in (("other",), ("other", "library")):
            amount = _elements({name: seen for name, seen in self._ops.items() if kind_of(name) in kinds})
            if amount > worst.get(kinds, (0, {}))[0]:
                worst[kinds] = (amount, self._told())

    def _is_silent(self, name: str) -> bool:
        return self._silent is None or name in self._silent

    def _run(self) -> Any:
        really, observer = self._really[0], self

        def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            if warmup or not observer.is_needed:
                return really(kernel, *args, grid=grid, warmup=warmup, **kwargs)
            name = str(getattr(kernel, "__name__", UNKNOWN))
            observer._depth += 1
            try:
                observer._launched[name] = observer._launched.get(name, 0) + 1
                named = {**dict(zip(kernel.arg_names, args, strict=False)), **kwargs}
                observer._elements += sum(item.numel() for item in _tensors(named))
                observer._note_given(name, named)
                if not observer.is_on or not observer._is_silent(name):
                    if not observer._is_gpu:
                        return observer._interpret(kernel, named.values(), args, grid, kwargs)
                    return really(kernel, *args, grid=grid, warmup=warmup, **kwargs)
                observer._silenced += 1
                observer._spoil(name, named)
                # On a GPU the launcher, which is told by the depth, does nothing.
                if observer._is_gpu:
                    observer._depth += 1000
                    try:
                        return really(kernel, *args, grid=grid, warmup=warmup, **kwargs)
                    finally:
                        observer._depth -= 1000
                return None
            finally:
                observer._depth -= 1

        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(run, name, getattr(really, name))
        return run

    def _note_given(self, name: str, named: dict[str, Any]) -> None:
        """What a kernel stores where the host can read it."""
        if self._is_gpu or self._note is None:
            return
        stored = self._stores.get(name)
        places = [value for key, value in named.items() if stored is None or key in stored]
        given = sum(item.numel() for item in _tensors(places) if self._is_hosts(item))
        if given:
            self._note(HOSTS, given)

    def _interpret(self, kernel: Any, named: Iterable[Any], args: Any, grid: Any, kwargs: Any) -> None:
        """As InterpretedFunction.run does, with what Triton's rewriter makes of the source, whatever a kernel keeps."""
        is_other = self._depth == 1 and is_changed(self._parts)
        if (is_other or python_behind(kernel, named, self._uses) is not None) and self._note is not None:
            self._note(PYTHON, EVERYTHING)
        interpreter.GridExecutor(self._rewrite(kernel), kernel.arg_names, grid, kernel.pre_run_hooks)(*args, **kwargs)

    def _rewrite(self, kernel: Any) -> Any:
        if kernel.fn not in self._rewritten:
            self._rewritten[kernel.fn] = interpreter.FunctionRewriter(kernel.fn, **kernel.kwargs).rewrite_ast()
        return self._rewritten[kernel.fn]

    def _launch(self) -> Any:
        """The launcher of a compiled kernel: what a kernel that was kept and is called by itself comes to."""
        really, observer = self._really[1], self

        def launch(launcher: Any, *args: Any) -> Any:
            if observer._depth >= 1000:
                return None
            if observer._depth == 0:
                observer._launched[UNKNOWN] = observer._launched.get(UNKNOWN, 0) + 1
                if observer._silent is None:
                    observer._silenced += 1
                    observer._spoil(UNKNOWN, dict(enumerate(args)))
                    return None
            return really(launcher, *args)

        return launch

    def _spoil(self, name: str, arguments: dict[Any, Any]) -> None:
        stored = self._stores.get(name)
        with torch.no_grad():
            for parameter, value in arguments.items():
                if stored is not None and parameter not in stored:
                    continue
                for tensor in _tensors(value):
                    if _storage_key(tensor) not in self._inputs or stored is not None:
                        self._fill(tensor, float("nan") if tensor.is_floating_point() else 0)


def _with_unseen(noted: dict[str, list[int]], computed: dict[str, list[int]]) -> dict[str, list[int]]:
    """Where operators computed more than torch's functions showed, they count instead."""
    found = noted
    for kind in ("library", "other"):
        shown = {name: seen for name, seen in found.items() if kind_of(name) == kind}
        ran = {name: seen for name, seen in computed.items() if kind_of(name) == kind}
        if _elements(ran) > _elements(shown):
            found = {name: seen for name, seen in found.items() if name not in shown} | ran
    return found


def _elements(ops: dict[str, list[int]]) -> int:
    return sum(elements for _, elements in ops.values())


def _storage_key(tensor: torch.Tensor) -> int:
    return int(tensor.data_ptr())

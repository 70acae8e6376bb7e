"""The plan: what a candidate's module would do with a GPU, as data (proto/plan.md).

The tracer writes it inside the candidate's own child, so a plan is bytes from a liar. `parse` is the only way in: a
pure function of its bytes that raises PlanError with the field that is wrong. `Plan.dump` is the way out. Needs
nothing but the standard library.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final, TypeAlias

VERSION: Final = 2

BYTES_MAX: Final = 16 << 20
"""Bytes of a whole document."""
DEPTH_MAX: Final = 16
"""How deep lists, tuples, dicts and expressions nest inside one argument."""
FUNCTIONS_MAX: Final = 1024
KERNELS_MAX: Final = 4096
OWN: Final = "own"
"""The task's own case."""
TINY: Final = "tiny"
"""The smallest case. A kernel need not support its size, so the caller decides on a failure there alone."""
OTHER: Final = "other: "
"""Begins the name of a case that is reported and does not judge: a failure there alone is not a failure elsewhere."""
TRACES_MAX: Final = 32
STEPS_MAX: Final = 20_000
"""Steps of one trace, those of all alternatives among them."""
TENSORS_MAX: Final = 100_000
"""Values of one trace; an id is below it."""
ALTERNATIVES_MAX: Final = 256
PARAMETERS_MAX: Final = 20_000
ARGUMENTS_MAX: Final = 512
"""Arguments of one operator or launch, parameters of one kernel, names that one function reads."""
ITEMS_MAX: Final = 65_536
"""Items of one list, so numbers of one constant tensor."""
RANK_MAX: Final = 12
SIZE_MAX: Final = 1 << 40
"""Of one dimension, and of one stride, in elements."""
TENSOR_BYTES_MAX: Final = 1 << 40
"""From a tensor's first element to its last."""
ELEMENTS_MAX: Final = 1 << 48
"""Of one tensor: strides of 0 make many of few bytes."""
NAME_MAX: Final = 256
"""Characters of a name."""
TEXT_MAX: Final = 65_536
"""Characters of a constant's text."""
LINE_MAX: Final = 1 << 20
REFUSALS: Final = ("untraced", "import", "construct", "call", "timeout", "oom")
"""Where a case that has no trace came to an end."""
REASON_MAX: Final = 1024
"""Characters of why."""
GRID_MAX: Final = ((1 << 31) - 1, 65_535, 65_535)
INT_MIN: Final = -(1 << 63)
INT_MAX: Final = (1 << 64) - 1

DTYPES: Final[dict[str, int]] = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1, "bool": 1,
    "complex64": 8, "complex128": 16,
}  # fmt: skip
"""Torch's, with their bytes."""

CONSTANT: Final = "plan.constant.default"
"""The plan's own operator: (flat list of numbers, sizes, dtype=, device=) is torch.tensor(numbers).reshape(sizes)."""

SEED: Final = "plan.manual_seed.default"
"""Another operator of the plan's own: (number) is torch.manual_seed(number)."""

DEVICES: Final = ("cuda", "cpu")
LAYOUTS: Final = ("strided",)
MEMORY_FORMATS: Final = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
PADDINGS: Final = ("zero", "nan")
OPERATIONS: Final = ("add", "sub", "mul", "truediv", "floordiv", "mod", "max", "min")
"""Of two numbers that the executor reads or that stand in the plan, as Python's."""

OPTIONS: Final = frozenset(
    (
        "num_warps", "num_ctas", "num_stages", "maxnreg", "enable_fp_fusion", "enable_reflect_ftz",
        "launch_cooperative_grid", "launch_pdl", "default_dot_input_precision", "debug", "sanitize_overflow",
    )
)  # fmt: skip
"""Triton's options that a plan may set: none that names a file or a compiler's flag."""

MODULES: Final = re.compile(r"(triton(\.\w+)*|torch\._inductor\.runtime\.triton_helpers(\.\w+)*|math(\.\w+)*)", re.A)
"""Objects other than data and kernels that a kernel's text may read, by full name."""

_TARGET: Final = re.compile(r"cuda:\d{2,3}", re.A)
_SOURCE: Final = re.compile(r"sha256:[0-9a-f]{64}", re.A)
_OPERATOR: Final = re.compile(r"[A-Za-z]\w*\.\w+\.\w+", re.A)
_IDENTIFIER: Final = re.compile(r"[^\W\d]\w*")
_TYPE: Final = re.compile(r"\*?k?[a-z][a-z0-9]*(<[a-z][a-z0-9]*\[\d{1,5}(,\s?\d{1,5})*\]>)?", re.A)
_DTYPE: Final = re.compile(r"[a-z][a-z0-9]{1,15}", re.A)


class PlanError(ValueError):
    """Not a valid document: the field and its fault."""

    def __init__(self, field: str, what: str) -> None:
        super().__init__(f"{field}: {what}")
        self.field = field
        self.what = what


# --- constants and arguments. None, booleans, ints, floats and texts stand for themselves; a tuple is a tuple. ---


@dataclass(frozen=True)
class Dtype:
    """Triton's, by its short name: "fp32"."""

    name: str


@dataclass(frozen=True)
class Constexpr:
    """tl.constexpr(value), where a kernel's text reads the object itself."""

    value: Const


@dataclass(frozen=True)
class FunctionRef:
    """One of the plan's functions."""

    index: int


@dataclass(frozen=True)
class ModuleRef:
    """A module that MODULES allows, by full name."""

    name: str


@dataclass(frozen=True)
class Table:
    """A function of constants that a kernel calls: its results, by tuples of positional arguments and (name, value)."""

    rows: tuple[tuple[Const, Const], ...]


@dataclass(frozen=True)
class ObjectRef:
    """Something of such a module, by full name."""

    name: str


@dataclass(frozen=True)
class Ref:
    """A tensor by its id."""

    id: int


@dataclass(frozen=True)
class List:
    items: tuple[Any, ...]


@dataclass(frozen=True)
class Dict:
    items: tuple[tuple[Any, Tree], ...]


@dataclass(frozen=True)
class TorchDtype:
    name: str


@dataclass(frozen=True)
class Device:
    kind: str


@dataclass(frozen=True)
class Layout:
    name: str


@dataclass(frozen=True)
class MemoryFormat:
    name: str


@dataclass(frozen=True)
class Item:
    """The number in a tensor of one element, read from the GPU when it is needed."""

    id: int


@dataclass(frozen=True)
class Operation:
    """One of OPERATIONS; its operands are Item, Operation or a number of the plan."""

    name: str
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Sym:
    """A number that only the GPU knows."""

    expr: Expr


@dataclass(frozen=True)
class Descriptor:
    """A host TMA descriptor over a tensor; sizes and strides in elements."""

    id: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block: tuple[int, ...]
    padding: str


@dataclass(frozen=True)
class Address:
    """A tensor's data_ptr() as a number; offset in bytes."""

    id: int
    offset: int


@dataclass(frozen=True)
class Leaf:
    """A tensor where it is made or handed over. A size or stride that only the GPU knows is None."""

    id: int
    shape: tuple[int | None, ...]
    stride: tuple[int | None, ...]
    dtype: str


Const: TypeAlias = "bool | int | float | str | Dtype | Constexpr | FunctionRef | tuple[Const, ...] | None"
Expr: TypeAlias = "Item | Operation | int | float"
Arg: TypeAlias = (
    "Const | Ref | List | TorchDtype | Device | Layout | MemoryFormat | Sym | Descriptor | Address | tuple[Arg, ...]"
)
Tree: TypeAlias = "Const | Leaf | List | Dict | tuple[Tree, ...]"
Type: TypeAlias = "str | tuple[Type, ...]"
Path: TypeAlias = tuple[int, ...]


# --- the document ---


@dataclass(frozen=True)
class Function:
    """A @triton.jit function that a kernel is or calls, by name and line of its `def`."""

    name: str
    line: int
    globals: tuple[tuple[str, Const | ModuleRef | ObjectRef | Table], ...]
    """The meaning of the names that its text reads. A function among them stands earlier in the plan."""
    defaults: tuple[tuple[str, Const], ...]
    noinline: bool


@dataclass(frozen=True)
class Kernel:
    """One specialisation to compile: what Triton's ASTSource and options are made of."""

    function: int
    signature: tuple[tuple[str, Type], ...]
    constants: tuple[tuple[Path, Const], ...]
    attributes: tuple[tuple[Path, tuple[tuple[str, int], ...]], ...]
    options: tuple[tuple[str, Const], ...]


@dataclass(frozen=True)
class Call:
    """An operator of torch."""

    op: str
    args: tuple[Arg, ...]
    kwargs: tuple[tuple[str, Arg], ...]
    out: Tree
    line: int


@dataclass(frozen=True)
class Launch:
    kernel: int
    grid: tuple[int | Sym, ...]
    args: tuple[Arg, ...]
    """In the order of the kernel's parameters."""
    line: int


@dataclass(frozen=True)
class Alternative:
    config: str
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Choose:
    """An autotuned launch: exactly one alternative is run."""

    alternatives: tuple[Alternative, ...]
    line: int


Step: TypeAlias = "Call | Launch | Choose"


BUFFER: Final = "buffer "


@dataclass(frozen=True)
class Trace:
    """One case of a task, as it was traced: those for generality alone are among them."""

    case: str
    inputs: Tree
    parameters: tuple[tuple[str, int], ...]
    """And buffers, whose names begin with BUFFER."""
    construct: tuple[Step, ...]
    first: tuple[Step, ...]
    steps: tuple[Step, ...]
    output: Tree


@dataclass(frozen=True)
class Refusal:
    """Why a case has no trace: "untraced", "timeout", "oom", or "import", "construct" or "call", in which it raised."""

    case: str
    kind: str
    line: int
    reason: str

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        return f"{where}{self.reason}"


@dataclass(frozen=True)
class Plan:
    target: str
    source: str
    functions: tuple[Function, ...]
    kernels: tuple[Kernel, ...]
    traces: tuple[Trace, ...]
    refusals: tuple[Refusal, ...] = ()

    def trace(self, case: str) -> Trace:
        """The trace of a case that the plan has; else KeyError."""
        for trace in self.traces:
            if trace.case == case:
                return trace
        raise KeyError(case)

    def judged_kernels(self) -> frozenset[int]:
        """Indices of the kernels that other cases than those of generality launch."""
        judged = [trace for trace in self.traces if not trace.case.startswith(OTHER)]
        steps = (step for trace in judged for step in walk((*trace.construct, *trace.first, *trace.steps)))
        return frozenset(step.kernel for step in steps if isinstance(step, Launch))

    def dump(self) -> bytes:
        return json.dumps(_document(self), separators=(",", ":"), allow_nan=False).encode()


def walk(steps: tuple[Step, ...]) -> Iterator[Call | Launch]:
    """Every operator and launch, those of all alternatives among them."""
    for step in steps:
        if isinstance(step, Choose):
            for alternative in step.alternatives:
                yield from walk(alternative.steps)
        else:
            yield step


def kernels_of(steps: tuple[Step, ...]) -> Iterator[int]:
    """The kernel of every launch, in order."""
    return (step.kernel for step in walk(steps) if isinstance(step, Launch))


PLAIN: Final = frozenset((type(None), bool, int, float, str))
"""The types of what stands for itself: a plan may have millions of these, which are told by a glance."""


def ids_in(arg: Any) -> set[int]:
    """The values that an argument names, or several in a tuple."""
    if isinstance(arg, Ref | Item | Descriptor | Address):
        return {arg.id}
    if isinstance(arg, Sym):
        return ids_in(arg.expr)
    if isinstance(arg, Operation):
        return ids_in(arg.left) | ids_in(arg.right)
    items = arg.items if isinstance(arg, List) else arg if isinstance(arg, tuple) else ()
    return set().union(*(ids_in(item) for item in items if type(item) not in PLAIN))


def tree_leaves(tree: Tree) -> Iterator[Leaf]:
    """The tensors of a tree, in its order."""
    if isinstance(tree, Leaf):
        yield tree
    elif isinstance(tree, Dict):
        for _, item in tree.items:
            yield from tree_leaves(item)
    elif isinstance(tree, List | tuple):
        for item in tree.items if isinstance(tree, List) else tree:
            yield from tree_leaves(item)


def reads(step: Step) -> set[int]:
    """The ids that a step reads, inside all its alternatives too."""
    if isinstance(step, Choose):
        return set().union(*(reads(inner) for alternative in step.alternatives for inner in alternative.steps))
    more = step.grid if isinstance(step, Launch) else tuple(value for _, value in step.kwargs)
    return ids_in((step.args, more))


def defines(step: Step) -> set[int]:
    """The ids that a step leaves to those after it: an alternative leaves none."""
    return {leaf.id for leaf in tree_leaves(step.out)} if isinstance(step, Call) else set()


def addressed(step: Step) -> set[int]:
    """The ids whose addresses a step makes numbers of, which may be read as long as those are."""
    if not isinstance(step, Call) or step.op != CONSTANT:
        return set()
    return ids_in(tuple(item for arg in step.args if isinstance(arg, List) for item in arg.items))


# --- writing: JSON takes a tuple for a list ---


def node(value: Any) -> Any:
    """JSON of a constant, argument, expression or tree."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return {"f": value.hex() if math.isfinite(value) else str(value)}
    if type(value) is tuple:
        return {"tuple": [node(item) for item in value]}
    write = _WRITERS.get(type(value))
    if write is None:
        raise TypeError(f"a plan cannot hold a {type(value).__name__}")
    return write(value)


_WRITERS: Final[dict[type, Callable[[Any], Any]]] = {
    Dtype: lambda it: {"dtype": it.name},
    Constexpr: lambda it: {"constexpr": node(it.value)},
    FunctionRef: lambda it: {"function": it.index},
    ModuleRef: lambda it: {"module": it.name},
    ObjectRef: lambda it: {"object": it.name},
    Table: lambda it: {"table": [[node(key), node(value)] for key, value in it.rows]},
    Ref: lambda it: {"t": it.id},
    List: lambda it: {"list": [node(item) for item in it.items]},
    Dict: lambda it: {"dict": [[key, node(item)] for key, item in it.items]},
    TorchDtype: lambda it: {"torch_dtype": it.name},
    Device: lambda it: {"device": it.kind},
    Layout: lambda it: {"layout": it.name},
    MemoryFormat: lambda it: {"memory_format": it.name},
    Item: lambda it: {"item": it.id},
    Operation: lambda it: {it.name: [node(it.left), node(it.right)]},
    Sym: lambda it: {"sym": node(it.expr)},
    Address: lambda it: {"address": it.id, "offset": it.offset},
    Leaf: lambda it: {"t": it.id, "shape": it.shape, "stride": it.stride, "dtype": it.dtype},
    Descriptor: lambda it: {"descriptor": {"t" if name == "id" else name: of for name, of in vars(it).items()}},
}


def _pairs(items: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    return {name: node(value) for name, value in items}


def _step(step: Step) -> dict[str, Any]:
    if isinstance(step, Call):
        args, kwargs = [node(arg) for arg in step.args], _pairs(step.kwargs)
        return {"op": step.op, "args": args, "kwargs": kwargs, "out": node(step.out), "line": step.line}
    if isinstance(step, Launch):
        grid, args = [node(size) for size in step.grid], [node(arg) for arg in step.args]
        return {"launch": step.kernel, "grid": grid, "args": args, "line": step.line}
    alternatives = [{"config": one.config, "steps": [_step(item) for item in one.steps]} for one in step.alternatives]
    return {"choose": alternatives, "line": step.line}


def kernel_node(kernel: Kernel) -> dict[str, Any]:
    """JSON of a kernel: equal for equal ones."""
    constants = [(path, node(value)) for path, value in kernel.constants]
    return {**vars(kernel), "constants": constants, "options": _pairs(kernel.options)}


def _trace(trace: Trace) -> dict[str, Any]:
    steps = {name: [_step(step) for step in getattr(trace, name)] for name in ("construct", "first", "steps")}
    whole = {"inputs": node(trace.inputs), "parameters": dict(trace.parameters), "output": node(trace.output)}
    return {**vars(trace), **whole, **steps}


def _document(plan: Plan) -> dict[str, Any]:
    functions = [
        {**vars(function), "globals": _pairs(function.globals), "defaults": _pairs(function.defaults)}
        for function in plan.functions
    ]
    document = {
        "version": VERSION,
        "target": plan.target,
        "source": plan.source,
        "functions": functions,
        "kernels": [kernel_node(kernel) for kernel in plan.kernels],
        "traces": [_trace(trace) for trace in plan.traces],
    }
    return {**document, "refusals": [asdict(one) for one in plan.refusals]} if plan.refusals else document


# --- reading: small things ---

Reader: TypeAlias = Callable[[Any, str], Any]
"""Makes something of a part of the document, whose name for PlanError is the second argument."""


def _shown(value: Any) -> str:
    """A value for a message: short in any case."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return f"{value!r:.60}" if not isinstance(value, str) else ascii(value[:60])


def _object(found: Any, field: str, keys: tuple[str, ...]) -> dict[str, Any]:
    """An object with exactly these keys."""
    if not isinstance(found, dict):
        raise PlanError(field, f"must be an object, not {_shown(found)}")
    for key in found:
        if key not in keys:
            raise PlanError(field, f"has an unknown key {key[:60]!a}")
    for key in keys:
        if key not in found:
            raise PlanError(f"{field}.{key}", "is missing")
    return found


def _list(found: Any, field: str, most: int, exactly: int | None = None) -> list[Any]:
    if not isinstance(found, list):
        raise PlanError(field, f"must be a list, not {_shown(found)}")
    if exactly is not None and len(found) != exactly:
        raise PlanError(field, f"must have {exactly} items, not {len(found)}")
    if len(found) > most:
        raise PlanError(field, f"has {len(found)} items, more than {most}")
    return found


def _int(found: Any, field: str, low: int, high: int) -> int:
    if type(found) is not int:
        raise PlanError(field, f"must be an integer, not {_shown(found)}")
    if not low <= found <= high:
        shown = found if abs(found) < 1 << 80 else "a huge number"
        raise PlanError(field, f"must be from {low} to {high}, not {shown}")
    return found


def _bool(found: Any, field: str) -> bool:
    if type(found) is not bool:
        raise PlanError(field, f"must be true or false, not {_shown(found)}")
    return found


def _text(found: Any, field: str, most: int = NAME_MAX) -> str:
    if not isinstance(found, str):
        raise PlanError(field, f"must be a text, not {_shown(found)}")
    if len(found) > most:
        raise PlanError(field, f"has {len(found)} characters, more than {most}")
    if any("\ud800" <= character <= "\udfff" for character in found):
        raise PlanError(field, "has halves of characters, which is no text")
    return found


def _match(found: Any, field: str, form: re.Pattern[str], what: str) -> str:
    text = _text(found, field)
    if not form.fullmatch(text):
        raise PlanError(field, f"must be {what}, not {_shown(text)}")
    return text


def _choice(found: Any, field: str, known: Any, what: str) -> str:
    text = _text(found, field)
    if text not in known:
        raise PlanError(field, f"{_shown(text)} is not {what}")
    return text


def _mapping(found: Any, field: str, most: int) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise PlanError(field, f"must be an object, not {_shown(found)}")
    if len(found) > most:
        raise PlanError(field, f"has {len(found)} keys, more than {most}")
    for key in found:
        _text(key, f"{field} key")
    return found


_identifier: Final[Reader] = partial(_match, form=_IDENTIFIER, what="an identifier")


def _each(found: Any, field: str, most: int, read: Reader, *, holds_constants: bool = False) -> tuple[Any, ...]:
    """A list of at most so many items, each read by the given function.

    holds_constants: integers are among what it reads. Most items are, and need no name for a fault.
    """
    return tuple(
        item
        if holds_constants and type(item) is int and INT_MIN <= item <= INT_MAX
        else read(item, f"{field}[{index}]")
        for index, item in enumerate(_list(found, field, most))
    )


def _pair(found: Any, field: str, first: Reader, second: Reader) -> tuple[Any, Any]:
    one, other = _list(found, field, 2, exactly=2)
    return first(one, f"{field}[0]"), second(other, f"{field}[1]")


def _names(found: Any, field: str, read: Reader) -> tuple[tuple[str, Any], ...]:
    """An object of identifiers, its values read by the given function."""
    names = _mapping(found, field, ARGUMENTS_MAX)
    for name in names:
        _identifier(name, f"{field} key")
    return tuple((name, read(value, f"{field}.{name}")) for name, value in names.items())


def _one_key(found: Any, field: str) -> tuple[str, Any]:
    if not isinstance(found, dict) or len(found) != 1:
        raise PlanError(field, f"must be an object with one key, not {_shown(found)}")
    ((kind, body),) = found.items()
    return kind, body


def _float(found: Any, field: str) -> float:
    text = _text(found, field)
    if text in ("nan", "inf", "-inf"):
        return float(text)
    try:
        value = float.fromhex(text)
    except (ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value) or not text.lstrip("-").startswith("0x"):
        raise PlanError(field, f"{_shown(text)} is not a hexadecimal float")
    return value


def _sizes(found: Any, field: str, low: int = 0) -> tuple[int, ...]:
    return _each(found, field, RANK_MAX, partial(_int, low=low, high=SIZE_MAX))


# --- reading: what all traces share ---


def _const(found: Any, field: str, functions: int, depth: int = 0) -> Const:
    """A constant; `functions` says how many functions it may name."""
    if found is None or type(found) is bool:
        return found
    if type(found) is int:
        return _int(found, field, INT_MIN, INT_MAX)
    if type(found) is str:
        return _text(found, field, TEXT_MAX)
    if depth > DEPTH_MAX:
        raise PlanError(field, f"is nested deeper than {DEPTH_MAX}")
    kind, body = _one_key(found, field)
    inside = f"{field}.{kind:.40}"
    if kind == "f":
        return _float(body, inside)
    if kind == "dtype":
        return Dtype(_match(body, inside, _DTYPE, "a dtype of Triton"))
    if kind == "constexpr":
        return Constexpr(_const(body, inside, functions, depth + 1))
    if kind == "function":
        return FunctionRef(_int(body, inside, 0, functions - 1))
    if kind == "tuple":
        item = partial(_const, functions=functions, depth=depth + 1)
        return _each(body, inside, ITEMS_MAX, item, holds_constants=True)
    raise PlanError(field, f"{_shown(kind)} is not a kind of constant")


def _global(found: Any, field: str, functions: int) -> Const | ModuleRef | ObjectRef | Table:
    if isinstance(found, dict) and len(found) == 1:
        kind, body = _one_key(found, field)
        if kind == "table":
            plain = partial(_const, functions=0)
            return Table(_each(body, f"{field}.table", ITEMS_MAX, partial(_pair, first=plain, second=plain)))
        if kind in ("module", "object"):
            name = _match(body, f"{field}.{kind}", MODULES, "a name inside triton")
            return ModuleRef(name) if kind == "module" else ObjectRef(name)
    return _const(found, field, functions)


def _function(found: Any, field: str, index: int) -> Function:
    keys = _object(found, field, ("name", "line", "globals", "defaults", "noinline"))
    return Function(
        _identifier(keys["name"], f"{field}.name"),
        _int(keys["line"], f"{field}.line", 1, LINE_MAX),
        _names(keys["globals"], f"{field}.globals", partial(_global, functions=index)),
        _names(keys["defaults"], f"{field}.defaults", partial(_const, functions=index)),
        _bool(keys["noinline"], f"{field}.noinline"),
    )


def _read_type(found: Any, field: str, depth: int = 0) -> Type:
    if isinstance(found, list):
        if depth > DEPTH_MAX:
            raise PlanError(field, f"is nested deeper than {DEPTH_MAX}")
        return _each(found, field, ARGUMENTS_MAX, partial(_read_type, depth=depth + 1))
    return _match(found, field, _TYPE, "a type of Triton's signatures")


def _path(found: Any, field: str, signature: tuple[tuple[str, Type], ...]) -> Path:
    path = _each(found, field, DEPTH_MAX, partial(_int, low=0, high=ARGUMENTS_MAX))
    kind: Type = tuple(entry[1] for entry in signature)
    for step in path:
        if isinstance(kind, str) or step >= len(kind):
            raise PlanError(field, f"{list(path)} leads to no parameter")
        kind = kind[step]
    if not path:
        raise PlanError(field, "must name a parameter")
    return path


def _kernel(found: Any, field: str, functions: int) -> Kernel:
    keys = _object(found, field, ("function", "signature", "constants", "attributes", "options"))
    parameter = partial(_pair, first=_identifier, second=_read_type)
    signature = _each(keys["signature"], f"{field}.signature", ARGUMENTS_MAX, parameter)
    if len({name for name, _ in signature}) != len(signature):
        raise PlanError(f"{field}.signature", "names a parameter twice")

    def by_path(name: str, read: Reader) -> dict[Path, Any]:
        entry = partial(_pair, first=partial(_path, signature=signature), second=read)
        return dict(_each(keys[name], f"{field}.{name}", ITEMS_MAX, entry))

    constants = by_path("constants", partial(_const, functions=functions))
    attributes = by_path("attributes", _attributes)
    options = _names(keys["options"], f"{field}.options", partial(_const, functions=0))
    for name, _ in options:
        _choice(name, f"{field}.options key", OPTIONS, "an option that a plan may set")
    _all_given(signature, constants, f"{field}.constants")
    function = _int(keys["function"], f"{field}.function", 0, functions - 1)
    return Kernel(function, signature, tuple(constants.items()), tuple(attributes.items()), options)


def _attributes(found: Any, field: str) -> tuple[tuple[str, int], ...]:
    name = partial(_choice, known=("tt.divisibility",), what="an attribute")
    return _each(found, field, 8, partial(_pair, first=name, second=partial(_int, low=1, high=16)))


def _all_given(signature: tuple[tuple[str, Type], ...], constants: dict[Path, Const], field: str) -> None:
    for index, (name, kind) in enumerate(signature):
        if kind == "constexpr" and (index,) not in constants:
            raise PlanError(field, f"lacks the value of {_shown(name)}")


# --- reading: a trace ---

_KNOWN: Final[dict[str, tuple[type, Any, str]]] = {
    "torch_dtype": (TorchDtype, DTYPES, "a dtype of torch"),
    "device": (Device, DEVICES, "a device"),
    "layout": (Layout, LAYOUTS, "a layout"),
    "memory_format": (MemoryFormat, MEMORY_FORMATS, "a memory format"),
}


class _TraceReader:
    """Reads one trace; knows which ids are defined so far, and how many steps there were."""

    def __init__(self, kernels: tuple[Kernel, ...], functions: int) -> None:
        self._kernels = kernels
        self._functions = functions
        self._defined: set[int] = set()
        self._order: list[int] = []
        """The same in the order of their definition."""
        self._used: set[int] = set()
        """By the arguments of the step that is being read."""
        self._steps = 0

    def trace(self, found: Any, field: str) -> Trace:
        keys = _object(found, field, ("case", "inputs", "parameters", "construct", "first", "steps", "output"))
        case = _text(keys["case"], f"{field}.case")
        construct = self._read_steps(keys["construct"], f"{field}.construct")
        parameters = _mapping(keys["parameters"], f"{field}.parameters", PARAMETERS_MAX)
        for index, value in enumerate(parameters.values()):
            self._id(value, f"{field}.parameters[{index}]")
        first = self._read_steps(keys["first"], f"{field}.first")
        self._used = set()
        inputs = self._tree(keys["inputs"], f"{field}.inputs", define=True)
        steps = self._read_steps(keys["steps"], f"{field}.steps")
        output = self._tree(keys["output"], f"{field}.output", define=False)
        return Trace(case, inputs, tuple(parameters.items()), construct, first, steps, output)

    def _read_steps(self, found: Any, field: str) -> tuple[Step, ...]:
        return _each(found, field, STEPS_MAX, self._step)

    def _step(self, found: Any, field: str, inside: bool = False) -> Step:
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise PlanError(field, f"is one of more than {STEPS_MAX} steps")
        if not isinstance(found, dict):
            raise PlanError(field, f"must be an object, not {_shown(found)}")
        if "op" in found:
            return self._call(_object(found, field, ("op", "args", "kwargs", "out", "line")), field)
        if "launch" in found:
            return self._launch(_object(found, field, ("launch", "grid", "args", "line")), field)
        if "choose" in found and not inside:
            return self._choose(_object(found, field, ("choose", "line")), field)
        raise PlanError(field, "is neither an operator nor a launch" + ("" if inside else " nor a choice"))

    def _call(self, keys: dict[str, Any], field: str) -> Call:
        self._used = set()
        op = _match(keys["op"], f"{field}.op", _OPERATOR, "an operator of torch with its overload")
        args = self._args(keys["args"], f"{field}.args", addresses=op == CONSTANT)
        kwargs = _names(keys["kwargs"], f"{field}.kwargs", self._arg)
        if op == CONSTANT:
            _constant_fits(args, kwargs, field)
        out = self._tree(keys["out"], f"{field}.out", define=True)
        return Call(op, args, kwargs, out, self._line(keys, field))

    def _launch(self, keys: dict[str, Any], field: str) -> Launch:
        index = _int(keys["launch"], f"{field}.launch", 0, len(self._kernels) - 1)
        kernel = self._kernels[index]
        grid = _list(keys["grid"], f"{field}.grid", 3, exactly=3)
        sizes = tuple(self._grid(size, f"{field}.grid[{axis}]", axis) for axis, size in enumerate(grid))
        args = self._args(keys["args"], f"{field}.args", launch=True)
        if len(args) != len(kernel.signature):
            raise PlanError(f"{field}.args", f"are {len(args)}, where the kernel has {len(kernel.signature)}")
        constants = dict(kernel.constants)
        for place, (arg, (_, kind)) in enumerate(zip(args, kernel.signature, strict=True)):
            _fits(arg, kind, (place,), constants, f"{field}.args[{place}]")
        return Launch(index, sizes, args, self._line(keys, field))

    def _choose(self, keys: dict[str, Any], field: str) -> Choose:
        alternatives = []
        found = _list(keys["choose"], f"{field}.choose", ALTERNATIVES_MAX)
        if not found:
            raise PlanError(f"{field}.choose", "offers nothing")
        for index, entry in enumerate(found):
            where = f"{field}.choose[{index}]"
            body = _object(entry, where, ("config", "steps"))
            config = _text(body["config"], f"{where}.config", TEXT_MAX)
            before = len(self._order)
            read = _each(body["steps"], f"{where}.steps", ARGUMENTS_MAX, partial(self._step, inside=True))
            self._defined.difference_update(self._order[before:])
            del self._order[before:]
            alternatives.append(Alternative(config, read))
        return Choose(tuple(alternatives), self._line(keys, field))

    @staticmethod
    def _line(keys: dict[str, Any], field: str) -> int:
        return _int(keys["line"], f"{field}.line", 0, LINE_MAX)

    def _grid(self, found: Any, field: str, axis: int) -> int | Sym:
        if isinstance(found, dict):
            kind, body = _one_key(found, field)
            if kind == "sym":
                return Sym(self._expr(body, f"{field}.sym"))
        return _int(found, field, 1, GRID_MAX[axis])

    def _id(self, found: Any, field: str) -> int:
        value = _int(found, field, 0, TENSORS_MAX - 1)
        if value not in self._defined:
            raise PlanError(field, f"tensor {value} is not defined yet")
        self._used.add(value)
        return value

    def _args(self, found: Any, field: str, launch: bool = False, addresses: bool = False) -> tuple[Arg, ...]:
        read = partial(self._arg, launch=launch, addresses=addresses or launch)
        return _each(found, field, ARGUMENTS_MAX, read, holds_constants=True)

    def _arg(self, found: Any, field: str, launch: bool = False, addresses: bool = False, depth: int = 0) -> Arg:
        if not isinstance(found, dict):
            return _const(found, field, 0)
        if depth > DEPTH_MAX:
            raise PlanError(field, f"is nested deeper than {DEPTH_MAX}")
        if addresses and "address" in found:
            keys = _object(found, field, ("address", "offset"))
            offset = _int(keys["offset"], f"{field}.offset", -TENSOR_BYTES_MAX, TENSOR_BYTES_MAX)
            return Address(self._id(keys["address"], f"{field}.address"), offset)
        kind, body = _one_key(found, field)
        inside = f"{field}.{kind:.40}"
        if kind == "t":
            return Ref(self._id(body, inside))
        if kind in ("list", "tuple"):
            item = partial(self._arg, launch=launch, addresses=addresses, depth=depth + 1)
            read = _each(body, inside, ITEMS_MAX, item, holds_constants=True)
            return List(read) if kind == "list" else read
        if kind in _KNOWN:
            make, known, what = _KNOWN[kind]
            return make(_choice(body, inside, known, what))
        if kind == "sym":
            return Sym(self._expr(body, inside))
        if launch and kind == "descriptor":
            return self._descriptor(body, inside)
        return _const(found, field, self._functions if launch else 0, depth)

    def _expr(self, found: Any, field: str, depth: int = 0) -> Expr:
        if type(found) is int:
            return _int(found, field, INT_MIN, INT_MAX)
        if depth > DEPTH_MAX:
            raise PlanError(field, f"is nested deeper than {DEPTH_MAX}")
        kind, body = _one_key(found, field)
        inside = f"{field}.{kind:.40}"
        if kind == "f":
            return _float(body, inside)
        if kind == "item":
            return Item(self._id(body, inside))
        if kind in OPERATIONS:
            operand = partial(self._expr, depth=depth + 1)
            return Operation(kind, *_pair(body, inside, operand, operand))
        raise PlanError(field, f"{_shown(kind)} is not an operation")

    def _descriptor(self, found: Any, field: str) -> Descriptor:
        keys = _object(found, field, ("t", "shape", "strides", "block", "padding"))
        shape, strides = _sizes(keys["shape"], f"{field}.shape"), _sizes(keys["strides"], f"{field}.strides")
        block = _sizes(keys["block"], f"{field}.block", low=1)
        if not 1 <= len(shape) <= 5 or not len(shape) == len(strides) == len(block):
            raise PlanError(field, f"has {len(shape)} sizes, {len(strides)} strides and a block of {len(block)}")
        padding = _choice(keys["padding"], f"{field}.padding", PADDINGS, "a padding")
        return Descriptor(self._id(keys["t"], f"{field}.t"), shape, strides, block, padding)

    def _tree(self, found: Any, field: str, define: bool, depth: int = 0) -> Tree:
        if not isinstance(found, dict):
            return _const(found, field, 0)
        if depth > DEPTH_MAX:
            raise PlanError(field, f"is nested deeper than {DEPTH_MAX}")
        if "t" in found:
            return self._leaf(found, field, define)
        kind, body = _one_key(found, field)
        inside = f"{field}.{kind:.40}"
        if kind in ("list", "tuple"):
            read = _each(body, inside, ITEMS_MAX, partial(self._tree, define=define, depth=depth + 1))
            return List(read) if kind == "list" else read
        if kind == "dict":
            return self._dict(body, inside, define, depth)
        return _const(found, field, 0, depth)

    def _dict(self, found: Any, field: str, define: bool, depth: int) -> Dict:
        item = partial(self._tree, define=define, depth=depth + 1)
        pairs = _each(found, field, ITEMS_MAX, partial(_pair, first=_key, second=item))
        if len({key for key, _ in pairs}) != len(pairs):
            raise PlanError(field, "has a key twice")
        return Dict(pairs)

    def _leaf(self, found: dict[str, Any], field: str, define: bool) -> Leaf:
        keys = _object(found, field, ("t", "shape", "stride", "dtype"))
        dtype = _choice(keys["dtype"], f"{field}.dtype", DTYPES, "a dtype of torch")
        shape, stride = (_each(keys[name], f"{field}.{name}", RANK_MAX, _known_size) for name in ("shape", "stride"))
        if len(shape) != len(stride):
            raise PlanError(f"{field}.stride", f"has {len(stride)} items, where the shape has {len(shape)}")
        _extent(shape, stride, DTYPES[dtype], field)
        value = _int(keys["t"], f"{field}.t", 0, TENSORS_MAX - 1)
        if not define:
            self._id(value, f"{field}.t")
        elif value in self._defined and value not in self._used:
            raise PlanError(f"{field}.t", f"tensor {value} is defined already")
        if value not in self._defined:
            self._defined.add(value)
            self._order.append(value)
        return Leaf(value, shape, stride, dtype)


def _known_size(found: Any, field: str) -> int | None:
    return None if found is None else _int(found, field, 0, SIZE_MAX)


def _key(found: Any, field: str) -> str | int:
    if type(found) not in (str, int):
        raise PlanError(field, f"must be a text or an integer, not {_shown(found)}")
    return _text(found, field) if type(found) is str else _int(found, field, INT_MIN, INT_MAX)


def _extent(shape: tuple[int | None, ...], stride: tuple[int | None, ...], itemsize: int, field: str) -> None:
    known = [(size, step) for size, step in zip(shape, stride, strict=True) if size is not None and step is not None]
    if math.prod(size for size in shape if size is not None) > ELEMENTS_MAX:
        raise PlanError(f"{field}.shape", f"has more than {ELEMENTS_MAX} elements")
    last = sum((size - 1) * step for size, step in known if size > 0)
    if (last + 1) * itemsize > TENSOR_BYTES_MAX and 0 not in shape:
        raise PlanError(field, f"spans more than {TENSOR_BYTES_MAX} bytes")


_INTEGERS: Final = re.compile(r"([iu])(1|8|16|32|64)", re.A)


def _constant_fits(args: tuple[Arg, ...], kwargs: tuple[tuple[str, Arg], ...], field: str) -> None:
    """Whether a plan.constant has nothing but what Python knew: a symbol among its numbers would be calculated."""
    if len(args) != 2 or not all(isinstance(arg, List) for arg in args):
        raise PlanError(f"{field}.args", "must be a list of numbers and a list of sizes")
    for place, (arg, kinds) in enumerate(zip(args, (_NUMBERS, (int,)), strict=True)):
        for index, item in enumerate(arg.items):  # type: ignore[union-attr]
            if type(item) not in kinds:
                raise PlanError(f"{field}.args[{place}].list[{index}]", "is not a number that Python knew")
    for name, value in kwargs:
        if not isinstance(value, {"dtype": TorchDtype, "device": Device}.get(name, ())):
            raise PlanError(f"{field}.kwargs.{name:.40}", "is neither a dtype nor a device")


_NUMBERS: Final = (bool, int, float, Address)


def _fits(arg: Arg, kind: Type, path: Path, constants: dict[Path, Const], field: str) -> None:
    """Whether an argument is what the kernel's signature says; one that was compiled in must be equal."""
    if not isinstance(kind, str):
        if type(arg) is not tuple or len(arg) != len(kind):
            raise PlanError(field, f"must be a tuple of {len(kind)}")
        for index, (item, inner) in enumerate(zip(arg, kind, strict=True)):
            _fits(item, inner, (*path, index), constants, f"{field}.tuple[{index}]")
        return
    if kind == "constexpr":
        known = constants.get(path, ...)
        if arg is not known and repr(arg) != repr(known):
            raise PlanError(field, "is not the constant that the kernel is compiled with")
    elif kind.startswith("*"):
        if not isinstance(arg, Ref | Address):
            raise PlanError(field, f"must be a tensor, for the kernel takes {kind}")
    elif kind.startswith("tensordesc"):
        if not isinstance(arg, Descriptor):
            raise PlanError(field, f"must be a descriptor, for the kernel takes {kind}")
    elif (integer := _INTEGERS.fullmatch(kind)) is not None:
        _fits_integer(arg, integer[1] == "i", int(integer[2]), field, kind)
    elif not isinstance(arg, int | float | Sym):
        raise PlanError(field, f"must be a number, for the kernel takes {kind}")


def _fits_integer(arg: Arg, signed: bool, bits: int, field: str, kind: str) -> None:
    if isinstance(arg, Sym) or (isinstance(arg, Address) and bits == 64):
        return
    if not isinstance(arg, int):
        raise PlanError(field, f"must be an integer, for the kernel takes {kind}")
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed and bits > 1 else (0, (1 << bits) - 1)
    _int(int(arg), field, low, high)


# --- reading: the document ---


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise PlanError("document", f"has the key {twice[:60]!a} twice in one object")
    return made


def _no_number(text: str) -> Any:
    raise PlanError("document", f"has the number {text[:40]}; floats are hexadecimal texts")


def _integer(text: str) -> int:
    if len(text) > 20:
        raise PlanError("document", f"has an integer of {len(text)} characters")
    return int(text)


def _load(data: bytes) -> Any:
    if len(data) > BYTES_MAX:
        raise PlanError("document", f"has {len(data)} bytes, more than {BYTES_MAX}")
    try:
        return json.loads(
            data.decode(),
            object_pairs_hook=_unique,
            parse_float=_no_number,
            parse_constant=_no_number,
            parse_int=_integer,
        )
    except UnicodeDecodeError as error:
        raise PlanError("document", f"is not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise PlanError("document", f"is not JSON at character {error.pos}: {error.msg}") from None
    except RecursionError:
        raise PlanError("document", "is nested too deep") from None


def _refusal(found: Any, field: str) -> Refusal:
    keys = _object(found, field, ("case", "kind", "line", "reason"))
    return Refusal(
        _text(keys["case"], f"{field}.case"),
        _choice(keys["kind"], f"{field}.kind", REFUSALS, "a kind of refusal"),
        _int(keys["line"], f"{field}.line", 0, LINE_MAX),
        _text(keys["reason"], f"{field}.reason", REASON_MAX),
    )


def parse(data: bytes) -> Plan:
    """The plan that the bytes are. PlanError names the field that is wrong."""
    found = _load(data)
    refusals = found.pop("refusals", []) if isinstance(found, dict) else []
    keys = _object(found, "plan", ("version", "target", "source", "functions", "kernels", "traces"))
    _int(keys["version"], "version", VERSION, VERSION)
    functions = tuple(
        _function(item, f"functions[{index}]", index)
        for index, item in enumerate(_list(keys["functions"], "functions", FUNCTIONS_MAX))
    )
    kernels = _each(keys["kernels"], "kernels", KERNELS_MAX, partial(_kernel, functions=len(functions)))

    def trace(item: Any, field: str) -> Trace:
        return _TraceReader(kernels, len(functions)).trace(item, field)

    traces = _each(keys["traces"], "traces", TRACES_MAX, trace)
    for index, one in enumerate(traces):
        if any(one.case == other.case for other in traces[:index]):
            raise PlanError(f"traces[{index}].case", f"{_shown(one.case)} is there twice")
    return Plan(
        _match(keys["target"], "target", _TARGET, 'a target such as "cuda:90"'),
        _match(keys["source"], "source", _SOURCE, "sha256: and 64 hexadecimal digits"),
        functions,
        kernels,
        traces,
        _each(refusals, "refusals", TRACES_MAX, _refusal),
    )

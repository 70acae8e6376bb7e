"""The cases of a task: its own sizes, a tiny one, and others, found by rewriting the reference's source.

KernelBench keeps sizes in module-level constants, KernelBook in literals inside `get_inputs` and
`get_init_inputs`. Each such integer is a knob. A case is a set of knobs with other values; it is valid when
the rewritten reference runs. This module runs the reference, so it is only ever used in a reference's child.
"""

from __future__ import annotations

import ast
import copy
import linecache
import math
import operator
import re
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

import torch
from oracle import tolerance, variations
from shared import values
from shared.movement import VIEWS_AND_COPIES, words
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode

from live import flops

REFERENCE_FILE: Final = "reference.py"
INPUT_FUNCTIONS: Final = ("get_inputs", "get_init_inputs")
TINY: Final = 4
CHUNK: Final = 1 << 28
SEEDS_TRIED: Final = range(3)
TINY_STEPS: Final = (4, 8, 16, 32, 64)
SHAPE_FACTORS: Final = (0.75, 1.25, 2.0)
ARGUMENT_FACTOR: Final = 1.25
HALF_DTYPES: Final = ("float16", "bfloat16")
"""Tried in this order for a case in half precision."""
EXAMINED_ELEMENTS: Final = 1 << 20
"""Without a GPU, a case up to this size is called several times to learn what its answers depend on."""
REAL_ELEMENTS_MAX: Final = 1 << 22
"""Without a GPU, cases with more elements than this are checked on fake tensors only."""

_STRUCTURE: Final = re.compile(r"(^|_)(dim|axis|kernel|stride|padding|dilation|groups|layers?)(_|$)", re.IGNORECASE)
"""Names of constants that say how, not how much: a changed axis or stride is another task."""
_OPERATIONS: Final[dict[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Pow: operator.pow,
}

MATRIX_FUNCTIONS: Final = frozenset(
    (
        "linear", "bilinear", "matmul", "__matmul__", "__rmatmul__", "mm", "addmm", "bmm", "baddbmm", "addbmm", "mv",
        "addmv", "dot", "vdot", "inner", "einsum", "tensordot", "chain_matmul", "multi_dot", "cdist",
        "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution",
        "lstm", "gru", "rnn_tanh", "rnn_relu", "scaled_dot_product_attention", "multi_head_attention_forward",
        "_native_multi_head_attention", "_transformer_encoder_layer_fwd",
    )
)  # fmt: skip
"""Names of torch's functions that may be computed in TF32."""

TIE_BREAKERS: Final = words(
    """
    topk sort argsort msort kthvalue median nanmedian mode multinomial unique fractional_max_pool2d_with_indices
    max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices
    """
)
"""Names of torch's functions that say which values they took, where any of some equal ones will do."""
INTEGER_ARITHMETIC: Final = words(
    """
    add sub rsub mul neg abs sum cumsum max min amax amin maximum minimum clamp where eq ne lt le gt ge relu sign sgn
    bitwise_and bitwise_or bitwise_xor bitwise_not to type float double half bfloat16 int long short char clone
    contiguous view reshape flatten permute transpose t unsqueeze squeeze expand dim size numel stride
    is_floating_point empty_like zeros_like ones_like __get__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __add__
    __radd__ __sub__ __rsub__ __mul__ __rmul__ __neg__ __and__ __rand__ __or__ __ror__ __xor__ __rxor__ __invert__
    remainder fmod __mod__ any all argmax argmin sort flip roll cat stack diff byte prod logical_and logical_or
    logical_not masked_fill
    """
)
"""Operations on integers of any size: none of the integers is an index, a length or a divisor."""
BY_NUMBERS: Final = words(
    """
    __getitem__ __setitem__ __rshift__ __lshift__ bitwise_right_shift bitwise_left_shift floor_divide __floordiv__ div
    __truediv__ pow __pow__
    """
)
"""The same where the second operand is a number or a slice, and no integers that rest on the inputs."""
WIDE: Final = 4
"""Bytes of an integer that no float represents exactly: its results in floats do not count as arithmetic."""
REMAINDERS: Final = words("remainder fmod __mod__")
COMPARISONS: Final = words("eq ne lt le gt ge")
"""Of integers with others of another shape: these are classes, or lengths of the other operand."""

SOLVERS: Final = words(
    """
    inverse linalg_inv linalg_inv_ex linalg_pinv linalg_solve linalg_solve_ex linalg_solve_triangular linalg_lstsq
    cholesky linalg_cholesky linalg_cholesky_ex det linalg_det logdet slogdet linalg_slogdet linalg_qr linalg_lu
    """
)
"""Names of torch's functions that no matrix with one number in all its elements is fit for."""
SEARCHES: Final = {"searchsorted": 0, "bucketize": 1}
"""Names of torch's functions that search in something sorted, and its place among the arguments."""

Overrides = Mapping[str, int | float]
Tree = Any


class TaskRefused(Exception):
    """The reference is not a task: the text has the reason."""


@dataclass(frozen=True)
class Knob:
    """One integer that decides a size: "N" (module constant), "get_inputs:2" (third literal of a function).

    Or one float that decides how a model is made: "eps" (module constant), "get_init_inputs:float0".
    """

    name: str
    value: int | float


class _Rewriter(ast.NodeTransformer):
    """Collects the knobs of a module, and puts the overrides in."""

    def __init__(self, overrides: Overrides) -> None:
        self.overrides = overrides
        self.knobs: list[Knob] = []
        self.arguments: list[Knob] = []
        self._function = ""
        self._count = self._floats = 0

    def visit_Module(self, node: ast.Module) -> ast.Module:
        for statement in node.body:
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                statement.value = self._constant(statement.targets[0], statement.value)
            elif isinstance(statement, ast.FunctionDef) and statement.name in INPUT_FUNCTIONS:
                self._function, self._count, self._floats = statement.name, 0, 0
                self.generic_visit(statement)
        return node

    def _constant(self, target: ast.expr, value: ast.expr) -> ast.expr:
        """`N = 4`, `N = 2 * 1024`, `shape = (64, 32)` and `h, w = 64, 64` at module level."""
        row = value.elts if isinstance(value, ast.Tuple | ast.List) else None
        if isinstance(target, ast.Tuple) and row is not None and len(target.elts) == len(row):
            row[:] = [self._constant(name, item) for name, item in zip(target.elts, row, strict=True)]
        elif isinstance(target, ast.Name) and not _STRUCTURE.search(target.id):
            if row is None:
                return self._knob(value, target.id)
            row[:] = [self._knob(item, f"{target.id}[{index}]") for index, item in enumerate(row)]
        return value

    def _knob(self, node: ast.expr, name: str) -> ast.expr:
        value = _integer(node)
        if isinstance(node, ast.Constant) and type(node.value) is float and node.value > 0:
            self.arguments.append(Knob(name, node.value))
        elif value is None or value < 1:
            return node
        else:
            self.knobs.append(Knob(name, value))
        if name not in self.overrides:
            return node
        return ast.copy_location(ast.Constant(self.overrides[name]), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        """Behind a minus stands an axis or a mark, and no size."""
        value = node.operand.value if isinstance(node.operand, ast.Constant) else None
        if not isinstance(node.op, ast.USub) or type(value) not in (int, float):
            return self.generic_visit(node)  # type: ignore[return-value]
        self._count += type(value) is int  # others keep their names
        self._floats += type(value) is float and self._function == "get_init_inputs"
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if type(node.value) is float and self._function == "get_init_inputs":
            self._floats += 1
            return self._knob(node, f"{self._function}:float{self._floats - 1}")
        if type(node.value) is not int:
            return node
        name = f"{self._function}:{self._count}"
        self._count += 1
        return self._knob(node, name)


def _integer(node: ast.expr) -> int | None:
    """The value of an integer constant, or of a sum, product or power of some; None for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if not isinstance(node, ast.BinOp) or type(node.op) not in _OPERATIONS:
        return None
    left, right = _integer(node.left), _integer(node.right)
    if left is None or right is None or (isinstance(node.op, ast.Pow) and not 0 <= right <= 64):
        return None
    return _OPERATIONS[type(node.op)](left, right)


def find_knobs(source: str) -> tuple[list[Knob], list[Knob]]:
    """Every integer >= 1 that may decide a size, and every float > 0 that may decide how a model is made, in source
    order. SyntaxError as from the parser."""
    rewriter = _Rewriter({})
    rewriter.visit(ast.parse(source, REFERENCE_FILE))
    return rewriter.knobs, rewriter.arguments


def _prime(value: int) -> int:
    """The largest prime that is less, from 5 on; smaller values stay."""
    return next((n for n in range(value - 1, 4, -1) if all(n % d for d in range(2, int(n**0.5) + 1))), value)


def load_module(source: str, overrides: Overrides | None = None) -> types.ModuleType:
    """Run a reference as a new module with the overrides put in. Exceptions of the code are not caught."""
    tree = ast.parse(source, REFERENCE_FILE)
    if overrides:
        tree = _Rewriter(overrides).visit(tree)
        ast.fix_missing_locations(tree)
    module = types.ModuleType("reference")
    module.__file__ = REFERENCE_FILE
    linecache.cache[REFERENCE_FILE] = (len(source), None, source.splitlines(keepends=True), REFERENCE_FILE)
    exec(compile(tree, REFERENCE_FILE, "exec"), module.__dict__)
    return module


def find_entry(module: types.ModuleType, wanted: str | None) -> str:
    """The name of the reference's class: the one asked for, `Model`, or the only nn.Module of the file."""
    for function in INPUT_FUNCTIONS:
        if not callable(getattr(module, function, None)):
            raise TaskRefused(f"the reference has no function {function}()")
    if wanted is not None:
        if not isinstance(getattr(module, wanted, None), type):
            raise TaskRefused(f"the reference has no class {wanted!r} (entry_point)")
        return wanted
    own = [
        name
        for name, item in vars(module).items()
        if isinstance(item, type) and issubclass(item, torch.nn.Module) and item.__module__ == module.__name__
    ]
    if "Model" in own or len(own) == 1:
        return "Model" if "Model" in own else own[0]
    raise TaskRefused(
        f"the reference has no class Model; name one as entry_point (there are: {', '.join(own) or 'none'})"
    )


def init_arguments(module: types.ModuleType) -> tuple[list[Any], dict[str, Any]]:
    """get_init_inputs() as (args, kwargs): KernelBench's flat list, or KernelBook's [[args], {kwargs}]."""
    found = list(module.get_init_inputs())
    if len(found) == 2 and isinstance(found[0], list | tuple) and isinstance(found[1], dict):
        return list(found[0]), dict(found[1])
    return found, {}


@dataclass(frozen=True)
class Measured:
    """The measurements of a case, from one run of its reference."""

    init: Tree
    inputs: Tree
    outputs: Tree
    elements: int
    input_bytes: int
    output_bytes: int  # the least that a call writes to answer so
    state_bytes: int
    peak_bytes: int  # GPU memory in addition to the inputs while it ran; 0 without a GPU
    call_bytes: int  # the largest sum of its tensors in addition to the inputs, also without a GPU
    multiplies_matrices: bool  # products, convolutions, recurrent cells: TF32 may be used
    flops: int  # of the products whose number is plain (flops.py)
    operations: int  # calls of torch's functions that compute tensors: the nodes of the traced graph
    breaks_ties: bool  # which of equal values was chosen may be part of the answer
    varies_integers: bool  # integers among the inputs may have any value
    solves: bool  # matrices are inverted or factored
    searches: bool  # something that is computed has to be sorted, as the sums of probabilities are


def _note(tensor: torch.Tensor) -> values.TensorNote:
    return values.TensorNote.of(tensor)


def _input_note(tensor: torch.Tensor) -> values.TensorNote:
    return values.TensorNote.of(values.without_gaps(tensor))


def _has_finite(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and any(
        bool(tolerance.is_finite(part).any()) for part in leaf.reshape(-1).split(CHUNK)
    )


def run_once(
    module: types.ModuleType, entry: str, device: torch.device, *, is_fake: bool = False, dtype: str | None = None
) -> Measured:
    """Build the reference and call it once on its own inputs; exceptions are not caught.

    dtype: of its floating-point parameters and inputs; None: as they are.
    """
    torch.manual_seed(0)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    with device, torch.no_grad():
        args, kwargs = init_arguments(module)
        model = getattr(module, entry)(*args, **kwargs)
        if isinstance(model, torch.nn.Module) and device.type != "cpu":
            model = model.to(device)  # parameters made outside the device context, from numpy say
        model = cast_model(model, dtype)
        inputs = cast_inputs(values.to_device(list(module.get_inputs()), device), dtype)
        with _CallWatch(inputs, model) as watch:
            outputs = model(*inputs)
        watch.see(outputs)
        if device.type == "cuda":
            torch.cuda.synchronize()
        peak_bytes = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
    state = model.state_dict().values() if isinstance(model, torch.nn.Module) else ()
    init = {"args": args, "kwargs": kwargs}
    trees = (
        {key: values.encode(value, _note, "get_init_inputs()") for key, value in init.items()},
        values.encode(inputs, _input_note, "get_inputs()"),
        values.encode(outputs, _note, "forward()"),
    )
    ins, outs = values.notes(trees[1]), values.notes(trees[2])
    if not outs:
        raise TaskRefused("forward() returns no tensor")
    if not is_fake and not any(_has_finite(leaf) for _, leaf in values.leaves(outputs)):
        raise TaskRefused("forward() returns no finite value on the task's own inputs")
    input_bytes = sum(note.span_bytes for note in ins)
    return Measured(
        *trees,
        elements=sum(note.elements for note in (*ins, *outs)),
        input_bytes=input_bytes,
        output_bytes=_written_bytes(outputs, [inputs, _tensors_of(model)]),
        peak_bytes=max(0, peak_bytes - input_bytes),
        call_bytes=watch.most_bytes,
        multiplies_matrices=watch.found,
        flops=watch.flops,
        operations=watch.operations,
        breaks_ties=watch.breaks_ties,
        varies_integers=watch.varies_integers,
        solves=watch.solves,
        searches=watch.searches,
        state_bytes=sum(item.nbytes for item in state if isinstance(item, torch.Tensor)),
    )


def _tensors_of(model: Any) -> list[torch.Tensor]:
    return [*model.parameters(), *model.buffers()] if isinstance(model, torch.nn.Module) else []


def _written_bytes(outputs: Any, given: Any) -> int:
    """The least that is written for these outputs: no gap of a view, no memory twice, and nothing that was given."""
    known = {_storage(leaf)._cdata for leaf in _tensors(given) if _is_strided(leaf)}
    parts: dict[int, set[tuple[int, values.TensorNote]]] = {}
    for leaf in _tensors(outputs):
        if _storage(leaf)._cdata not in known:
            part = leaf.storage_offset() * leaf.itemsize, _note(leaf)
            parts.setdefault(_storage(leaf)._cdata, set()).add(part)
    return sum(map(_filled_bytes, parts.values()))


def _filled_bytes(parts: set[tuple[int, values.TensorNote]]) -> int:
    """Of parts of one memory, with where they begin."""
    ends = [begin + note.span_bytes for begin, note in parts]
    return min(sum(_own_bytes(note) for _, note in parts), max(ends) - min(begin for begin, _ in parts))


def _own_bytes(note: values.TensorNote) -> int:
    elements = math.prod(size for size, step in zip(note.shape, note.stride, strict=True) if step)
    return min(note.span_bytes, elements * note.dtype.itemsize)


class _CallWatch(TorchFunctionMode):
    """Sees whether a call gets to a function that libraries may do in TF32; counts what it computes.

    At the level of torch's functions: the first use of a dispatch mode imports for two seconds.
    """

    def __init__(self, inputs: Any, model: Any) -> None:
        super().__init__()
        self.found = False
        self.most_bytes = 0
        """Of tensors that there were at once, the model's among them, less the inputs."""
        self._live: dict[int, tuple[StorageWeakRef, int]] = {}
        self._inputs = {_storage(leaf)._cdata for leaf in _tensors(inputs) if _is_strided(leaf)}
        self._weigh(_tensors_of(model))
        self.flops = 0
        self.operations = 0
        self.breaks_ties = False
        self._chosen: list[torch.Tensor] = []
        """Which of some values were chosen. The values themselves are the same whichever of equal ones it was."""
        self.varies_integers = True
        self.solves = self.searches = False
        self._given: dict[int, weakref.ref[torch.Tensor]] = {}
        """The inputs and what rests on them, by id."""
        self._small: dict[int, weakref.ref[torch.Tensor]] = {}
        """Remainders."""
        _note_in(self._given, inputs)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if self._chosen:
            self.see((args, kwargs))
        output = func(*args, **(kwargs or {}))
        self._weigh(output)
        if name in MATRIX_FUNCTIONS:
            self.found = True
            self.flops += flops.count(name, args, output)
        self.operations += name not in VIEWS_AND_COPIES and _is_tensors(output)
        self.solves |= name in SOLVERS
        if name in SEARCHES:  # an input that is sorted stays so
            sought_in = _tensors(args[SEARCHES[name] :][:1])
            self.searches |= any(_storage(leaf)._cdata not in self._inputs for leaf in sought_in)
        if name in TIE_BREAKERS and not (kwargs or {}).get("stable"):  # which says where equal ones go
            self._chosen += [leaf for leaf in _tensors(output) if leaf.dtype in variations.INTEGERS]
        self._follow(name, args, kwargs, output)
        return output

    def _weigh(self, output: Any) -> None:
        found = [_storage(leaf) for leaf in _tensors(output) if _is_strided(leaf)]
        new = [one for one in found if one._cdata not in self._inputs and one._cdata not in self._live]
        if new:
            self._live = {at: known for at, known in self._live.items() if not known[0].expired()}
            self._live.update((one._cdata, (StorageWeakRef(one), one.nbytes())) for one in new)
            self.most_bytes = max(self.most_bytes, sum(size for _, size in self._live.values()))

    def _follow(self, name: str, args: Any, kwargs: Any, output: Any) -> None:
        """Whether integers that rest on the inputs may still be any; which tensors rest on them now."""
        given = [leaf for leaf in _tensors((args, kwargs)) if _is_in(self._given, leaf)]
        if not given:
            return
        integers = [leaf for leaf in given if leaf.dtype in variations.INTEGERS]
        if integers:
            becomes_float = any(leaf.is_floating_point() for leaf in _tensors(output))
            is_wide = any(leaf.itemsize >= WIDE and not _is_in(self._small, leaf) for leaf in integers)
            second = [leaf for leaf in _tensors((args[1:2], kwargs)) if _is_in(self._given, leaf)]
            is_plain = _is_arithmetic(name, args, has_second=_has_integers(second))
            self.varies_integers &= is_plain and not (becomes_float and is_wide)
        if not _is_masked(name, args):
            _note_in(self._given, (output, args[0] if name == "__setitem__" else None))
        is_view = bool(integers) and name in VIEWS_AND_COPIES and all(_is_in(self._small, leaf) for leaf in integers)
        if is_view or (name in REMAINDERS and not _has_integers(args[1:2])):
            _note_in(self._small, output)

    def see(self, value: Any) -> None:
        """Note whether a choice among values is used, or is part of the answer."""
        self.breaks_ties |= any(leaf is one for leaf in _tensors(value) for one in self._chosen)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, slice):
        value = [value.start, value.stop, value.step]
    if isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, torch.Tensor):
        yield value


def _is_strided(leaf: torch.Tensor) -> bool:
    return leaf.layout is torch.strided and not leaf.is_nested


def _storage(leaf: torch.Tensor) -> Any:
    return leaf.untyped_storage()


def _has_integers(value: Any) -> bool:
    return any(leaf.dtype in variations.INTEGERS for leaf in _tensors(value))


def _note_in(known: dict[int, weakref.ref[torch.Tensor]], value: Any) -> None:
    known.update((id(leaf), weakref.ref(leaf)) for leaf in _tensors(value))


def _is_in(known: dict[int, weakref.ref[torch.Tensor]], leaf: torch.Tensor) -> bool:
    found = known.get(id(leaf))
    return found is not None and found() is leaf


def _is_arithmetic(name: str, args: Any, *, has_second: bool) -> bool:
    """Integers of any size may be given to this call. has_second: integers that rest on the inputs are the second."""
    plain = name if name in BY_NUMBERS else name.rstrip("_")
    if plain in BY_NUMBERS:
        return not has_second
    if name.strip("_") in COMPARISONS and len({leaf.shape for leaf in _tensors(args)}) > 1:
        return False
    return name in INTEGER_ARITHMETIC or plain in INTEGER_ARITHMETIC


def _is_masked(name: str, args: Any) -> bool:
    """Whether its bits are masked by a constant: the result has one of a few values."""
    return name.strip("_") in ("and", "bitwise_and") and any(type(item) is int and item >= 0 for item in args)


def _is_tensors(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(isinstance(item, torch.Tensor) for item in value)
    return isinstance(value, torch.Tensor)


def cast_inputs(value: Any, dtype: str | None) -> Any:
    """Every floating-point tensor in lists, tuples and dicts in this dtype; None: as it is."""
    if dtype is None:
        return value
    wanted = getattr(torch, dtype)
    return values.changed(value, lambda tensor: tensor.to(wanted) if tensor.is_floating_point() else tensor)


UNTIED: Final = {"float64 falling": -1.0, "float64 rising": 1.0}
"""How a model is called in fp64 with equal values of half types made distinct: of some the first is the largest, or the
smallest."""
APART: Final = 1 / 16
APART_MOST: Final = 7
"""Each by this part of the type's last digit, which is half of it at the least: visible after a softmax in float32,
and for this many of them no further than the next value."""


def cast_untied(value: Any, dtype: str) -> Any:
    """As cast_inputs() in fp64, with equal values of a row (last dimension) made distinct by their order there."""

    def cast(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor
        wide = tensor.to(torch.float64)
        if tensor.itemsize > 2 or not tensor.numel() or not tensor.dim():
            return wide
        found = wide.sort(stable=True, dim=-1)
        place = torch.arange(wide.shape[-1], device=wide.device).expand(wide.shape)
        is_first = torch.ones_like(wide, dtype=torch.bool)
        is_first[..., 1:] = found.values[..., 1:] != found.values[..., :-1]
        among_equals = place - torch.where(is_first, place, 0).cummax(-1).values
        order = torch.empty_like(place).scatter_(-1, found.indices, among_equals.clamp(max=APART_MOST))
        apart = wide + wide.abs() * (UNTIED[dtype] * APART * torch.finfo(tensor.dtype).eps) * order
        return torch.where(torch.isfinite(wide), apart, wide)  # infinity times 0 is not a number

    return values.changed(value, cast)


def cast_model(model: Any, dtype: str | None) -> Any:
    """A module's floating-point parameters and buffers in this dtype, in place."""
    return model if dtype is None or not isinstance(model, torch.nn.Module) else model.to(getattr(torch, dtype))


class Examiner:
    """Calls one reference again and again: what its answers depend on."""

    def __init__(self, module: types.ModuleType, entry: str, device: torch.device) -> None:
        self._module = module
        self._device = device
        torch.manual_seed(0)
        with device, torch.no_grad():
            args, kwargs = init_arguments(module)
            model = getattr(module, entry)(*args, **kwargs)
            self._model = model.to(device) if isinstance(model, torch.nn.Module) else model
        self._first = self._answer()

    def _shapes(self, seed: int) -> tuple[torch.Size, ...]:
        with self._device, torch.no_grad():
            torch.manual_seed(seed)
            return tuple(leaf.shape for leaf in _tensors(list(self._module.get_inputs())))

    def _answer(self, *, inputs: int = 0, call: int = 0, transform: str | None = None) -> list[Any]:
        """Samples of the outputs, on the host. inputs, call: seeds."""
        with self._device, torch.no_grad():
            torch.manual_seed(inputs)
            found = values.to_device(list(self._module.get_inputs()), self._device)
            if transform is not None:
                tensors = [leaf for _, leaf in values.leaves(found) if isinstance(leaf, torch.Tensor)]
                variations.apply(transform, tensors, inputs)
            torch.manual_seed(call)
            outputs = values.leaves(self._model(*found))
            pairs = [(leaf, tolerance.as_tensor(leaf)) for _, leaf in outputs]
            return [
                (None, leaf) if tensor is None else (tolerance.dtype_of(leaf), tolerance.sample(tensor).cpu())
                for leaf, tensor in pairs
            ]

    def _is_first(self, answer: list[Any]) -> bool:
        if len(answer) != len(self._first):
            return False
        for (dtype, mine), (_, first) in zip(answer, self._first, strict=True):
            if not isinstance(mine, torch.Tensor) or not isinstance(first, torch.Tensor):
                if mine is not first and mine != first:
                    return False
            elif tolerance.differs(mine, first, dtype, tf32=self._device.type == "cuda"):
                return False
        return True

    def flags(self, *, is_own: bool) -> list[str]:
        """Warnings for a task's author. TaskRefused if there is no single right answer, or inputs of no fixed shape.

        is_own: at the task's own size; at another the influence of the inputs on the answer is not examined.
        """
        if not self._is_first(self._answer()):
            raise TaskRefused(
                "forward() answers differently when it is called again on the same inputs with torch's generators "
                "seeded alike: it keeps a state, or draws numbers elsewhere than from torch"
            )
        if len({self._shapes(seed) for seed in SEEDS_TRIED}) > 1:
            raise TaskRefused("get_inputs() makes tensors of other shapes when torch is seeded otherwise")
        found = [] if self._is_first(self._answer(call=1)) else ["random_reference"]
        if is_own and self._is_first(self._answer(inputs=1)):
            transformed = (self._transformed(name) for name in ("signs", "large", "offset", "spikes"))
            found.append("output_insensitive" if any(transformed) else "output_constant")
        return found

    def has_modes(self) -> bool:
        """The answer is another one when training and eval mode change places: dropout, batch statistics."""
        if not isinstance(self._model, torch.nn.Module):
            return False
        before = self._model.training
        self._model.train(not before)
        try:
            return not self._is_first(self._answer())
        except Exception:
            return False
        finally:
            self._model.train(before)

    def _transformed(self, name: str) -> bool:
        """The answer is another one on transformed inputs; some that a reference refuses say nothing."""
        try:
            return not self._is_first(self._answer(transform=name))
        except Exception:
            return False


class Describer:
    """Finds the cases of one reference on one device."""

    def __init__(self, source: str, entry: str | None, device: torch.device, element_limit: int | None) -> None:
        """element_limit: without a GPU, the own case is run for real up to this many elements."""
        self._source = source
        self._device = device
        self._limit = REAL_ELEMENTS_MAX if element_limit is None else element_limit
        self._module = load_module(source)
        self.entry = find_entry(self._module, entry)
        self.knobs, self._arguments = find_knobs(source)
        self._takes_integers = False  # among the inputs

    def _measure(self, overrides: Overrides, *, is_fake: bool) -> Measured:
        mode: AbstractContextManager[Any] = FakeTensorMode(allow_non_fake_inputs=True) if is_fake else nullcontext()
        device = torch.device("cpu") if is_fake else self._device
        module = self._module_of(overrides)
        with mode:
            if device.type == "cuda" and overrides:
                self._require_indices(module)
            return run_once(module, self.entry, device, is_fake=is_fake)

    def _module_of(self, overrides: Overrides) -> types.ModuleType:
        return load_module(self._source, overrides) if overrides else self._module

    def _require_indices(self, module: types.ModuleType) -> None:
        """On a GPU an index beyond its table ends the process's context, so other sizes of a task with integers
        among its inputs run on the CPU first: what raises there passes through."""
        if self._takes_integers:
            run_once(module, self.entry, torch.device("cpu"))

    def own(self) -> dict[str, Any]:
        """The task's own case; exceptions of the reference are not caught."""
        if self._device.type == "cuda":
            measured = self._measure({}, is_fake=False)
            self._takes_integers = any(note.dtype in variations.INTEGERS for note in values.notes(measured.inputs))
            return self._case("own", {}, measured)
        try:
            measured = self._measure({}, is_fake=True)
        except Exception:
            # Code that reads values cannot run on fake tensors; the real run shows whether it runs at all.
            return self._case("own", {}, self._measure({}, is_fake=False))
        if measured.elements <= self._limit:
            measured = self._measure({}, is_fake=False)
        return self._case("own", {}, measured)

    def tiny(self, own: dict[str, Any]) -> dict[str, Any] | None:
        """The smallest case that runs: all knobs down to 4 or 8 together, else one knob after the other."""
        if own["elements"] <= 2 * TINY**4:
            return None
        for size in TINY_STEPS[:2]:
            overrides = {knob.name: min(knob.value, size) for knob in self.knobs if knob.value > size}
            case = self._try("tiny", overrides)
            if case is not None:
                return case if case["elements"] < own["elements"] else None
        return self._greedy(own)

    def _greedy(self, own: dict[str, Any]) -> dict[str, Any] | None:
        kept: Overrides = {}
        for knob in sorted(self.knobs, key=lambda knob: -knob.value):
            for size in TINY_STEPS:
                trial = {**kept, knob.name: size}
                if size < knob.value and self._runs(trial):
                    kept = trial
                    break
        case = self._try("tiny", kept) if kept else None
        return case if case is not None and case["elements"] < own["elements"] else None

    def scaled(self) -> list[dict[str, Any]]:
        """The cases x0.75, x1.25 and x2 that run, for tasks with dynamic shapes: the largest knob is scaled."""
        found = []
        for factor in SHAPE_FACTORS:
            for knob in sorted(self.knobs, key=lambda knob: -knob.value):
                size = max(1, int(knob.value * factor))
                case = self._try(f"shape x{factor:g}", {knob.name: size}) if size != knob.value else None
                if case is not None:
                    found.append(case)
                    break
        return found

    def uneven(self) -> list[dict[str, Any]]:
        """The cases `shape prime` (all sizes, else the largest that may) and `shape odd` (one size) that run."""
        knobs = sorted((knob for knob in self.knobs if knob.value > 5), key=lambda knob: -knob.value)
        primes = {knob.name: _prime(int(knob.value)) for knob in knobs}
        trials = {
            "shape prime": [primes, *({name: size} for name, size in primes.items())],
            "shape odd": [{knob.name: int(knob.value) + 1 | 1} for knob in knobs],
        }
        tried = [next(filter(None, (self._try(name, one) for one in ways)), None) for name, ways in trials.items()]
        return [case for case in tried if case is not None]

    def other_arguments(self, own: dict[str, Any]) -> list[dict[str, Any]]:
        """The task with each float that its constructor is given a quarter larger, where it runs so."""
        changed = {knob.name: knob.value * ARGUMENT_FACTOR for knob in self._arguments}
        case = self._try("arguments x1.25", changed)
        return [] if case is None or case["init"] == own["init"] else [case]

    def half(self, own: dict[str, Any]) -> list[dict[str, Any]]:
        """The task's own case in half precision, where it is one in float32 throughout that takes it."""
        if own["elements"] > self._limit and self._device.type != "cuda":
            return []
        if not _are_all(own["inputs"], torch.float32) or not _are_all(own["outputs"], torch.float32):
            return []
        for dtype in HALF_DTYPES:
            try:
                measured = run_once(self._module, self.entry, self._device, dtype=dtype)
                if _are_all(measured.outputs, getattr(torch, dtype)) and self._is_exact_enough(dtype):
                    return [{**self._case(f"dtype {dtype}", {}, measured), "dtype": dtype}]
            except Exception:
                continue
        return []

    def _is_exact_enough(self, dtype: str) -> bool:
        """In half precision the reference is as near to itself in fp64 as the table ever allows."""
        torch.manual_seed(0)
        with self._device, torch.no_grad():
            args, kwargs = init_arguments(self._module)
            model = cast_model(getattr(self._module, self.entry)(*args, **kwargs), dtype)
            if isinstance(model, torch.nn.Module):
                model = model.to(self._device)
            inputs = cast_inputs(values.to_device(list(self._module.get_inputs()), self._device), dtype)
            wide_inputs = cast_inputs(copy.deepcopy(inputs), "float64")
            wide_model = cast_model(copy.deepcopy(model), "float64")
            answers = [values.leaves(model(*inputs)), values.leaves(wide_model(*wide_inputs))]
        most = tolerance.TABLE[getattr(torch, dtype)].most
        return all(
            bool(tolerance.is_finite(mine).all()) and tolerance.relative_error(mine, exact) <= most
            for (_, mine), (_, exact) in zip(*answers, strict=True)
            if isinstance(mine, torch.Tensor) and mine.is_floating_point()
        )

    def examine(self, own: dict[str, Any], tiny: dict[str, Any] | None) -> tuple[list[str], bool]:
        """Flags, and whether modes matter: of the own case, or without a GPU of the tiny one where that is large."""
        is_own = self._device.type == "cuda" or own["elements"] <= min(self._limit, EXAMINED_ELEMENTS)
        if not is_own and (tiny is None or tiny["elements"] > EXAMINED_ELEMENTS):
            return [], False
        overrides: Overrides = {} if is_own or tiny is None else tiny["overrides"]
        examiner = Examiner(self._module_of(overrides), self.entry, self._device)
        return examiner.flags(is_own=is_own), examiner.has_modes()

    def declared(self, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Cases that the task declares: [{"name", "overrides"}]. TaskRefused where one names no knob."""
        known = {knob.name for knob in self.knobs}
        found = []
        for case in cases:
            unknown = sorted(set(case["overrides"]) - known)
            if unknown:
                raise TaskRefused(
                    f"case {case['name']!r}: no size is called {unknown[0]!r} (there are: {sorted(known)})"
                )
            found.append(self._case(case["name"], case["overrides"], self._measure(case["overrides"], is_fake=False)))
        return found

    def _runs(self, overrides: Overrides) -> bool:
        try:
            self._measure(overrides, is_fake=True)
        except Exception:
            return False
        return True

    def _try(self, name: str, overrides: Mapping[str, int | float]) -> dict[str, Any] | None:
        """The case when it runs for real (or, too large without a GPU, on fake tensors), else None."""
        if not overrides:
            return None
        try:
            if self._device.type != "cuda":
                fake = self._measure(overrides, is_fake=True)
                if fake.elements > self._limit:
                    return self._case(name, overrides, fake)
            return self._case(name, overrides, self._measure(overrides, is_fake=False))
        except Exception:
            return None

    @staticmethod
    def _case(name: str, overrides: Overrides, measured: Measured) -> dict[str, Any]:
        return {"name": name, "overrides": overrides, **vars(measured)}


def _are_all(tree: Tree, dtype: torch.dtype) -> bool:
    """It has floating-point tensors, and they are all of this dtype."""
    found = {note.dtype for note in values.notes(tree) if note.dtype.is_floating_point or note.dtype.is_complex}
    return found == {dtype}


def describe(
    source: str,
    entry: str | None,
    device: torch.device,
    *,
    dynamic_shapes: bool,
    declared: list[dict[str, Any]] | None,
    element_limit: int | None,
    placed: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """SPEC of proto/worker.md. TaskRefused, or the reference's exception, if it is not a task or does not run.

    Cases in `other` judge only where a policy lets other sizes judge.

    placed is called after each step: a GPU's memory can be given back there.
    """
    finder = Describer(source, entry, device, element_limit)
    own = finder.own()
    placed()
    extra = finder.declared(declared or [])
    placed()
    by_name = {case["name"]: case for case in extra}
    tiny = by_name.get("tiny") or finder.tiny(own)
    placed()
    flags, has_modes = finder.examine(own, tiny)
    placed()
    shapes = [case for case in extra if case["name"] != "tiny"]
    other = finder.half(own)
    placed()
    if not shapes and dynamic_shapes:
        shapes = finder.scaled()
    elif not shapes:
        other = [*finder.scaled(), *finder.uneven(), *finder.other_arguments(own), *other]
    placed()
    return {
        "entry_point": finder.entry,
        "dynamic_shapes": dynamic_shapes,
        "tiny_declared": "tiny" in by_name,
        "knobs": {knob.name: knob.value for knob in finder.knobs},
        "flags": flags,
        "has_modes": has_modes,
        "cases": {"own": own, "tiny": tiny, "shapes": shapes, "other": other},
    }

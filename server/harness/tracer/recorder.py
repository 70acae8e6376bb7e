"""Records every operator of torch that is called on fake tensors.

The recorder is a dispatch mode above FakeTensorMode: it sees each operator after torch has decomposed what is
composite, and before a fake result is made. Values are numbered as they come; views, copies and in-place operators
need no description, since the executor runs torch's own operators again. For slicing (state.py) it notes which storage
each value lies in, and which storages a step writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from shared import plan
from torch._subclasses import fake_tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from tracer import symbols
from tracer.untraced import Untraced, line_of

FAKE_LIMITS: Final = (
    fake_tensor.DataDependentOutputException,
    fake_tensor.DynamicOutputShapeException,
    fake_tensor.UnsupportedFakeTensorException,
    fake_tensor.UnsupportedOperatorException,
)
"""The exceptions of fake tensors whose value is needed: not a fault of the candidate."""

ALIASES: Final = frozenset(("aten.detach.default", "aten.alias.default", "aten.lift.default"))
"""Operators whose result equals their argument in everything that a plan contains."""

UNPLACED: Final[dict[str, str]] = {
    "aten.t_.default": "aten.t.default",
    "aten.transpose_.default": "aten.transpose.int",
    "aten.squeeze_.default": "aten.squeeze.default",
    "aten.squeeze_.dim": "aten.squeeze.dim",
    "aten.squeeze_.dims": "aten.squeeze.dims",
    "aten.unsqueeze_.default": "aten.unsqueeze.default",
    "aten.as_strided_.default": "aten.as_strided.default",
}
"""In-place operators on a tensor's sizes: recorded as views, so that an alias under the same id keeps its own."""

PASSIVE: Final = frozenset(
    (
        "aten.sym_size", "aten.sym_stride", "aten.sym_numel", "aten.sym_storage_offset", "aten.is_contiguous",
        "aten.is_strides_like_format", "aten.is_non_overlapping_and_dense", "aten.size", "aten.stride", "aten.dim",
        "aten.is_pinned", "aten.is_same_size", "aten._assert_tensor_metadata", "aten._assert_scalar",
        "aten.sym_constrain_range", "aten.sym_constrain_range_for_size", "aten.promote_types", "aten.result_type",
        "aten.can_cast",
    )
)  # fmt: skip
"""Questions about a tensor: no steps."""


@dataclass
class Entry:
    """A step, and what slicing must know of it. Ids are in their order of definition."""

    step: plan.Step
    reads: set[int]
    defines: set[int]
    writes: set[int]
    """Storages."""
    is_spare: bool = False
    """Nobody asked for its results themselves: it is a step only if they are used."""


@dataclass
class Sink:
    """Where steps go at the moment."""

    entries: list[Entry] = field(default_factory=list)


class Recorder(TorchDispatchMode):
    """Records while it is the innermost mode. `file` is the candidate's, for lines."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file
        self.sink = Sink()
        self.is_constructing = False
        self.is_spare = False
        """Of what is recorded now."""
        self.asserted: frozenset[int] = frozenset()
        """The lines of the candidate's assert statements."""
        self.trouble: Untraced | None = None
        self.storage_of: list[int] = []
        """Of each value by id."""
        self.leaves: dict[int, plan.Leaf] = {}
        self.implementations: dict[str, Callable[..., Any]] = {}
        """Of custom operators, by "namespace::name", with ".overload" where there is one."""
        self.items: dict[Any, tuple[int, int]] = {}
        """Of symbols: the value that holds the number, and how often its storage had been written by then."""
        self._ids: dict[int, int] = {}
        self._storages: dict[int, int] = {}
        self._kept: list[Any] = []
        """Keeps objects alive, so that no identity is used again."""
        self._written: dict[int, int] = {}
        self._constants: dict[int, Any] = {}
        self._addresses: list[tuple[int, int, torch.Tensor]] = []

    # --- values ---

    def line(self) -> int:
        return line_of(self.file, 2)

    def is_asserted(self) -> bool:
        """Whether the candidate asserts at the moment: what it then asks is taken to hold, as right input makes it."""
        return line_of(self.file, 2) in self.asserted

    def refuse(self, reason: str, line: int | None = None) -> Untraced:
        """The exception to raise. The first one stands, whatever the candidate does with it."""
        trouble = Untraced(reason, self.line() if line is None else line)
        self.trouble = self.trouble or trouble
        return trouble

    def storage(self, tensor: torch.Tensor) -> int:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._storages:
            self._storages[storage._cdata] = len(self._storages)
            self._kept.append(storage)
        return self._storages[storage._cdata]

    def name(self, tensor: torch.Tensor) -> int:
        """A new id for a tensor that was made just now."""
        if len(self.storage_of) >= plan.TENSORS_MAX:
            raise self.refuse(f"there are more than {plan.TENSORS_MAX} tensors")
        value = len(self.storage_of)
        self.storage_of.append(self.storage(tensor))
        self.rebind(tensor, value)
        self.leaves[value] = self.leaf(tensor)
        return value

    def rebind(self, tensor: torch.Tensor, value: int) -> None:
        self._kept.append(tensor)
        self._ids[id(tensor)] = value

    def id_of(self, tensor: torch.Tensor) -> int:
        value = self._ids.get(id(tensor))
        if value is None or self.storage_of[value] != self.storage(tensor):
            shape = "x".join(str(size) for size in tensor.shape)
            raise self.refuse(f"a tensor ({shape}) comes from where no operator of torch made it")
        return value

    def leaf(self, tensor: torch.Tensor) -> plan.Leaf:
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype not in plan.DTYPES or tensor.layout is not torch.strided:
            raise self.refuse(f"tensors of {tensor.dtype} and {tensor.layout} cannot be traced")
        shape = tuple(size if type(size) is int else None for size in tensor.shape)
        stride = tuple(step if type(step) is int else None for step in tensor.stride())
        return plan.Leaf(self._ids[id(tensor)], shape, stride, dtype)

    def address(self, tensor: torch.Tensor) -> int:
        """A made-up data_ptr() that leads back to the tensor: each storage has a range of its own."""
        number = self.storage(tensor)
        begin = symbols.address_of_storage(number)
        found = int(begin + tensor.storage_offset() * tensor.element_size())
        self._addresses.append((number, found, tensor))
        return found

    def behind_address(self, number: int) -> plan.Address | None:
        """The storage and offset of a number that is an address."""
        storage = symbols.storage_of_address(number)
        for of, begin, tensor in reversed(self._addresses):
            if of == storage:
                return plan.Address(self.id_of(tensor), number - begin)
        return None

    # --- arguments ---

    def arg(self, value: Any) -> plan.Arg:
        """How the plan writes an argument."""
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, torch.Tensor):
            return plan.Ref(self.id_of(value))
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            return self.symbol(value)
        if isinstance(value, int):
            if self.behind_address(value) is not None:
                raise self.refuse("only torch.tensor() and a launch can be given the address of a tensor in a trace")
            return int(value)
        if isinstance(value, float):
            return float(value)
        if isinstance(value, tuple) and not isinstance(value, torch.Size):
            return tuple(self.arg(item) for item in value)
        if isinstance(value, list | torch.Size):
            return plan.List(tuple(self.arg(item) for item in value))
        if isinstance(value, torch.dtype):
            return plan.TorchDtype(str(value).removeprefix("torch."))
        if isinstance(value, torch.device):
            if value.type not in plan.DEVICES:
                raise self.refuse(f"the device {value} cannot be traced")
            return plan.Device(value.type)
        if isinstance(value, torch.memory_format):
            return plan.MemoryFormat(str(value).removeprefix("torch."))
        if isinstance(value, torch.layout):
            if value is not torch.strided:
                raise self.refuse(f"tensors of {value} cannot be traced")
            return plan.Layout("strided")
        if isinstance(value, torch.Generator):
            raise self.refuse("draws from a torch.Generator of the candidate's own cannot be traced")
        raise self.refuse(f"an argument of type {type(value).__name__} cannot be traced")

    def symbol(self, value: Any) -> plan.Arg:
        """A number of the GPU's. One that turned out to be known is written as such."""
        try:
            found = symbols.expression(value, self._item)
        except symbols.Unknown as error:
            raise self.refuse(str(error)) from None
        return found if isinstance(found, int | float) else plan.Sym(found)

    def _item(self, symbol: Any) -> int:
        if symbol not in self.items:
            raise symbols.Unknown("a size that only the GPU knows is no number that a plan can name")
        value, version = self.items[symbol]
        if self._written.get(self.storage_of[value], 0) != version:
            raise symbols.Unknown("the tensor that a number was read from has been written to since")
        return value

    # --- steps ---

    def add(self, step: plan.Step, reads: set[int], defines: set[int], writes: set[int]) -> None:
        if len(self.sink.entries) >= plan.STEPS_MAX:
            raise self.refuse(f"there are more than {plan.STEPS_MAX} steps")
        for storage in writes:
            self._written[storage] = self._written.get(storage, 0) + 1
        self.sink.entries.append(Entry(step, reads, defines, writes, self.is_spare))

    @contextmanager
    def into(self, sink: Sink) -> Iterator[Sink]:
        """Steps go elsewhere inside."""
        before, self.sink = self.sink, sink
        try:
            yield sink
        finally:
            self.sink = before

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        operator = str(func)
        namespace, name = func.namespace, f"{func.namespace}.{func._schema.name.split('::')[-1]}"
        if namespace in ("prim", "profiler") or name in PASSIVE:
            return func(*args, **kwargs)
        implementation = self._implementation(func)
        if implementation is not None or namespace not in ("aten", "prims"):
            return self._custom(func, implementation, args, kwargs)
        args = torch.utils._pytree.tree_map(self._lifted, args)
        kwargs = torch.utils._pytree.tree_map(self._lifted, kwargs)
        if operator == "aten.lift_fresh.default":
            return args[0]
        if operator in ("aten._local_scalar_dense.default", "aten.item.default"):
            return self._read(func, args[0])
        if func._can_decompose():  # under inference_mode() torch has no key that would have done it before
            with self:
                return func.decompose(*args, **kwargs)
        if operator in UNPLACED:
            return self._unplaced(func, UNPLACED[operator], args, kwargs)
        found = self._fake(func, args, kwargs)
        if operator in ALIASES and isinstance(found, torch.Tensor):
            self.rebind(found, self.id_of(args[0]))
            return found
        self._record(func, operator, args, kwargs, found)
        return found

    def _fake(self, func: Any, args: Any, kwargs: Any) -> Any:
        try:
            return func(*args, **kwargs)
        except FAKE_LIMITS as error:
            raise self.refuse(f"{func}: {error}"[:300]) from error

    def whole(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Calls an operator that torch would take apart, and records it as the one that it is."""
        args = torch.utils._pytree.tree_map(self._lifted, args)
        with _disable_current_modes() as modes:
            fake = next(mode for mode in modes if isinstance(mode, torch._subclasses.FakeTensorMode))
            with fake:
                found = func(*args, **kwargs)
        self._record(func, str(func), args, kwargs, found)
        return found

    def _record(self, func: Any, operator: str, args: Any, kwargs: Any, found: Any) -> None:
        line = self.line()
        written = [self.storage(tensor) for tensor in _written_tensors(func, args, kwargs)]
        step_args = tuple(self.arg(value) for value in args)
        given = {key: value for key, value in kwargs.items() if value is not None and key != "pin_memory"}
        step_kwargs = tuple((key, self.arg(value)) for key, value in given.items())
        reads = plan.ids_in((step_args, tuple(value for _, value in step_kwargs)))
        known = {id(value) for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)}
        made = [value for value in _flat(found) if isinstance(value, torch.Tensor) and id(value) not in known]
        defines = {self.name(tensor) for tensor in made}
        out = self._out(found) if made else None
        self.add(plan.Call(operator, step_args, step_kwargs, out, line), reads, defines, set(written))

    def _out(self, value: Any) -> plan.Tree:
        if isinstance(value, torch.Tensor):
            return self.leaf(value)
        if isinstance(value, list):
            return plan.List(tuple(self._out(item) for item in value))
        if isinstance(value, tuple):
            return tuple(self._out(item) for item in value)
        return value if isinstance(value, bool | int | float | str) else None

    def _read(self, func: Any, tensor: torch.Tensor) -> Any:
        """A tensor's number: known where the tensor was made of numbers, a symbol otherwise."""
        if tensor.dtype is torch.bool and getattr(tensor, "constant", None) is None and self.is_asserted():
            return True
        found = self._fake(func, (tensor,), {})
        if isinstance(found, torch.SymInt | torch.SymFloat | torch.SymBool):
            value = self.id_of(tensor)
            self.items[found.node.expr] = (value, self._written.get(self.storage_of[value], 0))
        return found

    def _unplaced(self, func: Any, operator: str, args: Any, kwargs: Any) -> Any:
        reads = {self.id_of(args[0])}
        step_args = tuple(self.arg(value) for value in args)
        found = func(*args, **kwargs)
        line = self.line()
        defines = {self.name(found)}
        self.add(plan.Call(operator, step_args, (), self.leaf(found), line), reads, defines, set())
        return found

    def _implementation(self, func: Any) -> Callable[..., Any] | None:
        """The candidate's implementation of an operator."""
        if not self.implementations:
            return None
        name, overload = func._schema.name, func._schema.overload_name
        return self.implementations.get(f"{name}.{overload}" if overload else name)

    def _custom(self, func: Any, implementation: Callable[..., Any] | None, args: Any, kwargs: Any) -> Any:
        """An operator of the candidate's own: its Python is recorded, and its fake version ignored."""
        if implementation is None:
            raise self.refuse(f"the operator {func._schema.name} has no implementation in Python that could be traced")
        with self:
            return implementation(*args, **kwargs)

    # --- tensors with data ---

    def _lifted(self, value: Any) -> Any:
        """A tensor with data, which the candidate made from Python's numbers, as a fake one that the plan makes."""
        if not isinstance(value, torch.Tensor) or isinstance(value, torch._subclasses.FakeTensor):
            return value
        if id(value) not in self._constants:
            self._kept.append(value)
            self._constants[id(value)] = self._constant(value)
        return self._constants[id(value)]

    def _constant(self, tensor: torch.Tensor) -> Any:
        if tensor.numel() > plan.ITEMS_MAX:
            raise self.refuse(f"a tensor of {tensor.numel()} numbers is made on the host, more than {plan.ITEMS_MAX}")
        mode = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
        with _disable_current_modes():
            plain = tensor.detach().as_subclass(torch.Tensor)
            wide = plain.float() if plain.dtype.itemsize == 1 and plain.is_floating_point() else plain
            numbers = wide.contiguous().reshape(-1).tolist()
        if mode is None:
            raise self.refuse("a tensor with data is used outside of the trace")
        fake = mode.fake_tensor_converter.from_real_tensor(mode, plain, make_constant=True)
        value = self.name(fake)
        sizes = plan.List(tuple(int(size) for size in tensor.shape))
        items = plan.List(tuple(self.behind_address(item) or item if type(item) is int else item for item in numbers))
        dtype, device = plan.TorchDtype(self.leaves[value].dtype), plan.Device("cpu")
        step = plan.Call(
            plan.CONSTANT, (items, sizes), (("dtype", dtype), ("device", device)), self.leaves[value], self.line()
        )
        self.add(step, plan.ids_in(items), {value}, set())
        return fake


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _flat(item)
    else:
        yield value


def _written_tensors(func: Any, args: Any, kwargs: Any) -> Iterator[torch.Tensor]:
    for index, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[index] if index < len(args) else kwargs.get(argument.name)
        yield from (item for item in _flat(value) if isinstance(item, torch.Tensor))

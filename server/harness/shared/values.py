"""Python values as a tree of JSON (VALUE in proto/worker.md): no pickle, nothing executable.

`encode` turns arguments and outputs into a tree, `decode` turns a tree back. Tensors are not part of the
tree: the caller's `put` says where one lies, its `get` makes one from such a note. Both are pure otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch

DTYPES: Final[dict[str, torch.dtype]] = {
    name: getattr(torch, name)
    for name in (
        "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2",
        "int64", "int32", "int16", "int8", "uint8", "bool", "complex64", "complex128",
    )
}  # fmt: skip
DTYPE_NAMES: Final[dict[torch.dtype, str]] = {dtype: name for name, dtype in DTYPES.items()}

DEPTH_MAX: Final = 16
NODES_MAX: Final = 4096
DIMENSIONS_MAX: Final = 12
ELEMENTS_MAX: Final = 1 << 48
ON_HOST: Final = "host"
"""A mark of outputs that lie, or lay, on the host: where there is no GPU a tensor's device does not show it."""
KEPT: Final = "kept"
"""A mark of outputs in memory that a plan's model keeps from call to call."""
MARKS: Final = (ON_HOST, KEPT)
MARKED: Final = "verifierd_marks"
"""The attribute of a tensor that has them."""
TEXT_MAX: Final = 1024
"""Bytes of UTF-8 of a key, which stands in every message about the value below it."""


class ValueRefused(ValueError):
    """A value that a tree cannot carry, or a tree that is none; the text says where."""


@dataclass(frozen=True)
class TensorNote:
    """Where a tensor lies: dtype, shape and stride in elements, offset in bytes into an arena (None: nowhere).

    marks: of an output.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int | None = None
    marks: frozenset[str] = frozenset()

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def span_bytes(self) -> int:
        """Bytes from the first element to the end of the last one."""
        if self.elements == 0:
            return 0
        last = sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))
        return int((last + 1) * self.dtype.itemsize)

    def moved(self, offset: int | None) -> TensorNote:
        return TensorNote(self.dtype, self.shape, self.stride, offset)

    def packed(self, offset: int | None) -> TensorNote:
        """The same elements in rows, one behind the other."""
        steps = [math.prod(self.shape[index + 1 :]) for index in range(len(self.shape))]
        return TensorNote(self.dtype, self.shape, tuple(steps), offset)

    def json(self) -> dict[str, Any]:
        note: dict[str, Any] = {
            "dtype": DTYPE_NAMES[self.dtype],
            "shape": list(self.shape),
            "stride": list(self.stride),
        }
        if self.offset is not None:
            note["offset"] = self.offset
        note.update(dict.fromkeys(sorted(self.marks), True))
        return {"tensor": note}

    @staticmethod
    def of(tensor: torch.Tensor, offset: int | None = None) -> TensorNote:
        if tensor.layout is not torch.strided:
            raise ValueRefused(f"tensor with layout {tensor.layout} is not supported")
        if tensor.dtype not in DTYPE_NAMES:
            raise ValueRefused(f"tensor of dtype {tensor.dtype} is not supported")
        return TensorNote(tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), offset)

    @staticmethod
    def parse(node: Any, where: str) -> TensorNote:
        """From the value of the key "tensor". Every figure is range-checked; ValueRefused names the fault."""
        if not isinstance(node, dict):
            raise ValueRefused(f"{where}: a tensor must be an object")
        name = node.get("dtype")
        dtype = DTYPES.get(name) if isinstance(name, str) else None
        if dtype is None:
            raise ValueRefused(f"{where}: unknown dtype {name!r:.40}")
        shape = _sizes(node.get("shape"), f"{where}: shape")
        stride = _sizes(node.get("stride"), f"{where}: stride")
        if len(shape) != len(stride):
            raise ValueRefused(f"{where}: {len(shape)} sizes, {len(stride)} strides")
        offset = node.get("offset")
        if offset is not None and (type(offset) is not int or not 0 <= offset < 1 << 48):
            raise ValueRefused(f"{where}: offset {offset!r:.40} is out of range")
        marks = frozenset(mark for mark in MARKS if node.get(mark) is True)
        # A stride of 0 lets few bytes be as many elements as one likes; torch raises where they cannot be counted.
        if math.prod(max(1, size) for size in shape) > ELEMENTS_MAX:
            raise ValueRefused(f"{where}: there are more than {ELEMENTS_MAX} elements")
        return TensorNote(dtype, shape, stride, offset, marks)


def marked(tensor: torch.Tensor, marks: frozenset[str]) -> torch.Tensor:
    """This tensor with the marks that it has and these; its copies and views have none."""
    if marks:
        setattr(tensor, MARKED, marks_of(tensor) | marks)
    return tensor


def marks_of(tensor: torch.Tensor) -> frozenset[str]:
    return getattr(tensor, MARKED, frozenset())


def is_on_host(tensor: torch.Tensor) -> bool:
    return ON_HOST in marks_of(tensor)


def is_dense(tensor: torch.Tensor) -> bool:
    """Every byte from its first to its last is one element's, and no element's twice."""
    return bool(torch.ops.aten.is_non_overlapping_and_dense(tensor))


def without_gaps(tensor: torch.Tensor) -> torch.Tensor:
    """As an input is handed over: with its own strides where it is dense, else contiguous."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    return tensor if is_dense(tensor) else tensor.contiguous()


def _sizes(found: Any, where: str) -> tuple[int, ...]:
    if not isinstance(found, list) or len(found) > DIMENSIONS_MAX:
        raise ValueRefused(f"{where} must be a list of at most {DIMENSIONS_MAX} integers")
    for size in found:
        if type(size) is not int or not 0 <= size < 1 << 40:
            raise ValueRefused(f"{where}: {size!r:.40} is out of range")
    return tuple(found)


def encode(value: Any, put: Callable[[torch.Tensor], TensorNote], where: str = "value", depth: int = 0) -> Any:
    """The tree of a value. ValueRefused names the place and the type of what a tree cannot carry."""
    if depth > DEPTH_MAX:
        raise ValueRefused(f"{where} is nested deeper than {DEPTH_MAX}")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(str(value), where)
    if isinstance(value, torch.Tensor):
        return put(value).json()
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return {"float": float(value).hex()}
    if isinstance(value, complex):
        return {"complex": [float(value.real).hex(), float(value.imag).hex()]}
    if isinstance(value, torch.dtype) and value in DTYPE_NAMES:
        return {"dtype": DTYPE_NAMES[value]}
    if isinstance(value, torch.device):
        return {"device": value.type}
    if isinstance(value, dict):
        return {
            "dict": [
                [
                    _key(encode(key, put, f"{where} key", depth + 1), where),
                    encode(item, put, f"{where}[{key!r:.40}]", depth + 1),
                ]
                for key, item in value.items()
            ]
        }
    if isinstance(value, tuple | list):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [encode(item, put, f"{where}[{index}]", depth + 1) for index, item in enumerate(value)]}
    raise ValueRefused(f"{where} is of type {type(value).__name__}, which cannot be passed between processes")


def decode(tree: Any, get: Callable[[TensorNote], Any], where: str = "value", depth: int = 0) -> Any:
    """The value of a tree from an untrusted process. ValueRefused has the fault and its place."""
    if depth > DEPTH_MAX:
        raise ValueRefused(f"{where} is nested deeper than {DEPTH_MAX}")
    if tree is None or type(tree) in (bool, int):
        return tree
    if type(tree) is str:
        return _text(tree, where)
    if not isinstance(tree, dict) or len(tree) != 1:
        raise ValueRefused(f"{where}: a node must be an object with one key")
    ((kind, body),) = tree.items()
    if kind == "tensor":
        return get(TensorNote.parse(body, where))
    if kind in ("list", "tuple") and isinstance(body, list) and len(body) <= NODES_MAX:
        items = [decode(item, get, f"{where}[{index}]", depth + 1) for index, item in enumerate(body)]
        return items if kind == "list" else tuple(items)
    if kind == "dict" and isinstance(body, list) and len(body) <= NODES_MAX:
        return dict(_pair(pair, get, where, depth) for pair in body)
    if kind == "float" and isinstance(body, str):
        return _float(body, where)
    if kind == "complex" and isinstance(body, list) and len(body) == 2:
        return complex(_float(body[0], where), _float(body[1], where))
    if kind == "dtype" and isinstance(body, str) and body in DTYPES:
        return DTYPES[body]
    if kind == "device" and isinstance(body, str) and body in ("cpu", "cuda"):
        return torch.device(body)
    raise ValueRefused(f"{where}: {kind!s:.40} is no kind of value, or its content is off")


def _pair(pair: Any, get: Callable[[TensorNote], Any], where: str, depth: int) -> tuple[Any, Any]:
    if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str | int):
        raise ValueRefused(f"{where}: a dict is a list of [key, value] with strings or integers for keys")
    _key(pair[0], where)
    return pair[0], decode(pair[1], get, f"{where}[{pair[0]!r:.40}]", depth + 1)


def _text(text: str, where: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueRefused(f"{where}: {text!r:.40} has halves of characters, which is no text") from None
    return text


def _key(key: Any, where: str) -> Any:
    if isinstance(key, str) and len(_text(key, f"{where} key").encode()) > TEXT_MAX:
        raise ValueRefused(f"{where}: the key {key!r:.40} is longer than {TEXT_MAX} bytes")
    return key


def _float(text: Any, where: str) -> float:
    try:
        return float.fromhex(text)
    except (TypeError, ValueError, OverflowError):
        raise ValueRefused(f"{where}: {text!r:.40} is no hexadecimal float") from None


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a decoded value with their paths ("0", "logits", "1.2"); a lone leaf has the path "0".

    Those of a dict come in the order of its keys: the order of insertion is not part of an answer.
    """
    if isinstance(value, dict):
        for key, item in sorted(value.items(), key=lambda pair: str(pair[0])):
            yield from leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}.{index}" if path else str(index))
    else:
        yield path or "0", value


def changed(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A value with every tensor in its lists, tuples and dicts changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if type(value) in (list, tuple):
        return type(value)(changed(item, change) for item in value)
    if isinstance(value, dict):
        return {key: changed(item, change) for key, item in value.items()}
    return value


def to_device(value: Any, device: torch.device) -> Any:
    return changed(value, lambda tensor: tensor.to(device))


def notes(tree: Any) -> list[TensorNote]:
    """All tensors of a tree, in order."""
    found: list[TensorNote] = []
    decode(tree, found.append)
    return found


def map_tensors(tree: Any, change: Callable[[TensorNote], TensorNote]) -> Any:
    """A copy of a tree that was checked before, with every tensor's note replaced."""
    if not isinstance(tree, dict):
        return tree
    ((kind, body),) = tree.items()
    if kind == "tensor":
        return change(TensorNote.parse(body, "value")).json()
    if kind in ("list", "tuple"):
        return {kind: [map_tensors(item, change) for item in body]}
    if kind == "dict":
        return {kind: [[key, map_tensors(item, change)] for key, item in body]}
    return tree

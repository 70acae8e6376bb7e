"""Traces a module's text in a fork, since a tracer changes its process for good, and shows a plan as short text."""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from executor import archive
from executor.launch import Compiled
from shared import operators, plan, values
from tracer import trace as tracer_trace

tracer_trace.prime()

HEAD = """import torch
import triton
import triton.language as tl
from torch import nn
"""


def in_fork(work: Callable[[], Any]) -> Any:
    """What the work returns, from a process that ends with it."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            with os.fdopen(writer, "wb") as file:
                pickle.dump(work(), file)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        data = file.read()
    os.waitpid(pid, 0)
    return pickle.loads(data)


def case(inputs: list[Any], init: list[Any] | None = None) -> dict[str, Any]:
    def put(tensor: torch.Tensor) -> values.TensorNote:
        return values.TensorNote.of(tensor)

    return {
        "init": {"args": values.encode(init or [], put), "kwargs": values.encode({}, put)},
        "inputs": values.encode(inputs, put),
    }


def traced(source: str | bytes, cases: dict[str, Any], entry: str = "ModelNew") -> Any:
    """A tracer.trace.Traced."""

    def work() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            data = source.encode() if isinstance(source, str) else source
            return tracer_trace.trace(data, tracer_trace.Request.of("cuda:90", entry, cases), Path(folder))

    return in_fork(work)


def images(source: str, spec: dict[str, Any]) -> bytes:
    """The plan of a candidate for these cases, for the interpreter, which takes kernels from the text.

    AssertionError where the policy `strict` does not allow it.
    """
    found = traced(source, spec["cases"])
    assert found.plan is not None and not found.refusals, [str(one) for one in found.refusals]
    parsed = plan.parse(found.plan)
    assert operators.allowed(parsed, "movement") == []
    image = Compiled(b"taken from the text instead", "kernel", 4, 1, 0, 0, 0, False, False, ())
    return archive.pack(found.plan, dict.fromkeys(range(len(parsed.kernels)), image), {})


# --- a plan as text ---


def shown(value: Any) -> str:
    if isinstance(value, plan.Ref | plan.Leaf):
        return f"%{value.id}"
    if isinstance(value, plan.Item):
        return f"item(%{value.id})"
    if isinstance(value, plan.Operation):
        return f"{value.name}({shown(value.left)}, {shown(value.right)})"
    if isinstance(value, plan.Sym):
        return shown(value.expr)
    if isinstance(value, plan.List):
        return "[" + ", ".join(map(shown, value.items)) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(shown, value)) + ")"
    if isinstance(value, plan.Dict):
        return "{" + ", ".join(f"{key}: {shown(item)}" for key, item in value.items) + "}"
    if isinstance(value, plan.Address):
        return f"address(%{value.id} + {value.offset})"
    if isinstance(value, plan.Descriptor):
        sizes = " ".join(str(list(of)) for of in (value.shape, value.strides, value.block))
        return f"descriptor(%{value.id} {sizes} {value.padding})"
    if isinstance(value, plan.Constexpr):
        return f"constexpr({shown(value.value)})"
    if isinstance(value, plan.Table):
        return "{" + ", ".join(f"{shown(key)}: {shown(result)}" for key, result in value.rows) + "}"
    if isinstance(value, plan.FunctionRef):
        return f"function {value.index}"
    if isinstance(value, plan.Device):
        return value.kind
    if hasattr(value, "name"):
        return str(value.name)
    return repr(value)


def sizes(tree: plan.Tree) -> str:
    if isinstance(tree, plan.Leaf):
        dims = "x".join("?" if size is None else str(size) for size in tree.shape)
        strided = "" if tree.stride == _rows(tree.shape) else f" stride {shown(tree.stride)}"
        return f"%{tree.id}: {dims or 'scalar'} {tree.dtype}{strided}"
    items = tree.items if isinstance(tree, plan.List) else tree if isinstance(tree, tuple) else ()
    return ", ".join(sizes(item) for item in items)


def _rows(shape: tuple[int | None, ...]) -> tuple[int, ...]:
    steps = [1]
    for size in reversed(shape[1:]):
        steps.insert(0, steps[0] * max(1, size or 1))
    return tuple(steps) if shape else ()


def step_text(step: plan.Step, indent: str = "  ") -> str:
    if isinstance(step, plan.Choose):
        inner = "".join(
            f"\n{indent}  | {one.config}\n" + "\n".join(step_text(item, indent + "    ") for item in one.steps)
            for one in step.alternatives
        )
        return f"{indent}{step.line}: choose{inner}"
    if isinstance(step, plan.Launch):
        return f"{indent}{step.line}: kernel {step.kernel} {shown(step.grid)} {shown(step.args)}"
    given = ", ".join([*map(shown, step.args), *(f"{name}={shown(value)}" for name, value in step.kwargs)])
    made = "" if step.out is None else f"{sizes(step.out)} = "
    return f"{indent}{step.line}: {made}{step.op.removeprefix('aten.')}({given})"


def kind_text(kind: plan.Type) -> str:
    return kind if isinstance(kind, str) else f"({', '.join(map(kind_text, kind))})"


def kernel_text(index: int, kernel: plan.Kernel) -> str:
    signature = ", ".join(f"{name}: {kind_text(kind)}" for name, kind in kernel.signature)
    constants = " ".join(f"{'.'.join(map(str, path))}={shown(value)}" for path, value in kernel.constants)
    sixteen = " ".join(".".join(map(str, path)) for path, _ in kernel.attributes)
    options = " ".join(f"{name}={shown(value)}" for name, value in kernel.options)
    parts = [f"function {kernel.function}({signature})", constants, f"16: {sixteen}" if sixteen else "", options]
    return f"kernel {index}: " + "; ".join(part for part in parts if part)


def text(found: plan.Plan) -> str:
    """The whole plan, one thing a line."""
    rows = []
    for index, function in enumerate(found.functions):
        names = ", ".join(f"{name}={shown(value)}" for name, value in function.globals if name not in ("tl", "triton"))
        defaults = ", ".join(f"{name}={shown(value)}" for name, value in function.defaults)
        rows.append(
            f"function {index}: {function.name} at {function.line}"
            + (f"; reads {names}" if names else "")
            + (f"; defaults {defaults}" if defaults else "")
            + ("; noinline" if function.noinline else "")
        )
    rows += [kernel_text(index, kernel) for index, kernel in enumerate(found.kernels)]
    for trace in found.traces:
        rows.append(f"case {trace.case}: {sizes(trace.inputs)}")
        rows += [f"  parameter {name}: %{value}" for name, value in trace.parameters]
        for part, steps in (("construct", trace.construct), ("first", trace.first), ("steps", trace.steps)):
            if steps:
                rows.append(f" {part}")
                rows += [step_text(step) for step in steps]
        rows.append(f" output {shown(trace.output)}")
    return "\n".join(rows) + "\n"

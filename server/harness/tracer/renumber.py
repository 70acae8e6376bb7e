"""Puts a plan in order: ids from 0 in the order in which they are defined, and the tables of several plans in one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final, TypeAlias

from shared import plan

Change: TypeAlias = Callable[[Any], Any]

_WITH_ID: Final = (plan.Ref, plan.Item, plan.Leaf, plan.Descriptor, plan.Address)


def changed(value: Any, change: Change) -> Any:
    """A copy of any part of a plan, `change` applied to each dataclass in it, inner ones first."""
    if type(value) is tuple:
        return tuple(changed(item, change) for item in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    inner = {field.name: changed(getattr(value, field.name), change) for field in fields(value)}
    return change(type(value)(**inner))


def _uses(trace: plan.Trace) -> set[int]:
    """The ids that are read, kept or returned."""
    returned = {leaf.id for leaf in plan.tree_leaves(trace.output)}
    read = (plan.reads(step) for step in (*trace.construct, *trace.first, *trace.steps))
    return returned.union((value for _, value in trace.parameters), *read)


def without_unused(trace: plan.Trace) -> plan.Trace:
    """The same trace, with names for only those results of an operator with several results that are used.

    The further results of an operator (seeds and statistics of an attention) are claimed only if they are used.
    """
    used = _uses(trace)

    def unnamed(value: Any) -> Any:
        if not isinstance(value, plan.Call) or isinstance(value.out, plan.Leaf):
            return value
        forget: Change = lambda leaf: None if isinstance(leaf, plan.Leaf) and leaf.id not in used else leaf  # noqa: E731
        return replace(value, out=changed(value.out, forget))

    construct, first, steps = (changed(part, unnamed) for part in (trace.construct, trace.first, trace.steps))
    return replace(trace, construct=construct, first=first, steps=steps)


def renumbered(trace: plan.Trace) -> plan.Trace:
    """The same trace with ids as they are defined: construct, first, inputs, steps."""
    numbers: dict[int, int] = {}

    def number(value: Any) -> Any:
        if isinstance(value, _WITH_ID):
            return replace(value, id=numbers.setdefault(value.id, len(numbers)))
        return value

    construct, first, inputs, steps, output = (
        changed(part, number) for part in (trace.construct, trace.first, trace.inputs, trace.steps, trace.output)
    )
    parameters = tuple((name, numbers.get(value, plan.TENSORS_MAX)) for name, value in trace.parameters)
    return plan.Trace(trace.case, inputs, parameters, construct, first, steps, output)


class _Table:
    """Parts of several plans, each once."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self._known: dict[str, int] = {}

    def place(self, part: Any) -> int:
        key = repr(part)
        if key not in self._known:
            self._known[key] = len(self.parts)
            self.parts.append(part)
        return self._known[key]


def merged(plans: list[plan.Plan]) -> plan.Plan:
    """One plan with the traces of all, which have the same target and source."""
    functions, kernels = _Table(), _Table()
    traces: list[plan.Trace] = []
    for one in plans:
        function_places: list[int] = []
        kernel_places: list[int] = []

        def moved(value: Any, functions: list[int] = function_places, kernels: list[int] = kernel_places) -> Any:
            if isinstance(value, plan.FunctionRef):
                return plan.FunctionRef(functions[value.index])
            if isinstance(value, plan.Kernel):
                return replace(value, function=functions[value.function])
            return replace(value, kernel=kernels[value.kernel]) if isinstance(value, plan.Launch) else value

        for function in one.functions:
            function_places.append(functions.place(changed(function, moved)))
        for kernel in one.kernels:
            kernel_places.append(kernels.place(changed(kernel, moved)))
        traces += [changed(trace, moved) for trace in one.traces]
    return plan.Plan(plans[0].target, plans[0].source, tuple(functions.parts), tuple(kernels.parts), tuple(traces))

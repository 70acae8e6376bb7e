"""One model of a plan: its state made once, its call run any number of times.

The order is the one of the plan: `construct` (what the constructor made and drew), `load` (weights by name), then the
values that the first call prepared from these, then calls. A prepared value never depends on an input, so it is made at
the first call after each `construct` or `load`, and not again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import torch
from shared import plan
from shared.values import KEPT, ON_HOST, marked

from executor.guards import Guards
from executor.steps import (
    After,
    Allows,
    Chooser,
    Environment,
    Launcher,
    Made,
    Program,
    bind,
    build,
)

FILLS: Final = ("aten.fill_.", "aten.zero_.")

Vary: TypeAlias = Callable[[torch.Tensor, str], None]
"""Gives a parameter or buffer, by its name in the plan, other values where it should have some (live/weights.py)."""


@contextmanager
def poisoned() -> Iterator[None]:
    """Memory that is allocated meanwhile holds NaN, or the greatest integer, until something is written."""
    module: Any = torch._C  # torch.use_deterministic_algorithms() imports Inductor, which takes seconds
    module._set_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        module._set_deterministic_algorithms(False)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """All of its storage."""
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage, 0, (storage.nbytes(),), (1,))


def on_host(trace: plan.Trace) -> set[int]:
    """The values that a plan makes on the host: inputs are on the GPU, and what is made of both is."""
    found: set[int] = set()
    for step in (*trace.construct, *trace.first, *trace.steps):
        if isinstance(step, plan.Call):
            device = dict(step.kwargs).get("device")
            is_there = device.kind == "cpu" if isinstance(device, plan.Device) else plan.reads(step) <= found
            found |= plan.defines(step) if is_there else set()
    return found


def _memory_of(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _all_reads(steps: Iterable[plan.Step]) -> set[int]:
    return {found for step in steps for found in plan.reads(step)}


def _all_addressed(steps: tuple[plan.Step, ...]) -> set[int]:
    return {found for step in plan.walk(steps) for found in plan.addressed(step)}


class Replay:
    """A trace, ready for a device.

    trace     borrowed
    device    where the plan says cuda
    allows    operators that a call may have; construct and first may have those that `prepares` allows
    launch    and choose: as in executor/steps.py
    Raises StepError for an operator that does not exist or is not allowed.
    """

    def __init__(
        self,
        trace: plan.Trace,
        device: torch.device,
        launch: Launcher,
        choose: Chooser,
        *,
        allows: Allows,
        prepares: Allows,
    ) -> None:
        self._trace = trace
        self._launcher, self._chooser = launch, choose
        self._fixed = _all_addressed((*trace.construct, *trace.first))
        output = {leaf.id for leaf in plan.tree_leaves(trace.output)} | self._fixed | _all_addressed(trace.steps)
        self._on_host = on_host(trace)
        needed = output | _all_reads(trace.steps)
        parameters = {value for _, value in trace.parameters}
        made = needed | _all_reads(trace.first) | parameters
        self._construct = Program.of(trace.construct, made, device, prepares)
        self._first = Program.of(trace.first, needed, device, prepares)
        self._steps = Program.of(trace.steps, output, device, allows)
        self._made: Environment = {}
        self._state: Environment | None = None
        self._kept: set[int] = set()  # memory of the state
        self.live: Environment = {}
        """The existing tensors while steps are run."""
        self.borrowed: list[torch.Tensor] = []
        """The inputs of the call, which lie in memory of other owners."""

    def construct(self, seed: int, vary: Vary | None = None) -> None:
        """Make the model: its parameters and buffers, drawn from this seed. What an earlier one had made is dropped.

        vary: is called with each of them when a step has made it or filled it, and, where it has more than one element,
        whenever a step has written to it.

        Raises StepError, and what Program.run lets pass.
        """
        self._state, self._made = None, {}
        self.live = self._made
        torch.manual_seed(seed)
        with torch.no_grad():
            made = None if vary is None else self._varying(vary)
            self._construct.run(self._made, self._launcher, self._chooser, made)

    def _varying(self, vary: Vary) -> Made:
        names = {value: name for name, value in self._trace.parameters}

        def made(step: plan.Call, values: Environment) -> None:
            for value in plan.defines(step) & names.keys():
                vary(values[value], names[value])
            target = step.args[0].id if step.args and isinstance(step.args[0], plan.Ref) else None
            if target not in names or not step.op.split(".")[1].endswith("_"):
                return
            if step.op.startswith(FILLS) or values[target].numel() > 1:
                vary(values[target], names[target])

        return made

    def load(self, weights: Mapping[str, torch.Tensor]) -> frozenset[str]:
        """Copy weights into the parameters of the same name, shape and dtype. The weights are copied.

        Returns the names that were. After construct() only.
        """
        loaded = set()
        self._state = None
        for name, value in self._trace.parameters:
            name = name.removeprefix(plan.BUFFER)
            target, given = self._made[value], weights.get(name)
            if given is not None and given.shape == target.shape and given.dtype == target.dtype:
                with torch.no_grad():
                    target.copy_(given)
                loaded.add(name)
        return frozenset(loaded)

    def prepare(self) -> None:
        """Make what the first call made, unless it is made already. After construct() only."""
        if self._state is not None:
            return
        state = self.live = dict(self._made)
        with torch.no_grad():
            self._first.run(state, self._launcher, self._chooser)
        self._state = state
        self._kept = {_memory_of(tensor) for tensor in state.values()}

    def _mark_outputs(self, values: Environment) -> None:
        """Those that lie on the host, and those in memory that the state keeps."""
        for leaf in plan.tree_leaves(self._trace.output):
            tensor = values[leaf.id]
            marks = {ON_HOST: leaf.id in self._on_host, KEPT: _memory_of(tensor) in self._kept}
            marked(tensor, frozenset(mark for mark, is_so in marks.items() if is_so))

    def memory(self) -> list[torch.Tensor]:
        """What the state keeps but for parameters, each storage once, as bytes. After prepare() only."""
        parameters = {
            self._made[value].untyped_storage().data_ptr()
            for name, value in self._trace.parameters
            if not name.startswith(plan.BUFFER)
        }
        found = {tensor.untyped_storage().data_ptr(): tensor for tensor in (self._state or {}).values()}
        return [as_bytes(tensor) for pointer, tensor in found.items() if pointer and pointer not in parameters]

    def call(self, inputs: Any, guards: Guards | None = None, after: After | None = None) -> Any:
        """One call: inputs as the trace's tree has them (borrowed; a call may write to them), its outputs (given).

        guards: during this call inputs, state and what operators make lie in copies between guard zones.

        Outputs may be views of inputs or of state, as the candidate's were. Raises StepError, ValueError for inputs
        of another structure, shape, dtype or stride than the trace's, and what Program.run lets pass.
        """
        self.prepare()
        values = dict(self._state or {})
        bind(self._trace.inputs, inputs, values, "the input")
        self.live = values
        self.borrowed = [values[leaf.id] for leaf in plan.tree_leaves(self._trace.inputs)]
        with torch.no_grad():
            if guards is not None:
                fixed = {_memory_of(values[id_]) for id_ in self._fixed & values.keys()}  # their addresses are kept
                movable = {id_: tensor for id_, tensor in values.items() if _memory_of(tensor) not in fixed}
                guards.enter(movable, (leaf.id for leaf in plan.tree_leaves(self._trace.inputs)))
                values.update(movable)
            self._steps.run(values, self._launcher, self._chooser, None if guards is None else guards.made, after)
            self._mark_outputs(values)
            found = build(self._trace.output, values)
            if guards is not None:
                guards.check()
        return found

    def __call__(self, *inputs: Any) -> Any:
        """The same with the inputs as forward() gets them."""
        return self.call(inputs)

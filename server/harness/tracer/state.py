"""The state that later calls need of the constructor and the first call, and nothing else.

Steps of the first call are kept if a later call reads their results, or a storage that they wrote. No kept step may
depend on an input: a buffer is kept without the content that came from one, and a tensor that was computed from one
cannot be kept at all.
"""

from __future__ import annotations

from typing import Final

from shared import plan

from tracer.recorder import Entry, Recorder
from tracer.untraced import Untraced

ALLOCATORS: Final[dict[str, tuple[str, int]]] = {
    "aten.empty_like.default": ("", 0),
    "aten.new_empty.default": ("", 0),
    "aten.new_empty_strided.default": ("", 0),
    "aten.zeros_like.default": ("zero", 0),
    "aten.new_zeros.default": ("zero", 0),
    "aten.ones_like.default": ("one", 0),
    "aten.new_ones.default": ("one", 0),
    "aten.full_like.default": ("argument", 1),
    "aten.new_full.default": ("argument", 2),
}
"""Operators that take from a tensor no more than its sizes and kind, and what they fill the new one with."""

OVERWRITES: Final = ("aten.copy_.", "aten.fill_.", "aten.zero_.", "aten.uniform_.", "aten.normal_.")
"""How the operators begin that write to their first argument without reading it."""


class _Taint:
    """Which storages depend on the inputs: whole ones, and ones of which only the content does."""

    def __init__(self, recorder: Recorder, inputs: set[int]) -> None:
        self._storage_of = recorder.storage_of
        self.whole = {self._storage_of[value] for value in inputs}
        self.content: set[int] = set()

    def follow(self, entry: Entry) -> bool:
        """Go on by one step; whether what it writes depends on the inputs."""
        read = {self._storage_of[value] for value in self._content_reads(entry)}
        depends = bool(read & (self.whole | self.content))
        if not depends:
            return False
        given = {self._storage_of[value] for value in entry.reads}
        self.whole |= {self._storage_of[value] for value in entry.defines} - given
        self.content |= entry.writes - self.whole
        return True

    @staticmethod
    def _content_reads(entry: Entry) -> set[int]:
        step = entry.step
        if not isinstance(step, plan.Call):
            return entry.reads
        if step.op in ALLOCATORS:
            return set()
        if step.op.startswith(OVERWRITES) and isinstance(step.args[0], plan.Ref):
            return entry.reads - ({step.args[0].id} - {arg.id for arg in step.args[1:] if isinstance(arg, plan.Ref)})
        return entry.reads


def keep(
    recorder: Recorder,
    module: list[Entry],
    always: list[Entry],
    first: list[Entry],
    steady: list[Entry],
    inputs: set[int],
    needed: set[int],
) -> tuple[list[plan.Step], list[plan.Step]]:
    """The steps of the module's import and of the first call that the needed values and the constructor rest on.

    always: the constructor's steps, between the two. steady: a later call's. inputs: the first call's. needed: values
    that a later call reads or returns.
    """
    line = next((entry.step.line for entry in steady if entry.reads & inputs), 0)
    taint = _Taint(recorder, inputs)
    dependent = [taint.follow(entry) for entry in first]
    values, storages = set(needed), {recorder.storage_of[value] for value in needed}
    if values & inputs:
        raise Untraced("a later call uses an input of the first one", line)

    def wanted(entry: Entry) -> bool:
        return bool(entry.defines & values or entry.writes & storages)

    def need(found: set[int]) -> None:
        values.update(found)
        storages.update(recorder.storage_of[value] for value in found)

    kept_first: list[plan.Step] = []
    for entry, depends in zip(reversed(first), reversed(dependent), strict=True):
        if not wanted(entry) or (depends and not entry.defines & values):
            continue
        if any(recorder.storage_of[value] in taint.whole for value in entry.defines & values):
            raise Untraced("a later call uses a tensor that the first one computed from its inputs", entry.step.line)
        steps, reads = _without_inputs(entry, recorder, taint)
        kept_first[:0] = steps
        need(reads)
    for entry in always:
        need(entry.reads)
    kept_module: list[plan.Step] = []
    for entry in reversed(module):
        if wanted(entry):
            kept_module.insert(0, entry.step)
            need(entry.reads)
    return kept_module, kept_first


def _without_inputs(entry: Entry, recorder: Recorder, taint: _Taint) -> tuple[list[plan.Step], set[int]]:
    """A step as it is, or, where it takes sizes from a tensor that depends on inputs, one that has them itself."""
    step = entry.step
    if not isinstance(step, plan.Call) or step.op not in ALLOCATORS:
        return [step], entry.reads
    if not any(recorder.storage_of[value] in taint.whole for value in entry.reads):
        return [step], entry.reads
    leaf = step.out
    assert isinstance(leaf, plan.Leaf)
    device = dict(step.kwargs).get("device", plan.Device("cuda"))
    options = (("dtype", plan.TorchDtype(leaf.dtype)), ("device", device))
    made = plan.Call(
        "aten.empty_strided.default", (plan.List(leaf.shape), plan.List(leaf.stride)), options, leaf, step.line
    )
    fill, place = ALLOCATORS[step.op]
    if not fill:
        return [made], set()
    value = {"zero": 0, "one": 1}.get(fill, step.args[place] if place < len(step.args) else 0)
    return [made, plan.Call("aten.fill_.Scalar", (plan.Ref(leaf.id), value), (), None, step.line)], set()

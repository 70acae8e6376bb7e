"""The second half of the compile stage where candidates are judged by their plan: check the plan, compile its kernels.

Runs in a one-shot child that reads what a candidate wrote and runs none of its module. What it hands over is believed:
the plan as it was parsed, and images that are what Triton makes of the source's text.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

import torch
from executor import archive
from shared import kernel_cache, operators, plan, wire

from compiler import kernels
from compiler.check import CompilerRefusal
from compiler.kernels import Image

LISTED_MAX: Final = 100
STEPS_MAX: Final = 100
SHAPES_MAX: Final = 8


@dataclass(frozen=True)
class Result:
    """The report, and the archive of a plan that passed."""

    report: wire.Json
    archive: bytes | None = None


def _error(kind: str, text: str, line: int | None = None) -> wire.Json:
    return {"type": kind, "text": wire.clean_text(text, 4096), "line": line or None}


def _fail(class_: str, error: wire.Json, *, rule: str | None = None, done: int = 0, of: int = 1) -> Result:
    body = {"ev": "result", "outcome": "fail", "class": class_, "rule": rule, "error": error, "done": done, "of": of}
    return Result(body)


def summary(found: plan.Plan, images: kernels.Images) -> wire.Json:
    """A summary of a plan for the verdict: of the task's own case."""
    own = found.trace(plan.OWN)
    calls = [step for step in plan.walk(own.steps) if isinstance(step, plan.Call)]

    def named(kind: str) -> list[str]:
        return sorted({call.op for call in calls if operators.kind_of(call) == kind})[:LISTED_MAX]

    return {
        "traced": True,
        "launches": sum(map(_launches, own.steps)),
        "operators": len(calls),
        "library": named("library"),
        "compute": named("compute"),
        "coverage": coverage(own),
        "call_bytes": call_bytes(own),
        "state_bytes": _memory(own)[0],
        "prepared_weights": prepares_weights(own),
        "kernels": len(found.kernels),
        "configurations_dropped": len(images.dropped),
        "cases": [trace.case for trace in found.traces],
        "steps": list(itertools.islice(_steps(found, own), STEPS_MAX)),
    }


def coverage(trace: plan.Trace) -> float | None:
    """Of the elements that the steps of a call read and make, the share of the candidate's kernels; None: of nothing.

    What a kernel is given counts as read or made. A size that only the GPU knows counts as none.
    """
    calls = [step for step in plan.walk((*trace.construct, *trace.first, *trace.steps)) if isinstance(step, plan.Call)]
    behind: dict[int, set[int]] = {}
    """Of tables of addresses: the tensors there."""
    for call in calls:
        told = [found for found in (plan.addressed(call), *map(behind.get, plan.reads(call))) if found]
        led = told[0] if len(told) == 1 else set().union(*told)  # one alone is shared: a plan may copy a table often
        behind.update((id_, led) for id_ in plan.defines(call) if led)
    leaves = [*plan.tree_leaves(trace.inputs), *(leaf for call in calls for leaf in plan.tree_leaves(call.out))]
    sizes = {leaf.id: prod(size or 0 for size in leaf.shape) for leaf in leaves}
    own = foreign = 0
    for step in _first_alternatives(trace.steps):
        read = plan.reads(step) - plan.addressed(step)
        if isinstance(step, plan.Launch):
            read = read.union(*(behind.get(id_, set()) for id_ in read))
        elements = sum(sizes.get(found, 0) for found in read)
        if isinstance(step, plan.Launch):
            own += elements
        elif not _is_free(step):
            foreign += elements + sum(sizes[leaf.id] for leaf in plan.tree_leaves(step.out))
    return round(own / (own + foreign), 6) if own + foreign else None


def _is_free(call: plan.Call) -> bool:
    """It returns a view, or memory without content."""
    return call.op.split(".")[1].startswith(("empty", "new_empty")) or _is_view(call)


def _is_view(call: plan.Call) -> bool:
    namespace, name, overload = call.op.split(".")
    function = getattr(getattr(getattr(torch.ops, namespace), name, None), overload, None)
    results = function._schema.returns if isinstance(function, torch._ops.OpOverload) else []
    return any(result.alias_info is not None and not result.alias_info.is_write for result in results)


def prepares_weights(trace: plan.Trace) -> bool:
    """Whether a call reads what the constructor computed from parameters, and is none itself, or what the first call
    did, wherever it lies: a step of that is kept for what a later call reads, and is no preparation if that repeats it.
    """
    parameters = {id_ for name, id_ in trace.parameters if not name.startswith(plan.BUFFER)}
    weights, made = parameters | {id_ for _, id_ in trace.parameters}, set(parameters)
    repeated = {_place(step) for step in plan.walk(trace.steps)}
    for steps in (trace.construct, trace.first):
        for step in plan.walk(steps):
            if not plan.reads(step) & made or _takes_sizes_alone(step):
                continue
            if isinstance(step, plan.Call) and _is_view(step):
                weights |= plan.defines(step) if plan.reads(step) & weights else set()
            elif steps is trace.first and _place(step) not in repeated:
                return True
            made |= plan.reads(step) | plan.defines(step)
    return any(plan.reads(step) & (made - weights) for step in plan.walk(trace.steps))


def _place(step: plan.Call | plan.Launch) -> tuple[str | int, int]:
    return step.op if isinstance(step, plan.Call) else step.kernel, step.line


def _takes_sizes_alone(step: plan.Call | plan.Launch) -> bool:
    """It makes a tensor as another is, without a look at what that holds."""
    name = step.op.split(".")[1] if isinstance(step, plan.Call) else ""
    return name.endswith("_like") or name.startswith("new_")


def call_bytes(trace: plan.Trace) -> int:
    """The largest number of bytes that exist at once during a call, without its inputs: outputs and kept tensors.

    Memory that a kernel or a library allocates itself is not known, and a size that only the GPU knows counts as 0.
    """
    return _memory(trace)[1]


def _memory(trace: plan.Trace) -> tuple[int, int]:
    """Bytes that are there before a call, without its inputs, and the most at once during it."""
    steps = list(_first_alternatives(trace.steps))
    given = {leaf.id for leaf in plan.tree_leaves(trace.inputs)}
    memory = {id_: id_ for id_ in given}
    """For each tensor the one whose memory it uses."""
    sizes: dict[int, int] = {}

    def define(step: plan.Call | plan.Launch) -> None:
        if not isinstance(step, plan.Call):
            return
        base = next((arg.id for arg in step.args if isinstance(arg, plan.Ref)), None) if _is_view(step) else None
        for leaf in plan.tree_leaves(step.out):
            if leaf.id not in memory:
                memory[leaf.id] = leaf.id if base is None else memory[base]
                sizes.setdefault(memory[leaf.id], 0 if base is not None else _bytes(leaf))

    for step in plan.walk((*trace.construct, *trace.first)):
        define(step)
    kept = set(sizes)
    for step in steps:
        define(step)
    last = {memory[id_]: at for at, step in enumerate(steps) for id_ in plan.reads(step)}
    last.update((memory[leaf.id], len(steps)) for leaf in plan.tree_leaves(trace.output))
    state = sum(sizes[id_] for id_ in kept & (last.keys() | {memory[id_] for _, id_ in trace.parameters}))
    live: set[int] = set()
    now = most = state
    for at, step in enumerate(steps):
        made = {memory[leaf.id] for leaf in plan.tree_leaves(step.out)} if isinstance(step, plan.Call) else set()
        made -= given | kept | live
        live |= made
        now += sum(sizes[id_] for id_ in made)
        most = max(most, now)
        dead = {id_ for id_ in live & (made | {memory[id_] for id_ in plan.reads(step)}) if last.get(id_, at) <= at}
        live -= dead
        now -= sum(sizes[id_] for id_ in dead)
    return state, most


def _bytes(leaf: plan.Leaf) -> int:
    last = sum((size - 1) * step for size, step in zip(leaf.shape, leaf.stride, strict=True) if size and step)
    return 0 if 0 in leaf.shape or None in leaf.shape else (last + 1) * plan.DTYPES[leaf.dtype]


def _first_alternatives(steps: tuple[plan.Step, ...]) -> Iterator[plan.Call | plan.Launch]:
    """The steps of one call; the first configuration of each autotuned launch stands for the chosen one."""
    for step in steps:
        if isinstance(step, plan.Choose):
            yield from plan.walk(step.alternatives[0].steps)
        else:
            yield step


def _steps(found: plan.Plan, trace: plan.Trace) -> Iterator[wire.Json]:
    """The steps of a call, as people read them. Of an autotuned launch the first alternative stands for all."""
    shapes: dict[int, str] = {}

    def text(leaf: plan.Leaf) -> str:
        sizes = ", ".join("?" if size is None else str(size) for size in leaf.shape)
        return shapes.setdefault(leaf.id, f"{leaf.dtype}[{sizes}]")

    for step in (*trace.construct, *trace.first):
        for leaf in plan.tree_leaves(step.out) if isinstance(step, plan.Call) else ():
            text(leaf)
    for leaf in plan.tree_leaves(trace.inputs):
        text(leaf)
    for step in trace.steps:
        alternatives = len(step.alternatives) if isinstance(step, plan.Choose) else None
        for one in step.alternatives[0].steps if isinstance(step, plan.Choose) else (step,):
            if isinstance(one, plan.Call):
                made = [text(leaf) for leaf in plan.tree_leaves(one.out)]
                yield {"operator": one.op, "line": one.line, "shapes": made[:SHAPES_MAX]}
            elif isinstance(one, plan.Launch):
                name = found.functions[found.kernels[one.kernel].function].name
                read = [shapes[arg.id] for arg in one.args if isinstance(arg, plan.Ref) and arg.id in shapes]
                grid = [size if isinstance(size, int) else None for size in one.grid]
                told = {"kernel": name, "line": one.line, "shapes": read[:SHAPES_MAX], "grid": grid}
                yield told if alternatives is None else {**told, "configurations": alternatives}


def _launches(step: plan.Step) -> int:
    """Of an autotuned launch one alternative is run."""
    if isinstance(step, plan.Choose):
        return max((sum(map(_launches, one.steps)) for one in step.alternatives), default=0)
    return int(isinstance(step, plan.Launch))


def _refused(found: plan.Plan, foreign: operators.Foreign) -> Result | None:
    """The part of a plan that the policy does not allow; None: it allows all of it."""
    refusals = [one for one in operators.allowed(found, foreign) if not one.case.startswith(plan.OTHER)]
    if refusals:
        return _fail("policy", _error("policy", operators.told(refusals), refusals[0].line), rule="foreign_operator")
    if foreign != "any" and not any(map(_launches, found.trace(plan.OWN).steps)):
        text = "forward() launches none of the candidate's own kernels"
        return _fail("policy", _error("policy", text), rule="kernel_required")
    return None


def _listed(image: Image) -> wire.Json:
    """As the verdict lists a kernel."""
    return {
        "name": image.compiled.entry,
        "registers": image.registers,
        "spill_bytes": image.spill_bytes,
        "shared_bytes": image.compiled.shared_bytes,
        "cubin_bytes": len(image.compiled.image),
        "hash": f"sha256:{image.sha256}",
    }


def build(
    source: bytes,
    document: bytes,
    target: str,
    policy: dict[str, Any],
    workers: int,
    *,
    others: bool = True,
    tell: Callable[[int, int], None] = lambda done, of: None,
) -> Result:
    """Check a plan and compile its kernels: pass, fail or untraced, for any text of the candidate.

    source and document: the candidate's text, and its plan as the tracer wrote it, which is to be for this target.
    others: whether the kernels that only cases of generality launch are compiled, too.
    tell: is called with the number of kernels that are compiled, and of those in the plan.
    """
    try:
        found = plan.parse(document)
        if found.target != target:
            raise plan.PlanError("target", f"is {found.target}, and not {target}")
        found.trace(plan.OWN)
    except plan.PlanError as error:
        return _fail("compile", _error("PlanError", f"the plan cannot be used: {error}"))
    except KeyError:
        return _fail("compile", _error("PlanError", "the plan cannot be used: it has no trace of the task's own case"))
    refusal = _refused(found, policy["foreign"])
    if refusal is not None:
        return refusal
    try:
        of = len(found.kernels)
        tell(0, of)
        images = kernels.build(source, found, workers, others=others, tell=lambda done: tell(done, of))
    except RecursionError:
        return Result({"ev": "result", "outcome": "untraced", "error": _error("Untraced", "it is nested too deep")})
    except CompilerRefusal as refused:
        why = _error("Untraced", f"{refused.name}: {refused.what}", refused.line)
        return Result({"ev": "result", "outcome": "untraced", "error": why})
    made = {index: image for index, image in enumerate(images.images) if image is not None}
    if images.failure is not None:
        return _fail("compile", images.failure.error, done=len(made), of=len(images.images))
    judged = found.judged_kernels()
    listed = {image.sha256: _listed(image) for index, image in made.items() if index in judged}
    told = summary(found, images)
    report = {
        "ev": "result",
        "outcome": "pass",
        "kernels": list(listed.values())[:LISTED_MAX],
        "done": len(made),
        "of": len(made),
        "flags": [],
        "plan": told,
    }
    while len(wire.encode(report)) > wire.WORKER_MESSAGE_MAX and told["steps"]:
        told["steps"] = told["steps"][: len(told["steps"]) // 2]
    return Result(report, archive.pack(document, {i: image.compiled for i, image in made.items()}, told))


def workers() -> int:
    """A quarter of the cores, at most eight: other children compile at the same time."""
    return max(1, min(8, len(os.sched_getaffinity(0)) // 4))


def main(channel: wire.Channel, scratch: Path) -> None:
    """One request, one report."""
    request = channel.receive()
    if request.text("op") != "build":
        raise wire.ProtocolError(f"a build child was asked for {request.text('op')!r}")
    source, document = request.take("source", wire.SOURCE_MAX), request.take("plan", plan.BYTES_MAX)
    kernel_cache.install(scratch / "triton", kernel_cache.LayeredCache.layers, adopts=False)
    target, policy, others = request.text("target"), request.mapping("policy"), request.boolean("others")

    def tell(done: int, of: int) -> None:
        channel.send({"ev": "progress", "done": done, "of": of})

    result = build(source, document, target, policy, workers(), others=others, tell=tell)
    channel.send(result.report, contents={} if result.archive is None else {"images": result.archive})

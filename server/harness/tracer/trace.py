"""From a candidate's source to a plan: import, construct, call twice, for each case.

Runs in the candidate's own child. The state that one case leaves in the module must not be visible to the next: a fork
traces the cases in turn, with a new import of the module for each, which is five times as fast as a fork for each. A
case that does not become a plan there, or takes too long, is traced in a fork of its own. The result is a claim.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import IO, Any, Final, TypeGuard

import torch
from shared import fake_cuda, loading, plan, values, wire
from shared.plan import Refusal
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv

from tracer import stand_ins, state
from tracer.kernels import Kernels
from tracer.recorder import Entry, Recorder, Sink
from tracer.renumber import merged, renumbered, without_unused
from tracer.untraced import Raised, Untraced

CASES_MAX: Final = plan.TRACES_MAX
AN_INPUT: Final = "an input"
IN_TURN_S: Final = 0.25
"""Processor's time after which no further case is traced in turn: a fork takes 25 ms of it."""


@dataclass(frozen=True)
class Case:
    """A case as the daemon describes it to children: trees of values.py."""

    name: str
    init_args: Any
    init_kwargs: Any
    inputs: Any
    dtype: str | None = None
    """Of its floating-point parameters: a case in half precision."""


@dataclass(frozen=True)
class Request:
    """The first case is the task's own: without its trace there is no plan."""

    target: str
    entry: str
    cases: tuple[Case, ...]

    @staticmethod
    def of(target: str, entry: str, cases: dict[str, Any]) -> Request:
        """From a task's specification: {"own": case, "tiny": case or null, "shapes": [case...], "other": [case...]}."""
        named = [("own", cases["own"]), ("tiny", cases.get("tiny"))]
        named += [(f"shape{index}", case) for index, case in enumerate(cases.get("shapes") or ())]
        named += [("", {**case, "name": plan.OTHER + case["name"]}) for case in cases.get("other") or ()]
        found = [
            Case(
                case.get("name", name), case["init"]["args"], case["init"]["kwargs"], case["inputs"], case.get("dtype")
            )
            for name, case in named
            if case is not None
        ]
        return Request(target, entry, tuple(found[:CASES_MAX]))


@dataclass(frozen=True)
class Traced:
    """The plan, or None where the task's own case could not be traced; and what became of the other cases."""

    plan: bytes | None
    refusals: tuple[Refusal, ...]


def _fake(note: values.TensorNote) -> torch.Tensor:
    return torch.empty_strided(note.shape, note.stride, dtype=note.dtype, device="cuda")


def build(module: ModuleType, entry: str, case: Case) -> Any:
    """The model of a case, under fake tensors."""
    arguments = values.decode(case.init_args, _fake, "init")
    options = values.decode(case.init_kwargs, _fake, "init")
    with torch.device("cuda"):
        model = loading.find_entry(module, entry)(*arguments, **options)
    if not isinstance(model, torch.nn.Module):
        return model
    return model.to("cuda") if case.dtype is None else model.to("cuda", getattr(torch, case.dtype))


def inputs_of(case: Case) -> Any:
    """Fresh ones, under fake tensors."""
    return values.decode(case.inputs, _fake, "inputs")


TRACE_CPU_S: Final = 10
"""Processor time of one part of a trace, in which nothing is compiled or computed: more is a loop without an end."""

PARTS: Final = {"import": "the import", "construct": "__init__()", "call": "forward()"}


class Endless(BaseException):
    """The candidate's code took too long."""


@contextlib.contextmanager
def at_most(seconds: float, timer: int = signal.ITIMER_PROF) -> Iterator[None]:
    """Endless after so long, of the processor's time or, with ITIMER_REAL, of everybody's."""

    def stop(*_: Any) -> None:
        raise Endless

    number = signal.SIGPROF if timer == signal.ITIMER_PROF else signal.SIGALRM
    before = signal.signal(number, stop)
    signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(number, before)


@contextlib.contextmanager
def _raised_in(stage: str, file: str) -> Iterator[None]:
    """Exceptions of the candidate's code, with their line; a value that fake tensors do not have is untraced."""
    try:
        with at_most(TRACE_CPU_S):
            yield
    except Endless as error:
        said = f"{PARTS[stage]} ran for over {TRACE_CPU_S} s while it was traced"
        raise Raised("timeout", TimeoutError(said), loading.line_of_traceback(file, error.__traceback__)) from error
    except Untraced as trouble:
        raise Untraced(trouble.reason, trouble.line) from trouble
    except GuardOnDataDependentSymNode as error:
        line = loading.line_of_traceback(file, error.__traceback__)
        raise Untraced("what runs next depends on a number that only the GPU knows", line) from error
    except BaseException as error:
        if _is_fake_limit(error):
            reason = f"{type(error).__name__}: {error}".split("\n")[0][:300]
            raise Untraced(reason, loading.line_of_traceback(file, error.__traceback__)) from error
        raise Raised(stage, error, loading.line_of_traceback(file, error.__traceback__)) from error


_FAKE_TEXTS: Final = (
    "only CPU",
    "FakeTensor",
    "fake tensor",
    ".numpy() is not supported",
    "data-dependent",
    "CUDA graphs",
)


def _is_fake_limit(error: BaseException) -> bool:
    module = type(error).__module__ or ""
    if module.startswith(("torch._subclasses", "torch.fx.experimental", "torch._dynamo")):
        return True
    return isinstance(error, RuntimeError | TypeError | NotImplementedError) and any(
        text in str(error) for text in _FAKE_TEXTS
    )


class Tracer:
    """One candidate: imported, then traced for one case; another case needs a fork of its own or another import."""

    def __init__(self, source: bytes, request: Request, scratch: Path) -> None:
        self._request = request
        self._recorder = Recorder(str(scratch / wire.CANDIDATE_FILE))
        self._recorder.asserted = _asserted_lines(source)
        self._kernels = Kernels(self._recorder, source)
        self._source = source
        self._module: ModuleType | None = None
        self._entries: list[Entry] = []
        """The recording of the import."""
        stand_ins.install(self._recorder, self._kernels, fake_cuda.parse_target(request.target), source)

    @contextlib.contextmanager
    def world(self) -> Iterator[None]:
        fake = FakeTensorMode(allow_fallback_kernels=False, allow_non_fake_inputs=True, shape_env=ShapeEnv())
        with torch.no_grad(), fake, self._recorder, fake_cuda.IndexedDevices():
            yield

    def load(self, scratch: Path) -> None:
        self._recorder.trouble = None
        with self._recording("import") as entries:
            self._module = _load(self._source, scratch)
        self._entries = entries

    @contextlib.contextmanager
    def _recording(self, stage: str) -> Iterator[list[Entry]]:
        self._recorder.is_constructing = stage == "construct"
        with self._recorder.into(Sink()) as sink, _raised_in(stage, self._recorder.file):
            yield sink.entries
        if self._recorder.trouble is not None:
            raise self._recorder.trouble

    def case(self, case: Case) -> plan.Plan:
        """The plan of one case alone."""
        with self._recording("construct") as construct:
            assert self._module is not None
            model = build(self._module, self._request.entry, case)
            parameters = self._parameters(model)
        with self._recording("call") as first:
            inputs, given = self._inputs(case)
            model(*inputs)
        with self._recording("call") as steps:
            inputs, _ = self._inputs(case)
            tree = plan.List(tuple(self._tree(value, AN_INPUT) for value in inputs))
            found = model(*inputs)
        output = self._tree(found, "the output")
        steps = self._without_counters(steps, parameters, _in_tree(output))
        steps = self._without_spare(steps, _in_tree(output))
        needed = _read_by(steps) | _in_tree(output) | set(parameters.values())
        needed -= set().union(*(entry.defines for entry in steps), _in_tree(tree))
        before, state_steps = state.keep(self._recorder, self._entries, construct, first, steps, given, needed)
        trace = plan.Trace(
            case.name,
            tree,
            tuple(parameters.items()),
            (*before, *(entry.step for entry in construct)),
            tuple(state_steps),
            tuple(entry.step for entry in steps),
            output,
        )
        return self._plan(renumbered(without_unused(trace)))

    def _without_spare(self, entries: list[Entry], used: set[int]) -> list[Entry]:
        """Less the operators that only served to ask what a candidate asserts, and less what nobody asked for."""
        kept: list[Entry] = []
        used = set(used)
        for entry in reversed(entries):
            is_spare = entry.is_spare or entry.step.line in self._recorder.asserted
            if is_spare and not entry.writes and not entry.defines & used:
                continue
            used |= entry.reads
            kept.insert(0, entry)
        return kept

    def _without_counters(self, entries: list[Entry], parameters: dict[str, int], used: set[int]) -> list[Entry]:
        """Less the additions to a buffer of one integer that nothing else reads, as BatchNorm counts its calls."""
        storage_of, leaves = self._recorder.storage_of, self._recorder.leaves
        buffers = {storage_of[value] for name, value in parameters.items() if name.startswith(plan.BUFFER)}
        counts = [
            isinstance(entry.step, plan.Call)
            and entry.step.op.startswith("aten.add_.")
            and entry.writes <= buffers
            and all((leaves[value].shape, leaves[value].dtype) == ((), "int64") for value in entry.reads)
            for entry in entries
        ]
        others = used.union(*(entry.reads for entry, is_count in zip(entries, counts, strict=True) if not is_count))
        read = {storage_of[value] for value in others}
        return [entry for entry, is_count in zip(entries, counts, strict=True) if not is_count or entry.writes & read]

    def _plan(self, trace: plan.Trace) -> plan.Plan:
        digest = f"sha256:{hashlib.sha256(self._source).hexdigest()}"
        tables = tuple(self._kernels.functions), tuple(self._kernels.kernels)
        return plan.Plan(self._request.target, digest, *tables, (trace,))

    def _parameters(self, model: Any) -> dict[str, int]:
        if not isinstance(model, torch.nn.Module):
            return {}
        return {
            name if isinstance(value, torch.nn.Parameter) else plan.BUFFER + name: self._recorder.id_of(value)
            for name, value in model.state_dict(keep_vars=True).items()
            if isinstance(value, torch.Tensor)
        }

    def _inputs(self, case: Case) -> tuple[Any, set[int]]:
        """Fresh inputs, which no step made, and their ids."""
        with self._recorder.into(Sink()) as sink:
            inputs = inputs_of(case)
        return inputs, set().union(*(entry.defines for entry in sink.entries))

    def _tree(self, value: Any, what: str, depth: int = 0) -> plan.Tree:
        if depth > plan.DEPTH_MAX:
            raise Untraced(f"{what} is nested deeper than {plan.DEPTH_MAX}")
        if isinstance(value, torch.Tensor):
            return replace(self._recorder.leaf(value), id=self._recorder.id_of(value))
        if value is None or isinstance(value, bool):
            return value
        for plain in (int, float, str):
            if isinstance(value, plain):
                return plain(value)
        if what == AN_INPUT and isinstance(value, complex | torch.dtype | torch.device):
            return str(value)  # the executor binds tensors alone
        if isinstance(value, dict):
            pairs = tuple((key, self._tree(item, what, depth + 1)) for key, item in value.items())
            if any(type(key) not in (str, int) for key, _ in pairs):
                raise Untraced(f"{what} has a key that is neither a text nor an integer")
            return plan.Dict(pairs)
        if isinstance(value, tuple | list):
            items = tuple(self._tree(item, what, depth + 1) for item in value)
            return items if isinstance(value, tuple) else plan.List(items)
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            raise Untraced(f"{what} has a number that only the GPU knows")
        raise Untraced(f"{what} has a {type(value).__name__}, which cannot be traced")


def _load(source: bytes, scratch: Path) -> ModuleType:
    """As loading.load_candidate, with stand-ins for some of Python's functions where it may ask the GPU for numbers."""
    if not re.search(rb"\b(int|float)\(|\.(item|tolist)\(", source):
        return loading.load_candidate(source, scratch)
    return loading.load_candidate(source, scratch, stand_ins.shadow_numbers)


def _asserted_lines(source: bytes) -> frozenset[int]:
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # reported by the import
        return frozenset()
    spans = [range(node.lineno, (node.end_lineno or node.lineno) + 1) for node in nodes if isinstance(node, ast.Assert)]
    return frozenset(line for span in spans for line in span)


def _read_by(entries: list[Entry]) -> set[int]:
    return set().union(*(entry.reads for entry in entries))


def _in_tree(tree: plan.Tree) -> set[int]:
    return {leaf.id for leaf in plan.tree_leaves(tree)}


def prime() -> None:
    """Import and fill the caches that the first trace needs: for a zygote. Leaves torch and triton unchanged.

    Not those of `.item()`: its symbols import Inductor, and with it filelock, whose hooks prevent a fork in a child of
    a zygote's child if the two are in different PID namespaces.
    """
    importlib.import_module("torch._dynamo")
    importlib.import_module("torch._decomp.decompositions_for_rng")
    with torch.no_grad(), FakeTensorMode(shape_env=ShapeEnv()):
        layer = torch.nn.Linear(8, 8)
        (layer(torch.empty(8, 8)).view(-1).contiguous() * 2).to(torch.float16)


# --- all cases ---


def trace(source: bytes, request: Request, scratch: Path) -> Traced:
    """The plan of a candidate for all cases of a request. Changes this process for good: it is for one candidate."""
    tracer = Tracer(source, request, scratch)
    with tracer.world():
        try:
            tracer.load(scratch)
        except (Untraced, Raised) as trouble:
            return Traced(None, (_refusal(request.cases[0], trouble),))
        if len(request.cases) == 1:
            outcomes = [_outcome(tracer, request.cases[0])]
        else:
            outcomes = _of_each(tracer, request.cases, scratch)
    refusals = tuple(found for found in outcomes if isinstance(found, Refusal))
    plans = [found for found in outcomes if isinstance(found, plan.Plan)]
    if isinstance(outcomes[0], Refusal):
        return Traced(None, refusals)
    return Traced(replace(merged(plans), refusals=tuple(map(_shortened, refusals))).dump(), refusals)


def _shortened(refusal: Refusal) -> Refusal:
    """Of a traceback its last line."""
    reason = wire.clean_text(refusal.reason.strip().rpartition("\n")[2], plan.REASON_MAX)
    return replace(refusal, reason=reason, line=min(max(refusal.line, 0), plan.LINE_MAX))


def _refusal(case: Case, trouble: Untraced | Raised) -> Refusal:
    if isinstance(trouble, Untraced):
        return Refusal(case.name, "untraced", trouble.line, trouble.reason)
    if trouble.stage == "timeout":
        return Refusal(case.name, "timeout", trouble.line, str(trouble.error))
    error = wire.error_json(trouble.error)
    kind = "oom" if isinstance(trouble.error, MemoryError) else trouble.stage
    return Refusal(case.name, kind, trouble.line, str(error["text"]))


def _outcome(tracer: Tracer, case: Case) -> plan.Plan | Refusal:
    try:
        return tracer.case(case)
    except (Untraced, Raised) as trouble:
        return _refusal(case, trouble)


def _of_each(tracer: Tracer, cases: tuple[Case, ...], scratch: Path) -> list[plan.Plan | Refusal]:
    found = _in_turn(tracer, cases, scratch)
    if _is_endless(found[0]):  # the result is known, and each other case would take as long
        return [found[0]]
    rest = iter(_side_by_side(tracer, [case for case, known in zip(cases, found, strict=True) if known is None]))
    return [next(rest) if known is None else known for known in found]


def _in_turn(tracer: Tracer, cases: tuple[Case, ...], scratch: Path) -> list[plan.Plan | Refusal | None]:
    """Each case in one fork, with a module of its own. None: it has to be traced alone."""

    def work(file: IO[bytes]) -> None:
        end = time.process_time() + IN_TURN_S
        outcome = _trace_alone(tracer, cases[0], file)  # nothing of another case is there: what becomes of it stands
        file.write(b"\n")
        if _is_endless(outcome):
            return
        for case in cases[1:]:
            if time.process_time() > end:
                return
            with contextlib.suppress(Untraced, Raised):
                tracer.load(scratch)
                file.write(tracer.case(case).dump())
            file.write(b"\n")

    with os.fdopen(_forked(work), "rb") as file:
        first = file.readline(plan.BYTES_MAX + 1)
        found: list[plan.Plan | Refusal | None] = [_parsed(first, cases[0]) if first else None]
        return found + [_plan_of(case, file.readline(plan.BYTES_MAX + 1)) for case in cases[1:]]


def _plan_of(case: Case, data: bytes) -> plan.Plan | None:
    with contextlib.suppress(plan.PlanError):
        found = plan.parse(data)
        if [trace.case for trace in found.traces] == [case.name]:
            return found
    return None


def _side_by_side(tracer: Tracer, cases: Sequence[Case]) -> list[plan.Plan | Refusal]:
    """Each case in a fork, as many at a time as there are cores."""
    at_once = max(1, len(os.sched_getaffinity(0)))
    found: list[plan.Plan | Refusal] = []
    for begin in range(0, len(cases), at_once):
        part = cases[begin : begin + at_once]
        readers = [_forked(partial(_trace_alone, tracer, case)) for case in part]
        found += [_collected(reader, case) for reader, case in zip(readers, part, strict=True)]
    return found


def _is_endless(outcome: plan.Plan | Refusal | None) -> TypeGuard[Refusal]:
    return isinstance(outcome, Refusal) and outcome.kind == "timeout"


def _trace_alone(tracer: Tracer, case: Case, file: IO[bytes]) -> plan.Plan | Refusal:
    outcome = _outcome(tracer, case)
    file.write(outcome.dump() if isinstance(outcome, plan.Plan) else json.dumps(astuple(outcome)).encode())
    return outcome


def _forked(work: Callable[[IO[bytes]], object]) -> int:
    """Starts a fork that does the work; returns the descriptor of its output."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            os.close(reader)
            with os.fdopen(writer, "wb") as file:
                work(file)
        finally:
            os._exit(0)
    os.close(writer)
    return reader


def _collected(reader: int, case: Case) -> plan.Plan | Refusal:
    with os.fdopen(reader, "rb") as file:
        return _parsed(file.read(plan.BYTES_MAX + 1), case)


def _parsed(data: bytes, case: Case) -> plan.Plan | Refusal:
    try:
        if data.startswith(b"["):
            return Refusal(*json.loads(data))
        return plan.parse(data)
    except (plan.PlanError, ValueError, TypeError) as error:
        return Refusal(case.name, "untraced", 0, f"the trace of this case is not a plan: {error}"[:300])

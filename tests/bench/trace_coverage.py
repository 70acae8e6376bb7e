"""How many right candidates are traced whole, compiled and accepted: trace_coverage.py [--judge] [FOLDER...]

Traces every right candidate of the corpus for its task's own case, and every module of the folders named, in a process
each, and prints a line for each and the total. A module of a folder has a class ModelNew; its get_inputs() and, where
it wants, get_init_inputs() stand beside it or in a file of its name that ends in .ref. Needs no GPU, and has no
sandbox: name only folders that you trust.

With --judge a daemon without a GPU judges what was traced, against the class Model of the same file, under the
strictest policy that allows its operators: its kernels are compiled for sm_90, and Triton's interpreter runs them.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "server" / "harness")]

import corpus  # noqa: E402
import torch  # noqa: E402
from daemon import Daemon, DaemonError, running_daemon  # noqa: E402
from shared import (  # noqa: E402
    operators,
    plan,
    values,
)
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from tracer import trace  # noqa: E402

TARGET = "cuda:90"
LIMIT_S = 600.0
POLICIES: dict[operators.Foreign, str] = {"movement": "strict", "library": "hybrid", "any": "any"}
UNCONFINED = ("bad_", "links_in_the_cache", "locked_cache", "pipe_in_the_cache")
"""Right candidates that first try what a sandbox is for; there is none here."""


@dataclass(frozen=True)
class Module:
    label: str
    source: bytes
    entry: str
    reference: str
    """Text with get_inputs and get_init_inputs."""


@dataclass(frozen=True)
class Line:
    label: str
    milliseconds: float
    reason: str
    """Empty: it was traced whole."""
    operators: int = 0
    launches: int = 0
    policy: str = ""
    """The strictest policy that allows its operators."""
    foreign: str = ""
    """The first operator that keeps it from a stricter one."""
    verdict: str = ""
    """Empty: it was not judged."""
    compiled: int = 0
    """Kernels for sm_90."""

    def __str__(self) -> str:
        if self.reason:
            return f"{self.label}: not traced: {self.reason}"
        counted = f"{self.launches} launches, {self.operators} operators"
        policy = f"{self.policy} ({self.foreign})" if self.foreign else self.policy
        judged = f", {self.compiled} compiled, {self.verdict}" if self.verdict else ""
        return f"{self.label}: {counted}, {policy}, {self.milliseconds:.0f} ms{judged}"


def of_corpus() -> Iterator[Module]:
    tasks = corpus.load_tasks()
    for candidate in corpus.load_candidates():
        if candidate.is_honest and not candidate.is_completion and not candidate.name.startswith(UNCONFINED):
            task = tasks[candidate.task]
            entry = candidate.entry_point or f"{task.entry_point}New"
            yield Module(candidate.label, candidate.path.read_bytes(), entry, task.source)


def of_folder(folder: Path) -> Iterator[Module]:
    for path in sorted(folder.glob("*.py")):
        reference = path.with_suffix(".ref")
        text = (reference if reference.exists() else path).read_text()
        yield Module(f"{folder.name}/{path.stem}", path.read_bytes(), "ModelNew", text)


def case_of(reference: str) -> dict[str, Any]:
    """The own case of a reference, whose inputs are drawn without data."""
    given: dict[str, Any] = {"__name__": "reference"}
    with FakeTensorMode():
        exec(compile(reference, "reference.py", "exec"), given)
        init: Any = given.get("get_init_inputs", list)()
        inputs = given["get_inputs"]()
    options: dict[str, Any] = {}
    if isinstance(init, dict):
        init, options = [], init
    elif len(init) == 2 and isinstance(init[0], list | tuple) and isinstance(init[1], dict):
        init, options = init
    put = values.TensorNote.of
    return {
        "init": {"args": values.encode(list(init), put), "kwargs": values.encode(options, put)},
        "inputs": values.encode(list(inputs), put),
    }


def traced(module: Module) -> Line:
    try:
        case = case_of(module.reference)
    except Exception as error:
        return Line(module.label, 0, f"its reference: {type(error).__name__}: {error}"[:200])
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        request = trace.Request.of(TARGET, module.entry, {"own": case})
        found = trace.trace(module.source, request, Path(folder))
    spent = (time.monotonic() - begun) * 1e3
    if found.plan is None:
        one = found.refusals[0]
        text = one.reason.strip().splitlines()
        return Line(
            module.label, spent, f"{one.kind}, line {one.line}: {text[-1] if one.kind != 'untraced' else text[0]}"
        )
    parsed = plan.parse(found.plan)
    steps = list(plan.walk(parsed.traces[0].steps))
    launches = sum(isinstance(step, plan.Launch) for step in steps)
    refused = {name: operators.allowed(parsed, foreign) for foreign, name in POLICIES.items()}
    policy = next((name for name, refusals in refused.items() if not refusals), "none")
    foreign = next((refusals[0].operator for name, refusals in reversed(refused.items()) if refusals), "")
    return Line(module.label, spent, "", len(steps) - launches, launches, policy, foreign)


def judged(daemon: Daemon, module: Module, line: Line) -> Line:
    """With its verdict, where it has a reference and is traced."""
    if line.reason or line.policy == "none":
        return line
    policy = {"name": "hybrid", "foreign": "any"} if line.policy == "any" else {"name": line.policy}
    try:
        task = daemon.post("/v1/tasks", {"name": module.label, "reference": module.reference, "level": 1}, LIMIT_S)
        body = {"task": task["id"], "candidate": module.source.decode(), "entry_point": module.entry, "policy": policy}
        verdict = daemon.judge(body, LIMIT_S)
    except DaemonError as error:
        return replace(line, verdict=f"not judged: {str(error)[:300]}")
    compiled = next((stage["of"] for stage in verdict["stages"] if stage["stage"] == "compile" and stage["done"]), 0)
    if verdict["class"] == "ok":
        return replace(line, verdict=f"ok until {verdict['passed_stage']}", compiled=compiled)
    said = " ".join(str((verdict.get("feedback") or {}).get("text")).split())[:400]
    return replace(line, verdict=f"{verdict['class']} in {verdict['failed_at']}: {said}", compiled=compiled)


def in_fork(work: Callable[[], Line], label: str) -> Line:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
            os.setpgid(0, 0)
            line = work()
            with os.fdopen(writer, "wb") as file:
                pickle.dump(line, file)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        data = file.read()
    os.waitpid(pid, 0)
    found = pickle.loads(data) if data else Line(label, 0, "its process ended")
    assert isinstance(found, Line)
    return found


def report(lines: list[Line]) -> list[str]:
    whole = [line for line in lines if not line.reason]
    rows = [str(line) for line in lines]
    share = 100 * len(whole) / max(1, len(lines))
    rows.append(f"traced whole: {len(whole)} of {len(lines)} ({share:.1f} %)")
    for policy in ("strict", "hybrid", "any", "none"):
        count = sum(line.policy == policy for line in whole)
        rows.append(f"  allowed from {policy}: {count}")
    given = [line for line in whole if line.verdict]
    if given:
        rows.append(f"judged without a GPU: {len(given)}")
        rows.append(f"  compiled for sm_90: {sum(line.compiled > 0 for line in given)}")
        rows.append(f"  accepted: {sum(line.verdict.startswith('ok') for line in given)}")
    spent = sorted(line.milliseconds for line in whole)
    if spent:
        rows.append(f"  milliseconds: median {spent[len(spent) // 2]:.0f}, most {spent[-1]:.0f}")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--no-corpus", action="store_true")
    parser.add_argument("--only", default="", help="modules with this in their label")
    parser.add_argument("--judge", action="store_true")
    parser.add_argument("--programs", type=Path, default=ROOT / "build" / "bin")
    parser.add_argument("folders", nargs="*", type=Path)
    given = parser.parse_args()
    trace.prime()
    torch.set_num_threads(1)
    modules = [] if given.no_corpus else list(of_corpus())
    modules += [module for folder in given.folders for module in of_folder(folder)]
    modules = [module for module in modules if given.only in module.label]
    lines = []
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(running_daemon(given.programs, sys.executable)) if given.judge else None
        if daemon is not None:
            daemon.wait_until_ready()
        for module in modules:
            line = in_fork(lambda module=module: traced(module), module.label)  # type: ignore[misc]
            lines.append(line if daemon is None else judged(daemon, module, line))
            print(lines[-1], flush=True)
    rows = report(lines)
    print("\n".join(rows[len(lines) :]))
    if given.out is not None:
        given.out.write_text("\n".join(rows) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

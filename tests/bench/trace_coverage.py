"""How many right candidates are traced whole: python3 tests/bench/trace_coverage.py [--out FILE] [FOLDER...]

Traces every right candidate of the corpus for its task's own case, and every module of the folders named, in a process
each, and prints a line for each and the total. A module of a folder has a class ModelNew; its get_inputs() and, where
it wants, get_init_inputs() stand beside it or in a file of its name that ends in .ref. Needs no GPU, and has no
sandbox: name only folders that you trust.
"""

from __future__ import annotations

import argparse
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "server" / "harness")]

import corpus  # noqa: E402
import torch  # noqa: E402
import values  # noqa: E402
from shared import operators, plan  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from tracer import trace  # noqa: E402

TARGET = "cuda:90"
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

    def __str__(self) -> str:
        if self.reason:
            return f"{self.label}: not traced: {self.reason}"
        counted = f"{self.launches} launches, {self.operators} operators"
        return f"{self.label}: {counted}, {self.policy}, {self.milliseconds:.0f} ms"


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
    policies: tuple[tuple[operators.Foreign, str], ...] = (
        ("movement", "strict"),
        ("library", "hybrid"),
        ("any", "any"),
    )
    policy = next((name for foreign, name in policies if not operators.allowed(parsed, foreign)), "none")
    return Line(module.label, spent, "", len(steps) - launches, launches, policy)


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
    spent = sorted(line.milliseconds for line in whole)
    if spent:
        rows.append(f"  milliseconds: median {spent[len(spent) // 2]:.0f}, most {spent[-1]:.0f}")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--no-corpus", action="store_true")
    parser.add_argument("folders", nargs="*", type=Path)
    given = parser.parse_args()
    trace.prime()
    torch.set_num_threads(1)
    modules = [] if given.no_corpus else list(of_corpus())
    modules += [module for folder in given.folders for module in of_folder(folder)]
    lines = []
    for module in modules:
        lines.append(in_fork(lambda module=module: traced(module), module.label))  # type: ignore[misc]
        print(lines[-1], flush=True)
    rows = report(lines)
    print("\n".join(rows[len(lines) :]))
    if given.out is not None:
        given.out.write_text("\n".join(rows) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

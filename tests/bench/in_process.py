"""The corpus through the usual evaluation inside one process: what `verifier selftest` is compared with.

    PYTHON tests/bench/in_process.py --harness build/lib/verifierd/harness --out results.jsonl

KernelBench's way, written anew: reference and candidate are imported into one process, which seeds torch's
generator, draws inputs, compares five trials by allclose, and times the candidate by the mean of CUDA events;
what this process says is believed. Each candidate has a fresh process, and each reference one of its own in which
it is timed. Candidates are hostile all the same, so these processes are children in the harness' own sandbox:
that protects the machine, and does not touch what a candidate tells of itself. Without a GPU Triton's interpreter
runs the kernels, and nothing is timed: as many processes as there are cores run side by side then, else one at a time,
since several on a GPU slow each other (--side-by-side, where only what is accepted matters).

One line of JSON for each row: {"row", "kind", "accepted", "speedup", "why", "seconds"}; then the counts.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import importlib
import importlib.util
import itertools
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import corpus  # noqa: E402

SEED = 42
CORRECTNESS_TRIALS = 5
TIMING_TRIALS = 100
WARMUPS = 3
TOLERANCE = {"torch.float16": 1e-2, "torch.bfloat16": 1e-2}
FLOAT_TOLERANCE = 1e-4
FIRST_UID = 62000
MEMORY_BYTES = {"cpu": 1 << 33, "cuda": 1 << 35}
DISK_BYTES = 1 << 32
FILE_BYTES = 1 << 30
ANSWER_BYTES = 1 << 16
WATCH_S = 0.2


@dataclass(frozen=True)
class Row:
    """What the process said of one candidate."""

    row: str
    kind: str
    accepted: bool | None  # None: not judged, and `why`
    speedup: float | None
    why: str
    seconds: float


# --- in the child: the usual evaluation ---


def load(source: str, name: str, directory: Path) -> Any:
    """As a module with a file, since Triton reads the text of its kernels from there."""
    path = directory / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class Evaluation:
    """Both models in this process."""

    def __init__(self, task: corpus.Task, device: str, directory: Path, gate: int) -> None:
        import torch

        self.torch: Any = torch
        self.gate = gate
        self.device = device
        self.directory = directory
        self.task = task
        self.module = load(task.source, "reference", directory)

    def build(self, module: Any, entry: str) -> Any:
        torch = self.torch
        torch.manual_seed(SEED)
        with torch.device(self.device):
            init = self.module.get_init_inputs()
            if len(init) == 2 and isinstance(init[0], list) and isinstance(init[1], Mapping):
                return getattr(module, entry)(*init[0], **init[1])
            return getattr(module, entry)(*init)

    def inputs(self, seed: int) -> list[Any]:
        torch = self.torch
        torch.manual_seed(seed)
        with torch.device(self.device):
            return list(self.module.get_inputs())

    def settle(self) -> None:
        if self.device != "cpu":
            self.torch.cuda.synchronize()

    def differs(self, expected: Any, got: Any) -> str:
        """What is wrong with the outputs; "" where they are close."""
        flatten = self.torch.utils._pytree.tree_flatten
        (ours, shape), (theirs, other) = flatten(expected), flatten(got)
        if shape != other:
            return "another structure"
        for a, b in zip(ours, theirs, strict=True):
            if not isinstance(a, self.torch.Tensor):
                continue
            if a.shape != b.shape:
                return f"shape {tuple(b.shape)}, expected {tuple(a.shape)}"
            tolerance = TOLERANCE.get(str(a.dtype), FLOAT_TOLERANCE)
            if not self.torch.allclose(a, b.to(a.dtype), atol=tolerance, rtol=tolerance):
                return "values differ"
        return ""

    def judge(self, source: str, entry: str) -> str:
        """The five trials; "" for a candidate that is accepted."""
        torch = self.torch
        reference = self.build(self.module, self.task.entry_point)
        self.candidate = self.build(load(source, "candidate", self.directory), entry)
        torch.manual_seed(SEED)
        seeds = torch.randint(0, 1 << 30, (CORRECTNESS_TRIALS,)).tolist()
        for seed in seeds:
            inputs = self.inputs(seed)
            torch.manual_seed(seed)
            expected = reference(*inputs)
            self.settle()
            torch.manual_seed(seed)
            got = self.candidate(*inputs)
            self.settle()
            if wrong := self.differs(expected, got):
                return wrong
        return ""

    def time_ms(self, model: Any) -> float:
        """By one process at a time: the lock goes with whoever ends."""
        torch = self.torch
        fcntl.lockf(self.gate, fcntl.LOCK_EX)
        inputs = self.inputs(SEED)
        for _ in range(WARMUPS):
            model(*inputs)
            torch.cuda.synchronize()
        times = []
        for _ in range(TIMING_TRIALS):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            model(*inputs)
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end))
        fcntl.lockf(self.gate, fcntl.LOCK_UN)
        return float(sum(times) / len(times))


def evaluate(
    task: corpus.Task, candidate: corpus.Candidate | None, device: str, directory: Path, gate: int
) -> dict[str, Any]:
    """What the process tells: {"why", "ms"}. Without a candidate: the reference's own time."""
    import torch

    guard: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if device == "cpu":
        cpu_device = importlib.import_module("live.cpu_device")
        cpu_device.install()
        guard = cpu_device.torch_function_mode()
    with guard, torch.no_grad():
        evaluation = Evaluation(task, device, directory, gate)
        if candidate is None:
            model = evaluation.build(evaluation.module, task.entry_point)
            return {"why": "", "ms": evaluation.time_ms(model)}
        why = evaluation.judge(code_of(candidate), candidate.entry_point or "ModelNew")
        ms = evaluation.time_ms(evaluation.candidate) if not why and device != "cpu" else None
        return {"why": why, "ms": ms}


def code_of(candidate: corpus.Candidate) -> str:
    """A whole answer: the last fenced block, as is usual."""
    if not candidate.is_completion:
        return candidate.text
    parts = candidate.text.split("```")
    return parts[-2].partition("\n")[2] if len(parts) > 2 else candidate.text


# --- outside: a sandboxed child for each evaluation ---


@dataclass
class Child:
    """One evaluation that goes on."""

    pid: int
    pidfd: int
    answer: int
    scratch: Path
    started: float
    text: bytes = b""
    end: str = ""
    """Why it is not heard out."""


class Children:
    """Forks children as a zygote does, and listens to what they say."""

    def __init__(self, device: str, base: Path, mode: int, limit_s: float) -> None:
        self.native = importlib.import_module("shared.native")
        self.zygote = importlib.import_module("zygote")
        self.prime = importlib.import_module("prime")
        self.device = "cpu" if device == "cpu" else "cuda"
        self.base = base
        self.limit_s = limit_s
        self.prime.set_environment("run", device, base)
        self.prime.prime("run", device, "cuda:90")
        self.plan = self.zygote.probe(base, mode, self.device)
        self.gate = os.memfd_create("gate")
        self.prime.freeze()
        self._names = 0

    def run(self, task: corpus.Task, candidate: corpus.Candidate | None) -> tuple[dict[str, Any], float]:
        """What one child told, and how long it took."""
        ((_, found, seconds),) = self.run_all([(task, candidate)], 1)
        return found, seconds

    def run_all(
        self, evaluations: Iterable[tuple[corpus.Task, corpus.Candidate | None]], width: int
    ) -> Iterator[tuple[corpus.Candidate | None, dict[str, Any], float]]:
        """So many side by side, as they end: of whom, what it told, and how long it took."""
        waiting = iter(evaluations)
        going: list[tuple[corpus.Candidate | None, Child]] = []
        while True:
            for task, candidate in itertools.islice(waiting, width - len(going)):
                going.append((candidate, self._start(task, candidate)))
            if not going:
                return
            self._listen([child for _, child in going])
            ended = [one for one in going if one[1].end]
            going = [one for one in going if not one[1].end]
            for candidate, child in ended:
                yield candidate, *self._finish(child)

    def _start(self, task: corpus.Task, candidate: corpus.Candidate | None) -> Child:
        self._names += 1
        scratch = self.base / f"c{self._names}"
        scratch.mkdir()
        uid = FIRST_UID + self._names % 1000 if os.geteuid() == 0 else None
        read_end, write_end = os.pipe()
        started = time.monotonic()
        pid = self.native.fork_child(self.plan)
        if pid == 0:
            self._become(task, candidate, scratch, uid, write_end)
        os.close(write_end)
        return Child(pid, os.pidfd_open(pid), read_end, scratch, started)

    def _finish(self, child: Child) -> tuple[dict[str, Any], float]:
        """What it told, and how long it took; one that tells nothing is told as that."""
        signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
        self.native.kill_group(child.pid)
        os.waitpid(child.pid, 0)
        os.close(child.pidfd)
        os.close(child.answer)
        shutil.rmtree(child.scratch, ignore_errors=True)
        seconds = time.monotonic() - child.started
        try:
            found = json.loads(child.text)
            ms = found["ms"]
            return {"why": str(found["why"]), "ms": None if ms is None else float(ms)}, seconds
        except (ValueError, KeyError, TypeError):
            return {"why": child.end, "ms": None}, seconds

    def _listen(self, children: list[Child]) -> None:
        """For a moment; a child is heard out at a line, its end, its deadline, or when it holds too much."""
        ready = select.select([child.answer for child in children], [], [], WATCH_S)[0]
        for child in children:
            if child.answer in ready:
                part = os.read(child.answer, 4096)
                child.text += part
                if not part or child.text.endswith(b"\n") or len(child.text) >= ANSWER_BYTES:
                    child.end = "died"
            elif time.monotonic() > child.started + self.limit_s:
                child.end = f"nothing within {self.limit_s:.0f} s"
            else:
                with contextlib.suppress(self.native.NativeError):  # it has ended, and its answer is read next
                    usage = self.native.watch(child.pidfd, child.scratch, MEMORY_BYTES[self.device], DISK_BYTES)
                    child.end = f"too much: {usage.excess}" if usage.excess else ""

    def _become(
        self, task: corpus.Task, candidate: corpus.Candidate | None, scratch: Path, uid: int | None, answer: int
    ) -> None:
        """In the child: confine, evaluate, tell. Never returns."""
        try:
            null = os.open("/dev/null", os.O_RDWR)
            for fd in range(3):
                os.dup2(null, fd)
            settings = replace(
                self.zygote.sandbox_settings(scratch, uid, self.base, self.device),
                memory_bytes=MEMORY_BYTES[self.device],
                file_bytes=FILE_BYTES,
                keep=(answer, self.gate),
            )
            self.native.enter_sandbox(settings, self.plan)
            self.prime.child_environment(scratch, self.base)
            if os.getpid() == 1 and (worker := os.fork()) != 0:
                # An init survives most signals that it raises itself: the evaluation must not be one.
                os.close(answer)
                os.waitpid(worker, 0)
                os._exit(0)
            os.chdir(scratch)
            found = evaluate(task, candidate, self.device, scratch, self.gate)
        except BaseException as error:  # whatever foreign code raises
            found = {"why": f"{type(error).__name__}: {error}"[:300], "ms": None}
        with contextlib.suppress(BaseException):
            os.write(answer, json.dumps(found).encode() + b"\n")
        os._exit(0)


def judge_all(children: Children, rows: list[corpus.Candidate], deadline: float, width: int) -> Iterator[Row]:
    tasks = corpus.load_tasks()
    references: dict[str, float | None] = {}
    late: list[corpus.Candidate] = []

    def in_time() -> Iterator[tuple[corpus.Task, corpus.Candidate]]:
        for row in rows:
            if time.monotonic() > deadline:
                late.append(row)
            else:
                yield tasks[row.task], row

    for candidate, found, seconds in children.run_all(in_time(), width):
        assert candidate is not None
        is_accepted = not found["why"]
        if is_accepted and children.device != "cpu" and candidate.task not in references:
            references[candidate.task] = children.run(tasks[candidate.task], None)[0]["ms"]
        reference, own = references.get(candidate.task), found["ms"]
        speedup = round(reference / own, 4) if reference and own else None
        yield Row(candidate.label, candidate.kind, is_accepted, speedup, found["why"], round(seconds, 2))
    for candidate in late:
        yield Row(candidate.label, candidate.kind, None, None, "no time was left for it", 0.0)


def serve(children: Children, width: int) -> None:
    """Lines of [[reference, code], …] from standard input, each answered by a line of what their processes told; the
    empty code is the reference itself."""
    for number, line in enumerate(sys.stdin):
        jobs = json.loads(line)
        tasks = [corpus.Task(f"{number}", Path(), source, 1, "Model", "", False, False) for source, _ in jobs]
        rows = [
            corpus.Candidate(
                f"{number}", f"{i}", Path(), code, False, "", frozenset(), frozenset(), "", None, False, ""
            )
            for i, (_, code) in enumerate(jobs)
        ]
        asked = [(task, row if row.text else None) for task, row in zip(tasks, rows, strict=True)]
        told = {candidate.name if candidate else None: found for candidate, found, _ in children.run_all(asked, width)}
        print(json.dumps([told[row.name if row.text else None] for row in rows]), flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The corpus through the usual evaluation inside one process.")
    parser.add_argument("--harness", type=Path, default=ROOT / "build/lib/verifierd/harness")
    parser.add_argument("--device", default="cpu", help="cpu or cuda:N")
    parser.add_argument("--out", type=Path, help="a line of JSON for each row")
    parser.add_argument(
        "--serve", action="store_true", help="evaluate what standard input has, for tests/bench/forging.py"
    )
    parser.add_argument("--only", action="append", help="candidates whose TASK/NAME match (again for more)")
    parser.add_argument(
        "--side-by-side", type=int, default=0, metavar="N", help="processes at a time (default: cores; 1 with a GPU)"
    )
    parser.add_argument("--child-limit-s", type=float, default=60.0)
    parser.add_argument("--limit-s", type=float, default=1800.0, help="what is left then is not judged")
    return parser.parse_args()


def chosen(options: argparse.Namespace) -> list[corpus.Candidate]:
    needs_gpu = {name for name, task in corpus.load_tasks().items() if task.needs_gpu}
    return [
        candidate
        for candidate in corpus.load_candidates()
        if any(fnmatchcase(candidate.label, pattern) for pattern in options.only or ["*"])
        and (options.device != "cpu" or not (candidate.needs_gpu or candidate.task in needs_gpu))
    ]


def judge_corpus(children: Children, options: argparse.Namespace, width: int) -> None:
    deadline = time.monotonic() + options.limit_s
    rows = chosen(options)
    accepted: Counter[str] = Counter()
    with options.out.open("w") as file:
        for row in judge_all(children, rows, deadline, width):
            accepted[row.kind] += bool(row.accepted)
            file.write(json.dumps(asdict(row)) + "\n")
            file.flush()
    counts = Counter(row.kind for row in rows)
    print(json.dumps({kind: {"rows": counts[kind], "accepted": accepted[kind]} for kind in corpus.KINDS}))


def main() -> int:
    options = parse_arguments()
    options.out = options.out.resolve() if options.out else None
    harness = options.harness.resolve()
    sys.path.insert(0, str(harness))
    os.environ.setdefault("VERIFIERD_LIBHARNESS", str(harness.parent / "libharness.so"))
    sys.dont_write_bytecode = True
    mode = importlib.import_module("shared.native").isolate_zygote()
    base = Path(tempfile.mkdtemp(prefix="verifierd-in-process-"))
    base.chmod(0o755)
    width = options.side_by_side or (1 if options.device != "cpu" else len(os.sched_getaffinity(0)))
    try:
        children = Children(options.device, base, mode, options.child_limit_s)
        if options.out:
            judge_corpus(children, options, width)
        else:
            serve(children, width)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
